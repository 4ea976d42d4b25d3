/* SPDX-License-Identifier: Apache-2.0 */
/* Lists of devices. Peculiar: what was asked for wins over what comes with a whole directory, but
 * two that were asked for are never at one path. */
#include "sandbox/linux/devices.h"

#include <dirent.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/sysmacros.h>

#include "io/base/alloc.h"
#include "io/base/cleanup.h"

#define DEVICES_MAX 4096
#define DEVICE_DEPTH_MAX 8

bool is_device(const struct stat *st)
{
	return S_ISCHR(st->st_mode) || S_ISBLK(st->st_mode);
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

static struct device *find_device(const struct device_list *list, const char *path)
{
	for (size_t i = 0; i < list->count; i++)
		if (strcmp(list->items[i].path, path) == 0)
			return &list->items[i];
	return NULL;
}

static struct device *add_device(struct device_list *list, const char *path, const char *host_path,
				 const struct stat *st, const char *access)
{
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
	return &list->items[list->count - 1];
}

static bool is_same(const struct device *d, const struct stat *st)
{
	return d->number == st->st_rdev && (d->mode & S_IFMT) == (st->st_mode & S_IFMT);
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
		else if (is_device(&st) && !find_device(list, inner))
			add_device(list, inner, inner_host, &st, access);
	}
	return 0;
}

static int refuse(const struct device_spec *d, const char *why, struct error *err)
{
	return error_set(err, ERR_INVALID, "device %.200s: %s", d->host_path ?: "(none)", why);
}

static int add_directory(struct device_list *list, const struct device_spec *d, const char *path,
			 const char *access, struct error *err)
{
	size_t before = list->count;

	TRY(add_tree(list, path, d->host_path, access, 0, err));
	if (list->count == before)
		return refuse(d, "there is no device in this directory that it does not have yet",
			      err);
	return 0;
}

static int add_node(struct device_list *list, const struct device_spec *d, const char *path,
		    const char *access, const struct stat *st, struct error *err)
{
	struct device *there = find_device(list, path), *added;

	if (is_own(path))
		return error_set(err, ERR_INVALID,
				 "device %.200s: %.200s is the container's own; use another path",
				 d->host_path, path);
	if (there && is_same(there, st) &&
	    (there < list->items + DEVICES_STANDARD || strcmp(there->access, access) == 0))
		return 0;
	if (there)
		return error_set(err, ERR_INVALID,
				 "device %.200s: %.200s is taken by %.200s; use another path",
				 d->host_path, path, there->host_path);
	if (list->count >= DEVICES_MAX)
		return error_set(err, ERR_EXHAUSTED, "device %.200s: more than %d of them",
				 d->host_path, DEVICES_MAX);
	added = add_device(list, path, d->host_path, st, access);
	if (d->has_mode)
		added->mode = (st->st_mode & S_IFMT) | (d->mode & ALLPERMS);
	if (d->has_uid)
		added->uid = d->uid;
	if (d->has_gid)
		added->gid = d->gid;
	return 0;
}

static int add_asked(struct device_list *list, const struct device_spec *d, struct error *err)
{
	const char *path = d->path && *d->path ? d->path : d->host_path;
	const char *access = d->permissions && *d->permissions ? d->permissions : "rwm";
	struct stat st;

	if (strspn(access, "rwm") != strlen(access))
		return error_set(err, ERR_INVALID,
				 "device %.200s: permissions \"%.16s\" are not out of rwm",
				 d->host_path ?: "(none)", access);
	if (!d->host_path || d->host_path[0] != '/' || path[0] != '/')
		return refuse(d, "its paths must be absolute", err);
	/* /dev has links, such as those that udev makes */
	if (stat(d->host_path, &st) < 0)
		return refuse(d, strerrordesc_np(errno), err);
	if (S_ISDIR(st.st_mode))
		return add_directory(list, d, path, access, err);
	if (!is_device(&st))
		return refuse(d, "it is no device", err);
	if ((d->has_number && d->number != st.st_rdev) ||
	    (d->type && d->type != (S_ISBLK(st.st_mode) ? 'b' : 'c')))
		return error_set(err, ERR_INVALID,
				 "device %.200s: the host's is %c %u:%u, not what is asked for",
				 d->host_path, S_ISBLK(st.st_mode) ? 'b' : 'c', major(st.st_rdev),
				 minor(st.st_rdev));
	return add_node(list, d, path, access, &st, err);
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
