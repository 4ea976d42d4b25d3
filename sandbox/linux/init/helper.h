/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The init helper: a static program that turns a freshly cloned process into a container's. It is
 * single-threaded, reports the first failure and ends, so its functions return nothing on failure
 * (fail() does not come back) and need no cleanup. Everything that it opens closes on exec.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>

#include "sandbox/linux/init/protocol.h"

/* The plan, mapped private and writable. */
struct helper {
	struct plan *plan;
	int root;   /* the container's root directory, O_PATH; once it is placed */
	int dev;    /* its /dev */
	int null;   /* its /dev/null, O_PATH, verified */
	int pts;    /* its devpts */
	int cwd;    /* its working directory, O_PATH */
	int master; /* terminal, or −1 */
	int slave;
	int apparmor;  /* what takes the profile of the program, or −1 */
	int label;     /* what takes the SELinux label of the program, or −1, */
	int key_label; /* and of its keys */
};

/* Reports step, path (may be NULL) and errno, ends the process. */
void fail(enum init_step step, const char *path) __attribute__((noreturn));
/* Sends INIT_READY, with fd by SCM_RIGHTS unless it is −1. */
void send_ready(int fd);
/* Waits for INIT_GO; ends the process when the server is gone. */
void wait_go(void);

/* The string at offset, NULL for 0. */
const char *plan_text(const struct plan *plan, plan_string offset);
/* The list's elements. */
void *plan_items(struct plan *plan, struct plan_list list);

/* init/resolve.c: paths beneath a root that the container's image and volumes may have shaped. */

/* O_PATH descriptor of path beneath root, symbolic links followed within it; −1 and errno. */
int open_beneath(int root, const char *path, int flags);
/* The same for one component that must not be a link; directory made when it is missing. */
int open_plain_directory(int root, const char *name);
/* Like open_beneath, but what is missing is made: directories, and a directory or an empty file at
 * the end. Links are followed within root, also dangling ones. −1 and errno. */
int make_beneath(int root, const char *path, bool is_directory);

/* init/mounts.c */

/* A detached mount of a new file system instance. options: "key=value,flag,…" or NULL; label: of
 * all that is in it, or NULL. −1 and errno. */
int mount_new(const char *type, const char *options, const char *label, unsigned attributes);
/* What the plan says that label is. */
const char *file_label(const struct helper *h);
/* A further mount of what fd is, of all below it where asked, detached. −1 and errno. */
int mount_clone(int fd, bool is_recursive);
/* Puts a detached mount on what target (O_PATH) is. */
int mount_place(int mount, int target);
/* The same for the tiny root's spare directory, for mounts of which only parts are wanted: they go
 * away with that root. */
int mount_aside(int mount);
/* proc, dev, sys, cgroup, shm, mqueue, devices. */
void mount_base(struct helper *h);
/* The container's own mounts, in order. */
void mount_volumes(struct helper *h);
/* Masks, read-only paths, read-only root: on top of all that. */
void mount_restrictions(struct helper *h);
/* init/cgroup_view.c: /sys/fs/cgroup, read-only, from the own cgroup down. */
void mount_cgroup_view(struct helper *h, int sys);
/* init/devices.c: fills a detached tmpfs with nodes and links; binds what is given as mounts. */
void make_devices(struct helper *h, int dev);
void bind_devices(struct helper *h);

/* init/terminal.c */

/* Opens a terminal in the devpts pts. */
void open_terminal(struct helper *h, int pts);
/* Makes descriptors 0, 1, 2 and the session. */
void set_stdio(struct helper *h);

/* init/identity.c */

void set_oom_score(int value);
void set_rlimits(struct helper *h);
/* Opens what takes the profile and the labels, while procfs is still the spawner's own. */
void open_apparmor(struct helper *h);
void open_labels(struct helper *h);
/* All but the plan's capabilities, for good. */
void give_up_privileges(struct helper *h);
/* Ids, capabilities, no_new_privs and filter, then the program. */
void become(struct helper *h) __attribute__((noreturn));
