/* SPDX-License-Identifier: Apache-2.0 */
/* The meaning of a container's security context: ids, capabilities, filter, paths, namespaces. */
#include "cri/translate_priv.h"

#include <string.h>

#include "sandbox/linux/caps.h"

static const char *const default_masked[] = {
	"/proc/asound",
	"/proc/acpi",
	"/proc/kcore",
	"/proc/keys",
	"/proc/latency_stats",
	"/proc/timer_list",
	"/proc/timer_stats",
	"/proc/sched_debug",
	"/proc/scsi",
	"/sys/firmware",
	"/sys/devices/virtual/powercap",
};
static const char *const default_readonly[] = {
	"/proc/bus", "/proc/fs", "/proc/irq", "/proc/sys", "/proc/sysrq-trigger",
};

static struct string_list strings(struct arena *arena, char **items, size_t count)
{
	struct string_list list = {arena_new_array(arena, const char *, count), count};

	for (size_t i = 0; i < count; i++)
		list.items[i] = items[i];
	return list;
}

static int user_of(struct arena *arena, const ContainerSecurity *s, const struct image *image,
		   struct user_spec *ret, struct error *err)
{
	const char *colon;

	if (s && (s->run_as_user || is_set(s->run_as_username))) {
		ret->user = s->run_as_user
				    ? arena_printf(arena, "%lld", (long long)s->run_as_user->value)
				    : s->run_as_username;
		if (s->run_as_group)
			ret->group = arena_printf(arena, "%lld", (long long)s->run_as_group->value);
	} else if (is_set(image->config.user)) {
		colon = strchr(image->config.user, ':');
		ret->user = colon ? arena_printf(arena, "%.*s", (int)(colon - image->config.user),
						 image->config.user)
				  : image->config.user;
		ret->group = colon ? null_if_empty(colon + 1) : NULL;
	}
	if (!s)
		return 0;
	ret->policy =
		s->supplemental_groups_policy == RUNTIME__V1__SUPPLEMENTAL_GROUPS_POLICY__Strict
			? GROUPS_STRICT
			: GROUPS_MERGE;
	ret->supplemental.items = arena_new_array(arena, gid_t, s->n_supplemental_groups);
	for (size_t i = 0; i < s->n_supplemental_groups; i++) {
		int64_t gid = s->supplemental_groups[i];

		if (gid < 0 || gid >= UINT32_MAX)
			return error_set(err, ERR_INVALID,
					 "linux.security_context.supplemental_groups: %lld is no "
					 "group id",
					 (long long)gid);
		ret->supplemental.items[ret->supplemental.count++] = (gid_t)gid;
	}
	return 0;
}

static int capabilities_of(struct arena *arena, const ContainerSecurity *s,
			   struct container_spec *ret, struct error *err)
{
	const Runtime__V1__Capability *c = s ? s->capabilities : NULL;
	struct string_list add, drop, ambient, none = {0};

	if (s && s->privileged) {
		ret->capabilities = caps_all();
		return 0;
	}
	if (!c) {
		ret->capabilities = caps_default;
		return 0;
	}
	add = strings(arena, c->add_capabilities, c->n_add_capabilities);
	drop = strings(arena, c->drop_capabilities, c->n_drop_capabilities);
	ambient = strings(arena, c->add_ambient_capabilities, c->n_add_ambient_capabilities);
	TRY(caps_apply(caps_default, &add, &drop, &ret->capabilities, err));
	TRY(caps_apply(0, &ambient, &none, &ret->ambient_capabilities, err));
	ret->capabilities |= ret->ambient_capabilities;
	return 0;
}

static void paths_of(struct arena *arena, const ContainerSecurity *s, struct container_spec *ret)
{
	if (s && s->privileged)
		return;
	if (s) {
		ret->masked_paths = strings(arena, s->masked_paths, s->n_masked_paths);
		ret->readonly_paths = strings(arena, s->readonly_paths, s->n_readonly_paths);
		return;
	}
	ret->masked_paths =
		strings(arena, (char **)default_masked, sizeof(default_masked) / sizeof(char *));
	ret->readonly_paths = strings(arena, (char **)default_readonly,
				      sizeof(default_readonly) / sizeof(char *));
}

int translate_security(struct arena *arena, const ContainerConfig *config,
		       const NamespaceOption *pod, const struct image *image,
		       struct container_spec *ret, struct error *err)
{
	const ContainerSecurity *s = security_of(config);
	const NamespaceOption *ns = s ? s->namespace_options : NULL;

	ret->pid = translate_ns_mode(ns ? ns->pid : pod ? pod->pid : NS_NAME(POD));
	ret->pid_target = ns ? null_if_empty(ns->target_id) : NULL;
	ret->is_privileged = s && s->privileged;
	ret->no_new_privs = s && s->no_new_privs;
	ret->is_readonly_root = s && s->readonly_rootfs;
	ret->selinux = translate_selinux(s ? s->selinux_options : NULL);
	paths_of(arena, s, ret);
	TRY(user_of(arena, s, image, &ret->user, err));
	return capabilities_of(arena, s, ret, err);
}
