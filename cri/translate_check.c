/* SPDX-License-Identifier: Apache-2.0 */
/* The checks that a request must pass before anything is done for it. */
#include "cri/translate_priv.h"

#include <string.h>

#include "io/base/cleanup.h"
#include "io/base/path.h"

static int refuse_field(struct error *err, const char *field)
{
	return error_set(err, ERR_UNIMPLEMENTED, "%s: this version can't do it yet; leave it out",
			 field);
}

/* 2^31-1, where ids end in Kubernetes' API. */
#define ID_MAX 2147483647

static int check_id(const char *field, int64_t id, struct error *err)
{
	if (id < 0 || id > ID_MAX)
		return error_set(err, ERR_INVALID,
				 SECURITY_CONTEXT ".%s: %lld is no id; they go from 0 to %d", field,
				 (long long)id, ID_MAX);
	return 0;
}

static int check_ids(const Runtime__V1__Int64Value *user, const Runtime__V1__Int64Value *group,
		     const int64_t *groups, size_t group_count, struct error *err)
{
	if (user)
		TRY(check_id("run_as_user", user->value, err));
	if (group)
		TRY(check_id("run_as_group", group->value, err));
	for (size_t i = 0; i < group_count; i++)
		TRY(check_id("supplemental_groups", groups[i], err));
	return 0;
}

static int check_pod_limits(const Runtime__V1__LinuxPodSandboxConfig *config, struct error *err)
{
	const struct pod_limits limits = {config->overhead, config->resources};

	TRY(translate_check_pod_limits("config.linux.", &limits, *config->cgroup_parent, err));
	if (config->resources)
		TRY(translate_check_swap("config.linux.resources", config->resources, err));
	return 0;
}

/* HOST_NAME_MAX of Linux. */
#define HOSTNAME_MAX 64

/* The kernel takes anything, but the name also goes into files where blanks and lines count. */
static int check_hostname(const char *name, struct error *err)
{
	static const char allowed[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
				      "0123456789-._";

	if (strlen(name) > HOSTNAME_MAX)
		return error_set(err, ERR_INVALID,
				 "config.hostname: %zu bytes, and a host name has at most %d",
				 strlen(name), HOSTNAME_MAX);
	if (name[strspn(name, allowed)])
		return error_set(err, ERR_INVALID,
				 "config.hostname \"%s\": use letters, digits, '-', '_' and '.'",
				 name);
	return 0;
}

/* Each is one word of a line of resolv.conf(5). */
static int check_words(const char *field, char **words, size_t count, struct error *err)
{
	for (size_t i = 0; i < count; i++)
		for (const char *c = words[i]; *c || c == words[i]; c++)
			if ((unsigned char)*c <= ' ' || *c == 0x7f)
				return error_set(err, ERR_INVALID,
						 "config.dns_config.%s \"%.80s\": it must be one "
						 "word, without blanks and lines",
						 field, words[i]);
	return 0;
}

static int check_dns(const Runtime__V1__DNSConfig *dns, struct error *err)
{
	if (!dns)
		return 0;
	TRY(check_words("servers", dns->servers, dns->n_servers, err));
	TRY(check_words("searches", dns->searches, dns->n_searches, err));
	return check_words("options", dns->options, dns->n_options, err);
}

int translate_check_sandbox(const SandboxConfig *config, struct error *err)
{
	const Runtime__V1__LinuxSandboxSecurityContext *s;

	if (!config || !config->metadata)
		return error_set(err, ERR_INVALID, "config.metadata: missing");
	TRY(translate_check_known(&config->base, "config", err));
	if (!is_set(config->metadata->name))
		return error_set(err, ERR_INVALID, "config.metadata.name: missing");
	TRY(check_hostname(config->hostname, err));
	TRY(check_dns(config->dns_config, err));
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
	TRY(translate_check_namespaces(s->namespace_options, true, err));
	if (s->namespace_options && s->namespace_options->pid == NS_NAME(TARGET))
		return error_set(
			err, ERR_INVALID,
			SECURITY_CONTEXT
			".namespace_options.pid: TARGET is for containers; a pod has none to name");
	TRY(check_ids(s->run_as_user, s->run_as_group, s->supplemental_groups,
		      s->n_supplemental_groups, err));
	if (s->run_as_group && !s->run_as_user)
		return error_set(err, ERR_INVALID,
				 SECURITY_CONTEXT ".run_as_group: needs run_as_user");
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wdeprecated-declarations"
	TRY(translate_check_seccomp(s->seccomp, s->seccomp_profile_path, err));
#pragma GCC diagnostic pop
	TRY(translate_check_apparmor(s->apparmor, NULL, err));
	return translate_check_selinux(s->selinux_options, err);
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

/* Of the root, by whatever spelling, nothing would come. */
static int check_paths(const char *field, char *const *paths, size_t count, struct error *err)
{
	for (size_t i = 0; i < count; i++) {
		cleanup_free char *clean = path_clean(paths[i]);

		if (paths[i][0] != '/' || !strcmp(clean, "/"))
			return error_set(err, ERR_INVALID,
					 SECURITY_CONTEXT
					 ".%s \"%.200s\": must be absolute, and not the root, for "
					 "which there is readonly_rootfs",
					 field, paths[i]);
	}
	return 0;
}

static int check_security(const ContainerSecurity *s, struct error *err)
{
	if (!s)
		return 0;
	TRY(translate_check_namespaces(s->namespace_options, false, err));
	TRY(translate_check_selinux(s->selinux_options, err));
	TRY(check_paths("masked_paths", s->masked_paths, s->n_masked_paths, err));
	TRY(check_paths("readonly_paths", s->readonly_paths, s->n_readonly_paths, err));
	TRY(check_ids(s->run_as_user, s->run_as_group, s->supplemental_groups,
		      s->n_supplemental_groups, err));
	if (s->run_as_group && !s->run_as_user && !is_set(s->run_as_username))
		return error_set(err, ERR_INVALID,
				 "config.linux.security_context.run_as_group: needs run_as_user or "
				 "run_as_username");
	if (s->run_as_user && is_set(s->run_as_username))
		return error_set(
			err, ERR_INVALID,
			"config.linux.security_context: run_as_user and run_as_username exclude "
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
	for (size_t i = 0; i < config->n_mounts; i++)
		TRY(check_mount(config->mounts[i], err));
	if (config->linux && config->linux->resources) {
		TRY(translate_check_resources(RESOURCES, config->linux->resources, err));
		TRY(translate_check_swap(RESOURCES, config->linux->resources, err));
	}
	return check_security(security_of(config), err);
}
