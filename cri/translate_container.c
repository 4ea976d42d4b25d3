/* SPDX-License-Identifier: Apache-2.0 */
/* The meaning of a container's configuration, together with its image's. */
#include "cri/translate_priv.h"

#include <limits.h>
#include <signal.h>
#include <string.h>
#include <unistd.h>

#include "io/base/alloc.h"
#include "io/base/cleanup.h"
#include "io/base/path.h"

#define DEFAULT_PATH "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

static int argv_of(struct arena *arena, const ContainerConfig *config, const struct image *image,
		   struct string_list *ret, struct error *err)
{
	size_t entry = config->n_command ? config->n_command : image->config.entrypoint.count;
	bool own_args = config->n_args || config->n_command;
	size_t args = own_args ? config->n_args : image->config.cmd.count;

	ret->items = arena_new_array(arena, const char *, entry + args);
	for (size_t i = 0; i < entry; i++)
		ret->items[ret->count++] =
			config->n_command ? config->command[i] : image->config.entrypoint.items[i];
	for (size_t i = 0; i < args; i++)
		ret->items[ret->count++] = own_args ? config->args[i] : image->config.cmd.items[i];
	if (!ret->count)
		return error_set(err, ERR_INVALID,
				 "config.command: neither it nor the image says what to run");
	return 0;
}

static const char *find_env(const struct string_list *env, const char *key)
{
	size_t n = strlen(key);

	for (size_t i = 0; i < env->count; i++)
		if (!strncmp(env->items[i], key, n) && env->items[i][n] == '=')
			return env->items[i];
	return NULL;
}

/* Sets "key=value", in the place of an earlier one. */
static void put_env(struct arena *arena, struct string_list *env, const char *key,
		    const char *value, size_t value_size)
{
	const char *old = find_env(env, key);
	const char *text = arena_printf(arena, "%s=%.*s", key, (int)value_size, value);

	for (size_t i = 0; old && i < env->count; i++) {
		if (env->items[i] == old) {
			env->items[i] = text;
			return;
		}
	}
	env->items[env->count++] = text;
}

static int env_of(struct arena *arena, const SandboxConfig *pod, const ContainerConfig *config,
		  const struct image *image, struct string_list *ret, struct error *err)
{
	const char *name = pod->hostname;
	char node[HOST_NAME_MAX + 1] = "";

	/* a pod without a name of its own has the node's */
	if (!is_set(name) && gethostname(node, sizeof(node) - 1) == 0)
		name = node;
	ret->items =
		arena_new_array(arena, const char *, image->config.env.count + config->n_envs + 3);
	for (size_t i = 0; i < image->config.env.count; i++)
		if (strchr(image->config.env.items[i], '='))
			ret->items[ret->count++] = image->config.env.items[i];
	for (size_t i = 0; i < config->n_envs; i++) {
		const Runtime__V1__KeyValue *e = config->envs[i];

		if (!is_set(e->key) || strchr(e->key, '='))
			return error_set(err, ERR_INVALID,
					 "config.envs: \"%.80s\" is no name of a variable", e->key);
		if (memchr(e->value.data ? (char *)e->value.data : "", 0, e->value.len))
			return error_set(err, ERR_INVALID,
					 "config.envs: the value of %.80s has a NUL", e->key);
		put_env(arena, ret, e->key, e->value.data ? (char *)e->value.data : "",
			e->value.len);
	}
	if (!find_env(ret, "PATH"))
		put_env(arena, ret, "PATH", DEFAULT_PATH, strlen(DEFAULT_PATH));
	if (config->tty && !find_env(ret, "TERM"))
		put_env(arena, ret, "TERM", "xterm", 5);
	if (!find_env(ret, "HOSTNAME"))
		put_env(arena, ret, "HOSTNAME", name, strlen(name));
	return 0;
}

/* target is clean. */
static bool has_mount_at(const ContainerConfig *config, const char *target)
{
	for (size_t i = 0; i < config->n_mounts; i++) {
		char *path cleanup_free = path_clean(config->mounts[i]->container_path);

		if (!strcmp(path, target))
			return true;
	}
	return false;
}

/* Those of the image that nothing else is mounted on, with the pod's users. */
static void volumes_of(struct arena *arena, const struct container *c, const NamespaceOption *ns,
		       const ContainerConfig *config, const struct image *image,
		       struct container_spec *ret)
{
	const Runtime__V1__UserNamespace *user = ns ? ns->userns_options : NULL;
	bool has_users = user && user->mode == NS_NAME(POD);

	for (size_t i = 0; i < image->config.volumes.count; i++) {
		char *path cleanup_free = path_clean(image->config.volumes.items[i]);
		struct mount_spec *m = &ret->mounts[ret->mount_count];
		bool is_taken = has_mount_at(config, path);

		for (size_t k = 0; k < ret->mount_count && !is_taken; k++)
			is_taken = !strcmp(ret->mounts[k].target, path);
		if (is_taken)
			continue;
		ret->mount_count++;
		*m = (struct mount_spec){
			.kind = MOUNT_VOLUME,
			.source =
				arena_printf(arena, "%s/" CONTAINER_VOLUMES "/%zu", c->root_dir, i),
			.target = arena_strdup(arena, path),
			.is_relabelled = true,
		};
		if (!has_users)
			continue;
		m->uids = translate_id_maps(arena, user->uids, user->n_uids);
		m->gids = translate_id_maps(arena, user->gids, user->n_gids);
	}
}

static bool has_option(const Runtime__V1__Mount *m, const char *name)
{
	for (size_t i = 0; i < m->n_mount_options; i++)
		if (!strcmp(m->mount_options[i], name))
			return true;
	return false;
}

static struct mount_spec mount_of(struct arena *arena, const struct container *c,
				  const Runtime__V1__Mount *m)
{
	struct mount_spec spec = {
		.source = m->host_path,
		.target = m->container_path,
		.is_readonly = m->readonly,
		.is_recursive_readonly = m->recursive_read_only,
		.is_noexec = has_option(m, "noexec"),
		.is_nosuid = has_option(m, "nosuid"),
		.is_nodev = has_option(m, "nodev"),
		.is_relabelled = m->selinux_relabel,
		.propagation = (enum mount_propagation)m->propagation,
		.uids = translate_id_maps(arena, m->uidmappings, m->n_uidmappings),
		.gids = translate_id_maps(arena, m->gidmappings, m->n_gidmappings),
	};

	if (translate_has_image(m)) {
		spec.kind = MOUNT_IMAGE;
		spec.source = NULL;
		spec.layers = image_by_id(c->node->images, m->image->image_ref)->layers;
		spec.sub_path = m->image_sub_path;
	}
	return spec;
}

static void mounts_of(struct arena *arena, const struct container *c, const NamespaceOption *ns,
		      const ContainerConfig *config, const struct image *image,
		      struct container_spec *ret)
{
	static const char *const files[] = {"hostname", "hosts", "resolv.conf"};

	ret->mounts = arena_new_array(arena, struct mount_spec,
				      config->n_mounts + 3 + image->config.volumes.count);
	/* the pod's own files, unless the kubelet brings better ones */
	for (size_t i = 0; i < 3; i++) {
		const char *target = arena_printf(arena, "/etc/%s", files[i]);

		if (!has_mount_at(config, target))
			ret->mounts[ret->mount_count++] = (struct mount_spec){
				.source = arena_printf(arena, "%s/%s", c->sandbox->dir, files[i]),
				.target = target,
				.is_readonly = ret->is_readonly_root,
				.is_relabelled = true,
			};
	}
	volumes_of(arena, c, ns, config, image, ret);
	for (size_t i = 0; i < config->n_mounts; i++)
		ret->mounts[ret->mount_count++] = mount_of(arena, c, config->mounts[i]);
}

int translate_stop_signal(const ContainerConfig *config, const struct image *image)
{
	int signal = translate_signal(config->stop_signal);

	if (!signal && image && is_set(image->config.stop_signal))
		signal = translate_signal_name(image->config.stop_signal);
	return signal ? signal : SIGTERM;
}

int translate_container(struct arena *arena, const struct container *c, const struct image *image,
			struct container_spec *ret, struct error *err)
{
	const ContainerConfig *config = container_config(arena, c);
	const SandboxConfig *pod = sandbox_config(arena, c->sandbox);
	const NamespaceOption *ns = sandbox_namespaces(pod);

	ret->has_tty = config->tty;
	ret->has_stdin = config->stdin;
	ret->stop_signal = translate_stop_signal(config, image);
	if (!image)
		return 0;
	TRY(argv_of(arena, config, image, &ret->argv, err));
	TRY(env_of(arena, pod, config, image, &ret->envp, err));
	TRY(translate_security(arena, config, ns, image, ret, err));
	translate_profiles(arena, c, config, ret);
	mounts_of(arena, c, ns, config, image, ret);
	ret->layers = image->layers;
	ret->cwd = is_set(config->working_dir) ? config->working_dir
					       : null_if_empty(image->config.working_dir);
	ret->devices = arena_new_array(arena, struct device_spec, config->n_devices);
	for (size_t i = 0; i < config->n_devices; i++)
		ret->devices[ret->device_count++] = (struct device_spec){
			config->devices[i]->host_path, config->devices[i]->container_path,
			config->devices[i]->permissions};
	translate_container_limits.spec(arena, c, &c->limits.bytes, &ret->resources);
	return 0;
}
