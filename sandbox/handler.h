/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a runtime handler (of a RuntimeClass) means: a kind of sandboxer, and what all containers of
 * its pods get, whatever their own configuration says. A pod's handler is recorded by its name, so
 * a container that is started later goes by what the name means then.
 */
#pragma once

#include "sandbox/spec.h"

struct sandboxer;

struct handler {
	const char *name; /* "": the default one */
	const struct sandboxer *kind;
	bool no_new_privs;
	struct rlimit_spec *rlimits;
	size_t rlimit_count;
};

/* RLIMIT_… of a name such as "nofile", or −1. */
int rlimit_find(const char *name);
/* Changes what a container asked for; the spec takes the handler's limits as they are. */
void handler_apply(const struct handler *h, struct container_spec *spec);
