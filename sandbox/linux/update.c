/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Changed limits. Those of the cgroup come first, since only they can be refused. Peculiar: the
 * score for the OOM killer is one of each process, so all that are in the container get it; one
 * that is forked while that goes on may keep the old one.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "io/base/cleanup.h"
#include "sandbox/linux/cgroup_priv.h"
#include "sandbox/linux/kind.h"

#define CGROUP_TEXT_MAX 3072

/* proc is a folder in /proc, which stays one process's, whoever has the pid by now. */
static bool is_in(const struct linux_container *c, int proc)
{
	char text[CGROUP_TEXT_MAX];

	return cgroup_read(proc, "cgroup", text, sizeof(text)) > 0 && strstr(text, c->spec.id);
}

static int set_score(const struct linux_container *c, pid_t pid, const char *score,
		     struct error *err)
{
	char path[32];
	cleanup_close int proc = -1;
	int r;

	snprintf(path, sizeof(path), "/proc/%d", (int)pid);
	proc = open(path, O_PATH | O_DIRECTORY | O_CLOEXEC);
	if (proc < 0 || !is_in(c, proc))
		return 0;
	r = cgroup_write(proc, "oom_score_adj", score);
	/* without CAP_SYS_RESOURCE what it has is the lowest that it can have, as at its start */
	if (r == 0 || r == -ESRCH || r == -ENOENT || r == -EACCES)
		return 0;
	return error_errno(err, -r, "write %s to oom_score_adj of process %d", score, (int)pid);
}

static int set_scores(struct task *t, struct linux_container *c, int64_t value)
{
	char score[16];
	pid_t *pids = NULL;
	size_t count = 0;
	int r = 0;

	snprintf(score, sizeof(score), "%d", (int)value);
	TRY(cgroup_procs(t, kind.cgroups, c->cgroup, &pids, &count));
	for (size_t i = 0; i < count && r == 0; i++)
		r = set_score(c, pids[i], score, &t->err);
	free(pids);
	return r;
}

int linux_container_update(struct task *t, void *container, const struct resources *resources,
			   const struct resources *undone)
{
	struct linux_container *c = container;
	int64_t score = resources->oom_score_adj;

	TRY(cgroup_update(t, kind.cgroups, c->cgroup, resources, undone));
	if (!score || score == c->spec.resources.oom_score_adj)
		return 0;
	TRY(set_scores(t, c, score));
	c->spec.resources.oom_score_adj = score;
	return 0;
}

int linux_sandbox_update(struct task *t, void *sandbox, const struct resources *resources,
			 const struct resources *undone)
{
	struct linux_sandbox *s = sandbox;

	if (s->has_parent)
		return 0;
	TRY(linux_sandbox_need_group(t, s));
	return cgroup_update(t, kind.cgroups, s->spec.cgroup_parent, resources, undone);
}
