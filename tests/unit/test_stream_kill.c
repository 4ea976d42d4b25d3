/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Exactly once under kill -9: a server that pumps two streams is killed at random moments, again
 * and again, while numbered lines are written and the log is rotated. At the end each byte must be
 * in the logs once and in order.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "io/base/alloc.h"
#include "io/base/buf.h"
#include "io/base/log.h"
#include "io/container_io.h"
#include "io/crilog.h"
#include "io/fifo.h"
#include "io/task.h"

#define KILLS 150
#define LINE_MAX 60000

static char dir[] = "/dev/shm/crisp-kill-XXXXXX";
static char log_path[64];
static int dir_fd;
static unsigned seed;

static unsigned random_below(unsigned n)
{
	return (unsigned)rand_r(&seed) % n;
}

static void nap_us(unsigned us)
{
	nanosleep(&(struct timespec){.tv_nsec = us * 1000L}, NULL);
}

/* The i-th line of a stream: its number, and as much filler as a hash says; now and then more than
 * one record, one of three without any. */
static size_t make_line(int stream, unsigned i, char *to)
{
	unsigned hash = (i * 2654435761u) ^ (unsigned)stream * 40503u, filler = hash >> 8;
	size_t length = (size_t)sprintf(to, "%d:%u:", stream, i);

	filler = hash % 128 == 1 ? filler % (LINE_MAX - 100) : filler % 80;
	if (hash % 3 == 0)
		filler = 0;
	memset(to + length, 'a' + (int)(i % 26), filler);
	length += filler;
	to[length++] = '\n';
	return length;
}

/* ---- the container: writes until *stop, in pieces of any size, the last line without its end ----
 */

struct shared {
	atomic_bool stop;
	atomic_uint lines[2];
};

static void write_all(int fd, const char *data, size_t size)
{
	while (size) {
		size_t want = size < 3 || random_below(4) ? size : 1 + random_below((unsigned)size);
		ssize_t n = write(fd, data, want);

		if (n < 0)
			_exit(1);
		data += n;
		size -= (size_t)n;
	}
}

static pid_t start_writer(int stream, struct shared *shared)
{
	static char line[LINE_MAX];
	pid_t pid = fork();
	unsigned i = 0;
	int fd;

	if (pid)
		return pid;
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	seed += 77 + (unsigned)stream;
	fd = openat(dir_fd, stream ? "2" : "1", O_RDWR | O_CLOEXEC);
	while (!atomic_load(&shared->stop)) {
		size_t size = make_line(stream, i++, line);

		write_all(fd, line, size);
		if (random_below(8) == 0)
			nap_us(random_below(1500));
	}
	write_all(fd, line, make_line(stream, i++, line) - 1);
	atomic_store(&shared->lines[stream], i);
	_exit(0);
}

/* ---- the server ---- */

struct server {
	struct loop *loop;
	struct container_io *io;
	struct loop_timer commit_timer;
	struct io_position pending;
	void (*done)(void *data, int result);
	void *done_data;
	int position_fd, control;
	bool is_last;
};

/* One pwrite within a page is what a transaction is: a kill comes before or after it. */
static void on_commit_time(void *data)
{
	struct server *s = data;

	if (pwrite(s->position_fd, &s->pending, sizeof(s->pending), 0) != sizeof(s->pending))
		_exit(3);
	s->done(s->done_data, 0);
}

static void on_commit(void *data, const struct io_position *pos,
		      void (*done)(void *done_data, int result), void *done_data)
{
	struct server *s = data;

	s->pending = *pos;
	s->done = done;
	s->done_data = done_data;
	loop_timer_start(s->loop, &s->commit_timer,
			 loop_now(s->loop) + random_below(2000) * 1000ull);
}

static void server_main(struct task *t, void *arg)
{
	struct server *s = arg;
	struct io_position position;
	bool has_position =
		pread(s->position_fd, &position, sizeof(position), 0) == sizeof(position);
	struct container_io_spec spec = {.id = "killed",
					 .dir = dir,
					 .log_path = log_path,
					 .position = has_position ? &position : NULL,
					 .spool_limit = 96 << 10,
					 .commit = on_commit,
					 .data = s};
	char byte;

	if (fifo_open_server_end(dir_fd, FIFO_STDOUT, false, &spec.out_fd, &t->err) < 0 ||
	    fifo_open_server_end(dir_fd, FIFO_STDERR, false, &spec.err_fd, &t->err) < 0 ||
	    container_io_start(t, &spec, &s->io) < 0)
		goto fail;
	if (s->is_last) {
		if (container_io_drain(t, s->io) < 0)
			goto fail;
		_exit(0);
	}
	if (s->control < 0)
		return;
	for (;;) {
		task_wait_fd(t, s->control, LOOP_READ);
		if (read(s->control, &byte, 1) != 1)
			_exit(4);
		if (container_io_reopen(t, s->io) < 0)
			goto fail;
		if (write(s->control, "K", 1) != 1)
			_exit(4);
	}
fail:
	fprintf(stderr, "%s\n", t->err.text);
	_exit(5);
}

static pid_t start_server(int control, int position_fd, bool is_last)
{
	struct server s = {.position_fd = position_fd, .control = control, .is_last = is_last};
	pid_t pid = fork();

	if (pid)
		return pid;
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	seed = (unsigned)getpid();
	s.loop = loop_new(NULL);
	loop_timer_init(&s.commit_timer, "commit", on_commit_time, &s);
	task_start(s.loop, "server", server_main, &s);
	loop_run(s.loop);
	_exit(6);
}

/* ---- the kubelet, and fate ---- */

/* Renames the log and asks for a new one; may or may not wait for the answer. */
static void rotate(int control, int *rotations)
{
	struct pollfd answer = {.fd = control, .events = POLLIN};
	char to[80], byte;

	snprintf(to, sizeof(to), "%s.%03d", log_path, *rotations);
	if (rename(log_path, to) < 0)
		return; /* the last one was never answered, and nothing was written since */
	++*rotations;
	if (random_below(4) == 0)
		return;
	assert_int_equal(write(control, "R", 1), 1);
	if (random_below(2) && poll(&answer, 1, 200) == 1)
		assert_int_equal(read(control, &byte, 1), 1);
}

static void kill_again_and_again(int position_fd, int *rotations)
{
	for (int i = 0; i < KILLS; i++) {
		int control[2], status;
		pid_t pid;

		assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, control), 0);
		pid = start_server(control[1], position_fd, false);
		nap_us(random_below(i % 2 ? 30000 : 4000));
		if (i % 3 == 0)
			rotate(control[0], rotations);
		nap_us(random_below(6000));
		kill(pid, SIGKILL);
		assert_int_equal(waitpid(pid, &status, 0), pid);
		assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
		close(control[0]);
		close(control[1]);
	}
}

/* ---- the judgement ---- */

/* Compares what the records say, joined, with what was written; the position in the expected line
 * is kept from file to file. */
struct judge {
	char line[2][LINE_MAX];
	size_t length[2], at[2];
	unsigned next[2];
	unsigned count[2];
};

static void judge_bytes(struct judge *j, int s, const char *data, size_t size)
{
	if (j->at[s] + size > j->length[s] || memcmp(j->line[s] + j->at[s], data, size) != 0)
		fail_msg("stream %d, line %u, byte %zu: expected %.40s, got %.*s", s,
			 j->next[s] - 1, j->at[s], j->line[s] + j->at[s],
			 (int)(size < 40 ? size : 40), data);
	j->at[s] += size;
}

static void judge_record(struct judge *j, const struct crilog_record *record)
{
	int s = record->stream;

	judge_bytes(j, s, record->payload, record->length);
	if (record->is_partial) {
		assert_int_equal(record->length, CRILOG_PAYLOAD_MAX);
		return;
	}
	/* what closes the stream has no newline of its own */
	if (j->next[s] < j->count[s])
		judge_bytes(j, s, "\n", 1);
	else
		assert_int_equal(j->at[s], j->length[s] - 1);
	if (j->next[s] < j->count[s]) {
		j->at[s] = 0;
		j->length[s] = make_line(s, j->next[s]++, j->line[s]);
	}
}

static void judge_file(struct judge *j, const char *path)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	struct crilog_record record;
	struct stat st;
	char *log;

	assert_true(fd >= 0);
	assert_int_equal(fstat(fd, &st), 0);
	log = xmalloc((size_t)st.st_size + 1);
	assert_int_equal(read(fd, log, (size_t)st.st_size), st.st_size);
	close(fd);
	for (size_t at = 0; at < (size_t)st.st_size; at += record.size) {
		assert_int_equal(crilog_parse(log + at, (size_t)st.st_size - at, &record), 1);
		judge_record(j, &record);
	}
	free(log);
	unlink(path);
}

static void judge_logs(struct shared *shared, int rotations)
{
	struct judge *j = xnew(struct judge);
	char path[80];

	for (int s = 0; s < 2; s++) {
		j->count[s] = atomic_load(&shared->lines[s]);
		j->length[s] = make_line(s, j->next[s]++, j->line[s]);
	}
	for (int i = 0; i < rotations; i++) {
		snprintf(path, sizeof(path), "%s.%03d", log_path, i);
		judge_file(j, path);
	}
	judge_file(j, log_path);
	for (int s = 0; s < 2; s++) {
		assert_int_equal(j->next[s], j->count[s]);
		assert_int_equal(j->at[s], j->length[s] - 1);
	}
	print_message("%d kills, %d rotations, %u + %u lines\n", KILLS, rotations, j->count[0],
		      j->count[1]);
	assert_true(j->count[0] > 2000 && j->count[1] > 2000);
	free(j);
}

static void every_line_once_and_in_order(void **state)
{
	struct shared *shared = mmap(NULL, sizeof(*shared), PROT_READ | PROT_WRITE,
				     MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	int keep[2], position_fd, rotations = 0, status;
	pid_t writer[2], last;

	assert_non_null(mkdtemp(dir));
	snprintf(log_path, sizeof(log_path), "%s/0.log", dir);
	dir_fd = open(dir, O_DIRECTORY | O_CLOEXEC);
	position_fd = openat(dir_fd, "position", O_RDWR | O_CREAT | O_CLOEXEC, 0600);
	for (int s = 0; s < 2; s++) {
		assert_int_equal(mkfifoat(dir_fd, s ? "2" : "1", 0600), 0);
		keep[s] = openat(dir_fd, s ? "2" : "1", O_RDWR | O_CLOEXEC);
	}
	for (int s = 0; s < 2; s++)
		writer[s] = start_writer(s, shared);
	kill_again_and_again(position_fd, &rotations);
	atomic_store(&shared->stop, true);
	last = start_server(-1, position_fd, false);
	for (int s = 0; s < 2; s++) {
		assert_int_equal(waitpid(writer[s], &status, 0), writer[s]);
		assert_int_equal(status, 0);
	}
	kill(last, SIGKILL);
	assert_int_equal(waitpid(last, &status, 0), last);
	last = start_server(-1, position_fd, true);
	assert_int_equal(waitpid(last, &status, 0), last);
	assert_int_equal(status, 0);
	judge_logs(shared, rotations);
	for (int s = 0; s < 2; s++) {
		close(keep[s]);
		unlinkat(dir_fd, s ? "2" : "1", 0);
		unlinkat(dir_fd, s ? "2.spool" : "1.spool", 0);
	}
	unlinkat(dir_fd, "position", 0);
	close(position_fd);
	close(dir_fd);
	assert_int_equal(rmdir(dir), 0);
	munmap(shared, sizeof(*shared));
}

int main(void)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(every_line_once_and_in_order)};

	/* a run can be repeated, as far as the kernel's scheduler lets it */
	seed = getenv("SEED") ? (unsigned)atoi(getenv("SEED")) : (unsigned)time(NULL);
	print_message("SEED=%u\n", seed);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
