/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A keeper with a server that is this program again (--server): it talks to the test over a socket,
 * does what it is told, and is killed. With --keeper this program is the keeper alone; with --keep
 * it was executed in a keeper's place.
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
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "io/base/alloc.h"
#include "io/base/cleanup.h"
#include "io/base/log.h"
#include "recovery/exit_status.h"
#include "recovery/fdstore.h"
#include "recovery/keeper.h"
#include "tests/lib/group.h"

#define TEXT_MAX 1000
#define MANY 3000

/* ---- the server ---- */

struct server {
	struct fdstore *fs;
	char reply[TEXT_MAX];
};

static int channel = -1;

static void on_hup(int sig)
{
	(void)!send(channel, "hup", 4, 0);
}

static void on_term(int sig)
{
	_exit(7);
}

static void do_put(struct task *t, struct server *s, const char *name, const char *text)
{
	int ends[2];

	if (pipe2(ends, O_CLOEXEC) < 0 || write(ends[1], text, strlen(text)) < 0)
		_exit(90);
	if (fdstore_put(t, s->fs, name, ends[0]) < 0)
		snprintf(s->reply, TEXT_MAX, "%s", t->err.text);
	close(ends[0]);
	close(ends[1]);
}

/* A pipe of which the keeper has both ends grows by the text. */
static void do_append(struct task *t, struct server *s, const char *text)
{
	static int ends[2] = {-1, -1};

	if (ends[1] < 0) {
		ends[0] = fdstore_take(s->fs, "shared.r");
		ends[1] = fdstore_take(s->fs, "shared.w");
	}
	if (ends[1] < 0) {
		if (pipe2(ends, O_CLOEXEC) < 0 || fdstore_put(t, s->fs, "shared.r", ends[0]) < 0 ||
		    fdstore_put(t, s->fs, "shared.w", ends[1]) < 0)
			_exit(91);
	}
	if (write(ends[1], text, strlen(text)) < 0)
		_exit(92);
}

static void do_take(struct server *s, const char *name)
{
	cleanup_close int fd = fdstore_take(s->fs, name);
	ssize_t n = fd < 0 ? -1 : read(fd, s->reply + 1, TEXT_MAX - 2);

	if (fd >= 0 && fcntl(fd, F_GETFD) != FD_CLOEXEC)
		_exit(93);
	s->reply[0] = n < 0 ? '-' : '=';
	s->reply[n < 0 ? 1 : n + 1] = '\0';
}

static void many_name(char name[FDSTORE_NAME_MAX + 1], int i)
{
	snprintf(name, FDSTORE_NAME_MAX + 1, "%080d.out", i);
}

static void do_many(struct task *t, struct server *s)
{
	char name[FDSTORE_NAME_MAX + 1];

	for (int i = 0; i < MANY; i++) {
		cleanup_close int fd = eventfd((unsigned)i + 1, EFD_CLOEXEC);

		many_name(name, i);
		if (fd < 0 || fdstore_put(t, s->fs, name, fd) < 0)
			_exit(94);
	}
}

static void do_check_many(struct server *s)
{
	char name[FDSTORE_NAME_MAX + 1];

	for (int i = 0; i < MANY; i++) {
		uint64_t value = 0;
		cleanup_close int fd = (many_name(name, i), fdstore_take(s->fs, name));

		if (fd < 0 || read(fd, &value, 8) != 8 || value != (uint64_t)i + 1) {
			snprintf(s->reply, TEXT_MAX, "%d is wrong", i);
			return;
		}
	}
}

/* How many of them came, the first ones. */
static void do_count_many(struct server *s)
{
	char name[FDSTORE_NAME_MAX + 1];
	int n = 0;

	for (; n < MANY; n++) {
		cleanup_close int fd = (many_name(name, n), fdstore_take(s->fs, name));

		if (fd < 0)
			break;
	}
	snprintf(s->reply, TEXT_MAX, "%d", n);
}

/* A child that the server leaves behind when it dies; ends with 5 on SIGTERM. */
static void on_orphan_term(int sig)
{
	_exit(5);
}

static void do_orphan(struct server *s)
{
	cleanup_close int pidfd = -1;
	uint64_t started;
	sigset_t term, old;
	pid_t pid;

	sigemptyset(&term);
	sigaddset(&term, SIGTERM);
	sigprocmask(SIG_BLOCK, &term, &old);
	pid = fork();
	if (pid == 0) {
		close_range(0, ~0u, 0);
		signal(SIGTERM, on_orphan_term);
		sigprocmask(SIG_SETMASK, &old, NULL);
		for (;;)
			pause();
	}
	sigprocmask(SIG_SETMASK, &old, NULL);
	if (process_open(pid, &pidfd, NULL) < 0 ||
	    exit_status_started(pidfd, pid, &started, NULL) < 0)
		_exit(95);
	snprintf(s->reply, TEXT_MAX, "%d %llu", pid, (unsigned long long)started);
}

/* A child that ends and is asked for, as the container of a server that dies before its end is
 * durable. */
static void do_own(struct server *s)
{
	cleanup_close int pidfd = -1;
	struct exit_status found;
	uint64_t started;
	pid_t pid = fork();

	if (pid == 0) {
		close_range(3, ~0u, 0);
		_exit(6);
	}
	if (process_open(pid, &pidfd, NULL) < 0 ||
	    exit_status_started(pidfd, pid, &started, NULL) < 0)
		_exit(95);
	while (exit_status_find(s->fs, pidfd, pid, started, &found, NULL) == -ERR_PRECONDITION)
		usleep(1000);
	if (!found.is_known || found.exit.code != 6 || waitpid(pid, NULL, WNOHANG) != -1)
		_exit(96);
	snprintf(s->reply, TEXT_MAX, "%d %llu", pid, (unsigned long long)started);
}

static void do_find(struct server *s, const char *args, bool forget)
{
	struct exit_status found;
	unsigned long long started;
	int pid;

	if (sscanf(args, "%d %llu", &pid, &started) != 2 ||
	    exit_status_find(s->fs, -1, pid, started, &found, NULL) < 0)
		_exit(96);
	if (forget)
		exit_status_forget(s->fs, pid, started);
	snprintf(s->reply, TEXT_MAX, "%d %d %d %lld", found.is_known, found.exit.code,
		 found.exit.signal, (long long)(found.ended_at / 1000000000));
}

/* Somebody else has the socket too, by whatever accident. */
static void do_stranger(struct task *t, struct server *s, const char *name)
{
	pid_t pid = fork();

	if (pid == 0) {
		do_put(t, s, name, "stranger");
		_exit(0);
	}
	waitpid(pid, NULL, 0);
}

static const char *after(const char *command, const char *word)
{
	size_t length = strlen(word);

	return strncmp(command, word, length) == 0 ? command + length : NULL;
}

static bool is_owned(void *data, const char *name)
{
	return data && strcmp(name, data) == 0;
}

static void obey(struct task *t, struct server *s, char *command)
{
	const char *args;

	if ((args = after(command, "put "))) {
		char name[TEXT_MAX], text[TEXT_MAX];

		if (sscanf(args, "%s %s", name, text) == 2)
			do_put(t, s, name, text);
	} else if ((args = after(command, "append "))) {
		do_append(t, s, args);
	} else if ((args = after(command, "take "))) {
		do_take(s, args);
	} else if ((args = after(command, "drop "))) {
		fdstore_drop(t, s->fs, args);
	} else if ((args = after(command, "stranger "))) {
		do_stranger(t, s, args);
	} else if ((args = after(command, "find "))) {
		do_find(s, args, false);
	} else if ((args = after(command, "forget "))) {
		do_find(s, args, true);
	} else if ((args = after(command, "exit "))) {
		_exit(atoi(args));
	} else if (strcmp(command, "many") == 0) {
		do_many(t, s);
	} else if (strcmp(command, "check-many") == 0) {
		do_check_many(s);
	} else if (strcmp(command, "count-many") == 0) {
		do_count_many(s);
	} else if (strcmp(command, "orphan") == 0) {
		do_orphan(s);
	} else if (strcmp(command, "own") == 0) {
		do_own(s);
	} else if (strcmp(command, "sweep") == 0) {
		fdstore_sweep(t, s->fs, is_owned, NULL);
	} else if ((args = after(command, "sweep-but "))) {
		fdstore_sweep(t, s->fs, is_owned, (void *)args);
	} else if (strcmp(command, "ready") == 0) {
		fdstore_notify_ready(s->fs);
	}
}

static void serve(struct task *t, void *arg)
{
	struct server *s = arg;
	char command[TEXT_MAX];
	ssize_t n;

	snprintf(s->reply, TEXT_MAX, "%d", getpid());
	(void)!send(channel, s->reply, strlen(s->reply) + 1, 0);
	while ((n = recv(channel, command, sizeof(command), 0)) > 0 || (n < 0 && errno == EINTR)) {
		if (n < 0)
			continue;
		strcpy(s->reply, "ok");
		obey(t, s, command);
		(void)!send(channel, s->reply, strlen(s->reply) + 1, 0);
	}
	_exit(0);
}

static struct sockaddr_un address_in(const char *dir)
{
	struct sockaddr_un a = {.sun_family = AF_UNIX};

	snprintf(a.sun_path, sizeof(a.sun_path), "%s/socket", dir);
	return a;
}

static int server_main(char **argv)
{
	struct sockaddr_un address = address_in(argv[0]);
	struct error err = {0};
	struct loop *l;
	struct server s;

	if (argv[1])
		_exit(atoi(argv[1]));
	log_set_level(LOG_ERROR);
	l = loop_new(&err);
	s.fs = fdstore_open(l, &err);
	if (!s.fs) {
		log_error("%s", err.text);
		_exit(97);
	}
	if (!fdstore_has_keeper(s.fs) || getenv("LISTEN_FDS") || getenv("LISTEN_PID"))
		_exit(98);
	signal(SIGHUP, on_hup);
	signal(SIGTERM, on_term);
	channel = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
	if (connect(channel, (struct sockaddr *)&address, sizeof(address)) < 0)
		_exit(99);
	task_start(l, "serve", serve, &s);
	loop_run(l);
	return 0;
}

/* argv: the program, --keeper, delay, directory, the server's option or NULL. */
static int keeper_alone(char **argv)
{
	static char word[] = "--server";
	char *args[] = {argv[0], word, argv[3], argv[4], NULL};

	log_set_level(LOG_ERROR);
	return keeper_main(args, atoi(argv[2]));
}

/* What may be wrong with a program that shall replace the keeper is what the file DIR/wrong says.
 */
static void go_wrong(const char *in_dir)
{
	static const uint32_t newer = 99;
	char path[128], wrong[16] = "";
	cleanup_close int fd = -1;

	snprintf(path, sizeof(path), "%s/wrong", in_dir);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0 || read(fd, wrong, sizeof(wrong) - 1) < 0)
		return;
	if (strcmp(wrong, "version") == 0)
		/* behind its magic */
		(void)!pwrite(KEEPER_STATE_FD, &newer, sizeof(newer), 8);
	else if (strcmp(wrong, "cut") == 0)
		(void)!ftruncate(KEEPER_STATE_FD, 100);
	else if (strcmp(wrong, "lost") == 0)
		close_range(KEEPER_STATE_FD + 1, ~0u, 0);
	else if (strcmp(wrong, "hangs") == 0)
		pause();
}

/* argv: the program, --keep, --server, directory, the server's option or NULL. */
static int keeper_again(char **argv)
{
	const char *orders = getenv(KEEPER_VARIABLE);
	char *args[] = {argv[0], argv[2], argv[3], argv[4], NULL};

	go_wrong(argv[3]);
	return keeper_main(args, orders ? atoi(orders) : KEEPER_DELAY_AUTO);
}

/* ---- the test's side ---- */

static char dir[] = "/tmp/crisp-test-keeper-XXXXXX";
static char self[4096];

struct kept_server {
	pid_t keeper, server;
	int listener, channel;
	int log; /* the keeper's */
};

static char *path_in(const char *name)
{
	static char path[128];

	snprintf(path, sizeof(path), "%s/%s", dir, name);
	return path;
}

/* program is executed as keeper; option: what the server exits with at once, or NULL; fds: the
 * limit of its descriptors, 0 for ours. */
static struct kept_server start_limited(const char *program, int delay_ms, const char *option,
					rlim_t fds)
{
	struct rlimit limit = {.rlim_cur = fds, .rlim_max = fds};
	struct sockaddr_un address = address_in(dir);
	struct kept_server k = {.channel = -1};
	char delay[16];

	snprintf(delay, sizeof(delay), "%d", delay_ms);
	unlink(address.sun_path);
	k.listener = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
	assert_int_equal(bind(k.listener, (struct sockaddr *)&address, sizeof(address)), 0);
	assert_int_equal(listen(k.listener, 8), 0);
	k.log = open(path_in("log"), O_RDWR | O_CREAT | O_TRUNC | O_APPEND | O_CLOEXEC, 0600);
	assert_true(k.log >= 0);
	k.keeper = fork();
	if (k.keeper == 0) {
		dup2(k.log, 2);
		if (fds)
			setrlimit(RLIMIT_NOFILE, &limit);
		execl(program, program, "--keeper", delay, dir, option, NULL);
		_exit(89);
	}
	return k;
}

static struct kept_server start(const char *program, int delay_ms, const char *option)
{
	return start_limited(program, delay_ms, option, 0);
}

static bool is_readable(int fd, int timeout_ms)
{
	struct pollfd p = {.fd = fd, .events = POLLIN};

	return poll(&p, 1, timeout_ms) == 1;
}

static char *hear(struct kept_server *k)
{
	static char text[TEXT_MAX];

	assert_true(is_readable(k->channel, 20000));
	assert_true(recv(k->channel, text, sizeof(text), 0) > 0);
	return text;
}

static void await_server(struct kept_server *k)
{
	close_fd(k->channel);
	assert_true(is_readable(k->listener, 20000));
	k->channel = accept4(k->listener, NULL, NULL, SOCK_CLOEXEC);
	assert_true(k->channel >= 0);
	k->server = atoi(hear(k));
}

static void say(struct kept_server *k, const char *command)
{
	assert_true(send(k->channel, command, strlen(command) + 1, 0) > 0);
}

static char *ask(struct kept_server *k, const char *command)
{
	say(k, command);
	return hear(k);
}

static void ok(struct kept_server *k, const char *command)
{
	assert_string_equal(ask(k, command), "ok");
}

static void kill_server(struct kept_server *k)
{
	assert_int_equal(kill(k->server, SIGKILL), 0);
}

static void forget(struct kept_server *k)
{
	close_fd(k->channel);
	close(k->listener);
	close(k->log);
	unlink(path_in("log"));
}

static int end(struct kept_server *k, int sig)
{
	int status;

	if (sig)
		assert_int_equal(kill(k->keeper, sig), 0);
	assert_int_equal(waitpid(k->keeper, &status, 0), k->keeper);
	assert_true(WIFEXITED(status));
	forget(k);
	return WEXITSTATUS(status);
}

static int count_in_log(const struct kept_server *k, const char *text)
{
	static char log[1 << 20];
	ssize_t n = pread(k->log, log, sizeof(log) - 1, 0);
	int count = 0;

	log[n < 0 ? 0 : n] = '\0';
	for (const char *at = log; (at = strstr(at, text)); at++)
		count++;
	return count;
}

/* Some things of the keeper show in its log only. */
static void await_log(const struct kept_server *k, const char *text, int count)
{
	for (int i = 0; i < 20000 && count_in_log(k, text) < count; i++)
		usleep(1000);
	assert_int_equal(count_in_log(k, text), count);
}

static void replace_keeper(const struct kept_server *k, int count)
{
	assert_int_equal(kill(k->keeper, SIGUSR2), 0);
	await_log(k, "keeper was replaced", count);
}

/* In kB. */
static long memory_of(pid_t pid)
{
	char path[32], line[128];
	long kb = -1;
	FILE *file;

	snprintf(path, sizeof(path), "/proc/%d/status", pid);
	file = fopen(path, "re");
	assert_non_null(file);
	while (fgets(line, sizeof(line), file))
		sscanf(line, "VmSize: %ld", &kb);
	fclose(file);
	assert_true(kb > 0);
	return kb;
}

static int keeper_fds(const struct kept_server *k)
{
	char path[64];
	DIR *fds;
	int n = 0;

	snprintf(path, sizeof(path), "/proc/%d/fd", k->keeper);
	fds = opendir(path);
	assert_non_null(fds);
	while (readdir(fds))
		n++;
	closedir(fds);
	return n;
}

/* In its poll(2), and nowhere else: between two turns. */
static bool is_keeper_waiting(const struct kept_server *k)
{
	char path[64], text[32] = "";
	FILE *f;

	snprintf(path, sizeof(path), "/proc/%d/syscall", k->keeper);
	f = fopen(path, "re");
	assert_non_null(f);
	if (!fgets(text, sizeof(text), f))
		text[0] = 0;
	fclose(f);
	/* where there is no poll, libc calls ppoll */
#ifdef SYS_poll
	return atol(text) == SYS_poll;
#else
	return atol(text) == SYS_ppoll;
#endif
}

/* What it opens for a turn, as when it has just started a server, does not count, however long a
 * busy machine makes that turn. */
static int idle_keeper_fds(const struct kept_server *k)
{
	for (int i = 0; i < 20000; i++) {
		int n = is_keeper_waiting(k) ? keeper_fds(k) : -1;

		if (n >= 0 && is_keeper_waiting(k))
			return n;
		usleep(1000);
	}
	fail_msg("the keeper never waits");
	return -1;
}

/* Messages are not answered, so that they were obeyed shows a moment later. */
static void await_keeper_fds(const struct kept_server *k, int count)
{
	for (int i = 0; i < 2000 && keeper_fds(k) != count; i++)
		usleep(1000);
	assert_int_equal(keeper_fds(k), count);
}

static void fifty_kills_lose_nothing(void **state)
{
	struct kept_server k = start(self, 0, NULL);
	char command[64], want[TEXT_MAX] = "=";

	for (int i = 0; i < 50; i++) {
		await_server(&k);
		snprintf(command, sizeof(command), "put pipe-%d text-%d", i, i);
		ok(&k, command);
		snprintf(command, sizeof(command), "append %d;", i);
		ok(&k, command);
		strcat(want, command + strlen("append "));
		/* it may die within the next one, too */
		if (i % 3 == 0)
			say(&k, "put other text");
		if (i % 5 == 0)
			usleep(300);
		kill_server(&k);
	}
	await_server(&k);
	assert_string_equal(ask(&k, "take shared.r"), want);
	for (int i = 0; i < 50; i++) {
		snprintf(command, sizeof(command), "take pipe-%d", i);
		snprintf(want, sizeof(want), "=text-%d", i);
		assert_string_equal(ask(&k, command), want);
	}
	assert_string_equal(ask(&k, "take pipe-50"), "-");
	assert_int_equal(end(&k, SIGTERM), 7);
}

static void three_thousand_come_back(void **state)
{
	struct kept_server k = start(self, 0, NULL);
	int before;
	long memory;

	await_server(&k);
	before = idle_keeper_fds(&k);
	memory = memory_of(k.keeper);
	ok(&k, "many");
	kill_server(&k);
	await_server(&k);
	assert_int_equal(keeper_fds(&k), before + MANY);
	assert_int_equal(memory_of(k.keeper), memory);
	replace_keeper(&k, 1);
	assert_int_equal(keeper_fds(&k), before + MANY);
	ok(&k, "check-many");
	kill_server(&k);
	await_server(&k);
	ok(&k, "sweep");
	await_keeper_fds(&k, before);
	assert_int_equal(end(&k, SIGTERM), 7);
}

static void names_are_replaced_and_dropped(void **state)
{
	struct kept_server k = start(self, 0, NULL);
	int before;

	await_server(&k);
	before = idle_keeper_fds(&k);
	ok(&k, "put one first");
	ok(&k, "put one second");
	ok(&k, "put two second");
	await_keeper_fds(&k, before + 2);
	ok(&k, "drop two");
	ok(&k, "drop never-kept");
	await_keeper_fds(&k, before + 1);
	assert_non_null(strstr(ask(&k, "put a:b text"), "name"));
	kill_server(&k);
	await_server(&k);
	assert_string_equal(ask(&k, "take two"), "-");
	assert_string_equal(ask(&k, "take one"), "=second");
	assert_string_equal(ask(&k, "take one"), "-");
	assert_int_equal(end(&k, SIGTERM), 7);
}

/* An object that could not be recovered has not taken its own, and the next server may. */
static void what_is_owned_is_not_swept(void **state)
{
	struct kept_server k = start(self, 0, NULL);
	int before;

	await_server(&k);
	before = idle_keeper_fds(&k);
	ok(&k, "put one first");
	ok(&k, "put two second");
	kill_server(&k);
	await_server(&k);
	ok(&k, "sweep-but one");
	await_keeper_fds(&k, before + 1);
	kill_server(&k);
	await_server(&k);
	assert_string_equal(ask(&k, "take two"), "-");
	assert_string_equal(ask(&k, "take one"), "=first");
	assert_int_equal(end(&k, SIGTERM), 7);
}

static void strangers_are_not_obeyed(void **state)
{
	struct kept_server k = start(self, 0, NULL);

	await_server(&k);
	ok(&k, "stranger mine");
	ok(&k, "put yours text");
	kill_server(&k);
	await_server(&k);
	assert_string_equal(ask(&k, "take mine"), "-");
	assert_string_equal(ask(&k, "take yours"), "=text");
	assert_int_equal(end(&k, SIGTERM), 7);
}

static void orphan_ends(struct kept_server *k, int sig, const char *want)
{
	char orphan[TEXT_MAX], command[TEXT_MAX + 8], found[TEXT_MAX];
	long long ended;
	int pid, tries = 0;
	time_t now = time(NULL);

	snprintf(orphan, sizeof(orphan), "%s", ask(k, "orphan"));
	kill_server(k);
	await_server(k);
	snprintf(command, sizeof(command), "find %s", orphan);
	assert_string_equal(ask(k, command), "0 255 0 0");
	pid = atoi(orphan);
	assert_int_equal(kill(pid, sig), 0);
	while (kill(pid, 0) == 0 && tries++ < 5000)
		usleep(1000);
	snprintf(found, sizeof(found), "%s", ask(k, command));
	*strrchr(found, ' ') = '\0';
	assert_string_equal(found, want);
	ended = atoll(found + strlen(found) + 1);
	assert_true(ended >= now - 1 && ended <= time(NULL) + 1);
	/* another one with the same pid is not it */
	snprintf(command, sizeof(command), "find %d 1", pid);
	assert_string_equal(ask(k, command), "0 255 0 0");
	/* recorded for the server's next life too, until it is forgotten */
	kill_server(k);
	await_server(k);
	snprintf(command, sizeof(command), "forget %s", orphan);
	assert_memory_equal(ask(k, command), want, strlen(want));
}

static void reaped_child_is_recorded(void **state)
{
	struct kept_server k = start(self, 0, NULL);
	char command[TEXT_MAX + 8], *found;
	time_t now = time(NULL);

	await_server(&k);
	snprintf(command, sizeof(command), "find %s", ask(&k, "own"));
	kill_server(&k);
	await_server(&k);
	found = ask(&k, command);
	assert_memory_equal(found, "1 6 0 ", 6);
	assert_in_range(atoll(found + 6), now, time(NULL));
	assert_int_equal(end(&k, SIGTERM), 7);
}

static void orphans_are_recorded(void **state)
{
	struct kept_server k = start(self, 0, NULL);

	await_server(&k);
	orphan_ends(&k, SIGTERM, "1 5 0");
	orphan_ends(&k, SIGKILL, "1 137 9");
	assert_int_equal(end(&k, SIGTERM), 7);
}

/* Its keeper tells what systemd listens to. */
static struct kept_server start_notified(int *ret_notify)
{
	struct sockaddr_un address = {.sun_family = AF_UNIX};
	struct kept_server k;

	*ret_notify = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	snprintf(address.sun_path, sizeof(address.sun_path), "%s/notify", dir);
	assert_int_equal(bind(*ret_notify, (struct sockaddr *)&address, sizeof(address)), 0);
	setenv("NOTIFY_SOCKET", address.sun_path, 1);
	k = start(self, 0, NULL);
	unsetenv("NOTIFY_SOCKET");
	return k;
}

/* systemd passes all names in one environment string, and one that is too long would keep the unit
 * from ever starting again. */
static void systemd_is_given_what_it_can_pass(void **state)
{
	size_t count = 0, size = 0;
	struct kept_server k;
	int notify;

	setenv("FDSTORE", "4096", 1);
	k = start_notified(&notify);
	unsetenv("FDSTORE");
	await_server(&k);
	ok(&k, "many");
	assert_int_equal(kill(k.keeper, SIGTERM), 0);
	for (int tries = 0; tries < 2000;) {
		char text[256] = "", *name;

		/* it says so behind the last one */
		if (!is_readable(notify, 10)) {
			if (count_in_log(&k, "systemd can't keep all"))
				break;
			tries++;
			continue;
		}
		/* the descriptor that comes with it is not wanted */
		assert_true(recv(notify, text, sizeof(text) - 1, 0) > 0);
		name = strstr(text, "FDNAME=");
		if (!name)
			continue;
		count++;
		size += strcspn(name + strlen("FDNAME="), "\n") + 1;
	}
	assert_in_range(count, 1000, MANY - 1);
	assert_in_range(size, FDSTORE_SYSTEMD_NAMES - 2 * FDSTORE_NAME_MAX, FDSTORE_SYSTEMD_NAMES);
	assert_int_equal(end(&k, 0), 7);
	close(notify);
	unlink(path_in("notify"));
}

static void signals_reach_the_server(void **state)
{
	struct kept_server k;
	char text[32] = "";
	int notify;

	k = start_notified(&notify);
	await_server(&k);
	assert_int_equal(kill(k.keeper, SIGHUP), 0);
	assert_string_equal(hear(&k), "hup");
	ok(&k, "ready");
	assert_true(is_readable(notify, 5000));
	assert_int_equal(recv(notify, text, sizeof(text), 0), 7);
	assert_string_equal(text, "READY=1");
	/* once it was ready, an exit is a death like others */
	say(&k, "exit 3");
	await_server(&k);
	assert_int_equal(end(&k, SIGINT), 128 + SIGINT);
	close(notify);
	unlink(path_in("notify"));
}

/* Whoever listens there starts another keeper, whose server needs the place. */
static void server_ends_with_a_keeper_of_systemds(void **state)
{
	struct kept_server k;

	setenv("NOTIFY_SOCKET", "/nonexistent/socket", 1);
	k = start(self, 0, NULL);
	unsetenv("NOTIFY_SOCKET");
	await_server(&k);
	replace_keeper(&k, 1);
	ok(&k, "put one text");
	assert_int_equal(kill(k.keeper, SIGKILL), 0);
	assert_int_equal(waitpid(k.keeper, NULL, 0), k.keeper);
	assert_true(is_readable(k.channel, 5000));
	assert_int_equal(recv(k.channel, &(char){0}, 1, 0), 0);
	/* ours to reap, as we are the subreaper */
	assert_int_equal(waitpid(k.server, NULL, 0), k.server);
	forget(&k);
}

static void wrong_configuration_ends_it(void **state)
{
	struct kept_server k = start(self, 0, "3");

	assert_int_equal(end(&k, 0), 3);
}

static uint64_t now_ms(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (uint64_t)now.tv_sec * 1000 + (uint64_t)now.tv_nsec / 1000000;
}

static void delays_are_kept(void **state)
{
	struct kept_server k = start(self, 150, NULL);
	uint64_t began;

	await_server(&k);
	began = now_ms();
	kill_server(&k);
	await_server(&k);
	assert_true(now_ms() - began >= 150);
	assert_int_equal(end(&k, SIGTERM), 7);
	/* told to stop while no server runs */
	k = start(self, 600000, NULL);
	await_server(&k);
	kill_server(&k);
	while (recv(k.channel, &(char){0}, 1, 0) > 0)
		;
	/* until the keeper has reaped it */
	while (kill(k.server, 0) == 0)
		usleep(1000);
	assert_int_equal(end(&k, SIGTERM), 0);
}

static void copy_file(const char *from, const char *to)
{
	cleanup_close int in = open(from, O_RDONLY | O_CLOEXEC);
	cleanup_close int out = open(to, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0700);
	char buffer[2048];
	ssize_t n;

	while ((n = read(in, buffer, sizeof(buffer))) > 0)
		assert_int_equal(write(out, buffer, (size_t)n), n);
	assert_int_equal(n, 0);
}

static void runs_on_without_its_file(void **state)
{
	char copy[128];
	struct kept_server k;

	snprintf(copy, sizeof(copy), "%s", path_in("copy"));
	copy_file(self, copy);
	k = start(copy, 0, NULL);
	await_server(&k);
	ok(&k, "put one text");
	unlink(copy);
	kill_server(&k);
	await_server(&k);
	assert_string_equal(ask(&k, "take one"), "=text");
	assert_int_equal(end(&k, SIGTERM), 7);
}

static void replaced_keeper_goes_on(void **state)
{
	struct kept_server k = start(self, 0, NULL);
	char running[TEXT_MAX + 8], ended[TEXT_MAX + 8], command[64], want[TEXT_MAX] = "=";
	pid_t server;
	int pid, tries = 0, fds;

	await_server(&k);
	fds = idle_keeper_fds(&k);
	snprintf(ended, sizeof(ended), "find %s", ask(&k, "own"));
	snprintf(running, sizeof(running), "find %s", ask(&k, "orphan"));
	ok(&k, "put one text");
	ok(&k, "append 0;");
	strcat(want, "0;");
	server = k.server;
	for (int i = 1; i <= 3; i++) {
		replace_keeper(&k, i);
		/* it is the same server, and is listened to */
		snprintf(command, sizeof(command), "append %d;", i);
		ok(&k, command);
		strcat(want, command + strlen("append "));
	}
	await_keeper_fds(&k, fds + 3);
	assert_int_equal(kill(server, 0), 0);
	ok(&k, "put two text");
	assert_int_equal(kill(k.keeper, SIGHUP), 0);
	assert_string_equal(hear(&k), "hup");
	kill_server(&k);
	await_server(&k);
	/* an orphan from before ends under the third keeper */
	pid = atoi(running + strlen("find "));
	assert_int_equal(kill(pid, SIGTERM), 0);
	while (kill(pid, 0) == 0 && tries++ < 5000)
		usleep(1000);
	replace_keeper(&k, 4);
	assert_memory_equal(ask(&k, running), "1 5 0 ", 6);
	assert_memory_equal(ask(&k, ended), "1 6 0 ", 6);
	assert_string_equal(ask(&k, "take one"), "=text");
	assert_string_equal(ask(&k, "take two"), "=text");
	assert_string_equal(ask(&k, "take shared.r"), want);
	assert_int_equal(end(&k, SIGTERM), 7);
}

/* Deaths of servers and messages at any moment of a replacement. */
static void deaths_while_it_is_replaced_lose_nothing(void **state)
{
	struct kept_server k = start(self, 0, NULL);
	char command[64], want[TEXT_MAX] = "=";

	for (int i = 0; i < 10; i++) {
		await_server(&k);
		assert_int_equal(kill(k.keeper, SIGUSR2), 0);
		usleep((unsigned)i * 1500);
		snprintf(command, sizeof(command), "put pipe-%d text-%d", i, i);
		ok(&k, command);
		snprintf(command, sizeof(command), "append %d;", i);
		ok(&k, command);
		strcat(want, command + strlen("append "));
		kill_server(&k);
	}
	await_server(&k);
	assert_string_equal(ask(&k, "take shared.r"), want);
	for (int i = 0; i < 10; i++) {
		snprintf(command, sizeof(command), "take pipe-%d", i);
		snprintf(want, sizeof(want), "=text-%d", i);
		assert_string_equal(ask(&k, command), want);
	}
	assert_true(count_in_log(&k, "keeper was replaced") > 0);
	assert_int_equal(end(&k, SIGTERM), 7);
}

static void replacing_keeps_the_delay(void **state)
{
	struct kept_server k = start(self, 400, NULL);
	uint64_t began;

	await_server(&k);
	began = now_ms();
	kill_server(&k);
	replace_keeper(&k, 1);
	await_server(&k);
	assert_true(now_ms() - began >= 400);
	assert_false(is_readable(k.listener, 100));
	assert_int_equal(end(&k, SIGTERM), 7);
}

static void write_file(const char *path, const char *text)
{
	cleanup_close int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0700);

	assert_int_equal(write(fd, text, strlen(text)), strlen(text));
}

static void bad_program_does_not_replace_it(void **state)
{
	static const char *const wrongs[] = {"version", "cut", "lost"};
	char copy[128], wrong[128], fresh[128];
	struct kept_server k;
	int refused = 0;

	snprintf(copy, sizeof(copy), "%s", path_in("copy"));
	snprintf(wrong, sizeof(wrong), "%s", path_in("wrong"));
	snprintf(fresh, sizeof(fresh), "%s", path_in("fresh"));
	copy_file(self, copy);
	k = start(copy, 0, NULL);
	await_server(&k);
	ok(&k, "put one text");
	for (size_t i = 0; i < sizeof(wrongs) / sizeof(*wrongs); i++) {
		write_file(wrong, wrongs[i]);
		assert_int_equal(kill(k.keeper, SIGUSR2), 0);
		await_log(&k, "not replaced", ++refused);
	}
	assert_int_equal(count_in_log(&k, "of version 99"), 1);
	/* one that hangs gives way to the next */
	write_file(wrong, "hangs");
	assert_int_equal(kill(k.keeper, SIGUSR2), 0);
	usleep(50000);
	unlink(wrong);
	replace_keeper(&k, 1);
	unlink(copy);
	assert_int_equal(kill(k.keeper, SIGUSR2), 0);
	await_log(&k, "not replaced", ++refused);
	for (int i = 0; i < 2; i++) {
		if (i == 0)
			write_file(fresh, "no program");
		else
			copy_file("/bin/true", fresh);
		assert_int_equal(rename(fresh, copy), 0);
		assert_int_equal(kill(k.keeper, SIGUSR2), 0);
		await_log(&k, "not replaced", ++refused);
	}
	ok(&k, "put two text");
	copy_file(self, fresh);
	assert_int_equal(rename(fresh, copy), 0);
	replace_keeper(&k, 2);
	kill_server(&k);
	await_server(&k);
	assert_string_equal(ask(&k, "take one"), "=text");
	assert_string_equal(ask(&k, "take two"), "=text");
	unlink(copy);
	assert_int_equal(end(&k, SIGTERM), 7);
}

static void full_keeper_goes_on(void **state)
{
	struct kept_server k = start_limited(self, 0, NULL, 200);
	int kept;

	await_server(&k);
	ok(&k, "many");
	kill_server(&k);
	await_server(&k);
	kept = atoi(ask(&k, "count-many"));
	assert_in_range(kept, 100, 200);
	assert_int_equal(count_in_log(&k, "is not kept"), MANY - kept);
	replace_keeper(&k, 1);
	kill_server(&k);
	await_server(&k);
	/* then there is place again */
	ok(&k, "sweep");
	ok(&k, "put one text");
	kill_server(&k);
	await_server(&k);
	assert_string_equal(ask(&k, "take one"), "=text");
	assert_int_equal(end(&k, SIGTERM), 7);
}

static void young_deaths_wait_longer_each_time(void **state)
{
	struct kept_server k = start(self, KEEPER_DELAY_AUTO, NULL);

	/* 0, 10, 20, 40, 80 ms */
	for (uint64_t least = 0; least <= 80; least = least ? 2 * least : 10) {
		uint64_t began;

		await_server(&k);
		began = now_ms();
		kill_server(&k);
		assert_true(is_readable(k.listener, 20000));
		/* both clocks are cut to whole milliseconds */
		assert_true(now_ms() - began + 1 >= least);
	}
	await_server(&k);
	assert_int_equal(end(&k, SIGTERM), 7);
}

static int count_fds(void)
{
	DIR *fds = opendir("/proc/self/fd");
	int n = 0;

	while (readdir(fds))
		n++;
	closedir(fds);
	return n;
}

static int setup(void **state)
{
	*state = (void *)(intptr_t)count_fds();
	return 0;
}

static int teardown(void **state)
{
	pid_t left = 0;

	assert_int_equal(count_fds(), (intptr_t)*state);
	/* what a keeper was about to end becomes ours when it ends first */
	for (int i = 0; i < 2000 && (left = waitpid(-1, NULL, WNOHANG)) >= 0; i++)
		usleep(left ? 0 : 1000);
	assert_int_equal(left, -1);
	return 0;
}

static int group_setup(void **state)
{
	struct rlimit limit;

	signal(SIGPIPE, SIG_IGN);
	/* a shell without job control starts what is in the background with it ignored, and keepers
	 * inherit that from here */
	signal(SIGINT, SIG_DFL);
	prctl(PR_SET_CHILD_SUBREAPER, 1);
	if (getrlimit(RLIMIT_NOFILE, &limit) < 0)
		return -1;
	limit.rlim_cur = limit.rlim_max;
	setrlimit(RLIMIT_NOFILE, &limit);
	if (readlink("/proc/self/exe", self, sizeof(self) - 1) < 0)
		return -1;
	return mkdtemp(dir) ? 0 : -1;
}

static int group_teardown(void **state)
{
	unlink(address_in(dir).sun_path);
	return rmdir(dir);
}

#define test(fn) cmocka_unit_test_setup_teardown(fn, setup, teardown)

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		test(fifty_kills_lose_nothing),
		test(three_thousand_come_back),
		test(names_are_replaced_and_dropped),
		test(what_is_owned_is_not_swept),
		test(strangers_are_not_obeyed),
		test(orphans_are_recorded),
		test(reaped_child_is_recorded),
		test(signals_reach_the_server),
		test(systemd_is_given_what_it_can_pass),
		test(server_ends_with_a_keeper_of_systemds),
		test(wrong_configuration_ends_it),
		test(delays_are_kept),
		test(runs_on_without_its_file),
		test(replaced_keeper_goes_on),
		test(deaths_while_it_is_replaced_lose_nothing),
		test(replacing_keeps_the_delay),
		test(bad_program_does_not_replace_it),
		test(full_keeper_goes_on),
		test(young_deaths_wait_longer_each_time),
	};

	if (argc > 2 && strcmp(argv[1], "--server") == 0)
		return server_main(argv + 2);
	if (argc > 3 && strcmp(argv[1], "--keeper") == 0)
		return keeper_alone(argv);
	if (argc > 3 && strcmp(argv[1], "--keep") == 0)
		return keeper_again(argv);
	return RUN_GROUP(tests, group_setup, group_teardown);
}
