/* SPDX-License-Identifier: Apache-2.0 */
/*
 * SELinux: whether the kernel has it, and which labels its policy has for containers. root is the
 * host's root directory (O_PATH); fs is selinuxfs's. In tests trees stand for both.
 *
 * The policy's labels are those of container-selinux: in /usr/share/containers/selinux/contexts,
 * else in contexts/lxc_contexts of the policy that /etc/selinux/config names. All of it blocks: for
 * offload, or at start.
 */
#pragma once

#include <stdbool.h>

struct selinux {
	int fs; /* −1: the kernel has no SELinux, or it is off */
	/* "user:role:type", maybe ":level", of containers and of their files; NULL: the policy says
	 * nothing of them */
	char *process, *file;
};

#define SELINUX_NONE ((struct selinux){.fs = -1})

/* Asks for the policy's labels only where the kernel has SELinux. */
struct selinux selinux_open(int root);
void selinux_done(struct selinux *s);
/* Whether what is at sys/fs/selinux is selinuxfs, and not a directory only: it, or −1. */
int selinux_open_fs(int root);
/* Fills process and file. */
void selinux_read_policy(int root, struct selinux *s);
bool selinux_is_enforcing(int fs);
