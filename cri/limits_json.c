/* SPDX-License-Identifier: Apache-2.0 */
/* Limits for people, in the verbose part of a status: under the API's names, what was not given
 * left out. */
#include "cri/reply.h"

#include "io/base/json.h"

typedef Runtime__V1__LinuxContainerResources Resources;

static void add_number(json_t *to, const char *name, int64_t value)
{
	if (value)
		json_object_set_new(to, name, json_integer(value));
}

static void add_text(json_t *to, const char *name, const char *value)
{
	if (*value)
		json_object_set_new(to, name, json_string(value));
}

static void add_lists(json_t *to, const Resources *r)
{
	json_t *pages = json_object(), *unified = json_object();

	for (size_t i = 0; i < r->n_hugepage_limits; i++)
		json_object_set_new(pages, r->hugepage_limits[i]->page_size,
				    json_integer((json_int_t)r->hugepage_limits[i]->limit));
	for (size_t i = 0; i < r->n_unified; i++)
		add_text(unified, r->unified[i]->key, r->unified[i]->value);
	if (json_object_size(pages))
		json_object_set(to, "hugepage_limits", pages);
	if (json_object_size(unified))
		json_object_set(to, "unified", unified);
	json_decref(pages);
	json_decref(unified);
}

const char *reply_limits_json(struct arena *arena, const Resources *r)
{
	json_t *all = json_object();
	char *text;
	const char *result;

	if (r) {
		add_number(all, "cpu_shares", r->cpu_shares);
		add_number(all, "cpu_quota", r->cpu_quota);
		add_number(all, "cpu_period", r->cpu_period);
		add_text(all, "cpuset_cpus", r->cpuset_cpus);
		add_text(all, "cpuset_mems", r->cpuset_mems);
		add_number(all, "memory_limit_in_bytes", r->memory_limit_in_bytes);
		add_number(all, "memory_swap_limit_in_bytes", r->memory_swap_limit_in_bytes);
		add_number(all, "oom_score_adj", r->oom_score_adj);
		add_lists(all, r);
	}
	text = json_dumps(all, JSON_COMPACT);
	result = arena_strdup(arena, text ? text : "{}");
	free(text);
	json_decref(all);
	return result;
}
