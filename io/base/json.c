/* SPDX-License-Identifier: Apache-2.0 */
/* JSON. Peculiar: the bounds are found by looking at brackets, commas and quotes only. */
#include "io/base/json.h"

#include <stdbool.h>

static bool is_bounded(const char *data, size_t n)
{
	size_t depth = 0, values = 0;
	bool is_string = false;

	for (size_t i = 0; i < n; i++) {
		char c = data[i];

		if (is_string) {
			if (c == '\\')
				i++;
			is_string = c != '"';
		} else if (c == '"') {
			is_string = true;
		} else if (c == '[' || c == '{') {
			if (++depth > JSON_DEPTH_MAX || ++values > JSON_VALUES_MAX)
				return false;
		} else if (c == ',') {
			if (++values > JSON_VALUES_MAX)
				return false;
		} else if ((c == ']' || c == '}') && depth) {
			depth--;
		}
	}
	return true;
}

int json_parse(const char *data, size_t n, json_t **ret, struct error *err)
{
	json_error_t why;
	json_t *json;

	if (!is_bounded(data, n))
		return error_set(err, ERR_INVALID,
				 "JSON: nested deeper than %d or more than %d values",
				 JSON_DEPTH_MAX, JSON_VALUES_MAX);
	json = json_loadb(data, n, JSON_REJECT_DUPLICATES, &why);
	if (!json)
		return error_set(err, ERR_INVALID, "JSON: line %d: %s", why.line, why.text);
	*ret = json;
	return 0;
}
