/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Copies of directories. Peculiar: directories are opened from the top each, so depth costs no
 * descriptors; they get their attributes last, since their times change with what comes into them.
 * A layer is never changed and the copy is nobody else's yet, so nothing moves meanwhile.
 */
#include "sandbox/linux/volume.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/openat2.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/sendfile.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/xattr.h>
#include <unistd.h>

#include "io/base/alloc.h"
#include "io/base/cleanup.h"
#include "io/base/list.h"
#include "io/base/map.h"
#include "io/fs.h"

/* Between two looks at whether to go on. */
#define CHUNK (16u << 20)
/* How the kernel keeps what an overlay must know; layers have it, their contents don't. */
#define OVERLAY_XATTRS "trusted.overlay."

struct copied_dir {
	struct list node;
	char path[]; /* beneath both tops; "" for these */
};

struct copy {
	int from, to;	  /* the tops */
	struct list dirs; /* struct copied_dir, the outer ones first */
	struct map links; /* "device:inode" → where the copy is; owned */
	const atomic_bool *is_given_up;
	struct error *err;
};

/* One entry: the same name in a directory of each side. */
struct entry {
	int from, to;
	const char *dir, *name;
	struct stat st;
};

static int failed(const struct copy *c, const struct entry *e, const char *what)
{
	return error_errno(c->err, errno, "%s %s/%s of a volume", what, e->dir, e->name);
}

static int check_given_up(const struct copy *c)
{
	return atomic_load(c->is_given_up)
		       ? error_set(c->err, ERR_CANCELLED, "copy a volume: nobody waits for it")
		       : 0;
}

static void push_dir(struct copy *c, const char *dir, const char *name)
{
	size_t size = strlen(dir) + strlen(name) + 2;
	struct copied_dir *d = xmalloc(sizeof(*d) + size);

	snprintf(d->path, size, "%s%s%s", dir, *dir ? "/" : "", name);
	list_append(&c->dirs, &d->node);
}

static int open_dir(const struct copy *c, int top, const char *path, int *ret)
{
	int r = fs_openat2(top, *path ? path : ".", O_RDONLY | O_DIRECTORY | O_NOFOLLOW, 0,
			   RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS);

	if (r < 0)
		return error_errno(c->err, -r, "open %s of a volume", path);
	*ret = r;
	return 0;
}

static int copy_xattr(const struct copy *c, const struct entry *e, const char *from, const char *to,
		      const char *name)
{
	cleanup_free char *value = NULL;
	ssize_t size = lgetxattr(from, name, NULL, 0);

	if (size >= 0) {
		value = xmalloc((size_t)size + 1);
		size = lgetxattr(from, name, value, (size_t)size);
	}
	if (size < 0 || lsetxattr(to, name, value, (size_t)size, 0) < 0)
		return failed(c, e, name);
	return 0;
}

/* By the directory's descriptor, since devices and links can't be opened. */
static int copy_xattrs(const struct copy *c, const struct entry *e)
{
	cleanup_free char *from = xasprintf("/proc/self/fd/%d/%s", e->from, e->name);
	cleanup_free char *to = xasprintf("/proc/self/fd/%d/%s", e->to, e->name);
	cleanup_free char *names = NULL;
	ssize_t size;

	size = llistxattr(from, NULL, 0);
	if (size > 0) {
		names = xmalloc((size_t)size);
		size = llistxattr(from, names, (size_t)size);
	}
	if (size < 0)
		return errno == EOPNOTSUPP ? 0 : failed(c, e, "list the attributes of");
	for (const char *name = names; size > 0 && name < names + size; name += strlen(name) + 1)
		if (strncmp(name, OVERLAY_XATTRS, sizeof(OVERLAY_XATTRS) - 1) != 0)
			TRY(copy_xattr(c, e, from, to, name));
	return 0;
}

/* The owner first: a change of it takes set-user-id bits and capabilities away. */
static int copy_attributes(const struct copy *c, const struct entry *e)
{
	const struct timespec times[2] = {e->st.st_atim, e->st.st_mtim};

	if (fchownat(e->to, e->name, e->st.st_uid, e->st.st_gid, AT_SYMLINK_NOFOLLOW) < 0)
		return failed(c, e, "give its owner to");
	TRY(copy_xattrs(c, e));
	if (!S_ISLNK(e->st.st_mode) && fchmodat(e->to, e->name, e->st.st_mode & 07777, 0) < 0)
		return failed(c, e, "set the mode of");
	if (utimensat(e->to, e->name, times, AT_SYMLINK_NOFOLLOW) < 0)
		return failed(c, e, "set the times of");
	return 0;
}

static ssize_t copy_chunk(int from, int to, off_t *at, size_t size)
{
	off_t out = *at;
	ssize_t n = copy_file_range(from, at, to, &out, size, 0);

	if (n >= 0 || (errno != EXDEV && errno != EINVAL && errno != EOPNOTSUPP && errno != ENOSYS))
		return n;
	if (lseek(to, *at, SEEK_SET) < 0)
		return -1;
	return sendfile(to, from, at, size);
}

static int copy_data(const struct copy *c, const struct entry *e, int from, int to, off_t at,
		     off_t end)
{
	while (at < end) {
		size_t left = (size_t)(end - at);
		ssize_t n;

		TRY(check_given_up(c));
		n = copy_chunk(from, to, &at, left < CHUNK ? left : CHUNK);
		if (n < 0 && errno != EINTR)
			return failed(c, e, "copy");
		if (n == 0)
			return 0;
	}
	return 0;
}

static int copy_file(const struct copy *c, const struct entry *e)
{
	cleanup_close int from = openat(e->from, e->name, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
	cleanup_close int to =
		openat(e->to, e->name, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);

	if (from < 0 || to < 0)
		return failed(c, e, "copy");
	for (off_t at = 0, hole; at < e->st.st_size; at = hole) {
		at = lseek(from, at, SEEK_DATA);
		if (at < 0 && errno == ENXIO)
			break;
		hole = at < 0 ? -1 : lseek(from, at, SEEK_HOLE);
		if (hole < 0)
			return failed(c, e, "find the data of");
		TRY(copy_data(c, e, from, to, at, hole));
	}
	return ftruncate(to, e->st.st_size) < 0 ? failed(c, e, "set the size of") : 0;
}

static int copy_link(const struct copy *c, const struct entry *e)
{
	cleanup_free char *target = xmalloc(PATH_MAX);
	ssize_t n = readlinkat(e->from, e->name, target, PATH_MAX - 1);

	if (n < 0)
		return failed(c, e, "read");
	target[n] = 0;
	return symlinkat(target, e->to, e->name) < 0 ? failed(c, e, "make") : 0;
}

/* 1 when it is one more name of what is there already. */
static int copy_name(struct copy *c, const struct entry *e)
{
	char key[64], *first;

	if (e->st.st_nlink < 2)
		return 0;
	snprintf(key, sizeof(key), "%ju:%ju", (uintmax_t)e->st.st_dev, (uintmax_t)e->st.st_ino);
	first = map_get(&c->links, key);
	if (!first) {
		map_put(&c->links, key, xasprintf("%s%s%s", e->dir, *e->dir ? "/" : "", e->name));
		return 0;
	}
	return linkat(c->to, first, e->to, e->name, 0) < 0 ? failed(c, e, "link") : 1;
}

static int copy_entry(struct copy *c, const struct entry *e)
{
	mode_t type = e->st.st_mode & S_IFMT;
	int r;

	/* what a layer hides beneath it; alone it would show */
	if (type == S_IFCHR && e->st.st_rdev == makedev(0, 0))
		return 0;
	if (type == S_IFDIR) {
		push_dir(c, e->dir, e->name);
		return mkdirat(e->to, e->name, 0700) < 0 ? failed(c, e, "make") : 0;
	}
	r = copy_name(c, e);
	if (r)
		return r < 0 ? r : 0;
	if (type == S_IFREG)
		TRY(copy_file(c, e));
	else if (type == S_IFLNK)
		TRY(copy_link(c, e));
	else if (mknodat(e->to, e->name, type | 0600, e->st.st_rdev) < 0)
		return failed(c, e, "make");
	return copy_attributes(c, e);
}

static int copy_dir(struct copy *c, const char *path)
{
	struct entry e = {.from = -1, .to = -1, .dir = path};
	cleanup_closedir DIR *stream = NULL;
	cleanup_close int to = -1;
	struct dirent *d;

	TRY(open_dir(c, c->to, path, &to));
	TRY(open_dir(c, c->from, path, &e.from));
	e.to = to;
	stream = fdopendir(e.from);
	if (!stream) {
		close_fd(e.from);
		return error_errno(c->err, errno, "read %s of a volume", path);
	}
	for (errno = 0; (d = readdir(stream)); errno = 0) {
		e.name = d->d_name;
		if (!strcmp(e.name, ".") || !strcmp(e.name, ".."))
			continue;
		TRY(check_given_up(c));
		if (fstatat(e.from, e.name, &e.st, AT_SYMLINK_NOFOLLOW) < 0)
			return failed(c, &e, "look at");
		TRY(copy_entry(c, &e));
	}
	return errno ? error_errno(c->err, errno, "read %s of a volume", path) : 0;
}

static int finish_dir(const struct copy *c, const char *path)
{
	cleanup_close int from = -1;
	cleanup_close int to = -1;
	struct entry e = {.dir = path, .name = "."};

	TRY(open_dir(c, c->to, path, &to));
	TRY(open_dir(c, c->from, path, &from));
	e.from = from;
	e.to = to;
	if (fstat(from, &e.st) < 0)
		return failed(c, &e, "look at");
	return copy_attributes(c, &e);
}

static int copy_tree(int from, int to, const atomic_bool *is_given_up, struct error *err)
{
	struct copy c = {.from = from, .to = to, .is_given_up = is_given_up, .err = err};
	int r = 0;

	list_init(&c.dirs);
	push_dir(&c, "", "");
	/* it grows meanwhile */
	for (struct list *l = c.dirs.next; l != &c.dirs && r == 0; l = l->next)
		r = copy_dir(&c, container_of(l, struct copied_dir, node)->path);
	while (!list_is_empty(&c.dirs)) {
		struct copied_dir *d = container_of(c.dirs.prev, struct copied_dir, node);

		if (r == 0)
			r = finish_dir(&c, d->path);
		list_remove(&d->node);
		free(d);
	}
	map_for_each(slot, &c.links) {
		free(slot->value);
	}
	map_done(&c.links);
	return r;
}

/* An empty directory at that path, which nobody else may enter yet. */
static int make_empty(const char *path, int *ret_fd, struct error *err)
{
	const char *slash = strrchr(path, '/');
	cleanup_free char *above = xasprintf("%.*s", (int)(slash - path), path);
	cleanup_close int dir = -1;
	int fd;

	TRY(fs_make_dirs(above, 0711, err));
	dir = open(above, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (dir < 0)
		return error_errno(err, errno, "open %s", above);
	TRY(fs_remove_tree_blocking(dir, slash + 1, err));
	if (mkdirat(dir, slash + 1, 0700) < 0)
		return error_errno(err, errno, "make %s", path);
	fd = openat(dir, slash + 1, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	if (fd < 0)
		return error_errno(err, errno, "open %s", path);
	*ret_fd = fd;
	return 0;
}

int volume_make(int image, const char *path, const char *dir, const atomic_bool *is_given_up,
		struct error *err)
{
	int r = fs_openat2(image, path, O_RDONLY | O_DIRECTORY, 0,
			   RESOLVE_IN_ROOT | RESOLVE_NO_MAGICLINKS);
	cleanup_close int from = r;
	cleanup_close int to = -1;

	if (r == -ENOTDIR)
		return error_set(err, ERR_INVALID,
				 "volume %s of the image: the image has no directory there; mount "
				 "something on it",
				 path);
	if (r < 0 && r != -ENOENT)
		return error_errno(err, -r, "open the volume %s of the image", path);
	TRY(make_empty(dir, &to, err));
	if (from >= 0)
		return copy_tree(from, to, is_given_up, err);
	return fchmod(to, 0755) < 0 ? error_errno(err, errno, "set the mode of %s", dir) : 0;
}
