/* SPDX-License-Identifier: Apache-2.0 */
/* Copies. Peculiar: structs are copied whole first, so that only pointers have to be listed here.
 */
#include "sandbox/linux/spec_copy.h"

#include <string.h>

static const char *copy_string(struct arena *a, const char *s)
{
	return s ? arena_strdup(a, s) : NULL;
}

static void *copy_array(struct arena *a, const void *items, size_t count, size_t size)
{
	return count ? memcpy(arena_alloc(a, count * size), items, count * size) : NULL;
}

static void copy_strings(struct arena *a, struct string_list *list)
{
	list->items = copy_array(a, list->items, list->count, sizeof(*list->items));
	for (size_t i = 0; i < list->count; i++)
		list->items[i] = copy_string(a, list->items[i]);
}

static void copy_pairs(struct arena *a, struct key_value_list *list)
{
	list->items = copy_array(a, list->items, list->count, sizeof(*list->items));
	for (size_t i = 0; i < list->count; i++) {
		list->items[i].key = copy_string(a, list->items[i].key);
		list->items[i].value = copy_string(a, list->items[i].value);
	}
}

static void copy_map(struct arena *a, struct id_map_list *list)
{
	list->items = copy_array(a, list->items, list->count, sizeof(*list->items));
}

static void copy_resources(struct arena *a, struct resources *r)
{
	r->cpuset_cpus = copy_string(a, r->cpuset_cpus);
	r->cpuset_mems = copy_string(a, r->cpuset_mems);
	copy_pairs(a, &r->unified);
	copy_pairs(a, &r->hugepage_limits);
}

void resources_copy(struct arena *a, const struct resources *r, struct resources *ret)
{
	*ret = *r;
	copy_resources(a, ret);
}

static void copy_selinux(struct arena *a, struct selinux_spec *s)
{
	s->user = copy_string(a, s->user);
	s->role = copy_string(a, s->role);
	s->type = copy_string(a, s->type);
	s->level = copy_string(a, s->level);
}

void sandbox_spec_copy(struct arena *a, const struct sandbox_spec *spec, struct sandbox_spec *ret)
{
	*ret = *spec;
	ret->id = copy_string(a, spec->id);
	ret->hostname = copy_string(a, spec->hostname);
	ret->cgroup_parent = copy_string(a, spec->cgroup_parent);
	copy_map(a, &ret->uids);
	copy_map(a, &ret->gids);
	copy_pairs(a, &ret->sysctls);
	copy_selinux(a, &ret->selinux);
	copy_resources(a, &ret->resources);
}

static void copy_mount(struct arena *a, struct mount_spec *m)
{
	m->source = copy_string(a, m->source);
	m->target = copy_string(a, m->target);
	m->sub_path = copy_string(a, m->sub_path);
	m->options = copy_string(a, m->options);
	copy_strings(a, &m->layers);
	copy_map(a, &m->uids);
	copy_map(a, &m->gids);
}

static void copy_device(struct arena *a, struct device_spec *d)
{
	d->host_path = copy_string(a, d->host_path);
	d->path = copy_string(a, d->path);
	d->permissions = copy_string(a, d->permissions);
}

static void copy_user(struct arena *a, struct user_spec *u)
{
	u->user = copy_string(a, u->user);
	u->group = copy_string(a, u->group);
	u->supplemental.items = copy_array(a, u->supplemental.items, u->supplemental.count,
					   sizeof(*u->supplemental.items));
}

void container_spec_copy(struct arena *a, const struct container_spec *spec,
			 struct container_spec *ret)
{
	*ret = *spec;
	ret->id = copy_string(a, spec->id);
	ret->sandbox_id = copy_string(a, spec->sandbox_id);
	ret->cwd = copy_string(a, spec->cwd);
	ret->upper = copy_string(a, spec->upper);
	ret->work = copy_string(a, spec->work);
	ret->seccomp_profile = copy_string(a, spec->seccomp_profile);
	ret->apparmor_profile = copy_string(a, spec->apparmor_profile);
	ret->pid_target = copy_string(a, spec->pid_target);
	copy_strings(a, &ret->argv);
	copy_strings(a, &ret->envp);
	copy_strings(a, &ret->layers);
	copy_strings(a, &ret->masked_paths);
	copy_strings(a, &ret->readonly_paths);
	copy_user(a, &ret->user);
	copy_selinux(a, &ret->selinux);
	copy_resources(a, &ret->resources);
	ret->mounts = copy_array(a, spec->mounts, spec->mount_count, sizeof(*spec->mounts));
	for (size_t i = 0; i < spec->mount_count; i++)
		copy_mount(a, &ret->mounts[i]);
	ret->devices = copy_array(a, spec->devices, spec->device_count, sizeof(*spec->devices));
	for (size_t i = 0; i < spec->device_count; i++)
		copy_device(a, &ret->devices[i]);
	ret->rlimits = copy_array(a, spec->rlimits, spec->rlimit_count, sizeof(*spec->rlimits));
}
