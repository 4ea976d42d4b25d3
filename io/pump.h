/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The loop's half of container_io.h, for io/container_io.c alone: what moves bytes and commits
 * positions in callbacks. Nothing here suspends.
 */
#pragma once

#include "io/container_io.h"
#include "io/hangup.h"
#include "io/spool.h"
#include "io/task.h"

#define PUMP_SECOND 1000000000ull
/* What one callback takes of a stream. */
#define PUMP_TURN (256u * 1024)
/* How long the end of a container waits for a log or spool that fails. */
#define PUMP_LAST_CHANCE (CONTAINER_IO_LAST_MS * (PUMP_SECOND / 1000))

struct stream {
	struct container_io *io;
	int index;
	int fd;	     /* the FIFO or the terminal's master, -1 for none */
	int pipe_fd; /* between a terminal and its spool, else -1 */
	struct loop_watch *watch;
	bool is_watching, has_hung_up;
	struct hangup hangup; /* while it has hung up: it may be opened again */
	struct spool spool;
	uint64_t logged;     /* the stream's bytes that need nothing more from us */
	uint64_t scanned;    /* when this is the spool's end, only a line's beginning is left */
	uint64_t dropped;    /* of logged: bytes that the log did not get */
	uint64_t unreported; /* bytes dropped since the last marker */
	bool partial;	     /* the last record had tag P */
	/* what was dropped behind the committed position; at most one, as nothing is logged between
	 * a drop and its commit */
	struct spool_hole hole;
};

struct container_io {
	struct loop *loop;
	char *id, *dir, *log_path;
	void (*commit)(void *data, const struct io_position *pos,
		       void (*done)(void *done_data, int result), void *done_data);
	void *commit_data;
	uint64_t spool_limit;
	bool blocks;
	struct stream stream[2];
	int first;	       /* the stream that took something first, */
	bool has_first;	       /* since the last batch began */
	struct list open_node; /* in `opened` while any of the files is open */

	int log_fd;
	struct log_batch *batch; /* under way; the files are its own until then */
	struct list queue_node;	 /* in the queue for one */
	struct loop_timer hang_timer;
	bool is_log_stuck; /* the batch hangs for long */
	bool is_held;	   /* no batch begins */
	uint64_t log_inode, log_offset;
	bool is_log_failing; /* no attempt before the retry timer */
	bool is_log_torn;    /* bytes behind log_offset have to be cut first */
	bool is_spool_failing;
	uint64_t retry_delay; /* 0 while everything works */
	struct loop_timer retry_timer;

	struct io_position committed, in_flight;
	uint64_t commits_issued, commits_done, commit_failures, fence;
	bool is_committing, is_commit_wanted, is_freed;
	uint64_t commit_delay; /* 0 unless the last one failed */
	struct loop_timer commit_timer;

	struct loop_work more;
	struct task_mutex mutex;  /* drain and reopen, one at a time */
	struct task_cond changed; /* a commit, a retry, the end of a partial line */
	bool is_reopening;	  /* no line is begun, those that are half written go on */
	struct loop_timer reopen_timer;
	bool is_draining, is_ending;
	uint64_t give_up_at; /* with a failing log, while draining */
	struct container_io_stats stats;
};

/* Copies the spec and takes its descriptors; nothing moves yet. */
struct container_io *pump_new(struct loop *l, const struct container_io_spec *spec);
/* Once positions and files are known: watches the pipes, and goes on with what the spools hold. */
void pump_begin(struct container_io *io);
/* Closes everything but what a batch that is under way uses, which closes that; the memory goes
 * with the commit that is under way. */
void pump_free(struct container_io *io);

/* Spools and log are opened on demand. touch: they were used just now, or opened; others may be
 * closed for it. */
void pump_touch_files(struct container_io *io);
void pump_close_files(struct container_io *io);
/* False when that fails, which is dealt with (is_spool_failing). */
bool pump_open_spool(struct stream *s);

/* It is tried again, later and later, until it works again. */
void pump_log_failed(struct container_io *io, const struct error *err);
void pump_spool_failed(struct container_io *io, const struct error *err);
void pump_works_again(struct container_io *io);

/* Commits the present position, after the one that is under way. */
void pump_commit_now(struct container_io *io);
/* No record is written before the present position is durable. */
void pump_raise_fence(struct container_io *io);
bool pump_is_committed(const struct container_io *io);
struct io_position pump_position(const struct container_io *io);
/* The log is another file, of which the committed position does not know. */
void pump_adopt_log(struct container_io *io, uint64_t inode, uint64_t size);

/* The stream's descriptors are closed; nothing watches them any more. */
void pump_close_stream(struct stream *s);
/* At most max bytes from the pipe: how many, 0 at a hang-up, -EAGAIN when there is nothing or no
 * room for it; trouble is dealt with (is_spool_failing). */
ssize_t pump_take(struct stream *s, size_t max);
/* Has what the log lacks written, and what follows from how far that is. */
void pump_flush(struct container_io *io);
/* The second half alone: drops, commits, watches. */
void pump_settle(struct container_io *io);
bool pump_may_write(const struct container_io *io);
/* The spool holds as much as it may. */
bool pump_is_full(const struct stream *s);
/* Something of the stream is not in the log yet. */
bool pump_has_pending(const struct stream *s);
/* Gives up the oldest count bytes that are not in the log. */
void pump_drop(struct stream *s, uint64_t count);
