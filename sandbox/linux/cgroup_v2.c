/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cgroup v2's own: a controller reaches a group only when every group above it passes it on in
 * cgroup.subtree_control (cgroup-v2, "Controlling Controllers"). And CLONE_INTO_CGROUP: kernels
 * (6.18 for one) compare the kill counter of the new group with that of the *parent's* group and
 * kill the child at birth when they differ. So a group that was ever killed takes no births, and a
 * server whose own group was ever killed can't use it at all.
 */
#include "sandbox/linux/cgroup_priv.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/sched.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#include "io/base/alloc.h"
#include "io/base/cleanup.h"

static unsigned parse_controllers(char *text)
{
	unsigned mask = 0;
	char *rest = NULL;

	for (char *word = strtok_r(text, " ", &rest); word; word = strtok_r(NULL, " ", &rest)) {
		enum controller c = controller_find(word, strlen(word));

		if (c != CONTROLLER_COUNT)
			mask |= 1u << c;
	}
	return mask;
}

/* Passes on what the group of dir does not pass on yet. One write each, since a single controller
 * that can't be passed on would spoil the others. */
static int enable_in(int dir, unsigned controllers, const char *name, struct error *err)
{
	char text[256];
	ssize_t n = cgroup_read(dir, "cgroup.subtree_control", text, sizeof(text));
	int result = 0;

	if (n < 0)
		return error_errno(err, (int)-n, "read cgroup.subtree_control of cgroup /%s", name);
	controllers &= ~parse_controllers(text);
	for (int c = 0; c < CONTROLLER_COUNT; c++) {
		int r;

		if (!(controllers & 1u << c))
			continue;
		snprintf(text, sizeof(text), "+%s", controller_names[c]);
		r = cgroup_write(dir, "cgroup.subtree_control", text);
		if (r == -EBUSY)
			result = error_set(
				err, ERR_PRECONDITION,
				"pass controller %s on in cgroup /%s: it has processes of its "
				"own; choose another cgroup parent",
				controller_names[c], name);
		else if (r < 0)
			result = error_errno(err, -r, "pass controller %s on in cgroup /%s",
					     controller_names[c], name);
	}
	return result;
}

int cgroup_v2_enable(const struct hierarchy *h, const char *path, unsigned controllers,
		     struct error *err)
{
	cleanup_free char *name = xstrdup(path + 1);
	int result = 0;

	if (!(controllers & h->controllers))
		return 0;
	for (char *end = name; end;) {
		char saved = *end;
		cleanup_close int dir = -1;
		int r;

		*end = '\0';
		dir = *name ? cgroup_open(h, name) : cgroup_open(h, ".");
		if (dir < 0)
			return error_errno(err, -dir, "open cgroup /%s", name);
		r = enable_in(dir, controllers & h->controllers, name, err);
		if (r < 0)
			result = r;
		*end = saved;
		end = strchr(end + 1, '/');
	}
	return result;
}

static bool clones_into(int dir)
{
	struct clone_args args = {.flags = CLONE_INTO_CGROUP, .cgroup = (uint64_t)dir};
	int status = -1;
	pid_t pid = (pid_t)syscall(SYS_clone3, &args, sizeof(args));

	if (pid == 0)
		syscall(SYS_exit_group, 0);
	/* no exit signal: only a wait for clones sees it */
	while (pid > 0 && waitpid(pid, &status, __WALL) < 0 && errno == EINTR)
		;
	return status == 0;
}

bool cgroup_v2_can_clone(const struct hierarchy *h)
{
	char name[64];
	int dir;
	bool result;

	snprintf(name, sizeof(name), "crisp-probe-%d", getpid());
	if (mkdirat(h->fd, name, 0755) < 0)
		return false;
	dir = cgroup_open(h, name);
	result = dir >= 0 && clones_into(dir);
	close_fd(dir);
	(void)unlinkat(h->fd, name, AT_REMOVEDIR);
	return result;
}
