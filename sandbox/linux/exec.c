/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Processes added to a running container: as its user, with its limits, in a cgroup of their own
 * beneath its. Peculiar: the new process joins all namespaces at once through the main process's
 * pidfd, so there is no moment in which that process could be another one.
 */
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <stdlib.h>

#include "io/base/alloc.h"
#include "io/base/cleanup.h"
#include "sandbox/linux/kind.h"

static int build_plan(const struct linux_container *c, const struct exec_spec *spec,
		      const struct cgroup_join *join, const int stdio[3], struct plan_builder *b,
		      int *ret_control, struct error *err)
{
	struct plan *plan;

	plan_init(b, INIT_EXEC, stdio);
	plan_add_cgroups(b, join);
	plan_add_process(b, c, &spec->argv);
	plan = plan_get(b);
	plan->exec_fd = plan_lend_fd(b, c->pidfd);
	plan->setns = CLONE_NEWNS | CLONE_NEWUTS | CLONE_NEWIPC | CLONE_NEWNET | CLONE_NEWCGROUP;
	if (c->sandbox->spec.has_userns)
		plan->setns |= CLONE_NEWUSER;
	plan->flags &= ~(uint32_t)PLAN_TTY;
	if (spec->has_tty)
		plan->flags |= PLAN_TTY;
	TRY(plan_give_stdio(c, stdio, err));
	return plan_seal(b, ret_control, err);
}

static void end_process(struct task *t, struct exec_process *p)
{
	struct process_exit exit;

	if (p->pidfd >= 0) {
		process_signal(p->pidfd, SIGKILL, NULL);
		process_wait(t, p->pidfd, &exit);
	}
	close_fd(p->pidfd);
	close_fd(p->master);
	*p = (struct exec_process){-1, -1};
}

/* Until the program runs. */
static int follow(struct task *t, int control, struct exec_process *p)
{
	enum control_event event;

	do
		TRY(control_wait(t, control, "exec in container", &event, &p->master));
	while (event != CONTROL_CLOSED);
	return 0;
}

static int run(struct task *t, struct linux_container *c, const struct exec_spec *spec,
	       const int stdio[3], int (*commit)(struct task *t, void *data), void *data,
	       struct cgroup_join *join, struct exec_process *p)
{
	struct birth birth = {.user_fd = -1, .pid_fd = c->pidfd, .flags = 0};
	cleanup_close int control = -1;
	pid_t pid;
	int r;

	TRY(linux_container_need_filter(t, c));
	TRY(cgroup_exec_open(t, kind.cgroups, c->cgroup, spec->id, join));
	birth.clone_fd = join->clone_fd;
	r = build_plan(c, spec, join, stdio, &birth.plan, &control, &t->err);
	if (r == 0 && commit)
		r = commit(t, data);
	if (r == 0)
		r = spawner_start(t, kind.spawner, &birth, &p->pidfd, &pid);
	plan_done(&birth.plan);
	TRY(r);
	return follow(t, control, p);
}

int linux_container_exec(struct task *t, void *container, const struct exec_spec *spec,
			 const struct container_stdio *stdio,
			 int (*commit)(struct task *t, void *data), void *data,
			 struct exec_process *ret_process)
{
	struct linux_container *c = container;
	struct exec_process p = {-1, -1};
	struct cgroup_join join = CGROUP_JOIN_NONE;
	const int fds[3] = {stdio->in, stdio->out, stdio->err};
	struct error why;
	int r;

	if (c->life != LIFE_RUNNING)
		return error_set(&t->err, ERR_PRECONDITION, "exec in container %s: it %s",
				 c->spec.id,
				 c->life == LIFE_CREATED ? "has not started" : "has ended");
	if (!spec->argv.count)
		return error_set(&t->err, ERR_INVALID, "exec in container %s: no command",
				 c->spec.id);
	r = run(t, c, spec, fds, commit, data, &join, &p);
	cgroup_join_done(&join);
	if (r == 0) {
		*ret_process = p;
		return 0;
	}
	why = t->err;
	task_shield(t, 1);
	end_process(t, &p);
	cgroup_exec_remove(t, kind.cgroups, c->cgroup, spec->id);
	task_shield(t, -1);
	return error_copy(&t->err, &why);
}

int linux_container_exec_kill(struct task *t, void *container, const char *exec_id)
{
	struct linux_container *c = container;

	return cgroup_exec_kill(t, kind.cgroups, c->cgroup, exec_id);
}

int linux_container_exec_done(struct task *t, void *container, const char *exec_id)
{
	struct linux_container *c = container;

	return cgroup_exec_remove(t, kind.cgroups, c->cgroup, exec_id);
}
