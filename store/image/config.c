/* SPDX-License-Identifier: Apache-2.0 */
/* The image configuration. Peculiar: a command may be one string, as docker wrote it long ago. */
#include "store/image/config.h"

#include <stdlib.h>
#include <string.h>

#include "io/base/json.h"
#include "store/image/digest.h"

#if defined(__x86_64__)
const char *const image_architecture = "amd64";
#elif defined(__aarch64__)
const char *const image_architecture = "arm64";
#elif defined(__arm__)
const char *const image_architecture = "arm";
#elif defined(__riscv) && __riscv_xlen == 64
const char *const image_architecture = "riscv64";
#elif defined(__powerpc64__) && defined(__LITTLE_ENDIAN__)
const char *const image_architecture = "ppc64le";
#elif defined(__s390x__)
const char *const image_architecture = "s390x";
#elif defined(__loongarch64)
const char *const image_architecture = "loong64";
#else
#error "name this processor as Go does"
#endif

struct parser {
	struct arena *arena;
	struct error *err;
};

static int wrong(struct parser *p, const char *key, const char *what)
{
	return error_set(p->err, ERR_INVALID, "image configuration: %s is no %s", key, what);
}

static int get_string(struct parser *p, json_t *object, const char *key, const char **ret)
{
	json_t *value = json_object_get(object, key);

	if (!value || json_is_null(value))
		return 0;
	if (!json_is_string(value))
		return wrong(p, key, "string");
	if (json_string_length(value))
		*ret = arena_strdup(p->arena, json_string_value(value));
	return 0;
}

static int get_list(struct parser *p, json_t *object, const char *key, struct string_list *ret)
{
	json_t *value = json_object_get(object, key), *item;
	size_t i;

	if (!value || json_is_null(value))
		return 0;
	if (!json_is_array(value))
		return wrong(p, key, "list of strings");
	ret->items = arena_new_array(p->arena, const char *, json_array_size(value) + 1);
	json_array_foreach(value, i, item)
	{
		if (!json_is_string(item))
			return wrong(p, key, "list of strings");
		ret->items[ret->count++] = arena_strdup(p->arena, json_string_value(item));
	}
	return 0;
}

static int get_command(struct parser *p, json_t *object, const char *key, struct string_list *ret)
{
	json_t *value = json_object_get(object, key);

	if (!json_is_string(value))
		return get_list(p, object, key, ret);
	ret->items = arena_new_array(p->arena, const char *, 2);
	ret->items[0] = arena_strdup(p->arena, json_string_value(value));
	ret->count = 1;
	return 0;
}

static int compare_strings(const void *a, const void *b)
{
	return strcmp(*(const char *const *)a, *(const char *const *)b);
}

static int compare_keys(const void *a, const void *b)
{
	return strcmp(((const struct key_value *)a)->key, ((const struct key_value *)b)->key);
}

static int get_keys(struct parser *p, json_t *object, const char *key, struct string_list *ret)
{
	json_t *value = json_object_get(object, key), *item;
	const char *name;

	if (!value || json_is_null(value))
		return 0;
	if (!json_is_object(value))
		return wrong(p, key, "object");
	ret->items = arena_new_array(p->arena, const char *, json_object_size(value) + 1);
	json_object_foreach(value, name, item) ret->items[ret->count++] =
		arena_strdup(p->arena, name);
	qsort(ret->items, ret->count, sizeof(*ret->items), compare_strings);
	return 0;
}

static int get_labels(struct parser *p, json_t *object, struct key_value_list *ret)
{
	json_t *value = json_object_get(object, "Labels"), *item;
	const char *name;

	if (!value || json_is_null(value))
		return 0;
	if (!json_is_object(value))
		return wrong(p, "Labels", "object");
	ret->items = arena_new_array(p->arena, struct key_value, json_object_size(value) + 1);
	json_object_foreach(value, name, item)
	{
		struct key_value *kv = &ret->items[ret->count];

		if (!json_is_string(item))
			return wrong(p, "Labels", "object of strings");
		kv->key = arena_strdup(p->arena, name);
		kv->value = arena_strdup(p->arena, json_string_value(item));
		ret->count++;
	}
	qsort(ret->items, ret->count, sizeof(*ret->items), compare_keys);
	return 0;
}

static int get_diff_ids(struct parser *p, json_t *root, struct string_list *ret)
{
	json_t *rootfs = json_object_get(root, "rootfs");

	if (!json_is_object(rootfs))
		return wrong(p, "rootfs", "object (is it a container image?)");
	TRY(get_list(p, rootfs, "diff_ids", ret));
	if (ret->count == 0)
		return error_set(p->err, ERR_INVALID, "image configuration: it has no layers");
	if (ret->count > IMAGE_LAYERS_MAX)
		return error_set(p->err, ERR_INVALID, "image configuration: %zu layers, at most %d",
				 ret->count, IMAGE_LAYERS_MAX);
	for (size_t i = 0; i < ret->count; i++)
		if (!digest_is_valid(ret->items[i]))
			return error_set(p->err, ERR_INVALID,
					 "image configuration: diff id %zu is no sha256 digest", i);
	return 0;
}

static int get_config(struct parser *p, json_t *config, struct image_config *c)
{
	TRY(get_string(p, config, "User", &c->user));
	TRY(get_list(p, config, "Env", &c->env));
	TRY(get_command(p, config, "Entrypoint", &c->entrypoint));
	TRY(get_command(p, config, "Cmd", &c->cmd));
	TRY(get_string(p, config, "WorkingDir", &c->working_dir));
	TRY(get_string(p, config, "StopSignal", &c->stop_signal));
	TRY(get_keys(p, config, "Volumes", &c->volumes));
	TRY(get_keys(p, config, "ExposedPorts", &c->exposed_ports));
	return get_labels(p, config, &c->labels);
}

int image_config_parse(const char *json, size_t n, struct arena *arena, struct image_config *ret,
		       struct string_list *ret_diff_ids, struct error *err)
{
	struct parser p = {.arena = arena, .err = err};
	struct image_config c = {0};
	struct string_list diff_ids = {0};
	json_t *root cleanup_json = NULL;
	json_t *config;

	if (json_parse(json, n, &root, err) < 0)
		return error_wrap(err, "image configuration");
	if (!json_is_object(root))
		return wrong(&p, "it", "object");
	TRY(get_string(&p, root, "architecture", &c.architecture));
	TRY(get_string(&p, root, "os", &c.os));
	config = json_object_get(root, "config");
	if (json_is_object(config))
		TRY(get_config(&p, config, &c));
	else if (config && !json_is_null(config))
		return wrong(&p, "config", "object");
	TRY(get_diff_ids(&p, root, &diff_ids));
	*ret = c;
	*ret_diff_ids = diff_ids;
	return 0;
}
