/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The limits that the kernel holds, for who asked for some. Peculiar: it holds memory in pages and,
 * in v2, weights for shares; a value that is just the one asked for in those units is told as it
 * was asked for, since clients compare.
 */
#include "sandbox/linux/cgroup_priv.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "io/base/alloc.h"
#include "io/base/cleanup.h"
#include "io/offload.h"

#define CPU_SHARES 1024
#define CPU_SHARES_MAX 262144
#define CPU_WEIGHT 100
#define CPU_PERIOD_US 100000
/* What v1 says of no limit is the greatest multiple of a page. */
#define UNLIMITED (INT64_MAX - (1 << 20))

struct now_job {
	struct job job;
	struct cgroups *cg;
	char *path;
	struct resources asked; /* numbers only */
	bool wants_cpus, wants_mems;
	struct limits_now now;
};

/* Without opening the group: a status is asked for often. */
static ssize_t read_file(const struct now_job *j, enum controller c, const char *file, char *text,
			 size_t size)
{
	cleanup_free char *path = NULL;

	if (j->cg->of[c] < 0)
		return -ENOTSUP;
	path = xasprintf("%s/%s", j->path + 1, file);
	return cgroup_read(j->cg->hierarchies[j->cg->of[c]].fd, path, text, size);
}

static bool is_v2(const struct now_job *j, enum controller c)
{
	return j->cg->of[c] >= 0 && j->cg->hierarchies[j->cg->of[c]].is_v2;
}

/* -1 for none; -2: not known. */
static int64_t read_limit(const struct now_job *j, enum controller c, const char *file)
{
	char text[64];
	int64_t n;

	if (read_file(j, c, file, text, sizeof(text)) <= 0)
		return -2;
	n = strtoll(text, NULL, 10);
	return *text == 'm' || n < 0 || n >= UNLIMITED ? -1 : n;
}

static int64_t pages(int64_t bytes)
{
	return bytes - bytes % sysconf(_SC_PAGESIZE);
}

static int64_t tell_limit(int64_t now, int64_t asked)
{
	if (now == -2)
		return 0;
	if (now < 0)
		return asked ? -1 : 0;
	return asked > 0 && pages(asked) == pages(now) ? asked : now;
}

static uint64_t shares_of_weight(uint64_t weight)
{
	uint64_t low = 2, high = CPU_SHARES_MAX;

	while (low < high) {
		uint64_t middle = (low + high) / 2;

		if (cgroup_weight_of_shares(middle) < weight)
			low = middle + 1;
		else
			high = middle;
	}
	return low;
}

static uint64_t tell_shares(int64_t now, bool is_weight, uint64_t asked)
{
	if (now < 0 || (!asked && now == (is_weight ? CPU_WEIGHT : CPU_SHARES)))
		return 0;
	if (!is_weight)
		return (uint64_t)now;
	if (asked && cgroup_weight_of_shares(asked) == (uint64_t)now)
		return asked;
	return shares_of_weight((uint64_t)now);
}

static void read_bandwidth(struct now_job *j)
{
	int64_t quota = -2, period = -2;
	char text[64], *space;

	if (!is_v2(j, CONTROLLER_CPU)) {
		quota = read_limit(j, CONTROLLER_CPU, "cpu.cfs_quota_us");
		period = read_limit(j, CONTROLLER_CPU, "cpu.cfs_period_us");
	} else if (read_file(j, CONTROLLER_CPU, "cpu.max", text, sizeof(text)) > 0) {
		quota = *text == 'm' ? -1 : strtoll(text, NULL, 10);
		space = strchr(text, ' ');
		period = space ? strtoll(space, NULL, 10) : -2;
	}
	if (quota == -1)
		j->now.cpu_quota_us = j->asked.cpu_quota_us ? -1 : 0;
	else if (quota > 0)
		j->now.cpu_quota_us = quota;
	if (period > 0 && (j->asked.cpu_period_us || period != CPU_PERIOD_US))
		j->now.cpu_period_us = (uint64_t)period;
}

/* v2 limits swap alone. */
static int64_t swap_v2(const struct now_job *j, int64_t memory)
{
	int64_t now = read_limit(j, CONTROLLER_MEMORY, "memory.swap.max");
	int64_t wanted = j->asked.memory_swap_limit;

	if (now < 0 || memory < 0)
		return tell_limit(now == -2 ? -2 : -1, wanted);
	if (wanted > 0 && pages(wanted - j->asked.memory_limit) == pages(now))
		return wanted;
	return memory + now;
}

static int64_t read_memory(struct now_job *j)
{
	bool v2 = is_v2(j, CONTROLLER_MEMORY);
	int64_t memory =
		read_limit(j, CONTROLLER_MEMORY, v2 ? "memory.max" : "memory.limit_in_bytes");

	j->now.memory_limit = tell_limit(memory, j->asked.memory_limit);
	j->now.memory_swap_limit =
		v2 ? swap_v2(j, memory)
		   : tell_limit(read_limit(j, CONTROLLER_MEMORY, "memory.memsw.limit_in_bytes"),
				j->asked.memory_swap_limit);
	return memory;
}

/* What nobody asked for is the parent's. */
static void read_cpuset(const struct now_job *j, const char *file, bool is_wanted, char *ret,
			size_t size)
{
	if (is_wanted && read_file(j, CONTROLLER_CPUSET, file, ret, size) < 0)
		*ret = '\0';
}

static int run(struct job *job, struct error *err)
{
	struct now_job *j = container_of(job, struct now_job, job);
	bool v2 = is_v2(j, CONTROLLER_CPU);
	int64_t shares = read_limit(j, CONTROLLER_CPU, v2 ? "cpu.weight" : "cpu.shares");

	if (read_memory(j) == -2 && shares == -2)
		return error_set(err, ERR_NOT_FOUND, "cgroup %s is gone", j->path);
	j->now.cpu_shares = tell_shares(shares, v2, j->asked.cpu_shares);
	read_bandwidth(j);
	read_cpuset(j, "cpuset.cpus", j->wants_cpus, j->now.cpuset_cpus,
		    sizeof(j->now.cpuset_cpus));
	read_cpuset(j, "cpuset.mems", j->wants_mems, j->now.cpuset_mems,
		    sizeof(j->now.cpuset_mems));
	return 0;
}

static void free_job(struct job *job)
{
	struct now_job *j = container_of(job, struct now_job, job);

	free(j->path);
	free(j);
}

int cgroup_limits_now(struct task *t, struct cgroups *cg, const char *path,
		      const struct resources *asked, struct limits_now *ret)
{
	struct now_job *j;
	int r;

	TRY(cgroup_path_check(path, &t->err));
	j = xnew(struct now_job);
	job_init(&j->job, run, free_job);
	j->cg = cg;
	j->path = xstrdup(path);
	j->asked = *asked;
	j->wants_cpus = asked->cpuset_cpus;
	j->wants_mems = asked->cpuset_mems;
	r = offload(t, NULL, &j->job);
	if (r == 0)
		*ret = j->now;
	job_unref(&j->job);
	return r;
}
