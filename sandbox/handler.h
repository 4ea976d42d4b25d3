/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a runtime handler (of a RuntimeClass) means: a kind of sandboxer, and what all containers of
 * its pods get, whatever their own configuration says. What it meant when a pod was made is
 * recorded with the pod as a text, so that the pod keeps that, whatever becomes of the
 * configuration: lines of "no_new_privs" and "rlimit NAME SOFT HARD".
 */
#pragma once

#include "io/base/arena.h"
#include "io/base/error.h"
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
/* Its options; the caller frees. NULL for NULL. */
char *handler_text(const struct handler *h);
/* Changes what a container asked for by options that handler_text() gave; limits are the arena's.
 */
int handler_apply(struct arena *arena, const char *options, struct container_spec *spec,
		  struct error *err);
