/* SPDX-License-Identifier: Apache-2.0 */
/* String map with linear probing. Peculiar: removed slots stay as tombstones until it grows. */
#include "io/base/map.h"
#include "io/base/alloc.h"

#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

static char tombstone[1];

static unsigned hash_of(const char *key)
{
	static unsigned seed;
	unsigned h;

	while (!seed)
		if (getrandom(&seed, sizeof(seed), GRND_NONBLOCK) < 0)
			seed = 1;
	h = seed;
	for (; *key; key++)
		h = (h ^ (unsigned char)*key) * 16777619u;
	return h ^ h >> 15;
}

static bool is_live(const struct map_slot *s)
{
	return s->key && s->key != tombstone;
}

static struct map_slot *find(const struct map *m, const char *key, unsigned hash)
{
	for (size_t i = hash; m->capacity; i++) {
		struct map_slot *s = &m->slots[i & (m->capacity - 1)];

		if (!s->key)
			break;
		if (s->key != tombstone && s->hash == hash && !strcmp(s->key, key))
			return s;
	}
	return NULL;
}

static void insert(struct map *m, char *key, unsigned hash, void *value)
{
	size_t i = hash;

	while (m->slots[i & (m->capacity - 1)].key)
		i++;
	m->slots[i & (m->capacity - 1)] = (struct map_slot){key, value, hash};
	m->count++;
	m->used++;
}

static void rehash(struct map *m)
{
	struct map old = *m;

	m->capacity = 16;
	while (m->capacity < old.count * 2 + 2)
		m->capacity *= 2;
	m->slots = xcalloc(m->capacity, sizeof(*m->slots));
	m->count = m->used = 0;
	for (size_t i = 0; i < old.capacity; i++)
		if (is_live(&old.slots[i]))
			insert(m, old.slots[i].key, old.slots[i].hash, old.slots[i].value);
	free(old.slots);
}

void map_done(struct map *m)
{
	for (size_t i = 0; i < m->capacity; i++)
		if (is_live(&m->slots[i]))
			free(m->slots[i].key);
	free(m->slots);
	*m = (struct map){0};
}

void *map_get(const struct map *m, const char *key)
{
	struct map_slot *s = find(m, key, hash_of(key));

	return s ? s->value : NULL;
}

void *map_put(struct map *m, const char *key, void *value)
{
	unsigned hash = hash_of(key);
	struct map_slot *s = find(m, key, hash);

	if (s) {
		void *old = s->value;

		s->value = value;
		return old;
	}
	if ((m->used + 1) * 4 > m->capacity * 3)
		rehash(m);
	insert(m, xstrdup(key), hash, value);
	return NULL;
}

void *map_remove(struct map *m, const char *key)
{
	struct map_slot *s = find(m, key, hash_of(key));

	if (!s)
		return NULL;
	free(s->key);
	s->key = tombstone;
	m->count--;
	return s->value;
}

struct map_slot *map_next(const struct map *m, size_t *index)
{
	while (*index < m->capacity) {
		struct map_slot *s = &m->slots[(*index)++];

		if (is_live(s))
			return s;
	}
	return NULL;
}
