/* SPDX-License-Identifier: Apache-2.0 */
/* What the translate*.c files share; for them alone. */
#pragma once

#include "cri/translate.h"

typedef Runtime__V1__PodSandboxConfig SandboxConfig;
typedef Runtime__V1__ContainerConfig ContainerConfig;
typedef Runtime__V1__LinuxContainerSecurityContext ContainerSecurity;
typedef Runtime__V1__NamespaceOption NamespaceOption;

#define NS_NAME(mode) RUNTIME__V1__NAMESPACE_MODE__##mode

static inline bool is_set(const char *s)
{
	return s && *s;
}

static inline const char *null_if_empty(const char *s)
{
	return is_set(s) ? s : NULL;
}

static inline const NamespaceOption *sandbox_namespaces(const SandboxConfig *config)
{
	return config->linux && config->linux->security_context
		       ? config->linux->security_context->namespace_options
		       : NULL;
}

static inline const ContainerSecurity *security_of(const ContainerConfig *config)
{
	return config->linux ? config->linux->security_context : NULL;
}

#define SECURITY_CONTEXT "config.linux.security_context"

/* translate.c */

enum ns_mode translate_ns_mode(Runtime__V1__NamespaceMode mode);
struct id_map_list translate_id_maps(struct arena *arena, Runtime__V1__IDMapping **maps,
				     size_t count);

/* translate_known.c */

/* Refuses values of enums that the API does not have, in a message with all that is in it, and
 * warns once of each field that it does not have. The loop's thread. */
int translate_check_known(const ProtobufCMessage *m, const char *path, struct error *err);

/* resources.c and pod_resources.c: of struct front_end; and what they share. In a change 0 and
 * empty mean "as before"; what is merged has its parts in the arena and in both others. */

extern const struct limits_front translate_container_limits, translate_sandbox_limits;

void translate_resources(struct arena *arena, const Runtime__V1__LinuxContainerResources *r,
			 struct resources *ret);
int translate_merge_resources(struct arena *arena, const char *field,
			      const Runtime__V1__LinuxContainerResources *held,
			      const Runtime__V1__LinuxContainerResources *change,
			      Runtime__V1__LinuxContainerResources *ret, struct error *err);

/* translate_namespaces.c; o may be NULL. */
int translate_check_namespaces(const NamespaceOption *o, bool is_pod, struct error *err);

/* translate_sandbox.c: of struct front_end. */

int translate_sandbox(struct arena *arena, const struct sandbox *sb, struct sandbox_spec *ret,
		      struct error *err);
int translate_sandbox_files(const struct sandbox *sb, struct error *err);

/* translate_container.c: of struct front_end. */

int translate_container(struct arena *arena, const struct container *c, const struct image *image,
			struct container_spec *ret, struct error *err);

/* translate_profiles.c */

/* What the kernel takes as a profile's name. */
#define APPARMOR_NAME_MAX 255

/* PROFILE_NONE: nothing is said of it. */
enum profile_kind {
	PROFILE_NONE,
	PROFILE_UNCONFINED,
	PROFILE_RUNTIME_DEFAULT,
	PROFILE_LOCALHOST,
};

/* Of a profile, or without one of the deprecated field, which were checked; *ret_ref is that of
 * PROFILE_LOCALHOST, else NULL. */
enum profile_kind translate_profile(const Runtime__V1__SecurityProfile *profile, const char *old,
				    const char **ret_ref);
int translate_check_seccomp(const Runtime__V1__SecurityProfile *profile, const char *old,
			    struct error *err);
int translate_check_apparmor(const Runtime__V1__SecurityProfile *profile, const char *old,
			     struct error *err);
/* Of struct front_end. */
const char *translate_container_profile(const void *config);
void translate_profiles(struct arena *arena, const struct container *c,
			const ContainerConfig *config, struct container_spec *ret);

/* translate_selinux.c; o may be NULL. */

int translate_check_selinux(const Runtime__V1__SELinuxOption *o, struct error *err);
/* What is empty is not given. Its strings are o's. */
struct selinux_spec translate_selinux(const Runtime__V1__SELinuxOption *o);

/* translate_security.c */

/* Who the processes are and what they may. pod: the options of the container's pod, which hold for
 * a container that says nothing of namespaces; or NULL. */
int translate_security(struct arena *arena, const ContainerConfig *config,
		       const NamespaceOption *pod, const struct image *image,
		       struct container_spec *ret, struct error *err);
