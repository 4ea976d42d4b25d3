/* SPDX-License-Identifier: Apache-2.0 */
/*
 * CRI configurations into specs. Peculiar: it runs at create, at start and at each recovery, so it
 * depends on nothing but the stored bytes and the image's configuration.
 */
#include "cri/translate.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "io/base/alloc.h"
#include "io/fs.h"
#include "sandbox/linux/caps.h"

typedef Runtime__V1__PodSandboxConfig SandboxConfig;
typedef Runtime__V1__ContainerConfig ContainerConfig;
typedef Runtime__V1__LinuxContainerSecurityContext ContainerSecurity;
typedef Runtime__V1__NamespaceOption NamespaceOption;

#define NS_NAME(mode) RUNTIME__V1__NAMESPACE_MODE__##mode
#define DEFAULT_PATH "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
/* What other runtimes give a pod. */
#define SHM_SIZE (64u << 20)

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

static bool is_set(const char *s)
{
	return s && *s;
}

static const char *null_if_empty(const char *s)
{
	return is_set(s) ? s : NULL;
}

static const NamespaceOption *sandbox_namespaces(const SandboxConfig *config)
{
	return config->linux && config->linux->security_context
		       ? config->linux->security_context->namespace_options
		       : NULL;
}

static const ContainerSecurity *security_of(const ContainerConfig *config)
{
	return config->linux ? config->linux->security_context : NULL;
}

static enum ns_mode ns_mode_of(Runtime__V1__NamespaceMode mode)
{
	switch (mode) {
	case NS_NAME(CONTAINER):
		return NS_CONTAINER;
	case NS_NAME(NODE):
		return NS_NODE;
	case NS_NAME(TARGET):
		return NS_TARGET;
	default:
		return NS_POD;
	}
}

static struct id_map_list id_maps(struct arena *arena, Runtime__V1__IDMapping **maps, size_t count)
{
	struct id_map_list list = {arena_new_array(arena, struct id_map, count), count};

	for (size_t i = 0; i < count; i++)
		list.items[i] = (struct id_map){
			.inside = maps[i]->container_id,
			.outside = maps[i]->host_id,
			.length = maps[i]->length,
		};
	return list;
}

static int refuse_field(struct error *err, const char *field)
{
	return error_set(err, ERR_UNIMPLEMENTED, "%s: this version can't do it yet; leave it out",
			 field);
}

static int check_selinux(const Runtime__V1__SELinuxOption *o, struct error *err)
{
	if (o && (is_set(o->user) || is_set(o->role) || is_set(o->type) || is_set(o->level)))
		return refuse_field(err, "linux.security_context.selinux_options");
	return 0;
}

static int check_profiles(const Runtime__V1__SecurityProfile *seccomp, const char *old_seccomp,
			  const Runtime__V1__SecurityProfile *apparmor, const char *old_apparmor,
			  struct error *err)
{
	if (seccomp &&
	    seccomp->profile_type == RUNTIME__V1__SECURITY_PROFILE__PROFILE_TYPE__Localhost)
		return refuse_field(err, "linux.security_context.seccomp of type Localhost");
	if (!seccomp && is_set(old_seccomp) && !strncmp(old_seccomp, "localhost/", 10))
		return refuse_field(err, "linux.security_context.seccomp_profile_path localhost/");
	if (apparmor &&
	    apparmor->profile_type == RUNTIME__V1__SECURITY_PROFILE__PROFILE_TYPE__Localhost)
		return refuse_field(err, "linux.security_context.apparmor of type Localhost");
	if (!apparmor && is_set(old_apparmor) && !strncmp(old_apparmor, "localhost/", 10))
		return refuse_field(err, "linux.security_context.apparmor_profile localhost/");
	return 0;
}

static int check_namespaces(const NamespaceOption *o, struct error *err)
{
	if (!o)
		return 0;
	if (o->network != NS_NAME(POD) && o->network != NS_NAME(NODE))
		return error_set(err, ERR_INVALID,
				 "namespace_options.network: must be POD or NODE");
	if (o->ipc != NS_NAME(POD) && o->ipc != NS_NAME(NODE))
		return error_set(err, ERR_INVALID, "namespace_options.ipc: must be POD or NODE");
	if (o->pid == NS_NAME(TARGET) && !is_set(o->target_id))
		return error_set(err, ERR_INVALID,
				 "namespace_options.target_id: needed for pid TARGET");
	if (o->userns_options && o->userns_options->mode != NS_NAME(POD) &&
	    o->userns_options->mode != NS_NAME(NODE))
		return error_set(err, ERR_INVALID,
				 "namespace_options.userns_options.mode: must be POD or NODE");
	return 0;
}

char *translate_sandbox_name(const Runtime__V1__PodSandboxMetadata *m)
{
	return xasprintf("%s_%s_%s_%u", m->name, m->namespace_, m->uid, m->attempt);
}

int translate_check_sandbox(const SandboxConfig *config, struct error *err)
{
	const Runtime__V1__LinuxSandboxSecurityContext *s;

	if (!config || !config->metadata)
		return error_set(err, ERR_INVALID, "config.metadata: missing");
	if (!is_set(config->metadata->name))
		return error_set(err, ERR_INVALID, "config.metadata.name: missing");
	if (strlen(config->hostname) > 64)
		return error_set(err, ERR_INVALID,
				 "config.hostname: %zu bytes, and a host name has at most 64",
				 strlen(config->hostname));
	if (config->windows)
		return error_set(err, ERR_INVALID, "config.windows: this node runs Linux");
	for (size_t i = 0; i < config->n_port_mappings; i++)
		if (config->port_mappings[i]->host_port)
			return refuse_field(err, "config.port_mappings with host_port");
	s = config->linux ? config->linux->security_context : NULL;
	if (!s)
		return 0;
	TRY(check_namespaces(s->namespace_options, err));
	TRY(check_selinux(s->selinux_options, err));
	return 0;
}

static int check_mount(const Runtime__V1__Mount *m, struct error *err)
{
	if (m->container_path[0] != '/')
		return error_set(err, ERR_INVALID,
				 "mount of %.200s: container_path %.200s is not absolute",
				 m->host_path, m->container_path);
	if (m->image && is_set(m->image->image))
		return refuse_field(err, "mounts.image");
	if (m->host_path[0] != '/')
		return error_set(err, ERR_INVALID,
				 "mount at %.200s: host_path %.200s is not absolute",
				 m->container_path, m->host_path);
	if (m->recursive_read_only && !m->readonly)
		return error_set(err, ERR_INVALID,
				 "mount at %.200s: recursive_read_only needs readonly",
				 m->container_path);
	if (m->recursive_read_only &&
	    m->propagation != RUNTIME__V1__MOUNT_PROPAGATION__PROPAGATION_PRIVATE)
		return error_set(err, ERR_INVALID,
				 "mount at %.200s: recursive_read_only needs private propagation",
				 m->container_path);
	if (m->n_mount_options)
		return refuse_field(err, "mounts.mount_options");
	return 0;
}

static int check_security(const ContainerSecurity *s, struct error *err)
{
	const char *old_seccomp, *old_apparmor;

	if (!s)
		return 0;
	TRY(check_namespaces(s->namespace_options, err));
	TRY(check_selinux(s->selinux_options, err));
	if (s->run_as_group && !s->run_as_user && !is_set(s->run_as_username))
		return error_set(err, ERR_INVALID,
				 "linux.security_context.run_as_group: needs run_as_user or "
				 "run_as_username");
	if (s->run_as_user && is_set(s->run_as_username))
		return error_set(err, ERR_INVALID,
				 "linux.security_context: run_as_user and run_as_username exclude "
				 "each other");
	/* no filter and no profile apply to it, whichever are given */
	if (s->privileged)
		return 0;
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wdeprecated-declarations"
	old_seccomp = s->seccomp_profile_path;
	old_apparmor = s->apparmor_profile;
#pragma GCC diagnostic pop
	return check_profiles(s->seccomp, old_seccomp, s->apparmor, old_apparmor, err);
}

int translate_check_container(const ContainerConfig *config, struct error *err)
{
	if (!config || !config->metadata || !is_set(config->metadata->name))
		return error_set(err, ERR_INVALID, "config.metadata.name: missing");
	if (!config->image || !is_set(config->image->image))
		return error_set(err, ERR_INVALID, "config.image.image: missing");
	if (config->windows)
		return error_set(err, ERR_INVALID, "config.windows: this node runs Linux");
	if (config->n_cdi_devices)
		return refuse_field(err, "config.CDI_devices");
	for (size_t i = 0; i < config->n_mounts; i++)
		TRY(check_mount(config->mounts[i], err));
	if (config->linux && config->linux->resources)
		TRY(translate_check_resources("config.linux.resources", config->linux->resources,
					      err));
	return check_security(security_of(config), err);
}

static void *sandbox_decode(const void *bytes, size_t size, struct error *err)
{
	SandboxConfig *config = runtime__v1__pod_sandbox_config__unpack(NULL, size, bytes);

	if (!config || !config->metadata) {
		if (config)
			runtime__v1__pod_sandbox_config__free_unpacked(config, NULL);
		error_set(err, ERR_INTERNAL, "stored PodSandboxConfig: damaged");
		return NULL;
	}
	return config;
}

/* A copy of the message as it would come from the store. */
static void *repack(const ProtobufCMessage *message)
{
	struct buf bytes CLEANUP(buf_done) = {0};
	size_t size = protobuf_c_message_get_packed_size(message);

	bytes.length = protobuf_c_message_pack(message, (uint8_t *)buf_reserve(&bytes, size));
	return protobuf_c_message_unpack(message->descriptor, NULL, bytes.length,
					 (uint8_t *)bytes.data);
}

static void *sandbox_blank(const char *id)
{
	SandboxConfig config = RUNTIME__V1__POD_SANDBOX_CONFIG__INIT;
	Runtime__V1__PodSandboxMetadata metadata = RUNTIME__V1__POD_SANDBOX_METADATA__INIT;

	metadata.name = metadata.uid = (char *)id;
	metadata.namespace_ = (char *)"damaged";
	config.metadata = &metadata;
	return repack(&config.base);
}

static void sandbox_free(void *config)
{
	runtime__v1__pod_sandbox_config__free_unpacked(config, NULL);
}

static void *container_decode(const void *bytes, size_t size, struct error *err)
{
	ContainerConfig *config = runtime__v1__container_config__unpack(NULL, size, bytes);

	if (!config || !config->metadata || !config->image) {
		if (config)
			runtime__v1__container_config__free_unpacked(config, NULL);
		error_set(err, ERR_INTERNAL, "stored ContainerConfig: damaged");
		return NULL;
	}
	return config;
}

static void *container_blank(const char *id)
{
	ContainerConfig config = RUNTIME__V1__CONTAINER_CONFIG__INIT;
	Runtime__V1__ContainerMetadata metadata = RUNTIME__V1__CONTAINER_METADATA__INIT;
	Runtime__V1__ImageSpec image = RUNTIME__V1__IMAGE_SPEC__INIT;

	metadata.name = (char *)id;
	config.metadata = &metadata;
	config.image = &image;
	return repack(&config.base);
}

static void container_free(void *config)
{
	runtime__v1__container_config__free_unpacked(config, NULL);
}

static void *resources_decode(const void *bytes, size_t size, struct error *err)
{
	void *resources = runtime__v1__linux_container_resources__unpack(NULL, size, bytes);

	if (!resources)
		error_set(err, ERR_INTERNAL, "stored LinuxContainerResources: damaged");
	return resources;
}

static void resources_free(void *resources)
{
	runtime__v1__linux_container_resources__free_unpacked(resources, NULL);
}

static char *container_name(const void *config)
{
	const ContainerConfig *c = config;

	return xasprintf("%s_%u", c->metadata->name, c->metadata->attempt);
}

/* One that is called after the pod, as the kubelet's are, is that pod's alone. */
static bool is_own_parent(const char *parent, const char *uid)
{
	size_t length = strlen(parent), n = strlen(uid);

	return n && length > n && strcmp(parent + length - n, uid) == 0;
}

static int sandbox_spec(struct arena *arena, const struct sandbox *sb, struct sandbox_spec *ret,
			struct error *err)
{
	const SandboxConfig *config = sb->config;
	const NamespaceOption *ns = sandbox_namespaces(config);
	const Runtime__V1__UserNamespace *user = ns ? ns->userns_options : NULL;
	const char *parent = config->linux ? null_if_empty(config->linux->cgroup_parent) : NULL;

	ret->id = sb->id;
	ret->hostname = config->hostname;
	ret->net = ns ? ns_mode_of(ns->network) : NS_POD;
	ret->ipc = ns ? ns_mode_of(ns->ipc) : NS_POD;
	ret->pid = ns ? ns_mode_of(ns->pid) : NS_POD;
	ret->shm_size = SHM_SIZE;
	ret->cgroup_parent = parent;
	ret->has_own_parent =
		parent && config->metadata && is_own_parent(parent, config->metadata->uid);
	if (user && user->mode == NS_NAME(POD)) {
		ret->has_userns = true;
		ret->uids = id_maps(arena, user->uids, user->n_uids);
		ret->gids = id_maps(arena, user->gids, user->n_gids);
	}
	if (!config->linux)
		return 0;
	ret->sysctls.items = arena_new_array(arena, struct key_value, config->linux->n_sysctls);
	for (size_t i = 0; i < config->linux->n_sysctls; i++)
		ret->sysctls.items[ret->sysctls.count++] = (struct key_value){
			config->linux->sysctls[i]->key, config->linux->sysctls[i]->value};
	if (config->linux->resources)
		translate_resources(arena, config->linux->resources, &ret->resources);
	return 0;
}

static struct string_list strings(struct arena *arena, char **items, size_t count)
{
	struct string_list list = {arena_new_array(arena, const char *, count), count};

	for (size_t i = 0; i < count; i++)
		list.items[i] = items[i];
	return list;
}

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

static int env_of(struct arena *arena, const struct container *c, const ContainerConfig *config,
		  const struct image *image, struct string_list *ret, struct error *err)
{
	const SandboxConfig *pod = c->sandbox->config;

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
	if (is_set(pod->hostname) && !find_env(ret, "HOSTNAME"))
		put_env(arena, ret, "HOSTNAME", pod->hostname, strlen(pod->hostname));
	return 0;
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

static bool has_mount_at(const ContainerConfig *config, const char *target)
{
	for (size_t i = 0; i < config->n_mounts; i++)
		if (!strcmp(config->mounts[i]->container_path, target))
			return true;
	return false;
}

static void mounts_of(struct arena *arena, const struct container *c, const ContainerConfig *config,
		      bool is_readonly_root, struct container_spec *ret)
{
	static const char *const files[] = {"hostname", "hosts", "resolv.conf"};

	ret->mounts = arena_new_array(arena, struct mount_spec, config->n_mounts + 3);
	/* the pod's own files, unless the kubelet brings better ones */
	for (size_t i = 0; i < 3; i++) {
		const char *target = arena_printf(arena, "/etc/%s", files[i]);

		if (!has_mount_at(config, target))
			ret->mounts[ret->mount_count++] = (struct mount_spec){
				.source = arena_printf(arena, "%s/%s", c->sandbox->dir, files[i]),
				.target = target,
				.is_readonly = is_readonly_root,
			};
	}
	for (size_t i = 0; i < config->n_mounts; i++) {
		const Runtime__V1__Mount *m = config->mounts[i];

		ret->mounts[ret->mount_count++] = (struct mount_spec){
			.source = m->host_path,
			.target = m->container_path,
			.is_readonly = m->readonly,
			.is_recursive_readonly = m->recursive_read_only,
			.propagation = (enum mount_propagation)m->propagation,
			.uids = id_maps(arena, m->uidmappings, m->n_uidmappings),
			.gids = id_maps(arena, m->gidmappings, m->n_gidmappings),
		};
	}
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

static enum seccomp_kind seccomp_of(const ContainerSecurity *s)
{
	const char *old;

	if (!s)
		return SECCOMP_RUNTIME_DEFAULT;
	if (s->privileged)
		return SECCOMP_UNCONFINED;
	if (s->seccomp)
		return s->seccomp->profile_type ==
				       RUNTIME__V1__SECURITY_PROFILE__PROFILE_TYPE__Unconfined
			       ? SECCOMP_UNCONFINED
			       : SECCOMP_RUNTIME_DEFAULT;
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wdeprecated-declarations"
	old = s->seccomp_profile_path;
#pragma GCC diagnostic pop
	/* a context without a profile means none: what the API's clients expect */
	return !strcmp(old, "runtime/default") || !strcmp(old, "docker/default")
		       ? SECCOMP_RUNTIME_DEFAULT
		       : SECCOMP_UNCONFINED;
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

/* A container that says nothing of namespaces has those of its pod. */
static int security_spec(struct arena *arena, const ContainerConfig *config,
			 const NamespaceOption *pod, const struct image *image,
			 struct container_spec *ret, struct error *err)
{
	const ContainerSecurity *s = security_of(config);
	const NamespaceOption *ns = s ? s->namespace_options : NULL;

	ret->pid = ns_mode_of(ns ? ns->pid : pod ? pod->pid : NS_NAME(POD));
	ret->pid_target = ns ? null_if_empty(ns->target_id) : NULL;
	ret->is_privileged = s && s->privileged;
	ret->no_new_privs = s && s->no_new_privs;
	ret->is_readonly_root = s && s->readonly_rootfs;
	ret->seccomp = seccomp_of(s);
	paths_of(arena, s, ret);
	TRY(user_of(arena, s, image, &ret->user, err));
	return capabilities_of(arena, s, ret, err);
}

static int stop_signal_of(const ContainerConfig *config, const struct image *image)
{
	int signal = translate_signal(config->stop_signal);

	if (!signal && image && is_set(image->config.stop_signal))
		signal = translate_signal_name(image->config.stop_signal);
	return signal ? signal : SIGTERM;
}

static int container_spec(struct arena *arena, const struct container *c, const struct image *image,
			  struct container_spec *ret, struct error *err)
{
	const ContainerConfig *config = c->config;

	ret->has_tty = config->tty;
	ret->has_stdin = config->stdin;
	ret->stop_signal = stop_signal_of(config, image);
	if (!image)
		return 0;
	TRY(argv_of(arena, config, image, &ret->argv, err));
	TRY(env_of(arena, c, config, image, &ret->envp, err));
	TRY(security_spec(arena, config, sandbox_namespaces(c->sandbox->config), image, ret, err));
	mounts_of(arena, c, config, ret->is_readonly_root, ret);
	ret->layers = image->layers;
	ret->cwd = is_set(config->working_dir) ? config->working_dir
					       : null_if_empty(image->config.working_dir);
	ret->devices = arena_new_array(arena, struct device_spec, config->n_devices);
	for (size_t i = 0; i < config->n_devices; i++)
		ret->devices[ret->device_count++] = (struct device_spec){
			config->devices[i]->host_path, config->devices[i]->container_path,
			config->devices[i]->permissions};
	if (translate_resources_of(c))
		translate_resources(arena, translate_resources_of(c), &ret->resources);
	return 0;
}

static void add_lines(struct buf *b, const char *word, char **items, size_t count)
{
	for (size_t i = 0; i < count; i++)
		buf_printf(b, "%s%s", i ? " " : word, items[i]);
	if (count)
		buf_puts(b, "\n");
}

static int resolv_conf(const SandboxConfig *config, struct buf *ret, struct error *err)
{
	const Runtime__V1__DNSConfig *dns = config->dns_config;

	if (!dns)
		return fs_read_file("/etc/resolv.conf", 1 << 20, ret, err);
	for (size_t i = 0; i < dns->n_servers; i++)
		buf_printf(ret, "nameserver %s\n", dns->servers[i]);
	add_lines(ret, "search ", dns->searches, dns->n_searches);
	add_lines(ret, "options ", dns->options, dns->n_options);
	return 0;
}

static int hosts(const SandboxConfig *config, struct buf *ret, struct error *err)
{
	const NamespaceOption *ns = sandbox_namespaces(config);

	if (ns && ns->network == NS_NAME(NODE))
		return fs_read_file("/etc/hosts", 1 << 20, ret, err);
	buf_puts(ret, "127.0.0.1\tlocalhost\n::1\tlocalhost ip6-localhost ip6-loopback\n");
	if (is_set(config->hostname))
		buf_printf(ret, "127.0.0.1\t%s\n", config->hostname);
	return 0;
}

static int sandbox_files(const struct sandbox *sb, struct error *err)
{
	const SandboxConfig *config = sb->config;
	struct buf dns CLEANUP(buf_done) = {0}, names CLEANUP(buf_done) = {0};
	struct buf host CLEANUP(buf_done) = {0};
	cleanup_close int dir = open(sb->dir, O_PATH | O_DIRECTORY | O_CLOEXEC);
	char name[65] = "";

	if (dir < 0)
		return error_errno(err, errno, "open %s", sb->dir);
	if (is_set(config->hostname))
		buf_printf(&host, "%s\n", config->hostname);
	else if (gethostname(name, sizeof(name) - 1) == 0)
		buf_printf(&host, "%s\n", name);
	TRY(resolv_conf(config, &dns, err));
	TRY(hosts(config, &names, err));
	TRY(fs_write_at(dir, "hostname", &host, 0644, err));
	TRY(fs_write_at(dir, "hosts", &names, 0644, err));
	return fs_write_at(dir, "resolv.conf", &dns, 0644, err);
}

const struct front_end cri_front_end = {
	.sandbox_decode = sandbox_decode,
	.sandbox_blank = sandbox_blank,
	.sandbox_free = sandbox_free,
	.sandbox_spec = sandbox_spec,
	.sandbox_files = sandbox_files,
	.container_decode = container_decode,
	.container_blank = container_blank,
	.container_free = container_free,
	.container_name = container_name,
	.container_spec = container_spec,
	.resources_decode = resources_decode,
	.resources_free = resources_free,
	.resources_spec = translate_resources,
	.resources_of = translate_resources_of,
	.resources_merge = translate_merge_resources,
};
