/* SPDX-License-Identifier: Apache-2.0 */
/* LinuxContainerResources: which can be had, what they mean, and what an update makes of them. */
#include "cri/canonical.h"
#include "cri/packed.h"
#include "cri/translate_priv.h"

#include <string.h>

typedef Runtime__V1__LinuxContainerResources Resources;
typedef Runtime__V1__LinuxContainerResources__UnifiedEntry UnifiedEntry;

/* What the kernel's bandwidth control takes (Documentation/scheduler/sched-bwc.rst). */
#define CPU_PERIOD_MIN_US 1000
#define CPU_PERIOD_MAX_US 1000000
#define CPU_QUOTA_MIN_US 1000
#define OOM_SCORE_MAX 1000

/* One that is 0 was not given. */
static int check_range(const char *field, const char *name, int64_t value, int64_t min, int64_t max,
		       struct error *err)
{
	if (!value || (value >= min && value <= max))
		return 0;
	return error_set(err, ERR_INVALID, "%s.%s %lld: must be from %lld to %lld", field, name,
			 (long long)value, (long long)min, (long long)max);
}

static int check_limit(const char *field, const char *name, int64_t value, int64_t min,
		       struct error *err)
{
	if (value == 0 || value == -1 || value >= min)
		return 0;
	return error_set(err, ERR_INVALID,
			 "%s.%s %lld: must be at least %lld, or -1 for no limit at all", field,
			 name, (long long)value, (long long)min);
}

/* It counts memory too. */
int translate_check_swap(const char *field, const Resources *r, struct error *err)
{
	int64_t memory = r->memory_limit_in_bytes, swap = r->memory_swap_limit_in_bytes;

	if (swap <= 0 || (memory > 0 && swap >= memory))
		return 0;
	return error_set(err, ERR_INVALID,
			 "%s.memory_swap_limit_in_bytes %lld: it counts memory too, so it can't be "
			 "below %s.memory_limit_in_bytes, %lld; give both at once",
			 field, (long long)swap, field, (long long)memory);
}

int translate_check_resources(const char *field, const Resources *r, struct error *err)
{
	TRY(check_range(field, "cpu_period", r->cpu_period, CPU_PERIOD_MIN_US, CPU_PERIOD_MAX_US,
			err));
	TRY(check_limit(field, "cpu_quota", r->cpu_quota, CPU_QUOTA_MIN_US, err));
	TRY(check_range(field, "cpu_shares", r->cpu_shares, 1, INT64_MAX, err));
	TRY(check_limit(field, "memory_limit_in_bytes", r->memory_limit_in_bytes, 1, err));
	TRY(check_limit(field, "memory_swap_limit_in_bytes", r->memory_swap_limit_in_bytes, 1,
			err));
	return check_range(field, "oom_score_adj", r->oom_score_adj, -OOM_SCORE_MAX, OOM_SCORE_MAX,
			   err);
}

void translate_resources(struct arena *arena, const Resources *r, struct resources *ret)
{
	*ret = (struct resources){
		.cpu_shares = (uint64_t)r->cpu_shares,
		.cpu_quota_us = r->cpu_quota,
		.cpu_period_us = (uint64_t)r->cpu_period,
		.cpuset_cpus = null_if_empty(r->cpuset_cpus),
		.cpuset_mems = null_if_empty(r->cpuset_mems),
		.memory_limit = r->memory_limit_in_bytes,
		.memory_swap_limit = r->memory_swap_limit_in_bytes,
		.oom_score_adj = r->oom_score_adj,
		.unified.items = arena_new_array(arena, struct key_value, r->n_unified),
		.hugepage_limits.items =
			arena_new_array(arena, struct key_value, r->n_hugepage_limits),
	};
	for (size_t i = 0; i < r->n_unified; i++)
		ret->unified.items[ret->unified.count++] =
			(struct key_value){r->unified[i]->key, r->unified[i]->value};
	for (size_t i = 0; i < r->n_hugepage_limits; i++)
		ret->hugepage_limits.items[ret->hugepage_limits.count++] = (struct key_value){
			r->hugepage_limits[i]->page_size,
			arena_printf(arena, "%llu",
				     (unsigned long long)r->hugepage_limits[i]->limit)};
}

static Resources *decode(struct arena *arena, const struct buf *bytes)
{
	return packed_decode(arena, &runtime__v1__linux_container_resources__descriptor, bytes);
}

static const Resources *resources_of(struct arena *arena, const struct container *c,
				     const struct buf *bytes)
{
	const Runtime__V1__ContainerConfig *config;

	if (bytes->length)
		return decode(arena, bytes);
	config = container_config(arena, c);
	return config->linux ? config->linux->resources : NULL;
}

const Resources *translate_resources_of(struct arena *arena, const struct container *c)
{
	return resources_of(arena, c, &c->limits.bytes);
}

static void merge_unified(struct arena *arena, const Resources *change, Resources *r)
{
	UnifiedEntry **all =
		arena_new_array(arena, UnifiedEntry *, r->n_unified + change->n_unified);
	size_t count = 0;

	for (size_t i = 0; i < r->n_unified; i++)
		all[count++] = r->unified[i];
	for (size_t i = 0; i < change->n_unified; i++) {
		size_t at = 0;

		while (at < count && strcmp(all[at]->key, change->unified[i]->key) != 0)
			at++;
		all[at] = change->unified[i];
		count += at == count;
	}
	r->unified = all;
	r->n_unified = count;
}

static void merge_hugepages(struct arena *arena, const Resources *change, Resources *r)
{
	Runtime__V1__HugepageLimit **all =
		arena_new_array(arena, Runtime__V1__HugepageLimit *,
				r->n_hugepage_limits + change->n_hugepage_limits);
	size_t count = 0;

	for (size_t i = 0; i < r->n_hugepage_limits; i++)
		all[count++] = r->hugepage_limits[i];
	for (size_t i = 0; i < change->n_hugepage_limits; i++) {
		size_t at = 0;

		while (at < count &&
		       strcmp(all[at]->page_size, change->hugepage_limits[i]->page_size) != 0)
			at++;
		all[at] = change->hugepage_limits[i];
		count += at == count;
	}
	r->hugepage_limits = all;
	r->n_hugepage_limits = count;
}

static void take(int64_t *field, int64_t value)
{
	if (value)
		*field = value;
}

int translate_merge_resources(struct arena *arena, const char *field, const Resources *held,
			      const Resources *new, Resources *ret, struct error *err)
{
	Resources r = RUNTIME__V1__LINUX_CONTAINER_RESOURCES__INIT;

	if (held)
		r = *held;
	*ret = r;
	if (!new)
		return 0;
	take(&r.cpu_period, new->cpu_period);
	take(&r.cpu_quota, new->cpu_quota);
	take(&r.cpu_shares, new->cpu_shares);
	take(&r.memory_limit_in_bytes, new->memory_limit_in_bytes);
	take(&r.memory_swap_limit_in_bytes, new->memory_swap_limit_in_bytes);
	take(&r.oom_score_adj, new->oom_score_adj);
	if (*new->cpuset_cpus)
		r.cpuset_cpus = new->cpuset_cpus;
	if (*new->cpuset_mems)
		r.cpuset_mems = new->cpuset_mems;
	merge_unified(arena, new, &r);
	merge_hugepages(arena, new, &r);
	TRY(translate_check_swap(field, &r, err));
	*ret = r;
	return 0;
}

const Resources *translate_limits_now(struct arena *arena, const Resources *held,
				      const struct limits_now *now)
{
	Resources *r = arena_alloc(arena, sizeof(*r));

	*r = (Resources)RUNTIME__V1__LINUX_CONTAINER_RESOURCES__INIT;
	if (held)
		*r = *held;
	r->cpu_shares = (int64_t)now->cpu_shares;
	r->cpu_quota = now->cpu_quota_us;
	r->cpu_period = (int64_t)now->cpu_period_us;
	r->memory_limit_in_bytes = now->memory_limit;
	r->memory_swap_limit_in_bytes = now->memory_swap_limit;
	r->oom_score_adj = now->oom_score_adj;
	r->cpuset_cpus = arena_strdup(arena, now->cpuset_cpus);
	r->cpuset_mems = arena_strdup(arena, now->cpuset_mems);
	return held || protobuf_c_message_get_packed_size(&r->base) ? r : NULL;
}

static int check(struct arena *arena, const struct buf *bytes, struct error *err)
{
	if (decode(arena, bytes))
		return 0;
	return error_set(err, ERR_INTERNAL, "stored LinuxContainerResources: damaged");
}

static void spec_of(struct arena *arena, const void *object, const struct buf *bytes,
		    struct resources *ret)
{
	const Resources *r = resources_of(arena, object, bytes);

	if (r)
		translate_resources(arena, r, ret);
}

static int merge(struct arena *arena, const void *object, const void *change, struct buf *ret,
		 struct error *err)
{
	Resources r;

	TRY(translate_merge_resources(arena, "linux", translate_resources_of(arena, object), change,
				      &r, err));
	canonical_pack(&r.base, ret);
	return 0;
}

const struct limits_front translate_container_limits = {check, spec_of, merge};
