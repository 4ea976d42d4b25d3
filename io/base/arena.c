/* SPDX-License-Identifier: Apache-2.0 */
/* Arena: a chain of blocks that grow from 4 to 256 KiB; larger requests get their own block. */
#include "io/base/arena.h"
#include "io/base/alloc.h"

#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct block {
	struct block *next;
	size_t size, used;
	char data[] __attribute__((aligned(16)));
};

struct arena {
	struct block *blocks; /* the first one is being filled */
	size_t cap, used, next_size;
};

struct arena *arena_new(size_t cap)
{
	struct arena *a = xnew(struct arena);

	a->cap = cap;
	a->next_size = 4096 - sizeof(struct block);
	return a;
}

static struct block *add_block(struct arena *a, size_t size)
{
	struct block *b = xcalloc(1, sizeof(*b) + size);

	b->size = size;
	/* an oversize block is full at once, so it goes behind the one being filled */
	if (a->blocks && size > a->next_size) {
		b->next = a->blocks->next;
		a->blocks->next = b;
	} else {
		b->next = a->blocks;
		a->blocks = b;
	}
	return b;
}

struct arena *arena_new_fit(size_t cap, size_t size)
{
	struct arena *a = arena_new(cap);

	add_block(a, (size + 15) & ~(size_t)15);
	return a;
}

void arena_free(struct arena *a)
{
	if (!a)
		return;
	for (struct block *b = a->blocks, *next; b; b = next) {
		next = b->next;
		free(b);
	}
	free(a);
}

void *arena_alloc(struct arena *a, size_t size)
{
	struct block *b = a->blocks;
	void *p;

	if (size > SIZE_MAX / 2)
		abort();
	size = (size + 15) & ~(size_t)15;
	if (!b || b->size - b->used < size) {
		if (size > a->next_size) {
			b = add_block(a, size);
		} else {
			b = add_block(a, a->next_size);
			if (a->next_size < 256 * 1024)
				a->next_size *= 2;
		}
	}
	p = b->data + b->used;
	b->used += size;
	a->used += size;
	return p;
}

void *arena_try(struct arena *a, size_t size)
{
	if (size > a->cap || a->used > a->cap - size)
		return NULL;
	return arena_alloc(a, size);
}

char *arena_strdup(struct arena *a, const char *s)
{
	size_t n = strlen(s) + 1;

	return memcpy(arena_alloc(a, n), s, n);
}

char *arena_printf(struct arena *a, const char *format, ...)
{
	va_list args;
	char *s;
	int n;

	va_start(args, format);
	n = vsnprintf(NULL, 0, format, args);
	va_end(args);
	if (n < 0)
		abort();
	s = arena_alloc(a, (size_t)n + 1);
	va_start(args, format);
	vsnprintf(s, (size_t)n + 1, format, args);
	va_end(args);
	return s;
}

size_t arena_used(const struct arena *a)
{
	return a->used;
}
