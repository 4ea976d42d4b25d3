/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Tar archives made by hand, byte by byte, so that tests can also make those that no tool would
 * write. Aborts (a failed assertion of cmocka) when something can't be made.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "io/base/buf.h"

struct tar_entry {
	const char *name; /* over 100 bytes: by a PAX record */
	char type; /* '0' file (also 0), '1' hard link, '2' link, '3' char, '4' block, '5' dir, '6'
		      fifo */
	unsigned mode;
	long uid, gid, mtime;
	const char *link;
	const void *data;
	size_t size;
	unsigned major, minor;
	const struct buf *pax; /* records for it, by tar_record() */
};

void tar_add(struct buf *tar, const struct tar_entry *e);
/* "length key=value\n" */
void tar_record(struct buf *pax, const char *key, const void *value, size_t n);
/* The two zero blocks. */
void tar_end(struct buf *tar);
/* filter: "gzip" or "zstd"; appends a whole compressed member. */
void compress_append(struct buf *to, const char *filter, const void *data, size_t n);

#define TAR(tar, ...) tar_add((tar), &(struct tar_entry){__VA_ARGS__})
