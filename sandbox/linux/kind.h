/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The inside of the linux kind: its objects and what its files offer each other. All of it runs on
 * the loop's thread unless it says otherwise.
 *
 * Pins are named "<sandbox id>.net", ".ipc", ".user", ".shm", ".init" (the PID 1) and
 * "<container id>.pid"; the cgroup of a container is "<parent>/<container id>". A pod that has
 * limits and names no parent has one of its own, DEFAULT_PARENT "/<sandbox id>". With systemd they
 * are units (group.c).
 */
#pragma once

#include <stdatomic.h>

#include "io/base/arena.h"
#include "io/base/list.h"
#include "io/base/map.h"
#include "io/offload.h"
#include "recovery/boot.h"
#include "recovery/pin.h"
#include "sandbox/linux/cgroup.h"
#include "sandbox/linux/plan.h"
#include "sandbox/linux/seccomp.h"
#include "sandbox/linux/selinux.h"
#include "sandbox/linux/skeleton.h"
#include "sandbox/linux/spawner.h"
#include "sandbox/sandboxer.h"

/* What an id may have, so that the names made of it fit. */
#define ID_MAX 72
/* A pin's name with its NUL. */
#define PIN_NAME_SIZE (ID_MAX + 8)
/* What copies of a spec may take. */
#define SPEC_ARENA_CAP (16 * 1024 * 1024)

/* Where containers are whose pod names no parent: made at start, gone with the last server that has
 * no pods. */
#define DEFAULT_PARENT "/crisp"

/* The one instance; filled by init. */
struct linux_kind {
	struct sandboxer_env env;
	struct spawner *spawner;
	struct cgroups *cgroups;
	int pid1_program; /* memfd */
	char *skeleton;	  /* the lowest layer of all containers */
	char boot[BOOT_ID_SIZE];
	bool has_systemd; /* it is asked for cgroups */
	int root;	  /* the host's root directory */
	bool has_apparmor;
	struct selinux selinux;
	struct map levels; /* SELinux levels of pods; label.c */
};

extern struct linux_kind kind;

struct linux_sandbox {
	struct arena *arena;
	struct sandbox_spec spec; /* a copy, never changed */
	struct list containers;
	size_t missing_count; /* of an earlier server's, not recovered yet */
	int pid1;	      /* pidfd of the PID 1, or −1 */
	pid_t pid1_pid;
	struct loop_watch *pid1_watch;
	bool is_up;
	bool has_parent;	      /* somebody else's, who sees to the pod's limits */
	bool has_group;		      /* spec.cgroup_parent was made for it alone, by us */
	unsigned left_count;	      /* host_job_run() */
	struct selinux_labels labels; /* never changed once it is made */
	char *level;		      /* the one that it holds, or NULL; label.c */
	struct reading *reading;      /* usage.c: the one that is under way, or NULL */
	atomic_int refs;	      /* the handle's, and one for each job that reads the spec */
};

/* What is known of a container's processes that were killed for memory. */
struct oom_state {
	struct list node; /* oom.c */
	struct channel *channel;
	int watch;
	bool is_over;
	struct cgroup_oom seen; /* told and recorded */
	char *culprit;		/* the group whose limit killed last, or "/", or NULL */
};

struct linux_container {
	struct arena *arena;
	struct container_spec spec; /* a copy; only update.c changes it */
	struct linux_sandbox *sandbox;
	struct list node;
	char *cgroup;
	struct user_ids user;	       /* never changed once found */
	struct selinux_labels labels;  /* never changed once found */
	struct seccomp_filter *filter; /* NULL: unconfined, or not yet asked for */
	enum container_life life;
	int pidfd; /* -1 when there is no process */
	pid_t pid;
	uint64_t started; /* clock ticks since boot, recovery/exit_status.h */
	struct loop_watch *watch;
	struct task_event exited;
	bool has_run; /* its program was executed; recorded late, false if the server died before */
	bool has_exit;
	bool prunes_mounts; /* mount namespaces are mounted beneath a source (mounts.h) */
	struct container_exit exit;
	struct reading *reading; /* usage.c: the one that is under way, or NULL */
	struct oom_state oom;
	atomic_int refs;
};

/* sandbox.c */

struct linux_sandbox *linux_sandbox_ref(struct linux_sandbox *s);
/* Any thread. */
void linux_sandbox_unref(struct linux_sandbox *s);
int linux_sandbox_create(struct task *t, const struct sandbox_spec *spec, void **ret_sandbox);
int linux_sandbox_recover(struct task *t, const struct sandbox_spec *spec, const void *record,
			  size_t record_size, void **ret_sandbox);
void linux_sandbox_record(void *sandbox, struct buf *ret);
bool linux_sandbox_is_up(void *sandbox);
int linux_sandbox_stop(struct task *t, void *sandbox);
int linux_sandbox_remove(struct task *t, void *sandbox);
void linux_sandbox_info(void *sandbox, struct sandbox_info *ret_info);
void linux_sandbox_forget(void *sandbox);
/* Makes a cgroup for it, so that it can have limits, if it has none and no parent was asked for. */
int linux_sandbox_need_group(struct task *t, struct linux_sandbox *s);
/* The name of a pin of id. */
void pin_name(char name[PIN_NAME_SIZE], const char *id, const char *suffix);

/* sweep.c */

int linux_sweep(struct task *t, const struct sandboxer_env *env, struct sweep *sweep);

/* held.c: pidfds that must outlive us: pinned, and with the keeper where the kernel can't. */

/* What is recorded beside the pid, to find it again. */
int held_put(struct task *t, const char *name, int pidfd, pid_t pid, uint64_t *ret_started);
/* ERR_NOT_FOUND. */
int held_get(struct task *t, const char *name, int *ret_pidfd);
int held_drop(struct task *t, const char *name);

/* container.c */

/*
 * Runs a job that looks at paths of the host, which may lie on a dead mount. When the wait ends
 * before the job, that is noted in *is_left, and the job's finished() takes it off left_count.
 * Refused when too many of the sandbox's hang already: each of them has a thread.
 */
int host_job_run(struct task *t, struct linux_sandbox *s, struct job *job, bool *is_left);
struct linux_container *linux_container_ref(struct linux_container *c);
/* Any thread. */
void linux_container_unref(struct linux_container *c);
int linux_container_create(struct task *t, void *sandbox, const struct container_spec *spec,
			   void **ret_container);
int linux_container_recover(struct task *t, void *sandbox, const struct container_spec *spec,
			    const void *record, size_t record_size, bool has_ended,
			    void **ret_container);
void linux_container_record(void *container, struct buf *ret);
enum container_life linux_container_life(void *container);
int linux_container_info(void *container, struct container_info *ret_info);
void linux_container_recorded_user(struct arena *arena, const void *record, size_t record_size,
				   struct user_ids *ret_user);
int linux_container_kill(struct task *t, void *container, int signal);
int linux_container_kill_all(struct task *t, void *container);
int linux_container_wait(struct task *t, void *container, struct container_exit *ret_exit);
int linux_container_remove(struct task *t, void *container);
void linux_container_forget(void *container);
/* Reports its exit from now on. */
void linux_container_watch(struct linux_container *c);
/* Its cgroup with limits and devices; in a scope that is there. */
int linux_container_make_group(struct task *t, struct linux_container *c);
/* Fills c->filter when the spec has one. */
int linux_container_need_filter(struct task *t, struct linux_container *c);

/* label.c: SELinux labels. All containers of a pod have its level, unless they ask for another, and
 * no two pods have the same, unless they ask for it. */

/* Finds the pod's labels, and holds its level. */
int label_sandbox(struct task *t, struct linux_sandbox *s);
void label_sandbox_recover(struct linux_sandbox *s, const char *record, size_t size);
void label_sandbox_forget(struct linux_sandbox *s);
/* A container's; a privileged one's processes have none. Blocks: for offload. */
int label_container(const struct linux_container *c, struct selinux_labels *ret, struct error *err);
void label_record(const struct selinux_labels *labels, struct buf *ret);
struct selinux_labels label_read(const char *record, size_t size);

/* oom.c */

void linux_oom_init(void);
void linux_oom_shutdown(void);
/* Kills in c's group are told from now on, those since c->oom.seen at once. */
void linux_oom_watch(struct linux_container *c);
/* Before c or its group goes; has_gone: the group. */
void linux_oom_unwatch(struct linux_container *c, bool has_gone);
/* Tells what is new in c's group. */
void linux_oom_look(struct task *t, struct linux_container *c);

/* group.c: cgroups by the driver. Those of units are systemd's, whatever the driver is now. */

/* After env and cgroups. */
int group_driver_init(struct error *err);
/* Where pods without a parent are; in group_of_pod() of their own, if they have limits. */
const char *group_default_parent(void);
const char *group_of_pod(struct arena *arena, const char *id);
char *group_of_container(const char *parent, const char *id);
/* As cgroup_create(), cgroup_update(), cgroup_remove(); path is no container's scope for the first.
 */
int group_create(struct task *t, const char *path, const struct resources *r);
int group_update(struct task *t, const char *path, const struct resources *r,
		 const struct resources *undone);
int group_remove(struct task *t, struct cgroups *cg, const char *path);
/* What can be said of limits that are not in force yet. */
int group_check_limits(const struct resources *r, struct error *err);

/* The process that keeps a scope until the container's own is in it. */
struct group_hold {
	int pidfd, control;
};

#define GROUP_HOLD_NONE ((struct group_hold){-1, -1})

/* Makes a container's scope, if it is to have one; also after an error, group_leave(). */
int group_enter(struct task *t, struct linux_container *c, struct group_hold *hold);
void group_leave(struct task *t, struct group_hold *hold);

/* update.c */

int linux_container_update(struct task *t, void *container, const struct resources *resources,
			   const struct resources *undone);
/* Says in the log, once, if a score is below what this server can give. */
void linux_score_note(int64_t asked);
int linux_container_limits(struct task *t, void *container, const struct resources *asked,
			   struct limits_now *ret_limits);
int linux_sandbox_update(struct task *t, void *sandbox, const struct resources *resources,
			 const struct resources *undone);

/* container_start.c */

int linux_container_start(struct task *t, void *container, const struct container_stdio *stdio,
			  int (*commit)(struct task *t, void *data), void *data, int *ret_master);

/* exec.c */

int linux_container_exec(struct task *t, void *container, const struct exec_spec *spec,
			 const struct container_stdio *stdio,
			 int (*commit)(struct task *t, void *data), void *data,
			 struct exec_process *ret_process);
int linux_container_exec_kill(struct task *t, void *container, const char *exec_id);
int linux_container_exec_done(struct task *t, void *container, const char *exec_id);

/* usage.c */

int linux_container_usage(struct task *t, void *container, bool has_details,
			  struct usage *ret_usage);
int linux_sandbox_usage(struct task *t, void *sandbox, struct sandbox_usage *ret);

/* container_plan.c */

/* What a container gets from its pod; -1 for what is the node's. Owned. */
struct pod_fds {
	int user, net, ipc, pid, shm;
};

#define POD_FDS_NONE ((struct pod_fds){-1, -1, -1, -1, -1})

void pod_fds_done(struct pod_fds *fds);
/* The plan of the container's first process, not sealed. Lends it pod's and join's descriptors.
 * Blocks: for offload. filter may be NULL. */
int container_plan_build(const struct linux_container *c, const struct pod_fds *pod,
			 const struct cgroup_join *join, const int stdio[3],
			 struct plan_builder *ret, struct error *err);
/* The plan's part that an exec has too: ids, capabilities, filter, limits, environment. */
void plan_add_process(struct plan_builder *b, const struct linux_container *c,
		      const struct string_list *argv);
/* The pipes become the container's user's, so that /dev/stdout can be opened again. */
int plan_give_stdio(const struct linux_container *c, const int stdio[3], struct error *err);
void plan_add_cgroups(struct plan_builder *b, const struct cgroup_join *join);

/* control.c: the server's end of init/protocol.h. */

enum control_event { CONTROL_READY, CONTROL_CLOSED };

/* Waits for the helper's next word; INIT_FAILED is the error it describes, prefixed with what. The
 * terminal's master, if one came, is stored in *ret_master (which may be NULL). */
int control_wait(struct task *t, int control, const char *what, enum control_event *ret_event,
		 int *ret_master);
int control_go(int control, struct error *err);
/* What a report says; for control_wait() and tests. */
int control_error(const struct init_report *report, const char *what, struct error *err);

/* record.c: records are lines of "key=value". */

/* The value of key, in memory of the caller's buffer; false when it is not there. */
bool record_find(const char *record, size_t size, const char *key, char *ret_value,
		 size_t value_size);
/* Whether its pids are of this boot. */
bool record_is_current(const char *record, size_t size);
int64_t record_number(const char *record, size_t size, const char *key, int64_t fallback);
