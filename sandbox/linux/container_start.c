/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The birth of a container's first process, in the order of init/protocol.h: plan, spawn, ready,
 * pin, commit, go, exec. Peculiar: whatever fails, the process is ended and reaped here and the
 * container is as it was before.
 */
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>

#include "io/base/alloc.h"
#include "io/base/cleanup.h"
#include "sandbox/linux/kind.h"

/* Makes the plan, off the loop; has all that it uses. */
struct plan_job {
	struct job job;
	struct linux_container *container;
	struct pod_fds pod;
	struct cgroup_join join;
	int stdio[3];
	struct plan_builder plan;
	int control;
	bool is_left;
};

static int run_plan(struct job *job, struct error *err)
{
	struct plan_job *j = container_of(job, struct plan_job, job);

	TRY(cgroup_join_open(kind.cgroups, j->container->cgroup, &j->join, err));
	TRY(container_plan_build(j->container, &j->pod, &j->join, j->stdio, &j->plan, err));
	return plan_seal(&j->plan, &j->control, err);
}

static void plan_finished(struct job *job)
{
	struct plan_job *j = container_of(job, struct plan_job, job);

	j->container->sandbox->left_count -= j->is_left;
}

static void free_plan(struct job *job)
{
	struct plan_job *j = container_of(job, struct plan_job, job);

	plan_done(&j->plan);
	close_fd(j->control);
	pod_fds_done(&j->pod);
	cgroup_join_done(&j->join);
	for (int i = 0; i < 3; i++)
		close_fd(j->stdio[i]);
	linux_container_unref(j->container);
	free(j);
}

static int get_pin(struct task *t, const struct linux_sandbox *s, const char *suffix, int *ret_fd)
{
	char name[PIN_NAME_SIZE];

	pin_name(name, s->spec.id, suffix);
	if (strcmp(suffix, "shm") == 0)
		TRY(pins_get_mount(t, kind.env.pins, name, ret_fd));
	else
		TRY(pins_get(t, kind.env.pins, name, ret_fd));
	return 0;
}

static int find_target(const struct linux_container *c, int *ret_pidfd, struct error *err)
{
	list_for_each(other, &c->sandbox->containers, struct linux_container, node) {
		if (!c->spec.pid_target || strcmp(other->spec.id, c->spec.pid_target) != 0)
			continue;
		if (other->life != LIFE_RUNNING)
			break;
		*ret_pidfd = other->pidfd;
		return 0;
	}
	return error_set(err, ERR_PRECONDITION,
			 "share the pid namespace of container %s: it is not running in this pod",
			 c->spec.pid_target ?: "(none)");
}

static int find_pid_namespace(const struct linux_container *c, int *ret_fd, struct error *err)
{
	int pidfd = -1;

	if (c->spec.pid == NS_POD)
		pidfd = c->sandbox->pid1;
	else if (c->spec.pid == NS_TARGET)
		TRY(find_target(c, &pidfd, err));
	if (pidfd < 0)
		return 0;
	*ret_fd = fcntl(pidfd, F_DUPFD_CLOEXEC, 3);
	if (*ret_fd < 0)
		return error_errno(err, errno, "pid namespace of a container");
	return 0;
}

static int get_pod_fds(struct task *t, const struct linux_container *c, struct pod_fds *ret)
{
	const struct sandbox_spec *s = &c->sandbox->spec;

	TRY(find_pid_namespace(c, &ret->pid, &t->err));
	if (s->has_userns)
		TRY(get_pin(t, c->sandbox, "user", &ret->user));
	if (s->net != NS_NODE)
		TRY(get_pin(t, c->sandbox, "net", &ret->net));
	if (s->ipc == NS_NODE || s->ipc == NS_CONTAINER)
		return 0;
	TRY(get_pin(t, c->sandbox, "ipc", &ret->ipc));
	return get_pin(t, c->sandbox, "shm", &ret->shm);
}

static int dup_stdio(const struct container_stdio *stdio, int ret[3], struct error *err)
{
	const int fds[3] = {stdio->in, stdio->out, stdio->err};

	for (int i = 0; i < 3; i++) {
		if (fds[i] < 0)
			continue;
		ret[i] = fcntl(fds[i], F_DUPFD_CLOEXEC, 3);
		if (ret[i] < 0)
			return error_errno(err, errno, "stream %d of a container", i);
	}
	return 0;
}

/* The process, held before INIT_READY. */
static int give_birth(struct task *t, struct linux_container *c, struct plan_job *j)
{
	struct birth birth = {.flags = CLONE_NEWNS | CLONE_NEWUTS};
	int r;

	TRY(get_pod_fds(t, c, &j->pod));
	task_stage(t, "opening its mount sources");
	TRY(host_job_run(t, c->sandbox, &j->job, &j->is_left));
	birth.plan = j->plan;
	j->plan = (struct plan_builder){0};
	birth.user_fd = j->pod.user;
	birth.pid_fd = j->pod.pid;
	birth.clone_fd = j->join.clone_fd;
	if (c->spec.pid == NS_CONTAINER)
		birth.flags |= CLONE_NEWPID;
	task_stage(t, "bearing its process");
	r = spawner_start(t, kind.spawner, &birth, &c->pidfd, &c->pid);
	return r;
}

static int bear(struct task *t, struct linux_container *c, const struct container_stdio *stdio,
		int *ret_control)
{
	struct plan_job *j = xnew(struct plan_job);
	int r;

	job_init(&j->job, run_plan, free_plan);
	j->job.finished = plan_finished;
	j->container = linux_container_ref(c);
	j->pod = POD_FDS_NONE;
	j->join = CGROUP_JOIN_NONE;
	j->stdio[0] = j->stdio[1] = j->stdio[2] = -1;
	j->control = -1;
	r = dup_stdio(stdio, j->stdio, &t->err);
	if (r == 0)
		r = give_birth(t, c, j);
	if (r == 0)
		*ret_control = take_fd(&j->control);
	job_unref(&j->job);
	return r;
}

static int bear_in_group(struct task *t, struct linux_container *c,
			 const struct container_stdio *stdio, int *ret_control)
{
	struct group_hold hold = GROUP_HOLD_NONE;
	int r = group_enter(t, c, &hold);

	if (r == 0)
		r = bear(t, c, stdio, ret_control);
	group_leave(t, &hold);
	return r;
}

static int expect(struct task *t, int control, enum control_event wanted, int *ret_master)
{
	enum control_event event;

	TRY(control_wait(t, control, "start container", &event, ret_master));
	if (event != wanted)
		return error_set(
			&t->err, ERR_INTERNAL,
			"start container: its first process ended before it could say why; "
			"it may have been killed for memory");
	return 0;
}

/* It counts as running already, so a caller that leaves now changes nothing. */
static int release(struct task *t, int control)
{
	int r;

	task_shield(t, +1);
	r = control_go(control, &t->err);
	if (r == 0)
		r = expect(t, control, CONTROL_CLOSED, NULL);
	task_shield(t, -1);
	return r;
}

static int run(struct task *t, struct linux_container *c, const struct container_stdio *stdio,
	       int (*commit)(struct task *t, void *data), void *data, int *ret_master)
{
	cleanup_close int control = -1;
	char name[PIN_NAME_SIZE];

	TRY(linux_container_need_filter(t, c));
	TRY(bear_in_group(t, c, stdio, &control));
	TRY(expect(t, control, CONTROL_READY, ret_master));
	pin_name(name, c->spec.id, "pid");
	TRY(held_put(t, name, c->pidfd, c->pid, &c->started));
	if (commit)
		TRY(commit(t, data));
	return release(t, control);
}

static void undo(struct task *t, struct linux_container *c)
{
	char name[PIN_NAME_SIZE];
	struct process_exit exit;

	if (c->pidfd >= 0) {
		process_signal(c->pidfd, SIGKILL, NULL);
		process_wait(t, c->pidfd, &exit);
		pin_name(name, c->spec.id, "pid");
		held_drop(t, name);
	}
	close_fd(c->pidfd);
	c->pidfd = -1;
	c->pid = 0;
}

static int run_or_undo(struct task *t, struct linux_container *c,
		       const struct container_stdio *stdio,
		       int (*commit)(struct task *t, void *data), void *data, int *ret_master)
{
	struct error why;

	if (run(t, c, stdio, commit, data, ret_master) == 0)
		return 0;
	why = t->err;
	task_shield(t, 1);
	undo(t, c);
	task_shield(t, -1);
	return error_copy(&t->err, &why);
}

int linux_container_start(struct task *t, void *container, const struct container_stdio *stdio,
			  int (*commit)(struct task *t, void *data), void *data, int *ret_master)
{
	struct linux_container *c = container;
	cleanup_close int master = -1;
	int r;

	if (c->life != LIFE_CREATED)
		return error_set(&t->err, ERR_PRECONDITION, "start container %s: it %s", c->spec.id,
				 c->life == LIFE_RUNNING ? "runs already" : "has ended");
	if (!c->sandbox->is_up)
		return error_set(&t->err, ERR_PRECONDITION,
				 "start container %s: its sandbox is not ready", c->spec.id);
	r = run_or_undo(t, c, stdio, commit, data, &master);
	/* a link may be to blame too; nobody can tell before */
	if (r < 0 && t->err.sys == ELOOP && !c->prunes_mounts) {
		c->prunes_mounts = true;
		r = run_or_undo(t, c, stdio, commit, data, &master);
	}
	if (r < 0)
		return r;
	c->has_run = true;
	linux_container_watch(c);
	if (ret_master)
		*ret_master = take_fd(&master);
	return 0;
}
