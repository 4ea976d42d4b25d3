/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The CRI log format (kubernetes/design-proposals: CRI logging; what the kubelet and collectors
 * parse), one record a line:
 *
 *     2016-10-06T00:17:09.669794202Z stdout F payload
 *
 * with tag P for a piece of a line that goes on in the stream's next record, F for its last or
 * only one. Lines of more than CRILOG_PAYLOAD_MAX bytes are cut; nothing else is, and the payload's
 * bytes are kept as they are, NUL and invalid UTF-8 too. Formatting keeps no state but the partial
 * flag, and the same input gives the same records: so the log can be compared with the spool after
 * a crash.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <time.h>

#include "io/base/error.h"
#include "io/spool.h"

#define CRILOG_PAYLOAD_MAX 16384
/* "2016-10-06T00:17:09.669794202Z stdout F ", always as long as this */
#define CRILOG_PREFIX 40
#define CRILOG_MARKER_MAX 80
#define CRILOG_RECORD_MAX (CRILOG_PREFIX + CRILOG_PAYLOAD_MAX + 1)

struct crilog_run {
	int stream; /* 0 stdout, 1 stderr */
	struct timespec now;
	const char *in;
	size_t in_size;
	char *out;
	size_t out_size;
	bool is_end;	  /* nothing follows in the stream: close its last line */
	bool only_a_line; /* stop after the first F record */
	bool partial;	  /* in and out: the last record had tag P */
	size_t consumed, produced;
};

/* Formats whole records from in until out has no room for the next one or in holds only the
 * beginning of a line (at most CRILOG_PAYLOAD_MAX bytes); adds to consumed and produced. */
void crilog_format(struct crilog_run *r);

struct crilog_record {
	int stream;
	bool is_partial;
	const char *payload;
	size_t length;
	size_t size; /* of the whole record with its newline */
};

/* 1 for a record; 0 when data ends before its newline; -1 for a line that is no record of ours,
 * with size set alone. */
int crilog_parse(const char *data, size_t size, struct crilog_record *ret);

/*
 * Opens a log for appending, as a regular file with mode 0640 when it has to be made. A directory
 * that is missing is an error that names it. Blocks as a disk does.
 */
int crilog_open(const char *path, bool may_create, int *ret_fd, uint64_t *ret_inode,
		uint64_t *ret_size, struct error *err);

/* What the log says, as a line of the stream itself, in the place of bytes that it could not take.
 * Returns its length, with the newline. */
size_t crilog_marker(char to[CRILOG_MARKER_MAX], uint64_t dropped);

/* What a log and its streams' spools agree on. */
struct crilog_position {
	uint64_t log_offset;
	uint64_t spool_offset[2];
	bool partial[2];
	uint64_t unreported[2]; /* bytes before spool_offset for which the marker comes next */
};

/*
 * Goes on from a position that was true once, through the records that the log holds by now: a
 * record counts when its payload is what the spool has next, and a marker when it is due; others (a
 * stranger's) are passed over. Cuts off a torn last record. A log that is shorter than the
 * position's is taken as it is. Blocks; needs both spools open, or empty.
 */
int crilog_recover(int log_fd, const struct spool spool[2], struct crilog_position *pos,
		   struct error *err);
