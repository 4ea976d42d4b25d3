/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A batch: what a container's spools have, formatted and appended to its log, on another thread,
 * since a log's disk may be slow and its mount dead. A batch works on copies of what it has to know
 * and changes nothing but the log; what came of it is for the loop to take over
 * (io/log_writer.c). When the server dies in between it is as if it had died within the write:
 * recovery finds in the log what no position tells.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "io/offload.h"

/* What is taken of a stream in one batch at the most. */
#define LOG_BATCH_SIZE (512u * 1024)

struct container_io;

struct log_batch_stream {
	bool is_wanted; /* else the rest says nothing */
	bool is_last;	/* nothing follows what is to be read: close its last line */
	int spool_fd;
	size_t size;	 /* how much may be read from `logged` on */
	uint64_t logged; /* in and out, as in struct stream */
	uint64_t unreported;
	bool partial;
	/* out */
	bool is_scanned; /* what is left of it is at most the beginning of a line */
};

enum log_batch_result {
	LOG_BATCH_DONE,
	LOG_BATCH_OTHER_FILE, /* opened, and it is not the one with that inode; nothing was done */
	LOG_BATCH_LOG_FAILED, /* the job's error says why; what was written before is told */
	LOG_BATCH_SPOOL_FAILED, /* the same */
};

struct log_batch {
	struct job job;
	struct container_io *io; /* the loop's alone; NULL: nobody wants to know any more */
	char *path;
	int log_fd;			/* -1: to be opened */
	uint64_t log_inode, log_offset; /* in and out */
	bool is_torn;	  /* in and out: there is something behind log_offset, to be cut off */
	bool only_a_line; /* finish lines that are half written, begin none */
	int first;	  /* the stream whose output comes first */
	struct log_batch_stream stream[2];
	/* out */
	enum log_batch_result result;
	bool has_marker; /* one was written, and nothing after it */
	uint64_t written;
	/* the loop's */
	uint64_t begun_at;
	bool is_hung;
};

/* Without streams, for the log at that path (copied). Its descriptors are its own: whoever lends
 * them takes them back before the job goes. */
struct log_batch *log_batch_new(const char *path);
