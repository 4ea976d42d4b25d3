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

struct unpack_request {
	int exe;	   /* unpack_program() */
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

/* The child's program as a memfd. */
int unpack_open_program(int *ret_fd, struct error *err);
/* On the main thread only: the child dies with the thread that started it.
 * ERR_INVALID names the entry that was refused. Whatever happens, no child is left. The tree is
 * synced on success; on failure the target holds a part of it. */
int unpack_run(struct task *t, const struct unpack_request *request, struct unpack_result *ret);
