/* SPDX-License-Identifier: Apache-2.0 */
/* The base: errors, arenas, buffers, maps, lists, log levels. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "io/base/alloc.h"
#include "io/base/arena.h"
#include "io/base/buf.h"
#include "io/base/cleanup.h"
#include "io/base/error.h"
#include "io/base/list.h"
#include "io/base/log.h"
#include "io/base/map.h"

static void errno_never_becomes_not_found(void **state)
{
	struct error err = {0};

	assert_int_equal(error_errno(&err, ENOENT, "open %s", "/x"), -ERR_INTERNAL);
	assert_string_equal(err.text, "open /x: No such file or directory");
	assert_int_equal(err.sys, ENOENT);
	assert_int_equal(error_errno(&err, ENOSPC, "write"), -ERR_EXHAUSTED);
	assert_int_equal(error_errno(NULL, EMFILE, "open"), -ERR_EXHAUSTED);
	assert_int_equal(error_errno(&err, 99999, "odd"), -ERR_INTERNAL);
	assert_string_equal(err.text, "odd: unknown error");
}

static void wrapping_keeps_the_code_and_cuts_the_text(void **state)
{
	struct error err = {0}, copy;
	char longer[2000];

	error_set(&err, ERR_DENIED, "inner %d", 1);
	assert_int_equal(error_wrap(&err, "outer %s", "2"), -ERR_DENIED);
	assert_string_equal(err.text, "outer 2: inner 1");
	assert_int_equal(error_copy(&copy, &err), -ERR_DENIED);
	assert_string_equal(copy.text, err.text);
	memset(longer, 'x', sizeof(longer));
	longer[sizeof(longer) - 1] = 0;
	error_errno(&err, EIO, "%s", longer);
	error_wrap(&err, "%s", longer);
	assert_int_equal(strlen(err.text), sizeof(err.text) - 1);
	assert_string_equal(err_name(ERR_DEADLINE), "deadline exceeded");
}

static void arena_is_zeroed_aligned_and_capped(void **state)
{
	struct arena *a = arena_new(10000);
	size_t total = 0;

	for (size_t size = 1; total < 9000; size = size % 700 + 13) {
		char *p = arena_try(a, size);

		assert_non_null(p);
		assert_int_equal((uintptr_t)p % 16, 0);
		for (size_t i = 0; i < size; i++)
			assert_int_equal(p[i], 0);
		memset(p, 0xff, size);
		total += (size + 15) / 16 * 16;
		assert_int_equal(arena_used(a), total);
	}
	assert_null(arena_try(a, 2000));
	assert_null(arena_try(a, SIZE_MAX));
	assert_null(arena_try(a, SIZE_MAX - 5));
	assert_string_equal(arena_printf(a, "%s-%d", "a", 5), "a-5");
	assert_string_equal(arena_strdup(a, "text"), "text");
	memset(arena_alloc(a, 1 << 20), 1, 1 << 20);
	/* the block that was being filled goes on being filled */
	memset(arena_alloc(a, 16), 1, 16);
	arena_free(a);
	arena_free(NULL);
}

static void buffer_grows_and_stays_terminated(void **state)
{
	struct buf b = {0};
	char *s;

	buf_append(&b, "", 0);
	buf_puts(&b, "abc");
	buf_append(&b, "\0d", 2);
	assert_int_equal(b.length, 5);
	buf_consume(&b, 4);
	assert_string_equal(b.data, "d");
	for (int i = 0; i < 1000; i++)
		buf_printf(&b, "%d,", i);
	assert_int_equal(b.length, 1 + 10 * 2 + 90 * 3 + 900 * 4);
	assert_int_equal(b.data[b.length], 0);
	buf_consume(&b, 100000);
	assert_string_equal(b.data, "");
	s = buf_take(&b);
	assert_string_equal(s, "");
	free(s);
	s = buf_take(&b);
	assert_string_equal(s, "");
	free(s);
	buf_done(&b);
}

static void map_agrees_with_an_array(void **state)
{
	enum { KEYS = 300 };
	struct map m = {0};
	void *values[KEYS] = {0};
	size_t count = 0, seen = 0;
	char key[16];

	srandom(2);
	assert_null(map_get(&m, "none"));
	assert_null(map_remove(&m, "none"));
	for (int i = 0; i < 20000; i++) {
		long k = random() % KEYS;

		snprintf(key, sizeof(key), "key%ld", k);
		assert_ptr_equal(map_get(&m, key), values[k]);
		if (random() % 2) {
			count += !values[k];
			assert_ptr_equal(map_put(&m, key, &values[i % KEYS]), values[k]);
			values[k] = &values[i % KEYS];
		} else {
			count -= !!values[k];
			assert_ptr_equal(map_remove(&m, key), values[k]);
			values[k] = NULL;
		}
		assert_int_equal(m.count, count);
	}
	map_for_each(slot, &m)
		seen += slot->value != NULL;
	assert_int_equal(seen, count);
	/* removing while going through it */
	map_for_each(slot, &m) {
		snprintf(key, sizeof(key), "%s", slot->key);
		map_remove(&m, key);
	}
	assert_int_equal(m.count, 0);
	assert_true(m.capacity <= 2048);
	map_done(&m);
}

struct item {
	struct list node;
	int number;
};

static void list_keeps_order_and_lets_go(void **state)
{
	struct list head;
	struct item items[4];
	int expected = 0;

	list_init(&head);
	assert_null(list_first(&head, struct item, node));
	for (int i = 0; i < 4; i++) {
		items[i].number = i;
		list_init(&items[i].node);
		if (i)
			list_append(&head, &items[i].node);
	}
	list_prepend(&head, &items[0].node);
	list_for_each(it, &head, struct item, node)
		assert_int_equal(it->number, expected++);
	list_for_each_safe(it, &head, struct item, node) {
		list_remove(&it->node);
		list_remove(&it->node);
	}
	assert_true(list_is_empty(&head));
}

static void taken_values_are_not_cleaned_up(void **state)
{
	cleanup_free char *s = xstrdup("kept");
	char *kept = take_ptr(s);
	int fd = 7;

	assert_null(s);
	assert_string_equal(kept, "kept");
	free(kept);
	assert_int_equal(take_fd(&fd), 7);
	assert_int_equal(fd, -1);
	assert_null(xstrdup_null(NULL));
	kept = xasprintf("%03d", 7);
	assert_string_equal(kept, "007");
	free(kept);
}

static void log_levels_have_names(void **state)
{
	assert_int_equal(log_level_parse("warning"), LOG_WARNING);
	assert_int_equal(log_level_parse("loud"), -1);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(errno_never_becomes_not_found),
		cmocka_unit_test(wrapping_keeps_the_code_and_cuts_the_text),
		cmocka_unit_test(arena_is_zeroed_aligned_and_capped),
		cmocka_unit_test(buffer_grows_and_stays_terminated),
		cmocka_unit_test(map_agrees_with_an_array),
		cmocka_unit_test(list_keeps_order_and_lets_go),
		cmocka_unit_test(taken_values_are_not_cleaned_up),
		cmocka_unit_test(log_levels_have_names),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
