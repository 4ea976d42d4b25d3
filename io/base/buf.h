/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A growing byte buffer. data is NUL-terminated behind length whenever it is not NULL, so it can be
 * read as a string when it holds no NUL itself.
 */
#pragma once

#include <stddef.h>

struct buf {
	char *data;
	size_t length;
	size_t capacity;
};

void buf_done(struct buf *b);
/* Makes room for n more bytes and returns where they go; the caller adds what it used to length. */
char *buf_reserve(struct buf *b, size_t n);
void buf_append(struct buf *b, const void *data, size_t n);
/* Exactly these bytes in the place of what it had, for what is kept long; nothing is allocated for
 * none. */
void buf_set(struct buf *b, const void *data, size_t n);
void buf_puts(struct buf *b, const char *s);
void buf_printf(struct buf *b, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* Drops the first n bytes. */
void buf_consume(struct buf *b, size_t n);
/* The string, now the caller's; "" for an empty buffer. */
char *buf_take(struct buf *b);
