/* SPDX-License-Identifier: Apache-2.0 */
/* Records: where lines are cut, that parsing gives them back, and what a torn log tells. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "io/base/alloc.h"
#include "io/base/buf.h"
#include "io/base/cleanup.h"
#include "io/crilog.h"

#define STAMP "2016-10-06T00:17:09.669794202Z"

static const struct timespec moment = {.tv_sec = 1475713029, .tv_nsec = 669794202};
static char out[1 << 20];

static struct crilog_run run_of(const char *in, size_t size, bool is_end)
{
	return (struct crilog_run){.now = moment,
				   .in = in,
				   .in_size = size,
				   .out = out,
				   .out_size = sizeof(out),
				   .is_end = is_end};
}

static void record_is_as_documented(void **state)
{
	struct crilog_run run = run_of("hello\n\nx", 8, false);

	run.stream = 1;
	crilog_format(&run);
	assert_int_equal(run.consumed, 7);
	out[run.produced] = '\0';
	assert_string_equal(out, STAMP " stderr F hello\n" STAMP " stderr F \n");
	run.is_end = true;
	crilog_format(&run);
	assert_int_equal(run.consumed, 8);
	out[run.produced] = '\0';
	assert_non_null(strstr(out, "stderr F x\n"));
}

/* Joins all records' payloads, with a newline after each F; checks order and sizes on the way. */
static size_t join(const char *log, size_t size, char *to, int *ret_records)
{
	size_t length = 0;

	*ret_records = 0;
	while (size) {
		struct crilog_record record;

		assert_int_equal(crilog_parse(log, size, &record), 1);
		memcpy(to + length, record.payload, record.length);
		length += record.length;
		if (!record.is_partial)
			to[length++] = '\n';
		else
			assert_int_equal(record.length, CRILOG_PAYLOAD_MAX);
		log += record.size;
		size -= record.size;
		++*ret_records;
	}
	return length;
}

static void long_lines_are_cut_and_nothing_else(void **state)
{
	static const struct {
		size_t length;
		int records;
	} cases[] = {{0, 1},	 {1, 1},     {16383, 1}, {16384, 1},
		     {16385, 2}, {32768, 2}, {32769, 3}, {100000, 7}};
	char *in = xmalloc(200000), *joined = xmalloc(200000);

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct crilog_run run = run_of(in, cases[i].length + 1, false);
		int records;

		for (size_t k = 0; k < cases[i].length; k++)
			in[k] = k % 11 ? (char)(k * 7 % 256) : '\0';
		for (size_t k = 0; k < cases[i].length; k++)
			if (in[k] == '\n')
				in[k] = (char)0xff;
		in[cases[i].length] = '\n';
		crilog_format(&run);
		assert_int_equal(run.consumed, run.in_size);
		assert_false(run.partial);
		assert_int_equal(join(out, run.produced, joined, &records), run.in_size);
		assert_memory_equal(joined, in, run.in_size);
		assert_int_equal(records, cases[i].records);
	}
	free(in);
	free(joined);
}

static void beginning_of_a_line_is_held(void **state)
{
	char *in = xmalloc(40000);
	struct crilog_run run;

	memset(in, 'a', 40000);
	run = run_of(in, 16384, false);
	crilog_format(&run);
	assert_int_equal(run.produced, 0);
	run = run_of(in, 16385, false);
	crilog_format(&run);
	assert_int_equal(run.consumed, 16384);
	assert_true(run.partial);
	/* the stream's end closes it */
	run = run_of(in, 16384, true);
	crilog_format(&run);
	assert_int_equal(run.consumed, 16384);
	assert_false(run.partial);
	/* also when nothing is left but the flag */
	run = run_of(in, 0, true);
	run.partial = true;
	crilog_format(&run);
	assert_int_equal(run.produced, CRILOG_PREFIX + 1);
	assert_false(run.partial);
	run = run_of(in, 0, true);
	crilog_format(&run);
	assert_int_equal(run.produced, 0);
	free(in);
}

static void full_output_ends_between_records(void **state)
{
	const char *in = "one\ntwo\nthree\n";
	struct crilog_run all = run_of(in, strlen(in), false);
	char *whole = xmalloc(1000);

	crilog_format(&all);
	memcpy(whole, out, all.produced);
	for (size_t room = 0; room <= all.produced; room++) {
		struct crilog_run run = run_of(in, strlen(in), false);

		run.out_size = room;
		crilog_format(&run);
		assert_true(run.produced <= room);
		assert_true(room - run.produced < CRILOG_PREFIX + 6);
		assert_memory_equal(out, whole, run.produced);
		run.out_size = sizeof(out);
		crilog_format(&run);
		assert_int_equal(run.produced, all.produced);
		assert_memory_equal(out, whole, all.produced);
	}
	free(whole);
}

static void only_a_line_stops_after_it(void **state)
{
	struct crilog_run run = run_of("one\ntwo\n", 8, false);

	run.only_a_line = true;
	crilog_format(&run);
	assert_int_equal(run.consumed, 4);
}

static void strangers_lines_are_no_records(void **state)
{
	static const char *const lines[] = {
		"\n",
		"hello\n",
		STAMP " stdout F\n",
		STAMP " stdout X x\n",
		STAMP " stdin  F x\n",
		STAMP "  stdout F x\n",
		"2016-10-06T00:17:09.66979420ZZ stdout F x\n",
	};
	struct crilog_record record;
	char *long_line = xmalloc(CRILOG_RECORD_MAX + 2);

	for (size_t i = 0; i < sizeof(lines) / sizeof(lines[0]); i++) {
		assert_int_equal(crilog_parse(lines[i], strlen(lines[i]), &record), -1);
		assert_int_equal(record.size, strlen(lines[i]));
	}
	memset(long_line, 'x', CRILOG_RECORD_MAX);
	memcpy(long_line, STAMP " stdout F ", CRILOG_PREFIX);
	long_line[CRILOG_RECORD_MAX] = '\n';
	assert_int_equal(crilog_parse(long_line, CRILOG_RECORD_MAX + 1, &record), -1);
	assert_int_equal(crilog_parse(STAMP " stdout F x", CRILOG_PREFIX + 1, &record), 0);
	assert_int_equal(crilog_parse("", 0, &record), 0);
	free(long_line);
}

static int memory_file(const void *data, size_t size)
{
	char path[] = "/tmp/crisp-crilog-XXXXXX";
	int fd = mkstemp(path);

	assert_true(fd >= 0);
	unlink(path);
	assert_int_equal(write(fd, data, size), size);
	return fd;
}

/* Both streams' bytes: short lines, an empty one, one of three records, a last one without end. */
static void make_input(struct buf in[2])
{
	for (int s = 0; s < 2; s++) {
		for (int i = 0; i < 3; i++)
			buf_printf(&in[s], "line %d of %d\n\n", i, s);
		memset(buf_reserve(&in[s], 33000), 'a' + s, 33000);
		in[s].length += 33000;
		buf_printf(&in[s], "\nlast of %d", s);
	}
}

static size_t make_log(struct buf in[2], struct buf *log)
{
	struct crilog_run run[2] = {run_of(in[0].data, in[0].length, true),
				    run_of(in[1].data, in[1].length, true)};

	run[1].stream = 1;
	for (int left = 40; left--;) {
		struct crilog_run *r = &run[left % 2];

		/* mostly one record at a time, so that the streams mix */
		r->out_size = r->produced = 0;
		r->out_size = sizeof(out);
		r->only_a_line = true;
		crilog_format(r);
		buf_append(log, out, r->produced);
	}
	assert_int_equal(run[0].consumed, in[0].length);
	assert_int_equal(run[1].consumed, in[1].length);
	return log->length;
}

/* The log cut at every byte: what is counted and what was cut off add up to whole records. */
static void torn_tail_at_every_byte(void **state)
{
	struct buf in[2] = {{0}}, log = {0};
	size_t size, steps = 0;
	struct spool spool[2] = {{.fd = -1}, {.fd = -1}};
	struct crilog_position from = {0};
	int fd;

	make_input(in);
	size = make_log(in, &log);
	for (int s = 0; s < 2; s++) {
		spool[s].fd = memory_file(in[s].data, in[s].length);
		spool[s].end = in[s].length;
	}
	fd = memory_file("", 0);
	for (size_t cut = 0; cut <= size; cut += cut > 600 && cut + 700 < size ? 37 : 1) {
		struct crilog_position pos = from;
		struct crilog_run again;
		size_t whole = 0;
		struct stat st;

		assert_int_equal(ftruncate(fd, 0), 0);
		assert_int_equal(pwrite(fd, log.data, cut, 0), cut);
		assert_int_equal(crilog_recover(fd, spool, &pos, NULL), 0);
		assert_int_equal(fstat(fd, &st), 0);
		assert_int_equal(st.st_size, pos.log_offset);
		for (size_t i = 0; i < cut; i++)
			if (log.data[i] == '\n')
				whole = i + 1;
		assert_int_equal(pos.log_offset, whole);
		/* a second recovery, from there, changes nothing */
		from = pos;
		assert_int_equal(crilog_recover(fd, spool, &pos, NULL), 0);
		assert_memory_equal(&pos, &from, sizeof(pos));
		/* what follows is what the log said without the cut */
		for (int s = 0; s < 2; s++) {
			size_t next = whole;
			struct crilog_record record = {0};

			again = run_of(in[s].data + pos.spool_offset[s],
				       in[s].length - pos.spool_offset[s], true);
			again.stream = s;
			again.partial = pos.partial[s];
			crilog_format(&again);
			while (next < size && crilog_parse(log.data + next, size - next, &record) &&
			       record.stream != s)
				next += record.size;
			if (next == size)
				assert_int_equal(again.produced, 0);
			else
				assert_memory_equal(out, log.data + next, record.size);
		}
		/* now and then from a position that is older */
		if (cut % 3)
			from = (struct crilog_position){0};
		else
			from = pos;
		steps++;
	}
	assert_true(steps > 1300);
	close(fd);
	for (int s = 0; s < 2; s++) {
		close(spool[s].fd);
		buf_done(&in[s]);
	}
	buf_done(&log);
}

static void markers_and_strangers_do_not_count(void **state)
{
	const char *log = STAMP " stdout F one\n"
				"garbage\n" STAMP " stdout F [5 bytes dropped]\n" STAMP
				" stderr P one\n" STAMP " stdout F two\n";
	struct spool spool[2] = {{.fd = memory_file("one\ntwo\nthree\n", 14), .end = 14},
				 {.fd = -1}};
	struct crilog_position pos = {0};
	int fd = memory_file(log, strlen(log));

	assert_int_equal(crilog_recover(fd, spool, &pos, NULL), 0);
	assert_int_equal(pos.spool_offset[0], 8);
	assert_int_equal(pos.spool_offset[1], 0);
	assert_false(pos.partial[1]);
	assert_int_equal(pos.log_offset, strlen(log));
	/* one that was cut by somebody is taken as it is */
	assert_int_equal(ftruncate(fd, 3), 0);
	assert_int_equal(crilog_recover(fd, spool, &pos, NULL), 0);
	assert_int_equal(pos.log_offset, 3);
	assert_int_equal(pos.spool_offset[0], 8);
	close(fd);
	close(spool[0].fd);
}

static void log_file_is_made_with_its_mode(void **state)
{
	char dir[] = "/tmp/crisp-crilog-XXXXXX";
	cleanup_free char *path = NULL, *missing = NULL, *link = NULL;
	struct error err = {0};
	uint64_t inode, size;
	struct stat st;
	mode_t mask = umask(077);
	int fd = -1;

	assert_non_null(mkdtemp(dir));
	path = xasprintf("%s/0.log", dir);
	missing = xasprintf("%s/none/0.log", dir);
	link = xasprintf("%s/link", dir);
	assert_int_equal(crilog_open(path, false, &fd, &inode, &size, &err), -ERR_INTERNAL);
	assert_int_equal(crilog_open(path, true, &fd, &inode, &size, &err), 0);
	assert_int_equal(fstat(fd, &st), 0);
	assert_int_equal(st.st_mode, S_IFREG | 0640);
	assert_int_equal(st.st_ino, inode);
	assert_int_equal(size, 0);
	assert_true(fcntl(fd, F_GETFL) & O_APPEND);
	assert_true(fcntl(fd, F_GETFD) & FD_CLOEXEC);
	close(fd);
	assert_true(crilog_open(missing, true, &fd, &inode, &size, &err) < 0);
	assert_non_null(strstr(err.text, "/none,"));
	assert_int_equal(symlink(path, link), 0);
	assert_int_equal(crilog_open(link, true, &fd, &inode, &size, &err), -ERR_INVALID);
	unlink(link);
	assert_int_equal(mkfifo(link, 0600), 0);
	assert_int_equal(crilog_open(link, true, &fd, &inode, &size, &err), -ERR_INVALID);
	unlink(link);
	unlink(path);
	rmdir(dir);
	umask(mask);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(record_is_as_documented),
		cmocka_unit_test(long_lines_are_cut_and_nothing_else),
		cmocka_unit_test(beginning_of_a_line_is_held),
		cmocka_unit_test(full_output_ends_between_records),
		cmocka_unit_test(only_a_line_stops_after_it),
		cmocka_unit_test(strangers_lines_are_no_records),
		cmocka_unit_test(torn_tail_at_every_byte),
		cmocka_unit_test(markers_and_strangers_do_not_count),
		cmocka_unit_test(log_file_is_made_with_its_mode),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
