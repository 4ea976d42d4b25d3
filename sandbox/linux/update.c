/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Changed limits. Those of the cgroup come first, since only they can be refused. Peculiar: the
 * score for the OOM killer is one of each process, so all that are in the container get it, those
 * too that are forked while that goes on.
 */
#include <errno.h>
#include <fcntl.h>
#include <linux/capability.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "io/base/cleanup.h"
#include "io/base/log.h"
#include "io/procfs.h"
#include "sandbox/linux/cgroup_priv.h"
#include "sandbox/linux/kind.h"
#include "sandbox/linux/spec_copy.h"
#include "sandbox/linux/units.h"

#define CGROUP_TEXT_MAX 3072
/* Lists of processes that are read at the most, while some fork and fork. */
#define SCORE_ROUNDS 16

/* proc is a folder in /proc, which stays one process's, whoever has the pid by now. */
static bool is_in(const struct linux_container *c, int proc)
{
	char text[CGROUP_TEXT_MAX];

	return cgroup_read(proc, "cgroup", text, sizeof(text)) > 0 && strstr(text, c->spec.id);
}

static bool may_lower_scores(void)
{
	struct __user_cap_header_struct header = {.version = _LINUX_CAPABILITY_VERSION_3};
	struct __user_cap_data_struct data[_LINUX_CAPABILITY_U32S_3] = {0};

	return syscall(SYS_capget, &header, data) == 0 &&
	       data[0].effective & 1u << CAP_SYS_RESOURCE;
}

void linux_score_note(int64_t asked)
{
	static bool is_said;
	char text[16];
	cleanup_close int self = -1;

	if (is_said || !asked || may_lower_scores())
		return;
	self = open("/proc/self", O_PATH | O_DIRECTORY | O_CLOEXEC);
	if (self < 0 || cgroup_read(self, "oom_score_adj", text, sizeof(text)) <= 0 ||
	    strtoll(text, NULL, 10) <= asked)
		return;
	is_said = true;
	log_warning("oom_score_adj %lld, as lower ones, can't be had without CAP_SYS_RESOURCE: "
		    "processes have %s instead",
		    (long long)asked, text);
}

static int set_score(const struct linux_container *c, pid_t pid, const char *score,
		     struct error *err)
{
	char path[32];
	cleanup_close int proc = -1;
	int r;

	snprintf(path, sizeof(path), "%d", (int)pid);
	proc = procfs_open(path, O_PATH | O_DIRECTORY);
	if (proc == -EXDEV)
		return error_errno(err, EXDEV, "open /proc/%s, which is not the kernel's", path);
	if (proc < 0 || !is_in(c, proc))
		return 0;
	r = procfs_write_at(proc, "oom_score_adj", score);
	/* without CAP_SYS_RESOURCE what it has is the lowest that it can have, as at its start */
	if (r == 0 || r == -ESRCH || r == -ENOENT || r == -EACCES)
		return 0;
	return error_errno(err, -r, "write %s to oom_score_adj of process %d", score, (int)pid);
}

static int by_number(const void *a, const void *b)
{
	pid_t x = *(const pid_t *)a, y = *(const pid_t *)b;

	return (x > y) - (x < y);
}

struct pids {
	pid_t *items;
	size_t count;
};

static void pids_done(struct pids *p)
{
	free(p->items);
	*p = (struct pids){0};
}

/* Of those that are not in known; ret_any says whether there were any. */
static int set_new_scores(const struct linux_container *c, const struct pids *now,
			  const struct pids *known, const char *score, bool *ret_any,
			  struct error *err)
{
	*ret_any = false;
	for (size_t i = 0; i < now->count; i++) {
		if (known->count &&
		    bsearch(&now->items[i], known->items, known->count, sizeof(pid_t), by_number))
			continue;
		*ret_any = true;
		TRY(set_score(c, now->items[i], score, err));
	}
	return 0;
}

/* A process that was forked before its parent had the new score has the old one, and may be in no
 * list yet: so until a list has nobody new, also after a moment, since a fork takes one. */
static int set_scores(struct task *t, struct linux_container *c, int64_t value)
{
	struct pids now CLEANUP(pids_done) = {0}, known CLEANUP(pids_done) = {0};
	char score[16];
	bool has_any = true, has_waited = false;

	linux_score_note(value);
	snprintf(score, sizeof(score), "%d", (int)value);
	for (int round = 0; has_any && round < SCORE_ROUNDS; round++) {
		pids_done(&known);
		known = now;
		now = (struct pids){0};
		TRY(cgroup_procs(t, kind.cgroups, c->cgroup, &now.items, &now.count));
		TRY(set_new_scores(c, &now, &known, score, &has_any, &t->err));
		if (!has_any && !has_waited) {
			TRY(task_sleep_ms(t, 1));
			has_any = has_waited = true;
		}
		if (now.count)
			qsort(now.items, now.count, sizeof(pid_t), by_number);
	}
	return 0;
}

/* A scope is made when it starts. */
static bool has_no_group(const struct linux_container *c)
{
	return c->life == LIFE_CREATED && unit_of(c->cgroup);
}

static int set_later(struct task *t, struct linux_container *c, const struct resources *r)
{
	int64_t score = c->spec.resources.oom_score_adj;

	TRY(group_check_limits(r, &t->err));
	resources_copy(c->arena, r, &c->spec.resources);
	if (!r->oom_score_adj)
		c->spec.resources.oom_score_adj = score;
	return 0;
}

int linux_container_update(struct task *t, void *container, const struct resources *resources,
			   const struct resources *undone)
{
	struct linux_container *c = container;
	int64_t score = resources->oom_score_adj;

	if (has_no_group(c))
		return set_later(t, c, resources);
	TRY(group_update(t, c->cgroup, resources, undone));
	if (!score || score == c->spec.resources.oom_score_adj)
		return 0;
	TRY(set_scores(t, c, score));
	c->spec.resources.oom_score_adj = score;
	return 0;
}

static int64_t score_now(const struct linux_container *c, int64_t asked)
{
	char path[32], text[16];
	cleanup_close int proc = -1;

	if (c->life != LIFE_RUNNING)
		return asked;
	snprintf(path, sizeof(path), "/proc/%d", (int)c->pid);
	/* one that has ended meanwhile is a zombie as long as we did not look */
	proc = open(path, O_PATH | O_DIRECTORY | O_CLOEXEC);
	if (proc < 0 || cgroup_read(proc, "oom_score_adj", text, sizeof(text)) <= 0)
		return asked;
	return strtoll(text, NULL, 10);
}

int linux_container_limits(struct task *t, void *container, const struct resources *asked,
			   struct limits_now *ret_limits)
{
	struct linux_container *c = linux_container_ref(container);
	int r = cgroup_limits_now(t, kind.cgroups, c->cgroup, asked, ret_limits);

	if (r == 0)
		ret_limits->oom_score_adj = score_now(c, asked->oom_score_adj);
	linux_container_unref(c);
	return r;
}

int linux_sandbox_update(struct task *t, void *sandbox, const struct resources *resources,
			 const struct resources *undone)
{
	struct linux_sandbox *s = sandbox;

	if (s->has_parent)
		return 0;
	TRY(linux_sandbox_need_group(t, s));
	return group_update(t, s->spec.cgroup_parent, resources, undone);
}
