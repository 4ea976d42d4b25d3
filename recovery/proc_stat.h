/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The few fields of /proc/PID/stat (proc(5)) that tell processes apart and how a zombie ended.
 * Allocates nothing.
 */
#pragma once

#include <stdint.h>
#include <sys/types.h>

struct proc_stat {
	uint64_t started; /* clock ticks since boot */
	int status;	  /* as of wait(2); of a zombie only, and 0 without the right to trace it */
};

/* The open /proc/PID/stat (close-on-exec), or -errno. It stays that process's. */
int proc_stat_open(pid_t pid);
/* 0, or -errno: ESRCH when it was reaped. */
int proc_stat_read(int fd, struct proc_stat *ret);
