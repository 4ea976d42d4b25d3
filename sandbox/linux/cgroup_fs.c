/* SPDX-License-Identifier: Apache-2.0 */
/* Reading, writing and walking cgroupfs by descriptor; the same for v1 and v2. */
#include "sandbox/linux/cgroup_priv.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>

#include "io/base/alloc.h"
#include "io/base/buf.h"
#include "io/base/cleanup.h"

const char *const controller_names[CONTROLLER_COUNT] = {
	[CONTROLLER_CPU] = "cpu",	  [CONTROLLER_CPUACCT] = "cpuacct",
	[CONTROLLER_CPUSET] = "cpuset",	  [CONTROLLER_MEMORY] = "memory",
	[CONTROLLER_PIDS] = "pids",	  [CONTROLLER_HUGETLB] = "hugetlb",
	[CONTROLLER_FREEZER] = "freezer", [CONTROLLER_IO] = "io",
	[CONTROLLER_MISC] = "misc",	  [CONTROLLER_DEVICES] = "devices",
	[CONTROLLER_RDMA] = "rdma",
};

enum controller controller_find(const char *name, size_t length)
{
	for (int c = 0; c < CONTROLLER_COUNT; c++)
		if (strlen(controller_names[c]) == length &&
		    memcmp(controller_names[c], name, length) == 0)
			return (enum controller)c;
	return CONTROLLER_COUNT;
}

int cgroup_open(const struct hierarchy *h, const char *path)
{
	int fd;

	path += *path == '/';
	fd = openat(h->fd, path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	return fd < 0 ? -errno : fd;
}

int cgroup_open_in(const struct cgroups *cg, enum controller c, const char *path)
{
	return cg->of[c] < 0 ? -ENOTSUP : cgroup_open(&cg->hierarchies[cg->of[c]], path);
}

ssize_t cgroup_read(int dir, const char *file, char *value, size_t size)
{
	cleanup_close int fd = openat(dir, file, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
	ssize_t n = fd < 0 ? -1 : read(fd, value, size - 1);

	if (n < 0)
		return -errno;
	if (n > 0 && value[n - 1] == '\n')
		n--;
	value[n] = '\0';
	return n;
}

int cgroup_write(int dir, const char *file, const char *value)
{
	cleanup_close int fd = openat(dir, file, O_WRONLY | O_NOFOLLOW | O_CLOEXEC);

	if (fd < 0 || write(fd, value, strlen(value)) < 0)
		return -errno;
	return 0;
}

int cgroup_read_all(int dir, const char *file, struct buf *ret)
{
	cleanup_close int fd = openat(dir, file, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
	ssize_t n;

	if (fd < 0)
		return -errno;
	do {
		n = read(fd, buf_reserve(ret, 16384), 16384);
		if (n < 0)
			return -errno;
		ret->length += (size_t)n;
	} while (n > 0);
	/* reserved above */
	ret->data[ret->length] = '\0';
	return 0;
}

uint64_t cgroup_read_key(int dir, const char *file, const char *key)
{
	__attribute__((cleanup(buf_done))) struct buf text = {0};
	size_t length = strlen(key);
	char *rest = NULL;

	if (cgroup_read_all(dir, file, &text) < 0)
		return UINT64_MAX;
	for (char *line = strtok_r(text.data, "\n", &rest); line;
	     line = strtok_r(NULL, "\n", &rest))
		if (strncmp(line, key, length) == 0 && line[length] == ' ')
			return strtoull(line + length + 1, NULL, 10);
	return UINT64_MAX;
}

/* A group's link count is 2 and its sub-groups, so most need not be listed. */
static DIR *open_children(int dir)
{
	struct stat st;
	DIR *list;
	int fd;

	if (fstat(dir, &st) == 0 && st.st_nlink == 2)
		return NULL;
	fd = openat(dir, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	list = fd < 0 ? NULL : fdopendir(fd);
	if (!list)
		close_fd(fd);
	return list;
}

static const char *next_child(DIR *list)
{
	const struct dirent *e;

	while (list && (e = readdir(list)))
		if (e->d_type == DT_DIR && strcmp(e->d_name, ".") != 0 &&
		    strcmp(e->d_name, "..") != 0)
			return e->d_name;
	return NULL;
}

int cgroup_child_names(int dir, struct buf *ret)
{
	cleanup_closedir DIR *list = open_children(dir);
	const char *name;

	while ((name = next_child(list)))
		buf_append(ret, name, strlen(name) + 1);
	return 0;
}

int cgroup_walk(int dir, int (*fn)(int dir, void *arg), void *arg)
{
	struct {
		int fd;
		DIR *children;
	} *stack = xcalloc(CGROUP_DEPTH_MAX, sizeof(*stack));
	size_t depth = 1;
	int r = fn(dir, arg);

	stack[0].fd = dir;
	stack[0].children = r == 0 ? open_children(dir) : NULL;
	while (depth) {
		const char *name = r == 0 ? next_child(stack[depth - 1].children) : NULL;
		int child = -1;

		if (!name) {
			depth--;
			if (stack[depth].children)
				closedir(stack[depth].children);
			close_fd(stack[depth].fd);
			continue;
		}
		child = openat(stack[depth - 1].fd, name,
			       O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
		if (child < 0) {
			/* removed meanwhile, by the workload itself */
			r = errno == ENOENT || errno == ENODEV ? 0 : -errno;
			continue;
		}
		if (depth == CGROUP_DEPTH_MAX) {
			close_fd(child);
			r = -ELOOP;
			continue;
		}
		r = fn(child, arg);
		stack[depth].fd = child;
		stack[depth++].children = r == 0 ? open_children(child) : NULL;
	}
	free(stack);
	return r;
}

/*
 * Depth is without limit here, since a workload may have made any: down to a leaf, remove it, begin
 * anew. Returns 1 when something beneath dir was removed, 0 when there is nothing beneath.
 */
static int remove_leaf(int dir)
{
	cleanup_close int at = openat(dir, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	cleanup_close int parent = -1;
	char name[NAME_MAX + 1] = "";

	if (at < 0)
		return -errno;
	for (;;) {
		cleanup_closedir DIR *list = open_children(at);
		const char *child = next_child(list);

		if (!child)
			break;
		snprintf(name, sizeof(name), "%s", child);
		close_fd(parent);
		parent = at;
		at = openat(parent, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
		if (at < 0)
			return errno == ENOENT ? 1 : -errno;
	}
	if (parent < 0)
		return 0;
	if (unlinkat(parent, name, AT_REMOVEDIR) < 0 && errno != ENOENT)
		return -errno;
	return 1;
}

int cgroup_remove_tree(const struct hierarchy *h, const char *path)
{
	cleanup_close int dir = -1;
	int r;

	if (unlinkat(h->fd, path + 1, AT_REMOVEDIR) == 0 || errno == ENOENT)
		return 0;
	if (errno != EBUSY && errno != ENOTEMPTY)
		return -errno;
	dir = cgroup_open(h, path);
	if (dir < 0)
		return dir == -ENOENT ? 0 : dir;
	do
		r = remove_leaf(dir);
	while (r > 0);
	if (r < 0)
		return r;
	return unlinkat(h->fd, path + 1, AT_REMOVEDIR) < 0 && errno != ENOENT ? -errno : 0;
}

void pid_list_done(struct pid_list *list)
{
	free(list->items);
	*list = (struct pid_list){0};
}

void pid_list_add(struct pid_list *list, pid_t pid)
{
	if (list->count == list->capacity) {
		list->capacity = list->capacity ? list->capacity * 2 : 16;
		list->items = xrealloc(list->items, list->capacity * sizeof(pid_t));
	}
	list->items[list->count++] = pid;
}

int pid_list_read(int dir, struct pid_list *list)
{
	__attribute__((cleanup(buf_done))) struct buf text = {0};
	int r = cgroup_read_all(dir, "cgroup.procs", &text);

	/* removed meanwhile; or threaded: then its processes are listed further up */
	if (r == -ENOENT || r == -ENODEV || r == -EOPNOTSUPP)
		return 0;
	if (r < 0)
		return r;
	for (char *at = text.data, *end; *at; at = end + (*end == '\n')) {
		long pid = strtol(at, &end, 10);

		if (end == at)
			break;
		pid_list_add(list, (pid_t)pid);
	}
	return 0;
}

bool pid_list_has(const struct pid_list *list, pid_t pid)
{
	for (size_t i = 0; i < list->count; i++)
		if (list->items[i] == pid)
			return true;
	return false;
}

static int read_pids(int dir, void *arg)
{
	return pid_list_read(dir, arg);
}

int pid_list_walk(int dir, struct pid_list *list)
{
	return cgroup_walk(dir, read_pids, list);
}
