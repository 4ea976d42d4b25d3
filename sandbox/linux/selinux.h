/* SPDX-License-Identifier: Apache-2.0 */
/*
 * SELinux: whether the kernel has it, which labels its policy has for containers, and what becomes
 * of those together with what is asked for. root is the host's root directory (O_PATH); fs is
 * selinuxfs's. In tests trees stand for both.
 *
 * The policy's labels are those of container-selinux: in /usr/share/containers/selinux/contexts,
 * else in contexts/lxc_contexts of the policy that /etc/selinux/config names. All of it blocks: for
 * offload, or at start.
 */
#pragma once

#include <stdbool.h>

#include "io/base/error.h"
#include "sandbox/spec.h"

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

/* Of a container's processes and of its files, as the kernel writes them; NULL: none. Owned. */
struct selinux_labels {
	char *process, *file;
};

void selinux_labels_done(struct selinux_labels *labels);
bool selinux_is_asked(const struct selinux_spec *asked);
/*
 * What is left out of asked is the policy's, but for the level: that is level, unless it is NULL or
 * the policy has none. Files have the user and the level that are asked for, and the policy's type.
 * Where the policy has no labels for containers, a label of processes that is asked for must be
 * whole, and files have none.
 *
 * ERR_INVALID: the kernel has no SELinux or no such label, or too little is given.
 */
int selinux_compose(const struct selinux *s, const struct selinux_spec *asked, const char *level,
		    struct selinux_labels *ret, struct error *err);
/* The part of the label, or NULL. */
const char *selinux_level(const char *label);
/* Gives the open file a label, if its file system has any. */
int selinux_label_fd(int fd, const char *label, struct error *err);
