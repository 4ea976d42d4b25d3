/* SPDX-License-Identifier: Apache-2.0 */
/*
 * YAML into JSON, by libyaml's events. Peculiar: what JSON can't say is refused, above all aliases,
 * by which a few lines become gigabytes.
 */
#include "sandbox/cdi_priv.h"

#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <yaml.h>

struct reader {
	yaml_parser_t parser;
	yaml_event_t event; /* the one that is looked at */
	size_t values;
	struct error *err;
};

static int refuse(struct reader *r, const char *why)
{
	return error_set(r->err, ERR_INVALID, "YAML: line %zu: %s", r->event.start_mark.line + 1,
			 why);
}

static int next(struct reader *r)
{
	yaml_event_delete(&r->event);
	if (yaml_parser_parse(&r->parser, &r->event))
		return 0;
	r->event = (yaml_event_t){0};
	return error_set(r->err, ERR_INVALID, "YAML: line %zu: %s", r->parser.problem_mark.line + 1,
			 r->parser.problem ?: "it can't be read");
}

/* All of it in one base, as YAML 1.1 and 1.2 write numbers. */
static bool parse_integer(const char *text, json_int_t *ret)
{
	const char *digits = text + (*text == '-');
	int base = 10;
	char *end;

	if (digits[0] == '0' && digits[1]) {
		base = digits[1] == 'x' ? 16 : 8;
		digits += digits[1] == 'x' || digits[1] == 'o' ? 2 : 1;
	}
	if (*digits < '0' || (*digits > '9' && base != 16))
		return false;
	errno = 0;
	*ret = strtoll(digits, &end, base);
	if (*text == '-')
		*ret = -*ret;
	return !*end && !errno;
}

static json_t *plain(const char *text)
{
	static const char *const nulls[] = {"", "~", "null", "Null", "NULL"};
	static const char *const trues[] = {"true", "True", "TRUE"};
	static const char *const falses[] = {"false", "False", "FALSE"};
	json_int_t number;

	for (size_t i = 0; i < sizeof(nulls) / sizeof(nulls[0]); i++)
		if (!strcmp(text, nulls[i]))
			return json_null();
	for (size_t i = 0; i < 3; i++) {
		if (!strcmp(text, trues[i]))
			return json_true();
		if (!strcmp(text, falses[i]))
			return json_false();
	}
	return parse_integer(text, &number) ? json_integer(number) : json_string(text);
}

static int read_scalar(struct reader *r, json_t **ret)
{
	const char *text = (const char *)r->event.data.scalar.value;

	if (strlen(text) != r->event.data.scalar.length)
		return refuse(r, "a NUL in a string");
	*ret = r->event.data.scalar.style == YAML_PLAIN_SCALAR_STYLE ? plain(text)
								     : json_string(text);
	return *ret ? 0 : refuse(r, "a string is not UTF-8");
}

static int read_value(struct reader *r, int depth, json_t **ret);

static int read_sequence(struct reader *r, int depth, json_t *list)
{
	for (;;) {
		json_t *item = NULL;

		TRY(next(r));
		if (r->event.type == YAML_SEQUENCE_END_EVENT)
			return 0;
		TRY(read_value(r, depth + 1, &item));
		json_array_append_new(list, item);
	}
}

static int read_mapping(struct reader *r, int depth, json_t *object)
{
	for (;;) {
		json_t *key cleanup_json = NULL, *value = NULL;

		TRY(next(r));
		if (r->event.type == YAML_MAPPING_END_EVENT)
			return 0;
		if (r->event.type != YAML_SCALAR_EVENT ||
		    strlen((const char *)r->event.data.scalar.value) != r->event.data.scalar.length)
			return refuse(r, "a key that is no string, or has a NUL");
		key = json_string((const char *)r->event.data.scalar.value);
		if (!key)
			return refuse(r, "a key is not UTF-8");
		if (json_object_get(object, json_string_value(key)))
			return refuse(r, "a key is there twice");
		TRY(next(r));
		TRY(read_value(r, depth + 1, &value));
		json_object_set_new(object, json_string_value(key), value);
	}
}

static bool has_extras(const yaml_event_t *e)
{
	switch (e->type) {
	case YAML_SCALAR_EVENT:
		return e->data.scalar.anchor || e->data.scalar.tag;
	case YAML_SEQUENCE_START_EVENT:
		return e->data.sequence_start.anchor || e->data.sequence_start.tag;
	case YAML_MAPPING_START_EVENT:
		return e->data.mapping_start.anchor || e->data.mapping_start.tag;
	default:
		return true;
	}
}

/* The value that begins with the event that is looked at. */
static int read_value(struct reader *r, int depth, json_t **ret)
{
	json_t *value cleanup_json = NULL;

	if (has_extras(&r->event))
		return refuse(r, "anchors, aliases and tags are not for this file");
	if (depth > JSON_DEPTH_MAX || ++r->values > JSON_VALUES_MAX)
		return refuse(r, "nested too deeply or too many values");
	if (r->event.type == YAML_SCALAR_EVENT)
		return read_scalar(r, ret);
	if (r->event.type == YAML_SEQUENCE_START_EVENT) {
		value = json_array();
		TRY(read_sequence(r, depth, value));
	} else {
		value = json_object();
		TRY(read_mapping(r, depth, value));
	}
	*ret = json_incref(value);
	return 0;
}

static int read_document(struct reader *r, json_t **ret)
{
	json_t *value cleanup_json = NULL;

	TRY(next(r));
	TRY(next(r));
	if (r->event.type != YAML_DOCUMENT_START_EVENT)
		return refuse(r, "there is nothing in it");
	TRY(next(r));
	TRY(read_value(r, 0, &value));
	TRY(next(r));
	TRY(next(r));
	if (r->event.type != YAML_STREAM_END_EVENT)
		return refuse(r, "there is a second document");
	*ret = json_incref(value);
	return 0;
}

int cdi_yaml_parse(const char *data, size_t n, json_t **ret, struct error *err)
{
	struct reader r = {.err = err};
	int result;

	if (!yaml_parser_initialize(&r.parser))
		return error_set(err, ERR_EXHAUSTED, "YAML: no memory");
	yaml_parser_set_input_string(&r.parser, (const unsigned char *)data, n);
	result = read_document(&r, ret);
	yaml_event_delete(&r.event);
	yaml_parser_delete(&r.parser);
	return result;
}
