/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The loop's side of batches (io/log_batch.h), for io/pump.c and io/container_io.c: one at a time
 * for a container, a few at a time for all, so that many busy logs share threads and buffers and
 * take turns. One that hangs, as on a dead mount, keeps nobody else waiting.
 */
#pragma once

#include "io/pump.h"

/* Begins a batch, or queues for one, when the log lacks something that may be written now. What
 * came of it is told by pump_settle() or pump_flush(), and `changed`. */
void log_writer_want(struct container_io *io);
/* Under way or queued. */
bool log_writer_is_busy(const struct container_io *io);
/*
 * Lets go of the batch that is under way with the files that it uses; what it writes is not
 * counted. For containers whose end can't wait for it.
 */
void log_writer_abandon(struct container_io *io);
/* The stream's first byte that no batch has in hand. */
uint64_t log_writer_free_from(const struct stream *s);
/* Of hang_timer. */
void log_writer_on_hang(void *data);
