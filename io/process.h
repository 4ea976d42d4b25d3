/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Child processes by pidfd: helpers that we execute (unpack, plugins) and waiting for any child of
 * ours. Containers are born in sandbox/linux/spawner.c, but waited for here.
 */
#pragma once

#include <signal.h>
#include <sys/types.h>

#include "io/task.h"

/* How a process ended, as waitid(2) tells. */
struct process_exit {
	int code;   /* exit status, or 128 + signal */
	int signal; /* 0 when it exited by itself */
	bool has_core;
};

struct process_spec {
	int exe_fd;	   /* executed by descriptor when ≥ 0, else path */
	const char *path;  /* absolute */
	const char **argv; /* NULL-terminated; NULL envp means an empty environment */
	const char **envp;
	int stdio[3];	    /* -1: /dev/null */
	const int *extra;   /* descriptors that arrive as 3, 4, …; extra_count of them */
	size_t extra_count; /* every other descriptor is closed */
	bool new_group;	    /* its own process group, so that a kill reaches its children */
};

/* Starts it (vfork semantics: under a millisecond, nothing of our memory is copied). Signals are
 * reset to default. Any thread. */
int process_start(const struct process_spec *spec, int *ret_pidfd, pid_t *ret_pid,
		  struct error *err);
/* Waits until the child ended, reaps it. The pidfd stays open. */
int process_wait(struct task *t, int pidfd, struct process_exit *ret_exit);
/* Reaps without waiting: 1 when reaped, 0 when it still runs or somebody else's. */
int process_reap(int pidfd, struct process_exit *ret_exit, struct error *err);
/* Signals by pidfd; 0 also when it is gone already. */
int process_signal(int pidfd, int signal, struct error *err);
/* The same spelled from a wait status (wait(2)). */
struct process_exit process_exit_of_status(int status);
/* Readable for pid; ESRCH is ERR_NOT_FOUND here, since this lookup owns the name. */
int process_open(pid_t pid, int *ret_pidfd, struct error *err);
