/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Control groups by cgroupfs: v1, v2 and hybrid (v1 controllers beside a v2 hierarchy that holds
 * few or none). A path such as "/kubepods/burstable/podX/ID" names the same place in every
 * hierarchy that is used. Nothing is remembered between calls: each works after a restart as well.
 *
 * Which hierarchies are used is found once: those with cpu, cpuacct, cpuset, memory, pids, devices
 * and hugetlb, and one *tracker* that tells what belongs to a container and by which it is killed:
 * v2 where it is mounted and has cgroup.kill (Linux 5.14), else the freezer of v1, else the first
 * one. What an exec starts lives in a child group CGROUP_EXEC_PREFIX<id> of the container's, in the
 * tracker only, so that it can be killed by itself however often it forked.
 *
 * Functions that take a task do their work in one offload job; the others only open or read.
 * Paths are checked by each: absolute, no empty, "." or ".." component, else ERR_INVALID.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "io/task.h"
#include "sandbox/spec.h"
#include "sandbox/usage.h"

/* Where a pod's group goes when no parent is asked for. */
#define CGROUP_DEFAULT_PARENT "/crisp"
#define CGROUP_EXEC_PREFIX "crisp-exec-"
/* What cgroup_kill() waits at most, whatever the task's deadline. */
#define CGROUP_KILL_TIMEOUT_MS 30000

struct cgroups;

/* Reads /proc/self/mountinfo; NULL with err set when no hierarchy is mounted. At start, once. */
struct cgroups *cgroups_probe(struct error *err);
/* The same from the text of a mountinfo file; for tests. */
struct cgroups *cgroups_probe_text(const char *mountinfo, struct error *err);
/* No call may be under way, not even one that its caller gave up: offload_shutdown() comes first.
 */
void cgroups_free(struct cgroups *cg);
/* Whether v2 is mounted, with or without controllers. */
bool cgroups_has_v2(const struct cgroups *cg);
/* True when all controllers are v2's. */
bool cgroups_is_v2(const struct cgroups *cg);
/* For `Status` and the log: "v1 (cpu cpuacct …), tracked by v2", valid as long as cg. */
const char *cgroups_describe(const struct cgroups *cg);

/* 0, or ERR_INVALID as told above. */
int cgroup_path_check(const char *path, struct error *err);

/*
 * Makes the group with its missing parents and writes the limits (r may be NULL: none). Making what
 * is there already succeeds. On failure the group may be half made: cgroup_remove(). A limit whose
 * controller is not there is ERR_PRECONDITION, but for hugepages of 0, which nobody can have then.
 * Swap that the kernel does not count is not limited, which the log says once.
 * `unified` needs v2 (ERR_INVALID). A value that the kernel refuses is ERR_INVALID and names the
 * file.
 */
int cgroup_create(struct task *t, struct cgroups *cg, const char *path, const struct resources *r);
/* Changes the limits that are given, all or, when one fails, none. What undone has and r has not is
 * as in a new group then; it may be NULL. */
int cgroup_update(struct task *t, struct cgroups *cg, const char *path, const struct resources *r,
		  const struct resources *undone);

/* The limits that the kernel holds, as struct limits_now tells them, but for the score.
 * A group that is not there is ERR_NOT_FOUND. */
int cgroup_limits_now(struct task *t, struct cgroups *cg, const char *path,
		      const struct resources *asked, struct limits_now *ret);

/* A device beyond those that every container has. */
struct cgroup_device {
	char type;	    /* 'b' or 'c' */
	int major, minor;   /* -1: any */
	const char *access; /* of "rwm": read, write, make a node */
};

/*
 * Lets the group open only null, zero, full, random, urandom, tty, console, ptmx, the pseudo
 * terminals and the devices given (making nodes stays allowed). Without it a group may open every
 * device, as privileged containers do. Repeated, the last list holds.
 */
int cgroup_restrict_devices(struct task *t, struct cgroups *cg, const char *path,
			    const struct cgroup_device *devices, size_t count);

#define CGROUP_JOIN_MAX 9

/*
 * What a new process needs to be born in a group. All of it must be used:
 * - clone_fd, when ≥ 0, goes into clone_args.cgroup with CLONE_INTO_CGROUP, by a caller that still
 * has the host's root credentials (with a user namespace: the first of the two clones; the second
 *   inherits it);
 * - the new process, single-threaded still, writes "0" to each of files[] (a `tasks` file: 0.14 ms,
 *   where cgroup.procs, used where births in a group do not work, takes 10). They may be inherited:
 * the kernel checks who opened them.
 */
struct cgroup_join {
	int clone_fd;
	int files[CGROUP_JOIN_MAX];
	size_t file_count;
};

#define CGROUP_JOIN_NONE ((struct cgroup_join){.clone_fd = -1})

/* Descriptors for joining path, to be given up by cgroup_join_done(). Any thread. A group that is
 * not there is ERR_PRECONDITION. */
int cgroup_join_open(struct cgroups *cg, const char *path, struct cgroup_join *ret,
		     struct error *err);
/* Closes; harmless twice and for CGROUP_JOIN_NONE. */
void cgroup_join_done(struct cgroup_join *join);

/*
 * An exec's own group beneath path (id: letters, digits, '-', '_'), made if missing, and the
 * descriptors for joining it; the limits stay the container's.
 */
int cgroup_exec_open(struct task *t, struct cgroups *cg, const char *path, const char *exec_id,
		     struct cgroup_join *ret);
/* SIGKILL to all that the exec started; returns when it is gone, as cgroup_kill(). */
int cgroup_exec_kill(struct task *t, struct cgroups *cg, const char *path, const char *exec_id);
/* Once it is empty. A background process that an exec left behind keeps the group: then 0 too; it
 * goes with the container's. */
int cgroup_exec_remove(struct task *t, struct cgroups *cg, const char *path, const char *exec_id);

/*
 * SIGKILL to every process in it and below, also to those being forked; returns when it is empty (a
 * zombie counts as gone). Then nothing can be born in it before another cgroup_create() (a trait of
 * v2: the child would be killed at birth). 0 when there is no such group. Processes that do not die
 * (state D) end it at the task's deadline or after CGROUP_KILL_TIMEOUT_MS with ERR_DEADLINE; the
 * text names a pid and its state.
 */
int cgroup_kill(struct task *t, struct cgroups *cg, const char *path);
/* Removes it with its sub-groups from every hierarchy; 0 when it is gone already. Processes in it:
 * ERR_PRECONDITION, naming one. */
int cgroup_remove(struct task *t, struct cgroups *cg, const char *path);
/* Removes a group without sub-groups and processes; 0 also when it is in use or not there. For
 * parents that several sandboxes share. */
int cgroup_remove_unused(struct task *t, struct cgroups *cg, const char *path);
/* Calls fn for the name of each of its sub-groups in any hierarchy, once for each hierarchy that
 * has it; afterwards, so fn may do anything but suspend. */
int cgroup_children(struct task *t, struct cgroups *cg, const char *path,
		    void (*fn)(void *data, const char *name), void *data);
/* Pids in it and below; the caller frees. A missing group has none. */
int cgroup_procs(struct task *t, struct cgroups *cg, const char *path, pid_t **ret_pids,
		 size_t *ret_count);

/* Groups whose limits are looked at, from one upwards; those of kubepods/burstable/pod/container
 * are four. */
#define CGROUP_LEVELS 16

/*
 * What memory did to a group. v2 counts how often a limit made the kernel kill; v1 only how often a
 * limit was hit, also where caches could be dropped then.
 */
struct cgroup_oom {
	uint64_t kills;		      /* processes killed for memory, in it and below */
	uint64_t hits[CGROUP_LEVELS]; /* its own limit, that of the group above, and so on */
};

/*
 * Before cgroup_remove(). seen is what was known: the hits are looked at only if there were kills
 * since then; NULL: in any case. All zero without a memory controller; a group that is not there is
 * ERR_NOT_FOUND. Any thread.
 */
int cgroup_oom_read(struct cgroups *cg, const char *path, const struct cgroup_oom *seen,
		    struct cgroup_oom *ret, struct error *err);
/*
 * The group whose limit killed in between, path or one above it, malloc'ed; "/": the node had no
 * memory left; NULL: nobody knows. On v2 by its counters; on v1 by what the kernel wrote to its
 * log (oom_report.h), else the nearest one whose limit was hit. Not on the loop.
 */
char *cgroup_oom_culprit(struct cgroups *cg, const char *path, const struct cgroup_oom *before,
			 const struct cgroup_oom *after);

/* How a group can tell that it ran out of memory. */
enum cgroup_oom_events {
	OOM_EVENTS_NONE,
	OOM_EVENTS_EVENTFD, /* v1: before the kernel kills; once more after the group went */
	OOM_EVENTS_INOTIFY, /* v2: once it has killed, as IN_MODIFY */
};

enum cgroup_oom_events cgroup_oom_events(const struct cgroups *cg);
/* Has fd, of that kind, tell of the group from now on, whatever limit above it is the cause.
 * ret_watch is inotify's, else untouched. Any thread. */
int cgroup_oom_watch(struct cgroups *cg, const char *path, int fd, int *ret_watch,
		     struct error *err);

/* Any thread. What the kernel has no controller or file for stays USAGE_NONE. A group that is not
 * there is ERR_NOT_FOUND. Details: the descriptors of all processes are counted. */
int cgroup_usage(struct cgroups *cg, const char *path, bool has_details, struct usage *ret,
		 struct error *err);

/* The weight (1…10000) of v2 for shares (2…262144) of v1: 2 → 1, 1024 → 100, 262144 → 10000, the
 * curve that runtimes agreed on (runc 1.3.2, crun 1.23) and that the kubelet expects to read back.
 */
uint64_t cgroup_weight_of_shares(uint64_t shares);
