/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Paths in a root that image and volumes have shaped, maybe while we look. Peculiar: the kernel
 * resolves (openat2, RESOLVE_IN_ROOT), nothing is checked first and used later; what is missing is
 * made one component at a time beneath a descriptor that was resolved so (CVE-2021-30465,
 * CVE-2024-45310).
 */
#include "sandbox/linux/init/helper.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/openat2.h>
#include <stdint.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#define LINKS_MAX 40

static int open2(int root, const char *path, int flags, uint64_t resolve)
{
	struct open_how how = {.flags = (uint64_t)(flags | O_CLOEXEC), .resolve = resolve};
	int fd;

	/* EAGAIN: a rename or mount happened beside; the kernel could not be sure */
	do
		fd = (int)syscall(SYS_openat2, root, path, &how, sizeof(how));
	while (fd < 0 && (errno == EAGAIN || errno == EINTR));
	return fd;
}

int open_beneath(int root, const char *path, int flags)
{
	return open2(root, path, O_PATH | flags, RESOLVE_IN_ROOT | RESOLVE_NO_MAGICLINKS);
}

int open_plain_directory(int root, const char *name)
{
	int fd = open2(root, name, O_PATH | O_DIRECTORY, RESOLVE_NO_SYMLINKS | RESOLVE_BENEATH);

	if (fd >= 0 || errno != ENOENT)
		return fd;
	if (mkdirat(root, name, 0755) < 0 && errno != EEXIST)
		return -1;
	return open2(root, name, O_PATH | O_DIRECTORY, RESOLVE_NO_SYMLINKS | RESOLVE_BENEATH);
}

/* Makes name in the directory and opens it; EEXIST where a dangling link is. */
static int make_entry(int dir, const char *name, bool is_directory)
{
	if (is_directory) {
		if (mkdirat(dir, name, 0755) < 0)
			return -1;
	} else {
		int file = openat(dir, name, O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0644);

		if (file < 0)
			return -1;
		close(file);
	}
	return openat(dir, name, O_PATH | O_NOFOLLOW | O_CLOEXEC);
}

/* Puts the text of the link name in dir in the place of the first length bytes of path, which end
 * with name. */
static int follow_link(int dir, const char *name, char *path, size_t length)
{
	char text[PATH_MAX], joined[PATH_MAX];
	ssize_t n = readlinkat(dir, name, text, sizeof(text) - 1);
	size_t parent = length - strlen(name), rest = strlen(path + length);

	if (n < 0)
		return -1;
	if (text[0] == '/')
		parent = 0;
	if (parent + (size_t)n + rest >= sizeof(joined)) {
		errno = ENAMETOOLONG;
		return -1;
	}
	memcpy(joined, path, parent);
	memcpy(joined + parent, text, (size_t)n);
	memcpy(joined + parent + (size_t)n, path + length, rest + 1);
	memcpy(path, joined, parent + (size_t)n + rest + 1);
	return 0;
}

/* One walk over path. Returns a descriptor, −1, or −2 after a link was put into path. */
static int walk(int root, char *path, bool is_directory)
{
	int dir = open_beneath(root, ".", O_DIRECTORY);
	size_t at = 0;

	while (dir >= 0) {
		char name[NAME_MAX + 1];
		size_t begin = at + strspn(path + at, "/"), size = strcspn(path + begin, "/");
		bool is_last = !path[begin + size + strspn(path + begin + size, "/")];
		char saved = path[begin + size];
		int next;

		if (!size)
			return dir;
		if (size > NAME_MAX) {
			errno = ENAMETOOLONG;
			break;
		}
		memcpy(name, path + begin, size);
		name[size] = 0;
		at = begin + size;
		path[at] = 0;
		next = open_beneath(root, path, is_last ? 0 : O_DIRECTORY);
		if (next < 0 && errno == ENOENT)
			next = make_entry(dir, name, is_directory || !is_last);
		path[at] = saved;
		if (next < 0 && errno == EEXIST)
			next = follow_link(dir, name, path, at) < 0 ? -1 : -2;
		close(dir);
		dir = next;
	}
	if (dir >= 0) {
		close(dir);
		dir = -1;
	}
	return dir;
}

int make_beneath(int root, const char *target, bool is_directory)
{
	char path[PATH_MAX];
	int fd = open_beneath(root, target, 0);

	if (fd >= 0 || errno != ENOENT)
		return fd;
	if (strlen(target) >= sizeof(path)) {
		errno = ENAMETOOLONG;
		return -1;
	}
	memcpy(path, target, strlen(target) + 1);
	for (int links = 0; links < LINKS_MAX; links++) {
		fd = walk(root, path, is_directory);
		if (fd != -2)
			return fd;
	}
	errno = ELOOP;
	return -1;
}
