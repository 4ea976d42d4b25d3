/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A region of memory that is dropped at once: decoded requests, the strings of a reply. An arena
 * has a cap, since 16 MiB of empty protobuf submessages would unpack to more than 1 GiB. Nothing
 * durable may point into an arena.
 */
#pragma once

#include <stddef.h>

struct arena;

struct arena *arena_new(size_t cap);
/* For what is kept: its first block has room for size bytes, and no more. */
struct arena *arena_new_fit(size_t cap, size_t size);
void arena_free(struct arena *a);

static inline void cleanup_arena_fn(struct arena **a)
{
	arena_free(*a);
}

/* Zeroed, 16-byte aligned; NULL when the cap would be passed. */
void *arena_try(struct arena *a, size_t size);
/* The same for sizes that the program chose itself: the cap does not apply. */
void *arena_alloc(struct arena *a, size_t size) __attribute__((returns_nonnull));
char *arena_strdup(struct arena *a, const char *s) __attribute__((returns_nonnull));
char *arena_printf(struct arena *a, const char *format, ...)
	__attribute__((format(printf, 2, 3), returns_nonnull));
/* Bytes handed out. */
size_t arena_used(const struct arena *a);

#define arena_new_array(a, type, n) ((type *)arena_alloc(a, sizeof(type) * (n)))
