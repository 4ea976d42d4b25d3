/* SPDX-License-Identifier: Apache-2.0 */
/* What can be told from figures alone. */
#include "sandbox/usage.h"

#include <stdlib.h>

#define RATE_MIN_NS 1000000000

void usage_init(struct usage *u)
{
	*u = (struct usage){0};
	for (int i = 0; i < USAGE_COUNT; i++)
		u->figures[i] = USAGE_NONE;
}

uint64_t usage_working_set(const struct usage *u)
{
	uint64_t used = u->figures[USAGE_MEMORY], file = u->figures[USAGE_MEMORY_INACTIVE_FILE];

	if (used == USAGE_NONE || file == USAGE_NONE)
		return used;
	return used > file ? used - file : 0;
}

static bool is_sum(enum usage_figure figure)
{
	return figure != USAGE_MEMORY_LIMIT && figure != USAGE_SWAP_LIMIT &&
	       figure != USAGE_TASKS_LIMIT && figure != USAGE_MEMORY_PEAK;
}

void usage_add(struct usage *to, const struct usage *u)
{
	if (u->at > to->at)
		to->at = u->at;
	for (enum usage_figure i = 0; i < USAGE_COUNT; i++) {
		if (u->figures[i] == USAGE_NONE || !is_sum(i))
			continue;
		if (to->figures[i] == USAGE_NONE)
			to->figures[i] = 0;
		to->figures[i] += u->figures[i];
	}
}

void net_list_done(struct net_list *list)
{
	free(list->items);
	*list = (struct net_list){0};
}

uint64_t usage_left(uint64_t limit, uint64_t used)
{
	if (limit == USAGE_NONE || used == USAGE_NONE)
		return USAGE_NONE;
	return limit > used ? limit - used : 0;
}

uint64_t cpu_rate_add(struct cpu_rate *r, int64_t at, uint64_t cpu)
{
	int64_t passed = at - r->at;

	/* the clock was set back, or the container began anew */
	if (!r->at || passed < 0 || cpu < r->cpu) {
		*r = (struct cpu_rate){.at = at, .cpu = cpu};
		return USAGE_NONE;
	}
	if (passed >= RATE_MIN_NS) {
		r->per_second = (uint64_t)((double)(cpu - r->cpu) * 1e9 / (double)passed);
		*r = (struct cpu_rate){at, cpu, r->per_second, true};
	}
	return r->is_known ? r->per_second : USAGE_NONE;
}
