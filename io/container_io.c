/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The tasks' half of the pump: start with recovery, drain at the end, rotation. Peculiar: they only
 * arrange what the callbacks of io/pump.c may do and wait for `changed`; bytes are moved by the
 * same functions, also while draining.
 */
#include "io/container_io.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/ioctl.h>

#include "io/base/alloc.h"
#include "io/base/cleanup.h"
#include "io/base/log.h"
#include "io/crilog.h"
#include "io/log_writer.h"
#include "io/offload.h"
#include "io/pump.h"
#include "io/stream_recover.h"

struct start_job {
	struct job job;
	char *dir, *log_path;
	bool has_position;
	struct io_position position;
	struct stream_recovery recovery;
};

static int start_run(struct job *job, struct error *err)
{
	struct start_job *j = (struct start_job *)job;

	return stream_recover(j->dir, j->log_path, j->has_position ? &j->position : NULL,
			      &j->recovery, err);
}

static void start_job_free(struct job *job)
{
	struct start_job *j = (struct start_job *)job;

	stream_recovery_done(&j->recovery);
	free(j->dir);
	free(j->log_path);
	free(j);
}

static struct start_job *start_job_new(const struct container_io_spec *spec)
{
	struct start_job *j = xnew(struct start_job);

	job_init(&j->job, start_run, start_job_free);
	j->dir = xstrdup(spec->dir);
	j->log_path = xstrdup_null(spec->log_path);
	j->has_position = spec->position;
	if (spec->position)
		j->position = *spec->position;
	j->recovery = (struct stream_recovery){.log_fd = -1, .spool = {{.fd = -1}, {.fd = -1}}};
	return j;
}

/* Takes over what the job found and opened. */
static void take_up(struct container_io *io, struct start_job *j)
{
	struct stream_recovery *found = &j->recovery;

	if (j->has_position)
		io->committed = j->position;
	for (int i = 0; i < 2; i++) {
		struct stream *s = &io->stream[i];

		s->spool = found->spool[i];
		found->spool[i].fd = -1;
		s->hole = found->hole[i];
		s->logged = found->position.spool_offset[i];
		s->partial = found->position.partial[i];
		s->dropped = found->position.dropped[i];
		s->unreported = found->position.unreported[i];
		if (io->committed.spool_offset[i] > s->spool.end)
			io->committed.spool_offset[i] = s->spool.end;
	}
	io->log_fd = take_fd(&found->log_fd);
	io->log_inode = found->position.log_inode;
	io->log_offset = found->position.log_offset;
	pump_touch_files(io);
	if (found->must_commit && io->log_path)
		pump_raise_fence(io);
	pump_begin(io);
}

static int check_spec(const struct container_io_spec *spec, struct error *err)
{
	if (spec->log_path && spec->log_path[0] != '/')
		return error_set(err, ERR_INVALID, "log path %s of container %s: not absolute",
				 spec->log_path, spec->id);
	if (spec->is_tty && spec->out_fd >= 0 &&
	    fcntl(spec->out_fd, F_SETFL, O_RDWR | O_NONBLOCK) < 0)
		return error_errno(err, errno, "make the terminal of container %s non-blocking",
				   spec->id);
	return 0;
}

int container_io_start(struct task *t, const struct container_io_spec *spec,
		       struct container_io **ret)
{
	struct container_io *io = pump_new(t->loop, spec);
	struct start_job *j = start_job_new(spec);
	int r = check_spec(spec, &t->err);

	/* a recovery that nobody waits for any more might cut what a second one has written */
	if (r == 0) {
		offload_start(t, NULL, &j->job);
		r = offload_finish(t, &j->job);
	}
	if (r == 0) {
		take_up(io, j);
		*ret = io;
	} else {
		pump_free(io);
	}
	job_unref(&j->job);
	return r;
}

void container_io_free(struct container_io *io)
{
	if (io)
		pump_free(io);
}

struct container_io_stats container_io_stats(const struct container_io *io)
{
	struct container_io_stats stats = io->stats;

	for (int i = 0; i < 2; i++) {
		const struct stream *s = &io->stream[i];

		stats.bytes[i] = s->spool.end;
		stats.dropped[i] = s->dropped;
		stats.logged[i] = io->log_path ? s->logged - s->dropped : 0;
	}
	stats.is_log_failing = io->retry_delay != 0 || io->is_log_stuck;
	return stats;
}

struct io_position container_io_position(const struct container_io *io)
{
	return pump_position(io);
}

void container_io_give_up(struct container_io *io)
{
	io->blocks = false;
}

/* Returns when all that happened so far is durable. */
static int commit_wait(struct task *t, struct container_io *io)
{
	uint64_t want = io->commits_issued + 1, failures = io->commit_failures;

	if (!io->log_path || (pump_is_committed(io) && !io->is_committing))
		return 0;
	pump_commit_now(io);
	while (io->commits_done < want) {
		if (io->commit_failures != failures)
			return error_set(&t->err, ERR_UNAVAILABLE,
					 "commit how far the log of container %s has come: the "
					 "state database refused it; try again",
					 io->id);
		TRY(task_cond_wait(t, &io->changed));
	}
	return 0;
}

/* What the stream still has to take: all that its dead writers left. */
static size_t left_in_pipe(const struct stream *s)
{
	int n = 0;

	if (s->pipe_fd >= 0) /* until it hangs up, or has nothing */
		return SIZE_MAX;
	return s->fd >= 0 && ioctl(s->fd, FIONREAD, &n) == 0 && n > 0 ? (size_t)n : 0;
}

/* A container that has ended waited long enough. */
static bool is_time_up(const struct container_io *io)
{
	return (io->retry_delay || io->is_log_stuck) && loop_now(io->loop) >= io->give_up_at;
}

static int log_is_full(struct task *t, const struct container_io *io)
{
	return error_set(&t->err, ERR_EXHAUSTED,
			 "write the last output of container %s to its log %s: it can't be "
			 "written; free space there",
			 io->id, io->log_path);
}

static int take_rest(struct task *t, struct stream *s)
{
	struct container_io *io = s->io;
	size_t left;

	/* it may have been opened again since, written to, and closed */
	s->has_hung_up = false;
	left = left_in_pipe(s);

	while (left) {
		ssize_t n = pump_take(s, left < PUMP_TURN ? left : PUMP_TURN);

		pump_flush(io);
		if (n == 0)
			return 0;
		if (n > 0) {
			left -= (size_t)n;
			TRY(task_yield(t));
		} else if (!pump_is_full(s) && !io->is_spool_failing) {
			return 0;
		} else if (io->is_spool_failing && is_time_up(io)) {
			return error_set(&t->err, ERR_EXHAUSTED,
					 "take the last output of container %s: the spool in %s "
					 "can't be written; free space there",
					 io->id, io->dir);
		} else if (io->blocks && is_time_up(io)) {
			return log_is_full(t, io);
		} else {
			TRY(task_cond_wait(t, &io->changed));
		}
	}
	return 0;
}

static void give_up_rest(struct container_io *io)
{
	log_writer_abandon(io);
	for (int i = 0; i < 2; i++) {
		struct stream *s = &io->stream[i];

		pump_drop(s, s->spool.end - s->logged);
		if (s->unreported)
			log_warning("container %s has ended, its log can't be written: %llu bytes "
				    "of %s dropped",
				    io->id, (unsigned long long)s->unreported,
				    i ? "stderr" : "stdout");
		s->unreported = 0;
		s->partial = false;
	}
}

static int flush_rest(struct task *t, struct container_io *io)
{
	for (;;) {
		pump_flush(io);
		if (!pump_has_pending(&io->stream[0]) && !pump_has_pending(&io->stream[1]))
			return 0;
		if (is_time_up(io) && io->blocks)
			return log_is_full(t, io);
		if (log_writer_is_busy(io) && !io->is_log_stuck)
			TRY(task_cond_wait(t, &io->changed));
		else if (is_time_up(io))
			give_up_rest(io);
		else if (pump_may_write(io) && !io->is_spool_failing && !io->is_log_stuck)
			TRY(task_yield(t));
		else
			TRY(task_cond_wait(t, &io->changed));
	}
}

int container_io_drain(struct task *t, struct container_io *io)
{
	struct task_mutex *held cleanup_unlock = NULL;

	TRY(task_mutex_lock(t, &io->mutex));
	held = &io->mutex;
	if (io->stats.has_ended)
		return 0;
	io->is_draining = true;
	io->give_up_at = loop_now(t->loop) + PUMP_LAST_CHANCE;
	if (io->retry_delay)
		loop_timer_start(io->loop, &io->retry_timer, loop_now(io->loop));
	if (io->batch)
		loop_timer_start(io->loop, &io->hang_timer, io->give_up_at);
	for (int i = 0; i < 2; i++)
		TRY(take_rest(t, &io->stream[i]));
	io->is_ending = true;
	TRY(flush_rest(t, io));
	TRY(commit_wait(t, io));
	for (int i = 0; i < 2; i++)
		pump_close_stream(&io->stream[i]);
	pump_close_files(io);
	io->stats.has_ended = true;
	return 0;
}

/* ---- rotation ---- */

struct reopen_job {
	struct job job;
	char *path;
	int fd;
	uint64_t inode, size;
};

static int reopen_run(struct job *job, struct error *err)
{
	struct reopen_job *j = (struct reopen_job *)job;

	return crilog_open(j->path, true, &j->fd, &j->inode, &j->size, err);
}

static void reopen_job_free(struct job *job)
{
	struct reopen_job *j = (struct reopen_job *)job;

	close_fd(j->fd);
	free(j->path);
	free(j);
}

/* Waits until no line is half logged, or the time is up, and then for the log to be at rest. */
static int wait_for_line_end(struct task *t, struct container_io *io)
{
	uint64_t until = loop_now(t->loop) + CONTAINER_IO_REOPEN_MS * (PUMP_SECOND / 1000);

	loop_timer_start(io->loop, &io->reopen_timer, until);
	while ((io->stream[0].partial || io->stream[1].partial) && loop_now(t->loop) < until)
		TRY(task_cond_wait(t, &io->changed));
	/* nor is the file changed under a batch */
	io->is_held = true;
	while (log_writer_is_busy(io))
		TRY(task_cond_wait(t, &io->changed));
	return 0;
}

static void switch_log(struct container_io *io, struct reopen_job *j)
{
	/* who calls may have made room, and a new file may work where the old one failed */
	if (io->retry_delay)
		loop_timer_start(io->loop, &io->retry_timer, loop_now(io->loop));
	if (j->inode == io->log_inode && io->log_fd >= 0)
		return;
	close_fd(io->log_fd);
	io->log_fd = take_fd(&j->fd);
	pump_touch_files(io);
	if (j->inode != io->log_inode)
		pump_adopt_log(io, j->inode, j->size);
}

int container_io_reopen(struct task *t, struct container_io *io)
{
	struct task_mutex *held cleanup_unlock = NULL;
	struct reopen_job *j;
	int r;

	if (!io->log_path)
		return error_set(&t->err, ERR_PRECONDITION,
				 "reopen the log of container %s: it has none", io->id);
	TRY(task_mutex_lock(t, &io->mutex));
	held = &io->mutex;
	j = xnew(struct reopen_job);
	job_init(&j->job, reopen_run, reopen_job_free);
	j->path = xstrdup(io->log_path);
	j->fd = -1;
	io->is_reopening = true;
	r = wait_for_line_end(t, io);
	if (r == 0)
		r = offload(t, NULL, &j->job);
	if (r == 0)
		switch_log(io, j);
	io->is_reopening = io->is_held = false;
	loop_timer_stop(io->loop, &io->reopen_timer);
	job_unref(&j->job);
	loop_post(io->loop, &io->more);
	return r < 0 ? r : commit_wait(t, io);
}
