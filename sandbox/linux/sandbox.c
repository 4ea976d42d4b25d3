/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Sandboxes: namespaces and a /dev/shm that only pins hold, and, where the pod shares its pid
 * namespace, a PID 1. Peculiar: removing needs nothing but the id, so it works after any crash.
 */
#include <errno.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "io/base/alloc.h"
#include "io/base/cleanup.h"
#include "io/base/fault.h"
#include "sandbox/linux/kind.h"
#include "sandbox/linux/ns.h"
#include "sandbox/linux/spec_copy.h"
#include "sandbox/linux/sysctl.h"
#include "sandbox/linux/units.h"

/* It takes next to nothing, and the whole pod goes with it. */
#define PID1_OOM_SCORE (-998)

struct ns_job {
	struct job job;
	struct linux_sandbox *sandbox;
	struct ns_set set;
	int shm;
};

void pin_name(char name[PIN_NAME_SIZE], const char *id, const char *suffix)
{
	snprintf(name, PIN_NAME_SIZE, "%s.%s", id, suffix);
}

struct linux_sandbox *linux_sandbox_ref(struct linux_sandbox *s)
{
	atomic_fetch_add(&s->refs, 1);
	return s;
}

void linux_sandbox_unref(struct linux_sandbox *s)
{
	if (!s || atomic_fetch_sub(&s->refs, 1) != 1)
		return;
	selinux_labels_done(&s->labels);
	arena_free(s->arena);
	free(s);
}

/* One that is wrong is refused by check_spec(), or an earlier server took it. */
static void set_parent(struct linux_sandbox *s)
{
	cleanup_free char *path = NULL;

	if (!s->has_parent)
		s->spec.cgroup_parent = group_default_parent();
	else if (unit_parent_path(s->spec.cgroup_parent, &path, NULL) == 0)
		s->spec.cgroup_parent = arena_strdup(s->arena, path);
}

static int check_parent(const char *parent, struct error *err)
{
	cleanup_free char *path = NULL;

	TRY(unit_check_style(parent, kind.has_systemd, err));
	return unit_parent_path(parent, &path, err);
}

static struct linux_sandbox *sandbox_new(const struct sandbox_spec *spec)
{
	struct linux_sandbox *s = xnew(struct linux_sandbox);

	s->arena = arena_new(SPEC_ARENA_CAP);
	sandbox_spec_copy(s->arena, spec, &s->spec);
	s->has_parent = s->spec.cgroup_parent;
	set_parent(s);
	list_init(&s->containers);
	s->pid1 = -1;
	atomic_init(&s->refs, 1);
	return s;
}

void linux_sandbox_forget(void *sandbox)
{
	struct linux_sandbox *s = sandbox;

	if (!s)
		return;
	loop_watch_free(s->pid1_watch);
	s->pid1_watch = NULL;
	close_fd(s->pid1);
	s->pid1 = -1;
	label_sandbox_forget(s);
	linux_sandbox_unref(s);
}

static int check_spec(const struct sandbox_spec *spec, struct error *err)
{
	if (!spec->id || !*spec->id || strchr(spec->id, '/') || strlen(spec->id) > ID_MAX)
		return error_set(err, ERR_INVALID, "sandbox id %s", spec->id ?: "(none)");
	if (spec->cgroup_parent)
		TRY(check_parent(spec->cgroup_parent, err));
	TRY(sysctl_check(spec, err));
	if (!spec->has_userns)
		return 0;
	if (spec->pid == NS_NODE || spec->ipc == NS_NODE)
		return error_set(err, ERR_UNIMPLEMENTED,
				 "pod with a user namespace and the node's pid or ipc namespace: "
				 "the kernel does not let them go together");
	if (id_map_outside(&spec->uids, 0) < 0 || id_map_outside(&spec->gids, 0) < 0)
		return error_set(err, ERR_INVALID, "user namespace: its maps must have id 0");
	return 0;
}

static int run_ns(struct job *job, struct error *err)
{
	struct ns_job *j = container_of(job, struct ns_job, job);
	const struct sandbox_spec *spec = &j->sandbox->spec;
	uid_t uid = 0;
	gid_t gid = 0;

	TRY(ns_make(spec, &j->set, err));
	if (spec->ipc == NS_NODE || spec->ipc == NS_CONTAINER)
		return 0;
	if (spec->has_userns) {
		uid = (uid_t)id_map_outside(&spec->uids, 0);
		gid = (gid_t)id_map_outside(&spec->gids, 0);
	}
	return ns_make_shm(spec->shm_size, uid, gid, j->sandbox->labels.file, &j->shm, err);
}

static void free_ns(struct job *job)
{
	struct ns_job *j = container_of(job, struct ns_job, job);

	ns_set_done(&j->set);
	close_fd(j->shm);
	linux_sandbox_unref(j->sandbox);
	free(j);
}

static int pin_one(struct task *t, const struct linux_sandbox *s, const char *suffix, int fd)
{
	char name[PIN_NAME_SIZE];

	if (fd < 0)
		return 0;
	pin_name(name, s->spec.id, suffix);
	return pins_put(t, kind.env.pins, name, fd);
}

static int make_namespaces(struct task *t, struct linux_sandbox *s, int *ret_user)
{
	struct ns_job *j = xnew(struct ns_job);
	char name[PIN_NAME_SIZE];
	int r;

	job_init(&j->job, run_ns, free_ns);
	j->sandbox = linux_sandbox_ref(s);
	j->set = NS_SET_NONE;
	j->shm = -1;
	r = offload(t, NULL, &j->job);
	FAULT(namespaces_made);
	if (r == 0)
		r = pin_one(t, s, "user", j->set.user);
	if (r == 0)
		r = pin_one(t, s, "net", j->set.net);
	if (r == 0)
		r = pin_one(t, s, "ipc", j->set.ipc);
	if (r == 0 && j->shm >= 0) {
		pin_name(name, s->spec.id, "shm");
		r = pins_put_mount(t, kind.env.pins, name, j->shm);
	}
	if (r == 0)
		*ret_user = take_fd(&j->set.user);
	job_unref(&j->job);
	return r;
}

static void on_pid1_exit(void *data, int events)
{
	struct linux_sandbox *s = data;

	/* readable for ever from now on */
	loop_watch_free(s->pid1_watch);
	s->pid1_watch = NULL;
	if (!s->is_up)
		return;
	s->is_up = false;
	kind.env.sandbox_exited(kind.env.data, s->spec.id);
}

static void watch_pid1(struct linux_sandbox *s)
{
	s->pid1_watch = loop_watch_fd(kind.env.loop, s->pid1, LOOP_READ, "end of a pod's PID 1",
				      on_pid1_exit, s);
}

static int plan_pid1(struct plan_builder *plan, int *ret_control, struct error *err)
{
	static const int no_stdio[3] = {-1, -1, -1};
	int root = -1;

	plan_init(plan, INIT_PID1, no_stdio);
	TRY(ns_make_shm(4096, 0, 0, NULL, &root, err));
	plan_get(plan)->root_fd = plan_give_fd(plan, root);
	plan_get(plan)->exec_fd = plan_lend_fd(plan, kind.pid1_program);
	plan_get(plan)->oom_score_adj = PID1_OOM_SCORE;
	return plan_seal(plan, ret_control, err);
}

/* It waits until it is pinned, so that one that nobody knows can't be left behind. */
static int start_pid1(struct task *t, struct linux_sandbox *s, int user)
{
	struct birth birth = {.user_fd = user,
			      .pid_fd = -1,
			      .clone_fd = -1,
			      .flags = CLONE_NEWNS | CLONE_NEWPID | CLONE_NEWUTS};
	cleanup_close int control = -1;
	char name[PIN_NAME_SIZE];
	enum control_event event;
	uint64_t started;
	int r = plan_pid1(&birth.plan, &control, &t->err);

	if (r == 0)
		r = spawner_start(t, kind.spawner, &birth, &s->pid1, &s->pid1_pid);
	plan_done(&birth.plan);
	TRY(r);
	pin_name(name, s->spec.id, "init");
	TRY(held_put(t, name, s->pid1, s->pid1_pid, &started));
	TRY(control_go(control, &t->err));
	TRY(control_wait(t, control, "start the pod's PID 1", &event, NULL));
	watch_pid1(s);
	return 0;
}

static void set_group(struct linux_sandbox *s)
{
	s->spec.cgroup_parent = group_of_pod(s->arena, s->spec.id);
	s->spec.has_own_parent = true;
	s->has_group = true;
}

static bool has_limits(const struct resources *r)
{
	return r->cpu_shares || r->cpu_quota_us || r->cpu_period_us || r->cpuset_cpus ||
	       r->cpuset_mems || r->memory_limit || r->memory_swap_limit || r->pids_limit ||
	       r->unified.count || r->hugepage_limits.count;
}

/* Without limits it is not made: that would cost each pod half a millisecond. */
static int make_group(struct task *t, struct linux_sandbox *s)
{
	if (s->has_parent || !has_limits(&s->spec.resources))
		return 0;
	set_group(s);
	task_stage(t, "making its cgroup");
	return group_create(t, s->spec.cgroup_parent, &s->spec.resources);
}

int linux_sandbox_need_group(struct task *t, struct linux_sandbox *s)
{
	if (s->has_group || s->has_parent)
		return 0;
	if (!list_is_empty(&s->containers) || s->missing_count)
		return error_set(&t->err, ERR_PRECONDITION,
				 "limits of sandbox %s: it was run without any, so its containers "
				 "are in no cgroup of its own; run it with linux.resources",
				 s->spec.id);
	set_group(s);
	return group_create(t, s->spec.cgroup_parent, NULL);
}

static int bring_up(struct task *t, struct linux_sandbox *s)
{
	cleanup_close int user = -1;

	TRY(label_sandbox(t, s));
	TRY(make_group(t, s));
	TRY(make_namespaces(t, s, &user));
	if (s->spec.pid == NS_POD)
		TRY(start_pid1(t, s, user));
	s->is_up = true;
	return 0;
}

int linux_sandbox_create(struct task *t, const struct sandbox_spec *spec, void **ret_sandbox)
{
	struct linux_sandbox *s;
	struct error why;
	int r;

	TRY(check_spec(spec, &t->err));
	s = sandbox_new(spec);
	r = bring_up(t, s);
	if (r == 0) {
		*ret_sandbox = s;
		return 0;
	}
	why = t->err;
	task_shield(t, 1);
	linux_sandbox_remove(t, s);
	task_shield(t, -1);
	linux_sandbox_forget(s);
	return error_copy(&t->err, &why);
}

void linux_sandbox_record(void *sandbox, struct buf *ret)
{
	const struct linux_sandbox *s = sandbox;

	buf_printf(ret, "version=1\nboot=%s\npid1=%d\ngroup=%d\nparent=%s\n", kind.boot,
		   s->pid1_pid, s->has_group, s->spec.cgroup_parent);
	label_record(&s->labels, ret);
}

/* 1 when the pin is there (or not wanted), 0 when not. */
static int has_pin(struct task *t, const struct linux_sandbox *s, bool is_wanted,
		   const char *suffix)
{
	char name[PIN_NAME_SIZE];
	cleanup_close int fd = -1;
	int r;

	if (!is_wanted)
		return 1;
	pin_name(name, s->spec.id, suffix);
	r = pins_get(t, kind.env.pins, name, &fd);
	if (r == -ERR_NOT_FOUND)
		return 0;
	return r < 0 ? r : 1;
}

static int find_pid1(struct task *t, struct linux_sandbox *s)
{
	char name[PIN_NAME_SIZE];
	int r;

	if (s->spec.pid != NS_POD)
		return 1;
	pin_name(name, s->spec.id, "init");
	r = held_get(t, name, &s->pid1);
	if (r == -ERR_NOT_FOUND)
		return 0;
	TRY(r);
	watch_pid1(s);
	return 1;
}

/* Whether all that holds it up is still there. */
static int find_up(struct task *t, struct linux_sandbox *s)
{
	int user = has_pin(t, s, s->spec.has_userns, "user");
	int net = user < 0 ? user : has_pin(t, s, s->spec.net != NS_NODE, "net");
	int ipc = net < 0 ? net : has_pin(t, s, s->spec.ipc != NS_NODE, "ipc");
	int init = ipc < 0 ? ipc : find_pid1(t, s);

	if (init < 0)
		return init;
	s->is_up = user && net && ipc && init;
	return 0;
}

/* The driver may be another one now. */
static void read_parent(struct linux_sandbox *s, const char *record, size_t size)
{
	cleanup_free char *path = xmalloc(size + 1);

	if (record_find(record, size, "parent", path, size + 1) &&
	    cgroup_path_check(path, NULL) == 0)
		s->spec.cgroup_parent = arena_strdup(s->arena, path);
}

int linux_sandbox_recover(struct task *t, const struct sandbox_spec *spec, const void *record,
			  size_t record_size, void **ret_sandbox)
{
	struct linux_sandbox *s = sandbox_new(spec);
	int r = 0;

	s->missing_count = spec->container_count;
	/* one of which nothing is recorded may have it */
	if (!s->has_parent && record_number(record, record_size, "group", !record_size))
		set_group(s);
	read_parent(s, record, record_size);
	label_sandbox_recover(s, record, record_size);
	if (record_size && record_is_current(record, record_size)) {
		s->pid1_pid = (pid_t)record_number(record, record_size, "pid1", 0);
		r = find_up(t, s);
	}
	if (r < 0) {
		linux_sandbox_forget(s);
		return r;
	}
	*ret_sandbox = s;
	return 0;
}

bool linux_sandbox_is_up(void *sandbox)
{
	return ((struct linux_sandbox *)sandbox)->is_up;
}

/* After this no process is in the pod's pid namespace. */
static int end_pid1(struct task *t, struct linux_sandbox *s)
{
	char name[PIN_NAME_SIZE];
	struct process_exit exit;

	pin_name(name, s->spec.id, "init");
	if (s->pid1 < 0) {
		int r = held_get(t, name, &s->pid1);

		/* a crash may have left its name alone */
		if (r < 0)
			return r == -ERR_NOT_FOUND ? held_drop(t, name) : r;
	}
	TRY(process_signal(s->pid1, SIGKILL, &t->err));
	loop_watch_free(s->pid1_watch);
	s->pid1_watch = NULL;
	TRY(task_wait_fd(t, s->pid1, LOOP_READ));
	/* ours, or already somebody else's to reap */
	process_reap(s->pid1, &exit, &t->err);
	TRY(held_drop(t, name));
	close_fd(s->pid1);
	s->pid1 = -1;
	return 0;
}

static int drop_pin(struct task *t, const struct linux_sandbox *s, const char *suffix)
{
	char name[PIN_NAME_SIZE];

	pin_name(name, s->spec.id, suffix);
	return pins_drop(t, kind.env.pins, name);
}

static struct linux_container *find_running(const struct linux_sandbox *s)
{
	list_for_each(c, &s->containers, struct linux_container, node)
		if (c->life == LIFE_RUNNING)
			return c;
	return NULL;
}

/* Looks anew after each, since the list may have changed meanwhile. */
static int end_containers(struct task *t, struct linux_sandbox *s)
{
	struct linux_container *c;

	while ((c = find_running(s))) {
		int r;

		linux_container_ref(c);
		r = linux_container_kill_all(t, c);
		linux_container_unref(c);
		TRY(r);
	}
	return 0;
}

int linux_sandbox_stop(struct task *t, void *sandbox)
{
	struct linux_sandbox *s = sandbox;

	s->is_up = false;
	TRY(end_containers(t, s));
	if (s->spec.pid == NS_POD)
		TRY(end_pid1(t, s));
	return drop_pin(t, s, "net");
}

int linux_sandbox_remove(struct task *t, void *sandbox)
{
	static const char *const suffixes[] = {"ipc", "user", "shm"};
	struct linux_sandbox *s = sandbox;

	TRY(linux_sandbox_stop(t, s));
	/* before the pins, which tell that it is ours */
	if (s->has_group)
		TRY(group_remove(t, kind.cgroups, s->spec.cgroup_parent));
	for (size_t i = 0; i < sizeof(suffixes) / sizeof(suffixes[0]); i++)
		TRY(drop_pin(t, s, suffixes[i]));
	return 0;
}

void linux_sandbox_info(void *sandbox, struct sandbox_info *ret_info)
{
	const struct linux_sandbox *s = sandbox;

	*ret_info = (struct sandbox_info){
		.pid = s->is_up && s->pid1 >= 0 ? s->pid1_pid : 0,
		.cgroup = s->has_parent || s->has_group ? s->spec.cgroup_parent : NULL,
	};
}
