/* SPDX-License-Identifier: Apache-2.0 */
/* Limits of a whole pod: what the sums of resources and overhead are, and what updates make of
 * them. Peculiar: an update is stored as a request with both, as a caller might have sent it. */
#include "cri/canonical.h"
#include "cri/packed.h"
#include "cri/translate_priv.h"

#include <stdlib.h>
#include <string.h>

typedef Runtime__V1__LinuxContainerResources Resources;
typedef Runtime__V1__UpdatePodSandboxResourcesRequest Update;

#define CPU_PERIOD_US 100000

static int refuse(const char *prefix, const char *field, const char *why, struct error *err)
{
	return error_set(err, ERR_INVALID, "%s%s: %s; leave it out", prefix, field, why);
}

static int check_part(const char *prefix, const char *name, const Resources *r, struct error *err)
{
	char field[64];

	if (!r)
		return 0;
	snprintf(field, sizeof(field), "%s%s", prefix, name);
	TRY(translate_check_resources(field, r, err));
	return r->oom_score_adj ? refuse(field, ".oom_score_adj",
					 "no process is the pod's own to have it", err)
				: 0;
}

int translate_check_pod_limits(const char *prefix, const struct pod_limits *limits, bool has_parent,
			       struct error *err)
{
	const Resources *o = limits->overhead;
	const char *why = "an overhead is added to the limits of the pod, and this can't be";

	TRY(check_part(prefix, "overhead", o, err));
	TRY(check_part(prefix, "resources", limits->resources, err));
	if (!o || has_parent)
		return 0;
	if (*o->cpuset_cpus)
		return refuse(prefix, "overhead.cpuset_cpus", why, err);
	if (*o->cpuset_mems)
		return refuse(prefix, "overhead.cpuset_mems", why, err);
	return o->n_unified ? refuse(prefix, "overhead.unified", why, err) : 0;
}

static bool has_parent(struct arena *arena, const struct sandbox *sb)
{
	const SandboxConfig *config = sandbox_config(arena, sb);

	return config->linux && *config->linux->cgroup_parent;
}

static Update *decode(struct arena *arena, const struct buf *bytes)
{
	return packed_decode(arena, &runtime__v1__update_pod_sandbox_resources_request__descriptor,
			     bytes);
}

static struct pod_limits limits_of(struct arena *arena, const struct sandbox *sb,
				   const struct buf *bytes)
{
	const SandboxConfig *config;

	if (bytes->length) {
		const Update *update = decode(arena, bytes);

		return (struct pod_limits){update->overhead, update->resources};
	}
	config = sandbox_config(arena, sb);
	if (config->linux)
		return (struct pod_limits){config->linux->overhead, config->linux->resources};
	return (struct pod_limits){0};
}

struct pod_limits translate_pod_limits_of(struct arena *arena, const struct sandbox *sb)
{
	return limits_of(arena, sb, &sb->limits.bytes);
}

/* What has no limit stays so. */
static void add(int64_t *limit, int64_t more)
{
	if (*limit > 0 && more > 0 && __builtin_add_overflow(*limit, more, limit))
		*limit = INT64_MAX;
}

static void add_quota(struct resources *to, const struct resources *more)
{
	double period = (double)(to->cpu_period_us ?: CPU_PERIOD_US);
	double other = (double)(more->cpu_period_us ?: CPU_PERIOD_US);

	add(&to->cpu_quota_us, (int64_t)((double)more->cpu_quota_us * period / other));
}

static void add_hugepages(struct arena *arena, struct key_value_list *to,
			  const struct key_value_list *more)
{
	for (size_t i = 0; i < to->count; i++) {
		for (size_t k = 0; k < more->count; k++) {
			uint64_t sum;

			if (strcmp(to->items[i].key, more->items[k].key) != 0)
				continue;
			if (__builtin_add_overflow(strtoull(to->items[i].value, NULL, 10),
						   strtoull(more->items[k].value, NULL, 10), &sum))
				sum = UINT64_MAX;
			to->items[i].value = arena_printf(arena, "%llu", (unsigned long long)sum);
		}
	}
}

static void spec_of(struct arena *arena, const void *object, const struct buf *bytes,
		    struct resources *ret)
{
	struct pod_limits limits = limits_of(arena, object, bytes);
	struct resources more = {0};

	if (!limits.resources)
		return;
	translate_resources(arena, limits.resources, ret);
	if (!limits.overhead)
		return;
	translate_resources(arena, limits.overhead, &more);
	add(&ret->memory_limit, more.memory_limit);
	/* where it says nothing of swap, it means none */
	add(&ret->memory_swap_limit, more.memory_swap_limit ?: more.memory_limit);
	add_quota(ret, &more);
	if (ret->cpu_shares)
		ret->cpu_shares += more.cpu_shares;
	add_hugepages(arena, &ret->hugepage_limits, &more.hugepage_limits);
}

static int check(struct arena *arena, const struct buf *bytes, struct error *err)
{
	if (decode(arena, bytes))
		return 0;
	return error_set(err, ERR_INTERNAL, "stored UpdatePodSandboxResourcesRequest: damaged");
}

static int merge(struct arena *arena, const void *object, const void *change, struct buf *ret,
		 struct error *err)
{
	const struct sandbox *sb = object;
	const Update *new = change;
	struct pod_limits held = translate_pod_limits_of(arena, sb);
	struct pod_limits wanted = {new->overhead, new->resources};
	Update all = RUNTIME__V1__UPDATE_POD_SANDBOX_RESOURCES_REQUEST__INIT;
	Resources overhead, resources;

	TRY(translate_check_pod_limits("", &wanted, has_parent(arena, sb), err));
	TRY(translate_merge_resources(arena, "overhead", held.overhead, wanted.overhead, &overhead,
				      err));
	TRY(translate_merge_resources(arena, "resources", held.resources, wanted.resources,
				      &resources, err));
	all.overhead = held.overhead || wanted.overhead ? &overhead : NULL;
	all.resources = held.resources || wanted.resources ? &resources : NULL;
	canonical_pack(&all.base, ret);
	return 0;
}

const struct limits_front translate_sandbox_limits = {check, spec_of, merge};
