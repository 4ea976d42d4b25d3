/* SPDX-License-Identifier: Apache-2.0 */
/* What a group used, read at once. */
#include "sandbox/linux/cgroup_priv.h"

#include <errno.h>
#include <stdlib.h>

#include "io/base/cleanup.h"

/* v1 counts in each group by itself, v2 with all below. */
static int add_oom_kills(int dir, void *arg)
{
	uint64_t n = cgroup_read_key(dir, "memory.oom_control", "oom_kill"), *sum = arg;

	if (n != UINT64_MAX)
		*sum += n;
	return 0;
}

static int open_group(const struct cgroups *cg, enum controller c, const char *path)
{
	return cg->of[c] < 0 ? -ENOTSUP : cgroup_open(&cg->hierarchies[cg->of[c]], path);
}

int cgroup_oom_kills(struct cgroups *cg, const char *path, uint64_t *ret, struct error *err)
{
	int dir, r;
	uint64_t sum = 0;

	TRY(cgroup_path_check(path, err));
	dir = open_group(cg, CONTROLLER_MEMORY, path);
	if (dir == -ENOTSUP) {
		*ret = 0;
		return 0;
	}
	if (dir == -ENOENT)
		return error_set(err, ERR_NOT_FOUND, "cgroup %s is gone", path);
	if (dir < 0)
		return error_errno(err, -dir, "open cgroup %s", path);
	if (cg->hierarchies[cg->of[CONTROLLER_MEMORY]].is_v2) {
		sum = cgroup_read_key(dir, "memory.events", "oom_kill");
		close_fd(dir);
		*ret = sum == UINT64_MAX ? 0 : sum;
		return 0;
	}
	r = cgroup_walk(dir, add_oom_kills, &sum);
	if (r < 0)
		return error_errno(err, -r, "read memory.oom_control of cgroup %s", path);
	*ret = sum;
	return 0;
}

static uint64_t read_number(int dir, const char *file)
{
	char text[64];

	return cgroup_read(dir, file, text, sizeof(text)) <= 0 ? UINT64_MAX
							       : strtoull(text, NULL, 10);
}

static uint64_t cpu_ns(const struct cgroups *cg, const char *path)
{
	cleanup_close int v1 = open_group(cg, CONTROLLER_CPUACCT, path);
	cleanup_close int v2 =
		v1 < 0 && cg->v2 >= 0 ? cgroup_open(&cg->hierarchies[cg->v2], path) : -1;
	uint64_t us;

	if (v1 >= 0)
		return read_number(v1, "cpuacct.usage");
	us = v2 < 0 ? UINT64_MAX : cgroup_read_key(v2, "cpu.stat", "usage_usec");
	return us == UINT64_MAX ? us : us * 1000;
}

static void read_memory(const struct cgroups *cg, int dir, struct cgroup_stats *s)
{
	bool is_v2 = cg->hierarchies[cg->of[CONTROLLER_MEMORY]].is_v2;
	uint64_t inactive = cgroup_read_key(dir, "memory.stat",
					    is_v2 ? "inactive_file" : "total_inactive_file");

	s->memory_usage = read_number(dir, is_v2 ? "memory.current" : "memory.usage_in_bytes");
	s->memory_working_set = s->memory_usage;
	if (s->memory_usage == UINT64_MAX || inactive == UINT64_MAX)
		return;
	s->memory_working_set = inactive < s->memory_usage ? s->memory_usage - inactive : 0;
}

int cgroup_stats(struct cgroups *cg, const char *path, struct cgroup_stats *ret, struct error *err)
{
	struct cgroup_stats s = {UINT64_MAX, UINT64_MAX, UINT64_MAX, UINT64_MAX};
	cleanup_close int tracker = -1, memory = -1, pids = -1;

	TRY(cgroup_path_check(path, err));
	tracker = cgroup_open(&cg->hierarchies[cg->tracker], path);
	if (tracker == -ENOENT)
		return error_set(err, ERR_NOT_FOUND, "cgroup %s is gone", path);
	if (tracker < 0)
		return error_errno(err, -tracker, "open cgroup %s", path);
	memory = open_group(cg, CONTROLLER_MEMORY, path);
	pids = open_group(cg, CONTROLLER_PIDS, path);
	s.cpu_ns = cpu_ns(cg, path);
	if (memory >= 0)
		read_memory(cg, memory, &s);
	if (pids >= 0)
		s.pids = read_number(pids, "pids.current");
	*ret = s;
	return 0;
}
