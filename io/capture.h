/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a process says, in memory: the outputs of ExecSync, of plugins and helpers. Two pipes are
 * read on the loop as they fill, up to a limit each; the rest is read and dropped, so that the
 * writer goes on, and counted.
 *
 * The end is the end of the main process, not of the pipes: a background child may hold them for
 * days, or never stop writing.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "io/base/buf.h"
#include "io/base/error.h"

struct loop;
struct task;
struct capture_impl;

/* What ExecSync may return of each output (CRI: ExecSyncResponse). */
#define CAPTURE_EXEC_LIMIT (16u << 20)

struct capture {
	struct buf output[2];	   /* stdout, stderr; complete after capture_finish() */
	uint64_t dropped[2];	   /* bytes past the limit */
	bool has_ended[2];	   /* the pipe was closed by all writers (or there was none) */
	struct capture_impl *impl; /* io/capture.c only */
};

/* Reads from out_fd and err_fd (-1: none), which it takes and makes non-blocking, until limit bytes
 * each; memory grows with what arrives. */
struct capture *capture_new(struct loop *l, int out_fd, int err_fd, size_t limit);
/*
 * For when the main process has ended: takes what is in the pipes by now, and, when somebody else
 * still holds one, waits at most grace_ms for that to end. Then closes both. A wait that ends early
 * (deadline, cancellation) is an error; what was read until then is there. Once only.
 */
int capture_finish(struct task *t, struct capture *c, uint64_t grace_ms);
/* Also in the middle. NULL is fine. */
void capture_free(struct capture *c);
