/* SPDX-License-Identifier: Apache-2.0 */
/*
 * FIFO → spool → log in callbacks. Peculiar: commits are numbered, and `fence` is the number
 * without which no record may be written. It is moved up whenever the log would otherwise say
 * something that recovery can't derive from the committed position: a new log file, bytes that were
 * dropped, a marker. Buffers are shared by all containers, since nothing is kept in them from one
 * callback to the next.
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
#include "io/crilog.h"
#include "io/stream_recover.h"

/* What is written of a stream in one callback at the most. */
#define TURN_OUT (1024u * 1024)
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
static char *in_buffer, *out_buffer;

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
	while (opened_count > OPEN_MAX_CONTAINERS)
		pump_close_files(container_of(opened.next, struct container_io, open_node));
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

static void log_failed(struct container_io *io, const struct error *err)
{
	io->is_log_failing = true;
	retry_later(io, "its log can't be written", err);
}

static void spool_failed(struct container_io *io, const struct error *err)
{
	io->is_spool_failing = true;
	retry_later(io, "its spool can't be written", err);
}

static void works_again(struct container_io *io)
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

static bool open_spool(struct stream *s)
{
	cleanup_free char *path = NULL;
	struct error err;

	if (s->spool.fd < 0) {
		path = stream_spool_path(s->io->dir, s->index);
		if (spool_open(&s->spool, path, true, &err) < 0) {
			spool_failed(s->io, &err);
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

		if (io->committed.spool_offset[i] - s->spool.punched < 4096 || !open_spool(s))
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

/* ---- spool → log ---- */

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

/* Cuts off what is there of a record that was written in part; false when that fails. */
static bool cut_torn(struct container_io *io)
{
	struct error err;

	if (!io->is_log_torn)
		return true;
	if (ftruncate(io->log_fd, (off_t)io->log_offset) < 0) {
		error_errno(&err, errno, "cut log %s", io->log_path);
		log_failed(io, &err);
		return false;
	}
	io->is_log_torn = false;
	return true;
}

/* False when nothing may be written yet. Opening it again after it was closed as least recently
 * used may find that it was renamed meanwhile. */
static bool open_log(struct container_io *io)
{
	uint64_t inode, size;
	struct error err;

	if (io->log_fd < 0) {
		if (crilog_open(io->log_path, true, &io->log_fd, &inode, &size, &err) < 0) {
			log_failed(io, &err);
			return false;
		}
		if (inode != io->log_inode)
			pump_adopt_log(io, inode, size);
	}
	pump_touch_files(io);
	return cut_torn(io) && pump_may_write(io);
}

/* How many of the bytes are in the log; fewer than size when it fails, and then log_offset is not
 * moved. */
static size_t append_log(struct container_io *io, const char *data, size_t size)
{
	struct error err;
	size_t done = 0;

	while (done < size) {
		ssize_t n = write(io->log_fd, data + done, size - done);

		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0) {
			error_errno(&err, n < 0 ? errno : EIO, "write log %s", io->log_path);
			log_failed(io, &err);
			break;
		}
		done += (size_t)n;
	}
	if (done == size)
		works_again(io);
	FAULT(log_written);
	return done;
}

/* Of a batch that was written in part only its whole records stay: the same run with less room
 * says which. */
static void keep_whole_records(struct container_io *io, struct crilog_run *run, size_t done)
{
	run->out_size = done;
	run->consumed = run->produced = 0;
	crilog_format(run);
	io->is_log_torn = run->produced != done;
}

/* Formats run->in and appends it. */
static void log_run(struct stream *s, struct crilog_run *run)
{
	struct container_io *io = s->io;
	struct crilog_run fresh = *run;
	off_t end;
	size_t done;

	crilog_format(run);
	if (!run->produced)
		return;
	done = append_log(io, run->out, run->produced);
	if (!done) {
		*run = fresh;
		return;
	}
	/* with O_APPEND this is where the write ended, whoever cut the file before */
	end = lseek(io->log_fd, 0, SEEK_CUR);
	if (done < run->produced) {
		*run = fresh;
		keep_whole_records(io, run, done);
	}
	io->log_offset = (uint64_t)end - (done - run->produced);
	/* at once: the file may be rotated before more is written to it */
	cut_torn(io);
	io->stats.log_bytes += run->produced;
}

static struct crilog_run new_run(const struct stream *s)
{
	struct crilog_run run = {.stream = s->index, .partial = s->partial};

	clock_gettime(CLOCK_REALTIME, &run.now);
	if (!in_buffer) {
		in_buffer = xmalloc(PUMP_TURN);
		out_buffer = xmalloc(TURN_OUT);
	}
	run.out = out_buffer;
	run.out_size = TURN_OUT;
	return run;
}

/* Says in the stream itself what is missing. The record also ends a line that was half logged. */
static void log_marker(struct stream *s)
{
	struct crilog_run run = new_run(s);
	char text[CRILOG_MARKER_MAX];

	run.in = text;
	run.in_size = crilog_marker(text, s->unreported);
	log_run(s, &run);
	if (!run.consumed)
		return;
	s->unreported = 0;
	s->partial = false;
	pump_raise_fence(s->io);
}

bool pump_has_pending(const struct stream *s)
{
	return s->logged < s->spool.end || s->partial || s->unreported;
}

/* How much may be read in one piece: up to a hole, or the end. */
static size_t readable(const struct stream *s)
{
	uint64_t left = s->hole.begin - s->logged;

	return s->logged < s->hole.end && left < PUMP_TURN ? left : PUMP_TURN;
}

/* At a hole of an earlier life, with at most the beginning of a line, of so many bytes, in front of
 * it. */
static bool skip_hole(struct stream *s, uint64_t front)
{
	if (s->logged >= s->hole.end || s->logged + front != s->hole.begin)
		return false;
	pump_drop(s, s->hole.end - s->logged);
	pump_raise_fence(s->io);
	return true;
}

/* One batch; true when there is work left that could go on at once. */
static bool flush_stream(struct stream *s)
{
	struct container_io *io = s->io;
	struct crilog_run run;
	ssize_t n = 0;

	if (!s->unreported && !io->is_ending &&
	    (s->logged == s->spool.end || s->scanned == s->spool.end))
		return false;
	if (io->is_ending && !pump_has_pending(s))
		return false;
	if (io->is_reopening && !s->partial)
		return false;
	if (!pump_may_write(io) || !open_log(io))
		return false;
	if (s->unreported) {
		log_marker(s);
		return true;
	}
	if (!open_spool(s))
		return false;
	run = new_run(s);
	n = spool_read(&s->spool, s->logged, in_buffer, readable(s));
	if (n < 0) {
		struct error err;

		error_errno(&err, (int)-n, "read spool %d", s->index + 1);
		spool_failed(io, &err);
		return false;
	}
	run.in = in_buffer;
	run.in_size = (size_t)n;
	run.is_end = io->is_ending && s->logged + (uint64_t)n == s->spool.end;
	run.only_a_line = io->is_reopening;
	log_run(s, &run);
	if (!io->is_log_failing && !run.only_a_line && TURN_OUT - run.produced >= CRILOG_RECORD_MAX)
		s->scanned = s->logged + (uint64_t)n;
	s->logged += run.consumed;
	if (s->partial && !run.partial)
		task_cond_broadcast(&io->changed);
	s->partial = run.partial;
	if (!run.produced && !io->is_log_failing && skip_hole(s, (uint64_t)n))
		return true;
	return run.produced && s->logged < s->spool.end &&
	       (n == PUMP_TURN || s->logged < s->hole.end ||
		TURN_OUT - run.produced < CRILOG_RECORD_MAX);
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

/* Drops what is not logged before the offset, and gives it back at once: the disk that has no room
 * for the log may have none for a commit either. The hole is then how the next life knows. */
static void drop_upto(struct stream *s, uint64_t offset)
{
	struct spool_hole hole = {0};
	int r = open_spool(s) ? spool_dig(&s->spool, s->logged, offset, &hole) : 0;

	if (r < 0)
		log_debug("spool %d of container %s: %s", s->index + 1, s->io->id, strerror(-r));
	if (hole.end && hole.begin <= s->hole.end && hole.begin >= s->hole.begin)
		s->hole.end = hole.end;
	else if (hole.end)
		s->hole = hole;
	pump_drop(s, offset - s->logged);
}

/* The oldest goes before the container has to wait. */
static void drop_overflow(struct container_io *io)
{
	bool has_dropped = false;

	for (int i = 0; i < 2; i++) {
		struct stream *s = &io->stream[i];
		uint64_t upto;

		if (s->spool.end - s->logged < io->spool_limit / 4 * 3)
			continue;
		upto = (s->spool.end - io->spool_limit / 2) / 4096 * 4096;
		drop_upto(s, upto > s->hole.end ? upto : s->hole.end);
		has_dropped = true;
	}
	if (has_dropped)
		pump_raise_fence(io);
}

/* The log fails, or waits for a commit that does. */
static bool must_drop(const struct container_io *io)
{
	return io->log_path && !io->blocks && !pump_may_write(io) &&
	       (io->retry_delay || io->commit_delay);
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

void pump_flush(struct container_io *io)
{
	bool has_more = false;

	if (!io->log_path)
		forget_output(io);
	for (int i = 0; i < 2; i++)
		has_more |= flush_stream(&io->stream[i]);
	/* after the attempt: a spool that is full already wakes nobody again */
	if (must_drop(io))
		drop_overflow(io);
	schedule_commit(io);
	for (int i = 0; i < 2; i++)
		update_watch(&io->stream[i]);
	if (has_more)
		loop_post(io->loop, &io->more);
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
	if (pump_is_full(s) || io->is_spool_failing || !open_spool(s))
		return -EAGAIN;
	n = s->pipe_fd >= 0 ? take_terminal(s, max) : spool_take(&s->spool, s->fd, max);
	if (n > 0) {
		if (!io->log_path)
			works_again(io);
	} else if (n == 0) {
		s->has_hung_up = true;
	} else if (n != -EAGAIN) {
		struct error err;

		error_errno(&err, (int)-n, "splice into spool %d", s->index + 1);
		spool_failed(io, &err);
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
	loop_work_init(&io->more, "container output", on_more, io);
	loop_timer_init(&io->retry_timer, "container log retry", on_retry, io);
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
