/* SPDX-License-Identifier: Apache-2.0 */
/* Edits into a container's spec. Peculiar: the spec's arrays are made anew, since whoever made them
 * left no room. */
#include "sandbox/cdi_priv.h"

#include <string.h>
#include <sys/sysmacros.h>

static const char *text_of(struct arena *arena, const json_t *object, const char *key)
{
	const char *s = json_string_value(json_object_get(object, key));

	return s ? arena_strdup(arena, s) : NULL;
}

/* A longer copy; NULL and 0 are fine. */
static void *grow(struct arena *arena, const void *items, size_t count, size_t more, size_t size)
{
	char *copy = arena_alloc(arena, (count + more) * size + 1);

	if (count)
		memcpy(copy, items, count * size);
	return copy;
}

static void put_env(struct string_list *env, const char *text)
{
	size_t n = (size_t)(strchr(text, '=') - text) + 1;

	for (size_t i = 0; i < env->count; i++) {
		if (!strncmp(env->items[i], text, n)) {
			env->items[i] = text;
			return;
		}
	}
	env->items[env->count++] = text;
}

static void add_env(struct arena *arena, const json_t *list, struct container_spec *spec)
{
	const json_t *item;
	size_t i;

	spec->envp.items = grow(arena, spec->envp.items, spec->envp.count, json_array_size(list),
				sizeof(*spec->envp.items));
	json_array_foreach(list, i, item)
		put_env(&spec->envp, arena_strdup(arena, json_string_value(item)));
}

static bool number_of(const json_t *object, const char *key, uint32_t *ret)
{
	const json_t *value = json_object_get(object, key);

	*ret = (uint32_t)json_integer_value(value);
	return json_is_integer(value);
}

static void fill_device(struct arena *arena, const json_t *node, struct device_spec *ret)
{
	const char *type = json_string_value(json_object_get(node, "type"));
	uint32_t mode, major_number, minor_number;

	ret->path = text_of(arena, node, "path");
	ret->host_path = text_of(arena, node, "hostPath") ?: ret->path;
	ret->permissions = text_of(arena, node, "permissions");
	ret->has_mode = number_of(node, "fileMode", &mode);
	ret->mode = mode;
	ret->has_uid = number_of(node, "uid", &ret->uid);
	ret->has_gid = number_of(node, "gid", &ret->gid);
	if (type)
		ret->type = *type == 'b' ? 'b' : 'c';
	ret->has_number = number_of(node, "major", &major_number);
	if (number_of(node, "minor", &minor_number) || ret->has_number)
		ret->number = makedev(major_number, minor_number);
}

static void add_devices(struct arena *arena, const json_t *list, struct container_spec *spec)
{
	const json_t *item;
	size_t i;

	spec->devices = grow(arena, spec->devices, spec->device_count, json_array_size(list),
			     sizeof(*spec->devices));
	json_array_foreach(list, i, item)
	{
		struct device_spec *d = &spec->devices[spec->device_count++];

		*d = (struct device_spec){0};
		fill_device(arena, item, d);
	}
}

static int set_option(struct mount_spec *m, const char *option, struct error *err)
{
	static const char *const implied[] = {"bind", "rbind", "rw",	  "suid",
					      "exec", "async", "relatime"};
	static const struct {
		const char *name;
		enum mount_propagation propagation;
	} propagations[] = {{"private", PROPAGATION_PRIVATE}, {"rprivate", PROPAGATION_PRIVATE},
			    {"slave", PROPAGATION_SLAVE},     {"rslave", PROPAGATION_SLAVE},
			    {"shared", PROPAGATION_SHARED},   {"rshared", PROPAGATION_SHARED}};

	for (size_t i = 0; i < sizeof(implied) / sizeof(implied[0]); i++)
		if (!strcmp(option, implied[i]))
			return 0;
	for (size_t i = 0; i < sizeof(propagations) / sizeof(propagations[0]); i++) {
		if (!strcmp(option, propagations[i].name)) {
			m->propagation = propagations[i].propagation;
			return 0;
		}
	}
	if (!strcmp(option, "ro"))
		m->is_readonly = true;
	else if (!strcmp(option, "rro"))
		m->is_readonly = m->is_recursive_readonly = true;
	else if (!strcmp(option, "noexec"))
		m->is_noexec = true;
	else if (!strcmp(option, "nosuid"))
		m->is_nosuid = true;
	else if (!strcmp(option, "nodev"))
		m->is_nodev = true;
	else
		return error_set(err, ERR_UNIMPLEMENTED,
				 "CDI mount at %.200s: crisp can't do option %.64s", m->target,
				 option);
	return 0;
}

static int fill_mount(struct arena *arena, const json_t *mount, struct mount_spec *ret,
		      struct error *err)
{
	const char *type = json_string_value(json_object_get(mount, "type")) ?: "bind";
	const json_t *item;
	size_t i;

	ret->kind = MOUNT_BIND;
	ret->source = text_of(arena, mount, "hostPath");
	ret->target = text_of(arena, mount, "containerPath");
	if (*type && strcmp(type, "bind") && strcmp(type, "none"))
		return error_set(err, ERR_UNIMPLEMENTED,
				 "CDI mount at %.200s: crisp can't do type %.64s", ret->target,
				 type);
	json_array_foreach(json_object_get(mount, "options"), i, item)
		TRY(set_option(ret, json_string_value(item), err));
	return 0;
}

static int add_mounts(struct arena *arena, const json_t *list, struct container_spec *spec,
		      struct error *err)
{
	const json_t *item;
	size_t i;

	spec->mounts = grow(arena, spec->mounts, spec->mount_count, json_array_size(list),
			    sizeof(*spec->mounts));
	json_array_foreach(list, i, item)
	{
		struct mount_spec *m = &spec->mounts[spec->mount_count++];

		*m = (struct mount_spec){0};
		TRY(fill_mount(arena, item, m, err));
	}
	return 0;
}

static void add_groups(struct arena *arena, const json_t *list, struct container_spec *spec)
{
	struct user_spec *u = &spec->user;
	const json_t *item;
	size_t i;

	u->supplemental.items = grow(arena, u->supplemental.items, u->supplemental.count,
				     json_array_size(list), sizeof(*u->supplemental.items));
	/* 0 is what a vendor's file has that means none */
	json_array_foreach(list, i, item) if (json_integer_value(item))
		u->supplemental.items[u->supplemental.count++] = (gid_t)json_integer_value(item);
}

int cdi_apply(struct arena *arena, const void *edits, size_t size, struct container_spec *spec,
	      struct error *err)
{
	json_t *json cleanup_json = NULL;

	if (json_parse(edits, size, &json, err) < 0 || cdi_check_edits(json, err) < 0) {
		error_wrap(err, "stored CDI edits are damaged");
		err->code = ERR_INTERNAL;
		return -ERR_INTERNAL;
	}
	add_env(arena, json_object_get(json, "env"), spec);
	add_devices(arena, json_object_get(json, "deviceNodes"), spec);
	add_groups(arena, json_object_get(json, "additionalGids"), spec);
	return add_mounts(arena, json_object_get(json, "mounts"), spec, err);
}
