/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which sysctls a sandbox may set: those that belong to a namespace of its own. Setting others
 * would change the node (CVE-2022-0532, CVE-2022-0811).
 */
#pragma once

#include "io/base/error.h"
#include "sandbox/spec.h"

/*
 * Checks all of spec->sysctls: kernel.shm*, kernel.msg*, kernel.sem and fs.mqueue.* need an ipc
 * namespace of the pod's own, net.* a network namespace; everything else is refused. Names have
 * letters, digits, '_', '-' and single dots (a network interface's dot is not supported); values no
 * control characters. ERR_INVALID names the sysctl.
 */
int sysctl_check(const struct sandbox_spec *spec, struct error *err);
/* "net.ipv4.ip_forward" → "sys/net/ipv4/ip_forward", beneath /proc; the caller frees. For names
 * that passed sysctl_check(). */
char *sysctl_path(const char *name);
