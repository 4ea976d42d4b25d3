/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A tar stream, plain or compressed with gzip or zstd (told by its first bytes, not by what a
 * manifest says): digests are made of what comes in and of what goes out, and both are bounded.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "io/base/error.h"
#include "store/image/digest.h"

struct archive;

#define STREAM_BLOCK 65536

struct stream {
	int fd;
	struct archive *raw;	       /* the decompressor, NULL for a plain stream */
	struct digest_state *in, *out; /* in: NULL for a plain stream, where they are one */
	uint64_t in_bytes, out_bytes, max_bytes;
	bool is_read; /* to its end */
	char *block;
	size_t first; /* bytes of the first block that were looked at */
	struct error *err;
};

int stream_open(struct stream *s, int fd, uint64_t max_bytes, struct error *err);
/* The next bytes, 0 at the end, negative with s->err set. */
ssize_t stream_next(struct stream *s, const void **ret);
/* Reads what is left and gives both digests. */
int stream_end(struct stream *s, char digest[DIGEST_SIZE], char diff_id[DIGEST_SIZE]);
