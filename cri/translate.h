/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The meaning of CRI configurations: struct front_end for the node, and the checks that a request
 * must pass. What has no effect here is refused with ERR_INVALID (or ERR_UNIMPLEMENTED) that names
 * the field; nothing is silently ignored but what the API calls informative.
 */
#pragma once

#include "cri/proto/cri.pb-c.h"
#include "sandbox/node.h"

extern const struct front_end cri_front_end;

/* Checks a request's sandbox configuration and makes its unique name: "name_namespace_uid_attempt".
 */
int translate_check_sandbox(const Runtime__V1__PodSandboxConfig *config, struct error *err);
char *translate_sandbox_name(const Runtime__V1__PodSandboxMetadata *m);
int translate_check_container(const Runtime__V1__ContainerConfig *config, struct error *err);
/* Whether the container asks for nothing that its pod does not have. */
int translate_check_in_pod(const Runtime__V1__PodSandboxConfig *pod,
			   const Runtime__V1__ContainerConfig *config, struct error *err);

/* Limits (resources.c): whether numbers can be had (field is where they are in the request), and
 * those that hold for a container (its configuration's or its last update's, or NULL). */
int translate_check_resources(const char *field, const Runtime__V1__LinuxContainerResources *r,
			      struct error *err);
/* held (or NULL) with the values that the kernel has in their place; NULL when there are none. */
const Runtime__V1__LinuxContainerResources *
translate_limits_now(struct arena *arena, const Runtime__V1__LinuxContainerResources *held,
		     const struct limits_now *now);
/* Whether, with all that holds, the limit of swap has one of memory that it can count. */
int translate_check_swap(const char *field, const Runtime__V1__LinuxContainerResources *r,
			 struct error *err);
const Runtime__V1__LinuxContainerResources *translate_resources_of(struct arena *arena,
								   const struct container *c);

/*
 * Limits of a whole pod (pod_resources.c). Those of the pod's cgroup are the sums of
 * linux.resources and linux.overhead: a limit of memory, swap, processor time or huge pages that
 * resources has grows by what the overhead allows of it; cpusets and unified are those of
 * resources. But that is so only where the pod names no cgroup_parent, so that its cgroup is ours:
 * who made the parent has set its limits, as the kubelet does with the same numbers, and changes
 * them before it asks for it here. Then they are checked, kept and told, and nothing else.
 *
 * What no pod can have is ERR_INVALID: a score for the OOM killer, since no process is the pod's
 * own, and, of an overhead, what can't be added.
 */
struct pod_limits {
	const Runtime__V1__LinuxContainerResources *overhead, *resources; /* or NULL */
};

int translate_check_pod_limits(const char *prefix, const struct pod_limits *limits, bool has_parent,
			       struct error *err);
/* Those that hold. */
struct pod_limits translate_pod_limits_of(struct arena *arena, const struct sandbox *sb);

/* Whether the mount is one of an image. */
static inline bool translate_has_image(const Runtime__V1__Mount *m)
{
	return m->image && *m->image->image;
}

/* translate_cdi.c: the CDI devices that the container asks for, by CDI_devices and by annotations
 * cdi.k8s.io/…; each name is checked. The strings are the configuration's or the arena's. */
int translate_cdi_devices(struct arena *arena, const Runtime__V1__ContainerConfig *config,
			  struct string_list *ret, struct error *err);

/* Decoded. */
Runtime__V1__PodSandboxConfig *sandbox_config(struct arena *arena, const struct sandbox *sb);
Runtime__V1__ContainerConfig *container_config(struct arena *arena, const struct container *c);

/* Signal of the CRI's enum, 0 for the default; and back from a number, for the status. */
int translate_signal(Runtime__V1__Signal signal);
Runtime__V1__Signal translate_signal_back(int number);
/* "SIGTERM", "TERM", "15", "SIGRTMIN+3" (an image's StopSignal); 0 when it is none. */
int translate_signal_name(const char *name);
/* What ends the container; image may be NULL. */
int translate_stop_signal(const Runtime__V1__ContainerConfig *config, const struct image *image);
