/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The thread on which processes of containers are born, in a tiny private mount namespace: one
 * tmpfs with the directories root, proc and sys, the last two with pristine instances of their
 * kind. So CLONE_NEWNS copies three mounts and not the host's thousands, and a user namespace may
 * mount its own proc and sysfs. The thread has a descriptor table of its own as well, so that what
 * a birth costs does not grow with the descriptors of the server.
 *
 * A birth takes two steps, since only the second process may be in a user namespace with its mount
 * namespace made there: the middle child joins the user and pid namespaces; the grandchild is made
 * with CLONE_PARENT, so it is a direct child of the server, and executes the init helper.
 */
#pragma once

#include <sys/types.h>

#include "io/offload.h"
#include "sandbox/linux/plan.h"

struct spawner;

/* Starts the thread; NULL with err set. Outside a task. */
struct spawner *spawner_new(struct loop *l, struct error *err);
void spawner_free(struct spawner *s);

/* What is born. */
struct birth {
	struct plan_builder plan; /* sealed; taken over, whatever comes of it */
	int user_fd;		  /* user namespace to join, or -1 */
	int pid_fd;		  /* pidfd or pid namespace whose pid namespace to join, or -1 */
	int clone_fd;		  /* cgroup (v2) to be born in, or -1 */
	unsigned long flags;	  /* CLONE_NEW… */
};

/*
 * Starts the helper with the plan. user_fd, pid_fd, clone_fd are lent. On success the process is
 * the caller's child, to be killed and reaped by it; when the wait ends early it is killed and
 * reaped here.
 */
int spawner_start(struct task *t, struct spawner *s, struct birth *birth, int *ret_pidfd,
		  pid_t *ret_pid);
