/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A container's life: create, start, its end, stop, remove. Peculiar: the end is always handled by
 * one task of its own (node_container_exited), whoever caused it; stop and remove only send the
 * signal and wait for that.
 */
#include "sandbox/priv.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>

#include "io/base/alloc.h"
#include "io/base/fault.h"
#include "io/base/log.h"
#include "io/fs.h"
#include "io/offload.h"
#include "sandbox/cdi.h"
#include "store/containers.h"

/* Why CRI clients see a container as ended; the kubelet passes these on as they are. */
#define REASON_COMPLETED "Completed"
#define REASON_ERROR "Error"
#define REASON_OOM "OOMKilled"
#define REASON_START "StartError"
#define REASON_UNKNOWN "Unknown"

static struct string_list images_of(struct arena *arena, const struct container *c)
{
	const struct front_end *front = c->node->front;

	return front->container_images(arena, front->container_decode(arena, &c->config, NULL));
}

/* NULL when it, or one that is mounted, is damaged or gone. */
static const struct image *image_of(const struct container *c)
{
	struct arena *arena CLEANUP(cleanup_arena_fn) = arena_new(TASK_ARENA_CAP);
	struct string_list mounted;

	if (c->is_damaged)
		return NULL;
	mounted = images_of(arena, c);
	for (size_t i = 0; i < mounted.count; i++)
		if (!image_by_id(c->node->images, mounted.items[i]))
			return NULL;
	return image_by_id(c->node->images, c->image_id);
}

int container_hold_images(struct container *c, struct error *err)
{
	struct arena *arena CLEANUP(cleanup_arena_fn) = arena_new(TASK_ARENA_CAP);
	struct image_store *images = c->node->images;
	struct string_list mounted = images_of(arena, c);
	struct error why = {0};

	/* of a damaged one what is left is held, so that the others are too */
	for (size_t i = 0; i < mounted.count; i++)
		(void)image_hold(images, mounted.items[i], c->id, &why);
	(void)image_hold(images, c->image_id, c->id, &why);
	return why.code ? error_copy(err, &why) : 0;
}

int container_check_whole(const struct container *c, struct error *err)
{
	if (c->is_damaged)
		return error_set(err, ERR_PRECONDITION,
				 "container %s: the store's record of it is damaged; remove it",
				 c->id);
	if (c->is_partial)
		return error_set(err, ERR_PRECONDITION,
				 "container %s: its image %s, or one that it mounts, is damaged or "
				 "gone; import that again and restart the server, or create the "
				 "container anew",
				 c->id, c->image_id);
	return container_check_handle(c, err);
}

int container_make_spec(struct arena *arena, struct container *c, struct container_spec *ret,
			struct error *err)
{
	const struct image *image = image_of(c);

	ret->id = c->id;
	ret->sandbox_id = c->sandbox->id;
	ret->upper = arena_printf(arena, "%s/upper", c->root_dir);
	ret->work = arena_printf(arena, "%s/work", c->root_dir);
	c->is_partial = !image;
	TRY(c->node->front->container_spec(arena, c, image, ret, err));
	if (c->edits.length && image)
		TRY(cdi_apply(arena, c->edits.data, c->edits.length, ret, err));
	if (c->sandbox->options)
		TRY(handler_apply(arena, c->sandbox->options, ret, err));
	c->stop_signal = ret->stop_signal;
	c->has_tty = ret->has_tty;
	c->has_stdin = ret->has_stdin;
	return 0;
}

/* Makes a container's directories, off the loop. */
struct dirs_job {
	struct job job;
	char *root_dir, *state_dir;
	char *log_dir;	    /* or NULL */
	struct buf profile; /* empty: none */
};

static int write_profile(const struct dirs_job *j, struct error *err)
{
	cleanup_close int dir = open(j->root_dir, O_PATH | O_DIRECTORY | O_CLOEXEC);

	if (dir < 0)
		return error_errno(err, errno, "open %s", j->root_dir);
	return fs_write_at(dir, SECCOMP_PROFILE_NAME, &j->profile, 0600, err);
}

static int dirs_run(struct job *job, struct error *err)
{
	struct dirs_job *j = container_of(job, struct dirs_job, job);
	char *upper cleanup_free = xasprintf("%s/upper", j->root_dir);
	char *work cleanup_free = xasprintf("%s/work", j->root_dir);

	if (j->log_dir)
		TRY(fs_make_dirs(j->log_dir, 0755, err));
	TRY(fs_make_dirs(j->state_dir, 0711, err));
	TRY(fs_make_dirs(j->root_dir, 0711, err));
	/* the upper directory's mode is what the container sees of its root */
	TRY(fs_make_dirs(upper, 0755, err));
	TRY(fs_make_dirs(work, 0700, err));
	if (j->profile.length)
		TRY(write_profile(j, err));
	FAULT(directories_made);
	return 0;
}

static void dirs_free(struct job *job)
{
	struct dirs_job *j = container_of(job, struct dirs_job, job);

	free(j->root_dir);
	free(j->state_dir);
	free(j->log_dir);
	buf_done(&j->profile);
	free(j);
}

/* Takes profile. */
static struct dirs_job *start_dirs(struct task *t, const struct container *c, struct buf *profile)
{
	struct dirs_job *j = xnew(struct dirs_job);

	job_init(&j->job, dirs_run, dirs_free);
	j->root_dir = xstrdup(c->root_dir);
	j->state_dir = xstrdup(c->state_dir);
	j->profile = *profile;
	*profile = (struct buf){0};
	/* an absolute path, so it has a slash */
	if (c->log_path)
		j->log_dir = xasprintf("%.*s", (int)(strrchr(c->log_path, '/') - c->log_path),
				       c->log_path);
	offload_start(t, NULL, &j->job);
	return j;
}

/* A teardown must find what the job makes, so the wait does not end before it. */
static int finish_dirs(struct task *t, struct dirs_job *j)
{
	int r;

	task_stage(t, "making its directories");
	r = offload_finish(t, &j->job);
	job_unref(&j->job);
	return r;
}

static int prepare(struct task *t, struct container *c, const struct container_spec *spec)
{
	struct buf profile CLEANUP(buf_done) = {0};
	struct error cause;
	struct dirs_job *dirs;
	int r = 0;

	TRY(container_read_profile(t, c, &profile));
	dirs = start_dirs(t, c, &profile);
	/* the kind reads what is kept of a profile; else it need not wait */
	if (dirs->profile.length)
		r = offload_finish(t, &dirs->job);
	if (r == 0)
		r = c->sandbox->kind->container_create(t, c->sandbox->handle, spec, &c->handle);
	cause = t->err;
	TRY(finish_dirs(t, dirs));
	if (r < 0)
		return error_copy(&t->err, &cause);
	TRY(container_set_state(t, c, CONTAINER_CREATED));
	FAULT(container_created);
	return 0;
}

static int undo(struct task *t, struct container *c, int result)
{
	struct error cause = t->err;

	task_shield(t, +1);
	if (container_teardown(t, c) < 0)
		log_warning("container %s could not be undone and stays: %s", c->id, t->err.text);
	task_shield(t, -1);
	t->err = cause;
	return result;
}

static char *full_name(const struct sandbox *sb, const char *name)
{
	return xasprintf("%s/%s", sb->id, name);
}

/* As for sandboxes: 1 when the request repeats one that was or is being served. */
static int join_existing(struct task *t, struct node *n, const struct container_request *request,
			 const char *key, char *ret_id)
{
	struct container *existing = map_get(&n->container_names, key);
	struct container *c cleanup_container = NULL;
	int r;

	if (!existing)
		return 0;
	r = container_acquire(t, n, existing->id, &c);
	if (r == -ERR_NOT_FOUND)
		return 0;
	TRY(r);
	/* what could not be undone, or not be removed, is in nobody's hands */
	if (c->state == CONTAINER_CREATING || c->state == CONTAINER_REMOVING) {
		TRY(container_teardown(t, c));
		return 0;
	}
	if (c->state != CONTAINER_CREATED || c->config.length != request->config_size ||
	    memcmp(c->config.data, request->config, request->config_size))
		return error_set(&t->err, ERR_EXISTS,
				 "container %s: the name is taken by %s; remove that one or use "
				 "another attempt",
				 request->name, c->id);
	memcpy(ret_id, c->id, ID_SIZE);
	return 1;
}

static int begin(struct task *t, struct sandbox *sb, const struct container_request *request,
		 const char *key, struct container **ret)
{
	struct node *n = sb->node;
	const struct image *image = image_find(n->images, request->image);
	struct container *c;

	if (!image)
		return error_set(&t->err, ERR_NOT_FOUND,
				 "image %.200s: not on this node; pull or import it first",
				 request->image);
	c = container_new(n, sb, NULL);
	c->state = CONTAINER_CREATING;
	c->name = xstrdup(key);
	c->log_path = xstrdup_null(request->log_path);
	c->image_id = xstrdup(image->id);
	c->image_ref = xstrdup(image_reference(image));
	buf_set(&c->config, request->config, request->config_size);
	if (container_hold_images(c, &t->err) < 0 || task_mutex_lock(t, &c->queue) < 0) {
		image_release(n->images, c->id);
		container_unref(c);
		return -(int)t->err.code;
	}
	task_event_set(&c->settled);
	container_enter(c);
	*ret = c;
	return 0;
}

static int create_in(struct task *t, struct sandbox *sb, const struct container_request *request,
		     const char *key, char *ret_id)
{
	struct arena *arena CLEANUP(cleanup_arena_fn) = arena_new(TASK_ARENA_CAP);
	struct container_spec spec = {0};
	struct container *c cleanup_container = NULL;
	struct buf edits CLEANUP(buf_done) = {0};
	int r;

	if (sb->state != SANDBOX_READY)
		return error_set(&t->err, ERR_PRECONDITION,
				 "sandbox %s is not ready: nothing can be created in it", sb->id);
	TRY(sandbox_check_handle(sb, &t->err));
	TRY(cdi_find_edits(t, sb->node, &request->cdi_devices, &edits));
	TRY(begin(t, sb, request, key, &c));
	buf_set(&c->edits, edits.data, edits.length);
	/* what can't be translated never gets a row */
	r = container_make_spec(arena, c, &spec, &t->err);
	if (r < 0) {
		image_release(c->node->images, c->id);
		container_leave(c);
		return r;
	}
	r = container_insert(t, c);
	if (r == 0)
		r = prepare(t, c, &spec);
	if (r < 0)
		return undo(t, c, r);
	memcpy(ret_id, c->id, ID_SIZE);
	return 0;
}

int container_create(struct task *t, struct node *n, const struct container_request *request,
		     char *ret_id)
{
	struct sandbox *sb cleanup_sandbox = NULL;
	char *key cleanup_free = NULL;
	int r;

	TRY(sandbox_acquire(t, n, request->sandbox_id, &sb));
	key = full_name(sb, request->name);
	r = join_existing(t, n, request, key, ret_id);
	if (r)
		return r < 0 ? r : 0;
	return create_in(t, sb, request, key, ret_id);
}

/* The kind calls this when the process is born and pinned, but has not yet gone on. */
static int commit_running(struct task *t, void *data)
{
	struct pump_start *pump = data;
	struct container *c = pump->container;

	task_stage(t, "opening its log");
	TRY(container_wait_pump(t, pump));
	task_stage(t, "recording its start");
	c->started_at = realtime_ns();
	TRY(container_set_state(t, c, CONTAINER_RUNNING));
	FAULT(container_running_committed);
	return 0;
}

static void set_text(char **field, const char *text)
{
	free(*field);
	*field = xstrdup_null(text);
}

/* Records that it never ran. */
static int start_failed(struct task *t, struct container *c, int result)
{
	struct error cause = t->err;

	task_shield(t, +1);
	set_text(&c->reason, REASON_START);
	set_text(&c->message, cause.text);
	c->exit_code = 128;
	c->finished_at = realtime_ns();
	container_drop_io(t, c);
	if (container_set_state(t, c, CONTAINER_EXITED) < 0)
		log_error("container %s failed to start, and: %s", c->id, t->err.text);
	task_event_set(&c->exited);
	task_shield(t, -1);
	t->err = cause;
	return result;
}

static int bring_up(struct task *t, struct container *c, struct fifo_ends *ends)
{
	struct container_stdio stdio;
	struct pump_start pump;
	struct error cause;
	int master = -1, r;

	task_stage(t, "making its pipes");
	TRY(container_open_pipes(t, c, ends));
	stdio = (struct container_stdio){ends->container[0], ends->container[1],
					 ends->container[2]};
	/* the log is opened while the process is born; it goes on only with both */
	container_start_pump(&pump, c, ends);
	r = c->sandbox->kind->container_start(t, c->handle, &stdio, commit_running, &pump, &master);
	cause = t->err;
	task_stage(t, "opening its log");
	(void)container_wait_pump(t, &pump);
	if (r < 0)
		return error_copy(&t->err, &cause);
	container_write_later(c);
	if (master >= 0 && container_open_terminal(t, c, ends, master) < 0)
		log_warning("container %s: its terminal is not logged: %s", c->id, t->err.text);
	return 0;
}

/* Its program was not executed: back to before the start, so that a repeated one finds what it
 * expects. */
static int take_start_back(struct task *t, struct container *c)
{
	struct arena *arena CLEANUP(cleanup_arena_fn) = arena_new(TASK_ARENA_CAP);
	const struct sandboxer *kind = c->sandbox->kind;
	struct container_spec spec = {0};

	container_drop_io(t, c);
	TRY(container_make_spec(arena, c, &spec, &t->err));
	if (c->handle) {
		TRY(kind->container_remove(t, c->handle));
		kind->container_forget(take_ptr(c->handle));
	}
	TRY(kind->container_create(t, c->sandbox->handle, &spec, &c->handle));
	c->started_at = 0;
	return container_set_state(t, c, CONTAINER_CREATED);
}

/* The caller left or has no more time; nothing is wrong with the container. */
static int start_abandoned(struct task *t, struct container *c, int result)
{
	struct error cause = t->err;

	task_shield(t, +1);
	if (take_start_back(t, c) < 0)
		result = start_failed(t, c, result);
	task_shield(t, -1);
	t->err = cause;
	return result;
}

int container_start(struct task *t, struct node *n, const char *id)
{
	struct container *c cleanup_container = NULL;
	struct fifo_ends ends = fifo_ends_none();
	int r;

	TRY(container_acquire(t, n, id, &c));
	if (c->state != CONTAINER_CREATED)
		return error_set(&t->err, ERR_PRECONDITION, "container %s: it was started already",
				 c->id);
	if (c->sandbox->state != SANDBOX_READY)
		return error_set(&t->err, ERR_PRECONDITION,
				 "container %s: its sandbox %s is not ready", c->id,
				 c->sandbox->id);
	TRY(container_check_whole(c, &t->err));
	r = bring_up(t, c, &ends);
	fifo_ends_close(&ends);
	if (r == -ERR_DEADLINE || r == -ERR_CANCELLED)
		return start_abandoned(t, c, r);
	if (r < 0)
		return start_failed(t, c, r);
	node_tell(EVENT_STARTED, c->sandbox, c);
	return 0;
}

/* Whose limit it was: its own, or that of a group that has more. */
static char *oom_text(const struct container *c, const char *group)
{
	size_t length = group ? strlen(group) : 0;
	bool is_own = length >= ID_SIZE - 1 && !strcmp(group + length - (ID_SIZE - 1), c->id);

	if (!group)
		return xstrdup("nobody knows by whose limit");
	if (!strcmp(group, "/"))
		return xstrdup("the node had no memory left");
	return xasprintf("the memory limit of cgroup %s, %s, was reached", group,
			 is_own ? "its own" : "which has more than this container");
}

/* A later server doesn't tell of them again. The row is its queue's; its end writes it anyway. */
static void note_kills(struct task *t, void *arg)
{
	struct container *unlocked = arg, *c cleanup_container = NULL;

	if (container_acquire(t, unlocked->node, unlocked->id, &c) == 0 &&
	    c->state == CONTAINER_RUNNING)
		container_write_later(c);
	container_unref(unlocked);
}

void node_container_oom(void *data, const char *container_id, uint64_t kills, const char *group)
{
	struct node *n = data;
	struct container *c = map_get(&n->containers, container_id);
	char *why cleanup_free = NULL;

	if (!c)
		return;
	why = oom_text(c, group);
	log_warning("container %s: %llu of its processes killed for memory: %s", c->id,
		    (unsigned long long)kills, why);
	task_start(n->loop, "kills for memory", note_kills, container_ref(c));
}

static void describe_exit(struct container *c, const struct container_exit *e)
{
	c->finished_at = e->finished_at;
	if (!e->is_known) {
		c->exit_code = 255;
		set_text(&c->reason, REASON_UNKNOWN);
		set_text(&c->message, "it ended while nobody could see how");
		return;
	}
	c->exit_code = e->exit.code;
	if (e->is_oom_killed) {
		char *why cleanup_free = oom_text(c, e->oom_group);

		set_text(&c->reason, REASON_OOM);
		set_text(&c->message, why);
	} else {
		set_text(&c->reason, e->exit.code ? REASON_ERROR : REASON_COMPLETED);
	}
}

int container_check_handle(const struct container *c, struct error *err)
{
	if (c->handle)
		return 0;
	return error_set(err, ERR_UNAVAILABLE,
			 "container %s: the server could not take it over, see its log; "
			 "restart it to try again",
			 c->id);
}

/* All of it is gone: its output is drained before the end is reported. */
static int finish(struct task *t, struct container *c)
{
	struct container_exit e = {.never_ran = !c->handle};

	task_stage(t, "ending what is left of it");
	if (c->handle)
		TRY(c->sandbox->kind->container_wait(t, c->handle, &e));
	if (e.never_ran && image_of(c))
		return take_start_back(t, c);
	task_stage(t, "logging its last output");
	TRY(container_drain_io(t, c));
	FAULT(container_drained);
	describe_exit(c, &e);
	TRY(container_set_state(t, c, CONTAINER_EXITED));
	FAULT(container_exit_committed);
	container_drop_io(t, c);
	log_info("container %s exited: code %d, signal %d, %s", c->id, c->exit_code, e.exit.signal,
		 c->reason);
	task_event_set(&c->exited);
	return 0;
}

/* Handles the end once; what can't be recorded (a full disk) must be tried again, or the container
 * would run for ever in everybody's eyes. */
static int handle_exit(struct task *t, struct node *n, const char *id)
{
	struct container *c cleanup_container = NULL;

	TRY(container_acquire(t, n, id, &c));
	return c->state == CONTAINER_RUNNING ? finish(t, c) : 0;
}

static void exited_main(struct task *t, void *arg)
{
	struct container *c = arg;
	uint64_t wait_ms = 100;
	int r;

	while ((r = handle_exit(t, c->node, c->id)) < 0 && r != -ERR_NOT_FOUND) {
		log_error("container %s ended, but: %s", c->id, t->err.text);
		if (task_sleep_ms(t, wait_ms) < 0)
			break;
		wait_ms = wait_ms < 10000 ? wait_ms * 2 : wait_ms;
	}
	container_unref(c);
}

void node_container_exited(void *data, const char *container_id)
{
	struct node *n = data;
	struct container *c = map_get(&n->containers, container_id);

	if (c)
		task_start(n->loop, "container exit", exited_main, container_ref(c));
}

/* Sends what shall end it; the queue is held for that only. 1 when there is something to wait for.
 */
static int send_end(struct task *t, struct container *c, bool is_forced)
{
	struct task_mutex *held cleanup_unlock = NULL;

	TRY(container_lock(t, c));
	held = &c->queue;
	if (c->is_removed || c->state != CONTAINER_RUNNING)
		return 0;
	TRY(container_check_handle(c, &t->err));
	task_stage(t, "sending it a signal");
	if (is_forced) {
		TRY(c->sandbox->kind->container_kill_all(t, c->handle));
		return 1;
	}
	TRY(c->sandbox->kind->container_kill(t, c->handle, c->stop_signal));
	FAULT(container_signalled);
	return 1;
}

static int wait_exited(struct task *t, struct container *c, uint64_t grace_ms)
{
	uint64_t old = task_limit_ms(t, grace_ms);
	int r = task_event_wait(t, &c->exited);

	task_restore_deadline(t, old);
	return r;
}

int container_end(struct task *t, struct container *c, uint64_t grace_ms)
{
	int r;

	if (grace_ms) {
		r = send_end(t, c, false);
		if (r <= 0)
			return r;
		r = wait_exited(t, c, grace_ms);
		if (r != -ERR_DEADLINE)
			return r;
		TRY(task_check(t)); /* the caller's own deadline */
	}
	r = send_end(t, c, true);
	if (r <= 0)
		return r;
	return task_event_wait(t, &c->exited);
}

int container_stop(struct task *t, struct node *n, const char *id, uint64_t grace_ms)
{
	struct container *c = container_find(n, id);
	int r;

	if (!c)
		return 0;
	container_ref(c);
	r = container_end(t, c, grace_ms);
	container_unref(c);
	return r;
}

/* A handle from the spec and what was recorded. Of a spec that can't be made the ids are enough for
 * a container to end and be removed. */
static int recover_handle(struct task *t, struct container *c)
{
	struct arena *arena CLEANUP(cleanup_arena_fn) = NULL;
	const struct container_spec bare = {.id = c->id, .sandbox_id = c->sandbox->id};
	struct container_spec spec = {0};
	struct error why = {0};

	if (c->handle)
		return 0;
	TRY(sandbox_check_handle(c->sandbox, &t->err));
	arena = arena_new(TASK_ARENA_CAP);
	if (container_make_spec(arena, c, &spec, &why) < 0) {
		container_set_damaged(c, why.text);
		spec = bare;
	}
	TRY(c->sandbox->kind->container_recover(t, c->sandbox->handle, &spec, c->record.data,
						c->record.length, false, &c->handle));
	buf_done(&c->record);
	return 0;
}

/* The id is enough to remove what bears it, whatever another version accepted as configuration. */
static int recover_to_remove(struct task *t, struct container *c)
{
	const struct container_spec spec = {.id = c->id, .sandbox_id = c->sandbox->id};

	if (c->handle)
		return 0;
	TRY(sandbox_check_handle(c->sandbox, &t->err));
	return c->sandbox->kind->container_recover(t, c->sandbox->handle, &spec, c->record.data,
						   c->record.length, true, &c->handle);
}

/* It runs by its row, but what the kind recorded of its process is damaged: nobody would ever see
 * its end. */
static int end_lost(struct task *t, struct container *c)
{
	log_error("container %s: the record of its process is damaged, so it is ended", c->id);
	TRY(c->sandbox->kind->container_kill_all(t, c->handle));
	TRY(container_drain_io(t, c));
	c->exit_code = 255;
	c->finished_at = realtime_ns();
	set_text(&c->reason, REASON_UNKNOWN);
	set_text(&c->message, "the record of its process was damaged, so it was ended");
	TRY(container_set_state(t, c, CONTAINER_EXITED));
	container_drop_io(t, c);
	task_event_set(&c->exited);
	return 0;
}

int container_adopt(struct task *t, struct container *c)
{
	enum container_life life;

	task_stage(t, "finding its process");
	TRY(recover_handle(t, c));
	if (c->limits.next.length)
		container_finish_update(t, c);
	if (c->state != CONTAINER_RUNNING)
		return 0;
	task_stage(t, "opening its log");
	/* without its pipes it still runs, and still ends */
	if (container_reopen_io(t, c) < 0)
		log_error("container %s: output from before is lost: %s", c->id, t->err.text);
	life = c->sandbox->kind->container_life(c->handle);
	if (life == LIFE_CREATED)
		return end_lost(t, c);
	if (life == LIFE_RUNNING)
		return 0;
	/* at once, so that nobody who waits for the container finds it running */
	if (finish(t, c) < 0)
		node_container_exited(c->node, c->id);
	return 0;
}

int container_teardown(struct task *t, struct container *c)
{
	TRY(container_set_state(t, c, CONTAINER_REMOVING));
	task_stage(t, "removing its cgroup");
	TRY(recover_to_remove(t, c));
	TRY(c->sandbox->kind->container_remove(t, c->handle));
	container_drop_io(t, c);
	task_stage(t, "deleting its files");
	TRY(fs_remove_tree(t, c->node->states_fd, c->id));
	TRY(fs_remove_tree(t, c->node->roots_fd, c->id));
	TRY(store_container_delete(t, c->node->store, c->id));
	image_release(c->node->images, c->id);
	container_leave(c);
	return 0;
}

int container_remove(struct task *t, struct node *n, const char *id)
{
	struct container *c = container_find(n, id);
	struct container *held cleanup_container = NULL;
	int r;

	if (!c)
		return 0;
	container_ref(c);
	container_give_up_output(c);
	r = container_end(t, c, 0);
	if (r == 0)
		r = container_acquire(t, n, c->id, &held);
	container_unref(c);
	if (r == -ERR_NOT_FOUND)
		return 0;
	TRY(r);
	return container_teardown(t, held);
}
