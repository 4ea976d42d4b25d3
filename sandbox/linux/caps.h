/* SPDX-License-Identifier: Apache-2.0 */
/* Capabilities by name and as a mask: bit n is CAP_n of capabilities(7). */
#pragma once

#include <stdint.h>

#include "io/base/error.h"
#include "sandbox/spec.h"

/* What a container has unless asked otherwise: the 14 that Docker, containerd and others grant. */
extern const uint64_t caps_default;

/* All that the running kernel has (/proc/sys/kernel/cap_last_cap, read once), known by name or not.
 */
uint64_t caps_all(void);
/* The number of "CAP_NET_ADMIN" or "net_admin"; -1 for no capability. */
int caps_find(const char *name);
/* "CAP_NET_ADMIN", static; NULL for a number without a name. */
const char *caps_name(int cap);
/*
 * base without drop, with add. "ALL" in either list is every capability; what is named beside it in
 * the other list counts more ("drop ALL, add X" is X; "add ALL, drop X" is all but X), and a name
 * in both lists is added. An unknown name is ERR_INVALID, one that the kernel lacks
 * ERR_PRECONDITION.
 */
int caps_apply(uint64_t base, const struct string_list *add, const struct string_list *drop,
	       uint64_t *ret, struct error *err);
