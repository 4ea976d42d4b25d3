/* SPDX-License-Identifier: Apache-2.0 */
/*
 * JSON documents from outside, by jansson. Nesting and the number of values are bounded before
 * parsing, since jansson recurses and 4 MiB of "[],[],…" would become hundreds; duplicate keys are
 * refused, since two readers might take different ones.
 */
#pragma once

#include <jansson.h>

#include "io/base/error.h"

#define JSON_DEPTH_MAX 32
#define JSON_VALUES_MAX 200000

/* ret is the caller's (json_decref). ERR_INVALID with line and reason. */
int json_parse(const char *data, size_t n, json_t **ret, struct error *err);

static inline void cleanup_json_fn(json_t **json)
{
	json_decref(*json);
}

#define cleanup_json __attribute__((cleanup(cleanup_json_fn)))
