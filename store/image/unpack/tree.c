/* SPDX-License-Identifier: Apache-2.0 */
/* Entries to files. Peculiar: whiteouts are named ".wh.NAME" whatever the entry's type, and may
 * come before or after what they speak of; in one layer, what is there wins and only becomes
 * opaque. */
#include "store/image/unpack/tree.h"

#include <archive.h>
#include <archive_entry.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/openat2.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include "io/base/alloc.h"
#include "io/base/cleanup.h"
#include "io/fs.h"
#include "store/image/unpack/meta.h"
#include "store/image/unpack/path.h"

#define WHITEOUT ".wh."
#define OPAQUE ".wh..wh..opq"
#define AUFS ".wh..wh."

/* Of the entry at hand. */
struct entry {
	struct archive *archive;
	struct archive_entry *e;
	const char *name; /* as written, for errors */
	char *path;
	char *base; /* within path */
	int parent;
};

struct dir_times {
	struct list node;
	struct timespec mtime;
	char path[];
};

static int refuse(struct tree *t, const struct entry *en, const char *why)
{
	return error_set(t->err, ERR_INVALID, "entry %.200s: %s", en->name, why);
}

/* Some failures come of what the archive says, not of the machine. */
static int fail_errno(struct tree *t, const struct entry *en, int sys, const char *what)
{
	switch (sys) {
	case ELOOP:
	case ENAMETOOLONG:
	case ENOENT:
	case ENOTDIR:
	case EEXIST:
	case EMLINK:
	case EINVAL:
	case EFBIG:
		return error_set(t->err, ERR_INVALID, "entry %.200s: %s: %s", en->name, what,
				 strerrordesc_np(sys));
	default:
		return error_errno(t->err, sys, "entry %.200s: %s", en->name, what);
	}
}

static int fail(struct tree *t, const struct entry *en, const char *what)
{
	return fail_errno(t, en, errno, what);
}

static bool is_whiteout(const struct stat *st)
{
	return S_ISCHR(st->st_mode) && st->st_rdev == makedev(0, 0);
}

static int count_inode(struct tree *t, const struct entry *en)
{
	if (++t->inodes > t->max_inodes)
		return error_set(t->err, ERR_INVALID,
				 "entry %.200s: more than the limit of %llu files", en->name,
				 (unsigned long long)t->max_inodes);
	return 0;
}

static void forget_cached(struct tree *t)
{
	close_fd(t->cached_fd);
	t->cached_fd = -1;
	t->is_stale = false;
}

/* A directory that no entry spoke of looks as in the layers below, so as not to change it there. */
static int adopt_attributes(struct tree *t, const struct entry *en, int dir, const char *path)
{
	struct stat st;

	for (size_t i = t->lower_count; i-- > 0;) {
		int r = fs_openat2(t->lowers[i], path, O_PATH | O_NOFOLLOW, 0,
				   RESOLVE_IN_ROOT | RESOLVE_NO_SYMLINKS);
		cleanup_close int fd = r;

		if (r == -ENOENT)
			continue;
		if (r < 0 || fstat(fd, &st) < 0 || !S_ISDIR(st.st_mode))
			return 0;
		if (fchown(dir, st.st_uid, st.st_gid) < 0 || fchmod(dir, st.st_mode & 07777) < 0)
			return fail(t, en, "set owner and mode of its parent");
		return 0;
	}
	return 0;
}

static int open_dir(struct tree *t, const char *path)
{
	return fs_openat2(t->root, *path ? path : ".", O_RDONLY | O_DIRECTORY, 0,
			  RESOLVE_IN_ROOT | RESOLVE_NO_MAGICLINKS);
}

static int make_missing_dir(struct tree *t, const struct entry *en, const char *path)
{
	const char *base = path_split(path, t->missing);
	int r = open_dir(t, t->missing);
	cleanup_close int up = r;
	cleanup_close int made = -1;
	struct stat st;

	if (r < 0)
		return fail_errno(t, en, -r, "open its parent");
	if (fstatat(up, base, &st, AT_SYMLINK_NOFOLLOW) == 0) {
		if (!is_whiteout(&st))
			return refuse(t, en,
				      S_ISLNK(st.st_mode)
					      ? "a parent is a link to nothing in this layer"
					      : "a parent is no directory");
		if (unlinkat(up, base, 0) < 0)
			return fail(t, en, "replace a whiteout");
		map_put(&t->opaque, path, t);
	}
	TRY(count_inode(t, en));
	if (mkdirat(up, base, t->is_layer ? 0755 : 0700) < 0)
		return fail(t, en, "make its parent");
	made = fs_openat2(up, base, O_RDONLY | O_DIRECTORY | O_NOFOLLOW, 0, RESOLVE_BENEATH);
	if (made < 0)
		return fail_errno(t, en, -made, "open its parent");
	return t->is_layer ? adopt_attributes(t, en, made, path) : 0;
}

/* The directory path, made with all its parents if need be; kept by the cache. */
static int open_parent(struct tree *t, const struct entry *en, const char *path, int *ret_fd)
{
	char *part = t->part;
	int r;

	if (t->is_stale)
		forget_cached(t);
	if (t->cached_fd >= 0 && !strcmp(t->cached, path)) {
		*ret_fd = t->cached_fd;
		return 0;
	}
	r = open_dir(t, path);
	for (size_t n = 0; (r == -ENOENT || r == -ENOTDIR) && path[n]; n++) {
		if (path[n + 1] && path[n + 1] != '/')
			continue;
		memcpy(part, path, n + 1);
		part[n + 1] = 0;
		r = open_dir(t, part);
		if (r == -ENOENT || r == -ENOTDIR) {
			TRY(make_missing_dir(t, en, part));
			r = open_dir(t, part);
		}
		if (r >= 0 && path[n + 1]) {
			close(r);
			r = -ENOENT;
		}
	}
	if (r < 0)
		return fail_errno(t, en, -r, "open its parent");
	forget_cached(t);
	memcpy(t->cached, path, strlen(path) + 1);
	*ret_fd = t->cached_fd = r;
	return 0;
}

/* Removes what is in the entry's place, except for a directory that gets a directory: 1. */
static int clear_place(struct tree *t, const struct entry *en, bool is_dir)
{
	struct stat st;

	if (fstatat(en->parent, en->base, &st, AT_SYMLINK_NOFOLLOW) < 0)
		return errno == ENOENT ? 0 : fail(t, en, "look at its place");
	if (is_dir && S_ISDIR(st.st_mode))
		return 1;
	t->is_stale = true;
	if (!S_ISDIR(st.st_mode)) {
		if (unlinkat(en->parent, en->base, 0) < 0)
			return fail(t, en, "replace an earlier entry");
	} else if (fs_remove_tree_blocking(en->parent, en->base, t->err) < 0) {
		return error_wrap(t->err, "entry %.200s", en->name);
	}
	if (is_dir && is_whiteout(&st))
		map_put(&t->opaque, en->path, t);
	return 0;
}

static void note_times(struct tree *t, const struct entry *en)
{
	size_t n = strlen(en->path) + 1;
	struct dir_times *d = xmalloc(sizeof(*d) + n);

	d->mtime = meta_mtime(en->e);
	memcpy(d->path, en->path, n);
	list_append(&t->times, &d->node);
}

static int add_dir(struct tree *t, struct entry *en)
{
	cleanup_close int fd = -1;
	int r = 1;

	if (*en->path)
		r = clear_place(t, en, true);
	if (r < 0)
		return r;
	if (r == 0) {
		if (mkdirat(en->parent, en->base, 0700) < 0)
			return fail(t, en, "make the directory");
	}
	fd = fs_openat2(*en->path ? en->parent : t->root, *en->path ? en->base : ".",
			O_RDONLY | O_DIRECTORY | O_NOFOLLOW, 0, RESOLVE_BENEATH);
	if (fd < 0)
		return fail_errno(t, en, -fd, "open the directory");
	if (!t->is_layer)
		return 0;
	note_times(t, en);
	if (meta_set(fd, en->e, t->err) < 0)
		return error_wrap(t->err, "entry %.200s", en->name);
	return 0;
}

static int write_data(struct tree *t, const struct entry *en, int fd)
{
	const void *data;
	la_int64_t offset;
	size_t n;
	int r;

	while ((r = archive_read_data_block(en->archive, &data, &n, &offset)) == ARCHIVE_OK) {
		const char *p = data;

		while (n) {
			ssize_t done = pwrite(fd, p, n, offset);

			if (done < 0 && errno == EINTR)
				continue;
			if (done < 0)
				return fail(t, en, "write");
			p += done;
			n -= (size_t)done;
			offset += done;
		}
	}
	if (r != ARCHIVE_EOF)
		return refuse(t, en, archive_error_string(en->archive) ?: "its data can't be read");
	return 0;
}

static int add_file(struct tree *t, struct entry *en)
{
	la_int64_t size = archive_entry_size(en->e);
	cleanup_close int fd = -1;

	TRY(clear_place(t, en, false));
	if (size < 0 || (uint64_t)size > t->max_bytes)
		return refuse(t, en, "it is larger than the limit");
	fd = fs_openat2(en->parent, en->base, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW, 0600,
			RESOLVE_BENEATH);
	if (fd < 0)
		return fail_errno(t, en, -fd, "make the file");
	TRY(write_data(t, en, fd));
	/* behind the last byte that was written there may be a hole */
	if (ftruncate(fd, size) < 0)
		return fail(t, en, "set its size");
	if (t->is_layer && meta_set(fd, en->e, t->err) < 0)
		return error_wrap(t->err, "entry %.200s", en->name);
	return 0;
}

static int add_symlink(struct tree *t, struct entry *en)
{
	const char *to = archive_entry_symlink(en->e);

	if (!to || !*to)
		return refuse(t, en, "a link to nothing");
	TRY(clear_place(t, en, false));
	if (symlinkat(to, en->parent, en->base) < 0)
		return fail(t, en, "make the link");
	if (t->is_layer && meta_set_at(en->parent, en->base, en->e, t->err) < 0)
		return error_wrap(t->err, "entry %.200s", en->name);
	return 0;
}

static int add_node(struct tree *t, struct entry *en)
{
	mode_t type = archive_entry_filetype(en->e);
	dev_t dev = type == S_IFIFO ? 0
				    : makedev((unsigned)archive_entry_rdevmajor(en->e),
					      (unsigned)archive_entry_rdevminor(en->e));

	if (!t->is_layer)
		return refuse(t, en, "neither file, directory nor link");
	TRY(clear_place(t, en, false));
	if (mknodat(en->parent, en->base, type | 0600, dev) < 0) {
		if (errno == EPERM)
			return error_set(
				t->err, ERR_DENIED,
				"entry %.200s: device nodes can't be made here: crispd needs "
				"CAP_MKNOD outside of user namespaces",
				en->name);
		return fail(t, en, "make the node");
	}
	if (meta_set_at(en->parent, en->base, en->e, t->err) < 0)
		return error_wrap(t->err, "entry %.200s", en->name);
	return 0;
}

static int add_hardlink(struct tree *t, struct entry *en)
{
	const char *path = t->link;
	const char *why = path_clean(archive_entry_hardlink(en->e), t->link);
	const char *base;
	cleanup_close int dir = -1;
	struct stat st;

	if (why)
		return error_set(t->err, ERR_INVALID, "entry %.200s: hard link to %.200s: %s",
				 en->name, archive_entry_hardlink(en->e), why);
	base = path_split(path, t->link_parent);
	dir = open_dir(t, t->link_parent);
	if (!*path || dir < 0 || fstatat(dir, base, &st, AT_SYMLINK_NOFOLLOW) < 0 ||
	    S_ISDIR(st.st_mode) || is_whiteout(&st))
		return error_set(
			t->err, ERR_INVALID,
			"entry %.200s: hard link to %.200s, which is no file that came before "
			"it in this layer",
			en->name, path);
	if (!strcmp(path, en->path))
		return refuse(t, en, "hard link to itself");
	TRY(clear_place(t, en, false));
	if (linkat(dir, base, en->parent, en->base, 0) < 0)
		return fail(t, en, "make the hard link");
	return 0;
}

static int add_whiteout(struct tree *t, struct entry *en)
{
	const char *name = en->base + strlen(WHITEOUT);
	struct stat st;

	if (!strcmp(en->base, OPAQUE)) {
		map_put(&t->opaque, t->parent, t);
		return 0;
	}
	if (!strncmp(en->base, AUFS, strlen(AUFS)))
		return 0;
	if (!*name || !strcmp(name, ".") || !strcmp(name, ".."))
		return refuse(t, en, "a whiteout of nothing");
	if (fstatat(en->parent, name, &st, AT_SYMLINK_NOFOLLOW) == 0) {
		memmove(en->base, name, strlen(name) + 1);
		if (S_ISDIR(st.st_mode))
			map_put(&t->opaque, en->path, t);
		return 0;
	}
	/* in the lowest layer there is nothing to hide, and overlayfs would show the node */
	if (t->lower_count && mknodat(en->parent, name, S_IFCHR, makedev(0, 0)) < 0)
		return fail(t, en, "make the whiteout");
	return 0;
}

static int add_by_type(struct tree *t, struct entry *en)
{
	if (archive_entry_hardlink(en->e))
		return add_hardlink(t, en);
	switch (archive_entry_filetype(en->e)) {
	case S_IFDIR:
		return add_dir(t, en);
	case S_IFREG:
		return add_file(t, en);
	case S_IFLNK:
		return add_symlink(t, en);
	case S_IFCHR:
	case S_IFBLK:
	case S_IFIFO:
		return add_node(t, en);
	default:
		return refuse(t, en, "its type is unknown");
	}
}

/* A whiteout can't hold anything, and a name within one would never be seen. */
static bool is_in_whiteout(const char *parent)
{
	return !strncmp(parent, WHITEOUT, strlen(WHITEOUT)) || strstr(parent, "/" WHITEOUT);
}

int tree_add(struct tree *t, struct archive *a, struct archive_entry *e)
{
	struct entry en = {
		.archive = a, .e = e, .name = archive_entry_pathname(e), .path = t->path};
	const char *why;

	if (!en.name)
		return error_set(t->err, ERR_INVALID, "an entry has no name");
	why = path_clean(en.name, en.path);
	if (why)
		return refuse(t, &en, why);
	TRY(count_inode(t, &en));
	if (!*en.path)
		return archive_entry_filetype(e) == S_IFDIR && !archive_entry_hardlink(e)
			       ? add_dir(t, &en)
			       : refuse(t, &en, "the root must be a directory");
	en.base = en.path + (path_split(en.path, t->parent) - en.path);
	if (t->is_layer && is_in_whiteout(t->parent))
		return refuse(t, &en, "it lies within a whiteout");
	TRY(open_parent(t, &en, t->parent, &en.parent));
	if (t->is_layer && !strncmp(en.base, WHITEOUT, strlen(WHITEOUT)))
		return add_whiteout(t, &en);
	return add_by_type(t, &en);
}

void tree_init(struct tree *t, int root, struct error *err)
{
	*t = (struct tree){.root = root, .cached_fd = -1, .err = err};
	list_init(&t->times);
}

/* NULL-safe open of a directory that may have been replaced since: −errno then. */
static int open_again(struct tree *t, const char *path)
{
	return fs_openat2(t->root, *path ? path : ".", O_RDONLY | O_DIRECTORY | O_NOFOLLOW, 0,
			  RESOLVE_IN_ROOT | RESOLVE_NO_SYMLINKS);
}

int tree_end(struct tree *t, struct buf *ret_opaque)
{
	forget_cached(t);
	list_for_each_safe(d, &t->times, struct dir_times, node) {
		struct timespec times[2] = {d->mtime, d->mtime};
		cleanup_close int fd = open_again(t, d->path);

		if (fd >= 0 && futimens(fd, times) < 0)
			return error_errno(t->err, errno, "set the times of %s", d->path);
		free(d);
	}
	list_init(&t->times);
	map_for_each(slot, &t->opaque) {
		cleanup_close int fd = open_again(t, slot->key);

		if (fd >= 0)
			buf_append(ret_opaque, slot->key, strlen(slot->key) + 1);
	}
	map_done(&t->opaque);
	return 0;
}
