/* SPDX-License-Identifier: Apache-2.0 */
/* Output in memory: limits, ends, and background children that hold the pipe. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <dirent.h>
#include <fcntl.h>
#include <signal.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "io/capture.h"
#include "io/task.h"

static struct loop *l;
static int fds_before;

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
	fds_before = count_fds();
	l = loop_new(NULL);
	return l ? 0 : -1;
}

static int teardown(void **state)
{
	assert_int_equal(task_count(), 0);
	loop_free(l);
	task_pool_trim();
	assert_int_equal(count_fds(), fds_before);
	return 0;
}

struct session {
	struct capture *c;
	int out[2], err[2];
	uint64_t run_ms, grace_ms, limit_ms;
	int result;
	uint64_t took_ms;
};

static void session_main(struct task *t, void *arg)
{
	struct session *s = arg;
	uint64_t began;

	task_sleep_ms(t, s->run_ms);
	began = loop_now(l);
	if (s->limit_ms)
		task_limit_ms(t, s->limit_ms);
	s->result = capture_finish(t, s->c, s->grace_ms);
	s->took_ms = (loop_now(l) - began) / 1000000;
	loop_stop(l);
}

static void session_begin(struct session *s, size_t limit)
{
	assert_int_equal(pipe2(s->out, O_CLOEXEC), 0);
	assert_int_equal(pipe2(s->err, O_CLOEXEC), 0);
	s->c = capture_new(l, s->out[0], s->err[0], limit);
}

static void session_finish(struct session *s)
{
	task_start(l, "session", session_main, s);
	loop_run(l);
}

static void both_outputs_are_taken(void **state)
{
	struct session s = {.grace_ms = 1000};

	session_begin(&s, 100);
	assert_int_equal(write(s.out[1], "out\0put", 7), 7);
	assert_int_equal(write(s.err[1], "oops", 4), 4);
	close(s.out[1]);
	close(s.err[1]);
	session_finish(&s);
	assert_int_equal(s.result, 0);
	assert_true(s.took_ms < 100);
	assert_int_equal(s.c->output[0].length, 7);
	assert_memory_equal(s.c->output[0].data, "out\0put", 8);
	assert_string_equal(s.c->output[1].data, "oops");
	assert_true(s.c->has_ended[0] && s.c->has_ended[1]);
	capture_free(s.c);
}

static void only_one_pipe_or_none(void **state)
{
	struct session s = {.grace_ms = 1000};
	int p[2];

	assert_int_equal(pipe2(p, O_CLOEXEC), 0);
	close(p[1]);
	s.c = capture_new(l, -1, p[0], 10);
	session_finish(&s);
	assert_int_equal(s.c->output[0].length, 0);
	assert_true(s.took_ms < 100);
	capture_free(s.c);
	capture_free(NULL);
}

static pid_t start_writer(struct session *s, size_t total)
{
	pid_t pid = fork();
	static char block[8192];

	if (pid == 0) {
		signal(SIGPIPE, SIG_DFL);
		close(s->out[0]);
		close(s->err[0]);
		memset(block, 'x', sizeof(block));
		while (total) {
			ssize_t n = write(s->out[1], block,
					  total < sizeof(block) ? total : sizeof(block));

			if (n < 0)
				_exit(1);
			total -= (size_t)n;
		}
		_exit(0);
	}
	close(s->out[1]);
	close(s->err[1]);
	return pid;
}

static void more_than_the_limit_is_counted(void **state)
{
	struct session s = {.run_ms = 50, .grace_ms = 5000};
	int status;
	pid_t pid;

	session_begin(&s, 100000);
	pid = start_writer(&s, 3000000);
	session_finish(&s);
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_int_equal(status, 0);
	assert_int_equal(s.c->output[0].length, 100000);
	assert_int_equal(s.c->dropped[0], 2900000);
	assert_true(s.c->output[0].capacity < 300000);
	capture_free(s.c);
}

static void background_child_does_not_delay(void **state)
{
	struct session s = {.grace_ms = 50};

	session_begin(&s, 100);
	assert_int_equal(write(s.out[1], "hi", 2), 2);
	session_finish(&s);
	assert_int_equal(s.result, 0);
	assert_in_range(s.took_ms, 49, 200);
	assert_string_equal(s.c->output[0].data, "hi");
	assert_false(s.c->has_ended[0]);
	capture_free(s.c);
	close(s.out[1]);
	close(s.err[1]);
}

static void no_grace_still_takes_what_is_there(void **state)
{
	struct session s = {0};

	session_begin(&s, 100);
	assert_int_equal(write(s.out[1], "hi", 2), 2);
	session_finish(&s);
	assert_true(s.took_ms < 30);
	assert_string_equal(s.c->output[0].data, "hi");
	capture_free(s.c);
	close(s.out[1]);
	close(s.err[1]);
}

static void child_that_prints_on_does_not_delay(void **state)
{
	struct session s = {.run_ms = 10, .grace_ms = 50};
	int status;
	pid_t pid;

	session_begin(&s, 1 << 20);
	pid = start_writer(&s, (size_t)1 << 60);
	session_finish(&s);
	assert_int_equal(s.result, 0);
	assert_in_range(s.took_ms, 49, 300);
	capture_free(s.c);
	/* it is told that nobody listens */
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGPIPE);
}

static void deadline_is_an_error_and_keeps_the_output(void **state)
{
	struct session s = {.grace_ms = 10000, .limit_ms = 20};

	session_begin(&s, 100);
	assert_int_equal(write(s.err[1], "hi", 2), 2);
	session_finish(&s);
	assert_int_equal(s.result, -ERR_DEADLINE);
	assert_string_equal(s.c->output[1].data, "hi");
	capture_free(s.c);
	close(s.out[1]);
	close(s.err[1]);
}

static void freed_in_the_middle(void **state)
{
	struct session s = {0};

	session_begin(&s, 100);
	capture_free(s.c);
	close(s.out[1]);
	close(s.err[1]);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
	const struct CMUnitTest tests[] = {
		TEST(both_outputs_are_taken),
		TEST(only_one_pipe_or_none),
		TEST(more_than_the_limit_is_counted),
		TEST(background_child_does_not_delay),
		TEST(no_grace_still_takes_what_is_there),
		TEST(child_that_prints_on_does_not_delay),
		TEST(deadline_is_an_error_and_keeps_the_output),
		TEST(freed_in_the_middle),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
