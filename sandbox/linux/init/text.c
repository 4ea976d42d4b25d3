/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the helper needs of the C library's string functions, under their own names (init/calls.c
 * says why). Peculiar: the compiler must not find a loop in here that looks like one of these
 * functions and call it. snprintf() knows %d, %u, %s and %.*s; anything else ends it with -1.
 */
#undef _FORTIFY_SOURCE
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

void *memcpy(void *restrict to, const void *restrict from, size_t n)
{
	char *t = to;
	const char *f = from;

	while (n--)
		*t++ = *f++;
	return to;
}

void *memset(void *to, int byte, size_t n)
{
	char *t = to;

	while (n--)
		*t++ = (char)byte;
	return to;
}

size_t strlen(const char *s)
{
	size_t n = 0;

	while (s[n])
		n++;
	return n;
}

char *strchr(const char *s, int c)
{
	while (*s != (char)c)
		if (!*s++)
			return NULL;
	return (char *)s;
}

char *strrchr(const char *s, int c)
{
	const char *found = NULL;

	do
		if (*s == (char)c)
			found = s;
	while (*s++);
	return (char *)found;
}

int strncmp(const char *a, const char *b, size_t n)
{
	for (; n; n--, a++, b++)
		if (*a != *b || !*a)
			return (unsigned char)*a - (unsigned char)*b;
	return 0;
}

int strcmp(const char *a, const char *b)
{
	return strncmp(a, b, SIZE_MAX);
}

char *strncpy(char *restrict to, const char *restrict from, size_t n)
{
	size_t i = 0;

	for (; i < n && from[i]; i++)
		to[i] = from[i];
	for (; i < n; i++)
		to[i] = '\0';
	return to;
}

size_t strcspn(const char *s, const char *reject)
{
	size_t n = 0;

	while (s[n] && !strchr(reject, s[n]))
		n++;
	return n;
}

size_t strspn(const char *s, const char *accept)
{
	size_t n = 0;

	while (s[n] && strchr(accept, s[n]))
		n++;
	return n;
}

char *strsep(char **restrict rest, const char *restrict separators)
{
	char *one = *rest;
	size_t n;

	if (!one)
		return NULL;
	n = strcspn(one, separators);
	*rest = one[n] ? one + n + 1 : NULL;
	one[n] = '\0';
	return one;
}

/* What was written, and what would have been: as snprintf(3) counts. */
struct output {
	char *to;
	size_t size, n;
};

static void put(struct output *o, const char *text, size_t length)
{
	for (size_t i = 0; i < length; i++, o->n++)
		if (o->n + 1 < o->size)
			o->to[o->n] = text[i];
}

static void put_number(struct output *o, unsigned long value)
{
	char digits[20];
	size_t at = sizeof(digits);

	do {
		digits[--at] = (char)('0' + value % 10);
		value /= 10;
	} while (value);
	put(o, digits + at, sizeof(digits) - at);
}

static void put_signed(struct output *o, long value)
{
	if (value < 0)
		put(o, "-", 1);
	put_number(o, value < 0 ? 0 - (unsigned long)value : (unsigned long)value);
}

int vsnprintf(char *restrict to, size_t size, const char *restrict format, va_list args)
{
	struct output o = {.to = to, .size = size};

	while (*format) {
		size_t plain = strcspn(format, "%");
		const char *text;

		put(&o, format, plain);
		format += plain;
		if (strncmp(format, "%d", 2) == 0) {
			put_signed(&o, va_arg(args, int));
			format += 2;
		} else if (strncmp(format, "%u", 2) == 0) {
			put_number(&o, va_arg(args, unsigned));
			format += 2;
		} else if (strncmp(format, "%s", 2) == 0) {
			text = va_arg(args, const char *);
			put(&o, text, strlen(text));
			format += 2;
		} else if (strncmp(format, "%.*s", 4) == 0) {
			size_t most = (size_t)va_arg(args, int), length = 0;

			text = va_arg(args, const char *);
			while (length < most && text[length])
				length++;
			put(&o, text, length);
			format += 4;
		} else if (*format) {
			return -1;
		}
	}
	if (size)
		to[o.n < size ? o.n : size - 1] = '\0';
	return (int)o.n;
}

int snprintf(char *restrict to, size_t size, const char *restrict format, ...)
{
	va_list args;
	int n;

	va_start(args, format);
	n = vsnprintf(to, size, format, args);
	va_end(args);
	return n;
}
