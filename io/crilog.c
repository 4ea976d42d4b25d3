/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Formatting, parsing and recovery of CRI logs. Peculiar: one timestamp a run, made once, and a
 * memchr and two copies a line; that is what hundreds of MB/s need.
 */
#include "io/crilog.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "io/base/alloc.h"
#include "io/base/cleanup.h"

#define READ_SIZE (256u * 1024)

static const char *const stream_names[2] = {"stdout", "stderr"};

static void put_digits(char *to, unsigned long value, int count)
{
	while (count--) {
		to[count] = (char)('0' + value % 10);
		value /= 10;
	}
}

/* All of a record before its payload, with tag F. */
static void make_prefix(char prefix[CRILOG_PREFIX], int stream, const struct timespec *now)
{
	struct tm tm;

	gmtime_r(&now->tv_sec, &tm);
	memcpy(prefix, "0000-00-00T00:00:00.000000000Z stdout F ", CRILOG_PREFIX);
	put_digits(prefix, (unsigned long)tm.tm_year + 1900, 4);
	put_digits(prefix + 5, (unsigned long)tm.tm_mon + 1, 2);
	put_digits(prefix + 8, (unsigned long)tm.tm_mday, 2);
	put_digits(prefix + 11, (unsigned long)tm.tm_hour, 2);
	put_digits(prefix + 14, (unsigned long)tm.tm_min, 2);
	put_digits(prefix + 17, (unsigned long)tm.tm_sec, 2);
	put_digits(prefix + 20, (unsigned long)now->tv_nsec, 9);
	memcpy(prefix + 31, stream_names[stream], 6);
}

void crilog_format(struct crilog_run *r)
{
	const char *in = r->in + r->consumed, *in_end = r->in + r->in_size;
	char *out = r->out + r->produced, *out_end = r->out + r->out_size;
	char prefix[CRILOG_PREFIX];

	make_prefix(prefix, r->stream, &r->now);
	for (;;) {
		size_t left = (size_t)(in_end - in), length, used;
		const char *newline = NULL;
		bool is_partial = false;

		if (left)
			newline = memchr(in, '\n',
					 left > CRILOG_PAYLOAD_MAX ? CRILOG_PAYLOAD_MAX + 1 : left);
		if (newline) {
			length = (size_t)(newline - in);
			used = length + 1;
		} else if (left > CRILOG_PAYLOAD_MAX) {
			used = length = CRILOG_PAYLOAD_MAX;
			is_partial = true;
		} else if (r->is_end && (left || r->partial)) {
			used = length = left;
		} else {
			break;
		}
		if ((size_t)(out_end - out) < CRILOG_PREFIX + length + 1)
			break;
		memcpy(out, prefix, CRILOG_PREFIX);
		if (is_partial)
			out[CRILOG_PREFIX - 2] = 'P';
		memcpy(out + CRILOG_PREFIX, in, length);
		out += CRILOG_PREFIX + length;
		*out++ = '\n';
		in += used;
		r->partial = is_partial;
		if (r->only_a_line && !is_partial)
			break;
	}
	r->consumed = (size_t)(in - r->in);
	r->produced = (size_t)(out - r->out);
}

size_t crilog_marker(char to[CRILOG_MARKER_MAX], uint64_t dropped)
{
	return (size_t)snprintf(to, CRILOG_MARKER_MAX,
				"[%llu bytes dropped: the log could not be written]\n",
				(unsigned long long)dropped);
}

static bool is_prefix(const char *p)
{
	static const char form[] = "dddd-dd-ddTdd:dd:dd.dddddddddZ ";

	for (size_t i = 0; i < sizeof(form) - 1; i++)
		if (form[i] == 'd' ? p[i] < '0' || p[i] > '9' : p[i] != form[i])
			return false;
	if (memcmp(p + 31, stream_names[0], 6) != 0 && memcmp(p + 31, stream_names[1], 6) != 0)
		return false;
	return p[37] == ' ' && (p[38] == 'P' || p[38] == 'F') && p[39] == ' ';
}

int crilog_parse(const char *data, size_t size, struct crilog_record *ret)
{
	const char *newline = size ? memchr(data, '\n', size) : NULL;

	if (!newline)
		return 0;
	*ret = (struct crilog_record){.size = (size_t)(newline - data) + 1};
	if (ret->size < CRILOG_PREFIX + 1 || ret->size > CRILOG_RECORD_MAX || !is_prefix(data))
		return -1;
	ret->stream = data[34] == 'e';
	ret->is_partial = data[38] == 'P';
	ret->payload = data + CRILOG_PREFIX;
	ret->length = ret->size - CRILOG_PREFIX - 1;
	return 1;
}

/* The commonest mistake deserves its own sentence. */
static int open_failed(const char *path, int sys, struct error *err)
{
	const char *slash = strrchr(path, '/');
	cleanup_free char *dir = slash ? strndup(path, (size_t)(slash - path)) : NULL;
	struct stat st;

	if (sys == ENOENT && dir && *dir && stat(dir, &st) < 0)
		return error_errno(
			err, errno,
			"open log %s: its directory %s, which the client has to make first", path,
			dir);
	if (sys == ELOOP)
		return error_set(err, ERR_INVALID,
				 "open log %s: it is a symbolic link; give the file's own path",
				 path);
	if (sys == ENOTDIR)
		return error_set(err, ERR_INVALID,
				 "open log %s: what is to be its directory is a file", path);
	return error_errno(err, sys, "open log %s", path);
}

static int open_file(const char *path, bool may_create)
{
	const int flags = O_RDWR | O_APPEND | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK | O_NOCTTY;
	int fd;

	do {
		fd = open(path, flags);
		if (fd >= 0 || errno != ENOENT || !may_create)
			return fd;
		fd = open(path, flags | O_CREAT | O_EXCL, 0640);
		/* a reopen whose caller left may be quicker */
	} while (fd < 0 && errno == EEXIST);
	/* whatever the umask is; collectors may run as another user of the group */
	if (fd >= 0 && fchmod(fd, 0640) < 0) {
		close_fd(fd);
		return -1;
	}
	return fd;
}

int crilog_open(const char *path, bool may_create, int *ret_fd, uint64_t *ret_inode,
		uint64_t *ret_size, struct error *err)
{
	cleanup_close int fd = open_file(path, may_create);
	struct stat st;

	if (fd < 0)
		return open_failed(path, errno, err);
	if (fstat(fd, &st) < 0)
		return error_errno(err, errno, "stat log %s", path);
	if (!S_ISREG(st.st_mode))
		return error_set(err, ERR_INVALID, "open log %s: not a regular file", path);
	*ret_fd = take_fd(&fd);
	*ret_inode = (uint64_t)st.st_ino;
	*ret_size = (uint64_t)st.st_size;
	return 0;
}

/* A piece of a spool, so that comparing many short records costs few reads. */
struct window {
	const struct spool *spool;
	uint64_t start;
	size_t size;
	char *data;
};

/* The spool's bytes from offset on, at least need of them; NULL when it has not so many or can't
 * be read. */
static const char *window_at(struct window *w, uint64_t offset, size_t need)
{
	if (offset + need > w->spool->end)
		return NULL;
	if (offset < w->start || offset + need > w->start + w->size) {
		ssize_t n = spool_read(w->spool, offset, w->data, READ_SIZE);

		w->start = offset;
		w->size = n > 0 ? (size_t)n : 0;
		if (w->size < need)
			return NULL;
	}
	return w->data + (offset - w->start);
}

static bool is_marker(const struct crilog_record *record, uint64_t dropped)
{
	char text[CRILOG_MARKER_MAX];

	return !record->is_partial && crilog_marker(text, dropped) == record->length + 1 &&
	       memcmp(text, record->payload, record->length) == 0;
}

static void count_record(const struct crilog_record *record, struct window *w,
			 struct crilog_position *pos)
{
	uint64_t *at = &pos->spool_offset[record->stream];
	uint64_t *unreported = &pos->unreported[record->stream];
	const char *bytes;

	if (*unreported) {
		if (!is_marker(record, *unreported))
			return;
		*unreported = 0;
		pos->partial[record->stream] = false;
		return;
	}
	bytes = window_at(w, *at, record->length);
	if (!bytes || memcmp(bytes, record->payload, record->length) != 0)
		return;
	*at += record->length;
	pos->partial[record->stream] = record->is_partial;
	/* without one it is the record that closed the stream */
	bytes = record->is_partial ? NULL : window_at(w, *at, 1);
	if (bytes && *bytes == '\n')
		(*at)++;
}

/* Reads the tail and counts; pos->log_offset becomes the end of the last whole line. */
static int count_tail(int log_fd, struct window w[2], char *data, struct crilog_position *pos,
		      struct error *err)
{
	size_t held = 0;
	uint64_t offset = pos->log_offset; /* of data[0] */

	for (;;) {
		ssize_t n = pread(log_fd, data + held, READ_SIZE - held, (off_t)(offset + held));
		struct crilog_record record;
		size_t used = 0;
		int r;

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return error_errno(err, errno, "read the log's tail");
		if (n == 0)
			return 0;
		held += (size_t)n;
		while ((r = crilog_parse(data + used, held - used, &record))) {
			if (r > 0)
				count_record(&record, &w[record.stream], pos);
			used += record.size;
			pos->log_offset = offset + used;
		}
		/* a stranger's endless line: let go of its beginning */
		if (!used && held == READ_SIZE)
			used = held;
		memmove(data, data + used, held - used);
		held -= used;
		offset += used;
	}
}

int crilog_recover(int log_fd, const struct spool spool[2], struct crilog_position *pos,
		   struct error *err)
{
	cleanup_free char *data = xmalloc(3 * READ_SIZE);
	struct window w[2] = {{.spool = &spool[0], .data = data + READ_SIZE},
			      {.spool = &spool[1], .data = data + 2 * READ_SIZE}};
	struct stat st;

	if (fstat(log_fd, &st) < 0)
		return error_errno(err, errno, "stat the log");
	if ((uint64_t)st.st_size <= pos->log_offset) {
		pos->log_offset = (uint64_t)st.st_size;
		return 0;
	}
	TRY(count_tail(log_fd, w, data, pos, err));
	/* what is longer than any record is none of ours */
	if ((uint64_t)st.st_size - pos->log_offset > CRILOG_RECORD_MAX)
		pos->log_offset = (uint64_t)st.st_size;
	else if ((uint64_t)st.st_size > pos->log_offset &&
		 ftruncate(log_fd, (off_t)pos->log_offset) < 0)
		return error_errno(err, errno, "cut the log's torn last record");
	return 0;
}
