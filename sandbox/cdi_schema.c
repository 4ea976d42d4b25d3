/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a CDI specification may say (github.com/cncf-tags/container-device-interface, SPEC.md), as
 * tables: each key with its kind and the version that brought it. A key that is not known is a
 * fault, as in the reference.
 */
#include "sandbox/cdi_priv.h"

#include <stdio.h>
#include <string.h>

#define PATH_SIZE 256

enum value_kind { STRING, NUMBER, BOOL, STRINGS, NUMBERS, OBJECT, LIST, STRING_MAP };

struct key {
	const char *name;
	enum value_kind kind;
	bool is_required;
	int version; /* that brought it: 100 × major + minor, 0: any */
	const struct key *inner;
	/* Whether a value of the kind is one for this key, NULL: any; why is the rest of the
	 * sentence. */
	bool (*is_valid)(const json_t *value);
	const char *why;
};

static bool is_absolute(const json_t *value)
{
	return json_string_value(value)[0] == '/';
}

static bool is_some(const json_t *value)
{
	return json_string_length(value) > 0;
}

static bool is_id(const json_t *value)
{
	return json_integer_value(value) >= 0 && json_integer_value(value) < UINT32_MAX;
}

static bool is_mode(const json_t *value)
{
	return json_integer_value(value) >= 0 && json_integer_value(value) <= 07777;
}

static bool is_access(const json_t *value)
{
	const char *s = json_string_value(value);

	return !s[strspn(s, "rwm")];
}

static bool is_node_type(const json_t *value)
{
	const char *s = json_string_value(value);

	return strlen(s) == 1 && strchr("bcup", *s);
}

static bool are_variables(const json_t *value)
{
	const json_t *item;
	size_t i;

	json_array_foreach(value, i, item) if (!strchr(json_string_value(item), '=') ||
					       json_string_value(item)[0] == '=') return false;
	return true;
}

static bool are_ids(const json_t *value)
{
	const json_t *item;
	size_t i;

	json_array_foreach(value, i, item) if (!is_id(item)) return false;
	return true;
}

#define ABSOLUTE .is_valid = is_absolute, .why = "must be an absolute path"
#define ID .is_valid = is_id, .why = "must be from 0 to 4294967294"

static const struct key node_keys[] = {
	{"path", STRING, true, ABSOLUTE},
	{"hostPath", STRING, .version = 5, ABSOLUTE},
	{"type", STRING, .is_valid = is_node_type, .why = "must be b, c, u or p"},
	{"major", NUMBER, ID},
	{"minor", NUMBER, ID},
	{"fileMode", NUMBER, .is_valid = is_mode, .why = "must be a mode"},
	{"permissions", STRING, .is_valid = is_access, .why = "must be out of rwm"},
	{"uid", NUMBER, ID},
	{"gid", NUMBER, ID},
	{0},
};

static const struct key net_keys[] = {
	{"hostInterfaceName", STRING, true, .is_valid = is_some, .why = "is empty"},
	{"name", STRING, true, .is_valid = is_some, .why = "is empty"},
	{0},
};

static const struct key hook_keys[] = {
	{"hookName", STRING, true},
	{"path", STRING, true, ABSOLUTE},
	{"args", STRINGS},
	{"env", STRINGS, .is_valid = are_variables, .why = "must be of the form NAME=VALUE"},
	{"timeout", NUMBER},
	{0},
};

static const struct key mount_keys[] = {
	{"hostPath", STRING, true, .is_valid = is_some, .why = "is empty"},
	{"containerPath", STRING, true, ABSOLUTE},
	{"options", STRINGS},
	{"type", STRING, .version = 4},
	{0},
};

static const struct key rdt_keys[] = {
	{"closID", STRING},
	{"l3CacheSchema", STRING},
	{"memBwSchema", STRING},
	{"schemata", STRINGS, .version = 101},
	{"enableMonitoring", BOOL, .version = 101},
	{"enableCMT", BOOL},
	{"enableMBM", BOOL},
	{0},
};

static const struct key edit_keys[] = {
	{"env", STRINGS, .is_valid = are_variables, .why = "must be of the form NAME=VALUE"},
	{"deviceNodes", LIST, .inner = node_keys},
	{"netDevices", LIST, .version = 101, .inner = net_keys},
	{"hooks", LIST, .inner = hook_keys},
	{"mounts", LIST, .inner = mount_keys},
	{"intelRdt", OBJECT, .version = 7, .inner = rdt_keys},
	{"additionalGids", NUMBERS, .version = 7, .is_valid = are_ids,
	 .why = "must be from 0 to 4294967294"},
	{0},
};

static const struct key device_keys[] = {
	{"name", STRING, true},
	{"annotations", STRING_MAP, .version = 6},
	{"containerEdits", OBJECT, true, .inner = edit_keys},
	{0},
};

static const struct key document_keys[] = {
	{"cdiVersion", STRING, true},
	{"kind", STRING, true},
	{"annotations", STRING_MAP, .version = 6},
	{"devices", LIST, true, .inner = device_keys},
	{"containerEdits", OBJECT, .inner = edit_keys},
	{0},
};

static bool all_are(const json_t *list, bool strings)
{
	const json_t *item;
	size_t i;

	json_array_foreach(list, i, item) if (strings ? !json_is_string(item)
						      : !json_is_integer(item)) return false;
	return json_is_array(list);
}

static bool is_string_map(const json_t *map)
{
	const char *key;
	json_t *item;

	if (!json_is_object(map))
		return false;
	json_object_foreach((json_t *)map, key, item) if (!json_is_string(item)) return false;
	return true;
}

/* NULL, or what it should be. */
static const char *kind_fault(const struct key *k, const json_t *value)
{
	switch (k->kind) {
	case STRING:
		return json_is_string(value) ? NULL : "must be a string";
	case NUMBER:
		return json_is_integer(value) ? NULL : "must be an integer";
	case BOOL:
		return json_is_boolean(value) ? NULL : "must be true or false";
	case STRINGS:
		return all_are(value, true) ? NULL : "must be a list of strings";
	case NUMBERS:
		return all_are(value, false) ? NULL : "must be a list of integers";
	case OBJECT:
		return json_is_object(value) ? NULL : "must be an object";
	case LIST:
		return json_is_array(value) ? NULL : "must be a list";
	case STRING_MAP:
		return is_string_map(value) ? NULL : "must be an object of strings";
	}
	return "is of no kind";
}

static int fault(struct error *err, const char *path, const char *name, const char *why)
{
	return error_set(err, ERR_INVALID, "%s%s%.64s: %s", path, *path ? "." : "", name, why);
}

static int check_object(const json_t *object, const struct key *keys, const char *path, int version,
			struct error *err);

static int check_inner(const json_t *value, const struct key *k, const char *path, int version,
		       struct error *err)
{
	char inner[PATH_SIZE];
	const json_t *item;
	size_t i;

	snprintf(inner, sizeof(inner), "%s%s%s", path, *path ? "." : "", k->name);
	if (k->kind == OBJECT)
		return check_object(value, k->inner, inner, version, err);
	json_array_foreach(value, i, item)
	{
		snprintf(inner, sizeof(inner), "%s%s%s[%zu]", path, *path ? "." : "", k->name, i);
		if (!json_is_object(item))
			return error_set(err, ERR_INVALID, "%s: must be an object", inner);
		TRY(check_object(item, k->inner, inner, version, err));
	}
	return 0;
}

static int check_key(const json_t *object, const struct key *k, const char *path, int version,
		     struct error *err)
{
	const json_t *value = json_object_get(object, k->name);
	const char *why;

	/* the reference leaves out what is null */
	if (!value || json_is_null(value))
		return k->is_required ? fault(err, path, k->name, "missing") : 0;
	why = kind_fault(k, value);
	if (!why && k->is_valid && !k->is_valid(value))
		why = k->why;
	if (why)
		return fault(err, path, k->name, why);
	if (k->version > version)
		return error_set(err, ERR_INVALID, "%s%s%s: came with version %d.%d.0 only", path,
				 *path ? "." : "", k->name, k->version / 100, k->version % 100);
	return k->inner ? check_inner(value, k, path, version, err) : 0;
}

static int check_object(const json_t *object, const struct key *keys, const char *path, int version,
			struct error *err)
{
	const char *name;
	json_t *value;

	json_object_foreach((json_t *)object, name, value)
	{
		const struct key *k = keys;

		while (k->name && strcmp(k->name, name))
			k++;
		if (!k->name)
			return fault(err, path, name, "there is no such key");
	}
	for (const struct key *k = keys; k->name; k++)
		TRY(check_key(object, k, path, version, err));
	return 0;
}

static int parse_version(const char *text, int *ret, struct error *err)
{
	static const struct {
		const char *text;
		int version;
	} versions[] = {{"0.3.0", 3}, {"0.4.0", 4}, {"0.5.0", 5},   {"0.6.0", 6},
			{"0.7.0", 7}, {"0.8.0", 8}, {"1.0.0", 100}, {"1.1.0", 101}};

	for (size_t i = 0; i < sizeof(versions) / sizeof(versions[0]); i++) {
		if (strcmp(text, versions[i].text) == 0) {
			*ret = versions[i].version;
			return 0;
		}
	}
	return error_set(err, ERR_INVALID, "cdiVersion: %.32s is none from 0.3.0 to 1.1.0", text);
}

#define LETTERS "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
#define DIGITS "0123456789"

/* Begins with one of first, has only these and others, ends with a letter or digit. */
static bool is_name(const char *s, size_t n, const char *first, const char *others)
{
	if (!n || n > 253 || !strchr(first, s[0]) || !strchr(LETTERS DIGITS, s[n - 1]))
		return false;
	for (size_t i = 0; i < n; i++)
		if (!strchr(LETTERS DIGITS, s[i]) && !strchr(others, s[i]))
			return false;
	return true;
}

static bool is_kind(const char *s, size_t n)
{
	const char *slash = memchr(s, '/', n);
	size_t vendor = slash ? (size_t)(slash - s) : 0;

	return slash && is_name(s, vendor, LETTERS, "_-.") &&
	       is_name(slash + 1, n - vendor - 1, LETTERS, "_-.");
}

int cdi_check_name(const char *what, const char *name, struct error *err)
{
	const char *equals = strchr(name, '=');

	if (equals && is_kind(name, (size_t)(equals - name)) &&
	    is_name(equals + 1, strlen(equals + 1), LETTERS DIGITS, "_-.:"))
		return 0;
	return error_set(err, ERR_INVALID, "%s \"%.200s\": not of the form vendor/class=device",
			 what, name);
}

static int check_device(const json_t *devices, size_t at, int version, struct error *err)
{
	const json_t *device = json_array_get(devices, at);
	const char *name = json_string_value(json_object_get(device, "name"));
	char path[64];

	snprintf(path, sizeof(path), "devices[%zu]", at);
	if (!is_name(name, strlen(name), version < 5 ? LETTERS : LETTERS DIGITS, "_-.:"))
		return fault(err, path, "name", "it is no name of a device");
	for (size_t i = 0; i < at; i++)
		if (!strcmp(json_string_value(json_object_get(json_array_get(devices, i), "name")),
			    name))
			return fault(err, path, "name", "another device has it");
	if (!json_object_size(json_object_get(device, "containerEdits")))
		return fault(err, path, "containerEdits", "empty");
	return 0;
}

int cdi_check_document(const json_t *document, struct error *err)
{
	const json_t *version_text, *devices;
	const char *kind;
	int version = 0;

	if (!json_is_object(document))
		return error_set(err, ERR_INVALID, "the document: must be an object");
	version_text = json_object_get(document, "cdiVersion");
	if (!json_is_string(version_text))
		return fault(err, "", "cdiVersion", "missing or no string");
	TRY(parse_version(json_string_value(version_text), &version, err));
	TRY(check_object(document, document_keys, "", version, err));
	kind = json_string_value(json_object_get(document, "kind"));
	if (!is_kind(kind, strlen(kind)))
		return fault(err, "", "kind", "not of the form vendor/class");
	if (version < 6 && strchr(strchr(kind, '/'), '.'))
		return fault(err, "", "kind", "a dot in the class came with version 0.6.0 only");
	devices = json_object_get(document, "devices");
	if (!json_array_size(devices))
		return fault(err, "", "devices", "empty");
	for (size_t i = 0; i < json_array_size(devices); i++)
		TRY(check_device(devices, i, version, err));
	return 0;
}

int cdi_check_edits(const json_t *edits, struct error *err)
{
	if (!json_is_object(edits))
		return error_set(err, ERR_INVALID, "the edits: must be an object");
	return check_object(edits, edit_keys, "", 101, err);
}
