/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How fast a container's output reaches its log: another process writes lines into a FIFO, the pump
 * of io/container_io.c takes them. Prints MB/s of payload, lines/s and the CPU that the pump used;
 * the spool is on /dev/shm, as in the state directory.
 *
 *     log_throughput [LOG_DIRECTORY [LINE_LENGTH [MEGABYTES]]]
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "io/base/alloc.h"
#include "io/container_io.h"
#include "io/fifo.h"
#include "io/offload.h"

struct bench {
	struct loop *loop;
	char dir[32], log[256];
	int dir_fd;
	size_t line_length;
	uint64_t total;
	struct loop_work commit_work;
	void (*done)(void *data, int result);
	void *done_data;
	unsigned commits;
};

static double seconds(clockid_t clock)
{
	struct timespec now;

	clock_gettime(clock, &now);
	return (double)now.tv_sec + (double)now.tv_nsec / 1e9;
}

static double cpu_seconds(void)
{
	struct rusage u;

	getrusage(RUSAGE_SELF, &u);
	return (double)(u.ru_utime.tv_sec + u.ru_stime.tv_sec) +
	       (double)(u.ru_utime.tv_usec + u.ru_stime.tv_usec) / 1e6;
}

static void on_commit_done(void *data)
{
	struct bench *b = data;

	b->done(b->done_data, 0);
}

static void on_commit(void *data, const struct io_position *pos,
		      void (*done)(void *done_data, int result), void *done_data)
{
	struct bench *b = data;

	b->done = done;
	b->done_data = done_data;
	b->commits++;
	loop_post(b->loop, &b->commit_work);
}

static pid_t start_writer(const struct bench *b, int fd)
{
	size_t size = 65536 / b->line_length * b->line_length;
	uint64_t left = b->total;
	pid_t pid = fork();
	char *block;

	if (pid)
		return pid;
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	if (size < b->line_length)
		size = b->line_length;
	block = xmalloc(size);
	memset(block, 'x', size);
	for (size_t i = b->line_length - 1; i < size; i += b->line_length)
		block[i] = '\n';
	while (left) {
		ssize_t n = write(fd, block, left < size ? left : size);

		if (n < 0)
			_exit(1);
		left -= (uint64_t)n;
	}
	_exit(0);
}

static int measure(struct task *t, struct bench *b)
{
	struct fifo_spec fifo = {
		.dir = b->dir_fd, .uid = getuid(), .gid = getgid(), .has = {false, true, false}};
	struct container_io_spec spec = {.id = "bench",
					 .dir = b->dir,
					 .log_path = b->log,
					 .err_fd = -1,
					 .commit = on_commit,
					 .data = b};
	struct fifo_ends ends;
	struct container_io *io;
	double began, cpu;
	int status;
	pid_t pid;

	TRY(fifo_open(t, &fifo, &ends));
	spec.out_fd = ends.server[1];
	TRY(container_io_start(t, &spec, &io));
	began = seconds(CLOCK_MONOTONIC);
	cpu = cpu_seconds();
	pid = start_writer(b, ends.container[1]);
	close(ends.container[1]);
	while (container_io_stats(io).bytes[0] < b->total)
		TRY(task_sleep_ms(t, 1));
	TRY(container_io_drain(t, io));
	began = seconds(CLOCK_MONOTONIC) - began;
	cpu = cpu_seconds() - cpu;
	printf("%6zu-byte lines: %5.0f MB/s, %5.2f M lines/s, %4.2f ms of CPU a MB, log %5.0f "
	       "MB/s, %u commits\n",
	       b->line_length, (double)b->total / 1e6 / began,
	       (double)(b->total / b->line_length) / 1e6 / began,
	       cpu * 1000 / ((double)b->total / 1e6),
	       (double)container_io_stats(io).log_bytes / 1e6 / began, b->commits);
	container_io_free(io);
	return waitpid(pid, &status, 0) == pid && status == 0 ? 0 : -1;
}

static void bench_main(struct task *t, void *arg)
{
	struct bench *b = arg;

	if (measure(t, b) < 0) {
		fprintf(stderr, "%s\n", t->err.text);
		exit(1);
	}
	loop_stop(b->loop);
}

static void run(const char *log_dir, size_t line_length, uint64_t megabytes)
{
	struct bench b = {.line_length = line_length,
			  .total = megabytes * 1000000 / line_length * line_length,
			  .dir = "/dev/shm/crisp-bench-XXXXXX"};

	b.loop = loop_new(NULL);
	if (!b.loop || !mkdtemp(b.dir))
		exit(1);
	snprintf(b.log, sizeof(b.log), "%s/crisp-bench-%d.log", log_dir, (int)getpid());
	b.dir_fd = open(b.dir, O_DIRECTORY | O_CLOEXEC);
	loop_work_init(&b.commit_work, "commit", on_commit_done, &b);
	task_start(b.loop, "bench", bench_main, &b);
	loop_run(b.loop);
	unlink(b.log);
	unlinkat(b.dir_fd, "1", 0);
	unlinkat(b.dir_fd, "1.spool", 0);
	close(b.dir_fd);
	rmdir(b.dir);
	offload_shutdown();
	loop_free(b.loop);
}

int main(int argc, char **argv)
{
	static const size_t lengths[] = {20, 100, 10000};
	const char *log_dir = argc > 1 ? argv[1] : "/tmp";
	uint64_t megabytes = argc > 3 ? strtoull(argv[3], NULL, 0) : 500;

	if (argc > 2) {
		size_t length = strtoul(argv[2], NULL, 0);

		if (length == 0 || megabytes * 1000000 < length) {
			fprintf(stderr,
				"log_throughput [LOG_DIRECTORY [LINE_LENGTH [MEGABYTES]]]\n");
			return 2;
		}
		run(log_dir, length, megabytes);
		return 0;
	}
	for (size_t i = 0; i < sizeof(lengths) / sizeof(lengths[0]); i++)
		run(log_dir, lengths[i], megabytes);
	return 0;
}
