/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Counted lists of strings and of pairs. They say nothing of ownership: whoever makes a list says
 * who frees it. items may be NULL when count is 0.
 */
#pragma once

#include <stddef.h>

struct string_list {
	const char **items;
	size_t count;
};

struct key_value {
	const char *key, *value;
};

struct key_value_list {
	struct key_value *items;
	size_t count;
};
