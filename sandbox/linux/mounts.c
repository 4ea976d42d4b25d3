/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Detached mounts. Peculiar: a source is opened once, with its links followed, and all else goes by
 * that descriptor; attributes are set while nobody can see the mount yet.
 */
#include "sandbox/linux/mounts.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/openat2.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include "io/base/alloc.h"
#include "io/base/cleanup.h"
#include "io/fs.h"
#include "sandbox/linux/overlay.h"

#define DEVICES_MAX 4096
#define DEVICE_DEPTH_MAX 8

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
	if (fd < 0)
		return error_errno(err, errno, "open the mount source %s", path);
	*ret_fd = fd;
	return 0;
}

static bool is_node(const struct stat *st)
{
	return S_ISCHR(st->st_mode) || S_ISBLK(st->st_mode);
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

static int set_attributes(int mount, const struct mount_spec *m, int user_fd, bool has_devices,
			  struct error *err)
{
	struct mount_attr all = {.propagation = propagation_flag(m->propagation)};
	struct mount_attr top = {.attr_set = MOUNT_ATTR_RDONLY};
	unsigned recursive = AT_EMPTY_PATH | AT_RECURSIVE;

	if (m->is_recursive_readonly)
		all.attr_set |= MOUNT_ATTR_RDONLY;
	if (!has_devices)
		all.attr_set |= MOUNT_ATTR_NODEV;
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
	TRY(set_attributes(mount, &m, -1, true, err));
	*ret_fd = take_fd(&mount);
	return 0;
}

/* The layers as one read-only mount; the part that is wanted can only be cut out once it is
 * attached.
 */
static int open_image(const struct mount_spec *m, struct mount_source *ret, struct error *err)
{
	struct overlay_spec overlay = {.layers = m->layers, .user_fd = -1};
	cleanup_close int mount = -1;
	cleanup_close int part = -1;
	struct stat st;

	if (!m->layers.count)
		return error_set(err, ERR_INVALID, "mount an image on %s: it has no layers",
				 m->target);
	if (m->layers.count == 1)
		TRY(mount_clone(m->layers.items[0], false, true, &mount, err));
	else
		TRY(overlay_mount(&overlay, &mount, err));
	*ret = (struct mount_source){.fd = -1, .is_directory = true};
	if (m->sub_path && *m->sub_path) {
		part = fs_openat2(mount, m->sub_path, O_PATH, 0,
				  RESOLVE_IN_ROOT | RESOLVE_NO_MAGICLINKS);
		if (part < 0 || fstat(part, &st) < 0)
			return error_set(err, ERR_INVALID, "mount an image on %s: it has no %s",
					 m->target, m->sub_path);
		ret->is_directory = S_ISDIR(st.st_mode);
		ret->sub_path = m->sub_path;
	}
	ret->fd = take_fd(&mount);
	return 0;
}

int mount_source_open(const struct mount_spec *m, int user_fd, bool has_devices,
		      struct mount_source *ret, struct error *err)
{
	cleanup_close int source = -1;
	cleanup_close int mount = -1;
	struct mount_source image;
	struct stat st;

	if (m->kind == MOUNT_TMPFS) {
		*ret = (struct mount_source){.fd = -1, .is_directory = true};
		return 0;
	}
	if (m->kind == MOUNT_IMAGE) {
		TRY(open_image(m, &image, err));
		*ret = image;
		return set_attributes(image.fd, m, user_fd, has_devices, err);
	}
	TRY(open_source(m->source, &source, err));
	if (fstat(source, &st) < 0)
		return error_errno(err, errno, "look at the mount source %s", m->source);
	TRY(clone_source(source, m->source, true, &mount, err));
	TRY(set_attributes(mount, m, user_fd, has_devices || is_node(&st), err));
	*ret = (struct mount_source){.fd = take_fd(&mount), .is_directory = S_ISDIR(st.st_mode)};
	return 0;
}

void device_list_done(struct device_list *list)
{
	for (size_t i = 0; i < list->count; i++) {
		free(list->items[i].path);
		free(list->items[i].host_path);
	}
	free(list->items);
	*list = (struct device_list){0};
}

static bool has_device(const struct device_list *list, const char *path)
{
	for (size_t i = 0; i < list->count; i++)
		if (strcmp(list->items[i].path, path) == 0)
			return true;
	return false;
}

static void add_device(struct device_list *list, const char *path, const char *host_path,
		       const struct stat *st, const char *access)
{
	if (has_device(list, path))
		return;
	list->items = xrealloc(list->items, (list->count + 1) * sizeof(*list->items));
	list->items[list->count++] = (struct device){
		.path = xstrdup(path),
		.host_path = xstrdup(host_path),
		.mode = st->st_mode,
		.uid = st->st_uid,
		.gid = st->st_gid,
		.number = st->st_rdev,
		.access = access,
	};
}

/* What the container's /dev has of its own. */
static bool is_own(const char *path)
{
	static const char *const own[] = {"/dev/pts", "/dev/shm",     "/dev/mqueue",
					  "/dev/fd",  "/dev/console", "/dev/ptmx"};

	for (size_t i = 0; i < sizeof(own) / sizeof(own[0]); i++)
		if (strcmp(path, own[i]) == 0)
			return true;
	return false;
}

/* All nodes beneath host; entries that vanish meanwhile are left out. */
static int add_tree(struct device_list *list, const char *path, const char *host,
		    const char *access, int depth, struct error *err)
{
	cleanup_closedir DIR *dir = opendir(host);
	struct dirent *e;

	while (dir && depth < DEVICE_DEPTH_MAX && (e = readdir(dir))) {
		cleanup_free char *inner = NULL;
		cleanup_free char *inner_host = NULL;
		struct stat st;

		if (strcmp(e->d_name, ".") == 0 || strcmp(e->d_name, "..") == 0)
			continue;
		inner = xasprintf("%s/%s", path, e->d_name);
		inner_host = xasprintf("%s/%s", host, e->d_name);
		if (is_own(inner_host) || lstat(inner_host, &st) < 0)
			continue;
		if (list->count >= DEVICES_MAX)
			return error_set(err, ERR_EXHAUSTED, "devices beneath %s: more than %d",
					 host, DEVICES_MAX);
		if (S_ISDIR(st.st_mode))
			TRY(add_tree(list, inner, inner_host, access, depth + 1, err));
		else if (is_node(&st))
			add_device(list, inner, inner_host, &st, access);
	}
	return 0;
}

static int add_asked(struct device_list *list, const struct device_spec *d, struct error *err)
{
	const char *path = d->path && *d->path ? d->path : d->host_path;
	const char *access = d->permissions && *d->permissions ? d->permissions : "rwm";
	struct stat st;

	if (strspn(access, "rwm") != strlen(access))
		return error_set(err, ERR_INVALID,
				 "device %s: permissions \"%.16s\" are not out of rwm",
				 d->host_path ?: "(none)", access);
	if (!d->host_path || d->host_path[0] != '/' || path[0] != '/')
		return error_set(err, ERR_INVALID, "device %s: its paths must be absolute",
				 d->host_path ?: "(none)");
	/* /dev has links, such as those that udev makes */
	if (stat(d->host_path, &st) < 0)
		return error_set(err, ERR_INVALID, "device %s: %s", d->host_path,
				 strerrordesc_np(errno));
	if (S_ISDIR(st.st_mode))
		return add_tree(list, path, d->host_path, access, 0, err);
	if (!is_node(&st))
		return error_set(err, ERR_INVALID, "device %s: it is no device", d->host_path);
	add_device(list, path, d->host_path, &st, access);
	return 0;
}

int device_list_make(const struct container_spec *spec, bool with_host, struct device_list *ret,
		     struct error *err)
{
	static const struct {
		const char *path;
		unsigned major, minor;
	} standard[DEVICES_STANDARD] = {{"/dev/null", 1, 3},	{"/dev/zero", 1, 5},
					{"/dev/full", 1, 7},	{"/dev/random", 1, 8},
					{"/dev/urandom", 1, 9}, {"/dev/tty", 5, 0}};
	struct device_list list = {0};
	int r = 0;

	for (size_t i = 0; i < sizeof(standard) / sizeof(standard[0]); i++) {
		struct stat st = {.st_mode = S_IFCHR | 0666,
				  .st_rdev = makedev(standard[i].major, standard[i].minor)};

		add_device(&list, standard[i].path, standard[i].path, &st, "rwm");
	}
	for (size_t i = 0; i < spec->device_count && r == 0; i++)
		r = add_asked(&list, &spec->devices[i], err);
	if (r == 0 && with_host)
		r = add_tree(&list, "/dev", "/dev", "rwm", 0, err);
	if (r < 0)
		device_list_done(&list);
	else
		*ret = list;
	return r;
}
