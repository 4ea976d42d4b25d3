/* SPDX-License-Identifier: Apache-2.0 */
/*
 * /sys/fs/cgroup as the container sees it: its own cgroup is the root (a cgroup namespace),
 * read-only unless the container is privileged. Peculiar: the hierarchies are those that
 * /proc/self/cgroup names, read in the pristine proc of the tiny mount namespace.
 */
#include "sandbox/linux/init/helper.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <unistd.h>

#define NO_EXTRAS (MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV | MOUNT_ATTR_NOEXEC)

static void mount_hierarchy(int tmpfs, const char *name, const char *type, const char *options,
			    unsigned attributes)
{
	int mount = mount_new(type, options, attributes), target;

	/* a hierarchy that this kernel does not let us mount stays away */
	if (mount < 0)
		return;
	if (mkdirat(tmpfs, name, 0755) < 0)
		fail(STEP_CGROUP_VIEW, name);
	target = openat(tmpfs, name, O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	if (target < 0 || mount_place(mount, target) < 0)
		fail(STEP_CGROUP_VIEW, name);
	close(target);
	close(mount);
}

/* "cpu,cpuacct" is one directory that is known by both names. */
static void link_controllers(int tmpfs, const char *controllers)
{
	char copy[NAME_MAX + 1], *rest = copy, *one;

	if (!strchr(controllers, ',') || strlen(controllers) >= sizeof(copy))
		return;
	strcpy(copy, controllers);
	while ((one = strsep(&rest, ",")))
		if (symlinkat(controllers, tmpfs, one) < 0 && errno != EEXIST)
			fail(STEP_CGROUP_VIEW, one);
}

/* A line "4:memory:/a/b"; "1:name=systemd:/", "0::/c". */
static void mount_line(int tmpfs, char *line, unsigned attributes)
{
	char *controllers = strchr(line, ':'), *end;
	char options[NAME_MAX + 8];

	if (!controllers || !(end = strchr(++controllers, ':')))
		return;
	*end = 0;
	if (!*controllers) {
		mount_hierarchy(tmpfs, "unified", "cgroup2", NULL, attributes);
	} else if (strncmp(controllers, "name=", 5) == 0) {
		snprintf(options, sizeof(options), "none,%s", controllers);
		mount_hierarchy(tmpfs, controllers + 5, "cgroup", options, attributes);
	} else {
		mount_hierarchy(tmpfs, controllers, "cgroup", controllers, attributes);
		link_controllers(tmpfs, controllers);
	}
}

void mount_cgroup_view(struct helper *h, int sys)
{
	unsigned attributes =
		NO_EXTRAS | (h->plan->flags & PLAN_WRITABLE_SYS ? 0 : MOUNT_ATTR_RDONLY);
	struct mount_attr readonly = {.attr_set = MOUNT_ATTR_RDONLY};
	int target = openat(sys, "fs/cgroup", O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC), view;
	char text[4096], *rest = text, *line;
	int file = open("/proc/self/cgroup", O_RDONLY | O_CLOEXEC);
	ssize_t n = file < 0 ? -1 : read(file, text, sizeof(text) - 1);

	if (n <= 0 || target < 0)
		fail(STEP_CGROUP_VIEW, "/sys/fs/cgroup");
	text[n] = 0;
	close(file);
	if (strncmp(text, "0::", 3) == 0) {
		view = mount_new("cgroup2", NULL, attributes);
		if (view < 0 || mount_place(view, target) < 0)
			fail(STEP_CGROUP_VIEW, "/sys/fs/cgroup");
		close(view);
		return;
	}
	view = mount_new("tmpfs", "mode=755,size=64k", NO_EXTRAS);
	if (view < 0 || mount_place(view, target) < 0)
		fail(STEP_CGROUP_VIEW, "/sys/fs/cgroup");
	while ((line = strsep(&rest, "\n")))
		mount_line(view, line, attributes);
	if (!(h->plan->flags & PLAN_WRITABLE_SYS) &&
	    mount_setattr(view, "", AT_EMPTY_PATH, &readonly, sizeof(readonly)) < 0)
		fail(STEP_CGROUP_VIEW, "/sys/fs/cgroup");
	close(view);
	close(target);
}
