/* SPDX-License-Identifier: Apache-2.0 */
/*
 * AppArmor: which profile a container gets, and whether the kernel has it. The init helper asks for
 * it just before it executes the program. root is the host's root directory (O_PATH), or a tree
 * that stands for it in tests.
 *
 * Where the kernel has no AppArmor, a profile of the node's is refused, and the default one and
 * none mean that there is nothing to do.
 */
#pragma once

#include "io/base/error.h"
#include "sandbox/spec.h"

#define APPARMOR_DEFAULT "crisp-default"

/* Whether the kernel has it and it is on. */
bool apparmor_is_enabled(int root);
/* The name of the profile, the spec's or static; NULL: none. */
const char *apparmor_name(enum apparmor_kind kind, const char *profile, bool is_enabled);
/*
 * Whether a process can be given it. The default one is loaded by the node's apparmor_parser if it
 * is not there. A profile that is not loaded is ERR_INVALID. Blocks: for offload.
 */
int apparmor_need(int root, enum apparmor_kind kind, const char *profile, struct error *err);
