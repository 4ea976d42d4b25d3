/* SPDX-License-Identifier: Apache-2.0 */
/*
 * /dev: a small tmpfs that is filled while it is still detached. Which devices a container with
 * CAP_MKNOD can open is its cgroup's business, so that it can make a /dev for a root of its own, as
 * tools that build images do. In a user namespace nodes can't be made, so the server gives mounts
 * of the host's.
 */
#include "sandbox/linux/init/helper.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

static const struct {
	const char *target, *name;
} links[] = {
	{"/proc/self/fd", "fd"},       {"/proc/self/fd/0", "stdin"}, {"/proc/self/fd/1", "stdout"},
	{"/proc/self/fd/2", "stderr"}, {"pts/ptmx", "ptmx"},
};

static const struct {
	const char *name;
	mode_t mode;
} directories[] = {{"pts", 0755}, {"shm", 0755}, {"mqueue", 0755}};

/* The device's path within /dev, or NULL when it lies elsewhere. */
static const char *within_dev(const char *path)
{
	return strncmp(path, "/dev/", 5) == 0 && path[5] ? path + 5 : NULL;
}

/* The directory that path's last component lies in, made where it is missing. */
static int open_parent(int root, const char *path, const char **ret_name)
{
	char parent[4096];
	const char *slash = strrchr(path, '/');
	size_t n = slash ? (size_t)(slash - path) : 0;

	if (n >= sizeof(parent) - 1) {
		errno = ENAMETOOLONG;
		return -1;
	}
	memcpy(parent, path, n);
	parent[n] = 0;
	*ret_name = slash ? slash + 1 : path;
	return make_beneath(root, n ? parent : ".", true);
}

/* What a device is mounted on may be anything; else it has to be that device, whatever the image
 * has in its place. errno stays. */
static bool is_node_there(int dir, const char *name, const struct plan_device *d)
{
	struct stat st;

	if (d->fd >= 0)
		return true;
	if (fstatat(dir, name, &st, AT_SYMLINK_NOFOLLOW) == 0 &&
	    (st.st_mode & S_IFMT) == (d->mode & S_IFMT) && st.st_rdev == d->number)
		return true;
	errno = EEXIST;
	return false;
}

static void make_device(int root, const char *path, const struct plan_device *d, const char *shown)
{
	const char *name;
	int dir = open_parent(root, path, &name), r;

	if (dir < 0)
		fail(STEP_DEVICE, shown);
	if (d->fd >= 0)
		r = mknodat(dir, name, S_IFREG | 0600, 0);
	else
		r = mknodat(dir, name, d->mode, d->number);
	if (r < 0 && (errno != EEXIST || !is_node_there(dir, name, d)))
		fail(STEP_DEVICE, shown);
	if (r == 0 && d->fd < 0 && (d->uid || d->gid) &&
	    fchownat(dir, name, d->uid, d->gid, AT_SYMLINK_NOFOLLOW) < 0)
		fail(STEP_DEVICE, shown);
	close(dir);
}

void make_devices(struct helper *h, int dev)
{
	const struct plan_device *devices = plan_items(h->plan, h->plan->devices);

	for (size_t i = 0; i < sizeof(directories) / sizeof(directories[0]); i++)
		if (mkdirat(dev, directories[i].name, directories[i].mode) < 0)
			fail(STEP_DEV, directories[i].name);
	for (size_t i = 0; i < sizeof(links) / sizeof(links[0]); i++)
		if (symlinkat(links[i].target, dev, links[i].name) < 0)
			fail(STEP_DEV, links[i].name);
	for (uint32_t i = 0; i < h->plan->devices.count; i++) {
		const char *path = plan_text(h->plan, devices[i].path), *inner = within_dev(path);

		if (inner)
			make_device(dev, inner, &devices[i], path);
	}
}

/* The node that masks: the kernel's, by its number, not what the image calls so (CVE-2025-31133).
 */
static void find_null(struct helper *h)
{
	struct stat st;

	h->null = openat(h->dev, "null", O_PATH | O_NOFOLLOW | O_CLOEXEC);
	if (h->null < 0 || fstat(h->null, &st) < 0)
		fail(STEP_DEVICE, "/dev/null");
	if (!S_ISCHR(st.st_mode) || st.st_rdev != makedev(1, 3)) {
		errno = EINVAL;
		fail(STEP_DEVICE, "/dev/null");
	}
}

void bind_devices(struct helper *h)
{
	const struct plan_device *devices = plan_items(h->plan, h->plan->devices);

	for (uint32_t i = 0; i < h->plan->devices.count; i++) {
		const char *path = plan_text(h->plan, devices[i].path), *inner = within_dev(path);
		int target;

		if (!inner)
			make_device(h->root, path[0] == '/' ? path + 1 : path, &devices[i], path);
		if (devices[i].fd < 0)
			continue;
		target = inner ? open_beneath(h->dev, inner, O_NOFOLLOW)
			       : open_beneath(h->root, path, O_NOFOLLOW);
		if (target < 0 || mount_place(devices[i].fd, target) < 0)
			fail(STEP_DEVICE, path);
		close(target);
	}
	find_null(h);
}
