/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A container's output on its way: FIFO → splice(2) → spool → CRI log. The splice is the
 * exactly-once point: a byte is in the FIFO or in the spool, whenever the process is killed. How
 * much of the spool is in the log is committed lazily through a callback, always before the spool
 * gives that part back, and before the first record into a log file that is not in the committed
 * position; what came after the last commit is found by comparing the log's tail with the spool.
 *
 * The limit: a log that was moved out of its directory, compressed or cut by somebody while the
 * server was down, or could not be read when it came back. Then what was logged after the last
 * commit is logged again.
 *
 * What fills the spools are small level-triggered callbacks on the loop; what opens, formats and
 * writes the log are batches on other threads (io/log_batch.h), as the log's disk may be slow and
 * its mount dead. An idle container costs the descriptors that it was given, and no timer; spool
 * and log are opened on demand and closed least recently used first.
 *
 * A log that can't be written (no space, no answer) does not block the container: output waits in
 * the spool, then the oldest is dropped and counted, and a record of the same stream says so when
 * the log works again. Or, with `blocks`, nothing is dropped: the container waits as soon as spool
 * and pipe are full, and its end until all is logged or container_io_give_up(). A position that
 * can't be committed while the log works does block: nothing is given back.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "io/base/error.h"

struct task;
struct container_io;

/* How far the log has come; kept by whoever commits (store/streams.h). [0] stdout, [1] stderr. */
struct io_position {
	uint64_t log_inode, log_offset; /* the log file and how long it was; 0 without a log */
	uint64_t spool_offset[2];	/* stream bytes that it holds by then */
	bool partial[2];		/* the stream's last record had tag P */
	uint64_t dropped[2];		/* of spool_offset: could not be logged */
	uint64_t unreported[2];		/* of dropped: no record in the log says so yet */
};

struct container_io_spec {
	const char *id;	      /* for messages */
	const char *dir;      /* where the spools are, "1.spool" and "2.spool"; absolute */
	const char *log_path; /* absolute; NULL: output is consumed and not kept */
	int out_fd, err_fd;   /* fifo.h's server ends, or -1; a terminal's master as out_fd */
	bool is_tty;
	/* is_tty only: fifo.h's "1", to be held by the keeper as out_fd is. Without a master (it
	 * went with a server that had no keeper) what the pipe has is still logged. */
	int tty_pipe_fd;
	const struct io_position *position; /* of a previous life, or NULL */
	bool blocks;			    /* instead of dropping what the log can't take */
	uint64_t spool_limit; /* bytes a stream may wait in memory, 0: CONTAINER_IO_SPOOL_LIMIT */
	/*
	 * Makes pos durable in the order of the calls, then calls done, exactly once and on the
	 * loop, with 0 or -ERR_x; at once or later, also after container_io_free(). There is one
	 * commit a container at a time. A failed one is repeated with a back-off.
	 */
	void (*commit)(void *data, const struct io_position *pos,
		       void (*done)(void *done_data, int result), void *done_data);
	void *data;
};

#define CONTAINER_IO_SPOOL_LIMIT (4u << 20)

struct container_io_stats {
	uint64_t bytes[2];   /* taken from the container, in all lives of the server */
	uint64_t logged[2];  /* of these: what the log got */
	uint64_t dropped[2]; /* of these: gone, because the log could not be written */
	uint64_t log_bytes;  /* written to the log in this life, with times and tags */
	bool is_log_failing;
	bool has_ended; /* container_io_drain() was successful */
};

/*
 * Takes up the position, or begins, and pumps from then on. Opens (or creates, mode 0640) the log:
 * it must be a regular file, and its directory must exist. When that fails for a container with a
 * position, which may be running and must not block, the log is tried again later as one that
 * fails. Copies what spec points at. Takes the descriptors, also when it fails. A FIFO that hung up
 * already (all writers gone) is fine. Suspends: opening and recovery are done on another thread.
 */
int container_io_start(struct task *t, const struct container_io_spec *spec,
		       struct container_io **ret);
/*
 * For a container whose cgroup is empty: takes what is left in the pipes (what a stranger writes
 * later does not count), closes last lines that have no newline with an F record, and returns once
 * the final position is committed. Reopen and stats still work afterwards. May be repeated, also
 * after a wait that ended early. What a failing log doesn't take within CONTAINER_IO_LAST_MS is
 * dropped, or, with `blocks`, ERR_EXHAUSTED.
 */
int container_io_drain(struct task *t, struct container_io *io);
#define CONTAINER_IO_LAST_MS 1000
/*
 * The log's path names another file from now on: it is opened, or created when it is missing, and
 * its position is committed before this returns. A line that is half written as P records is
 * finished in the old file if that takes at most CONTAINER_IO_REOPEN_MS. When opening fails, the
 * old file stays in use.
 */
int container_io_reopen(struct task *t, struct container_io *io);
#define CONTAINER_IO_REOPEN_MS 100

struct container_io_stats container_io_stats(const struct container_io *io);
/* As it would be committed now. */
struct io_position container_io_position(const struct container_io *io);
/* What the log can't take is dropped from now on, also where that would block. */
void container_io_give_up(struct container_io *io);
/* Closes everything, at the latest when a write to the log that is under way has ended; until then
 * no second life of it may begin in this process. What is in the pipes and in the spool stays for a
 * next life, as far as somebody (the keeper) holds the pipes. No task may be in a call above. NULL
 * is fine. */
void container_io_free(struct container_io *io);
