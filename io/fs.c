/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Files by descriptor. Peculiar: trees are removed by moving every directory that is not empty up
 * into the tree's top under a number, then emptying that; so two descriptors do for any depth, and
 * ".." is never walked.
 */
#include "io/fs.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/openat2.h>
#include <stdio.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "io/base/alloc.h"
#include "io/base/cleanup.h"
#include "io/base/fault.h"
#include "io/base/map.h"
#include "io/offload.h"

/* A node may have 100,000 mounts (fs.mount-max), of some 200 bytes each. */
#define MOUNTINFO_MAX (64u << 20)

int fs_openat2(int dir, const char *path, int flags, mode_t mode, uint64_t resolve)
{
	struct open_how how = {
		.flags = (uint64_t)(flags | O_CLOEXEC), .mode = mode, .resolve = resolve};
	long fd;

	/* EAGAIN: a rename raced with "..", which only we can cause */
	do {
		fd = syscall(SYS_openat2, dir, path, &how, sizeof(how));
	} while (fd < 0 && (errno == EINTR || errno == EAGAIN));
	return fd < 0 ? -errno : (int)fd;
}

static int open_resolved(int dir, const char *path, int flags, mode_t mode, uint64_t resolve,
			 int *ret_fd, struct error *err)
{
	int fd = fs_openat2(dir, path, flags, mode, resolve);

	if (fd < 0)
		return error_errno(err, -fd, "open %s", path);
	*ret_fd = fd;
	return 0;
}

int fs_open_beneath(int dir, const char *path, int flags, mode_t mode, int *ret_fd,
		    struct error *err)
{
	return open_resolved(dir, path, flags, mode, RESOLVE_BENEATH | RESOLVE_NO_MAGICLINKS,
			     ret_fd, err);
}

int fs_open_in_root(int dir, const char *path, int flags, mode_t mode, int *ret_fd,
		    struct error *err)
{
	return open_resolved(dir, path, flags, mode, RESOLVE_IN_ROOT | RESOLVE_NO_MAGICLINKS,
			     ret_fd, err);
}

/* Appends what is left of the regular file. */
static int read_whole(int fd, const char *name, size_t max, struct buf *ret, struct error *err)
{
	size_t got = 0;
	struct stat st;

	if (fstat(fd, &st) < 0)
		return error_errno(err, errno, "stat %s", name);
	if (!S_ISREG(st.st_mode))
		return error_set(err, ERR_INVALID, "%s is no regular file", name);
	for (;;) {
		size_t room = max - got < 65536 ? max - got + 1 : 65536;
		ssize_t n = read(fd, buf_reserve(ret, room), room);

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return error_errno(err, errno, "read %s", name);
		if (n == 0)
			return 0;
		got += (size_t)n;
		if (got > max)
			return error_set(err, ERR_INVALID, "%s is larger than %zu bytes", name,
					 max);
		ret->length += (size_t)n;
		ret->data[ret->length] = 0;
	}
}

int fs_read_at(int dir, const char *name, size_t max, struct buf *ret, struct error *err)
{
	int r = fs_openat2(dir, name, O_RDONLY | O_NONBLOCK | O_NOCTTY, 0,
			   RESOLVE_BENEATH | RESOLVE_NO_MAGICLINKS);
	cleanup_close int fd = r;

	if (r == -ENOENT)
		return error_set(err, ERR_NOT_FOUND, "%s is not there", name);
	if (r < 0)
		return error_errno(err, -r, "open %s", name);
	return read_whole(fd, name, max, ret, err);
}

static int read_path(const char *path, int flags, size_t max, struct buf *ret, struct error *err)
{
	/* a FIFO would block */
	cleanup_close int fd = open(path, O_RDONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC | flags);

	if (fd < 0)
		return error_errno(err, errno, "open %s", path);
	return read_whole(fd, path, max, ret, err);
}

int fs_read_file(const char *path, size_t max, struct buf *ret, struct error *err)
{
	return read_path(path, 0, max, ret, err);
}

int fs_read_no_link(const char *path, size_t max, struct buf *ret, struct error *err)
{
	return read_path(path, O_NOFOLLOW, max, ret, err);
}

int fs_write_at(int dir, const char *name, const struct buf *content, mode_t mode,
		struct error *err)
{
	int r = fs_openat2(dir, name, O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW, mode,
			   RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS);
	cleanup_close int fd = r;

	if (r < 0)
		return error_errno(err, -r, "create %s", name);
	for (size_t done = 0; done < content->length;) {
		ssize_t n = write(fd, content->data + done, content->length - done);

		if (n < 0 && errno != EINTR)
			return error_errno(err, errno, "write %s", name);
		done += n > 0 ? (size_t)n : 0;
	}
	return 0;
}

int fs_make_dirs(const char *path, mode_t mode, struct error *err)
{
	char *copy cleanup_free = xstrdup(path);

	for (char *p = copy + 1;; p++) {
		char at = *p;

		if (at && at != '/')
			continue;
		*p = 0;
		if (mkdir(copy, at ? 0755 : mode) < 0 && errno != EEXIST)
			return error_errno(err, errno, "make directory %s", copy);
		if (!at)
			return 0;
		*p = at;
	}
}

void fs_random_name(char name[FS_RANDOM_NAME])
{
	unsigned char bytes[16];

	if (getrandom(bytes, sizeof(bytes), 0) != sizeof(bytes))
		abort();
	for (int i = 0; i < 16; i++)
		sprintf(name + 2 * i, "%02x", bytes[i]);
}

static bool is_dot(const char *name)
{
	return !strcmp(name, ".") || !strcmp(name, "..");
}

/* A directory stream of its own, so that the caller's descriptor keeps its offset. */
static DIR *open_stream(int dir)
{
	int fd = openat(dir, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	DIR *stream;

	if (fd < 0)
		return NULL;
	stream = fdopendir(fd);
	if (!stream)
		close_fd(fd);
	return stream;
}

struct remover {
	int top;
	unsigned number; /* of the next directory that is moved up */
	struct error *err;
};

/* Moves cur/name up to the top under a name that nobody has. */
static int move_up(struct remover *rm, int cur, const char *name)
{
	char number[32];

	for (;;) {
		snprintf(number, sizeof(number), "%u", rm->number++);
		if (renameat2(cur, name, rm->top, number, RENAME_NOREPLACE) == 0)
			return 0;
		if (errno != EEXIST)
			return error_errno(rm->err, errno, "move %s up to remove it", name);
	}
}

/* 0 gone, 1 a directory that is not empty, negative an error. */
static int remove_entry(struct remover *rm, int dir, const char *name)
{
	if (unlinkat(dir, name, 0) == 0 || errno == ENOENT)
		return 0;
	if (errno != EISDIR)
		return error_errno(rm->err, errno, "remove %s", name);
	if (unlinkat(dir, name, AT_REMOVEDIR) == 0 || errno == ENOENT)
		return 0;
	if (errno == ENOTEMPTY || errno == EEXIST)
		return 1;
	return error_errno(rm->err, errno, "remove %s", name);
}

/* Empties one directory beneath the top, moving its own directories up. */
static int empty_child(struct remover *rm, const char *name)
{
	int r = fs_openat2(rm->top, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW, 0,
			   RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS | RESOLVE_NO_XDEV);
	cleanup_close int child = r;
	cleanup_closedir DIR *stream = NULL;
	struct dirent *e;

	if (r < 0)
		return error_errno(rm->err, -r, "open %s to remove it", name);
	stream = open_stream(child);
	if (!stream)
		return error_errno(rm->err, errno, "read %s to remove it", name);
	while ((e = readdir(stream))) {
		if (is_dot(e->d_name))
			continue;
		r = remove_entry(rm, child, e->d_name);
		if (r == 1)
			r = move_up(rm, child, e->d_name);
		if (r < 0)
			return r;
	}
	return 0;
}

/* Goes over the top once; what was moved up meanwhile may or may not be seen. *ret_left counts what
 * was there. */
static int empty_top(struct remover *rm, size_t *ret_left)
{
	cleanup_closedir DIR *stream = open_stream(rm->top);
	struct dirent *e;
	size_t left = 0;
	int r;

	if (!stream)
		return error_errno(rm->err, errno, "read a directory to remove it");
	while ((e = readdir(stream))) {
		if (is_dot(e->d_name))
			continue;
		left++;
		r = remove_entry(rm, rm->top, e->d_name);
		if (r == 1)
			r = empty_child(rm, e->d_name);
		if (r < 0)
			return r;
	}
	*ret_left = left;
	return 0;
}

int fs_remove_tree_blocking(int dir, const char *name, struct error *err)
{
	struct remover rm = {.top = -1, .err = err};
	cleanup_close int top = -1;
	size_t left = 0;
	int r = remove_entry(&rm, dir, name);

	if (r <= 0)
		return r;
	r = fs_openat2(dir, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW, 0,
		       RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS | RESOLVE_NO_XDEV);
	if (r < 0)
		return error_errno(err, -r, "open %s to remove it", name);
	rm.top = top = r;
	do {
		TRY(empty_top(&rm, &left));
	} while (left);
	r = remove_entry(&rm, dir, name);
	if (r == 1)
		return error_set(err, ERR_INTERNAL, "remove %s: somebody fills it meanwhile", name);
	return r;
}

void fs_unescape_mount(char *s)
{
	char *to = s;

	while (*s) {
		if (s[0] == '\\' && s[1] && s[2] && s[3]) {
			*to++ = (char)((s[1] - '0') * 64 + (s[2] - '0') * 8 + (s[3] - '0'));
			s += 4;
		} else {
			*to++ = *s++;
		}
	}
	*to = '\0';
}

/* One line: id parent dev root mount-point … */
static int unmount_line(char *line, const char *dir, struct error *err)
{
	char *at = line, *rest = NULL;
	size_t n = strlen(dir);

	for (int i = 0; i < 5; i++)
		if (!(at = strtok_r(i ? NULL : line, " ", &rest)))
			return 0;
	fs_unescape_mount(at);
	if (strncmp(at, dir, n) || (at[n] && at[n] != '/'))
		return 0;
	if (umount2(at, MNT_DETACH | UMOUNT_NOFOLLOW) < 0 && errno != EINVAL)
		return error_errno(err, errno, "unmount %s", at);
	return 0;
}

int fs_unmount_below(const char *dir, struct error *err)
{
	struct buf text CLEANUP(buf_done) = {0};
	char *end;

	TRY(fs_read_file("/proc/self/mountinfo", MOUNTINFO_MAX, &text, err));
	/* the later lines are the inner ones */
	while ((end = memrchr(text.data, '\n', text.length))) {
		text.length = (size_t)(end - text.data);
		TRY(unmount_line(end + 1, dir, err));
		*end = 0;
	}
	return unmount_line(text.data, dir, err);
}

struct remove_job {
	struct job job;
	int dir;
	char *name;
};

static int remove_run(struct job *job, struct error *err)
{
	struct remove_job *j = container_of(job, struct remove_job, job);

	TRY(fs_remove_tree_blocking(j->dir, j->name, err));
	FAULT(tree_removed);
	return 0;
}

static void remove_free(struct job *job)
{
	struct remove_job *j = container_of(job, struct remove_job, job);

	close_fd(j->dir);
	free(j->name);
	free(j);
}

int fs_remove_tree(struct task *t, int dir, const char *name)
{
	int own = fcntl(dir, F_DUPFD_CLOEXEC, 3);
	struct remove_job *j;
	int r;

	if (own < 0)
		return error_errno(&t->err, errno, "descriptor to remove %s", name);
	j = xnew(struct remove_job);
	job_init(&j->job, remove_run, remove_free);
	j->dir = own;
	j->name = xstrdup(name);
	r = offload(t, NULL, &j->job);
	job_unref(&j->job);
	return r;
}

/* Directories that are still to be read, by path from the top: a path over PATH_MAX can't be
 * measured (nor be used by a container). */
struct usage {
	int top;
	dev_t dev;
	uint64_t bytes, inodes;
	struct map links; /* "inode" of hard-linked files that were counted */
	struct list pending;
	struct error *err;
};

struct pending_dir {
	struct list node;
	char path[];
};

static void push_dir(struct usage *u, const char *parent, const char *name)
{
	size_t n = strlen(parent) + strlen(name) + 2;
	struct pending_dir *d = xmalloc(sizeof(*d) + n);

	snprintf(d->path, n, "%s%s%s", parent, *parent ? "/" : "", name);
	list_prepend(&u->pending, &d->node);
}

static void count_entry(struct usage *u, const struct stat *st)
{
	char key[32];

	if (!S_ISDIR(st->st_mode) && st->st_nlink > 1) {
		snprintf(key, sizeof(key), "%llu", (unsigned long long)st->st_ino);
		if (map_put(&u->links, key, u))
			return;
	}
	u->bytes += (uint64_t)st->st_blocks * 512;
	u->inodes++;
}

/* Somebody may be at work there: what went, or became something else, is not there. */
static bool is_gone(int sys)
{
	return sys == ENOENT || sys == ENOTDIR || sys == ELOOP || sys == EXDEV;
}

static int read_usage(struct usage *u, const char *path)
{
	int r = fs_openat2(u->top, *path ? path : ".", O_RDONLY | O_DIRECTORY | O_NOFOLLOW, 0,
			   RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS | RESOLVE_NO_XDEV);
	cleanup_closedir DIR *stream = r < 0 ? NULL : fdopendir(r);
	struct dirent *e;
	struct stat st;

	if (r < 0)
		return is_gone(-r) ? 0 : error_errno(u->err, -r, "measure %s", path);
	if (!stream)
		return error_errno(u->err, errno, "measure %s", path);
	while ((e = readdir(stream))) {
		if (is_dot(e->d_name))
			continue;
		if (fstatat(dirfd(stream), e->d_name, &st, AT_SYMLINK_NOFOLLOW) < 0) {
			if (is_gone(errno))
				continue;
			return error_errno(u->err, errno, "measure %s/%s", path, e->d_name);
		}
		if (st.st_dev != u->dev)
			continue;
		count_entry(u, &st);
		if (S_ISDIR(st.st_mode))
			push_dir(u, path, e->d_name);
	}
	return 0;
}

int fs_usage(int dir, uint64_t *ret_bytes, uint64_t *ret_inodes, struct error *err)
{
	struct usage u = {.top = dir, .err = err};
	struct stat st;
	int r = 0;

	if (fstat(dir, &st) < 0)
		return error_errno(err, errno, "measure a directory");
	u.dev = st.st_dev;
	list_init(&u.pending);
	count_entry(&u, &st);
	push_dir(&u, "", "");
	while (!list_is_empty(&u.pending)) {
		struct pending_dir *d = list_first(&u.pending, struct pending_dir, node);

		list_remove(&d->node);
		if (r == 0)
			r = read_usage(&u, d->path);
		free(d);
	}
	map_done(&u.links);
	if (r < 0)
		return r;
	*ret_bytes = u.bytes;
	*ret_inodes = u.inodes;
	return 0;
}
