/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A group of cmocka tests whose teardown counts: cmocka's own function returns success when only
 * that failed, and it is the teardown that finds what the tests left behind. Include cmocka.h
 * first.
 */
#pragma once

#include <stddef.h>

struct CMUnitTest;

/* The exit status of a test program. teardown may be NULL. */
int run_group(const char *name, const struct CMUnitTest *tests, size_t count,
	      int (*setup)(void **state), int (*teardown)(void **state));

#define RUN_GROUP(tests, setup, teardown)                                                          \
	run_group(#tests, tests, sizeof(tests) / sizeof((tests)[0]), setup, teardown)
