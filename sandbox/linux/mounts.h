/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a container gets from the host's mount namespace, as detached mounts: bind sources, images,
 * device nodes. Blocks (a source may lie on a dead network file system): for offload, on a thread
 * in the host's mount namespace.
 */
#pragma once

#include "io/base/error.h"
#include "sandbox/spec.h"

struct mount_source {
	int fd; /* detached mount; -1 for a tmpfs, which the container makes itself */
	bool is_directory;
	const char *sub_path; /* NULL, or what of the mount shall be seen; the spec's */
};

/*
 * The mount of m, with its propagation, read-only state and id mapping. user_fd: a user namespace
 * with the mount's mapping, or -1 when it has none. label: SELinux's of the container's files, or
 * NULL; an image's layers get it, if there are two, and what is to be relabelled. Device nodes work
 * in what comes from the host, as far as the container's devices allow, and not in an image. A
 * missing source is made as a directory, as other runtimes do. is_pruned: without the mounts
 * beneath a source that are mount namespaces, as others on the node may have; with one of these,
 * what comes back can't be mounted in the container (ELOOP). It takes a copy of all mounts of the
 * node.
 */
int mount_source_open(const struct mount_spec *m, int user_fd, const char *label, bool is_pruned,
		      struct mount_source *ret, struct error *err);
/* Whether the image of m has what is wanted of it: ERR_INVALID. */
int mount_image_check(const struct mount_spec *m, struct error *err);
/* A detached mount of one path, for device nodes, /dev/shm and /sys. */
int mount_clone(const char *path, bool is_recursive, bool is_readonly, int *ret_fd,
		struct error *err);
