/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How far a container's log has come: one row a container, written often and lazily. A row of a
 * container that is not (any more) in the store is dropped.
 */
#pragma once

#include "store/db.h"

struct stream_row {
	const char *container_id; /* never NULL */
	uint64_t log_inode, log_offset;
	uint64_t spool_offset[2]; /* stdout, stderr */
	bool partial[2];	  /* the last record had tag P */
	uint64_t dropped[2];	  /* of spool_offset: could not be logged */
	uint64_t unreported[2];	  /* of dropped: no record says so yet */
};

/*
 * Queues the row and returns; done(data, result), if not NULL, is called on the loop after the
 * commit, with -ERR_x when it failed. A row of the same container that is still queued is replaced;
 * both callers' done are called. Nothing is queued or called any more once store_close() has begun.
 */
void store_stream_put(struct store *s, const struct stream_row *row,
		      void (*done)(void *data, int result), void *data);
/* As store_sandbox_each(). */
int store_stream_each(struct store *s, int (*fn)(void *data, const struct stream_row *row),
		      void *data, struct error *err);

/* For what must be committed together with something else, or before a reply (ReopenContainerLog).
 */
void batch_stream_put(struct store_batch *batch, const struct stream_row *row);
/* For a row whose container is lost; others go with theirs. */
void batch_stream_delete(struct store_batch *batch, const char *container_id);
