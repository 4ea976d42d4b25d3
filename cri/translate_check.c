/* SPDX-License-Identifier: Apache-2.0 */
/* The checks that a request must pass before anything is done for it. */
#include "cri/translate_priv.h"

#include <string.h>

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

#define OPTIONS "linux.security_context.namespace_options"

static int check_namespaces(const NamespaceOption *o, struct error *err)
{
	if (!o)
		return 0;
	if (o->network != NS_NAME(POD) && o->network != NS_NAME(NODE))
		return error_set(err, ERR_INVALID, OPTIONS ".network: must be POD or NODE");
	if (o->ipc != NS_NAME(POD) && o->ipc != NS_NAME(NODE))
		return error_set(err, ERR_INVALID, OPTIONS ".ipc: must be POD or NODE");
	if (o->userns_options && o->userns_options->mode != NS_NAME(POD) &&
	    o->userns_options->mode != NS_NAME(NODE))
		return error_set(err, ERR_INVALID,
				 OPTIONS ".userns_options.mode: must be POD or NODE");
	if ((o->pid == NS_NAME(TARGET)) != is_set(o->target_id))
		return error_set(err, ERR_INVALID,
				 OPTIONS ".target_id: needed for pid TARGET, and only there");
	return 0;
}

static bool is_same_map(Runtime__V1__IDMapping **a, size_t a_count, Runtime__V1__IDMapping **b,
			size_t b_count)
{
	for (size_t i = 0; i < a_count && i < b_count; i++)
		if (a[i]->host_id != b[i]->host_id || a[i]->container_id != b[i]->container_id ||
		    a[i]->length != b[i]->length)
			return false;
	return a_count == b_count;
}

static int check_user_namespace(const Runtime__V1__UserNamespace *mine,
				const Runtime__V1__UserNamespace *pod, struct error *err)
{
	if (!mine || mine->mode != NS_NAME(POD))
		return 0;
	/* the zero value means what nobody asked for, unless it has ids */
	if ((!pod || pod->mode != NS_NAME(POD)) && !mine->n_uids && !mine->n_gids)
		return 0;
	if (pod && pod->mode == NS_NAME(POD) &&
	    is_same_map(mine->uids, mine->n_uids, pod->uids, pod->n_uids) &&
	    is_same_map(mine->gids, mine->n_gids, pod->gids, pod->n_gids))
		return 0;
	return error_set(err, ERR_INVALID,
			 "config." OPTIONS ".userns_options: a container has its pod's user "
			 "namespace; give both the same one");
}

int translate_check_in_pod(const SandboxConfig *pod, const ContainerConfig *config,
			   struct error *err)
{
	const ContainerSecurity *s = security_of(config);
	const Runtime__V1__LinuxSandboxSecurityContext *p =
		pod->linux ? pod->linux->security_context : NULL;
	const NamespaceOption *mine = s ? s->namespace_options : NULL;
	const NamespaceOption *of_pod = sandbox_namespaces(pod);

	if (s && s->privileged && (!p || !p->privileged))
		return error_set(err, ERR_INVALID,
				 "config.linux.security_context.privileged: the pod does not allow "
				 "it; run the pod with linux.security_context.privileged");
	if (!mine)
		return 0;
	if (mine->network == NS_NAME(NODE) && (!of_pod || of_pod->network != NS_NAME(NODE)))
		return error_set(err, ERR_INVALID,
				 "config." OPTIONS ".network: a container has its pod's, and that "
				 "is not NODE");
	if (mine->ipc == NS_NAME(NODE) && (!of_pod || of_pod->ipc != NS_NAME(NODE)))
		return error_set(err, ERR_INVALID,
				 "config." OPTIONS ".ipc: a container has its pod's, and that is "
				 "not NODE");
	return check_user_namespace(mine->userns_options, of_pod ? of_pod->userns_options : NULL,
				    err);
}

static int check_pod_limits(const Runtime__V1__LinuxPodSandboxConfig *config, struct error *err)
{
	const struct pod_limits limits = {config->overhead, config->resources};

	TRY(translate_check_pod_limits("config.linux.", &limits, *config->cgroup_parent, err));
	if (config->resources)
		TRY(translate_check_swap("config.linux.resources", config->resources, err));
	return 0;
}

int translate_check_sandbox(const SandboxConfig *config, struct error *err)
{
	const Runtime__V1__LinuxSandboxSecurityContext *s;

	if (!config || !config->metadata)
		return error_set(err, ERR_INVALID, "config.metadata: missing");
	TRY(translate_check_known(&config->base, "config", err));
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
	if (config->linux)
		TRY(check_pod_limits(config->linux, err));
	s = config->linux ? config->linux->security_context : NULL;
	if (!s)
		return 0;
	TRY(check_namespaces(s->namespace_options, err));
	if (s->namespace_options && s->namespace_options->pid == NS_NAME(TARGET))
		return error_set(err, ERR_INVALID,
				 OPTIONS ".pid: TARGET is for containers; a pod has none to name");
	return check_selinux(s->selinux_options, err);
}

static int check_image_mount(const Runtime__V1__Mount *m, struct error *err)
{
	const char *at = m->container_path;

	if (is_set(m->host_path))
		return error_set(err, ERR_INVALID,
				 "mounts.host_path at %.200s: a mount of an image has none", at);
	if (!m->readonly)
		return error_set(err, ERR_INVALID,
				 "mounts.readonly at %.200s: an image can be mounted read-only "
				 "only; set it",
				 at);
	if (m->propagation != RUNTIME__V1__MOUNT_PROPAGATION__PROPAGATION_PRIVATE)
		return error_set(err, ERR_INVALID,
				 "mounts.propagation at %.200s: nothing can be mounted in an "
				 "image, so it is private",
				 at);
	return 0;
}

/* Those that the API names; all others have fields of their own, or can't be had. */
static int check_option(const char *option, const char *at, struct error *err)
{
	static const char *const known[] = {"noexec", "nosuid", "nodev"};

	for (size_t i = 0; i < sizeof(known) / sizeof(known[0]); i++)
		if (!strcmp(option, known[i]))
			return 0;
	return error_set(
		err, ERR_INVALID,
		"mounts.mount_options at %.200s: \"%.80s\" is none of noexec, nosuid, nodev", at,
		option);
}

static int check_mount(const Runtime__V1__Mount *m, struct error *err)
{
	const char *at = m->container_path;

	if (at[0] != '/')
		return error_set(err, ERR_INVALID,
				 "mounts.container_path %.200s: it must be absolute", at);
	if (translate_has_image(m))
		TRY(check_image_mount(m, err));
	else if (is_set(m->image_sub_path))
		return error_set(err, ERR_INVALID,
				 "mounts.image_sub_path at %.200s: needs an image", at);
	else if (m->host_path[0] != '/')
		return error_set(err, ERR_INVALID,
				 "mounts.host_path %.200s at %.200s: it must be absolute",
				 m->host_path, at);
	if (m->recursive_read_only && !m->readonly)
		return error_set(err, ERR_INVALID,
				 "mounts.recursive_read_only at %.200s: needs readonly", at);
	if (m->recursive_read_only &&
	    m->propagation != RUNTIME__V1__MOUNT_PROPAGATION__PROPAGATION_PRIVATE)
		return error_set(err, ERR_INVALID,
				 "mounts.recursive_read_only at %.200s: needs private propagation",
				 at);
	for (size_t i = 0; i < m->n_mount_options; i++)
		TRY(check_option(m->mount_options[i], at, err));
	return 0;
}

static int check_security(const ContainerSecurity *s, struct error *err)
{
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
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wdeprecated-declarations"
	TRY(translate_check_seccomp(s->seccomp, s->seccomp_profile_path, err));
	return translate_check_apparmor(s->apparmor, s->apparmor_profile, err);
#pragma GCC diagnostic pop
}

#define RESOURCES "config.linux.resources"

int translate_check_container(const ContainerConfig *config, struct error *err)
{
	if (!config || !config->metadata || !is_set(config->metadata->name))
		return error_set(err, ERR_INVALID, "config.metadata.name: missing");
	if (!config->image || !is_set(config->image->image))
		return error_set(err, ERR_INVALID, "config.image.image: missing");
	TRY(translate_check_known(&config->base, "config", err));
	if (config->windows)
		return error_set(err, ERR_INVALID, "config.windows: this node runs Linux");
	if (config->n_cdi_devices)
		return refuse_field(err, "config.CDI_devices");
	for (size_t i = 0; i < config->n_mounts; i++)
		TRY(check_mount(config->mounts[i], err));
	if (config->linux && config->linux->resources) {
		TRY(translate_check_resources(RESOURCES, config->linux->resources, err));
		TRY(translate_check_swap(RESOURCES, config->linux->resources, err));
	}
	return check_security(security_of(config), err);
}
