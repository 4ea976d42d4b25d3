/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Labels. Peculiar: an entry is reached by its directory's descriptor and its name, so one that is
 * exchanged meanwhile leads nowhere else; directories are opened from the top each, so depth costs
 * no descriptors.
 */
#include "sandbox/linux/relabel.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/openat2.h>
#include <linux/xattr.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/xattr.h>
#include <unistd.h>

#include "io/base/alloc.h"
#include "io/base/cleanup.h"
#include "io/base/list.h"
#include "io/fs.h"

/* With its NUL. */
#define LABEL_SIZE 256

/* Where another label would keep the host's own programs out, and not only for a while. */
static const char *const hosts_own[] = {
	".",	      "bin",	 "boot",      "dev",   "etc",	  "etc/passwd", "etc/pki",
	"etc/shadow", "home",	 "lib",	      "lib64", "media",	  "opt",	"proc",
	"root",	      "run",	 "sbin",      "srv",   "sys",	  "tmp",	"usr",
	"usr/bin",    "usr/lib", "usr/lib64", "var",   "var/lib", "var/log",
};

struct labelled_dir {
	struct list node;
	char path[]; /* beneath the source; "" for itself */
};

struct walk {
	int top;
	const char *source, *label;
	struct list dirs; /* struct labelled_dir, still to be entered */
	struct error *err;
};

static int failed(const struct walk *w, const char *dir, const char *name)
{
	return error_errno(w->err, errno, "relabel the mount source %s: %s%s%s", w->source, dir,
			   *dir ? "/" : "", name);
}

/* By any name: a link, a bind mount, "/../etc". */
static int check_source(int root, int source, const char *path, struct error *err)
{
	struct stat st, own;

	if (fstat(source, &st) < 0)
		return error_errno(err, errno, "look at the mount source %s", path);
	for (size_t i = 0; i < sizeof(hosts_own) / sizeof(hosts_own[0]); i++)
		if (fstatat(root, hosts_own[i], &own, 0) == 0 && own.st_dev == st.st_dev &&
		    own.st_ino == st.st_ino)
			return error_set(err, ERR_INVALID,
					 "mounts.selinux_relabel of %.300s: the host itself lives "
					 "by /%s and its label; mount something beneath it",
					 path, i ? hosts_own[i] : "");
	return 0;
}

/* A label as it was read, n bytes or an error. */
static bool is_label(char now[LABEL_SIZE], ssize_t n, const char *label)
{
	if (n < 0)
		return false;
	now[n] = 0;
	return strcmp(now, label) == 0;
}

/* One that went meanwhile needs none. */
static int label_entry(const struct walk *w, int fd, const char *dir, const char *name)
{
	cleanup_free char *path = xasprintf("/proc/self/fd/%d/%s", fd, name);
	char now[LABEL_SIZE];

	if (is_label(now, lgetxattr(path, XATTR_NAME_SELINUX, now, sizeof(now) - 1), w->label) ||
	    lsetxattr(path, XATTR_NAME_SELINUX, w->label, strlen(w->label) + 1, 0) == 0 ||
	    errno == ENOENT || errno == EOPNOTSUPP)
		return 0;
	return failed(w, dir, name);
}

/* The link of procfs leads to the source, and no further. */
static int label_source(const struct walk *w)
{
	char path[32], now[LABEL_SIZE];

	snprintf(path, sizeof(path), "/proc/self/fd/%d", w->top);
	if (is_label(now, getxattr(path, XATTR_NAME_SELINUX, now, sizeof(now) - 1), w->label) ||
	    setxattr(path, XATTR_NAME_SELINUX, w->label, strlen(w->label) + 1, 0) == 0 ||
	    errno == EOPNOTSUPP)
		return 0;
	return failed(w, "", ".");
}

static void push_dir(struct walk *w, const char *dir, const char *name)
{
	size_t size = strlen(dir) + strlen(name) + 2;
	struct labelled_dir *d = xmalloc(sizeof(*d) + size);

	snprintf(d->path, size, "%s%s%s", dir, *dir ? "/" : "", name);
	list_append(&w->dirs, &d->node);
}

/* What is mounted on it is another file system, though it may be the same one. */
static int visit(struct walk *w, int fd, const char *dir, const char *name)
{
	struct statx st;

	if (statx(fd, name, AT_SYMLINK_NOFOLLOW, STATX_TYPE, &st) < 0)
		return errno == ENOENT ? 0 : failed(w, dir, name);
	if (st.stx_attributes & STATX_ATTR_MOUNT_ROOT)
		return 0;
	if (S_ISDIR(st.stx_mode))
		push_dir(w, dir, name);
	return label_entry(w, fd, dir, name);
}

static int enter(struct walk *w, const char *dir)
{
	int fd = fs_openat2(w->top, *dir ? dir : ".", O_RDONLY | O_DIRECTORY | O_NOFOLLOW, 0,
			    RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS | RESOLVE_NO_XDEV);
	cleanup_closedir DIR *stream = NULL;
	struct dirent *d;

	/* gone or exchanged meanwhile */
	if (fd == -ENOENT || fd == -ENOTDIR || fd == -ELOOP || fd == -EXDEV)
		return 0;
	errno = -fd;
	if (fd < 0)
		return failed(w, dir, "");
	stream = fdopendir(fd);
	if (!stream) {
		close_fd(fd);
		return failed(w, dir, "");
	}
	for (errno = 0; (d = readdir(stream)); errno = 0) {
		if (strcmp(d->d_name, ".") != 0 && strcmp(d->d_name, "..") != 0)
			TRY(visit(w, fd, dir, d->d_name));
	}
	return errno ? failed(w, dir, "") : 0;
}

static int label_tree(struct walk *w)
{
	int r = 0;

	list_init(&w->dirs);
	push_dir(w, "", "");
	while (!list_is_empty(&w->dirs)) {
		struct labelled_dir *d = container_of(w->dirs.next, struct labelled_dir, node);

		if (r == 0)
			r = enter(w, d->path);
		list_remove(&d->node);
		free(d);
	}
	return r;
}

int relabel(int root, int source, const char *path, const char *label, struct error *err)
{
	struct walk w = {.top = source, .source = path, .label = label, .err = err};
	struct stat st;

	TRY(check_source(root, source, path, err));
	if (fstat(source, &st) < 0)
		return error_errno(err, errno, "look at the mount source %s", path);
	if (S_ISDIR(st.st_mode))
		TRY(label_tree(&w));
	return label_source(&w);
}
