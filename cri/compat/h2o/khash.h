/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What h2o/http2_internal.h needs of klib's khash, which Debian does not ship: the layout of a map
 * from 64-bit integers (klib 0.2.8, as compiled into libh2o) and a look-up in it. On the include
 * path of cri/grpc_h2o.c only, which checks every look-up of a new stream against the stream
 * itself.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

typedef uint32_t khiter_t;

/* Two flag bits a bucket: 2 never used, 1 deleted. */
static inline unsigned kh_flags(const uint32_t *flags, uint32_t i)
{
	return (flags[i / 16] >> (i % 16 * 2)) & 3;
}

/* The bucket of key, or count when there is none. Buckets are probed at triangular distances. */
static inline uint32_t kh_find(const uint32_t *flags, const uint64_t *keys, uint32_t count,
			       uint64_t key)
{
	uint32_t hash = (uint32_t)(key >> 33 ^ key ^ key << 11), i;

	if (!count)
		return 0;
	i = hash & (count - 1);
	for (uint32_t step = 1; step <= count; step++) {
		unsigned flag = kh_flags(flags, i);

		if (flag & 2)
			return count;
		if (!flag && keys[i] == key)
			return i;
		i = (i + step) & (count - 1);
	}
	return count;
}

#define khash_t(name) struct kh_##name
#define KHASH_MAP_INIT_INT64(name, type)                                                           \
	khash_t(name)                                                                              \
	{                                                                                          \
		uint32_t n_buckets, size, n_occupied, upper_bound;                                 \
		uint32_t *flags;                                                                   \
		uint64_t *keys;                                                                    \
		type *vals;                                                                        \
	};
#define kh_get(name, map, key) kh_find((map)->flags, (map)->keys, (map)->n_buckets, key)
#define kh_end(map) ((map)->n_buckets)
#define kh_val(map, i) ((map)->vals[i])
