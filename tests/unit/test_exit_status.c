/* SPDX-License-Identifier: Apache-2.0 */
/* How processes ended that are not ours: zombies, reaped ones, with and without PIDFD_GET_INFO; and
 * the table of records that the keeper writes. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "io/base/cleanup.h"
#include "recovery/exit_records.h"
#include "recovery/exit_status.h"

/* A process whose parent is another child of ours, which reaps it when told. */
struct stranger {
	pid_t parent, pid;
	int pidfd;
	int tell_exit, tell_reap, hear;
};

static int signal_of(int how)
{
	return how > 128 && how < 128 + 64 ? how - 128 : 0;
}

static void parent_main(int told, int say, int child_told, int how)
{
	pid_t pid;
	char c;

	pid = fork();
	if (pid == 0) {
		prctl(PR_SET_NAME, ") Z 1 (");
		(void)!read(child_told, &c, 1);
		if (signal_of(how))
			raise(signal_of(how));
		_exit(how);
	}
	(void)!write(say, &pid, sizeof(pid));
	(void)!read(told, &c, 1);
	waitpid(pid, NULL, 0);
	(void)!write(say, "r", 1);
	_exit(0);
}

/* how: exit status, or 128 + signal. */
static struct stranger stranger_new(int how)
{
	int reap[2], done[2], say[2];
	struct stranger s;

	assert_int_equal(pipe2(reap, O_CLOEXEC) | pipe2(done, O_CLOEXEC) | pipe2(say, O_CLOEXEC),
			 0);
	s.parent = fork();
	if (s.parent == 0)
		parent_main(reap[0], say[1], done[0], how);
	assert_int_equal(read(say[0], &s.pid, sizeof(s.pid)), sizeof(s.pid));
	close(reap[0]);
	close(done[0]);
	close(say[1]);
	s.tell_exit = done[1];
	s.tell_reap = reap[1];
	s.hear = say[0];
	assert_int_equal(process_open(s.pid, &s.pidfd, NULL), 0);
	return s;
}

static void stranger_exit(struct stranger *s)
{
	struct pollfd p = {.fd = s->pidfd, .events = POLLIN};

	assert_int_equal(write(s->tell_exit, "x", 1), 1);
	assert_int_equal(poll(&p, 1, 10000), 1);
}

static void stranger_reap(struct stranger *s)
{
	char c;

	assert_int_equal(write(s->tell_reap, "x", 1), 1);
	assert_int_equal(read(s->hear, &c, 1), 1);
}

static void stranger_done(struct stranger *s)
{
	waitpid(s->parent, NULL, 0);
	close(s->pidfd);
	close(s->tell_exit);
	close(s->tell_reap);
	close(s->hear);
}

static struct exit_status find(const struct stranger *s)
{
	struct exit_status found;

	assert_int_equal(exit_status_find(NULL, s->pidfd, s->pid, 0, &found, NULL), 0);
	return found;
}

static void check_code(struct exit_status found, int how)
{
	assert_true(found.is_known);
	assert_int_equal(found.exit.code, how);
	assert_int_equal(found.exit.signal, signal_of(how));
}

static void zombie_and_reaped(int how)
{
	struct stranger s = stranger_new(how);
	struct exit_status found;
	struct error err;

	assert_int_equal(exit_status_find(NULL, s.pidfd, s.pid, 0, &found, &err),
			 -ERR_PRECONDITION);
	stranger_exit(&s);
	check_code(find(&s), how);
	stranger_reap(&s);
	found = find(&s);
	if (exit_status_has_pidfd_info()) {
		check_code(found, how);
	} else {
		assert_false(found.is_known);
		assert_int_equal(found.exit.code, 255);
	}
	stranger_done(&s);
}

static void strangers_end_is_found(void **state)
{
	zombie_and_reaped(0);
	zombie_and_reaped(37);
	zombie_and_reaped(255);
	zombie_and_reaped(128 + SIGKILL);
}

static void old_kernel_knows_zombies_only(void **state)
{
	pid_t child = fork();
	int status;

	if (child == 0) {
		exit_status_pretend_old_kernel();
		if (exit_status_has_pidfd_info())
			_exit(1);
		strangers_end_is_found(NULL);
		_exit(0);
	}
	assert_int_equal(waitpid(child, &status, 0), child);
	assert_int_equal(status, 0);
}

static void own_child_is_reaped(void **state)
{
	struct exit_status found;
	pid_t pid = fork();
	int pidfd;

	if (pid == 0)
		_exit(9);
	assert_int_equal(process_open(pid, &pidfd, NULL), 0);
	struct pollfd p = {.fd = pidfd, .events = POLLIN};

	assert_int_equal(poll(&p, 1, 10000), 1);
	assert_int_equal(exit_status_find(NULL, pidfd, pid, 0, &found, NULL), 0);
	check_code(found, 9);
	assert_int_equal(waitpid(pid, NULL, WNOHANG), -1);
	close(pidfd);
}

static void wrong_pid_is_never_believed(void **state)
{
	struct stranger one = stranger_new(1), two = stranger_new(2);
	struct exit_status found;

	stranger_exit(&one);
	stranger_exit(&two);
	stranger_reap(&one);
	/* as if the pid of one had been given to two meanwhile */
	assert_int_equal(exit_status_find(NULL, one.pidfd, two.pid, 0, &found, NULL), 0);
	assert_true(!found.is_known || found.exit.code == 1);
	stranger_reap(&two);
	stranger_done(&one);
	stranger_done(&two);
}

static void birth_names_a_process(void **state)
{
	struct stranger s = stranger_new(3);
	cleanup_close int again = -1;
	uint64_t started, later;
	int fd;

	assert_int_equal(exit_status_started(s.pidfd, s.pid, &started, NULL), 0);
	assert_int_not_equal(started, 0);
	assert_int_equal(exit_status_reopen(s.pid, started, &again, NULL), 0);
	assert_int_equal(exit_status_reopen(s.pid, started + 1, &fd, NULL), -ERR_NOT_FOUND);
	stranger_exit(&s);
	assert_int_equal(exit_status_started(s.pidfd, s.pid, &later, NULL), 0);
	assert_int_equal(later, started);
	stranger_reap(&s);
	assert_int_equal(exit_status_started(s.pidfd, s.pid, &later, NULL), -ERR_NOT_FOUND);
	assert_int_equal(exit_status_reopen(s.pid, started, &fd, NULL), -ERR_NOT_FOUND);
	stranger_done(&s);
}

/* ---- records ---- */

static struct exit_record record_of(pid_t pid)
{
	return (struct exit_record){.pid = pid,
				    .status = (pid % 256) << 8,
				    .started = (uint64_t)pid * 3,
				    .ended_at = pid + 7};
}

static bool has(struct exit_records *x, pid_t pid)
{
	struct exit_record want = record_of(pid), found;

	if (!exit_records_find(x, pid, want.started, &found))
		return false;
	assert_int_equal(found.status, want.status);
	assert_int_equal(found.ended_at, want.ended_at);
	return true;
}

static void add(struct exit_records *x, pid_t pid)
{
	struct exit_record r = record_of(pid);

	exit_records_add(x, &r);
}

static void records_pass_between_mappings(void **state)
{
	struct exit_records *writer, *reader;
	struct exit_record found;
	int fd = -1;

	writer = exit_records_new(&fd, NULL);
	reader = exit_records_map(fd, NULL);
	assert_non_null(writer);
	assert_non_null(reader);
	assert_false(has(reader, 5));
	for (pid_t pid = 1; pid <= 20000; pid++)
		add(writer, pid);
	for (pid_t pid = 1; pid <= 20000; pid++)
		assert_true(has(reader, pid));
	/* the same pid, another process */
	assert_false(exit_records_find(reader, 5, 16, &found));
	exit_records_unmap(writer);
	exit_records_unmap(reader);
	close(fd);
}

static void acknowledged_ones_make_room(void **state)
{
	struct exit_records *x;
	int fd = -1;
	pid_t pid;

	x = exit_records_new(&fd, NULL);
	/* all in one column */
	for (pid = 1; pid <= EXIT_ROWS; pid++)
		add(x, pid * EXIT_COLUMNS);
	exit_records_acknowledge(x, 9 * EXIT_COLUMNS, record_of(9 * EXIT_COLUMNS).started);
	exit_records_acknowledge(x, 3, 9);
	add(x, pid * EXIT_COLUMNS);
	assert_false(has(x, 9 * EXIT_COLUMNS));
	for (pid_t p = 1; p <= pid; p++)
		assert_true(p == 9 || has(x, p * EXIT_COLUMNS));
	/* full: the oldest goes */
	pid++;
	add(x, pid * EXIT_COLUMNS);
	assert_false(has(x, 1 * EXIT_COLUMNS));
	assert_true(has(x, 2 * EXIT_COLUMNS));
	assert_true(has(x, pid * EXIT_COLUMNS));
	exit_records_unmap(x);
	close(fd);
}

static void other_tables_are_refused(void **state)
{
	cleanup_close int null = open("/dev/null", O_RDWR | O_CLOEXEC);
	struct error err;

	assert_null(exit_records_map(null, &err));
	assert_int_equal(err.code, ERR_INVALID);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(strangers_end_is_found),
		cmocka_unit_test(old_kernel_knows_zombies_only),
		cmocka_unit_test(own_child_is_reaped),
		cmocka_unit_test(wrong_pid_is_never_believed),
		cmocka_unit_test(birth_names_a_process),
		cmocka_unit_test(records_pass_between_mappings),
		cmocka_unit_test(acknowledged_ones_make_room),
		cmocka_unit_test(other_tables_are_refused),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
