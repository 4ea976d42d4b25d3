/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Asking everybody who may know how a process ended. Peculiar: the process may be reaped between
 * two questions, so the one that a reaped process answers (PIDFD_GET_INFO) is asked again after the
 * one that a zombie answers; the keeper writes its record before it reaps, so that comes last.
 */
#include "recovery/exit_status.h"

#include <errno.h>
#include <poll.h>
#include <sched.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "io/base/cleanup.h"
#include "recovery/exit_records.h"
#include "recovery/fdstore.h"
#include "recovery/proc_stat.h"

#ifndef P_PIDFD
#define P_PIDFD 3
#endif

/* linux/pidfd.h of 6.15: struct pidfd_info as of its first version. */
struct pidfd_info_v0 {
	uint64_t mask;
	uint64_t cgroup_id;
	uint32_t ids[11]; /* pid, tgid, ppid, real, effective, saved and fs uid and gid */
	int32_t exit_code;
};

#define PIDFD_GET_INFO_V0 _IOWR(0xFF, 11, struct pidfd_info_v0)
#define PIDFD_INFO_EXIT_BIT (1u << 3)

enum probe { NOT_PROBED, HAS_IT, LACKS_IT };

static enum probe info_probe;

/* The wait status of a process that was reaped. */
static bool ask_pidfd(int pidfd, int *ret_status)
{
	struct pidfd_info_v0 info = {.mask = PIDFD_INFO_EXIT_BIT};

	if (ioctl(pidfd, PIDFD_GET_INFO_V0, &info) < 0 || !(info.mask & PIDFD_INFO_EXIT_BIT))
		return false;
	*ret_status = info.exit_code;
	return true;
}

static int probe_child(void *arg)
{
	return 42;
}

/* Only a process that ended shows whether its end can be read: kernels 6.13 and 6.14 have the call
 * but not this answer. The child sends no signal, and its parent waits until it is gone. */
static enum probe probe_info(void)
{
	static _Alignas(16) char stack[16384];
	int pidfd = -1, status;
	siginfo_t ended;
	enum probe result = LACKS_IT;

	if (clone(probe_child, stack + sizeof(stack), CLONE_VM | CLONE_VFORK | CLONE_PIDFD, NULL,
		  &pidfd) < 0)
		return LACKS_IT;
	if (waitid((idtype_t)P_PIDFD, (id_t)pidfd, &ended, WEXITED | __WALL) == 0 &&
	    ask_pidfd(pidfd, &status) && WIFEXITED(status) && WEXITSTATUS(status) == 42)
		result = HAS_IT;
	close(pidfd);
	return result;
}

bool exit_status_has_pidfd_info(void)
{
	const char *off = getenv("CRISP_NO_PIDFD_INFO");

	if (info_probe == NOT_PROBED)
		info_probe = off && *off == '1' ? LACKS_IT : probe_info();
	return info_probe == HAS_IT;
}

void exit_status_pretend_old_kernel(void)
{
	info_probe = LACKS_IT;
}

static bool was_reaped(int pidfd)
{
	return syscall(SYS_pidfd_send_signal, pidfd, 0, NULL, 0) < 0 && errno == ESRCH;
}

/* Reads the stat of pidfd's process. If the process is not reaped after the file was opened, then
 * pid was its own when it was opened, and the file is of this process for good. -ESRCH when reaped.
 */
static int read_stat(int pidfd, pid_t pid, struct proc_stat *ret)
{
	cleanup_close int fd = proc_stat_open(pid);

	if (was_reaped(pidfd) || fd == -ENOENT)
		return -ESRCH;
	return fd < 0 ? fd : proc_stat_read(fd, ret);
}

/* Who may not trace the process reads 0 as its status; the link to its executable obeys the same
 * rule and says so: EACCES, or ENOENT for a zombie. */
static bool may_trace(int pidfd, pid_t pid)
{
	char path[32], target;

	snprintf(path, sizeof(path), "/proc/%d/exe", pid);
	return readlink(path, &target, 1) < 0 && errno == ENOENT && !was_reaped(pidfd);
}

static bool ask_zombie(int pidfd, pid_t pid, int *ret_status)
{
	struct proc_stat stat;

	if (pid <= 0 || read_stat(pidfd, pid, &stat) < 0)
		return false;
	if (stat.status == 0 && !may_trace(pidfd, pid))
		return false;
	*ret_status = stat.status;
	return true;
}

static bool ask_everybody(int pidfd, pid_t pid, int *ret_status)
{
	bool has_info = exit_status_has_pidfd_info();

	return (has_info && ask_pidfd(pidfd, ret_status)) || ask_zombie(pidfd, pid, ret_status) ||
	       (has_info && ask_pidfd(pidfd, ret_status));
}

static bool ask_keeper(struct fdstore *fs, pid_t pid, uint64_t started, struct exit_record *ret)
{
	struct exit_records *x = fs ? fdstore_exit_records(fs) : NULL;

	return x && started && exit_records_find(x, pid, started, ret);
}

/* Reaping a child of ours makes the time of its end forgotten, and on older kernels also how it
 * ended; the keeper's table remembers both. */
static void record_own(struct fdstore *fs, int pidfd, pid_t pid, uint64_t started)
{
	struct exit_records *x = fs ? fdstore_exit_records(fs) : NULL;
	struct exit_record r = {.pid = pid, .started = started};
	struct timespec now;
	siginfo_t ended = {0};

	if (!x || !started ||
	    waitid((idtype_t)P_PIDFD, (id_t)pidfd, &ended, WEXITED | WNOHANG | WNOWAIT) < 0 ||
	    !ended.si_pid)
		return;
	clock_gettime(CLOCK_REALTIME, &now);
	r.ended_at = now.tv_sec * INT64_C(1000000000) + now.tv_nsec;
	r.status = exit_record_status(&ended);
	exit_records_add(x, &r);
}

int exit_status_find(struct fdstore *fs, int pidfd, pid_t pid, uint64_t started,
		     struct exit_status *ret, struct error *err)
{
	struct exit_status result = {.exit.code = 255};
	struct exit_record record;
	int status;

	if (pidfd >= 0) {
		struct pollfd p = {.fd = pidfd, .events = POLLIN};
		int r = poll(&p, 1, 0);

		if (r < 0 || p.revents & POLLNVAL)
			return error_errno(err, r < 0 ? errno : EBADF, "poll process %d", pid);
		if (r == 0)
			return error_set(err, ERR_PRECONDITION, "process %d: it still runs", pid);
		record_own(fs, pidfd, pid, started);
		r = process_reap(pidfd, &result.exit, err);
		if (r < 0)
			return r;
		result.is_known = r > 0;
		if (!result.is_known && ask_everybody(pidfd, pid, &status)) {
			result.exit = process_exit_of_status(status);
			result.is_known = true;
		}
	}
	if (ask_keeper(fs, pid, started, &record)) {
		result.ended_at = record.ended_at;
		if (!result.is_known)
			result.exit = process_exit_of_status(record.status);
		result.is_known = true;
	}
	*ret = result;
	return 0;
}

void exit_status_forget(struct fdstore *fs, pid_t pid, uint64_t started)
{
	struct exit_records *x = fs ? fdstore_exit_records(fs) : NULL;

	if (x)
		exit_records_acknowledge(x, pid, started);
}

int exit_status_started(int pidfd, pid_t pid, uint64_t *ret_started, struct error *err)
{
	struct proc_stat stat;
	int r = read_stat(pidfd, pid, &stat);

	if (r == -ESRCH)
		return error_set(err, ERR_NOT_FOUND, "process %d is gone", pid);
	if (r < 0)
		return error_errno(err, -r, "read /proc/%d/stat", pid);
	*ret_started = stat.started;
	return 0;
}

int exit_status_reopen(pid_t pid, uint64_t started, int *ret_pidfd, struct error *err)
{
	cleanup_close int pidfd = -1;
	uint64_t found;

	TRY(process_open(pid, &pidfd, err));
	TRY(exit_status_started(pidfd, pid, &found, err));
	if (found != started)
		return error_set(err, ERR_NOT_FOUND, "process %d is gone: the pid is another's now",
				 pid);
	*ret_pidfd = take_fd(&pidfd);
	return 0;
}
