/* SPDX-License-Identifier: Apache-2.0 */
/* Running out of memory: what was counted, by whose limit, and how to hear of it. */
#include "sandbox/linux/cgroup_priv.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/inotify.h>

#include "io/base/alloc.h"
#include "io/base/cleanup.h"
#include "sandbox/linux/oom_report.h"

static bool is_v2(const struct cgroups *cg)
{
	return cg->hierarchies[cg->of[CONTROLLER_MEMORY]].is_v2;
}

/* v1 counts in each group by itself, v2 with all below. */
static int add_kills(int dir, void *arg)
{
	uint64_t n = cgroup_read_key(dir, "memory.oom_control", "oom_kill"), *sum = arg;

	if (n != UINT64_MAX)
		*sum += n;
	return 0;
}

static int read_kills(const struct cgroups *cg, const char *path, uint64_t *ret, struct error *err)
{
	int dir = cgroup_open_in(cg, CONTROLLER_MEMORY, path), r;
	uint64_t sum = 0;

	if (dir == -ENOENT)
		return error_set(err, ERR_NOT_FOUND, "cgroup %s is gone", path);
	if (dir < 0)
		return error_errno(err, -dir, "open cgroup %s", path);
	if (is_v2(cg)) {
		sum = cgroup_read_key(dir, "memory.events", "oom_kill");
		close_fd(dir);
		*ret = sum == UINT64_MAX ? 0 : sum;
		return 0;
	}
	/* it consumes dir */
	r = cgroup_walk(dir, add_kills, &sum);
	if (r < 0)
		return error_errno(err, -r, "read memory.oom_control of cgroup %s", path);
	*ret = sum;
	return 0;
}

static uint64_t number_in(int dir, const char *file)
{
	char text[32];

	return cgroup_read(dir, file, text, sizeof(text)) > 0 ? strtoull(text, NULL, 10) : 0;
}

static uint64_t hits_of(const struct cgroups *cg, const char *path)
{
	cleanup_close int dir = cgroup_open_in(cg, CONTROLLER_MEMORY, path);
	uint64_t n;

	if (dir < 0)
		return 0;
	if (is_v2(cg)) {
		n = cgroup_read_key(dir, "memory.events.local", "oom");
		return n == UINT64_MAX ? 0 : n;
	}
	/* that of memory and swap is tried first; some kernels (6.18) don't count its hits */
	return number_in(dir, "memory.failcnt") + number_in(dir, "memory.memsw.failcnt") +
	       (number_in(dir, "memory.memsw.max_usage_in_bytes") >=
		number_in(dir, "memory.memsw.limit_in_bytes"));
}

int cgroup_oom_read(struct cgroups *cg, const char *path, const struct cgroup_oom *seen,
		    struct cgroup_oom *ret, struct error *err)
{
	struct cgroup_oom now = {0};
	cleanup_free char *at = NULL;
	char *slash;

	TRY(cgroup_path_check(path, err));
	if (cg->of[CONTROLLER_MEMORY] < 0) {
		*ret = now;
		return 0;
	}
	TRY(read_kills(cg, path, &now.kills, err));
	if (seen && seen->kills >= now.kills) {
		*ret = *seen;
		return 0;
	}
	at = xstrdup(path);
	for (size_t i = 0; i < CGROUP_LEVELS && *at; i++) {
		now.hits[i] = hits_of(cg, at);
		slash = strrchr(at, '/');
		*slash = '\0';
	}
	*ret = now;
	return 0;
}

static char *culprit_by_hits(const char *path, const struct cgroup_oom *before,
			     const struct cgroup_oom *after)
{
	char *at = xstrdup(path);

	for (size_t i = 0; i < CGROUP_LEVELS && *at; i++) {
		if (after->hits[i] > before->hits[i])
			return at;
		*strrchr(at, '/') = '\0';
	}
	free(at);
	return NULL;
}

char *cgroup_oom_culprit(struct cgroups *cg, const char *path, const struct cgroup_oom *before,
			 const struct cgroup_oom *after)
{
	bool is_exact = is_v2(cg);
	char *found = is_exact ? culprit_by_hits(path, before, after) : oom_report_find(path);

	if (found)
		return found;
	return is_exact ? oom_report_find(path) : culprit_by_hits(path, before, after);
}

enum cgroup_oom_events cgroup_oom_events(const struct cgroups *cg)
{
	if (cg->of[CONTROLLER_MEMORY] < 0)
		return OOM_EVENTS_NONE;
	return is_v2(cg) ? OOM_EVENTS_INOTIFY : OOM_EVENTS_EVENTFD;
}

static int watch_v1(int dir, int fd)
{
	cleanup_close int control = openat(dir, "memory.oom_control", O_RDONLY | O_CLOEXEC);
	char text[32];

	if (control < 0)
		return -errno;
	snprintf(text, sizeof(text), "%d %d", fd, control);
	return cgroup_write(dir, "cgroup.event_control", text);
}

static int watch_v2(int dir, int fd, int *ret_watch)
{
	char path[64];
	int watch;

	snprintf(path, sizeof(path), "/proc/self/fd/%d/memory.events", dir);
	watch = inotify_add_watch(fd, path, IN_MODIFY);
	if (watch < 0)
		return -errno;
	*ret_watch = watch;
	return 0;
}

int cgroup_oom_watch(struct cgroups *cg, const char *path, int fd, int *ret_watch,
		     struct error *err)
{
	cleanup_close int dir = -1;
	int r;

	TRY(cgroup_path_check(path, err));
	dir = cgroup_open_in(cg, CONTROLLER_MEMORY, path);
	if (dir < 0)
		return error_errno(err, -dir, "open cgroup %s", path);
	r = is_v2(cg) ? watch_v2(dir, fd, ret_watch) : watch_v1(dir, fd);
	return r < 0 ? error_errno(err, -r, "watch the memory events of cgroup %s", path) : 0;
}
