/* SPDX-License-Identifier: Apache-2.0 */
/* The pump with real FIFOs, spools and logs; commits are kept in memory and may be held or fail. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <termios.h>
#include <unistd.h>

#include "io/base/alloc.h"
#include "io/base/buf.h"
#include "io/base/cleanup.h"
#include "io/base/log.h"
#include "io/container_io.h"
#include "io/crilog.h"
#include "io/fifo.h"
#include "io/fs.h"
#include "io/offload.h"

enum commit_mode { COMMIT_AT_ONCE, COMMIT_LATER, COMMIT_HOLD, COMMIT_FAIL };

/* One container as its server sees it. */
struct rig {
	char dir[32], log[64];
	int dir_fd;
	struct fifo_ends ends;
	struct container_io *io;
	uint64_t spool_limit;
	bool is_tty, has_no_log, blocks;
	enum commit_mode mode;
	struct io_position position;
	bool has_position;
	int commits;
	/* one that is held */
	struct io_position held;
	void (*done)(void *data, int result);
	void *done_data;
	struct loop_work later;
};

static struct loop *l;
static int fds_before, tmp_fd; /* of /tmp */

static int count_fds(void)
{
	DIR *dir = opendir("/proc/self/fd");
	int n = 0;

	while (readdir(dir))
		n++;
	closedir(dir);
	return n;
}

static int setup(void **state)
{
	log_set_level(LOG_ERROR);
	offload_shutdown();
	tmp_fd = open("/tmp", O_PATH | O_DIRECTORY | O_CLOEXEC);
	fds_before = count_fds();
	l = loop_new(NULL);
	return l ? 0 : -1;
}

static int teardown(void **state)
{
	offload_shutdown();
	assert_int_equal(task_count(), 0);
	loop_free(l);
	task_pool_trim();
	assert_int_equal(count_fds(), fds_before);
	close(tmp_fd);
	return 0;
}

/* ---- running things on the loop ---- */

struct call {
	int (*fn)(struct task *t, struct rig *rig);
	struct rig *rig;
	int result;
	struct error err;
	bool is_done;
};

static void call_main(struct task *t, void *arg)
{
	struct call *c = arg;

	c->result = c->fn(t, c->rig);
	c->err = t->err;
	c->is_done = true;
	loop_stop(l);
}

static int run(struct rig *rig, int (*fn)(struct task *t, struct rig *rig), struct error *err)
{
	struct call c = {.fn = fn, .rig = rig};

	task_start(l, "test", call_main, &c);
	while (!c.is_done)
		loop_run(l);
	if (err)
		*err = c.err;
	else if (c.result < 0)
		print_message("%s\n", c.err.text);
	return c.result;
}

static int nap(struct task *t, struct rig *rig)
{
	return task_sleep_ms(t, 2);
}

/* Lets the pump work until the condition holds; 5 s at the most. */
#define WAIT_UNTIL(condition)                                                                      \
	do {                                                                                       \
		int left_ = 2500;                                                                  \
		while (!(condition) && left_--)                                                    \
			run(NULL, nap, NULL);                                                      \
		assert_true(condition);                                                            \
	} while (0)

static void settle_held(struct rig *rig, int result)
{
	void (*done)(void *data, int result) = rig->done;

	assert_non_null(done);
	rig->done = NULL;
	if (result == 0) {
		rig->position = rig->held;
		rig->has_position = true;
	}
	done(rig->done_data, result);
}

static void on_later(void *data)
{
	settle_held(data, 0);
}

static void on_commit(void *data, const struct io_position *pos,
		      void (*done)(void *done_data, int result), void *done_data)
{
	struct rig *rig = data;

	assert_null(rig->done);
	rig->commits++;
	rig->held = *pos;
	rig->done = done;
	rig->done_data = done_data;
	if (rig->mode == COMMIT_AT_ONCE)
		settle_held(rig, 0);
	else if (rig->mode == COMMIT_FAIL)
		settle_held(rig, -ERR_UNAVAILABLE);
	else if (rig->mode == COMMIT_LATER)
		loop_post(l, &rig->later);
}

static struct fifo_spec fifo_spec(const struct rig *rig)
{
	return (struct fifo_spec){.dir = rig->dir_fd,
				  .uid = getuid(),
				  .gid = getgid(),
				  .has = {true, true, true},
				  .is_tty = rig->is_tty,
				  .pipe_size = 65536};
}

static int make_fifos(struct task *t, struct rig *rig)
{
	struct fifo_spec spec = fifo_spec(rig);

	/* the second time they are there */
	TRY(fifo_open(t, &spec, &rig->ends));
	fifo_ends_close(&rig->ends);
	return fifo_open(t, &spec, &rig->ends);
}

static int start(struct task *t, struct rig *rig)
{
	struct container_io_spec spec = {.id = "abc",
					 .dir = rig->dir,
					 .log_path = rig->has_no_log ? NULL : rig->log,
					 .out_fd = take_fd(&rig->ends.server[1]),
					 .err_fd = take_fd(&rig->ends.server[2]),
					 .position = rig->has_position ? &rig->position : NULL,
					 .spool_limit = rig->spool_limit,
					 .blocks = rig->blocks,
					 .commit = on_commit,
					 .data = rig};

	return container_io_start(t, &spec, &rig->io);
}

static int drain(struct task *t, struct rig *rig)
{
	return container_io_drain(t, rig->io);
}

static int reopen(struct task *t, struct rig *rig)
{
	return container_io_reopen(t, rig->io);
}

static struct rig *rig_new(void)
{
	struct rig *rig = xnew(struct rig);

	strcpy(rig->dir, "/tmp/crisp-io-XXXXXX");
	assert_non_null(mkdtemp(rig->dir));
	snprintf(rig->log, sizeof(rig->log), "%s/0.log", rig->dir);
	rig->dir_fd = open(rig->dir, O_DIRECTORY | O_CLOEXEC);
	rig->ends = fifo_ends_none();
	loop_work_init(&rig->later, "commit", on_later, rig);
	return rig;
}

static struct rig *rig_begin(void)
{
	struct rig *rig = rig_new();

	assert_int_equal(run(rig, make_fifos, NULL), 0);
	assert_int_equal(run(rig, start, NULL), 0);
	return rig;
}

static void rig_free(struct rig *rig)
{
	container_io_free(rig->io);
	loop_work_cancel(&rig->later);
	fifo_ends_close(&rig->ends);
	close_fd(rig->dir_fd);
	assert_int_equal(fs_remove_tree_blocking(tmp_fd, rig->dir + 5, NULL), 0);
	free(rig);
}

/* The server is gone; the next one gets new ends of pipes that the container kept. */
static void rig_restart(struct rig *rig)
{
	container_io_free(rig->io);
	rig->io = NULL;
	/* a thread that was writing dies with a server */
	offload_shutdown();
	assert_int_equal(fifo_open_server_end(rig->dir_fd, 1, false, &rig->ends.server[1], NULL),
			 0);
	assert_int_equal(fifo_open_server_end(rig->dir_fd, 2, false, &rig->ends.server[2], NULL),
			 0);
	assert_int_equal(run(rig, start, NULL), 0);
}

static void say(struct rig *rig, int stream, const char *text)
{
	size_t size = strlen(text);

	assert_int_equal(write(rig->ends.container[stream], text, size), size);
}

static void read_file(const char *path, struct buf *ret)
{
	ret->length = 0;
	assert_int_equal(fs_read_at(tmp_fd, path + 5, 64 << 20, ret, NULL), 0);
}

/* What a reader of the log joins for one stream; '\n' after each F. */
static void read_stream(const char *path, int stream, struct buf *ret)
{
	struct buf log = {0};
	size_t at = 0;

	read_file(path, &log);
	while (at < log.length) {
		struct crilog_record record;

		assert_int_equal(crilog_parse(log.data + at, log.length - at, &record), 1);
		at += record.size;
		if (record.stream != stream)
			continue;
		buf_append(ret, record.payload, record.length);
		if (!record.is_partial)
			buf_append(ret, "\n", 1);
	}
	buf_done(&log);
}

static void assert_stream(const char *path, int stream, const char *expected)
{
	struct buf got = {0};

	read_stream(path, stream, &got);
	assert_string_equal(got.data ? got.data : "", expected);
	buf_done(&got);
}

static size_t file_size(const char *path)
{
	struct stat st;

	return stat(path, &st) < 0 ? 0 : (size_t)st.st_size;
}

/* ---- tests ---- */

static void both_streams_reach_the_log(void **state)
{
	struct rig *rig = rig_begin();
	struct stat st;

	assert_int_equal(stat(rig->log, &st), 0);
	assert_int_equal(st.st_mode, S_IFREG | 0640);
	assert_int_equal(rig->commits, 1);
	say(rig, 1, "one\ntwo\npar");
	say(rig, 2, "oops\n");
	WAIT_UNTIL(container_io_stats(rig->io).log_bytes == 40 * 3 + 13);
	assert_stream(rig->log, 0, "one\ntwo\n");
	say(rig, 1, "tial\nthe end");
	assert_int_equal(run(rig, drain, NULL), 0);
	assert_stream(rig->log, 0, "one\ntwo\npartial\nthe end\n");
	assert_stream(rig->log, 1, "oops\n");
	assert_true(container_io_stats(rig->io).has_ended);
	assert_int_equal(container_io_stats(rig->io).bytes[0], 11 + 12);
	assert_int_equal(rig->position.spool_offset[0], 23);
	assert_int_equal(rig->position.log_offset, file_size(rig->log));
	/* again, and after a restart, nothing is added */
	assert_int_equal(run(rig, drain, NULL), 0);
	rig_restart(rig);
	assert_int_equal(run(rig, drain, NULL), 0);
	assert_stream(rig->log, 0, "one\ntwo\npartial\nthe end\n");
	assert_stream(rig->log, 1, "oops\n");
	rig_free(rig);
}

/* A position waits a second for its commit at the most. */
static int sleep_past_commit(struct task *t, struct rig *rig)
{
	return task_sleep_ms(t, 1200);
}

static void idle_costs_no_commit_and_no_timer(void **state)
{
	struct rig *rig = rig_begin();
	int commits;

	say(rig, 1, "x\n");
	WAIT_UNTIL(rig->commits == 2);
	WAIT_UNTIL(rig->position.spool_offset[0] == 2);
	commits = rig->commits;
	run(NULL, sleep_past_commit, NULL);
	assert_int_equal(rig->commits, commits);
	rig_free(rig);
}

static void long_lines_and_odd_bytes_stay(void **state)
{
	static const size_t sizes[] = {16383, 16384, 16385, 100000};
	struct rig *rig = rig_begin();
	struct buf sent = {0}, got = {0};

	for (size_t i = 0; i < 4; i++) {
		char *to = buf_reserve(&sent, sizes[i] + 1);

		for (size_t k = 0; k < sizes[i]; k++)
			to[k] = (char)(k % 251 == '\n' ? 0xff : k % 251);
		to[sizes[i]] = '\n';
		sent.length += sizes[i] + 1;
	}
	for (size_t at = 0; at < sent.length;) {
		size_t n = sent.length - at < 5000 ? sent.length - at : 5000;

		assert_int_equal(write(rig->ends.container[1], sent.data + at, n), n);
		at += n;
		WAIT_UNTIL(container_io_stats(rig->io).bytes[0] == at);
	}
	assert_int_equal(run(rig, drain, NULL), 0);
	read_stream(rig->log, 0, &got);
	assert_int_equal(got.length, sent.length);
	assert_memory_equal(got.data, sent.data, sent.length);
	/* 1 + 1 + 2 + 7 records: nothing is split at the borders of reads */
	assert_int_equal(file_size(rig->log) - (sent.length - 4), 11 * (CRILOG_PREFIX + 1));
	buf_done(&got);
	buf_done(&sent);
	rig_free(rig);
}

/* Nothing was committed since the log was opened, or ever: the log's tail says it. */
static void log_tail_tells_what_was_not_committed(void **state)
{
	struct rig *rig = rig_begin();

	say(rig, 1, "one\ntwo\n");
	say(rig, 2, "oops\n");
	WAIT_UNTIL(container_io_stats(rig->io).log_bytes == 3 * 40 + 13);
	assert_int_equal(rig->position.spool_offset[0], 0);
	say(rig, 1, "thr");
	WAIT_UNTIL(container_io_stats(rig->io).bytes[0] == 11);
	assert_int_equal(truncate(rig->log, (off_t)file_size(rig->log) - 3), 0);
	rig_restart(rig);
	say(rig, 1, "ee\n");
	assert_int_equal(run(rig, drain, NULL), 0);
	assert_stream(rig->log, 0, "one\ntwo\nthree\n");
	assert_stream(rig->log, 1, "oops\n");
	rig_free(rig);
}

static void rotation_while_away_loses_nothing(void **state)
{
	struct rig *rig = rig_begin();
	char old[128];

	snprintf(old, sizeof(old), "%s.20260101-000000", rig->log);
	say(rig, 1, "one\ntwo\n");
	WAIT_UNTIL(container_io_stats(rig->io).log_bytes == 2 * 41 + 6);
	assert_int_equal(rig->position.spool_offset[0], 0);
	assert_int_equal(rename(rig->log, old), 0);
	rig_restart(rig);
	say(rig, 1, "three\n");
	assert_int_equal(run(rig, drain, NULL), 0);
	assert_stream(old, 0, "one\ntwo\n");
	assert_stream(rig->log, 0, "three\n");
	rig_free(rig);
}

/* A log of somebody else, at the same path, is appended to and left alone. */
static void foreign_log_is_appended_to(void **state)
{
	struct rig *rig = rig_new();
	struct buf log = {0};
	int fd = open(rig->log, O_WRONLY | O_CREAT, 0600);

	assert_int_equal(write(fd, "somebody's", 10), 10);
	close(fd);
	assert_int_equal(run(rig, make_fifos, NULL), 0);
	assert_int_equal(run(rig, start, NULL), 0);
	say(rig, 1, "x\n");
	assert_int_equal(run(rig, drain, NULL), 0);
	read_file(rig->log, &log);
	assert_memory_equal(log.data, "somebody's", 10);
	assert_int_equal(log.length, 10 + 42);
	buf_done(&log);
	rig_free(rig);
}

static void reopen_commits_the_new_file_first(void **state)
{
	struct rig *rig = rig_begin();
	char old[128];
	struct stat st;

	snprintf(old, sizeof(old), "%s.1", rig->log);
	rig->mode = COMMIT_LATER;
	say(rig, 1, "one\n");
	WAIT_UNTIL(container_io_stats(rig->io).log_bytes);
	assert_int_equal(rename(rig->log, old), 0);
	say(rig, 1, "two\n");
	WAIT_UNTIL(container_io_stats(rig->io).log_bytes == 2 * 44);
	assert_int_equal(run(rig, reopen, NULL), 0);
	assert_int_equal(stat(rig->log, &st), 0);
	assert_int_equal(rig->position.log_inode, st.st_ino);
	assert_int_equal(rig->position.log_offset, 0);
	assert_int_equal(rig->position.spool_offset[0], 8);
	say(rig, 1, "three\n");
	WAIT_UNTIL(file_size(rig->log));
	/* the same file again */
	assert_int_equal(run(rig, reopen, NULL), 0);
	assert_int_equal(run(rig, drain, NULL), 0);
	assert_stream(old, 0, "one\ntwo\n");
	assert_stream(rig->log, 0, "three\n");
	assert_int_equal(run(rig, reopen, NULL), 0);
	rig_free(rig);
}

/* The rest of a long line goes where its beginning went, if it comes at once. */
static void reopen_waits_for_the_end_of_a_line(void **state)
{
	struct rig *rig = rig_begin();
	char *half = xmalloc(20001), old[128];
	struct call c = {.fn = reopen, .rig = rig};
	uint64_t began;

	snprintf(old, sizeof(old), "%s.1", rig->log);
	memset(half, 'x', 20000);
	half[20000] = '\0';
	say(rig, 1, half);
	WAIT_UNTIL(file_size(rig->log) == 16384 + 41);
	assert_int_equal(rename(rig->log, old), 0);
	task_start(l, "reopen", call_main, &c);
	run(NULL, nap, NULL);
	assert_false(c.is_done);
	say(rig, 1, "y\nnext\n");
	WAIT_UNTIL(c.is_done);
	assert_int_equal(c.result, 0);
	WAIT_UNTIL(file_size(rig->log) == 45);
	assert_int_equal(file_size(old), 20001 + 2 * 41);
	/* and if it does not come, not */
	say(rig, 1, half);
	WAIT_UNTIL(file_size(rig->log) == 45 + 16384 + 41);
	began = loop_now(l);
	assert_int_equal(rename(rig->log, old), 0);
	assert_int_equal(run(rig, reopen, NULL), 0);
	assert_true(loop_now(l) - began >= CONTAINER_IO_REOPEN_MS * 1000000ull);
	assert_true(loop_now(l) - began < 3 * CONTAINER_IO_REOPEN_MS * 1000000ull);
	say(rig, 1, "z\n");
	WAIT_UNTIL(file_size(rig->log) == 20000 - 16384 + 1 + 41);
	free(half);
	rig_free(rig);
}

static void reopen_that_fails_changes_nothing(void **state)
{
	struct rig *rig = rig_begin();
	char sub[90], moved[90];
	struct error err;

	container_io_free(rig->io);
	rig->has_position = false;
	snprintf(sub, sizeof(sub), "%s/logs", rig->dir);
	snprintf(moved, sizeof(moved), "%s/moved", rig->dir);
	snprintf(rig->log, sizeof(rig->log), "%s/logs/0.log", rig->dir);
	rig->ends.server[1] = rig->ends.server[2] = -1;
	/* the directory is missing: said by name, and no descriptor is kept */
	assert_int_equal(run(rig, start, &err), -ERR_INTERNAL);
	assert_non_null(strstr(err.text, "/logs,"));
	rig->io = NULL;
	assert_int_equal(mkdir(sub, 0755), 0);
	rig_restart(rig);
	say(rig, 1, "one\n");
	WAIT_UNTIL(file_size(rig->log));
	assert_int_equal(rename(sub, moved), 0);
	assert_true(run(rig, reopen, &err) < 0);
	say(rig, 1, "two\n");
	WAIT_UNTIL(container_io_stats(rig->io).log_bytes == 2 * 44);
	assert_int_equal(rename(moved, sub), 0);
	/* a position that can't be committed is no success, and mends itself */
	rig->mode = COMMIT_FAIL;
	assert_int_equal(unlink(rig->log), 0);
	assert_int_equal(run(rig, reopen, &err), -ERR_UNAVAILABLE);
	say(rig, 1, "three\n");
	run(NULL, nap, NULL);
	assert_int_equal(file_size(rig->log), 0);
	rig->mode = COMMIT_LATER;
	WAIT_UNTIL(file_size(rig->log) == 46);
	assert_int_equal(run(rig, drain, NULL), 0);
	rig_free(rig);
}

/* A server that comes back must not block a container because its log is gone. */
static void log_that_is_gone_at_a_restart_is_tried_again(void **state)
{
	struct rig *rig = rig_begin();
	char sub[90];

	say(rig, 1, "one\n");
	assert_int_equal(rig->position.spool_offset[0], 0);
	container_io_free(rig->io);
	assert_int_equal(unlink(rig->log), 0);
	snprintf(sub, sizeof(sub), "%s/logs", rig->dir);
	snprintf(rig->log, sizeof(rig->log), "%s/logs/0.log", rig->dir);
	rig->io = NULL;
	rig_restart(rig);
	say(rig, 1, "two\n");
	WAIT_UNTIL(container_io_stats(rig->io).bytes[0] == 8);
	assert_true(container_io_stats(rig->io).is_log_failing);
	assert_int_equal(mkdir(sub, 0755), 0);
	WAIT_UNTIL(file_size(rig->log) == 88);
	assert_false(container_io_stats(rig->io).is_log_failing);
	assert_int_equal(run(rig, drain, NULL), 0);
	assert_stream(rig->log, 0, "one\ntwo\n");
	rig_free(rig);
}

static void container_waits_for_commits_not_memory(void **state)
{
	struct rig *rig = rig_new();
	char line[1024];
	size_t sent = 0;

	rig->spool_limit = 128 << 10;
	assert_int_equal(run(rig, make_fifos, NULL), 0);
	assert_int_equal(run(rig, start, NULL), 0);
	rig->mode = COMMIT_HOLD;
	memset(line, 'a', sizeof(line));
	line[1023] = '\n';
	fcntl(rig->ends.container[1], F_SETFL, O_RDWR | O_NONBLOCK);
	for (int i = 0; i < 50; i++) {
		while (write(rig->ends.container[1], line, 1024) == 1024)
			sent += 1024;
		run(NULL, nap, NULL);
	}
	/* a spool, one splice more, and the pipe */
	assert_in_range(sent, 128 << 10, (128 << 10) + 65536 + 65536);
	assert_int_equal(file_size(rig->log), container_io_stats(rig->io).bytes[0] / 1024 * 1064);
	WAIT_UNTIL(rig->done);
	rig->mode = COMMIT_LATER;
	settle_held(rig, 0);
	while (sent < 2 << 20) {
		while (write(rig->ends.container[1], line, 1024) == 1024)
			sent += 1024;
		run(NULL, nap, NULL);
	}
	assert_int_equal(run(rig, drain, NULL), 0);
	assert_int_equal(file_size(rig->log), sent / 1024 * 1064);
	rig_free(rig);
}

/* A file size limit stands for a full disk. */
static void full_disk_drops_counts_and_says_so(void **state)
{
	struct rig *rig = rig_new();
	struct rlimit old, small;
	struct buf got = {0};
	char line[1025];
	unsigned long long count, said = 0;
	uint64_t dropped;
	int fd = open(rig->log, O_WRONLY | O_CREAT, 0640);

	signal(SIGXFSZ, SIG_IGN);
	getrlimit(RLIMIT_FSIZE, &old);
	small = (struct rlimit){.rlim_cur = 1 << 20, .rlim_max = old.rlim_max};
	assert_int_equal(ftruncate(fd, (1 << 20) - 1000), 0);
	close(fd);
	rig->spool_limit = 64 << 10;
	assert_int_equal(run(rig, make_fifos, NULL), 0);
	assert_int_equal(run(rig, start, NULL), 0);
	assert_int_equal(setrlimit(RLIMIT_FSIZE, &small), 0);
	memset(line, 'a', sizeof(line));
	line[1023] = '\n';
	line[1024] = '\0';
	say(rig, 1, "short\n");
	WAIT_UNTIL(container_io_stats(rig->io).log_bytes == 46);
	/* each of these is torn off again */
	for (int i = 0; i < 500; i++) {
		say(rig, 1, line);
		if (i % 20 == 0)
			run(NULL, nap, NULL);
	}
	assert_true(container_io_stats(rig->io).is_log_failing);
	dropped = container_io_stats(rig->io).dropped[0];
	assert_true(dropped > 400000 && dropped < 512000);
	assert_int_equal(setrlimit(RLIMIT_FSIZE, &old), 0);
	WAIT_UNTIL(!container_io_stats(rig->io).is_log_failing);
	WAIT_UNTIL(file_size(rig->log) >
		   (1 << 20) - 1000 + container_io_stats(rig->io).log_bytes - 1);
	say(rig, 1, "last\n");
	assert_int_equal(run(rig, drain, NULL), 0);
	dropped = container_io_stats(rig->io).dropped[0];
	/* the hole in front is a stranger's line; every other record is whole */
	read_file(rig->log, &got);
	buf_consume(&got, (1 << 20) - 1000);
	assert_non_null(strstr(got.data, " F short\n"));
	assert_non_null(strstr(got.data, " F last\n"));
	for (size_t at = 0; at < got.length;) {
		struct crilog_record record;

		assert_int_equal(crilog_parse(got.data + at, got.length - at, &record), 1);
		at += record.size;
		if (sscanf(record.payload, "[%llu bytes dropped", &count) == 1)
			said += count;
	}
	assert_int_equal(said, dropped);
	assert_int_equal(rig->position.spool_offset[0], 6 + 500 * 1024 + 5);
	buf_done(&got);
	rig_free(rig);
}

static void end_does_not_wait_for_a_full_disk(void **state)
{
	struct rig *rig = rig_begin();
	struct rlimit old, small;
	uint64_t began = loop_now(l);

	signal(SIGXFSZ, SIG_IGN);
	getrlimit(RLIMIT_FSIZE, &old);
	small = (struct rlimit){.rlim_cur = 20, .rlim_max = old.rlim_max};
	assert_int_equal(setrlimit(RLIMIT_FSIZE, &small), 0);
	say(rig, 1, "no room\n");
	assert_int_equal(run(rig, drain, NULL), 0);
	assert_int_equal(setrlimit(RLIMIT_FSIZE, &old), 0);
	assert_in_range(loop_now(l) - began, 900000000ull, 2500000000ull);
	assert_int_equal(container_io_stats(rig->io).dropped[0], 8);
	assert_int_equal(rig->position.spool_offset[0], 8);
	rig_free(rig);
}

/* Makes files of at most so many bytes possible; 0: as before. */
static void limit_files(rlim_t size)
{
	static struct rlimit old;
	struct rlimit limit;

	signal(SIGXFSZ, SIG_IGN);
	if (!old.rlim_max)
		getrlimit(RLIMIT_FSIZE, &old);
	limit = size ? (struct rlimit){size, old.rlim_max} : old;
	assert_int_equal(setrlimit(RLIMIT_FSIZE, &limit), 0);
}

/* Files may be as large as spools are; so the log that shall be full begins with a hole. */
static void begin_with_hole(struct rig *rig, off_t size)
{
	int fd = open(rig->log, O_WRONLY | O_CREAT, 0640);

	assert_int_equal(ftruncate(fd, size), 0);
	close(fd);
	assert_int_equal(run(rig, make_fifos, NULL), 0);
	assert_int_equal(run(rig, start, NULL), 0);
}

static void assert_marked_once(const struct rig *rig, size_t hole, uint64_t dropped)
{
	char marker[CRILOG_MARKER_MAX];
	struct buf got = {0};
	int count = 0;

	marker[crilog_marker(marker, dropped)] = '\0';
	read_file(rig->log, &got);
	buf_consume(&got, hole);
	assert_non_null(strstr(got.data, marker));
	for (const char *p = got.data; (p = strstr(p, " bytes dropped: ")); p++)
		count++;
	assert_int_equal(count, 1);
	buf_done(&got);
}

/* Killed before the marker, and again between the marker and its commit. */
static void restart_knows_what_was_dropped(void **state)
{
	const size_t hole = (1 << 20) - 20;
	struct rig *rig = rig_new();
	struct io_position before;
	struct container_io_stats stats;
	char line[1025];

	rig->spool_limit = 64 << 10;
	begin_with_hole(rig, (off_t)hole);
	limit_files(1 << 20);
	memset(line, 'a', sizeof(line));
	line[1023] = '\n';
	line[1024] = '\0';
	for (int i = 0; i < 100; i++) {
		say(rig, 1, line);
		run(NULL, nap, NULL);
	}
	WAIT_UNTIL(rig->position.unreported[0]);
	before = rig->position;
	rig_restart(rig);
	stats = container_io_stats(rig->io);
	assert_int_equal(stats.dropped[0], before.dropped[0]);
	WAIT_UNTIL(container_io_stats(rig->io).is_log_failing);
	rig->mode = COMMIT_HOLD;
	limit_files(0);
	/* the marker and nothing else, as the position behind it can't be committed */
	WAIT_UNTIL(rig->done);
	run(NULL, nap, NULL);
	assert_marked_once(rig, hole, before.dropped[0]);
	container_io_free(rig->io);
	rig->io = NULL;
	settle_held(rig, -ERR_UNAVAILABLE);
	assert_int_equal(rig->position.unreported[0], before.unreported[0]);
	rig->mode = COMMIT_AT_ONCE;
	rig_restart(rig);
	say(rig, 1, "last\n");
	assert_int_equal(run(rig, drain, NULL), 0);
	assert_marked_once(rig, hole, before.dropped[0]);
	stats = container_io_stats(rig->io);
	assert_int_equal(stats.bytes[0], 100 * 1024 + 5);
	assert_int_equal(stats.dropped[0], before.dropped[0]);
	assert_int_equal(stats.logged[0], stats.bytes[0] - stats.dropped[0]);
	rig_free(rig);
}

enum { LINE = 1024 };

static void make_line(char line[LINE + 1], unsigned number)
{
	snprintf(line, LINE + 1, "%0*u\n", LINE - 1, number);
}

/* Numbered lines, but for what markers say is missing; returns the bytes of the stream. */
static uint64_t assert_lines_or_markers(const struct rig *rig, size_t skip, uint64_t *ret_dropped)
{
	struct buf got = {0};
	uint64_t at = 0;

	*ret_dropped = 0;
	read_file(rig->log, &got);
	for (size_t i = skip; i < got.length;) {
		struct crilog_record record;
		unsigned long long dropped;
		char line[LINE + 1];

		assert_int_equal(crilog_parse(got.data + i, got.length - i, &record), 1);
		i += record.size;
		if (sscanf(record.payload, "[%llu bytes dropped", &dropped) == 1) {
			*ret_dropped += dropped;
			at += dropped;
			continue;
		}
		make_line(line, (unsigned)(at / LINE));
		assert_int_equal(record.length + 1, LINE - at % LINE);
		assert_memory_equal(record.payload, line + at % LINE, record.length);
		at += record.length + 1;
	}
	buf_done(&got);
	return at;
}

static void say_lines(struct rig *rig, unsigned from, unsigned to)
{
	char line[LINE + 1];

	fcntl(rig->ends.container[1], F_SETFL, O_RDWR | O_NONBLOCK);
	for (; from < to; from++) {
		bool is_written = false;

		make_line(line, from);
		WAIT_UNTIL(is_written =
				   is_written || write(rig->ends.container[1], line, LINE) == LINE);
	}
}

/* One disk for all has room neither for the log nor for a commit: what is dropped is a hole in the
 * spool, which the next life finds. */
static void full_disk_that_refuses_commits_does_not_block(void **state)
{
	const size_t hole = (1 << 20) - 1000;
	struct rig *rig = rig_new();
	struct container_io_stats before, stats;
	struct stat st;
	char spool[90];
	uint64_t dropped, size;

	rig->spool_limit = 64 << 10;
	begin_with_hole(rig, (off_t)hole);
	WAIT_UNTIL(rig->has_position);
	limit_files(1 << 20);
	rig->mode = COMMIT_FAIL;
	say_lines(rig, 0, 400);
	before = container_io_stats(rig->io);
	assert_true(before.dropped[0] > 250000);
	assert_int_equal(rig->position.spool_offset[0], 0);
	snprintf(spool, sizeof(spool), "%s/1.spool", rig->dir);
	assert_int_equal(stat(spool, &st), 0);
	assert_true(st.st_blocks * 512 <= 160 << 10);
	rig_restart(rig);
	say_lines(rig, 400, 600);
	assert_int_equal(rig->position.spool_offset[0], 0);
	rig_restart(rig);
	limit_files(0);
	rig->mode = COMMIT_AT_ONCE;
	say_lines(rig, 600, 800);
	assert_int_equal(run(rig, drain, NULL), 0);
	size = assert_lines_or_markers(rig, hole, &dropped);
	stats = container_io_stats(rig->io);
	assert_int_equal(size, 800 * LINE);
	assert_int_equal(stats.bytes[0], size);
	assert_int_equal(stats.dropped[0], dropped);
	/* but for less than a page at the beginning of the hole */
	assert_true(dropped + 4096 > before.dropped[0]);
	rig_free(rig);
}

static void full_disk_blocks_where_nothing_may_be_dropped(void **state)
{
	const size_t hole = (1 << 20) - 20;
	struct rig *rig = rig_new();
	struct buf got = {0};
	struct error err;
	char line[1024];
	size_t sent = 0, logged;

	rig->spool_limit = 64 << 10;
	rig->blocks = true;
	begin_with_hole(rig, (off_t)hole);
	limit_files(1 << 20);
	memset(line, 'a', sizeof(line));
	line[1023] = '\n';
	fcntl(rig->ends.container[1], F_SETFL, O_RDWR | O_NONBLOCK);
	for (int i = 0; i < 50; i++) {
		while (write(rig->ends.container[1], line, 1024) == 1024)
			sent += 1024;
		run(NULL, nap, NULL);
	}
	/* a spool, one splice more, and the pipe */
	assert_in_range(sent, 64 << 10, (64 << 10) + 65536 + 65536);
	assert_true(container_io_stats(rig->io).is_log_failing);
	rig_restart(rig);
	/* its end waits too, but lets others have their turn */
	assert_int_equal(run(rig, drain, &err), -ERR_EXHAUSTED);
	assert_non_null(strstr(err.text, rig->log));
	limit_files(0);
	assert_int_equal(run(rig, drain, NULL), 0);
	assert_int_equal(container_io_stats(rig->io).dropped[0], 0);
	read_file(rig->log, &got);
	buf_consume(&got, hole);
	logged = got.length / 1064;
	assert_int_equal(got.length % 1064, 0);
	assert_int_equal(logged * 1024, sent);
	buf_done(&got);
	rig_free(rig);
}

static void given_up_output_is_dropped_where_it_would_block(void **state)
{
	struct rig *rig = rig_new();

	rig->blocks = true;
	assert_int_equal(run(rig, make_fifos, NULL), 0);
	assert_int_equal(run(rig, start, NULL), 0);
	limit_files(20);
	say(rig, 1, "no room\n");
	assert_int_equal(run(rig, drain, &(struct error){0}), -ERR_EXHAUSTED);
	container_io_give_up(rig->io);
	assert_int_equal(run(rig, drain, NULL), 0);
	limit_files(0);
	assert_int_equal(container_io_stats(rig->io).dropped[0], 8);
	rig_free(rig);
}

/* What is rotated away, or left by a container that ended, has whole records only. */
static void torn_record_is_cut_before_a_rotation(void **state)
{
	struct rig *rig = rig_begin();
	char old[80];

	say(rig, 1, "one\n");
	WAIT_UNTIL(file_size(rig->log) == 44);
	limit_files(60);
	say(rig, 1, "two\n");
	WAIT_UNTIL(container_io_stats(rig->io).is_log_failing);
	assert_int_equal(file_size(rig->log), 44);
	snprintf(old, sizeof(old), "%s.1", rig->log);
	assert_int_equal(rename(rig->log, old), 0);
	assert_int_equal(run(rig, reopen, NULL), 0);
	WAIT_UNTIL(file_size(rig->log) == 44);
	limit_files(0);
	assert_stream(old, 0, "one\n");
	assert_stream(rig->log, 0, "two\n");
	rig_free(rig);
}

static void without_a_log_output_is_consumed(void **state)
{
	struct rig *rig = rig_new();
	char *block = xmalloc(60000), spool[90];
	struct stat st;

	rig->has_no_log = true;
	assert_int_equal(run(rig, make_fifos, NULL), 0);
	assert_int_equal(run(rig, start, NULL), 0);
	memset(block, 'x', 59999);
	block[59999] = '\0';
	for (int i = 1; i <= 100; i++) {
		say(rig, 1, block);
		WAIT_UNTIL(container_io_stats(rig->io).bytes[0] == 59999ull * i);
	}
	snprintf(spool, sizeof(spool), "%s/1.spool", rig->dir);
	assert_int_equal(stat(spool, &st), 0);
	assert_int_equal(st.st_size, 5999900);
	assert_true(st.st_blocks * 512 < 131072);
	assert_int_equal(rig->commits, 0);
	assert_true(run(rig, reopen, &(struct error){0}) == -ERR_PRECONDITION);
	assert_int_equal(run(rig, drain, NULL), 0);
	assert_int_equal(access(rig->log, F_OK), -1);
	free(block);
	rig_free(rig);
}

/* Spools and logs are closed least recently used first; what is closed is found again. */
static void many_containers_need_few_descriptors(void **state)
{
	enum { COUNT = 120 };
	static struct rig *rigs[COUNT];
	char old[128], text[32], expected[64];

	for (int i = 0; i < COUNT; i++) {
		rigs[i] = rig_begin();
		for (int k = 0; k < 3; k++)
			if (k != 1)
				close(take_fd(&rigs[i]->ends.container[k]));
		close(take_fd(&rigs[i]->ends.server[0]));
	}
	for (int round = 0; round < 3; round++)
		for (int i = 0; i < COUNT; i++) {
			snprintf(text, sizeof(text), "%d of %d\n", round, i);
			say(rigs[i], 1, text);
			WAIT_UNTIL(container_io_stats(rigs[i]->io).bytes[0] ==
				   strlen(text) * (unsigned)(round + 1));
		}
	/* per rig: its directory, the container's end, ours of both */
	assert_true(count_fds() - fds_before < COUNT * 4 + 85 * 2 + 10);
	/* a log that was closed meanwhile is not mistaken for one that took its place */
	snprintf(old, sizeof(old), "%s.1", rigs[0]->log);
	assert_int_equal(rename(rigs[0]->log, old), 0);
	say(rigs[0], 1, "new\n");
	WAIT_UNTIL(file_size(rigs[0]->log) == 44);
	assert_stream(old, 0, "0 of 0\n1 of 0\n2 of 0\n");
	for (int i = 0; i < COUNT; i++) {
		assert_int_equal(run(rigs[i], drain, NULL), 0);
		snprintf(expected, sizeof(expected), "0 of %d\n1 of %d\n2 of %d\n", i, i, i);
		if (i)
			assert_stream(rigs[i]->log, 0, expected);
		rig_free(rigs[i]);
	}
}

static void free_in_the_middle_of_a_commit(void **state)
{
	struct rig *rig = rig_begin();

	rig->mode = COMMIT_HOLD;
	say(rig, 1, "one\n");
	WAIT_UNTIL(rig->done);
	container_io_free(rig->io);
	rig->io = NULL;
	settle_held(rig, 0);
	rig_free(rig);
}

static void drain_takes_only_what_is_there(void **state)
{
	struct rig *rig = rig_begin();

	/* a stranger holds the pipe: the end comes all the same */
	say(rig, 1, "one\n");
	assert_int_equal(run(rig, drain, NULL), 0);
	assert_stream(rig->log, 0, "one\n");
	rig_free(rig);
}

static void hung_up_pipe_does_not_spin(void **state)
{
	struct rig *rig = rig_begin();
	struct rusage before, after;
	long used;

	say(rig, 1, "last words");
	close(take_fd(&rig->ends.container[1]));
	close(take_fd(&rig->ends.container[2]));
	WAIT_UNTIL(container_io_stats(rig->io).bytes[0] == 10);
	getrusage(RUSAGE_SELF, &before);
	for (int i = 0; i < 20; i++)
		run(NULL, nap, NULL);
	getrusage(RUSAGE_SELF, &after);
	used = (after.ru_utime.tv_usec - before.ru_utime.tv_usec) +
	       (after.ru_stime.tv_usec - before.ru_stime.tv_usec) +
	       (after.ru_utime.tv_sec - before.ru_utime.tv_sec) * 1000000 +
	       (after.ru_stime.tv_sec - before.ru_stime.tv_sec) * 1000000;
	assert_true(used < 100000);
	assert_int_equal(run(rig, drain, NULL), 0);
	assert_stream(rig->log, 0, "last words\n");
	rig_free(rig);
}

static int start_tty(struct task *t, struct rig *rig)
{
	struct container_io_spec spec = {.id = "abc",
					 .dir = rig->dir,
					 .log_path = rig->log,
					 .out_fd = rig->ends.container[0],
					 .err_fd = -1,
					 .is_tty = true,
					 .tty_pipe_fd = take_fd(&rig->ends.server[1]),
					 .position = rig->has_position ? &rig->position : NULL,
					 .commit = on_commit,
					 .data = rig};

	rig->ends.container[0] = -1;
	return container_io_start(t, &spec, &rig->io);
}

static int open_slave(int master)
{
	int slave = open(ptsname(master), O_RDWR | O_NOCTTY | O_CLOEXEC);
	struct termios raw;

	assert_true(slave >= 0);
	tcgetattr(slave, &raw);
	cfmakeraw(&raw);
	tcsetattr(slave, TCSANOW, &raw);
	return slave;
}

static int open_master(void)
{
	int master = posix_openpt(O_RDWR | O_NOCTTY | O_CLOEXEC);

	assert_true(master >= 0);
	assert_int_equal(unlockpt(master), 0);
	return master;
}

static void terminal_goes_through_its_pipe(void **state)
{
	struct rig *rig = rig_new();
	int master = open_master(), slave = open_slave(master), kept;

	rig->is_tty = true;
	assert_int_equal(run(rig, make_fifos, NULL), 0);
	assert_int_equal(rig->ends.container[1], -1);
	assert_int_equal(rig->ends.server[2], -1);
	kept = fcntl(rig->ends.server[1], F_DUPFD_CLOEXEC, 0);
	/* left in the pipe by a server that was killed */
	assert_int_equal(write(kept, "zero\n", 5), 5);
	rig->ends.container[0] = fcntl(master, F_DUPFD_CLOEXEC, 0);
	assert_int_equal(run(rig, start_tty, NULL), 0);
	assert_int_equal(write(slave, "one\ntwo\n", 8), 8);
	WAIT_UNTIL(container_io_stats(rig->io).bytes[0] == 13);
	container_io_free(rig->io);
	assert_int_equal(write(slave, "three\nfour", 10), 10);
	close(slave);
	rig->ends.container[0] = master;
	rig->ends.server[1] = fcntl(kept, F_DUPFD_CLOEXEC, 0);
	assert_int_equal(run(rig, start_tty, NULL), 0);
	assert_int_equal(run(rig, drain, NULL), 0);
	assert_stream(rig->log, 0, "zero\none\ntwo\nthree\nfour\n");
	/* the pipe outlived the terminal */
	container_io_free(rig->io);
	assert_int_equal(write(kept, "five\n", 5), 5);
	rig->ends.server[1] = kept;
	assert_int_equal(run(rig, start_tty, NULL), 0);
	assert_int_equal(run(rig, drain, NULL), 0);
	assert_stream(rig->log, 0, "zero\none\ntwo\nthree\nfour\nfive\n");
	rig_free(rig);
}

static void terminal_that_hung_up_comes_back(void **state)
{
	struct rig *rig = rig_new();
	int master = open_master(), slave = open_slave(master);
	uint64_t bytes = 0;

	rig->is_tty = true;
	assert_int_equal(run(rig, make_fifos, NULL), 0);
	rig->ends.container[0] = fcntl(master, F_DUPFD_CLOEXEC, 0);
	assert_int_equal(run(rig, start_tty, NULL), 0);
	for (int i = 0; i < 3; i++) {
		close(slave);
		for (int k = 0; k < 5; k++)
			run(NULL, nap, NULL);
		slave = open_slave(master);
		assert_int_equal(write(slave, "back\n", 5), 5);
		bytes += 5;
		WAIT_UNTIL(container_io_stats(rig->io).bytes[0] == bytes);
	}
	/* a hang-up that nobody had time to see the end of */
	close(slave);
	for (int k = 0; k < 5; k++)
		run(NULL, nap, NULL);
	slave = open_slave(master);
	assert_int_equal(write(slave, "last", 4), 4);
	close(slave);
	assert_int_equal(run(rig, drain, NULL), 0);
	assert_stream(rig->log, 0, "back\nback\nback\nlast\n");
	close(master);
	rig_free(rig);
}

static void fifos_are_what_the_container_needs(void **state)
{
	struct rig *rig = rig_begin();
	struct error err;
	char path[90], byte;
	struct stat st;
	int fd = -1;

	for (int i = 0; i < 3; i++) {
		snprintf(path, sizeof(path), "%s/%d", rig->dir, i);
		assert_int_equal(lstat(path, &st), 0);
		assert_int_equal(st.st_mode, S_IFIFO | 0600);
		assert_int_equal(st.st_uid, getuid());
		assert_int_equal(fcntl(rig->ends.container[i], F_GETPIPE_SZ), 65536);
		assert_false(fcntl(rig->ends.container[i], F_GETFL) & O_NONBLOCK);
		assert_true(fcntl(rig->ends.container[i], F_GETFD) & FD_CLOEXEC);
	}
	/* closing our end of stdin is its end */
	assert_int_equal(write(rig->ends.server[0], "x", 1), 1);
	assert_int_equal(read(rig->ends.container[0], &byte, 1), 1);
	close(take_fd(&rig->ends.server[0]));
	assert_int_equal(read(rig->ends.container[0], &byte, 1), 0);
	assert_int_equal(fifo_open_server_end(rig->dir_fd, 0, false, &fd, &err), 0);
	close(fd);
	close(take_fd(&rig->ends.container[0]));
	assert_int_equal(fifo_open_server_end(rig->dir_fd, 0, false, &fd, &err), -ERR_PRECONDITION);
	/* what took a FIFO's place is refused */
	assert_int_equal(unlinkat(rig->dir_fd, "1", 0), 0);
	close(openat(rig->dir_fd, "1", O_CREAT | O_WRONLY | O_CLOEXEC, 0600));
	assert_int_equal(fifo_open_server_end(rig->dir_fd, 1, false, &fd, &err), -ERR_PRECONDITION);
	rig->ends.server[0] = -1;
	assert_true(run(rig, make_fifos, &err) < 0);
	rig_free(rig);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
	const struct CMUnitTest tests[] = {
		TEST(both_streams_reach_the_log),
		TEST(idle_costs_no_commit_and_no_timer),
		TEST(long_lines_and_odd_bytes_stay),
		TEST(log_tail_tells_what_was_not_committed),
		TEST(rotation_while_away_loses_nothing),
		TEST(foreign_log_is_appended_to),
		TEST(reopen_commits_the_new_file_first),
		TEST(reopen_waits_for_the_end_of_a_line),
		TEST(reopen_that_fails_changes_nothing),
		TEST(log_that_is_gone_at_a_restart_is_tried_again),
		TEST(container_waits_for_commits_not_memory),
		TEST(full_disk_drops_counts_and_says_so),
		TEST(end_does_not_wait_for_a_full_disk),
		TEST(restart_knows_what_was_dropped),
		TEST(full_disk_that_refuses_commits_does_not_block),
		TEST(full_disk_blocks_where_nothing_may_be_dropped),
		TEST(given_up_output_is_dropped_where_it_would_block),
		TEST(torn_record_is_cut_before_a_rotation),
		TEST(without_a_log_output_is_consumed),
		TEST(many_containers_need_few_descriptors),
		TEST(free_in_the_middle_of_a_commit),
		TEST(drain_takes_only_what_is_there),
		TEST(hung_up_pipe_does_not_spin),
		TEST(terminal_goes_through_its_pipe),
		TEST(terminal_that_hung_up_comes_back),
		TEST(fifos_are_what_the_container_needs),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
