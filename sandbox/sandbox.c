/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A sandbox's life: run, stop, remove. Peculiar: the row in state CREATING or REMOVING is the
 * intent; a failed run, a remove and recovery all end in sandbox_teardown().
 */
#include "sandbox/priv.h"

#include <string.h>

#include "io/base/alloc.h"
#include "io/base/fault.h"
#include "io/base/log.h"
#include "io/fs.h"
#include "io/offload.h"
#include "store/sandboxes.h"

/* Makes STATE/run/sandboxes/<id> and what the front end puts there, off the loop. */
struct files_job {
	struct job job;
	struct sandbox *sb;
	const struct front_end *front;
};

static int files_run(struct job *job, struct error *err)
{
	struct files_job *j = container_of(job, struct files_job, job);

	TRY(fs_make_dirs(j->sb->dir, 0711, err));
	return j->front->sandbox_files(j->sb, err);
}

static void files_free(struct job *job)
{
	free(container_of(job, struct files_job, job));
}

/* Starts it; the sandbox must not go before finish_files. */
static struct files_job *start_files(struct task *t, struct sandbox *sb)
{
	struct files_job *j = xnew(struct files_job);

	job_init(&j->job, files_run, files_free);
	j->sb = sb;
	j->front = sb->node->front;
	offload_start(t, NULL, &j->job);
	return j;
}

/* The job reads the sandbox, so the wait must not end before it. */
static int finish_files(struct task *t, struct files_job *j)
{
	int r;

	task_stage(t, "writing its files");
	r = offload_finish(t, &j->job);
	job_unref(&j->job);
	return r;
}

static int bring_up(struct task *t, struct sandbox *sb)
{
	struct arena *arena CLEANUP(cleanup_arena_fn) = arena_new(TASK_ARENA_CAP);
	struct sandbox_spec spec = {0};
	struct error cause;
	struct files_job *files;
	int r;

	TRY(sb->node->front->sandbox_spec(arena, sb, &spec, &t->err));
	files = start_files(t, sb);
	task_stage(t, "making its namespaces");
	r = sb->kind->sandbox_create(t, &spec, &sb->handle);
	cause = t->err;
	TRY(finish_files(t, files));
	if (r < 0)
		return error_copy(&t->err, &cause);
	return sandbox_set_state(t, sb, SANDBOX_READY);
}

static int undo(struct task *t, struct sandbox *sb, int result)
{
	struct error cause = t->err;

	task_shield(t, +1);
	if (sandbox_teardown(t, sb) < 0)
		log_warning("sandbox %s could not be undone and stays: %s", sb->id, t->err.text);
	task_shield(t, -1);
	t->err = cause;
	return result;
}

/* A request for a name that is there: joins it while it is being made, and is a repetition of it
 * when the configuration is the same. 1 when answered. */
static int join_existing(struct task *t, struct node *n, const struct sandbox_request *request,
			 char *ret_id)
{
	struct sandbox *sb cleanup_sandbox = NULL;
	struct sandbox *existing;
	int r;

	/* when a creation fails, all that waited for it wake up: one of them makes the next */
	do {
		existing = map_get(&n->sandbox_names, request->name);
		if (!existing)
			return 0;
		r = sandbox_acquire(t, n, existing->id, &sb);
	} while (r == -ERR_NOT_FOUND);
	TRY(r);
	/* what could not be undone, or not be removed, is in nobody's hands */
	if (sb->state == SANDBOX_CREATING || sb->state == SANDBOX_REMOVING) {
		TRY(sandbox_teardown(t, sb));
		return 0;
	}
	if (sb->state != SANDBOX_READY || sb->config.length != request->config_size ||
	    memcmp(sb->config.data, request->config, request->config_size))
		return error_set(&t->err, ERR_EXISTS,
				 "sandbox %s: the name is taken by %s; remove that one or use "
				 "another attempt",
				 request->name, sb->id);
	memcpy(ret_id, sb->id, ID_SIZE);
	return 1;
}

static int begin(struct task *t, struct node *n, const struct sandbox_request *request,
		 const struct sandboxer *kind, struct sandbox **ret)
{
	struct sandbox *sb = sandbox_new(n, NULL);
	int r;

	sb->kind = kind;
	sb->state = SANDBOX_CREATING;
	sb->handler = xstrdup(request->handler);
	sb->options = handler_text(node_handler(n, request->handler));
	sb->name = xstrdup(request->name);
	buf_set(&sb->config, request->config, request->config_size);
	task_event_set(&sb->settled);
	r = task_mutex_lock(t, &sb->queue);
	if (r < 0) {
		sandbox_unref(sb);
		return r;
	}
	/* the name is taken from here on, so that a repetition waits in the queue */
	sandbox_enter(sb);
	*ret = sb;
	return 0;
}

int sandbox_run(struct task *t, struct node *n, const struct sandbox_request *request, char *ret_id)
{
	const struct sandboxer *kind = node_kind(n, request->handler);
	struct sandbox *sb cleanup_sandbox = NULL;
	int r;

	if (!kind)
		return error_set(&t->err, ERR_INVALID,
				 "runtime handler \"%.80s\": not configured on this node",
				 request->handler);
	r = join_existing(t, n, request, ret_id);
	if (r)
		return r < 0 ? r : 0;
	TRY(begin(t, n, request, kind, &sb));
	r = sandbox_insert(t, sb);
	if (r == 0)
		r = bring_up(t, sb);
	if (r < 0)
		return undo(t, sb, r);
	memcpy(ret_id, sb->id, ID_SIZE);
	return 0;
}

/* One after the other, and all of them whatever becomes of the first: each is a SIGKILL to its
 * cgroup and a wait of a millisecond. */
static int end_containers(struct task *t, struct sandbox *sb)
{
	struct error first = {0};
	struct container **all;
	size_t count = 0;

	list_for_each(c, &sb->containers, struct container, node_in_sandbox)
		count++;
	all = arena_new_array(t->arena, struct container *, count);
	count = 0;
	list_for_each(c, &sb->containers, struct container, node_in_sandbox)
		all[count++] = container_ref(c);
	for (size_t i = 0; i < count; i++) {
		if (container_end(t, all[i], 0) < 0 && !first.code)
			first = t->err;
		container_unref(all[i]);
	}
	return first.code ? error_copy(&t->err, &first) : 0;
}

static int stop_acquired(struct task *t, struct sandbox *sb)
{
	/* who stops a pod must not have to wait for room on a disk that its end may free */
	list_for_each(c, &sb->containers, struct container, node_in_sandbox)
		container_give_up_output(c);
	/* first NOTREADY, so that no start slips in behind the walk */
	if (sb->state == SANDBOX_READY)
		TRY(sandbox_set_state(t, sb, SANDBOX_NOTREADY));
	task_stage(t, "ending its containers");
	TRY(end_containers(t, sb));
	task_stage(t, "giving up its namespaces");
	if (sb->handle)
		TRY(sb->kind->sandbox_stop(t, sb->handle));
	FAULT(sandbox_ended);
	return 0;
}

int sandbox_stop(struct task *t, struct node *n, const char *id)
{
	struct sandbox *sb cleanup_sandbox = NULL;
	int r = sandbox_acquire(t, n, id, &sb);

	if (r == -ERR_NOT_FOUND)
		return 0;
	TRY(r);
	return stop_acquired(t, sb);
}

/* Its queue is taken in between, so it may be gone when we have it. */
static int teardown_container(struct task *t, struct container *c)
{
	int r;

	TRY(container_end(t, c, 0));
	TRY(task_mutex_lock(t, &c->queue));
	r = c->is_removed ? 0 : container_teardown(t, c);
	task_mutex_unlock(&c->queue);
	return r;
}

/* A create that failed, or a recovery that did, left no handle; one without a record is enough to
 * remove whatever bears the id. */
static int ensure_handle(struct task *t, struct sandbox *sb)
{
	struct arena *arena CLEANUP(cleanup_arena_fn) = NULL;
	struct sandbox_spec spec = {0};

	if (sb->handle)
		return 0;
	arena = arena_new(TASK_ARENA_CAP);
	TRY(sb->node->front->sandbox_spec(arena, sb, &spec, &t->err));
	return sb->kind->sandbox_recover(t, &spec, NULL, 0, &sb->handle);
}

int sandbox_check_handle(const struct sandbox *sb, struct error *err)
{
	if (sb->handle)
		return 0;
	return error_set(err, ERR_UNAVAILABLE,
			 "sandbox %s: the server could not take it over, see its log; restart it "
			 "to try again",
			 sb->id);
}

int sandbox_teardown(struct task *t, struct sandbox *sb)
{
	TRY(sandbox_set_state(t, sb, SANDBOX_REMOVING));
	TRY(ensure_handle(t, sb));
	task_stage(t, "removing its containers");
	while (!list_is_empty(&sb->containers)) {
		struct container *c =
			container_of(sb->containers.next, struct container, node_in_sandbox);
		int r;

		container_ref(c);
		r = teardown_container(t, c);
		container_unref(c);
		TRY(r);
	}
	task_stage(t, "giving up its namespaces");
	TRY(sb->kind->sandbox_remove(t, sb->handle));
	task_stage(t, "deleting its files");
	TRY(fs_remove_tree(t, sb->node->sandboxes_fd, sb->id));
	TRY(store_sandbox_delete(t, sb->node->store, sb->id));
	sandbox_leave(sb);
	return 0;
}

int sandbox_remove(struct task *t, struct node *n, const char *id)
{
	struct sandbox *sb cleanup_sandbox = NULL;
	int r = sandbox_acquire(t, n, id, &sb);

	if (r == -ERR_NOT_FOUND)
		return 0;
	TRY(r);
	if (sb->state != SANDBOX_REMOVING)
		TRY(stop_acquired(t, sb));
	return sandbox_teardown(t, sb);
}

/* What held the sandbox up is gone: no container can be added, those that were in it end by
 * themselves. */
static void exited_main(struct task *t, void *arg)
{
	struct sandbox *unlocked = arg, *sb cleanup_sandbox = NULL;
	int r = sandbox_acquire(t, unlocked->node, unlocked->id, &sb);

	sandbox_unref(unlocked);
	if (r == 0 && sb->state == SANDBOX_READY)
		r = sandbox_set_state(t, sb, SANDBOX_NOTREADY);
	if (r < 0 && r != -ERR_NOT_FOUND)
		log_error("sandbox ended, but: %s", t->err.text);
}

void node_sandbox_exited(void *data, const char *sandbox_id)
{
	struct node *n = data;
	struct sandbox *sb = map_get(&n->sandboxes, sandbox_id);

	if (!sb)
		return;
	log_warning("sandbox %s: its first process ended", sandbox_id);
	task_start(n->loop, "sandbox exit", exited_main, sandbox_ref(sb));
}
