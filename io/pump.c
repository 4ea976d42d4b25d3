/* SPDX-License-Identifier: Apache-2.0 */
/*
 * FIFO → spool in callbacks, and how far the log has come. Peculiar: commits are numbered, and
 * `fence` is the number without which no record may be written. It is moved up whenever the log
 * would otherwise say something that recovery can't derive from the committed position: a new log
 * file, bytes that were dropped, a marker.
 */
#include "io/pump.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "io/base/alloc.h"
#include "io/base/cleanup.h"
#include "io/base/fault.h"
#include "io/base/log.h"
#include "io/log_writer.h"
#include "io/stream_recover.h"

/* A commit is due when a quarter of a spool could be given back, after so many bytes of log, or
 * after the delay. */
#define COMMIT_LOG_BYTES (8u << 20)
#define COMMIT_DELAY PUMP_SECOND
#define RETRY_MIN (PUMP_SECOND / 10)
#define RETRY_MAX (2 * PUMP_SECOND)
/* Containers that may have spools and log open: 3 descriptors each. */
#define OPEN_MAX_CONTAINERS 85

/* Those with open files, the least recently used first. */
static struct list opened = {&opened, &opened};
static unsigned opened_count;

/* ---- files that are opened on demand ---- */

void pump_close_files(struct container_io *io)
{
	for (int i = 0; i < 2; i++)
		spool_close(&io->stream[i].spool);
	close_fd(io->log_fd);
	io->log_fd = -1;
	if (!list_is_empty(&io->open_node)) {
		list_remove(&io->open_node);
		opened_count--;
	}
}

void pump_touch_files(struct container_io *io)
{
	if (list_is_empty(&io->open_node))
		opened_count++;
	list_remove(&io->open_node);
	list_append(&opened, &io->open_node);
	list_for_each_safe(other, &opened, struct container_io, open_node) {
		if (opened_count <= OPEN_MAX_CONTAINERS)
			break;
		if (other != io && !other->batch)
			pump_close_files(other);
	}
}

/* ---- trouble with log or spool: try again later ---- */

static void retry_later(struct container_io *io, const char *what, const struct error *err)
{
	uint64_t most = io->is_draining ? PUMP_LAST_CHANCE / 4 : RETRY_MAX;

	if (!io->retry_delay)
		log_warning("output of container %s waits: %s: %s", io->id, what, err->text);
	io->retry_delay = io->retry_delay ? io->retry_delay * 2 : RETRY_MIN;
	if (io->retry_delay > most)
		io->retry_delay = most;
	if (io->retry_timer.index < 0)
		loop_timer_start(io->loop, &io->retry_timer, loop_now(io->loop) + io->retry_delay);
}

void pump_log_failed(struct container_io *io, const struct error *err)
{
	io->is_log_failing = true;
	retry_later(io, "its log can't be written", err);
}

void pump_spool_failed(struct container_io *io, const struct error *err)
{
	io->is_spool_failing = true;
	retry_later(io, "its spool can't be written", err);
}

void pump_works_again(struct container_io *io)
{
	if (!io->retry_delay || io->is_log_failing || io->is_spool_failing)
		return;
	io->retry_delay = 0;
	log_info("output of container %s goes on", io->id);
}

static void on_retry(void *data)
{
	struct container_io *io = data;

	io->is_log_failing = io->is_spool_failing = false;
	loop_post(io->loop, &io->more);
	task_cond_broadcast(&io->changed);
}

static void on_reopen_due(void *data)
{
	struct container_io *io = data;

	task_cond_broadcast(&io->changed);
}

bool pump_open_spool(struct stream *s)
{
	cleanup_free char *path = NULL;
	struct error err;

	if (s->spool.fd < 0) {
		path = stream_spool_path(s->io->dir, s->index);
		if (spool_open(&s->spool, path, true, &err) < 0) {
			pump_spool_failed(s->io, &err);
			return false;
		}
	}
	pump_touch_files(s->io);
	return true;
}

/* ---- committing ---- */

struct io_position pump_position(const struct container_io *io)
{
	const struct stream *s = io->stream;

	return (struct io_position){.log_inode = io->log_inode,
				    .log_offset = io->log_offset,
				    .spool_offset = {s[0].logged, s[1].logged},
				    .partial = {s[0].partial, s[1].partial},
				    .dropped = {s[0].dropped, s[1].dropped},
				    .unreported = {s[0].unreported, s[1].unreported}};
}

/* What is committed needs no room any more. */
static void give_back(struct container_io *io)
{
	for (int i = 0; i < 2; i++) {
		struct stream *s = &io->stream[i];
		int r;

		if (io->committed.spool_offset[i] - s->spool.punched < 4096 || !pump_open_spool(s))
			continue;
		r = spool_punch(&s->spool, io->committed.spool_offset[i]);
		if (r < 0)
			log_debug("spool %d of container %s can't be given back: %s", i + 1, io->id,
				  strerror(-r));
	}
}

static void destroy(struct container_io *io)
{
	free(io->id);
	free(io->dir);
	free(io->log_path);
	free(io);
}

static void on_committed(void *data, int result)
{
	struct container_io *io = data;

	io->is_committing = false;
	if (io->is_freed) {
		destroy(io);
		return;
	}
	if (result < 0) {
		io->commit_failures++;
		io->commit_delay = io->commit_delay ? io->commit_delay * 2 : RETRY_MIN;
		if (io->commit_delay > RETRY_MAX)
			io->commit_delay = RETRY_MAX;
		loop_timer_start(io->loop, &io->commit_timer,
				 loop_now(io->loop) + io->commit_delay);
	} else {
		io->commit_delay = 0;
		io->commits_done = io->commits_issued;
		io->committed = io->in_flight;
		give_back(io);
		if (io->is_commit_wanted)
			pump_commit_now(io);
	}
	task_cond_broadcast(&io->changed);
	loop_post(io->loop, &io->more);
}

void pump_commit_now(struct container_io *io)
{
	if (io->is_committing) {
		io->is_commit_wanted = true;
		return;
	}
	loop_timer_stop(io->loop, &io->commit_timer);
	io->is_commit_wanted = false;
	io->is_committing = true;
	io->commits_issued++;
	io->in_flight = pump_position(io);
	io->commit(io->commit_data, &io->in_flight, on_committed, io);
}

/* No record before the next snapshot is durable. A commit that failed is repeated by its timer. */
void pump_raise_fence(struct container_io *io)
{
	io->fence = io->commits_issued + 1;
	if (!io->commit_delay || io->is_committing)
		pump_commit_now(io);
}

static void on_commit_due(void *data)
{
	pump_commit_now(data);
}

bool pump_is_committed(const struct container_io *io)
{
	struct io_position now = pump_position(io);
	const struct io_position *was = &io->committed;

	return now.log_inode == was->log_inode && now.log_offset == was->log_offset &&
	       now.spool_offset[0] == was->spool_offset[0] &&
	       now.spool_offset[1] == was->spool_offset[1] && now.partial[0] == was->partial[0] &&
	       now.partial[1] == was->partial[1] && now.unreported[0] == was->unreported[0] &&
	       now.unreported[1] == was->unreported[1];
}

static void schedule_commit(struct container_io *io)
{
	uint64_t freeable = 0;

	if (!io->log_path || io->is_committing || io->commit_delay || pump_is_committed(io))
		return;
	for (int i = 0; i < 2; i++)
		freeable += io->stream[i].logged - io->committed.spool_offset[i];
	if (freeable >= io->spool_limit / 4 ||
	    io->log_offset - io->committed.log_offset >= COMMIT_LOG_BYTES)
		pump_commit_now(io);
	else if (io->commit_timer.index < 0)
		loop_timer_start(io->loop, &io->commit_timer, loop_now(io->loop) + COMMIT_DELAY);
}

/* ---- what the log lacks ---- */

/* A log file that the committed position does not name. */
void pump_adopt_log(struct container_io *io, uint64_t inode, uint64_t size)
{
	io->log_inode = inode;
	io->log_offset = size;
	io->is_log_torn = false;
	pump_raise_fence(io);
}

bool pump_may_write(const struct container_io *io)
{
	return io->log_path && !io->is_log_failing && io->commits_done >= io->fence;
}

bool pump_has_pending(const struct stream *s)
{
	return s->logged < s->spool.end || s->partial || s->unreported;
}

bool pump_is_full(const struct stream *s)
{
	uint64_t committed = s->io->committed.spool_offset[s->index];
	uint64_t held = s->spool.end - committed;

	if (s->hole.end > committed)
		held -= s->hole.end - (s->hole.begin > committed ? s->hole.begin : committed);
	return held >= s->io->spool_limit;
}

void pump_drop(struct stream *s, uint64_t count)
{
	s->logged += count;
	s->dropped += count;
	s->unreported += count;
}

/* Gives the spool's whole pages between two offsets back at once: the disk that has no room for the
 * log may have none for a commit either. The hole is then how the next life knows. */
static void dig(struct stream *s, uint64_t from, uint64_t upto)
{
	struct spool_hole hole = {0};
	int r = pump_open_spool(s) ? spool_dig(&s->spool, from, upto, &hole) : 0;

	if (r < 0)
		log_debug("spool %d of container %s: %s", s->index + 1, s->io->id, strerror(-r));
	if (hole.end && hole.begin <= s->hole.end && hole.begin >= s->hole.begin)
		s->hole.end = hole.end;
	else if (hole.end)
		s->hole = hole;
}

/* What waits for the log, without a hole that is to come. */
static uint64_t unlogged(const struct stream *s)
{
	uint64_t gone = s->hole.begin >= s->logged ? s->hole.end - s->hole.begin : 0;

	return s->spool.end - s->logged - gone;
}

/* The oldest goes before the container has to wait; or, when a batch that hangs has that in hand,
 * what comes after it, which is counted when the log gets there. */
static void drop_overflow(struct container_io *io)
{
	bool has_dropped = false;

	for (int i = 0; i < 2; i++) {
		struct stream *s = &io->stream[i];
		uint64_t from = log_writer_free_from(s), upto;

		if (unlogged(s) < io->spool_limit / 4 * 3)
			continue;
		upto = (s->spool.end - io->spool_limit / 2) / 4096 * 4096;
		if (upto < s->hole.end)
			upto = s->hole.end;
		if (io->batch && from < s->hole.end)
			from = s->hole.end;
		dig(s, from, upto);
		if (io->batch)
			continue;
		pump_drop(s, upto - s->logged);
		has_dropped = true;
	}
	if (has_dropped)
		pump_raise_fence(io);
}

/* The log fails, does not answer, or waits for a commit that fails. */
static bool must_drop(const struct container_io *io)
{
	if (!io->log_path || io->blocks)
		return false;
	return io->is_log_stuck || (!pump_may_write(io) && (io->retry_delay || io->commit_delay));
}

/* Without a log: nothing is kept, and a next life begins at the spool's end. */
static void forget_output(struct container_io *io)
{
	for (int i = 0; i < 2; i++) {
		struct stream *s = &io->stream[i];

		s->logged = io->committed.spool_offset[i] = s->spool.end;
		s->partial = false;
	}
	give_back(io);
}

/* Somebody may have opened it again; if not, it is found hung up once more. */
static void on_back(void *data)
{
	struct stream *s = data;

	s->has_hung_up = false;
	pump_take(s, PUMP_TURN);
	pump_flush(s->io);
}

static void update_watch(struct stream *s)
{
	struct container_io *io = s->io;
	bool want = s->watch && !s->has_hung_up && !io->is_draining && !io->is_spool_failing &&
		    !pump_is_full(s);

	if (s->watch && s->has_hung_up && !io->is_draining)
		hangup_watch(&s->hangup, io->loop, s->fd, on_back, s);
	else
		hangup_forget(&s->hangup);
	if (want == s->is_watching)
		return;
	s->is_watching = want;
	loop_watch_set(s->watch, want ? LOOP_READ : 0);
}

void pump_settle(struct container_io *io)
{
	/* a spool that is full already wakes nobody again */
	if (must_drop(io))
		drop_overflow(io);
	schedule_commit(io);
	for (int i = 0; i < 2; i++)
		update_watch(&io->stream[i]);
}

void pump_flush(struct container_io *io)
{
	if (io->log_path)
		log_writer_want(io);
	else
		forget_output(io);
	pump_settle(io);
}

/* ---- FIFO or terminal → spool ---- */

/* A terminal's end is EIO, and splice(2) wants a pipe on one side. */
static ssize_t take_terminal(struct stream *s, size_t max)
{
	bool is_gone = s->fd < 0;
	ssize_t taken;

	if (!is_gone) {
		ssize_t n = splice(s->fd, NULL, s->pipe_fd, NULL, max, SPLICE_F_NONBLOCK);

		is_gone = n == 0 || (n < 0 && errno == EIO);
	}
	taken = spool_take(&s->spool, s->pipe_fd, max);
	if (taken == -EAGAIN && is_gone)
		return 0;
	return taken;
}

/* Bytes taken, 0 at a hang-up, -EAGAIN when there is nothing or no room; trouble is dealt with. */
ssize_t pump_take(struct stream *s, size_t max)
{
	struct container_io *io = s->io;
	ssize_t n;

	if ((s->fd < 0 && s->pipe_fd < 0) || s->has_hung_up)
		return 0;
	if (pump_is_full(s) || io->is_spool_failing || !pump_open_spool(s))
		return -EAGAIN;
	n = s->pipe_fd >= 0 ? take_terminal(s, max) : spool_take(&s->spool, s->fd, max);
	if (n > 0) {
		if (!io->has_first)
			io->first = s->index;
		io->has_first = true;
		if (!io->log_path)
			pump_works_again(io);
	} else if (n == 0) {
		s->has_hung_up = true;
	} else if (n != -EAGAIN) {
		struct error err;

		error_errno(&err, (int)-n, "splice into spool %d", s->index + 1);
		pump_spool_failed(io, &err);
		return -EAGAIN;
	}
	return n;
}

static void on_readable(void *data, int events)
{
	struct stream *s = data;

	pump_take(s, PUMP_TURN);
	pump_flush(s->io);
}

static void on_more(void *data)
{
	struct container_io *io = data;

	/* what is in a terminal's pipe already does not wake the master's watch */
	if (io->stream[0].pipe_fd >= 0 && !io->is_draining)
		pump_take(&io->stream[0], PUMP_TURN);
	pump_flush(io);
}

/* ---- beginning and end ---- */

struct container_io *pump_new(struct loop *l, const struct container_io_spec *spec)
{
	struct container_io *io = xnew(struct container_io);

	io->loop = l;
	io->id = xstrdup(spec->id);
	io->dir = xstrdup(spec->dir);
	io->log_path = xstrdup_null(spec->log_path);
	io->commit = spec->commit;
	io->commit_data = spec->data;
	io->blocks = spec->blocks;
	io->spool_limit = spec->spool_limit ? spec->spool_limit : CONTAINER_IO_SPOOL_LIMIT;
	io->log_fd = -1;
	list_init(&io->open_node);
	list_init(&io->queue_node);
	loop_work_init(&io->more, "container output", on_more, io);
	loop_timer_init(&io->retry_timer, "container log retry", on_retry, io);
	loop_timer_init(&io->hang_timer, "container log", log_writer_on_hang, io);
	loop_timer_init(&io->commit_timer, "container log commit", on_commit_due, io);
	loop_timer_init(&io->reopen_timer, "container log reopen", on_reopen_due, io);
	task_mutex_init(&io->mutex);
	task_cond_init(&io->changed);
	for (int i = 0; i < 2; i++)
		io->stream[i] = (struct stream){
			.io = io, .index = i, .fd = -1, .pipe_fd = -1, .spool = {.fd = -1}};
	io->stream[0].fd = spec->out_fd;
	io->stream[1].fd = spec->is_tty ? -1 : spec->err_fd;
	if (spec->is_tty)
		io->stream[0].pipe_fd = spec->tty_pipe_fd;
	return io;
}

void pump_begin(struct container_io *io)
{
	for (int i = 0; i < 2; i++) {
		struct stream *s = &io->stream[i];

		if (s->fd >= 0)
			s->watch = loop_watch_fd(io->loop, s->fd, 0, "container output",
						 on_readable, s);
		update_watch(s);
	}
	loop_post(io->loop, &io->more);
}

void pump_close_stream(struct stream *s)
{
	if (s->watch)
		loop_watch_free(s->watch);
	s->watch = NULL;
	hangup_forget(&s->hangup);
	close_fd(take_fd(&s->fd));
	close_fd(take_fd(&s->pipe_fd));
}

void pump_free(struct container_io *io)
{
	log_writer_abandon(io);
	pump_close_files(io);
	loop_timer_stop(io->loop, &io->retry_timer);
	loop_timer_stop(io->loop, &io->commit_timer);
	loop_timer_stop(io->loop, &io->reopen_timer);
	loop_work_cancel(&io->more);
	for (int i = 0; i < 2; i++)
		pump_close_stream(&io->stream[i]);
	if (io->is_committing)
		io->is_freed = true;
	else
		destroy(io);
}
