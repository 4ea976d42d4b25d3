/* SPDX-License-Identifier: Apache-2.0 */
/* Batches from the loop. Peculiar: a container that has to queue says what it has to write when its
 * turn comes, not before. */
#include "io/log_writer.h"

#include "io/base/alloc.h"
#include "io/base/cleanup.h"
#include "io/base/log.h"
#include "io/log_batch.h"

/* Under way at the same time, without those that hang. */
#define BATCHES_MAX 4
#define HUNG (PUMP_SECOND / 5)
/* What hangs for so long is taken for a log that fails. */
#define STUCK (2 * PUMP_SECOND)

static struct list queue = {&queue, &queue};
static int running;

static bool begin(struct container_io *io);

bool log_writer_is_busy(const struct container_io *io)
{
	return io->batch || !list_is_empty(&io->queue_node);
}

static bool is_wanted(const struct stream *s)
{
	const struct container_io *io = s->io;

	if (io->is_reopening && !s->partial)
		return false;
	if (io->is_ending)
		return pump_has_pending(s);
	return s->unreported || (s->logged < s->spool.end && s->scanned < s->spool.end);
}

static bool may_begin(const struct container_io *io)
{
	return !io->is_held && pump_may_write(io) &&
	       (is_wanted(&io->stream[0]) || is_wanted(&io->stream[1]));
}

static void begin_queued(void)
{
	struct container_io *io;

	while (running < BATCHES_MAX &&
	       (io = list_first(&queue, struct container_io, queue_node))) {
		list_remove(&io->queue_node);
		if (!begin(io))
			task_cond_broadcast(&io->changed);
	}
}

/* It needs no place any more. */
static void give_place(struct log_batch *b)
{
	if (b->is_hung)
		return;
	b->is_hung = true;
	running--;
}

/* How much may be read in one piece: up to a hole, or the end. */
static size_t readable(const struct stream *s)
{
	uint64_t left = s->spool.end - s->logged;

	if (s->logged < s->hole.begin && s->hole.begin - s->logged < left)
		left = s->hole.begin - s->logged;
	else if (s->logged == s->hole.begin && s->logged < s->hole.end)
		left = 0;
	return left < LOG_BATCH_SIZE ? left : LOG_BATCH_SIZE;
}

static void add_stream(struct log_batch *b, struct stream *s)
{
	struct log_batch_stream *to = &b->stream[s->index];

	if (!is_wanted(s) || (!s->unreported && !pump_open_spool(s)))
		return;
	to->is_wanted = true;
	to->logged = s->logged;
	to->unreported = s->unreported;
	to->partial = s->partial;
	if (s->unreported)
		return;
	to->spool_fd = s->spool.fd;
	to->size = readable(s);
	to->is_last = s->io->is_ending && s->logged + to->size == s->spool.end;
}

/* Takes back what was lent to it. */
static void take_back(struct container_io *io, struct log_batch *b)
{
	io->batch = NULL;
	loop_timer_stop(io->loop, &io->hang_timer);
	io->log_fd = take_fd(&b->log_fd);
	for (int i = 0; i < 2; i++)
		b->stream[i].spool_fd = -1;
}

/* That of an earlier drop, and the beginning of a line in front of it, if there is one. */
static void skip_hole(struct stream *s)
{
	pump_drop(s, s->hole.end - s->logged);
	pump_raise_fence(s->io);
}

/* True when there is work left that could go on at once. */
static bool take_over_stream(struct stream *s, const struct log_batch *b)
{
	const struct log_batch_stream *from = &b->stream[s->index];
	uint64_t end = s->logged + from->size;

	if (!from->is_wanted)
		return is_wanted(s);
	s->logged = from->logged;
	s->unreported = from->unreported;
	s->partial = from->partial;
	if (from->is_scanned) {
		s->scanned = end;
		if (end == s->hole.begin && end < s->hole.end)
			skip_hole(s);
	}
	return s->spool.end > end;
}

static bool take_over(struct container_io *io, const struct log_batch *b)
{
	bool has_more = false;

	pump_touch_files(io);
	if (b->result == LOG_BATCH_OTHER_FILE) {
		pump_adopt_log(io, b->log_inode, b->log_offset);
		return false;
	}
	io->log_offset = b->log_offset;
	io->is_log_torn = b->is_torn;
	io->stats.log_bytes += b->written;
	for (int i = 0; i < 2; i++)
		has_more |= take_over_stream(&io->stream[i], b);
	if (b->has_marker)
		pump_raise_fence(io);
	if (b->result == LOG_BATCH_LOG_FAILED)
		pump_log_failed(io, &b->job.err);
	else if (b->result == LOG_BATCH_SPOOL_FAILED)
		pump_spool_failed(io, &b->job.err);
	else if (b->written)
		pump_works_again(io);
	return has_more;
}

static void on_done(struct job *job)
{
	struct log_batch *b = (struct log_batch *)job;
	struct container_io *io = b->io;
	bool has_more;

	give_place(b);
	if (!io) {
		begin_queued();
		return;
	}
	take_back(io, b);
	if (io->is_log_stuck)
		log_info("the log of container %s answers again", io->id);
	io->is_log_stuck = false;
	has_more = take_over(io, b);
	task_cond_broadcast(&io->changed);
	/* the others first */
	begin_queued();
	if (has_more)
		pump_flush(io);
	else
		pump_settle(io);
}

static uint64_t stuck_at(const struct container_io *io)
{
	uint64_t at = io->batch->begun_at + STUCK;

	return io->is_draining && io->give_up_at < at ? io->give_up_at : at;
}

void log_writer_on_hang(void *data)
{
	struct container_io *io = data;

	give_place(io->batch);
	if (loop_now(io->loop) < stuck_at(io)) {
		loop_timer_start(io->loop, &io->hang_timer, stuck_at(io));
	} else {
		if (!io->is_log_stuck)
			log_warning("output of container %s waits: its log %s does not answer; "
				    "look for a dead mount or a busy disk",
				    io->id, io->log_path);
		io->is_log_stuck = true;
		pump_settle(io);
		task_cond_broadcast(&io->changed);
	}
	begin_queued();
}

static bool begin(struct container_io *io)
{
	struct log_batch *b;

	if (!may_begin(io))
		return false;
	b = log_batch_new(io->log_path);
	for (int i = 0; i < 2; i++)
		add_stream(b, &io->stream[i]);
	if (!b->stream[0].is_wanted && !b->stream[1].is_wanted) {
		job_unref(&b->job);
		return false;
	}
	pump_touch_files(io);
	b->io = io;
	b->log_fd = io->log_fd;
	b->log_inode = io->log_inode;
	b->log_offset = io->log_offset;
	b->is_torn = io->is_log_torn;
	b->only_a_line = io->is_reopening;
	b->first = io->first;
	io->has_first = false;
	b->job.finished = on_done;
	b->begun_at = loop_now(io->loop);
	io->batch = b;
	running++;
	loop_timer_start(io->loop, &io->hang_timer, b->begun_at + HUNG);
	offload_detached(io->loop, NULL, &b->job);
	return true;
}

void log_writer_want(struct container_io *io)
{
	if (log_writer_is_busy(io) || !may_begin(io))
		return;
	if (running < BATCHES_MAX)
		begin(io);
	else
		list_append(&queue, &io->queue_node);
}

void log_writer_abandon(struct container_io *io)
{
	struct log_batch *b = io->batch;

	list_remove(&io->queue_node);
	if (!b)
		return;
	/* what it uses is its own from now on */
	for (int i = 0; i < 2; i++)
		if (b->stream[i].spool_fd >= 0)
			io->stream[i].spool.fd = -1;
	io->log_fd = -1;
	io->batch = NULL;
	io->is_log_stuck = false;
	loop_timer_stop(io->loop, &io->hang_timer);
	pump_close_files(io);
	b->io = NULL;
	give_place(b);
	begin_queued();
}

uint64_t log_writer_free_from(const struct stream *s)
{
	const struct log_batch *b = s->io->batch;

	return b && b->stream[s->index].is_wanted ? s->logged + b->stream[s->index].size
						  : s->logged;
}
