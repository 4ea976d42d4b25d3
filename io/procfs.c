/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Peculiar: links within procfs (self, thread-self) are the kernel's own as soon as the root is, so
 * they are followed; those to anywhere else are magic links and refused.
 */
#include "io/procfs.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/magic.h>
#include <linux/openat2.h>
#include <stdint.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/vfs.h>
#include <unistd.h>

#include "io/base/cleanup.h"

/* The inode of its root (PROC_ROOT_INO), which no part that is bound to /proc has. */
#define ROOT_INODE 1

/* The descriptor itself or -errno, closed then. */
static int verify_root(int fd)
{
	struct statfs fs;
	struct stat st;
	int r = 0;

	if (fd < 0 || fstatfs(fd, &fs) < 0 || fstat(fd, &st) < 0)
		r = -errno;
	else if (fs.f_type != PROC_SUPER_MAGIC || st.st_ino != ROOT_INODE)
		r = -EXDEV;
	if (r < 0)
		close_fd(fd);
	return r < 0 ? r : fd;
}

static int open_root(void)
{
	return verify_root(open("/proc", O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
}

int procfs_own(void)
{
	cleanup_close int fs = fsopen("proc", FSOPEN_CLOEXEC);
	int mount = -1;

	if (fs >= 0 && fsconfig(fs, FSCONFIG_CMD_CREATE, NULL, NULL, 0) == 0)
		mount = fsmount(fs, FSMOUNT_CLOEXEC,
				MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV | MOUNT_ATTR_NOEXEC);
	return mount < 0 ? open_root() : verify_root(mount);
}

int procfs_open_at(int dir, const char *path, int flags)
{
	struct open_how how = {
		.flags = (uint64_t)(flags | O_CLOEXEC),
		.resolve = RESOLVE_BENEATH | RESOLVE_NO_XDEV | RESOLVE_NO_MAGICLINKS,
	};
	long fd;

	do
		fd = syscall(SYS_openat2, dir, path, &how, sizeof(how));
	while (fd < 0 && errno == EINTR);
	return fd < 0 ? -errno : (int)fd;
}

int procfs_open(const char *path, int flags)
{
	cleanup_close int root = open_root();

	return root < 0 ? root : procfs_open_at(root, path, flags);
}

static int write_text(int fd, const char *text)
{
	cleanup_close int owned = fd;

	if (owned < 0)
		return owned;
	return write(owned, text, strlen(text)) < 0 ? -errno : 0;
}

int procfs_write_at(int dir, const char *path, const char *text)
{
	return write_text(procfs_open_at(dir, path, O_WRONLY), text);
}

int procfs_write(const char *path, const char *text)
{
	return write_text(procfs_open(path, O_WRONLY), text);
}
