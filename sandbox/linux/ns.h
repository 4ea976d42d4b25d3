/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A pod's namespaces: made by a child that lives for a millisecond, then held by descriptors only.
 * Blocks: for offload, on a thread in the host's namespaces.
 */
#pragma once

#include <stdbool.h>

#include "io/base/buf.h"
#include "io/base/error.h"
#include "sandbox/spec.h"

/* -1 for what was not asked for. */
struct ns_set {
	int user, net, ipc;
};

#define NS_SET_NONE ((struct ns_set){-1, -1, -1})

/*
 * Those that spec asks for: user when it has maps, net (loopback up) and ipc when they are not the
 * node's, both owned by the user namespace; sysctls written (they passed sysctl_check()).
 */
int ns_make(const struct sandbox_spec *spec, struct ns_set *ret, struct error *err);
void ns_set_done(struct ns_set *set);
/* Appends a file of at most max bytes, as a thread in that network namespace sees it. */
int ns_read_inside(int net, const char *path, size_t max, struct buf *ret, struct error *err);
/* A user namespace with these maps, for id-mapped mounts. */
int ns_make_user(const struct id_map_list *uids, const struct id_map_list *gids, int *ret_fd,
		 struct error *err);
/* The id outside for one inside; -1 when it is not mapped. An empty list maps nothing. */
int64_t id_map_outside(const struct id_map_list *map, uint32_t inside);
bool id_map_equal(const struct id_map_list *a, const struct id_map_list *b);
/* A tmpfs for /dev/shm, detached; size 0 means 64 MiB; label is SELinux's, or NULL. */
int ns_make_shm(uint64_t size, uid_t uid, gid_t gid, const char *label, int *ret_mount,
		struct error *err);
