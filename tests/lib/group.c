/* SPDX-License-Identifier: Apache-2.0 */
/* Groups whose teardown counts. Peculiar: a failing assertion leaves the teardown by longjmp, so
 * that it came to its end is what is noted. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "tests/lib/group.h"

static int (*real_teardown)(void **state);
static bool is_clean;

static int counting_teardown(void **state)
{
	int r = real_teardown ? real_teardown(state) : 0;

	is_clean = r == 0;
	return r;
}

int run_group(const char *name, const struct CMUnitTest *tests, size_t count,
	      int (*setup)(void **state), int (*teardown)(void **state))
{
	int failed;

	real_teardown = teardown;
	failed = _cmocka_run_group_tests(name, tests, count, setup, counting_teardown);
	return failed || !is_clean;
}
