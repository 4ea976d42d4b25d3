/* SPDX-License-Identifier: Apache-2.0 */
/* Growing byte buffer. */
#include "io/base/buf.h"
#include "io/base/alloc.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void buf_done(struct buf *b)
{
	free(b->data);
	*b = (struct buf){0};
}

char *buf_reserve(struct buf *b, size_t n)
{
	if (b->length + n + 1 > b->capacity) {
		size_t capacity = b->capacity ? b->capacity * 2 : 256;

		while (capacity < b->length + n + 1)
			capacity *= 2;
		b->data = xrealloc(b->data, capacity);
		b->capacity = capacity;
		b->data[b->length] = 0;
	}
	return b->data + b->length;
}

void buf_append(struct buf *b, const void *data, size_t n)
{
	char *to = buf_reserve(b, n);

	if (n)
		memcpy(to, data, n);
	b->length += n;
	b->data[b->length] = 0;
}

void buf_set(struct buf *b, const void *data, size_t n)
{
	buf_done(b);
	if (!n)
		return;
	b->data = xmalloc(n + 1);
	memcpy(b->data, data, n);
	b->data[n] = 0;
	b->length = n;
	b->capacity = n + 1;
}

void buf_puts(struct buf *b, const char *s)
{
	buf_append(b, s, strlen(s));
}

void buf_printf(struct buf *b, const char *format, ...)
{
	va_list args;
	int n;

	va_start(args, format);
	n = vsnprintf(NULL, 0, format, args);
	va_end(args);
	if (n < 0)
		abort();
	buf_reserve(b, (size_t)n);
	va_start(args, format);
	vsnprintf(b->data + b->length, (size_t)n + 1, format, args);
	va_end(args);
	b->length += (size_t)n;
}

void buf_consume(struct buf *b, size_t n)
{
	if (n >= b->length) {
		b->length = 0;
	} else {
		memmove(b->data, b->data + n, b->length - n);
		b->length -= n;
	}
	if (b->data)
		b->data[b->length] = 0;
}

char *buf_take(struct buf *b)
{
	char *s = buf_reserve(b, 0) - b->length;

	*b = (struct buf){0};
	return s;
}
