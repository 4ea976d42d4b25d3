/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The interface of a kind of sandbox (linux, vm, wasm, remote). The server never knows whether
 * there is a pause process, a virtual machine or nothing behind one.
 *
 * Controller half: the sandbox as a whole. Task half: the containers in it. All calls run on a task
 * and may suspend, unless they take none; the caller holds the object's queue, so calls on one
 * object never overlap. Every call is idempotent, because recovery repeats them: making what is
 * there already and removing what is gone succeed. Names of everything that outlives the process
 * (cgroups, pins, directories) derive from ids, so that recover() with a spec and no record is
 * enough to remove what a crash left half made.
 *
 * A handle (void *) is the kind's own in-memory object; forget() frees it without touching the
 * world.
 */
#pragma once

#include "io/base/buf.h"
#include "io/base/map.h"
#include "io/process.h"
#include "sandbox/spec.h"
#include "sandbox/usage.h"

struct fdstore;
struct pins;

/* What a kind gets from the server; lives as long as the process. */
struct sandboxer_env {
	struct loop *loop;
	const char *root_dir, *state_dir; /* durable data, run-time data; absolute */
	/* "cgroupfs", "systemd" or "auto": systemd where that has booted the node. NULL: cgroupfs
	 */
	const char *cgroup_driver;
	const char *systemd_address; /* D-Bus address of its manager; NULL: PID 1's */
	struct pins *pins;	     /* recovery/pin.h */
	struct fdstore *fdstore;     /* recovery/fdstore.h; NULL: none */
	/*
	 * The main process of a container ended (on the loop, once a container and life). The
	 * server then calls container_wait on a task.
	 */
	void (*container_exited)(void *data, const char *container_id);
	/* What holds the sandbox up (a PID 1, a virtual machine) ended without being asked to. */
	void (*sandbox_exited)(void *data, const char *sandbox_id);
	/*
	 * The kernel killed so many processes of a container for memory, since it was last told of;
	 * group is the cgroup whose limit did it, "/" when the node had no memory left, NULL when
	 * nobody knows. As it happens, but for what happened while no server ran; told again only
	 * if a server dies under it.
	 */
	void (*container_oom)(void *data, const char *container_id, uint64_t kills,
			      const char *group);
	void *data;
};

/*
 * What is swept: things whose names bear an id that nobody knows. Whoever looks does so before it
 * asks is_known; since an object is known before anything of it is made, and until all of it is
 * gone, nothing of one that comes or goes meanwhile is taken for nobody's.
 */
struct sweep {
	bool (*is_known)(void *data, const char *id);
	/* Calls fn for the cgroup parent of each sandbox, maybe more than once for one. */
	void (*each_parent)(void *data, void (*fn)(void *arg, const char *parent), void *arg);
	/* Is told of each thing before it goes: "cgroup /a/b". */
	void (*found)(void *data, const char *thing);
	void *data;
	bool is_dry;	/* nothing goes */
	struct map ids; /* ids of nobody of which something was found; a kind adds to them */
};

enum container_life { LIFE_CREATED, LIFE_RUNNING, LIFE_EXITED };

struct container_exit {
	struct process_exit exit;
	bool is_known; /* false: nobody can tell how it ended */
	/* Some process of it was killed for memory: the main one, then that is its exit, or another
	 * one, then it ended by itself, whatever it made of that. */
	bool is_oom_killed;
	const char *oom_group; /* as container_oom's; owned by the kind's object */
	bool never_ran;	     /* the server died while it was started: remove, then create it anew */
	int64_t finished_at; /* realtime ns */
};

/* What the verbose PodSandboxStatus tells of the running thing. */
struct sandbox_info {
	pid_t pid;	    /* the process that is the pod's own, or 0 */
	const char *cgroup; /* of the pod alone, or NULL; owned by the kind's object */
};

/* What ContainerStatus tells of the running thing. */
struct container_info {
	pid_t pid;
	const char *cgroup;   /* whether it is there or not; owned by the kind's object */
	struct user_ids user; /* owned by the kind's object */
	uid_t host_uid;	      /* the same user outside its user namespace */
	gid_t host_gid;
};

/* The ends that a container's process gets; borrowed for the call. −1 means /dev/null. */
struct container_stdio {
	int in, out, err;
};

/* A process added to a container. */
struct exec_process {
	int pidfd;  /* our child; the caller waits by process_wait and closes */
	int master; /* terminal, or −1; the caller closes */
};

struct sandboxer_features {
	bool recursive_readonly_mounts, user_namespaces, supplemental_groups_policy;
	bool mount_options;
};

struct sandboxer {
	const char *name;
	struct sandboxer_features features;

	/* Probes the kernel, starts threads. Once, before any other call, outside a task. */
	int (*init)(const struct sandboxer_env *env, struct error *err);
	/* Whether pods' parents are slices of systemd, or else paths; from init on. */
	bool (*has_systemd_cgroups)(void);
	/* Removes what the kind has in the world for itself; called when the server ends without
	 * any sandbox. */
	int (*give_up)(struct task *t);
	/* Removes what is nobody's of the kind's things: pins, processes, cgroups. Directories are
	 * the server's. Works without init, too: env has all it needs; its pins may be NULL. */
	int (*sweep)(struct task *t, const struct sandboxer_env *env, struct sweep *sweep);
	void (*shutdown)(void);

	/* Controller half */
	int (*sandbox_create)(struct task *t, const struct sandbox_spec *spec, void **ret_sandbox);
	/* Rebuilds the handle from what create recorded (record may be empty: it never finished).
	 */
	int (*sandbox_recover)(struct task *t, const struct sandbox_spec *spec, const void *record,
			       size_t record_size, void **ret_sandbox);
	/* What recover needs besides the spec; stored by the server after create. */
	void (*sandbox_record)(void *sandbox, struct buf *ret);
	/* Whether what holds it up is there. */
	bool (*sandbox_is_up)(void *sandbox);
	/* Ends whatever still runs in it and gives up its network; the handle stays. */
	int (*sandbox_stop)(struct task *t, void *sandbox);
	/*
	 * Changes the limits of all of it, as container_update does one container's; does nothing
	 * for one whose limits are not the kind's to enforce (spec.h).
	 */
	int (*sandbox_update)(struct task *t, void *sandbox, const struct resources *resources,
			      const struct resources *undone);
	/* Removes every trace in the world. */
	int (*sandbox_remove)(struct task *t, void *sandbox);
	/* What all of it uses now, as container_usage; the caller gives up ret's net. */
	int (*sandbox_usage)(struct task *t, void *sandbox, struct sandbox_usage *ret);
	void (*sandbox_info)(void *sandbox, struct sandbox_info *ret_info);
	void (*sandbox_forget)(void *sandbox);

	/* Task half. */
	/* Checks and prepares: user lookup, cgroup, compiled seccomp. Nothing runs. */
	int (*container_create)(struct task *t, void *sandbox, const struct container_spec *spec,
				void **ret_container);
	/* Like sandbox_recover; the exit of one that still runs will be reported. Of one that
	 * has_ended the end is known: no process is looked for, nothing suspends, and the spec
	 * needs its ids only. */
	int (*container_recover)(struct task *t, void *sandbox, const struct container_spec *spec,
				 const void *record, size_t record_size, bool has_ended,
				 void **ret_container);
	void (*container_record)(void *container, struct buf *ret);
	/*
	 * Births the process, held before its exec. Once it is pinned, commit(t, data) makes that
	 * durable (container_record is valid then); only after it succeeded does the process go on.
	 * Returns when the exec succeeded, or the error of the step that failed, everything undone.
	 * ret_master: the terminal's master when the spec has a tty, owned by the caller.
	 */
	int (*container_start)(struct task *t, void *container, const struct container_stdio *stdio,
			       int (*commit)(struct task *t, void *data), void *data,
			       int *ret_master);
	enum container_life (*container_life)(void *container);
	int (*container_info)(void *container, struct container_info *ret_info);
	/* The user, from what container_record gave. */
	void (*container_recorded_user)(struct arena *arena, const void *record, size_t record_size,
					struct user_ids *ret_user);
	/* To the main process; 0 when it is gone. */
	int (*container_kill)(struct task *t, void *container, int signal);
	/* SIGKILL to everything in the container; returns when all of it is gone. */
	int (*container_kill_all)(struct task *t, void *container);
	/* Waits for the end of the main process, then ends the rest of the container (its cgroup is
	 * empty on return) and tells how it went. Callable any number of times. */
	int (*container_wait)(struct task *t, void *container, struct container_exit *ret_exit);
	/* commit(t, data), if there is one, succeeds before the process is born. */
	int (*container_exec)(struct task *t, void *container, const struct exec_spec *spec,
			      const struct container_stdio *stdio,
			      int (*commit)(struct task *t, void *data), void *data,
			      struct exec_process *ret_process);
	/* Ends every process that the exec started. */
	int (*container_exec_kill)(struct task *t, void *container, const char *exec_id);
	/* The exec's main process was reaped: gives up what was kept for it. */
	int (*container_exec_done)(struct task *t, void *container, const char *exec_id);
	/*
	 * Changes the limits that are given, all or none. undone: a change that was made in part
	 * and is taken back, or NULL; what it gave and resources does not is unlimited again.
	 */
	int (*container_update)(struct task *t, void *container, const struct resources *resources,
				const struct resources *undone);
	/* The limits that it has now, for who asked for some. Needs no queue. */
	int (*container_limits)(struct task *t, void *container, const struct resources *asked,
				struct limits_now *ret_limits);
	/*
	 * What it uses now. Needs no queue, and callers at the same time share one look at it.
	 * Where that hangs, an error comes at the task's deadline at the latest. ERR_NOT_FOUND: it
	 * has ended meanwhile. Details may be there though nobody asked, or be missing.
	 */
	int (*container_usage)(struct task *t, void *container, bool has_details,
			       struct usage *ret_usage);
	/* Removes every trace in the world but the overlay's directories, which are the caller's.
	 */
	int (*container_remove)(struct task *t, void *container);
	void (*container_forget)(void *container);
};

/* The kind of that name, or NULL. */
const struct sandboxer *sandboxer_find(const char *name);
