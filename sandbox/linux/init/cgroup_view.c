/* SPDX-License-Identifier: Apache-2.0 */
/*
 * /sys/fs/cgroup as the container sees it: its own cgroup of each hierarchy that is used,
 * read-only; or all of the node's, writable for one that is privileged. Peculiar: the server gives
 * mounts of the groups, since making a new mount of a hierarchy costs ten times as much; the cgroup
 * namespace names them alike.
 */
#include "sandbox/linux/init/helper.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <unistd.h>

/* "cpu,cpuacct" is one directory that is known by both names. */
static void link_controllers(int view, const char *controllers)
{
	char copy[NAME_MAX + 1], *rest = copy, *one;

	if (!strchr(controllers, ',') || strlen(controllers) >= sizeof(copy))
		return;
	memcpy(copy, controllers, strlen(controllers) + 1);
	while ((one = strsep(&rest, ",")))
		if (symlinkat(controllers, view, one) < 0 && errno != EEXIST)
			fail(STEP_CGROUP_VIEW, one);
}

static void place_hierarchy(int view, const char *name, int mount)
{
	int target;

	if (mkdirat(view, name, 0755) < 0)
		fail(STEP_CGROUP_VIEW, name);
	target = openat(view, name, O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	if (target < 0 || mount_place(mount, target) < 0)
		fail(STEP_CGROUP_VIEW, name);
	close(target);
	link_controllers(view, name);
}

void mount_cgroup_view(struct helper *h, int sys)
{
	const struct plan_cgroup *groups = plan_items(h->plan, h->plan->cgroups);
	struct mount_attr attributes = {
		.attr_set = MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV | MOUNT_ATTR_NOEXEC |
			    (h->plan->flags & PLAN_PRIVILEGED ? 0 : MOUNT_ATTR_RDONLY),
		.propagation = MS_PRIVATE,
	};
	int target = openat(sys, "fs/cgroup", O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	uint32_t count = h->plan->cgroups.count;
	bool is_one = count && !groups[0].name;
	int view =
		is_one ? groups[0].fd : mount_new("tmpfs", "mode=755,size=64k", file_label(h), 0);

	if (target < 0 || view < 0 || mount_place(view, target) < 0)
		fail(STEP_CGROUP_VIEW, "/sys/fs/cgroup");
	for (uint32_t i = 0; i < count && !is_one; i++)
		place_hierarchy(view, plan_text(h->plan, groups[i].name), groups[i].fd);
	if (mount_setattr(view, "", AT_EMPTY_PATH | AT_RECURSIVE, &attributes, sizeof(attributes)) <
	    0)
		fail(STEP_CGROUP_VIEW, "/sys/fs/cgroup");
	close(view);
	close(target);
}
