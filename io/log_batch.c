/* SPDX-License-Identifier: Apache-2.0 */
/* Spools into the log, on a thread of the pool. Peculiar: buffers are shared by all batches, since
 * nothing is kept in them. */
#include "io/log_batch.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#include "io/base/alloc.h"
#include "io/base/cleanup.h"
#include "io/base/fault.h"
#include "io/crilog.h"

/* Those that wait for the next batch. */
#define SPARE_MAX 4

/* Small enough for a processor's cache. */
struct buffers {
	struct buffers *next;
	char in[64u * 1024], out[192u * 1024];
};

static pthread_mutex_t spare_lock = PTHREAD_MUTEX_INITIALIZER;
static struct buffers *spare;
static int spare_count;

static struct buffers *buffers_get(void)
{
	struct buffers *b;

	pthread_mutex_lock(&spare_lock);
	b = spare;
	if (b) {
		spare = b->next;
		spare_count--;
	}
	pthread_mutex_unlock(&spare_lock);
	return b ? b : xmalloc(sizeof(*b));
}

static void buffers_put(struct buffers *b)
{
	pthread_mutex_lock(&spare_lock);
	if (spare_count < SPARE_MAX) {
		b->next = spare;
		spare = b;
		spare_count++;
		b = NULL;
	}
	pthread_mutex_unlock(&spare_lock);
	free(b);
}

/* Cuts off what is there of a record that was written in part. */
static int cut_torn(struct log_batch *b, struct error *err)
{
	if (b->is_torn && ftruncate(b->log_fd, (off_t)b->log_offset) < 0)
		return error_errno(err, errno, "cut log %s", b->path);
	b->is_torn = false;
	return 0;
}

/* How many of the bytes are in the log; fewer than size when it fails. */
static size_t append(const struct log_batch *b, const char *data, size_t size, struct error *err)
{
	size_t done = 0;

	while (done < size) {
		ssize_t n = write(b->log_fd, data + done, size - done);

		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0) {
			error_errno(err, n < 0 ? errno : EIO, "write log %s", b->path);
			break;
		}
		done += (size_t)n;
	}
	FAULT(log_written);
	return done;
}

/* Of what was written in part only whole records stay: the same run with less room says which. */
static void keep_whole_records(struct log_batch *b, struct crilog_run *run, size_t done)
{
	run->out_size = done;
	run->consumed = run->produced = 0;
	crilog_format(run);
	b->is_torn = run->produced != done;
}

/* Formats run->in and appends it. When that fails, the run is as far as it came. */
static int write_run(struct log_batch *b, struct crilog_run *run, struct error *err)
{
	struct crilog_run fresh = *run;
	size_t done, wanted;
	off_t end;

	crilog_format(run);
	wanted = run->produced;
	if (!wanted)
		return 0;
	done = append(b, run->out, wanted, err);
	if (done < wanted)
		*run = fresh;
	if (!done)
		return -(int)err->code;
	/* with O_APPEND this is where the write ended, whoever cut the file before */
	end = lseek(b->log_fd, 0, SEEK_CUR);
	if (done < wanted)
		keep_whole_records(b, run, done);
	b->log_offset = (uint64_t)end - (done - run->produced);
	b->written += run->produced;
	if (done == wanted)
		return 0;
	/* at once: the file may be rotated before more is written to it */
	cut_torn(b, NULL);
	return -(int)err->code;
}

static struct crilog_run new_run(const struct log_batch_stream *s, int stream, struct buffers *buf)
{
	struct crilog_run run = {.stream = stream,
				 .partial = s->partial,
				 .out = buf->out,
				 .out_size = sizeof(buf->out)};

	clock_gettime(CLOCK_REALTIME, &run.now);
	return run;
}

/* Says in the stream itself what is missing. The record also ends a line that was half logged. */
static int write_marker(struct log_batch *b, int stream, struct buffers *buf, struct error *err)
{
	struct log_batch_stream *s = &b->stream[stream];
	struct crilog_run run = new_run(s, stream, buf);
	char text[CRILOG_MARKER_MAX];
	int r;

	run.in = text;
	run.in_size = crilog_marker(text, s->unreported);
	r = write_run(b, &run, err);
	if (run.consumed) {
		s->unreported = 0;
		s->partial = false;
		b->has_marker = true;
	}
	return r;
}

/* One piece of a stream; 1 when there is more to be done. */
static int write_piece(struct log_batch *b, int stream, uint64_t end, struct buffers *buf,
		       struct error *err)
{
	struct log_batch_stream *s = &b->stream[stream];
	const struct spool spool = {.fd = s->spool_fd};
	struct crilog_run run = new_run(s, stream, buf);
	size_t left = (size_t)(end - s->logged);
	ssize_t n = spool_read(&spool, s->logged, buf->in,
			       left < sizeof(buf->in) ? left : sizeof(buf->in));
	int r;

	if (n < 0) {
		b->result = LOG_BATCH_SPOOL_FAILED;
		return error_errno(err, (int)-n, "read spool %d", stream + 1);
	}
	run.in = buf->in;
	run.in_size = (size_t)n;
	run.is_end = s->is_last && (size_t)n == left;
	run.only_a_line = b->only_a_line;
	r = write_run(b, &run, err);
	s->logged += run.consumed;
	s->partial = run.partial;
	if (r < 0 || (b->only_a_line && run.produced && !run.partial))
		return r;
	s->is_scanned = (size_t)n == left && sizeof(buf->out) - run.produced >= CRILOG_RECORD_MAX;
	return run.produced && !s->is_scanned;
}

static int write_stream(struct log_batch *b, int stream, struct buffers *buf, struct error *err)
{
	uint64_t end = b->stream[stream].logged + b->stream[stream].size;
	int r;

	while ((r = write_piece(b, stream, end, buf, err)) > 0)
		;
	return r;
}

/* 1 when it may be written to. */
static int open_log(struct log_batch *b, struct error *err)
{
	uint64_t inode, size;

	if (b->log_fd < 0) {
		TRY(crilog_open(b->path, true, &b->log_fd, &inode, &size, err));
		/* it was closed as least recently used, and renamed meanwhile */
		if (inode != b->log_inode) {
			b->result = LOG_BATCH_OTHER_FILE;
			b->log_inode = inode;
			b->log_offset = size;
			return 0;
		}
	}
	TRY(cut_torn(b, err));
	return 1;
}

static int write_streams(struct log_batch *b, struct buffers *buf, struct error *err)
{
	/* after a marker nothing may be written before that is durable */
	for (int n = 0; n < 2 && !b->has_marker; n++) {
		int i = n ^ b->first;

		if (!b->stream[i].is_wanted)
			continue;
		if (b->stream[i].unreported)
			TRY(write_marker(b, i, buf, err));
		else
			TRY(write_stream(b, i, buf, err));
	}
	return 0;
}

static int batch_run(struct job *job, struct error *err)
{
	struct log_batch *b = (struct log_batch *)job;
	struct buffers *buf;
	int r = open_log(b, err);

	if (r > 0) {
		buf = buffers_get();
		r = write_streams(b, buf, err);
		buffers_put(buf);
	}
	if (r < 0 && b->result == LOG_BATCH_DONE)
		b->result = LOG_BATCH_LOG_FAILED;
	return r;
}

static void batch_free(struct job *job)
{
	struct log_batch *b = (struct log_batch *)job;

	close_fd(b->log_fd);
	for (int i = 0; i < 2; i++)
		close_fd(b->stream[i].spool_fd);
	free(b->path);
	free(b);
}

struct log_batch *log_batch_new(const char *path)
{
	struct log_batch *b = xnew(struct log_batch);

	job_init(&b->job, batch_run, batch_free);
	b->path = xstrdup(path);
	b->log_fd = -1;
	for (int i = 0; i < 2; i++)
		b->stream[i].spool_fd = -1;
	return b;
}
