/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Hash map from string to pointer: open addressing, insertion order is not kept. The map owns
 * copies of its keys and nothing of its values. Hashes are seeded per process, since keys (labels,
 * names, image references) come from outside.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>

struct map_slot {
	char *key; /* NULL: never used; MAP_TOMBSTONE: removed */
	void *value;
	unsigned hash;
};

struct map {
	struct map_slot *slots;
	size_t capacity; /* a power of two, or 0 */
	size_t count;
	size_t used; /* count and tombstones */
};

void map_done(struct map *m);
void *map_get(const struct map *m, const char *key);
/* Sets or replaces; value must not be NULL. Returns the old value or NULL. */
void *map_put(struct map *m, const char *key, void *value);
/* Returns the removed value or NULL. */
void *map_remove(struct map *m, const char *key);
/* The next used slot at or after *index, which is advanced past it; NULL at the end. The map may
 * lose (not gain) elements meanwhile. */
struct map_slot *map_next(const struct map *m, size_t *index);

#define map_for_each(slot, m)                                                                      \
	for (size_t slot##_index = 0, slot##_once = 1; slot##_once; slot##_once = 0)               \
		for (struct map_slot * slot; (slot = map_next(m, &slot##_index));)
