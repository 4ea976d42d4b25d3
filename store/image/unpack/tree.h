/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Makes the entries of a tar beneath a root directory. Every path is cleaned as text (what would
 * climb out is refused), its parent is resolved with the root as the root (openat2,
 * RESOLVE_IN_ROOT), and the last component is never followed, so neither a link followed by a file
 * under it nor a chmod of a link reaches anything outside (CVE-2021-32760).
 */
#pragma once

#include <limits.h>
#include <stdbool.h>
#include <stdint.h>

#include "io/base/buf.h"
#include "io/base/error.h"
#include "io/base/list.h"
#include "io/base/map.h"

struct archive;
struct archive_entry;

struct tree {
	int root;
	bool is_layer;	   /* else an archive to look into: no owners, modes, devices, whiteouts */
	const int *lowers; /* lower layers, lowest first: whose attributes missing parents get */
	size_t lower_count;
	uint64_t inodes, max_inodes, max_bytes;
	struct map opaque; /* paths of opaque directories */
	struct list times; /* of directories, set when all is in them */
	char cached[PATH_MAX];
	int cached_fd; /* of the directory cached, −1 */
	bool is_stale; /* something was replaced, maybe on the way to it */
	struct error *err;
	/* of the entry at hand: too large for a stack frame */
	char path[PATH_MAX], parent[PATH_MAX], part[PATH_MAX], missing[PATH_MAX];
	char link[PATH_MAX], link_parent[PATH_MAX];
};

void tree_init(struct tree *t, int root, struct error *err);
int tree_add(struct tree *t, struct archive *a, struct archive_entry *e);
/* Sets the directories' times and appends the opaque ones' paths, each with its NUL. */
int tree_end(struct tree *t, struct buf *ret_opaque);
