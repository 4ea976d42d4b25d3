/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the cgroup*.c files share. All of it runs on offload threads
 * or on any; nothing here suspends. Functions on descriptors return 0 or a negative errno, those
 * with a struct error as usual.
 */
#pragma once

#include <pthread.h>

#include "io/base/buf.h"
#include "sandbox/linux/cgroup.h"

enum controller {
	CONTROLLER_CPU,
	CONTROLLER_CPUACCT,
	CONTROLLER_CPUSET,
	CONTROLLER_MEMORY,
	CONTROLLER_PIDS,
	CONTROLLER_HUGETLB,
	CONTROLLER_FREEZER, /* v1, as tracker only */
	CONTROLLER_DEVICES, /* v1, where v2 is not mounted */
	CONTROLLER_IO,	    /* this one and what follows: v2, by `unified` only */
	CONTROLLER_MISC,
	CONTROLLER_RDMA,
	CONTROLLER_COUNT,
};

extern const char *const controller_names[CONTROLLER_COUNT];
/* CONTROLLER_COUNT when there is none of that name. */
enum controller controller_find(const char *name, size_t length);

/* A mounted hierarchy that is used. */
struct hierarchy {
	int fd; /* its root directory */
	bool is_v2;
	unsigned controllers; /* bit n is controller n */
};

struct cgroups {
	struct hierarchy hierarchies[CGROUP_JOIN_MAX];
	size_t count;
	int of[CONTROLLER_COUNT]; /* index of the hierarchy with it, or -1 */
	int v2;			  /* index, or -1 */
	int tracker;		  /* index */
	bool is_pure_v2;
	bool can_clone; /* CLONE_INTO_CGROUP works from here */
	char *description;
	pthread_mutex_t devices_lock;
	int devices_program; /* BPF of the usual list, or -1; under the lock */
};

/* Settings whose order among each other matters when values change. */
enum setting_kind {
	SETTING_PLAIN,
	SETTING_MEMORY,	    /* v1: memory.limit_in_bytes */
	SETTING_SWAP,	    /* v1: memory.memsw.limit_in_bytes */
	SETTING_QUOTA,	    /* v1 */
	SETTING_PERIOD,	    /* v1 */
	SETTING_MAX_PERIOD, /* v2: the second word of cpu.max, the first stays */
	SETTING_INHERIT,    /* a cpuset: what the group above has */
};

/* One value for one file. */
struct setting {
	enum setting_kind kind;
	enum controller controller;
	char *file, *value;
	char *old;	  /* what was there; by cgroup_update() only */
	bool is_optional; /* a missing file is no error */
};

struct setting_list {
	struct setting *items;
	size_t count;
};

void setting_list_done(struct setting_list *list);
/* Takes value over. Valid until the next one. */
struct setting *setting_add(struct setting_list *list, enum controller c, const char *file,
			    char *value);
/* Translates limits into settings, checking what can be checked without looking at a cgroup. */
int limits_plan(const struct cgroups *cg, const struct resources *r, struct setting_list *ret,
		struct error *err);
/* The limits that gone has and r has not, as in a new group. */
int limits_plan_without(const struct cgroups *cg, const struct resources *r,
			const struct resources *gone, struct setting_list *ret, struct error *err);
/* Reads, sorts and writes; with keep, puts back what was there when one fails. */
int limits_apply(const struct cgroups *cg, const char *path, struct setting_list *list, bool keep,
		 struct error *err);

/* Opens the group's directory (O_RDONLY); negative errno. */
int cgroup_open(const struct hierarchy *h, const char *path);
/* The same in the hierarchy of a controller; -ENOTSUP when the node has none. */
int cgroup_open_in(const struct cgroups *cg, enum controller c, const char *path);
/* Whole value, cut to size, without the final newline. Returns its length or a negative errno. */
ssize_t cgroup_read(int dir, const char *file, char *value, size_t size);
int cgroup_write(int dir, const char *file, const char *value);
/* Appends all of it; a string then. */
int cgroup_read_all(int dir, const char *file, struct buf *ret);
/* Of "key value" lines, the value of key; UINT64_MAX when there is none. */
uint64_t cgroup_read_key(int dir, const char *file, const char *key);

/* Calls fn for the group dir and all below it until it returns non-zero, which is returned. A depth
 * beyond CGROUP_DEPTH_MAX is -ELOOP. dir is consumed. */
#define CGROUP_DEPTH_MAX 256
int cgroup_walk(int dir, int (*fn)(int dir, void *arg), void *arg);

/* Appends the names of the sub-groups, each with its NUL. */
int cgroup_child_names(int dir, struct buf *ret);

/* Removes the group with all below it, 0 when it is not there. */
int cgroup_remove_tree(const struct hierarchy *h, const char *path);

/* The work of cgroup_restrict_devices(). */
int cgroup_apply_devices(struct cgroups *cg, const char *path, const struct cgroup_device *extra,
			 size_t count, struct error *err);

/* The BPF program of the usual list and extra; the caller frees it. */
struct bpf_insn;
struct bpf_insn *cgroup_devices_program(const struct cgroup_device *extra, size_t count,
					size_t *ret_count);

/* Whether the kernel takes it: 0 or a negative errno. */
int cgroup_devices_try(void);

struct pid_list {
	pid_t *items;
	size_t count, capacity;
};

void pid_list_done(struct pid_list *list);
void pid_list_add(struct pid_list *list, pid_t pid);
bool pid_list_has(const struct pid_list *list, pid_t pid);
/* The processes of the group dir itself. */
int pid_list_read(int dir, struct pid_list *list);
/* Of the whole tree. dir is consumed. */
int pid_list_walk(int dir, struct pid_list *list);

/* Fills the cpuset of the group and of its parents where it is empty, from above. */
int cgroup_v1_fill_cpuset(const struct hierarchy *h, const char *path, struct error *err);
/* Puts settings of v1 into an order that is valid at each step, from what is set now; dirs has the
 * open directory of each hierarchy, or -1. */
void cgroup_v1_order(const struct cgroups *cg, const int *dirs, struct setting_list *list);
/* SIGKILL for all in the group and below, also for those being forked meanwhile. */
int cgroup_v1_kill(const struct cgroups *cg, const char *path, struct error *err);

/* Whether a process can be born in a group of h: tried with a group that is removed again. */
bool cgroup_v2_can_clone(const struct hierarchy *h);
/* Enables controllers (a mask) for the children of all groups above path. */
int cgroup_v2_enable(const struct hierarchy *h, const char *path, unsigned controllers,
		     struct error *err);
