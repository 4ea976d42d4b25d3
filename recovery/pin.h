/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Pins: kernel objects that outlive every process of ours under a name: namespaces, pidfds, the
 * pod's /dev/shm. Each is a mount in a mount namespace that has nothing else in it than one tmpfs;
 * that namespace is itself held by one nsfs mount, STATE/pins/mnt, within an unbindable bind mount
 * of STATE/pins onto itself (mount_namespaces(7): a mount namespace can't be mounted where it would
 * propagate). So the host's mount table has two entries whatever is pinned, and all of it goes with
 * a reboot. A worker thread lives in the namespace and does what has to be done there.
 *
 * Names are [A-Za-z0-9._-], 1 to PIN_NAME_MAX long, not beginning with a dot; another one is
 * ERR_INVALID. put, get and drop cost the same however much is pinned; fs.mount-max (100,000) is
 * the limit, ERR_EXHAUSTED then.
 *
 * Kernels before 6.15 can pin namespaces and mounts, but neither pin a pidfd nor tell by one how a
 * process that was reaped ended: pins_can_hold_pidfds() is false, pins_put() of a pidfd only notes
 * which process it is, and pins_get() finds that one until it was reaped, then ERR_NOT_FOUND. A
 * caller also gives the pidfd to the keeper (fdstore_put()) and finds the end in the keeper's
 * records (exit_status.h).
 */
#pragma once

#include <stdbool.h>

#include "io/task.h"

#define PIN_NAME_MAX 200

struct pins;

/*
 * Joins the namespace of STATE/pins, or makes it where there is none (the first start, a reboot).
 * state_dir is absolute and exists, on any file system. Before the loop runs; blocks. NULL with err
 * set: without CAP_SYS_ADMIN nothing can be pinned.
 */
struct pins *pins_open(struct loop *l, const char *state_dir, struct error *err);
/* Whether there is something to join. */
bool pins_exist(const char *state_dir);
bool pins_can_hold_pidfds(const struct pins *p);

/* Pins the namespace or pidfd; fd stays the caller's. What had the name is replaced. ERR_INVALID
 * for a descriptor of another kind. */
int pins_put(struct task *t, struct pins *p, const char *name, int fd);
/* A new descriptor of the pinned namespace or pidfd, close-on-exec. ERR_NOT_FOUND. */
int pins_get(struct task *t, struct pins *p, const char *name, int *ret_fd);
/* Moves the detached mount (a directory; fsmount(2), open_tree(2)) there; mount_fd stays the
 * caller's and refers to the attached mount then. What had the name is replaced. */
int pins_put_mount(struct task *t, struct pins *p, const char *name, int mount_fd);
/* A detached clone of the pinned mount, for move_mount(2). ERR_NOT_FOUND. */
int pins_get_mount(struct task *t, struct pins *p, const char *name, int *ret_tree_fd);
/* Gives it up, whichever of the two it is; fine when there is none. */
int pins_drop(struct task *t, struct pins *p, const char *name);
/* Calls fn for every name, also for those of which a crash left only the name (get says
 * ERR_NOT_FOUND for them, drop removes them). For finding what nothing owns. fn may not suspend. */
int pins_each(struct task *t, struct pins *p, void (*fn)(void *data, const char *name), void *data);

/* Ends the thread; what is pinned stays. No call may be in progress. NULL is fine. */
void pins_close(struct pins *p);
/* Removes the namespace, both host mounts and STATE/pins, and closes p. ERR_PRECONDITION when
 * something is still pinned: p stays open then. Not while the loop runs; blocks. */
int pins_destroy(struct pins *p, struct error *err);
