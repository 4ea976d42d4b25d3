/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The server's side of the unpacker (store/image/unpack/protocol.h): starts the child, reads its
 * report, marks opaque directories, which the child may not.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "io/task.h"
#include "store/image/digest.h"

/* The child's program, and the thread that starts children: an exec takes the caller's time, and a
 * child dies with the thread that started it, so that must be one that stays. */
struct unpacker;

struct unpacker *unpacker_new(struct error *err);
/* No unpack_run() may be under way. */
void unpacker_free(struct unpacker *u);

struct unpack_request {
	bool is_layer;	   /* else an archive to look into */
	int stream;	   /* regular file, plain or compressed */
	int target;	   /* empty directory */
	const int *lowers; /* directories of the layers below, lowest first */
	size_t lower_count;
	uint64_t max_bytes, max_inodes;
};

struct unpack_result {
	char digest[DIGEST_SIZE]; /* of the stream */
	char diff_id[DIGEST_SIZE];
	uint64_t bytes, inodes;
};

/* ERR_INVALID names the entry that was refused. Whatever happens, no child is left. The tree is
 * synced on success; on failure the target holds a part of it. */
int unpack_run(struct task *t, struct unpacker *u, const struct unpack_request *request,
	       struct unpack_result *ret);
