/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Containers, but for their birth: creation, life, end. Peculiar: a main process's pidfd is watched
 * until it is readable once; after that only container_wait looks at it, so a zombie that somebody
 * else has to reap does not keep the loop busy.
 */
#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include "io/base/alloc.h"
#include "io/base/cleanup.h"
#include "io/base/clock.h"
#include "io/base/path.h"
#include "io/fs.h"
#include "recovery/exit_status.h"
#include "sandbox/linux/apparmor.h"
#include "sandbox/linux/devices.h"
#include "sandbox/linux/init/protocol.h"
#include "sandbox/linux/kind.h"
#include "sandbox/linux/mounts.h"
#include "sandbox/linux/ns.h"
#include "sandbox/linux/overlay.h"
#include "sandbox/linux/spec_copy.h"
#include "sandbox/linux/units.h"
#include "sandbox/linux/users.h"
#include "sandbox/linux/volume.h"

/* What a helper without a server may take to end. */
#define HELPER_END_MS 5000
/* Of one image. */
#define VOLUMES_MAX 128
/* Jobs of one sandbox that hang. */
#define LEFT_MAX 16

/* What has to be looked up on disk before a container can be. */
struct lookup_job {
	struct job job;
	struct linux_container *container;
	struct user_ids user;
	struct selinux_labels labels;
	struct device_list devices;
	bool wants_user, is_left;
};

struct linux_container *linux_container_ref(struct linux_container *c)
{
	atomic_fetch_add(&c->refs, 1);
	return c;
}

void linux_container_unref(struct linux_container *c)
{
	if (!c || atomic_fetch_sub(&c->refs, 1) != 1)
		return;
	user_ids_done(&c->user);
	selinux_labels_done(&c->labels);
	free(c->oom.culprit);
	free(c->cgroup);
	linux_sandbox_unref(c->sandbox);
	arena_free(c->arena);
	free(c);
}

static struct linux_container *container_new(struct linux_sandbox *s,
					     const struct container_spec *spec)
{
	struct linux_container *c = xnew(struct linux_container);
	size_t size;

	/* once to see its size, as there may be ten thousands of them */
	c->arena = arena_new(SPEC_ARENA_CAP);
	container_spec_copy(c->arena, spec, &c->spec);
	size = arena_used(c->arena);
	arena_free(c->arena);
	c->arena = arena_new_fit(SPEC_ARENA_CAP, size);
	container_spec_copy(c->arena, spec, &c->spec);
	c->cgroup = group_of_container(s->spec.cgroup_parent, spec->id);
	c->sandbox = linux_sandbox_ref(s);
	c->pidfd = -1;
	task_event_init(&c->exited);
	list_init(&c->oom.node);
	atomic_init(&c->refs, 1);
	list_append(&s->containers, &c->node);
	return c;
}

void linux_container_forget(void *container)
{
	struct linux_container *c = container;

	if (!c)
		return;
	list_remove(&c->node);
	linux_oom_unwatch(c, false);
	loop_watch_free(c->watch);
	c->watch = NULL;
	/* nobody would set it any more */
	task_event_set(&c->exited);
	close_fd(c->pidfd);
	c->pidfd = -1;
	seccomp_filter_unref(c->filter);
	c->filter = NULL;
	linux_container_unref(c);
}

/* What is made for every container can't be what an image brings (CVE-2019-16884). */
static int check_volumes(const struct container_spec *spec, struct error *err)
{
	static const char *const ours[] = {"/", "/dev", "/proc", "/sys"};
	size_t count = 0;

	for (size_t i = 0; i < spec->mount_count; i++) {
		cleanup_free char *target = path_clean(spec->mounts[i].target ?: "");
		bool is_bad = strncmp(target, "/proc/", 6) == 0;

		if (spec->mounts[i].kind != MOUNT_VOLUME)
			continue;
		for (size_t k = 0; k < sizeof(ours) / sizeof(ours[0]); k++)
			is_bad = is_bad || strcmp(target, ours[k]) == 0;
		if (is_bad)
			return error_set(err, ERR_INVALID,
					 "volume %s of the image: it would hide what every "
					 "container has there; use an image without it",
					 spec->mounts[i].target);
		if (++count > VOLUMES_MAX)
			return error_set(err, ERR_INVALID,
					 "the image has more than %d volumes; use another one",
					 VOLUMES_MAX);
	}
	return 0;
}

static int check_spec(const struct linux_sandbox *s, const struct container_spec *spec,
		      struct error *err)
{
	if (!spec->id || !*spec->id || strchr(spec->id, '/') || strlen(spec->id) > ID_MAX)
		return error_set(err, ERR_INVALID, "container id %s", spec->id ?: "(none)");
	if (!spec->argv.count || !spec->argv.items[0][0])
		return error_set(
			err, ERR_INVALID,
			"container has no command: neither the image nor the request has one");
	if (!spec->layers.count || !spec->upper || !spec->work)
		return error_set(err, ERR_INVALID, "container has no root file system");
	if (spec->cwd && *spec->cwd && spec->cwd[0] != '/')
		return error_set(err, ERR_INVALID, "working directory %s: it must be absolute",
				 spec->cwd);
	TRY(check_volumes(spec, err));
	if (spec->pid == NS_POD && s->spec.pid != NS_POD)
		return error_set(err, ERR_INVALID,
				 "container wants the pod's pid namespace, but the pod has none");
	if (spec->pid == NS_NODE && s->spec.has_userns)
		return error_set(err, ERR_INVALID,
				 "container in a user namespace wants the node's pid namespace");
	for (size_t i = 0; i < spec->device_count && s->spec.has_userns; i++)
		if (spec->devices[i].has_mode || spec->devices[i].has_uid ||
		    spec->devices[i].has_gid)
			return error_set(err, ERR_UNIMPLEMENTED,
					 "device %.200s: in a user namespace it is the host's own "
					 "node, which keeps its owner and mode; ask for neither",
					 spec->devices[i].host_path);
	return 0;
}

static int run_lookup(struct job *job, struct error *err)
{
	struct lookup_job *j = container_of(job, struct lookup_job, job);
	const struct container_spec *spec = &j->container->spec;
	cleanup_close int root = -1;

	if (j->wants_user) {
		TRY(overlay_open_layers(&spec->layers, &root, err));
		TRY(user_lookup(root, &spec->user, &j->user, err));
		TRY(apparmor_need(kind.root, spec->apparmor, spec->apparmor_profile, err));
		TRY(label_container(j->container, &j->labels, err));
	}
	for (size_t i = 0; i < spec->mount_count && j->wants_user; i++)
		if (spec->mounts[i].kind == MOUNT_IMAGE)
			TRY(mount_image_check(&spec->mounts[i], err));
	return device_list_make(spec, spec->is_privileged, &j->devices, err);
}

int host_job_run(struct task *t, struct linux_sandbox *s, struct job *job, bool *is_left)
{
	int r;

	if (s->left_count >= LEFT_MAX)
		return error_set(&t->err, ERR_UNAVAILABLE,
				 "sandbox %s: %u earlier calls still wait for a path of the host; "
				 "look for a dead mount among its sources",
				 s->spec.id, s->left_count);
	TRY(task_check(t));
	offload_start(t, NULL, job);
	r = offload_wait(t, job);
	*is_left = !job->done.is_set;
	s->left_count += *is_left;
	return r;
}

static void lookup_finished(struct job *job)
{
	struct lookup_job *j = container_of(job, struct lookup_job, job);

	j->container->sandbox->left_count -= j->is_left;
}

static void free_lookup(struct job *job)
{
	struct lookup_job *j = container_of(job, struct lookup_job, job);

	user_ids_done(&j->user);
	selinux_labels_done(&j->labels);
	device_list_done(&j->devices);
	linux_container_unref(j->container);
	free(j);
}

/* The kernel would refuse them only when the process is born. */
static int check_mapped(const struct sandbox_spec *s, const struct user_ids *user,
			struct error *err)
{
	if (!s->has_userns)
		return 0;
	if (id_map_outside(&s->uids, user->uid) < 0)
		return error_set(err, ERR_INVALID,
				 "run as user %u: the pod's user namespace does not have it",
				 user->uid);
	for (size_t i = 0; i < user->group_count; i++)
		if (id_map_outside(&s->gids, user->groups[i]) < 0)
			return error_set(err, ERR_INVALID,
					 "run with group %u: the pod's user namespace does not "
					 "have it",
					 user->groups[i]);
	return 0;
}

static int look_up(struct task *t, struct linux_container *c, bool wants_user,
		   struct device_list *ret_devices)
{
	struct lookup_job *j = xnew(struct lookup_job);
	int r;

	job_init(&j->job, run_lookup, free_lookup);
	j->job.finished = lookup_finished;
	j->container = linux_container_ref(c);
	j->wants_user = wants_user;
	r = host_job_run(t, c->sandbox, &j->job, &j->is_left);
	if (r == 0 && wants_user) {
		c->user = j->user;
		j->user = (struct user_ids){0};
		c->labels = j->labels;
		j->labels = (struct selinux_labels){0};
	}
	if (r == 0) {
		*ret_devices = j->devices;
		j->devices = (struct device_list){0};
	}
	job_unref(&j->job);
	return r;
}

/* The nodes in /dev are all that it may open, whatever nodes it makes or is given by a volume. */
static int restrict_devices(struct task *t, const struct linux_container *c,
			    const struct device_list *list)
{
	struct cgroup_device *devices =
		arena_new_array(t->arena, struct cgroup_device, list->count);
	size_t count = 0;

	/* the standard ones are implied, and without others the program is a ready-made one */
	for (size_t i = DEVICES_STANDARD; i < list->count; i++)
		devices[count++] = (struct cgroup_device){
			.type = S_ISBLK(list->items[i].mode) ? 'b' : 'c',
			.major = (int)major(list->items[i].number),
			.minor = (int)minor(list->items[i].number),
			.access = list->items[i].access,
		};
	return cgroup_restrict_devices(t, kind.cgroups, c->cgroup, devices, count);
}

/* Reads the kept profile. */
struct profile_job {
	struct job job;
	char *path;
	struct buf text;
};

static int run_profile(struct job *job, struct error *err)
{
	struct profile_job *j = container_of(job, struct profile_job, job);

	return fs_read_no_link(j->path, SECCOMP_PROFILE_MAX, &j->text, err);
}

static void free_profile(struct job *job)
{
	struct profile_job *j = container_of(job, struct profile_job, job);

	buf_done(&j->text);
	free(j->path);
	free(j);
}

static int get_localhost_filter(struct task *t, const struct container_spec *spec,
				struct seccomp_filter **ret)
{
	struct profile_job *j = xnew(struct profile_job);
	int r;

	job_init(&j->job, run_profile, free_profile);
	j->path = xstrdup(spec->seccomp_profile);
	r = offload(t, NULL, &j->job);
	if (r == 0)
		r = seccomp_filter_get(t, spec->seccomp, j->text.data ?: "", spec->capabilities,
				       ret);
	job_unref(&j->job);
	return r;
}

int linux_container_need_filter(struct task *t, struct linux_container *c)
{
	const struct container_spec *spec = &c->spec;
	struct seccomp_filter *filter = NULL;

	if (c->filter)
		return 0;
	if (spec->seccomp == SECCOMP_LOCALHOST)
		TRY(get_localhost_filter(t, spec, &filter));
	else
		TRY(seccomp_filter_get(t, spec->seccomp, NULL, spec->capabilities, &filter));
	/* another exec may have been first */
	if (c->filter)
		seccomp_filter_unref(filter);
	else
		c->filter = filter;
	return 0;
}

/* Makes the volumes of its image; has all that it uses. */
struct volumes_job {
	struct job job;
	struct linux_container *container;
	atomic_bool is_given_up;
};

static int run_volumes(struct job *job, struct error *err)
{
	struct volumes_job *j = container_of(job, struct volumes_job, job);
	const struct container_spec *spec = &j->container->spec;
	cleanup_close int root = -1;

	TRY(overlay_open_layers(&spec->layers, &root, err));
	for (size_t i = 0; i < spec->mount_count; i++)
		if (spec->mounts[i].kind == MOUNT_VOLUME)
			TRY(volume_make(root, spec->mounts[i].target, spec->mounts[i].source,
					&j->is_given_up, err));
	return 0;
}

static void free_volumes(struct job *job)
{
	struct volumes_job *j = container_of(job, struct volumes_job, job);

	linux_container_unref(j->container);
	free(j);
}

/* The job ends with this call, or it would make again what a teardown removes. */
static int make_volumes(struct task *t, struct linux_container *c)
{
	struct volumes_job *j = xnew(struct volumes_job);
	struct error why;
	int r;

	job_init(&j->job, run_volumes, free_volumes);
	j->container = linux_container_ref(c);
	atomic_init(&j->is_given_up, false);
	offload_start(t, NULL, &j->job);
	r = offload_wait(t, &j->job);
	if (!j->job.done.is_set) {
		why = t->err;
		atomic_store(&j->is_given_up, true);
		(void)offload_finish(t, &j->job);
		error_copy(&t->err, &why);
	}
	job_unref(&j->job);
	return r;
}

static bool has_volumes(const struct container_spec *spec)
{
	for (size_t i = 0; i < spec->mount_count; i++)
		if (spec->mounts[i].kind == MOUNT_VOLUME)
			return true;
	return false;
}

static int make_group(struct task *t, struct linux_container *c, const struct device_list *devices)
{
	task_stage(t, "making its cgroup");
	TRY(cgroup_create(t, kind.cgroups, c->cgroup, &c->spec.resources));
	return c->spec.is_privileged ? 0 : restrict_devices(t, c, devices);
}

static int prepare(struct task *t, struct linux_container *c)
{
	struct device_list devices CLEANUP(device_list_done) = {0};

	task_stage(t, "looking up its user and devices");
	TRY(look_up(t, c, true, &devices));
	TRY(check_mapped(&c->sandbox->spec, &c->user, &t->err));
	if (has_volumes(&c->spec)) {
		task_stage(t, "copying its image's volumes");
		TRY(make_volumes(t, c));
	}
	task_stage(t, "compiling its seccomp filter");
	TRY(linux_container_need_filter(t, c));
	linux_score_note(c->spec.resources.oom_score_adj);
	if (unit_of(c->cgroup))
		return group_check_limits(&c->spec.resources, &t->err);
	return make_group(t, c, &devices);
}

int linux_container_make_group(struct task *t, struct linux_container *c)
{
	struct device_list devices CLEANUP(device_list_done) = {0};

	TRY(look_up(t, c, false, &devices));
	return make_group(t, c, &devices);
}

int linux_container_create(struct task *t, void *sandbox, const struct container_spec *spec,
			   void **ret_container)
{
	struct linux_container *c;
	struct error why;
	int r;

	TRY(check_spec(sandbox, spec, &t->err));
	c = container_new(sandbox, spec);
	r = prepare(t, c);
	if (r == 0) {
		*ret_container = c;
		return 0;
	}
	why = t->err;
	task_shield(t, 1);
	linux_container_remove(t, c);
	task_shield(t, -1);
	linux_container_forget(c);
	return error_copy(&t->err, &why);
}

void linux_container_record(void *container, struct buf *ret)
{
	const struct linux_container *c = container;

	buf_printf(ret,
		   "version=1\nboot=%s\npid=%d\nstarted=%llu\nrun=%d\nuid=%u\ngid=%u\nhome=%s\n",
		   kind.boot, c->pid, (unsigned long long)c->started, c->has_run, c->user.uid,
		   c->user.gid, c->user.home ?: "/");
	buf_printf(ret, "cgroup=%s\noom_kills=%llu\n", c->cgroup,
		   (unsigned long long)c->oom.seen.kills);
	if (c->oom.culprit)
		buf_printf(ret, "oom_group=%s\n", c->oom.culprit);
	label_record(&c->labels, ret);
	/* one a line, since there may be many */
	buf_printf(ret, "groups=%zu\n", c->user.group_count);
	for (size_t i = 0; i < c->user.group_count; i++)
		buf_printf(ret, "group%zu=%u\n", i, c->user.groups[i]);
}

void linux_container_recorded_user(struct arena *arena, const void *record, size_t size,
				   struct user_ids *ret_user)
{
	char key[32], *home = arena_alloc(arena, size + 1);
	int64_t count = record_number(record, size, "groups", 0);

	*ret_user = (struct user_ids){
		.uid = (uid_t)record_number(record, size, "uid", 0),
		.gid = (gid_t)record_number(record, size, "gid", 0),
		.home = home,
	};
	if (!record_find(record, size, "home", home, size + 1))
		home[0] = 0;
	if (count <= 0 || (size_t)count > size)
		return;
	ret_user->groups = arena_new_array(arena, gid_t, count);
	ret_user->group_count = (size_t)count;
	for (int64_t i = 0; i < count; i++) {
		snprintf(key, sizeof(key), "group%lld", (long long)i);
		ret_user->groups[i] = (gid_t)record_number(record, size, key, 0);
	}
}

static void read_user(struct linux_container *c, const char *record, size_t size)
{
	struct arena *arena CLEANUP(cleanup_arena_fn) = arena_new(SPEC_ARENA_CAP);
	struct user_ids user;

	linux_container_recorded_user(arena, record, size, &user);
	c->user = user;
	c->user.home = xstrdup(user.home);
	c->user.groups = xmalloc(user.group_count * sizeof(*user.groups));
	if (user.group_count)
		memcpy(c->user.groups, user.groups, user.group_count * sizeof(*user.groups));
}

/* The spec of a damaged pod doesn't know its parent. */
static void read_cgroup(struct linux_container *c, const char *record, size_t size)
{
	cleanup_free char *path = xmalloc(size + 1);

	c->oom.seen.kills = (uint64_t)record_number(record, size, "oom_kills", 0);
	if (record_find(record, size, "oom_group", path, size + 1))
		c->oom.culprit = xstrdup(path);

	if (record_find(record, size, "cgroup", path, size + 1) &&
	    cgroup_path_check(path, NULL) == 0) {
		free(c->cgroup);
		c->cgroup = xstrdup(path);
	}
}

static void set_exited(struct linux_container *c)
{
	c->life = LIFE_EXITED;
	c->exit.finished_at = realtime_ns();
	task_event_set(&c->exited);
}

static void on_exit_event(void *data, int events)
{
	struct linux_container *c = data;

	loop_watch_free(c->watch);
	c->watch = NULL;
	set_exited(c);
	kind.env.container_exited(kind.env.data, c->spec.id);
}

void linux_container_watch(struct linux_container *c)
{
	c->life = LIFE_RUNNING;
	c->watch = loop_watch_fd(kind.env.loop, c->pidfd, LOOP_READ, "end of a container",
				 on_exit_event, c);
	linux_oom_watch(c);
}

static bool is_over(int pidfd)
{
	struct pollfd p = {.fd = pidfd, .events = POLLIN};

	return poll(&p, 1, 0) > 0;
}

/* A start that the server's death interrupted: the helper ends by itself, as its socket is closed,
 * or the program was executed. */
static int wait_helper(struct task *t, struct linux_container *c)
{
	static const char helper[] = "/memfd:crisp-init";
	char path[64], exe[sizeof(helper)];
	uint64_t old;
	ssize_t length;
	int r;

	snprintf(path, sizeof(path), "/proc/%d/exe", c->pid);
	length = readlink(path, exe, sizeof(exe) - 1);
	/* one that is about to end has no program any more */
	if (length >= 0 && (length != sizeof(exe) - 1 || memcmp(exe, helper, sizeof(exe) - 1))) {
		/* the pidfd tells whether it was this process that had the pid */
		c->has_run = !is_over(c->pidfd);
		return 0;
	}
	old = task_limit_ms(t, HELPER_END_MS);
	r = task_wait_fd(t, c->pidfd, LOOP_READ);
	task_restore_deadline(t, old);
	return r == -ERR_DEADLINE ? 0 : r;
}

static int find_process(struct task *t, struct linux_container *c)
{
	char name[PIN_NAME_SIZE];
	int r;

	pin_name(name, c->spec.id, "pid");
	r = held_get(t, name, &c->pidfd);
	if (r == -ERR_NOT_FOUND) {
		/* the keeper may still tell how it ended */
		set_exited(c);
		return 0;
	}
	TRY(r);
	if (!c->has_run)
		TRY(wait_helper(t, c));
	if (is_over(c->pidfd))
		set_exited(c);
	else
		linux_container_watch(c);
	return 0;
}

static void set_ended(struct linux_container *c)
{
	c->has_run = true;
	c->has_exit = true;
	set_exited(c);
}

int linux_container_recover(struct task *t, void *sandbox, const struct container_spec *spec,
			    const void *record, size_t record_size, bool has_ended,
			    void **ret_container)
{
	struct linux_container *c = container_new(sandbox, spec);
	pid_t pid = 0;
	int r = 0;

	if (!has_ended)
		c->sandbox->missing_count -= !!c->sandbox->missing_count;
	if (record_size) {
		read_user(c, record, record_size);
		read_cgroup(c, record, record_size);
		c->labels = label_read(record, record_size);
		pid = (pid_t)record_number(record, record_size, "pid", 0);
		c->started = (uint64_t)record_number(record, record_size, "started", 0);
		c->has_run = record_number(record, record_size, "run", 0) != 0;
		/* of an earlier boot it may be anybody's now */
		if (record_is_current(record, record_size))
			c->pid = pid;
	}
	if (has_ended || (pid > 0 && !c->pid))
		set_ended(c);
	else if (pid > 0)
		r = find_process(t, c);
	if (r < 0) {
		linux_container_forget(c);
		return r;
	}
	*ret_container = c;
	return 0;
}

enum container_life linux_container_life(void *container)
{
	return ((struct linux_container *)container)->life;
}

int linux_container_info(void *container, struct container_info *ret_info)
{
	struct linux_container *c = container;

	const struct sandbox_spec *s = &c->sandbox->spec;

	*ret_info = (struct container_info){.pid = c->life == LIFE_RUNNING ? c->pid : 0,
					    .cgroup = c->cgroup,
					    .user = c->user,
					    .host_uid = c->user.uid,
					    .host_gid = c->user.gid};
	if (s->has_userns) {
		ret_info->host_uid = (uid_t)id_map_outside(&s->uids, c->user.uid);
		ret_info->host_gid = (gid_t)id_map_outside(&s->gids, c->user.gid);
	}
	return 0;
}

int linux_container_kill(struct task *t, void *container, int signal)
{
	struct linux_container *c = container;

	if (c->life != LIFE_RUNNING)
		return 0;
	return process_signal(c->pidfd, signal, &t->err);
}

int linux_container_kill_all(struct task *t, void *container)
{
	struct linux_container *c = container;

	task_stage(t, "killing its processes");
	if (c->life == LIFE_RUNNING)
		TRY(process_signal(c->pidfd, SIGKILL, &t->err));
	TRY(cgroup_kill(t, kind.cgroups, c->cgroup));
	if (c->life == LIFE_RUNNING)
		TRY(task_event_wait(t, &c->exited));
	return 0;
}

/* Reaps it if it is ours; else the kernel or the keeper has the status. */
static int find_exit(struct linux_container *c, struct error *err)
{
	struct exit_status status;

	TRY(exit_status_find(kind.env.fdstore, c->pidfd, c->pid, c->started, &status, err));
	c->exit.exit = status.exit;
	c->exit.is_known = status.is_known;
	c->exit.never_ran = !c->has_run && status.is_known && !status.exit.signal &&
			    status.exit.code == INIT_EXIT_NEVER_RAN;
	if (status.ended_at && status.ended_at < c->exit.finished_at)
		c->exit.finished_at = status.ended_at;
	c->has_exit = true;
	return 0;
}

int linux_container_wait(struct task *t, void *container, struct container_exit *ret_exit)
{
	struct linux_container *c = container;

	if (c->life == LIFE_CREATED)
		return error_set(&t->err, ERR_PRECONDITION, "wait for container %s: it never ran",
				 c->spec.id);
	TRY(task_event_wait(t, &c->exited));
	if (!c->has_exit)
		TRY(find_exit(c, &t->err));
	TRY(cgroup_kill(t, kind.cgroups, c->cgroup));
	linux_oom_look(t, c);
	c->exit.is_oom_killed = c->oom.seen.kills > 0;
	c->exit.oom_group = c->oom.culprit;
	*ret_exit = c->exit;
	return 0;
}

int linux_container_remove(struct task *t, void *container)
{
	struct linux_container *c = container;
	char name[PIN_NAME_SIZE];

	TRY(linux_container_kill_all(t, c));
	if (c->life == LIFE_EXITED && !c->has_exit)
		TRY(find_exit(c, &t->err));
	linux_oom_unwatch(c, true);
	TRY(group_remove(t, kind.cgroups, c->cgroup));
	if (c->pid > 0)
		exit_status_forget(kind.env.fdstore, c->pid, c->started);
	pin_name(name, c->spec.id, "pid");
	return held_drop(t, name);
}
