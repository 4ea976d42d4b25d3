/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Allocation that does not fail: a server that is crash-only ends when small allocations fail.
 * Whatever is sized by input is limited before it is allocated.
 */
#pragma once

#include <stddef.h>

void *xmalloc(size_t size) __attribute__((malloc, returns_nonnull));
void *xcalloc(size_t count, size_t size) __attribute__((malloc, returns_nonnull));
void *xrealloc(void *p, size_t size) __attribute__((returns_nonnull));
char *xstrdup(const char *s) __attribute__((malloc, returns_nonnull));
/* xstrdup that passes NULL on. */
char *xstrdup_null(const char *s);
char *xasprintf(const char *format, ...) __attribute__((format(printf, 1, 2), returns_nonnull));

#define xnew(type) ((type *)xcalloc(1, sizeof(type)))
