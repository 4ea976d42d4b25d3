/* SPDX-License-Identifier: Apache-2.0 */
/* The server's side of the fd store against systemd's protocol, played by a socket of the test's.
 * The keeper's extension is tested with the keeper itself. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include "io/base/cleanup.h"
#include "io/base/log.h"
#include "recovery/fdstore.h"
#include "tests/lib/group.h"

static char dir[] = "/tmp/crisp-test-fdstore-XXXXXX";
static struct sockaddr_un address = {.sun_family = AF_UNIX};
static struct loop *l;
static struct fdstore *fs;
static int notify; /* systemd's end */

/* One message: its text in a static buffer, its descriptor or -1. */
static const char *receive(int *ret_fd)
{
	static char text[512];
	union {
		struct cmsghdr header;
		char space[CMSG_SPACE(sizeof(int))];
	} control = {0};
	struct iovec iov = {.iov_base = text, .iov_len = sizeof(text) - 1};
	struct msghdr m = {.msg_iov = &iov,
			   .msg_iovlen = 1,
			   .msg_control = &control,
			   .msg_controllen = sizeof(control.space)};
	ssize_t n = recvmsg(notify, &m, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);

	*ret_fd = -1;
	if (n < 0)
		return NULL;
	text[n] = '\0';
	if (CMSG_FIRSTHDR(&m))
		memcpy(ret_fd, CMSG_DATA(CMSG_FIRSTHDR(&m)), sizeof(int));
	return text;
}

static void expect(const char *want)
{
	int fd;

	assert_string_equal(receive(&fd), want);
	assert_int_equal(fd, -1);
}

static void open_store(const char *fdstore_max)
{
	setenv("NOTIFY_SOCKET", address.sun_path, 1);
	if (fdstore_max)
		setenv("FDSTORE", fdstore_max, 1);
	fs = fdstore_open(l, NULL);
	assert_non_null(fs);
	assert_null(getenv("NOTIFY_SOCKET"));
	assert_null(getenv("FDSTORE"));
}

static void run(void (*fn)(struct task *t, void *arg))
{
	task_start(l, "test", fn, NULL);
	loop_run(l);
}

static void use_messages(struct task *t, void *arg)
{
	cleanup_close int event = eventfd(7, EFD_CLOEXEC);
	uint64_t value = 0;
	int fd;

	assert_int_equal(fdstore_put(t, fs, "c1.out", event), 0);
	/* or systemd would keep both */
	expect("FDSTOREREMOVE=1\nFDNAME=c1.out");
	assert_string_equal(receive(&fd), "FDSTORE=1\nFDNAME=c1.out\nFDPOLL=0");
	assert_int_equal(read(fd, &value, sizeof(value)), sizeof(value));
	assert_int_equal(value, 7);
	close(fd);
	assert_int_equal(fdstore_drop(t, fs, "c1.out"), 0);
	expect("FDSTOREREMOVE=1\nFDNAME=c1.out");
	for (const char *const *bad =
		     (const char *const[]){"", "a:b", "a b", "a\nREADY=1", "ä", NULL};
	     *bad; bad++) {
		assert_int_equal(fdstore_put(t, fs, *bad, event), -ERR_INVALID);
		assert_int_equal(fdstore_drop(t, fs, *bad), -ERR_INVALID);
	}
	fdstore_notify_ready(fs);
	expect("READY=1");
	assert_null(receive(&fd));
	loop_stop(l);
}

static void systemd_is_spoken_to(void **state)
{
	open_store("100");
	assert_true(fdstore_has_keeper(fs));
	assert_null(fdstore_exit_records(fs));
	run(use_messages);
}

/* systemd's queue is short, so somebody reads it meanwhile. */
static int stored;

static void store_many(struct task *t, void *arg)
{
	cleanup_close int event = eventfd(0, EFD_CLOEXEC);
	char name[FDSTORE_NAME_MAX + 1];
	int fd;

	stored = 0;
	for (int i = 0; i < 3000; i++) {
		snprintf(name, sizeof(name), "%064d.out", i);
		assert_int_equal(fdstore_put(t, fs, name, event), 0);
		for (const char *text; (text = receive(&fd)); close_fd(fd))
			stored += fd >= 0;
	}
	/* one that goes makes place for one */
	snprintf(name, sizeof(name), "%064d.out", 5);
	assert_int_equal(fdstore_drop(t, fs, name), 0);
	expect("FDSTOREREMOVE=1\nFDNAME="
	       "0000000000000000000000000000000000000000000000000000000000000005.out");
	for (int i = 0; i < 2; i++) {
		snprintf(name, sizeof(name), "%064d.err", i);
		assert_int_equal(fdstore_put(t, fs, name, event), 0);
		for (const char *text; (text = receive(&fd)); close_fd(fd))
			stored += fd >= 0;
	}
	loop_stop(l);
}

/* systemd passes all names in one string of the environment, which has at most 128 KiB. */
static void names_fit_into_the_environment(void **state)
{
	open_store("10000");
	log_set_level(LOG_ERROR + 1);
	run(store_many);
	log_set_level(LOG_INFO);
	assert_int_equal(stored, FDSTORE_SYSTEMD_NAMES / 69 + 1);
}

static int drained, sent;

static void drain(struct task *t, void *arg)
{
	int fd;

	while (drained < 200) {
		if (receive(&fd)) {
			close_fd(fd);
			drained++;
		} else {
			assert_int_equal(task_sleep_ms(t, 1), 0);
		}
	}
	loop_stop(l);
}

/* systemd's queue takes net.unix.max_dgram_qlen messages, 10 of old. */
static void fill(struct task *t, void *arg)
{
	cleanup_close int event = eventfd(0, EFD_CLOEXEC);

	for (sent = 0; sent < 100; sent++)
		assert_int_equal(fdstore_put(t, fs, "name", event), 0);
}

static void full_queue_is_waited_for(void **state)
{
	open_store("100");
	drained = 0;
	task_start(l, "fill", fill, NULL);
	run(drain);
	assert_int_equal(sent, 100);
}

static void put_late(struct task *t, void *arg)
{
	cleanup_close int event = eventfd(0, EFD_CLOEXEC);

	close(notify);
	assert_int_equal(fdstore_put(t, fs, "name", event), 0);
	assert_false(fdstore_has_keeper(fs));
	assert_int_equal(fdstore_put(t, fs, "name", event), 0);
	assert_int_equal(fdstore_drop(t, fs, "name"), 0);
	notify = -1;
	loop_stop(l);
}

static void lost_keeper_is_no_error(void **state)
{
	open_store("100");
	log_set_level(LOG_ERROR + 1);
	run(put_late);
	log_set_level(LOG_INFO);
}

static void put_nowhere(struct task *t, void *arg)
{
	assert_int_equal(fdstore_put(t, fs, "name", 0), 0);
	assert_int_equal(fdstore_drop(t, fs, "name"), 0);
	fdstore_notify_ready(fs);
	loop_stop(l);
}

static void without_keeper_nothing_happens(void **state)
{
	int fd;

	fs = fdstore_open(l, NULL);
	assert_non_null(fs);
	assert_false(fdstore_has_keeper(fs));
	assert_int_equal(fdstore_take(fs, "name"), -1);
	run(put_nowhere);
	fdstore_close(fs);
	/* a unit of Type=notify that keeps no descriptors */
	open_store(NULL);
	assert_false(fdstore_has_keeper(fs));
	run(put_nowhere);
	expect("READY=1");
	assert_null(receive(&fd));
}

/* ---- what is passed: in a child, since the numbers count from 3 ---- */

static void pass(int count, const char *names, int pid)
{
	char text[16];

	close_range(3, ~0u, 0);
	for (int i = 0; i < count; i++) {
		int fd = eventfd((unsigned)i + 1, 0);

		if (fd != i + 3)
			_exit(50);
	}
	snprintf(text, sizeof(text), "%d", count);
	setenv("LISTEN_FDS", text, 1);
	snprintf(text, sizeof(text), "%d", pid);
	setenv("LISTEN_PID", text, 1);
	if (names)
		setenv("LISTEN_FDNAMES", names, 1);
}

static int value_of(const char *name)
{
	int fd = fdstore_take(fs, name);
	uint64_t value;

	if (fd < 0)
		return -1;
	if (fcntl(fd, F_GETFD) != FD_CLOEXEC || read(fd, &value, sizeof(value)) != sizeof(value))
		_exit(51);
	close(fd);
	return (int)value;
}

#define check(condition)                                                                           \
	do {                                                                                       \
		if (!(condition))                                                                  \
			_exit(__LINE__ - base);                                                    \
	} while (0)

static void takes_passed(void)
{
	const int base = __LINE__;

	pass(5, "a:b:a:b:c", getpid());
	fs = fdstore_open(NULL, NULL);
	check(fs && !getenv("LISTEN_FDS") && !getenv("LISTEN_PID") && !getenv("LISTEN_FDNAMES"));
	int a = value_of("a"), second = value_of("a");

	check(a + second == 1 + 3 && value_of("a") == -1);
	check(value_of("c") == 5 && value_of("d") == -1);
	fdstore_close(fs);
	/* what was not taken is closed */
	check(fcntl(4, F_GETFD) < 0 && fcntl(6, F_GETFD) < 0);
	pass(2, NULL, getpid());
	fs = fdstore_open(NULL, NULL);
	check(fs && value_of("unknown") > 0 && value_of("unknown") > 0);
	fdstore_close(fs);
	pass(2, "x:y", getpid() + 1);
	fs = fdstore_open(NULL, NULL);
	check(fs && value_of("x") == -1 && !getenv("LISTEN_FDS"));
	fdstore_close(fs);
}

static void refuses_nonsense(void)
{
	static const char *const counts[] = {"x", "-1", "3", "99999999", "2x"};
	const int base = __LINE__;
	struct error err;

	for (size_t i = 0; i < 5; i++) {
		pass(2, "x:y", getpid());
		setenv("LISTEN_FDS", counts[i], 1);
		check(!fdstore_open(NULL, &err) && err.text[0] && !getenv("LISTEN_FDS"));
	}
	/* the keeper's names without the rest of it */
	pass(2, "crisp-names:crisp-exits", getpid());
	check(!fdstore_open(NULL, &err) && err.text[0]);
	close_range(3, ~0u, 0);
	setenv("NOTIFY_SOCKET", "relative", 1);
	check(!fdstore_open(NULL, &err) && err.code == ERR_INVALID);
	setenv("NOTIFY_SOCKET", "/nonexistent/socket", 1);
	check(!fdstore_open(NULL, &err) && err.sys);
}

static void in_child(void (*fn)(void))
{
	pid_t pid = fork();
	int status;

	if (pid == 0) {
		fn();
		_exit(0);
	}
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_int_equal(status, 0);
}

static void passed_ones_are_taken(void **state)
{
	in_child(takes_passed);
}

static void nonsense_is_refused(void **state)
{
	in_child(refuses_nonsense);
}

static int setup(void **state)
{
	fs = NULL;
	notify = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	unlink(address.sun_path);
	return bind(notify, (struct sockaddr *)&address, sizeof(address));
}

static int teardown(void **state)
{
	fdstore_close(fs);
	close_fd(notify);
	assert_int_equal(task_count(), 0);
	return unlink(address.sun_path);
}

static int group_setup(void **state)
{
	l = loop_new(NULL);
	if (!l || !mkdtemp(dir))
		return -1;
	snprintf(address.sun_path, sizeof(address.sun_path), "%s/notify", dir);
	return 0;
}

static int group_teardown(void **state)
{
	loop_free(l);
	task_pool_trim();
	return rmdir(dir);
}

#define test(fn) cmocka_unit_test_setup_teardown(fn, setup, teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		test(systemd_is_spoken_to),
		test(names_fit_into_the_environment),
		test(full_queue_is_waited_for),
		test(lost_keeper_is_no_error),
		test(without_keeper_nothing_happens),
		test(passed_ones_are_taken),
		test(nonsense_is_refused),
	};

	return RUN_GROUP(tests, group_setup, group_teardown);
}
