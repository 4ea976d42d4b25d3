/* SPDX-License-Identifier: Apache-2.0 */
/* sandbox/handler: what a handler meant comes back from its text, and damage is told. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

#include "io/base/arena.h"
#include "io/base/cleanup.h"
#include "sandbox/handler.h"
#include "tests/lib/group.h"

static void options_come_back(void **state)
{
	struct rlimit_spec limits[] = {{RLIMIT_NOFILE, 100, 200},
				       {RLIMIT_CORE, 0, UINT64_MAX},
				       {RLIMIT_STACK, 8 << 20, 8 << 20}};
	const struct handler all[] = {
		{.name = ""},
		{.name = "a", .no_new_privs = true},
		{.name = "b", .rlimits = limits, .rlimit_count = 3},
		{.name = "c", .no_new_privs = true, .rlimits = limits, .rlimit_count = 1},
	};

	for (size_t i = 0; i < 4; i++) {
		cleanup_free char *text = handler_text(&all[i]);
		struct container_spec spec = {0};
		struct arena *arena = arena_new(1 << 20);

		assert_int_equal(handler_apply(arena, text, &spec, NULL), 0);
		assert_int_equal(spec.no_new_privs, all[i].no_new_privs);
		assert_int_equal(spec.rlimit_count, all[i].rlimit_count);
		for (size_t k = 0; k < spec.rlimit_count; k++) {
			assert_int_equal(spec.rlimits[k].resource, limits[k].resource);
			assert_int_equal(spec.rlimits[k].soft, limits[k].soft);
			assert_int_equal(spec.rlimits[k].hard, limits[k].hard);
		}
		arena_free(arena);
	}
	assert_null(handler_text(NULL));
}

static void what_the_container_asked_for_stays(void **state)
{
	struct container_spec spec = {.no_new_privs = true};
	struct arena *arena = arena_new(1 << 20);

	assert_int_equal(handler_apply(arena, "", &spec, NULL), 0);
	assert_true(spec.no_new_privs);
	arena_free(arena);
}

static void damage_is_told(void **state)
{
	static const char *const texts[] = {
		"no_new_priv\n",	 "rlimit nofile 1\n",	"rlimit moon 1 2\n",
		"rlimit nofile 1 2 3\n", "rlimit nofile a b\n", "no_new_privs\nbogus",
		"rlimit nofile 1 2",
	};

	for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++) {
		struct container_spec spec = {0};
		struct error err = {0};
		struct arena *arena = arena_new(1 << 20);

		assert_int_equal(handler_apply(arena, texts[i], &spec, &err), -ERR_PRECONDITION);
		assert_non_null(strstr(err.text, "can't be read"));
		arena_free(arena);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(options_come_back),
		cmocka_unit_test(what_the_container_asked_for_stays),
		cmocka_unit_test(damage_is_told),
	};

	return RUN_GROUP(tests, NULL, NULL);
}
