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

/*
 * Limits (resources.c), void pointers being Runtime__V1__LinuxContainerResources: whether numbers
 * can be had (field is where they are in the request), their meaning, those that hold for a
 * container (its configuration's or its last update's, or NULL), and what comes of them by a
 * change, in which 0 and empty mean "as before".
 */
int translate_check_resources(const char *field, const Runtime__V1__LinuxContainerResources *r,
			      struct error *err);
void translate_resources(struct arena *arena, const void *resources, struct resources *ret);
const void *translate_resources_of(const struct container *c);
int translate_merge_resources(struct arena *arena, const struct container *c, const void *change,
			      struct buf *ret, struct error *err);

static inline Runtime__V1__PodSandboxConfig *sandbox_config(const struct sandbox *sb)
{
	return sb->config;
}

static inline Runtime__V1__ContainerConfig *container_config(const struct container *c)
{
	return c->config;
}

/* Signal of the CRI's enum, 0 for the default; and back from a number, for the status. */
int translate_signal(Runtime__V1__Signal signal);
Runtime__V1__Signal translate_signal_back(int number);
/* "SIGTERM", "TERM", "15", "SIGRTMIN+3" (an image's StopSignal); 0 when it is none. */
int translate_signal_name(const char *name);
