/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Detached mounts. Peculiar: a source is opened once, with its links followed, and all else goes by
 * that descriptor; attributes are set while nobody can see the mount yet.
 */
#include "sandbox/linux/mounts.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/openat2.h>
#include <pthread.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <unistd.h>

#include "io/base/alloc.h"
#include "io/base/cleanup.h"
#include "io/fs.h"
#include "sandbox/linux/devices.h"
#include "sandbox/linux/overlay.h"
#include "sandbox/linux/relabel.h"

/* A node may have 100,000 mounts (fs.mount-max), of some 200 bytes each. */
#define MOUNTINFO_MAX (64u << 20)

static int make_directories(const char *path, struct error *err)
{
	cleanup_free char *copy = xstrdup(path);

	for (char *slash = strchr(copy + 1, '/');; slash = strchr(slash + 1, '/')) {
		if (slash)
			*slash = 0;
		if (mkdir(copy, 0755) < 0 && errno != EEXIST)
			return error_errno(err, errno, "make the missing mount source %s", path);
		if (!slash)
			return 0;
		*slash = '/';
	}
}

static int open_source(const char *path, int *ret_fd, struct error *err)
{
	int fd;

	if (!path || path[0] != '/')
		return error_set(err, ERR_INVALID, "mount source %s: it must be an absolute path",
				 path ?: "(none)");
	fd = open(path, O_PATH | O_CLOEXEC);
	if (fd < 0 && errno == ENOENT) {
		TRY(make_directories(path, err));
		fd = open(path, O_PATH | O_CLOEXEC);
	}
	if (fd < 0 && (errno == ENOENT || errno == ENOTDIR || errno == ELOOP))
		return error_set(
			err, ERR_INVALID,
			"mounts.host_path %.400s: %s; a link in it leads nowhere, or a file "
			"is in the place of a directory",
			path, strerrordesc_np(errno));
	if (fd < 0)
		return error_errno(err, errno, "open the mount source %s", path);
	*ret_fd = fd;
	return 0;
}

static uint64_t propagation_flag(enum mount_propagation p)
{
	switch (p) {
	case PROPAGATION_PRIVATE:
		return MS_PRIVATE;
	case PROPAGATION_SLAVE:
		return MS_SLAVE;
	case PROPAGATION_SHARED:
		return MS_SHARED;
	}
	return MS_PRIVATE;
}

static int set_attributes(int mount, const struct mount_spec *m, int user_fd, struct error *err)
{
	struct mount_attr all = {.propagation = propagation_flag(m->propagation)};
	struct mount_attr top = {.attr_set = MOUNT_ATTR_RDONLY};
	unsigned recursive = AT_EMPTY_PATH | AT_RECURSIVE;

	if (m->is_recursive_readonly)
		all.attr_set |= MOUNT_ATTR_RDONLY;
	if (m->kind == MOUNT_IMAGE || m->is_nodev)
		all.attr_set |= MOUNT_ATTR_NODEV;
	if (m->is_noexec)
		all.attr_set |= MOUNT_ATTR_NOEXEC;
	if (m->is_nosuid)
		all.attr_set |= MOUNT_ATTR_NOSUID;
	if (user_fd >= 0) {
		all.attr_set |= MOUNT_ATTR_IDMAP;
		all.userns_fd = (uint64_t)user_fd;
	}
	if (mount_setattr(mount, "", recursive, &all, sizeof(all)) < 0)
		return error_errno(err, errno, "set propagation%s of the mount of %s",
				   user_fd >= 0 ? " and id mapping" : "", m->source ?: m->target);
	if (m->is_readonly && mount_setattr(mount, "", AT_EMPTY_PATH, &top, sizeof(top)) < 0)
		return error_errno(err, errno, "make the mount of %s read-only",
				   m->source ?: m->target);
	return 0;
}

static const char *find_mount(const char *mountinfo, uint64_t id)
{
	for (const char *line = mountinfo; line; line = strchr(line, '\n')) {
		line += *line == '\n';
		if (strtoull(line, NULL, 10) == id)
			return line;
	}
	return NULL;
}

/* Whether the line of proc_pid_mountinfo(5) has such an optional field; blanks in paths are
 * escaped. */
static bool has_peers(const char *line, const char *field)
{
	const char *end = strstr(line, " - "), *found = strstr(line, field);

	return found && end && found < end;
}

/* Without peers of the source propagation would be without effect, and nobody would know. */
static int check_propagation(int source, const struct mount_spec *m, struct error *err)
{
	struct buf text CLEANUP(buf_done) = {0};
	struct statx st;
	const char *line;

	if (m->propagation == PROPAGATION_PRIVATE)
		return 0;
	if (statx(source, "", AT_EMPTY_PATH, STATX_MNT_ID, &st) < 0)
		return error_errno(err, errno, "find the mount of %s", m->source);
	TRY(fs_read_file("/proc/self/mountinfo", MOUNTINFO_MAX, &text, err));
	line = find_mount(text.data, st.stx_mnt_id);
	if (line && (has_peers(line, " shared:") ||
		     (m->propagation == PROPAGATION_SLAVE && has_peers(line, " master:"))))
		return 0;
	return error_set(
		err, ERR_PRECONDITION,
		"mount %s on %s with propagation %s: the mount that it lies on is private; "
		"make that shared (mount --make-shared)",
		m->source, m->target,
		m->propagation == PROPAGATION_SHARED ? "both ways" : "from the host");
}

static int clone_source(int source, const char *name, bool is_recursive, int *ret_fd,
			struct error *err)
{
	int fd = open_tree(source, "",
			   AT_EMPTY_PATH | OPEN_TREE_CLONE | OPEN_TREE_CLOEXEC |
				   (unsigned)(is_recursive ? AT_RECURSIVE : 0));

	if (fd < 0)
		return error_errno(err, errno, "clone the mount of %s", name);
	*ret_fd = fd;
	return 0;
}

int mount_clone(const char *path, bool is_recursive, bool is_readonly, int *ret_fd,
		struct error *err)
{
	struct mount_spec m = {.source = path,
			       .propagation = PROPAGATION_PRIVATE,
			       .is_recursive_readonly = is_readonly};
	cleanup_close int source = open(path, O_PATH | O_CLOEXEC);
	cleanup_close int mount = -1;

	if (source < 0)
		return error_errno(err, errno, "open %s", path);
	TRY(clone_source(source, path, is_recursive, &mount, err));
	TRY(set_attributes(mount, &m, -1, err));
	*ret_fd = take_fd(&mount);
	return 0;
}

struct pruned_clone {
	int source;
	const char *path;
	int fd;
	struct error err;
};

/* The copy of a mount namespace lacks those that are mounted in it, and shares the peers. */
static void *clone_in_copy(void *arg)
{
	struct pruned_clone *c = arg;
	cleanup_close int again = -1;
	struct stat st, then;

	if (unshare(CLONE_NEWNS) < 0) {
		error_errno(&c->err, errno, "copy the node's mounts for %s", c->path);
		return NULL;
	}
	again = open(c->path, O_PATH | O_CLOEXEC);
	if (again < 0 || fstat(again, &st) < 0 || fstat(c->source, &then) < 0)
		error_errno(&c->err, errno, "open the mount source %s again", c->path);
	else if (st.st_dev != then.st_dev || st.st_ino != then.st_ino)
		error_set(&c->err, ERR_UNAVAILABLE,
			  "mount source %s: another file is there now; try again", c->path);
	else
		clone_source(again, c->path, true, &c->fd, &c->err);
	return NULL;
}

/* By a thread of its own, since none comes back from there. */
static int clone_pruned(int source, const char *path, int *ret_fd, struct error *err)
{
	struct pruned_clone c = {.source = source, .path = path, .fd = -1};
	pthread_t thread;
	int r = pthread_create(&thread, NULL, clone_in_copy, &c);

	if (r != 0)
		return error_errno(err, r, "start a thread to copy the node's mounts");
	pthread_join(thread, NULL);
	if (c.fd < 0)
		return error_copy(err, &c.err);
	*ret_fd = c.fd;
	return 0;
}

static bool has_sub_path(const struct mount_spec *m)
{
	return m->sub_path && *m->sub_path;
}

/* What of the image beneath root is wanted. */
static int look_at_part(int root, const struct mount_spec *m, struct stat *ret, struct error *err)
{
	int r = fs_openat2(root, m->sub_path, O_PATH, 0, RESOLVE_IN_ROOT | RESOLVE_NO_MAGICLINKS);
	cleanup_close int part = r;

	if (r < 0)
		return error_set(err, ERR_INVALID,
				 "mount %s of an image on %s: %s; name a path that the image has",
				 m->sub_path, m->target, strerrordesc_np(-r));
	if (fstat(part, ret) < 0)
		return error_errno(err, errno, "look at %s of an image", m->sub_path);
	return 0;
}

int mount_image_check(const struct mount_spec *m, struct error *err)
{
	cleanup_close int root = -1;
	struct stat st;

	if (!m->layers.count)
		return error_set(err, ERR_INVALID, "mount an image on %s: it has no layers",
				 m->target);
	if (!has_sub_path(m))
		return 0;
	TRY(overlay_open_layers(&m->layers, &root, err));
	return look_at_part(root, m, &st, err);
}

/* The layers as one read-only mount; the part that is wanted can only be cut out once it is
 * attached. An overlay can't be id-mapped, its layers can. */
static int open_image(const struct mount_spec *m, int user_fd, const char *label,
		      struct mount_source *ret, struct error *err)
{
	struct overlay_spec overlay = {.layers = m->layers, .user_fd = user_fd, .label = label};
	bool is_overlay = m->layers.count > 1;
	cleanup_close int mount = -1;
	struct stat st = {.st_mode = S_IFDIR};

	TRY(mount_image_check(m, err));
	if (is_overlay)
		TRY(overlay_mount(&overlay, &mount, err));
	else
		TRY(mount_clone(m->layers.items[0], false, true, &mount, err));
	if (has_sub_path(m))
		TRY(look_at_part(mount, m, &st, err));
	TRY(set_attributes(mount, m, is_overlay ? -1 : user_fd, err));
	*ret = (struct mount_source){.fd = take_fd(&mount),
				     .is_directory = S_ISDIR(st.st_mode),
				     .sub_path = has_sub_path(m) ? m->sub_path : NULL};
	return 0;
}

static int relabel_source(int source, const char *path, const char *label, struct error *err)
{
	cleanup_close int root = open("/", O_PATH | O_DIRECTORY | O_CLOEXEC);

	if (root < 0)
		return error_errno(err, errno, "open /");
	return relabel(root, source, path, label, err);
}

int mount_source_open(const struct mount_spec *m, int user_fd, const char *label, bool is_pruned,
		      struct mount_source *ret, struct error *err)
{
	cleanup_close int source = -1;
	cleanup_close int mount = -1;
	struct stat st;

	if (m->kind == MOUNT_TMPFS) {
		*ret = (struct mount_source){.fd = -1, .is_directory = true};
		return 0;
	}
	if (m->kind == MOUNT_IMAGE)
		return open_image(m, user_fd, label, ret, err);
	TRY(open_source(m->source, &source, err));
	if (fstat(source, &st) < 0)
		return error_errno(err, errno, "look at the mount source %s", m->source);
	if (m->is_relabelled && label)
		TRY(relabel_source(source, m->source, label, err));
	TRY(check_propagation(source, m, err));
	if (is_pruned)
		TRY(clone_pruned(source, m->source, &mount, err));
	else
		TRY(clone_source(source, m->source, true, &mount, err));
	TRY(set_attributes(mount, m, user_fd, err));
	*ret = (struct mount_source){.fd = take_fd(&mount), .is_directory = S_ISDIR(st.st_mode)};
	return 0;
}
