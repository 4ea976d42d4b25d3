/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Children by pidfd. Peculiar: the child of clone(CLONE_VM|CLONE_VFORK) shares our memory until it
 * executes, so it uses only system calls and its own stack; its errno comes back in shared memory.
 */
#include "io/process.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "io/base/alloc.h"
#include "io/base/cleanup.h"
#include "io/procfs.h"

#ifndef P_PIDFD
#define P_PIDFD 3
#endif
#define CHILD_STACK (64 * 1024)

struct launch {
	const struct process_spec *spec;
	int *fds; /* what shall be 0, 1, 2, 3 …, all above that range */
	int exe;  /* above it too, or -1 */
	size_t count;
	int error;
};

/* Helpers work for us, but are no loss. Refused where we are more exposed ourselves. */
static void leave_oom_score(void)
{
	(void)procfs_write("self/oom_score_adj", "0");
}

static int child_main(void *arg)
{
	static const char *const no_env[] = {NULL};
	struct launch *l = arg;
	const struct process_spec *s = l->spec;
	char *const *argv = (char *const *)s->argv;
	char *const *envp = (char *const *)(s->envp ? s->envp : (const char **)no_env);
	struct sigaction dfl = {.sa_handler = SIG_DFL};
	sigset_t none;

	for (int sig = 1; sig < NSIG; sig++)
		sigaction(sig, &dfl, NULL);
	sigemptyset(&none);
	sigprocmask(SIG_SETMASK, &none, NULL);
	leave_oom_score();
	if (s->new_group)
		setpgid(0, 0);
	for (size_t i = 0; i < l->count; i++)
		if (dup2(l->fds[i], (int)i) < 0)
			goto fail;
	/* the executable's own descriptor is close-on-exec; all others close here, whatever
	 * their flags */
	if (l->exe < 0)
		syscall(SYS_close_range, (unsigned)l->count, ~0u, 0);
	else
		syscall(SYS_close_range, (unsigned)l->count, ~0u, CLOSE_RANGE_CLOEXEC);
	if (l->exe >= 0)
		syscall(SYS_execveat, l->exe, "", argv, envp, AT_EMPTY_PATH);
	else
		execve(s->path, argv, envp);
fail:
	l->error = errno;
	_exit(127);
}

/* Moves every descriptor above the target range first, so that no dup2 overwrites a later source.
 */
static int lift_fds(struct launch *l, const struct process_spec *s, struct error *err)
{
	int floor = (int)l->count;

	for (size_t i = 0; i < l->count; i++) {
		int fd = i < 3 ? s->stdio[i] : s->extra[i - 3];
		cleanup_close int null = -1;

		if (fd < 0) {
			null = open("/dev/null", O_RDWR | O_CLOEXEC);
			fd = null;
		}
		l->fds[i] = fcntl(fd, F_DUPFD_CLOEXEC, floor);
		if (l->fds[i] < 0)
			return error_errno(err, errno, "descriptor %zu for %s", i, s->argv[0]);
	}
	if (s->exe_fd < 0)
		return 0;
	l->exe = fcntl(s->exe_fd, F_DUPFD_CLOEXEC, floor);
	return l->exe < 0 ? error_errno(err, errno, "executable of %s", s->argv[0]) : 0;
}

static int launch_child(struct launch *l, int *ret_pidfd, pid_t *ret_pid, struct error *err)
{
	char *stack = mmap(NULL, CHILD_STACK, PROT_READ | PROT_WRITE,
			   MAP_PRIVATE | MAP_ANONYMOUS | MAP_STACK, -1, 0);
	int pidfd = -1;
	sigset_t every, old;
	pid_t pid;

	if (stack == MAP_FAILED)
		return error_errno(err, errno, "stack to start %s", l->spec->argv[0]);
	/* no handler of ours may run in the child while it shares our memory */
	sigfillset(&every);
	pthread_sigmask(SIG_SETMASK, &every, &old);
	pid = clone(child_main, stack + CHILD_STACK, CLONE_VM | CLONE_VFORK | CLONE_PIDFD | SIGCHLD,
		    l, &pidfd);
	l->error = pid < 0 ? errno : l->error;
	pthread_sigmask(SIG_SETMASK, &old, NULL);
	munmap(stack, CHILD_STACK);
	if (pid < 0)
		return error_errno(err, l->error, "start %s", l->spec->argv[0]);
	if (l->error) {
		siginfo_t info;

		waitid((idtype_t)P_PIDFD, (id_t)pidfd, &info, WEXITED);
		close(pidfd);
		return error_errno(err, l->error, "execute %s", l->spec->argv[0]);
	}
	*ret_pidfd = pidfd;
	*ret_pid = pid;
	return 0;
}

int process_start(const struct process_spec *spec, int *ret_pidfd, pid_t *ret_pid,
		  struct error *err)
{
	struct launch l = {.spec = spec, .count = 3 + spec->extra_count, .exe = -1};
	int r;

	l.fds = xmalloc(l.count * sizeof(*l.fds));
	for (size_t i = 0; i < l.count; i++)
		l.fds[i] = -1;
	r = lift_fds(&l, spec, err);
	if (r == 0)
		r = launch_child(&l, ret_pidfd, ret_pid, err);
	for (size_t i = 0; i < l.count; i++)
		close_fd(l.fds[i]);
	close_fd(l.exe);
	free(l.fds);
	return r;
}

struct process_exit process_exit_of_status(int status)
{
	if (WIFSIGNALED(status))
		return (struct process_exit){.code = 128 + WTERMSIG(status),
					     .signal = WTERMSIG(status),
					     .has_core = WCOREDUMP(status)};
	return (struct process_exit){.code = WEXITSTATUS(status)};
}

int process_reap(int pidfd, struct process_exit *ret_exit, struct error *err)
{
	siginfo_t info = {0};

	if (waitid((idtype_t)P_PIDFD, (id_t)pidfd, &info, WEXITED | WNOHANG) < 0) {
		if (errno == ECHILD)
			return 0;
		return error_errno(err, errno, "wait for a child");
	}
	if (!info.si_pid)
		return 0;
	*ret_exit = (struct process_exit){.code = info.si_status};
	if (info.si_code != CLD_EXITED) {
		ret_exit->signal = info.si_status;
		ret_exit->code = 128 + info.si_status;
		ret_exit->has_core = info.si_code == CLD_DUMPED;
	}
	return 1;
}

int process_wait(struct task *t, int pidfd, struct process_exit *ret_exit)
{
	int r = process_reap(pidfd, ret_exit, &t->err);

	if (r == 0) {
		TRY(task_wait_fd(t, pidfd, LOOP_READ));
		r = process_reap(pidfd, ret_exit, &t->err);
	}
	if (r == 0)
		return error_set(&t->err, ERR_INTERNAL,
				 "wait for a process: it is no child of this server");
	return r < 0 ? r : 0;
}

int process_signal(int pidfd, int signal, struct error *err)
{
	if (syscall(SYS_pidfd_send_signal, pidfd, signal, NULL, 0) < 0 && errno != ESRCH)
		return error_errno(err, errno, "send signal %d", signal);
	return 0;
}

int process_open(pid_t pid, int *ret_pidfd, struct error *err)
{
	int fd = (int)syscall(SYS_pidfd_open, pid, 0);

	if (fd < 0 && errno == ESRCH)
		return error_set(err, ERR_NOT_FOUND, "process %d is gone", pid);
	if (fd < 0)
		return error_errno(err, errno, "pidfd of process %d", pid);
	*ret_pidfd = fd;
	return 0;
}
