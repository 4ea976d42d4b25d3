/* SPDX-License-Identifier: Apache-2.0 */
/* Children by pidfd: how they end, what they inherit, what can't be started. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "io/base/alloc.h"
#include "io/base/cleanup.h"
#include "io/process.h"

static struct loop *l;

static int count_fds(void)
{
	DIR *dir = opendir("/proc/self/fd");
	int n = 0;

	assert_non_null(dir);
	while (readdir(dir))
		n++;
	closedir(dir);
	return n;
}

static int setup(void **state)
{
	l = loop_new(NULL);
	*state = (void *)(intptr_t)count_fds();
	return l ? 0 : -1;
}

static int teardown(void **state)
{
	assert_int_equal(count_fds(), (intptr_t)*state);
	assert_int_equal(waitpid(-1, NULL, WNOHANG), -1);
	assert_int_equal(errno, ECHILD);
	assert_int_equal(task_count(), 0);
	loop_free(l);
	task_pool_trim();
	return 0;
}

struct run {
	const char *script; /* of sh -c */
	int kill;	    /* signal to send once it runs */
	struct process_exit exit;
	int result;
	pid_t pid;
};

static void runner(struct task *t, void *arg)
{
	struct run *r = arg;
	const char *argv[] = {"sh", "-c", r->script, NULL};
	struct process_spec spec = {
		.exe_fd = -1, .path = "/bin/sh", .argv = argv, .stdio = {-1, -1, -1}};
	cleanup_close int pidfd = -1;

	r->result = process_start(&spec, &pidfd, &r->pid, &t->err);
	if (r->result == 0 && r->kill)
		assert_int_equal(process_signal(pidfd, r->kill, NULL), 0);
	if (r->result == 0)
		r->result = process_wait(t, pidfd, &r->exit);
	/* signalling what is gone is no error; waiting twice is one */
	assert_int_equal(process_signal(pidfd, SIGTERM, NULL), 0);
	assert_int_equal(process_reap(pidfd, &r->exit, NULL), 0);
	loop_stop(t->loop);
}

static struct run run(const char *script, int kill)
{
	struct run r = {.script = script, .kill = kill};

	task_start(l, "runner", runner, &r);
	loop_run(l);
	assert_int_equal(r.result, 0);
	return r;
}

static void exit_codes_arrive(void **state)
{
	assert_int_equal(run("exit 0", 0).exit.code, 0);
	assert_int_equal(run("exit 7", 0).exit.code, 7);
	assert_int_equal(run("exit 255", 0).exit.code, 255);
}

static void signals_become_128_and_more(void **state)
{
	struct run r = run("while :; do sleep 1; done", SIGKILL);

	assert_int_equal(r.exit.code, 137);
	assert_int_equal(r.exit.signal, SIGKILL);
	r = run("kill -TERM $$", 0);
	assert_int_equal(r.exit.code, 143);
	assert_int_equal(r.exit.signal, SIGTERM);
	/* 143 by itself is no signal */
	r = run("exit 143", 0);
	assert_int_equal(r.exit.code, 143);
	assert_int_equal(r.exit.signal, 0);
}

static void set_oom_score(const char *value)
{
	cleanup_close int fd = open("/proc/self/oom_score_adj", O_WRONLY | O_CLOEXEC);

	assert_int_equal(write(fd, value, strlen(value)), strlen(value));
}

/* A server that is protected starts helpers that are not; the other direction needs no right. */
static void oom_score_is_not_inherited(void **state)
{
	char old[16] = "";
	cleanup_close int fd = open("/proc/self/oom_score_adj", O_RDONLY | O_CLOEXEC);

	assert_true(read(fd, old, sizeof(old) - 1) > 0);
	if (atoi(old) != 0)
		skip();
	set_oom_score("300");
	assert_int_equal(run("exit $(cat /proc/self/oom_score_adj)", 0).exit.code, 0);
	set_oom_score(old);
}

static void wait_status_is_spelled_the_same(void **state)
{
	assert_int_equal(process_exit_of_status(3 << 8).code, 3);
	assert_int_equal(process_exit_of_status(SIGKILL).code, 137);
	assert_true(process_exit_of_status(SIGSEGV | 0x80).has_core);
}

static void missing_executable_is_named(void **state)
{
	const char *argv[] = {"frobnicate", NULL};
	struct process_spec spec = {
		.exe_fd = -1, .path = "/nonexistent/frob", .argv = argv, .stdio = {-1, -1, -1}};
	struct error err = {0};
	int pidfd = -1;
	pid_t pid = 0;

	for (int i = 0; i < 50; i++)
		assert_int_equal(process_start(&spec, &pidfd, &pid, &err), -ERR_INTERNAL);
	assert_int_equal(err.sys, ENOENT);
	assert_non_null(strstr(err.text, "frobnicate"));
	assert_int_equal(pidfd, -1);
	assert_int_equal(pid, 0);
}

/* Starts argv with a pipe as stdout and the given extras; returns what it wrote. */
static char *output_of(struct process_spec *spec, char *to, size_t size)
{
	int out[2], pidfd = -1;
	struct error err = {0};
	size_t got = 0;
	ssize_t n;
	pid_t pid;

	assert_int_equal(pipe2(out, O_CLOEXEC), 0);
	spec->stdio[1] = out[1];
	assert_int_equal(process_start(spec, &pidfd, &pid, &err), 0);
	close(out[1]);
	while ((n = read(out[0], to + got, size - 1 - got)) > 0)
		got += (size_t)n;
	to[got] = 0;
	close(out[0]);
	assert_int_equal(waitpid(pid, NULL, 0), pid);
	close(pidfd);
	return to;
}

static void descriptors_arrive_from_three_on_and_no_others(void **state)
{
	const char *argv[] = {"sh", "-c", "cat <&3; cat <&4; cd /proc/self/fd; echo *", NULL};
	const char *envp[] = {"PATH=/usr/bin:/bin", NULL};
	int a[2], b[2], leak = open("/dev/null", O_RDONLY);
	struct process_spec spec = {
		.exe_fd = -1, .path = "/bin/sh", .argv = argv, .envp = envp, .stdio = {-1, -1, -1}};
	char text[256];

	assert_int_equal(pipe2(a, O_CLOEXEC), 0);
	assert_int_equal(pipe2(b, O_CLOEXEC), 0);
	assert_int_equal(write(a[1], "first ", 6), 6);
	assert_int_equal(write(b[1], "second ", 7), 7);
	close(a[1]);
	close(b[1]);
	/* b comes first by number of the list, whatever its number here */
	spec.extra = (int[]){a[0], b[0]};
	spec.extra_count = 2;
	output_of(&spec, text, sizeof(text));
	/* the shell's own directory handle is the last one in "*" */
	assert_int_equal(strncmp(text, "first second 0 1 2 3 4", 22), 0);
	assert_null(strstr(text, "6"));
	close(a[0]);
	close(b[0]);
	close(leak);
}

static void executable_by_descriptor_survives_many_extras(void **state)
{
	const char *argv[] = {"named", "-c", "echo $0; cat /proc/self/fd/12", "argument", NULL};
	const char *envp[] = {"PATH=/usr/bin:/bin", NULL};
	int exe = open("/bin/sh", O_PATH | O_CLOEXEC), null = open("/dev/null", O_RDONLY);
	struct process_spec spec = {
		.exe_fd = exe, .argv = argv, .envp = envp, .stdio = {-1, -1, -1}};
	int extra[10], data[2];
	char text[64];

	assert_int_equal(pipe2(data, O_CLOEXEC), 0);
	assert_int_equal(write(data[1], "tail", 4), 4);
	close(data[1]);
	for (int i = 0; i < 10; i++)
		extra[i] = i == 9 ? data[0] : null;
	/* the executable's own number lies within what the child's descriptors become */
	assert_in_range(exe, 3, 12);
	spec.extra = extra;
	spec.extra_count = 10;
	assert_string_equal(output_of(&spec, text, sizeof(text)), "argument\ntail");
	close(exe);
	close(null);
	close(data[0]);
}

static void signal_state_is_reset(void **state)
{
	const char *argv[] = {"grep", "-E", "^Sig(Blk|Ign)", "/proc/self/status", NULL};
	struct process_spec spec = {
		.exe_fd = -1, .path = "/bin/grep", .argv = argv, .stdio = {-1, -1, -1}};
	char text[256];
	sigset_t set, old;

	signal(SIGPIPE, SIG_IGN);
	sigemptyset(&set);
	sigaddset(&set, SIGUSR2);
	sigprocmask(SIG_BLOCK, &set, &old);
	output_of(&spec, text, sizeof(text));
	sigprocmask(SIG_SETMASK, &old, NULL);
	signal(SIGPIPE, SIG_DFL);
	assert_string_equal(text, "SigBlk:\t0000000000000000\nSigIgn:\t0000000000000000\n");
}

struct limited {
	int pidfd, result;
};

static void limited_waiter(struct task *t, void *arg)
{
	struct limited *w = arg;
	struct process_exit exit;

	task_limit_ms(t, 10);
	assert_int_equal(process_wait(t, w->pidfd, &exit), -ERR_DEADLINE);
	task_shield(t, 1);
	assert_int_equal(process_signal(w->pidfd, SIGKILL, NULL), 0);
	w->result = process_wait(t, w->pidfd, &exit);
	assert_int_equal(exit.signal, SIGKILL);
	task_shield(t, -1);
	loop_stop(t->loop);
}

static void wait_ends_at_the_deadline_and_can_be_repeated(void **state)
{
	const char *argv[] = {"sleep", "100", NULL};
	struct process_spec spec = {
		.exe_fd = -1, .path = "/bin/sleep", .argv = argv, .stdio = {-1, -1, -1}};
	struct limited w = {.pidfd = -1, .result = 1};
	struct error err = {0};
	pid_t pid;

	assert_int_equal(process_start(&spec, &w.pidfd, &pid, &err), 0);
	task_start(l, "waiter", limited_waiter, &w);
	loop_run(l);
	assert_int_equal(w.result, 0);
	assert_int_equal(process_open(pid, &(int){-1}, &err), -ERR_NOT_FOUND);
	close(w.pidfd);
}

int main(void)
{
#if defined(__SANITIZE_THREAD__)
	/* what the child of CLONE_VM does before its exec is charged to the parent's thread */
	print_message("skipped: ThreadSanitizer does not know CLONE_VM\n");
	return 77;
#endif
#define T(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
	const struct CMUnitTest tests[] = {
		T(exit_codes_arrive),
		T(signals_become_128_and_more),
		T(oom_score_is_not_inherited),
		T(wait_status_is_spelled_the_same),
		T(missing_executable_is_named),
		T(descriptors_arrive_from_three_on_and_no_others),
		T(executable_by_descriptor_survives_many_extras),
		T(signal_state_is_reset),
		T(wait_ends_at_the_deadline_and_can_be_repeated),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
