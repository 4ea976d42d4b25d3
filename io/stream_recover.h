/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Where a container's streams stand when a server takes them up: what was committed, plus what the
 * log holds beyond that. Also the beginning of a new container, for which nothing was committed.
 */
#pragma once

#include "io/container_io.h"
#include "io/spool.h"

struct stream_recovery {
	struct io_position position; /* what the next record follows */
	bool must_commit;      /* before the next record: the committed one names another log */
	struct spool spool[2]; /* fd -1 where there is none yet */
	/* behind the position: what a server gave up that could not commit it any more */
	struct spool_hole hole[2];
	int log_fd; /* -1 without a log */
};

/* dir/1.spool or dir/2.spool, the caller's to free. */
char *stream_spool_path(const char *dir, int stream);

/*
 * Opens spools and log, and finds out. When the committed log is not at log_path any more (rotated
 * just before the server died), it is looked for by its inode beside it, under names that begin
 * with its own. With a position, a log that can't be opened or read is left to be opened later:
 * log_fd is -1 and its inode 0. log_path may be NULL, position too. Blocks. On failure nothing
 * stays open.
 */
int stream_recover(const char *dir, const char *log_path, const struct io_position *position,
		   struct stream_recovery *ret, struct error *err);
void stream_recovery_done(struct stream_recovery *r);
