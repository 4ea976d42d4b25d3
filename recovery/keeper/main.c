/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The keeper's program, embedded in crispd and linked to the C library only: crispd itself would
 * take ten times its private memory by merely loading its libraries. It is executed by
 * recovery/keeper.c. Peculiar: a new server gets the kept descriptors in rising order: dup2() to 6,
 * 7, … then never hits one that is still to be moved, since the n-th of them can't have a lower
 * number.
 *
 *     3 names, 4 exit records, 5 the server's end of the socket: fixed, as the server gets them
 *     6 our end, 7 signals, 9 what is handed over: ours; 8 the server's program, inherited
 *     from 10 on: what is kept
 */
#include "recovery/keeper.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "io/base/alloc.h"
#include "io/base/error.h"
#include "io/base/log.h"
#include "recovery/exit_records.h"
#include "recovery/fdstore.h"
#include "recovery/keeper/handover.h"
#include "recovery/keeper/systemd.h"
#include "recovery/keeper/table.h"
#include "recovery/proc_stat.h"

enum {
	NAMES_FD = 3,
	EXITS_FD,
	SERVER_SOCKET_FD,
	SOCKET_FD,
	SIGNAL_FD,
};

#define PASSED_FIXED 3 /* names, exits, socket */
#define MESSAGE_MAX 4096
#define FDS_A_MESSAGE 253 /* SCM_MAX_FD */
#define YOUNG_NS 1000000000
#define DELAY_MAX_MS 1000
/* What a program may take to say that it can take over. */
#define TRIAL_SECONDS 20

static struct {
	char **argv, **envp;	     /* the server's */
	char **own_argv, **own_envp; /* to execute the keeper again */
	char own_state[32];
	const char *path; /* of the program */
	char listen_pid[32], listen_fds[32];
	struct exit_records *exits;
	sigset_t old_signals;
	pid_t server; /* 0: none runs */
	uint64_t started_at, start_at;
	int forced_delay_ms; /* or KEEPER_DELAY_AUTO */
	int delay_ms;	     /* of the next young death */
	bool was_ready, is_stopping, is_done;
	int result;
	int next_program; /* may become the keeper's; -1: none */
	pid_t trial;	  /* runs it to see whether it can, 0: none */
	bool is_replaced; /* it can */
} keeper = {.next_program = -1};

static uint64_t now_ns(clockid_t clock)
{
	struct timespec now;

	clock_gettime(clock, &now);
	return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

/* ---- messages ---- */

struct message {
	char text[MESSAGE_MAX + 1];
	int fds[FDS_A_MESSAGE];
	size_t fd_count;
	pid_t sender;
	bool is_cut; /* descriptors were lost */
};

static struct message message;

/* The value of KEY= at the line's beginning, or NULL. */
static const char *value_of(const char *line, const char *key)
{
	size_t length = strlen(key);

	return strncmp(line, key, length) == 0 && line[length] == '=' ? line + length + 1 : NULL;
}

static bool is_set(const char *line, const char *key)
{
	const char *value = value_of(line, key);

	return value && strcmp(value, "1") == 0;
}

static void note_ready(void)
{
	if (keeper.was_ready)
		return;
	keeper.was_ready = true;
	systemd_notify_ready();
}

/* Descriptors of a message that doesn't say to keep them are closed: so BARRIER=1 works, whose
 * sender waits for just that. */
static void drop_fds(struct message *m)
{
	for (size_t i = 0; i < m->fd_count; i++)
		close(m->fds[i]);
	m->fd_count = 0;
}

static void keep_message_fds(struct message *m, const char *name)
{
	if (m->is_cut)
		log_error("keeper: %s is not kept: too many descriptors are open", name);
	table_forget(name);
	for (size_t i = 0; i < m->fd_count; i++)
		table_keep(name, m->fds[i]);
	m->fd_count = 0;
}

static void obey(struct message *m)
{
	const char *name = "stored"; /* sd_pid_notify_with_fds(3) */
	bool keep = false, remove = false;
	char *rest = m->text, *line;

	while ((line = strsep(&rest, "\n"))) {
		keep |= is_set(line, "FDSTORE");
		remove |= is_set(line, "FDSTOREREMOVE");
		if (value_of(line, "FDNAME"))
			name = value_of(line, "FDNAME");
		if (is_set(line, "READY"))
			note_ready();
	}
	if (!*name || strlen(name) > FDSTORE_NAME_MAX)
		log_error("keeper: a descriptor's name is empty or too long; not kept");
	else if (keep)
		keep_message_fds(m, name);
	else if (remove)
		table_forget(name);
}

static void take_control(struct message *m, struct msghdr *header)
{
	for (struct cmsghdr *c = CMSG_FIRSTHDR(header); c; c = CMSG_NXTHDR(header, c)) {
		struct ucred who;

		if (c->cmsg_level != SOL_SOCKET)
			continue;
		if (c->cmsg_type == SCM_CREDENTIALS) {
			memcpy(&who, CMSG_DATA(c), sizeof(who));
			m->sender = who.pid;
		} else if (c->cmsg_type == SCM_RIGHTS) {
			m->fd_count = (c->cmsg_len - CMSG_LEN(0)) / sizeof(int);
			memcpy(m->fds, CMSG_DATA(c), m->fd_count * sizeof(int));
		}
	}
}

/* False when there is none. */
static bool receive(struct message *m)
{
	static union {
		struct cmsghdr header;
		char space[CMSG_SPACE(sizeof(int) * FDS_A_MESSAGE) +
			   CMSG_SPACE(sizeof(struct ucred))];
	} control;
	struct iovec iov = {.iov_base = m->text, .iov_len = MESSAGE_MAX};
	struct msghdr header = {.msg_iov = &iov,
				.msg_iovlen = 1,
				.msg_control = &control,
				.msg_controllen = sizeof(control.space)};
	ssize_t n;

	do
		n = recvmsg(SOCKET_FD, &header, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
	while (n < 0 && errno == EINTR);
	if (n < 0)
		return false;
	m->text[n] = '\0';
	m->fd_count = 0;
	m->sender = 0;
	m->is_cut = header.msg_flags & MSG_CTRUNC;
	take_control(m, &header);
	return true;
}

static void take_messages(void)
{
	while (receive(&message)) {
		if (keeper.server && message.sender == keeper.server)
			obey(&message);
		drop_fds(&message);
	}
}

/* ---- the server ---- */

static void write_names(void)
{
	static char buffer[4096];
	size_t used = 0;
	off_t at = 0;
	int count = 0;

	for (int fd = table_next(TABLE_FIRST); fd >= 0; fd = table_next(fd + 1)) {
		size_t length = strlen(table_name(fd)) + 1;

		if (used + length > sizeof(buffer)) {
			at += pwrite(NAMES_FD, buffer, used, at);
			used = 0;
		}
		memcpy(buffer + used, table_name(fd), length);
		used += length;
		count++;
	}
	at += pwrite(NAMES_FD, buffer, used, at);
	if (ftruncate(NAMES_FD, at) < 0)
		log_error("keeper: names of descriptors: %s", strerror(errno));
	snprintf(keeper.listen_fds, sizeof(keeper.listen_fds), "LISTEN_FDS=%d",
		 count + PASSED_FIXED);
}

/* In the child: everything that is passed at its number, without close-on-exec. */
static void place_fds(void)
{
	int to = NAMES_FD + PASSED_FIXED;

	for (int fd = NAMES_FD; fd < NAMES_FD + PASSED_FIXED; fd++)
		fcntl(fd, F_SETFD, 0);
	for (int fd = table_next(TABLE_FIRST); fd >= 0; fd = table_next(fd + 1)) {
		if (fd == to)
			fcntl(fd, F_SETFD, 0);
		else
			dup2(fd, to);
		to++;
	}
}

static void become_server(void)
{
	int program = fcntl(KEEPER_PROGRAM_FD, F_DUPFD_CLOEXEC, table_end());

	snprintf(keeper.listen_pid, sizeof(keeper.listen_pid), "LISTEN_PID=%d", getpid());
	place_fds();
	/* systemd starts another keeper, whose server needs the place of this one */
	if (getenv("NOTIFY_SOCKET"))
		prctl(PR_SET_PDEATHSIG, SIGTERM);
	signal(SIGPIPE, SIG_DFL);
	sigprocmask(SIG_SETMASK, &keeper.old_signals, NULL);
	execve(keeper.path, keeper.argv, keeper.envp);
	if (program >= 0)
		syscall(SYS_execveat, program, "", keeper.argv, keeper.envp, AT_EMPTY_PATH);
	log_error("keeper: execute the server %s: %s", keeper.path, strerror(errno));
	_exit(127);
}

static void start_server(void)
{
	pid_t pid;

	write_names();
	keeper.started_at = now_ns(CLOCK_MONOTONIC);
	pid = fork();
	if (pid == 0)
		become_server();
	if (pid < 0) {
		log_error("keeper: start the server: %s; trying again", strerror(errno));
		keeper.start_at = keeper.started_at + DELAY_MAX_MS * 1000000ull;
		return;
	}
	keeper.server = pid;
}

static int next_delay(uint64_t lived_ns)
{
	int delay = keeper.delay_ms;

	if (keeper.forced_delay_ms != KEEPER_DELAY_AUTO)
		return keeper.forced_delay_ms;
	if (lived_ns >= YOUNG_NS)
		delay = 0;
	keeper.delay_ms = delay ? 2 * delay : 10;
	if (keeper.delay_ms > DELAY_MAX_MS)
		keeper.delay_ms = DELAY_MAX_MS;
	return delay;
}

static void end_with(int status)
{
	keeper.is_done = true;
	keeper.result = WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
}

/* Its last messages first: they are obeyed only while its pid is the server's. */
static void lose_server(int status)
{
	uint64_t now = now_ns(CLOCK_MONOTONIC);
	int delay;

	take_messages();
	keeper.server = 0;
	if (keeper.is_stopping || (WIFEXITED(status) && !keeper.was_ready)) {
		end_with(status);
		return;
	}
	delay = next_delay(now - keeper.started_at);
	keeper.start_at = now + (uint64_t)delay * 1000000u;
	log_warning("the server ended (%s %d); starting it again after %d ms",
		    WIFSIGNALED(status) ? "signal" : "exit code",
		    WIFSIGNALED(status) ? WTERMSIG(status) : WEXITSTATUS(status), delay);
}

/* ---- another program in our place ---- */

/* Everything stays open over an execution, or nothing that is kept does. */
static void set_inherited(bool is_inherited)
{
	if (!is_inherited) {
		syscall(SYS_close_range, NAMES_FD, ~0u, CLOSE_RANGE_CLOEXEC);
		return;
	}
	for (int fd = NAMES_FD; fd < TABLE_FIRST; fd++)
		fcntl(fd, F_SETFD, 0);
	for (int fd = table_next(TABLE_FIRST); fd >= 0; fd = table_next(fd + 1))
		fcntl(fd, F_SETFD, 0);
}

static int write_state(struct error *err)
{
	struct handover h = {
		.server = keeper.server,
		.delay_ms = keeper.delay_ms,
		.was_ready = keeper.was_ready,
		.started_at = keeper.started_at,
		.start_at = keeper.start_at,
	};

	memcpy(&h.old_signals, &keeper.old_signals, sizeof(h.old_signals));
	return handover_write(&h, err);
}

/* Returns if it can't be executed. */
static void execute_next(const char *state)
{
	snprintf(keeper.own_state, sizeof(keeper.own_state), "%s=%s", KEEPER_STATE_VARIABLE, state);
	set_inherited(true);
	syscall(SYS_execveat, keeper.next_program, "", keeper.own_argv, keeper.own_envp,
		AT_EMPTY_PATH);
}

static void drop_next(void)
{
	if (keeper.next_program >= 0)
		close(keeper.next_program);
	keeper.next_program = -1;
	if (keeper.trial)
		kill(keeper.trial, SIGKILL);
	/* give its memory back */
	if (ftruncate(KEEPER_STATE_FD, 0) < 0)
		log_error("keeper: empty what is handed over: %s", strerror(errno));
}

/* A program is executed in our place only after a child that executed the very same one, with all
 * that we have, said that it can take over. */
static void try_next_program(void)
{
	struct error err = {0};

	drop_next();
	keeper.next_program = open(keeper.path, O_PATH | O_CLOEXEC);
	if (keeper.next_program < 0) {
		log_error("keeper: not replaced: open %s: %s", keeper.path, strerror(errno));
		return;
	}
	if (write_state(&err) < 0) {
		log_error("%s; not replaced", err.text);
		return;
	}
	keeper.trial = fork();
	if (keeper.trial == 0) {
		sigprocmask(SIG_SETMASK, &keeper.old_signals, NULL);
		alarm(TRIAL_SECONDS);
		execute_next(KEEPER_STATE_CHECK);
		_exit(127);
	}
	if (keeper.trial < 0) {
		log_error("keeper: not replaced: %s", strerror(errno));
		keeper.trial = 0;
	}
}

static void end_trial(int status)
{
	keeper.trial = 0;
	if (keeper.next_program < 0 || keeper.is_stopping)
		return;
	keeper.is_replaced = WIFEXITED(status) && WEXITSTATUS(status) == KEEPER_CAN_TAKE_OVER;
	if (keeper.is_replaced)
		return;
	drop_next();
	log_error("keeper: not replaced: %s can't take over (%s %d), so this one goes on",
		  keeper.path, WIFSIGNALED(status) ? "signal" : "exit code",
		  WIFSIGNALED(status) ? WTERMSIG(status) : WEXITSTATUS(status));
}

static void replace_self(void)
{
	struct error err = {0};

	keeper.is_replaced = false;
	if (write_state(&err) == 0) {
		execute_next(KEEPER_STATE_TAKE);
		error_errno(&err, errno, "execute %s", keeper.path);
		set_inherited(false);
	}
	log_error("keeper: not replaced: %s", err.text);
	drop_next();
}

/* ---- children and signals ---- */

static void record(pid_t pid, int status)
{
	struct exit_record r = {
		.pid = pid, .status = status, .ended_at = (int64_t)now_ns(CLOCK_REALTIME)};
	struct proc_stat stat;
	int fd = proc_stat_open(pid);

	if (fd >= 0 && proc_stat_read(fd, &stat) == 0)
		r.started = stat.started;
	if (fd >= 0)
		close(fd);
	exit_records_add(keeper.exits, &r);
}

/* A zombie is recorded before it is reaped, so that whoever finds it gone finds the record. */
static void reap_children(void)
{
	for (;;) {
		siginfo_t info = {0};
		int status;

		if (waitid(P_ALL, 0, &info, WEXITED | WNOHANG | WNOWAIT) < 0 || !info.si_pid)
			return;
		status = exit_record_status(&info);
		if (info.si_pid == keeper.server)
			lose_server(status);
		else if (info.si_pid == keeper.trial)
			end_trial(status);
		else
			record(info.si_pid, status);
		waitpid(info.si_pid, NULL, 0);
	}
}

static void take_signals(void)
{
	struct signalfd_siginfo s;

	while (read(SIGNAL_FD, &s, sizeof(s)) == sizeof(s)) {
		int sig = (int)s.ssi_signo;

		if (sig == SIGCHLD)
			continue;
		if (sig == SIGUSR2) {
			try_next_program();
			continue;
		}
		if (sig == SIGTERM || sig == SIGINT)
			keeper.is_stopping = true;
		if (keeper.server)
			kill(keeper.server, sig);
		else if (keeper.is_stopping)
			keeper.is_done = true;
	}
	reap_children();
}

/* ---- start ---- */

/* fd: SIGNAL_FD, or -1 to make it. */
static int take_signals_by(int fd, struct error *err)
{
	sigset_t signals;

	sigemptyset(&signals);
	for (const int *s = (const int[]){SIGCHLD, SIGTERM, SIGINT, SIGHUP, SIGUSR1, SIGUSR2, 0};
	     *s; s++)
		sigaddset(&signals, *s);
	if (sigprocmask(SIG_BLOCK, &signals, NULL) < 0 ||
	    signalfd(fd, &signals, SFD_CLOEXEC | SFD_NONBLOCK) != SIGNAL_FD)
		return error_errno(err, errno, "keeper: signals");
	return 0;
}

/* Those that systemd passed, or new ones. */
static int open_exits(struct error *err)
{
	int fd, passed = table_find(SYSTEMD_EXITS_NAME);

	if (passed >= 0) {
		fd = fcntl(passed, F_DUPFD_CLOEXEC, EXITS_FD);
		keeper.exits = exit_records_map(fd, err);
		table_forget(SYSTEMD_EXITS_NAME);
		if (keeper.exits)
			return fd;
		log_error("keeper: how some containers ended is forgotten: %s", err->text);
		close(fd);
	}
	keeper.exits = exit_records_new(&fd, err);
	return keeper.exits ? fd : -(int)err->code;
}

static int open_fixed(struct error *err)
{
	int pair[2], fd, one = 1;

	if (memfd_create("crisp-names", MFD_CLOEXEC) != NAMES_FD)
		return error_errno(err, errno, "keeper: memory for names");
	fd = open_exits(err);
	if (fd < 0)
		return fd;
	if (socketpair(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0, pair) < 0 ||
	    setsockopt(pair[1], SOL_SOCKET, SO_PASSCRED, &one, sizeof(one)) < 0)
		return error_errno(err, errno, "keeper: socket");
	sigprocmask(SIG_BLOCK, NULL, &keeper.old_signals);
	TRY(take_signals_by(-1, err));
	if (fcntl(KEEPER_PROGRAM_FD, F_SETFD, FD_CLOEXEC) < 0)
		return error_errno(err, errno, "keeper: the server's program");
	if (memfd_create("crisp-keeper-state", MFD_CLOEXEC) != KEEPER_STATE_FD)
		return error_errno(err, errno, "keeper: memory to hand over");
	if (fd != EXITS_FD || pair[0] != SERVER_SOCKET_FD || pair[1] != SOCKET_FD)
		return error_set(err, ERR_INTERNAL, "keeper: descriptors are not where expected");
	set_inherited(false);
	return 0;
}

/* What the keeper before us, in this process, had. is_trial: it is another process, which goes on.
 */
static int take_over(bool is_trial, struct error *err)
{
	struct handover h;

	TRY(handover_check(&h, err));
	keeper.exits = exit_records_map(EXITS_FD, err);
	if (!keeper.exits)
		return -(int)err->code;
	if (is_trial)
		exit(KEEPER_CAN_TAKE_OVER);
	TRY(take_signals_by(SIGNAL_FD, err));
	handover_take(&h);
	set_inherited(false);
	keeper.server = h.server;
	keeper.delay_ms = h.delay_ms;
	keeper.was_ready = h.was_ready;
	keeper.started_at = h.started_at;
	keeper.start_at = h.start_at;
	memcpy(&keeper.old_signals, &h.old_signals, sizeof(h.old_signals));
	drop_next();
	log_info("the keeper was replaced and goes on");
	return 0;
}

/* All but what is kept, and the server's program. */
static void close_inherited(void)
{
	for (int fd; (fd = open("/dev/null", O_RDWR)) >= 0 && fd <= 2;)
		;
	syscall(SYS_close_range, 3, KEEPER_PROGRAM_FD - 1, 0);
	close(KEEPER_STATE_FD);
	table_close_others();
}

/* As high as it may be, and no higher than the table. */
static void raise_fd_limit(void)
{
	struct rlimit limit;

	if (getrlimit(RLIMIT_NOFILE, &limit) < 0)
		return;
	limit.rlim_cur = limit.rlim_max < KEEPER_FD_MAX ? limit.rlim_max : KEEPER_FD_MAX;
	setrlimit(RLIMIT_NOFILE, &limit);
}

static bool is_for_us(const char *variable)
{
	static const char *const names[] = {"LISTEN_PID",	  "LISTEN_FDS", "LISTEN_FDNAMES",
					    "NOTIFY_SOCKET",	  "FDSTORE",	KEEPER_VARIABLE,
					    KEEPER_STATE_VARIABLE};

	for (size_t i = 0; i < sizeof(names) / sizeof(*names); i++)
		if (value_of(variable, names[i]))
			return true;
	return false;
}

static void make_environment(void)
{
	static char names[] = "LISTEN_FDNAMES=crisp-names:crisp-exits:crisp-keeper";
	size_t count = 0, kept = 0, own = 0;

	while (environ[count])
		count++;
	keeper.envp = xcalloc(count + 4, sizeof(char *));
	keeper.own_envp = xcalloc(count + 2, sizeof(char *));
	for (size_t i = 0; i < count; i++) {
		if (!is_for_us(environ[i]))
			keeper.envp[kept++] = environ[i];
		/* what was passed is the table's by then */
		if (!value_of(environ[i], KEEPER_STATE_VARIABLE) &&
		    strncmp(environ[i], "LISTEN_", 7) != 0)
			keeper.own_envp[own++] = environ[i];
	}
	keeper.own_envp[own] = keeper.own_state;
	keeper.envp[kept++] = keeper.listen_pid;
	keeper.envp[kept++] = keeper.listen_fds;
	keeper.envp[kept] = names;
}

static void wait_for_something(void)
{
	struct pollfd fds[] = {{.fd = SOCKET_FD, .events = POLLIN},
			       {.fd = SIGNAL_FD, .events = POLLIN}};
	int timeout_ms = -1;

	if (!keeper.server) {
		uint64_t now = now_ns(CLOCK_MONOTONIC);

		timeout_ms = keeper.start_at > now
				     ? (int)((keeper.start_at - now + 999999) / 1000000)
				     : 0;
	}
	poll(fds, 2, timeout_ms);
}

/* KEEPER_VARIABLE is "delay path". */
static bool read_orders(void)
{
	char *orders = getenv(KEEPER_VARIABLE), *rest;

	if (!orders)
		return false;
	keeper.forced_delay_ms = (int)strtol(orders, &rest, 10);
	keeper.path = rest + 1;
	return *rest == ' ';
}

/* argv: the server's, with --keep after the first, so that ps shows what was asked for. */
static void make_arguments(int argc, char **argv)
{
	keeper.own_argv = argv;
	keeper.argv = xcalloc((size_t)argc, sizeof(char *));
	keeper.argv[0] = argv[0];
	memcpy(keeper.argv + 1, argv + 2, ((size_t)argc - 2) * sizeof(char *));
}

static int start(struct error *err)
{
	const char *state = getenv(KEEPER_STATE_VARIABLE);

	raise_fd_limit();
	table_init();
	if (state)
		return take_over(strcmp(state, KEEPER_STATE_CHECK) == 0, err);
	systemd_take();
	close_inherited();
	return open_fixed(err);
}

int main(int argc, char **argv)
{
	struct error err = {0};

	if (argc < 2 || !read_orders()) {
		log_error("this is crispd's keeper: run crispd --keep");
		return 1;
	}
	prctl(PR_SET_NAME, "crispd-keeper");
	prctl(PR_SET_CHILD_SUBREAPER, 1);
	signal(SIGPIPE, SIG_IGN);
	make_arguments(argc, argv);
	make_environment();
	if (start(&err) < 0) {
		log_error("%s", err.text);
		return 1;
	}
	/* also before us */
	reap_children();
	while (!keeper.is_done) {
		if (!keeper.server && now_ns(CLOCK_MONOTONIC) >= keeper.start_at)
			start_server();
		wait_for_something();
		take_messages();
		take_signals();
		if (keeper.is_replaced)
			replace_self();
	}
	systemd_give(EXITS_FD);
	return keeper.result;
}
