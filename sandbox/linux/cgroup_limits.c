/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Limits: what a struct resources means in files of v1 and v2, and writing them. Peculiar: an
 * update reads each old value first, so that a refusal in the middle can put the others back.
 */
#include "sandbox/linux/cgroup_priv.h"

#include <errno.h>
#include <math.h>
#include <stdatomic.h>
#include <string.h>

#include "io/base/alloc.h"
#include "io/base/cleanup.h"
#include "io/base/log.h"

#define VALUE_MAX 4096

uint64_t cgroup_weight_of_shares(uint64_t shares)
{
	double l;

	if (shares <= 2)
		return 1;
	if (shares >= 262144)
		return 10000;
	l = log2((double)shares);
	return (uint64_t)ceil(pow(10, (l * l + 125 * l) / 612 - 7.0 / 34));
}

void setting_list_done(struct setting_list *list)
{
	for (size_t i = 0; i < list->count; i++) {
		free(list->items[i].file);
		free(list->items[i].value);
		free(list->items[i].old);
	}
	free(list->items);
	*list = (struct setting_list){0};
}

struct setting *setting_add(struct setting_list *list, enum controller c, const char *file,
			    char *value)
{
	struct setting *s;

	list->items = xrealloc(list->items, (list->count + 1) * sizeof(*list->items));
	s = &list->items[list->count++];
	*s = (struct setting){.controller = c, .file = xstrdup(file), .value = value};
	return s;
}

static bool is_v2(const struct cgroups *cg, enum controller c)
{
	return cg->hierarchies[cg->of[c]].is_v2;
}

/* What the user asked for needs this controller. */
static int need(const struct cgroups *cg, enum controller c, const char *what, struct error *err)
{
	if (cg->of[c] >= 0)
		return 0;
	return error_set(
		err, ERR_PRECONDITION,
		"%s limit: the node has no %s cgroup controller; enable it on the kernel's "
		"command line or do without the limit",
		what, controller_names[c]);
}

static char *limit_text(int64_t limit, const char *unlimited)
{
	return limit < 0 ? xstrdup(unlimited) : xasprintf("%lld", (long long)limit);
}

static void plan_bandwidth(const struct cgroups *cg, const struct resources *r,
			   struct setting_list *list)
{
	if (!is_v2(cg, CONTROLLER_CPU)) {
		if (r->cpu_quota_us)
			setting_add(list, CONTROLLER_CPU, "cpu.cfs_quota_us",
				    limit_text(r->cpu_quota_us, "-1"))
				->kind = SETTING_QUOTA;
		if (r->cpu_period_us)
			setting_add(list, CONTROLLER_CPU, "cpu.cfs_period_us",
				    xasprintf("%llu", (unsigned long long)r->cpu_period_us))
				->kind = SETTING_PERIOD;
		return;
	}
	if (r->cpu_quota_us) {
		cleanup_free char *quota = limit_text(r->cpu_quota_us, "max");

		setting_add(list, CONTROLLER_CPU, "cpu.max",
			    r->cpu_period_us ? xasprintf("%s %llu", quota,
							 (unsigned long long)r->cpu_period_us)
					     : xstrdup(quota));
	} else if (r->cpu_period_us) {
		setting_add(list, CONTROLLER_CPU, "cpu.max",
			    xasprintf("%llu", (unsigned long long)r->cpu_period_us))
			->kind = SETTING_MAX_PERIOD;
	}
}

static int plan_cpu(const struct cgroups *cg, const struct resources *r, struct setting_list *list,
		    struct error *err)
{
	if (r->cpu_shares || r->cpu_quota_us || r->cpu_period_us)
		TRY(need(cg, CONTROLLER_CPU, "cpu", err));
	if (r->cpu_shares && is_v2(cg, CONTROLLER_CPU))
		setting_add(list, CONTROLLER_CPU, "cpu.weight",
			    xasprintf("%llu",
				      (unsigned long long)cgroup_weight_of_shares(r->cpu_shares)));
	else if (r->cpu_shares)
		setting_add(list, CONTROLLER_CPU, "cpu.shares",
			    xasprintf("%llu", (unsigned long long)r->cpu_shares));
	if (r->cpu_quota_us || r->cpu_period_us)
		plan_bandwidth(cg, r, list);
	return 0;
}

static int plan_cpuset_file(const struct cgroups *cg, const char *file, const char *value,
			    struct setting_list *list, struct error *err)
{
	if (!value || !*value)
		return 0;
	TRY(need(cg, CONTROLLER_CPUSET, file, err));
	if (strlen(value) > VALUE_MAX || value[strspn(value, "0123456789,-")])
		return error_set(err, ERR_INVALID, "%s \"%.64s\": not a list such as 0-3,8", file,
				 value);
	setting_add(list, CONTROLLER_CPUSET, file, xstrdup(value));
	return 0;
}

static int plan_memory_v2(const struct resources *r, struct setting_list *list, struct error *err)
{
	int64_t swap = r->memory_swap_limit;

	if (r->memory_limit)
		setting_add(list, CONTROLLER_MEMORY, "memory.max",
			    limit_text(r->memory_limit, "max"));
	if (!swap)
		return 0;
	if (swap > 0 && r->memory_limit <= 0)
		return error_set(
			err, ERR_INVALID,
			"swap limit %lld: it counts memory too, so it needs a memory limit",
			(long long)swap);
	setting_add(list, CONTROLLER_MEMORY, "memory.swap.max",
		    limit_text(swap < 0 ? -1 : swap - r->memory_limit, "max"))
		->is_optional = true;
	return 0;
}

static int plan_memory(const struct cgroups *cg, const struct resources *r,
		       struct setting_list *list, struct error *err)
{
	struct setting *s;

	if (!r->memory_limit && !r->memory_swap_limit)
		return 0;
	TRY(need(cg, CONTROLLER_MEMORY, "memory", err));
	if (r->memory_limit > 0 && r->memory_swap_limit > 0 &&
	    r->memory_swap_limit < r->memory_limit)
		return error_set(err, ERR_INVALID,
				 "swap limit %lld is below the memory limit %lld; it counts both",
				 (long long)r->memory_swap_limit, (long long)r->memory_limit);
	if (is_v2(cg, CONTROLLER_MEMORY))
		return plan_memory_v2(r, list, err);
	if (r->memory_limit)
		setting_add(list, CONTROLLER_MEMORY, "memory.limit_in_bytes",
			    limit_text(r->memory_limit, "-1"))
			->kind = SETTING_MEMORY;
	if (r->memory_swap_limit) {
		s = setting_add(list, CONTROLLER_MEMORY, "memory.memsw.limit_in_bytes",
				limit_text(r->memory_swap_limit, "-1"));
		s->kind = SETTING_SWAP;
		s->is_optional = true;
	}
	return 0;
}

static int plan_pids(const struct cgroups *cg, const struct resources *r, struct setting_list *list,
		     struct error *err)
{
	if (!r->pids_limit)
		return 0;
	TRY(need(cg, CONTROLLER_PIDS, "pids", err));
	setting_add(list, CONTROLLER_PIDS, "pids.max", limit_text(r->pids_limit, "max"));
	return 0;
}

/* The kubelet sends one for each page size, needed or not: one of 0 needs no controller. */
static int plan_hugepages(const struct cgroups *cg, const struct resources *r,
			  struct setting_list *list, struct error *err)
{
	for (size_t i = 0; i < r->hugepage_limits.count; i++) {
		const struct key_value *kv = &r->hugepage_limits.items[i];
		size_t digits = strspn(kv->key, "0123456789");
		cleanup_free char *file = NULL;
		bool is_none;

		if (!digits || digits > 8 ||
		    (strcmp(kv->key + digits, "KB") && strcmp(kv->key + digits, "MB") &&
		     strcmp(kv->key + digits, "GB")))
			return error_set(err, ERR_INVALID,
					 "hugepage limit \"%.32s\": not a page size such as 2MB",
					 kv->key);
		if (!kv->value || !*kv->value || strlen(kv->value) > 20 ||
		    kv->value[strspn(kv->value, "0123456789")])
			return error_set(err, ERR_INVALID,
					 "hugepage limit %s: not a number of bytes", kv->key);
		is_none = strspn(kv->value, "0") == strlen(kv->value);
		if (is_none && cg->of[CONTROLLER_HUGETLB] < 0)
			continue;
		TRY(need(cg, CONTROLLER_HUGETLB, "hugepage", err));
		file = xasprintf(is_v2(cg, CONTROLLER_HUGETLB) ? "hugetlb.%s.max"
							       : "hugetlb.%s.limit_in_bytes",
				 kv->key);
		setting_add(list, CONTROLLER_HUGETLB, file, xstrdup(kv->value))->is_optional =
			is_none;
	}
	return 0;
}

static bool is_plain_text(const char *s)
{
	for (; *s; s++)
		if ((unsigned char)*s < ' ' || *s == 127)
			return false;
	return true;
}

/* cgroup.procs, cgroup.kill and the like are no limits; "cgroup" is no controller. */
static int plan_unified(const struct cgroups *cg, const struct resources *r,
			struct setting_list *list, struct error *err)
{
	if (r->unified.count && !cg->is_pure_v2)
		return error_set(
			err, ERR_INVALID,
			"unified limit %.64s: the node uses cgroup v1; boot it with v2 or do "
			"without",
			r->unified.items[0].key);
	for (size_t i = 0; i < r->unified.count; i++) {
		const struct key_value *kv = &r->unified.items[i];
		const char *dot = strchr(kv->key, '.');
		enum controller c =
			dot ? controller_find(kv->key, (size_t)(dot - kv->key)) : CONTROLLER_COUNT;

		if (c == CONTROLLER_COUNT || strchr(kv->key, '/') || strlen(kv->key) > 128 ||
		    !is_plain_text(kv->key))
			return error_set(
				err, ERR_INVALID,
				"unified limit \"%.64s\": not a file of a cgroup v2 controller",
				kv->key);
		if (!kv->value || strlen(kv->value) > VALUE_MAX || !is_plain_text(kv->value))
			return error_set(err, ERR_INVALID,
					 "unified limit %s: its value is too long or has control "
					 "characters",
					 kv->key);
		TRY(need(cg, c, kv->key, err));
		setting_add(list, c, kv->key, xstrdup(kv->value));
	}
	return 0;
}

static int plan_all(const struct cgroups *cg, const struct resources *r, struct setting_list *list,
		    struct error *err)
{
	TRY(plan_cpu(cg, r, list, err));
	TRY(plan_cpuset_file(cg, "cpuset.cpus", r->cpuset_cpus, list, err));
	TRY(plan_cpuset_file(cg, "cpuset.mems", r->cpuset_mems, list, err));
	TRY(plan_memory(cg, r, list, err));
	TRY(plan_pids(cg, r, list, err));
	TRY(plan_hugepages(cg, r, list, err));
	return plan_unified(cg, r, list, err);
}

int limits_plan(const struct cgroups *cg, const struct resources *r, struct setting_list *ret,
		struct error *err)
{
	struct setting_list list = {0};
	int code = r ? plan_all(cg, r, &list, err) : 0;

	if (code < 0) {
		setting_list_done(&list);
		return code;
	}
	*ret = list;
	return 0;
}

/* What the kernel's refusal of a value means to the one who asked for it. */
static int refused(int sys, const struct setting *s, const char *path, struct error *err)
{
	if (sys == EINVAL || sys == ERANGE || sys == EDOM)
		return error_set(
			err, ERR_INVALID,
			"%s of cgroup %s: the kernel refuses \"%s\"; look at the limits of "
			"the groups above and below",
			s->file, path, s->value);
	if (sys == ENOENT && s->controller == CONTROLLER_HUGETLB)
		return error_set(err, ERR_INVALID,
				 "%s of cgroup %s: the node has no pages of this size", s->file,
				 path);
	if (sys == EBUSY)
		return error_set(err, ERR_PRECONDITION,
				 "%s of cgroup %s: more than \"%s\" is in use and can't be freed",
				 s->file, path, s->value);
	return error_errno(err, sys, "write \"%s\" to %s of cgroup %s", s->value, s->file, path);
}

/* The kubelet limits swap everywhere, so a node that does not count it must do without. */
static void note_missing(const struct setting *s)
{
	static atomic_bool is_said;

	if (s->controller == CONTROLLER_MEMORY && strstr(s->file, "sw") &&
	    !atomic_exchange(&is_said, true))
		log_warning(
			"this node's kernel does not count swap (%s is missing): limits of swap "
			"have no effect",
			s->file);
}

/* The first word of cpu.max stays. */
static void complete_period(struct setting *s, const char *now)
{
	char *value = xasprintf("%.*s %s", (int)strcspn(now, " "), now, s->value);

	free(s->value);
	s->value = value;
}

/* v2 has a word for it, v1 wants a copy. */
static int inherit(const struct cgroups *cg, int dir, struct setting *s, const char *path,
		   struct error *err)
{
	cleanup_free char *above = xasprintf("../%s", s->file);
	ssize_t n;

	if (is_v2(cg, s->controller))
		return 0;
	free(s->value);
	s->value = xmalloc(VALUE_MAX);
	n = cgroup_read(dir, above, s->value, VALUE_MAX);
	return n < 0 ? error_errno(err, (int)-n, "read %s above cgroup %s", s->file, path) : 0;
}

static int write_setting(const struct cgroups *cg, const int *dirs, const char *path,
			 struct setting *s, bool keep, struct error *err)
{
	int dir = dirs[cg->of[s->controller]], r;
	cleanup_free char *now = NULL;

	if (s->kind == SETTING_INHERIT)
		TRY(inherit(cg, dir, s, path, err));
	if (keep || s->kind == SETTING_MAX_PERIOD) {
		ssize_t n = cgroup_read(dir, s->file, now = xmalloc(VALUE_MAX), VALUE_MAX);

		if (n == -ENOENT && s->is_optional) {
			note_missing(s);
			return 0;
		}
		/* some files (memory.reclaim) can't be read, so they have nothing to be put back */
		if (n >= 0 && keep)
			s->old = xstrdup(now);
		if (n >= 0 && s->kind == SETTING_MAX_PERIOD)
			complete_period(s, now);
	}
	r = cgroup_write(dir, s->file, s->value);
	if (r == -ENOENT && s->is_optional) {
		note_missing(s);
		return 0;
	}
	return r < 0 ? refused(-r, s, path, err) : 0;
}

static void put_back(const struct cgroups *cg, const int *dirs, struct setting_list *list,
		     size_t count)
{
	while (count--) {
		const struct setting *s = &list->items[count];

		if (s->old)
			(void)cgroup_write(dirs[cg->of[s->controller]], s->file, s->old);
	}
}

static int write_all(const struct cgroups *cg, const int *dirs, const char *path,
		     struct setting_list *list, bool keep, struct error *err)
{
	for (size_t i = 0; i < list->count; i++) {
		int r = write_setting(cg, dirs, path, &list->items[i], keep, err);

		if (r < 0) {
			put_back(cg, dirs, list, i);
			return r;
		}
	}
	return 0;
}

int limits_apply(const struct cgroups *cg, const char *path, struct setting_list *list, bool keep,
		 struct error *err)
{
	int dirs[CGROUP_JOIN_MAX], r = 0;

	for (size_t i = 0; i < cg->count; i++)
		dirs[i] = -1;
	for (size_t i = 0; i < list->count && r == 0; i++) {
		int *dir = &dirs[cg->of[list->items[i].controller]];

		if (*dir < 0)
			*dir = cgroup_open(&cg->hierarchies[cg->of[list->items[i].controller]],
					   path);
		if (*dir == -ENOENT)
			r = error_set(err, ERR_PRECONDITION, "limits of cgroup %s: it is gone",
				      path);
		else if (*dir < 0)
			r = error_errno(err, -*dir, "open cgroup %s", path);
	}
	if (r == 0) {
		cgroup_v1_order(cg, dirs, list);
		r = write_all(cg, dirs, path, list, keep, err);
	}
	for (size_t i = 0; i < cg->count; i++)
		close_fd(dirs[i]);
	return r;
}
