/* SPDX-License-Identifier: Apache-2.0 */
/* Taking limits away: what a group has to which none was given. */
#include "sandbox/linux/cgroup_priv.h"

#include <string.h>

#include "io/base/alloc.h"
#include "io/base/cleanup.h"

#define CPU_SHARES 1024
#define CPU_PERIOD_US 100000

/* Files of v2 that `unified` may have set; others can't be taken back, as nobody knows what they
 * were. */
static const char *const unlimited[][2] = {
	{"cpu.idle", "0"},	     {"cpu.max", "max 100000"},	   {"cpu.max.burst", "0"},
	{"cpu.uclamp.max", "max"},   {"cpu.uclamp.min", "0"},	   {"cpu.weight", "100"},
	{"io.bfq.weight", "100"},    {"io.weight", "default 100"}, {"memory.high", "max"},
	{"memory.low", "0"},	     {"memory.max", "max"},	   {"memory.min", "0"},
	{"memory.oom.group", "0"},   {"memory.swap.high", "max"},  {"memory.swap.max", "max"},
	{"memory.zswap.max", "max"}, {"pids.max", "max"},
};

static bool has_key(const struct key_value_list *list, const char *key)
{
	for (size_t i = 0; i < list->count; i++)
		if (!strcmp(list->items[i].key, key))
			return true;
	return false;
}

static bool is_cpuset(const char *file)
{
	return !strcmp(file, "cpuset.cpus") || !strcmp(file, "cpuset.mems");
}

static void add_inherit(struct setting_list *list, const char *file)
{
	setting_add(list, CONTROLLER_CPUSET, file, xstrdup("\n"))->kind = SETTING_INHERIT;
}

static void add_unified(struct setting_list *list, const char *file)
{
	const char *dot = strchr(file, '.');
	enum controller c = dot ? controller_find(file, (size_t)(dot - file)) : CONTROLLER_COUNT;

	if (is_cpuset(file))
		add_inherit(list, file);
	for (size_t i = 0; i < sizeof(unlimited) / sizeof(unlimited[0]); i++)
		if (!strcmp(unlimited[i][0], file))
			setting_add(list, c, file, xstrdup(unlimited[i][1]))->is_optional = true;
}

static void add_hugepages(const struct cgroups *cg, struct setting_list *list, const char *size)
{
	bool is_v2 = cg->hierarchies[cg->of[CONTROLLER_HUGETLB]].is_v2;
	cleanup_free char *file =
		xasprintf(is_v2 ? "hugetlb.%s.max" : "hugetlb.%s.limit_in_bytes", size);

	setting_add(list, CONTROLLER_HUGETLB, file, xstrdup(is_v2 ? "max" : "-1"))->is_optional =
		true;
}

static bool is_lost(const char *now, const char *gone)
{
	return gone && *gone && (!now || !*now);
}

int limits_plan_without(const struct cgroups *cg, const struct resources *r,
			const struct resources *gone, struct setting_list *ret, struct error *err)
{
	struct resources back = {
		.cpu_shares = gone->cpu_shares && !r->cpu_shares ? CPU_SHARES : 0,
		.cpu_quota_us = gone->cpu_quota_us && !r->cpu_quota_us ? -1 : 0,
		.cpu_period_us = gone->cpu_period_us && !r->cpu_period_us ? CPU_PERIOD_US : 0,
		.memory_limit = gone->memory_limit && !r->memory_limit ? -1 : 0,
		.memory_swap_limit = gone->memory_swap_limit && !r->memory_swap_limit ? -1 : 0,
		.pids_limit = gone->pids_limit && !r->pids_limit ? -1 : 0,
	};

	TRY(limits_plan(cg, &back, ret, err));
	if (cg->of[CONTROLLER_CPUSET] >= 0 && is_lost(r->cpuset_cpus, gone->cpuset_cpus))
		add_inherit(ret, "cpuset.cpus");
	if (cg->of[CONTROLLER_CPUSET] >= 0 && is_lost(r->cpuset_mems, gone->cpuset_mems))
		add_inherit(ret, "cpuset.mems");
	for (size_t i = 0; i < gone->unified.count && cg->is_pure_v2; i++)
		if (!has_key(&r->unified, gone->unified.items[i].key))
			add_unified(ret, gone->unified.items[i].key);
	for (size_t i = 0; i < gone->hugepage_limits.count && cg->of[CONTROLLER_HUGETLB] >= 0; i++)
		if (!has_key(&r->hugepage_limits, gone->hugepage_limits.items[i].key))
			add_hugepages(cg, ret, gone->hugepage_limits.items[i].key);
	return 0;
}
