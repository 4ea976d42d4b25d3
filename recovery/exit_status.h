/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How a process ended that is not our child any more, since the server that started it is gone.
 * What can tell, in the order of asking:
 *
 *   1. waitid(P_PIDFD), if it is our child after all
 *   2. PIDFD_GET_INFO with PIDFD_INFO_EXIT, once it was reaped by whomever (kernel 6.15)
 *   3. /proc/PID/stat, field exit_code, while it is a zombie that nobody reaped (proc(5); root)
 *   4. the keeper's records, when the keeper reaped it
 *
 * Nobody having seen it is "unknown", never 0.
 *
 * A pidfd is readable from the moment of death, also for a zombie that nobody reaps, so a
 * level-triggered watch on it must be freed (or paused) when it fires: exit_status_find() answers
 * at that moment, there is nothing to wait for. Kernels before 5.17 give the first thread's code in
 * 3 when it ended before its process did.
 */
#pragma once

#include <stdint.h>

#include "io/process.h"

struct fdstore;

struct exit_status {
	struct process_exit exit; /* code is 255 when it is not known */
	int64_t ended_at;	  /* realtime ns by the keeper's records, 0 when they don't say */
	bool is_known;
};

/*
 * pidfd: the process's, or -1 when nobody kept it. pid and started (exit_status_started()) are what
 * was noted at its birth, in this boot; started 0: not noted, then 4 is not asked. fs may be NULL.
 * 0 with *ret set, also when it is not known; ERR_PRECONDITION while it runs. Doesn't wait. Reaps
 * it if it is our child: ask once and keep the answer. Should the server die before the answer is
 * durable, the next one learns it by 2, or by a record that was put into the keeper's table before
 * reaping; only an old kernel without a keeper loses it.
 */
int exit_status_find(struct fdstore *fs, int pidfd, pid_t pid, uint64_t started,
		     struct exit_status *ret, struct error *err);
/* Its end is durable: the keeper may forget it. Fine when it has no such record. */
void exit_status_forget(struct fdstore *fs, pid_t pid, uint64_t started);

/* When the process started, in clock ticks since boot (field starttime): with its pid it names one
 * process of this boot. ERR_NOT_FOUND once it was reaped. */
int exit_status_started(int pidfd, pid_t pid, uint64_t *ret_started, struct error *err);
/* A pidfd for what was noted, running or zombie; ERR_NOT_FOUND when it was reaped, also if the pid
 * is another process's now. For kernels that can't pin pidfds and servers without a keeper. */
int exit_status_reopen(pid_t pid, uint64_t started, int *ret_pidfd, struct error *err);

/* As if the kernel were older than 6.15: no PIDFD_GET_INFO, no pinned pidfds. Also by
 * CRISP_NO_PIDFD_INFO=1 in the environment. For tests, before anything else of recovery/ is used.
 */
void exit_status_pretend_old_kernel(void);
/* Whether PIDFD_INFO_EXIT can be had; probed once. */
bool exit_status_has_pidfd_info(void);
