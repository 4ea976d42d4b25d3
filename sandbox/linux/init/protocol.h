/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the server and the init helper say to each other. Both are made by one build, and the helper
 * that runs was embedded in the server that started it, so there is no version.
 *
 * The helper is executed with three kinds of descriptors: 0, 1, 2 (the process's own), INIT_FD_PLAN
 * (a memfd with a struct plan), INIT_FD_CONTROL (a SOCK_SEQPACKET pair), and from INIT_FD_FIRST on
 * what the plan refers to by number. The control socket closes on exec:
 *
 *      server                                     helper
 *        │  plan, descriptors (by inheritance)      │
 *        │ ───────────────────────────────────────► │  cgroups, namespaces, mounts, pivot
 *        │              INIT_READY [+ terminal]     │
 *        │ ◄─────────────────────────────────────── │
 *   pins, commits                                   │
 *        │              INIT_GO                     │
 *        │ ───────────────────────────────────────► │  ids, capabilities, filter, execve
 *        │              end of file                 │
 *        │ ◄─────────────────────────────────────── │  the program runs
 *
 * INIT_FAILED may come instead of INIT_READY or of the end of file, and the helper ends. When the
 * server closes its end before INIT_GO, the helper ends without having run anything. INIT_EXEC does
 * not wait for INIT_GO and sends INIT_READY only with a terminal; INIT_PID1 does not send
 * INIT_READY. INIT_HOLD sends nothing and runs nothing.
 */
#pragma once

#include <stdint.h>

#define INIT_FD_PLAN 3
#define INIT_FD_CONTROL 4
#define INIT_FD_FIRST 5

enum init_stage {
	INIT_CONTAINER = 1, /* the first process of a container */
	INIT_EXEC,	    /* another one in a running container */
	INIT_PID1,	    /* what holds a pod's shared pid namespace */
	INIT_HOLD,	    /* what is in a scope of systemd's until a container is */
};

enum init_message { INIT_READY = 1, INIT_GO, INIT_FAILED };

/* How the helper exits when it did not get to the program: a server that was killed between its
 * commit and INIT_GO has no other way to learn that. */
#define INIT_EXIT_NEVER_RAN 117

/* What failed: STEP_x and how the server tells it; a path follows where there is one. */
#define INIT_STEPS(X)                                                                              \
	X(STEP_PLAN, "read the plan")                                                              \
	X(STEP_CGROUP, "join the cgroup")                                                          \
	X(STEP_NAMESPACE, "join the namespaces")                                                   \
	X(STEP_ROOT, "place the root file system")                                                 \
	X(STEP_PROC, "mount proc on")                                                              \
	X(STEP_DEV, "make the device directory")                                                   \
	X(STEP_DEVICE, "make the device")                                                          \
	X(STEP_PTS, "mount devpts on")                                                             \
	X(STEP_MQUEUE, "mount mqueue on")                                                          \
	X(STEP_SHM, "mount the shared memory on")                                                  \
	X(STEP_SYS, "mount sysfs on")                                                              \
	X(STEP_CGROUP_VIEW, "mount the cgroup file system on")                                     \
	X(STEP_TARGET, "make the mount point")                                                     \
	X(STEP_MOUNT, "mount on")                                                                  \
	X(STEP_MOUNT_ON_FILE, "mount a directory on the file")                                     \
	X(STEP_MOUNT_ON_DIRECTORY, "mount a file on the directory")                                \
	X(STEP_MOUNT_PROC, "mount over procfs, which is not allowed, on")                          \
	X(STEP_MASK, "mask")                                                                       \
	X(STEP_READONLY, "make read-only")                                                         \
	X(STEP_CWD, "enter the working directory")                                                 \
	X(STEP_CWD_OUTSIDE, "enter the working directory, which lies outside of the root,")        \
	X(STEP_PIVOT, "change the root")                                                           \
	X(STEP_HOSTNAME, "set the hostname")                                                       \
	X(STEP_TERMINAL, "open a terminal")                                                        \
	X(STEP_STDIO, "set up standard input and output")                                          \
	X(STEP_OOM_SCORE, "set the score for the OOM killer")                                      \
	X(STEP_RLIMIT, "set a resource limit")                                                     \
	X(STEP_IDS, "set the user and group")                                                      \
	X(STEP_CAPABILITIES, "set the capabilities")                                               \
	X(STEP_SECCOMP, "load the seccomp filter")                                                 \
	X(STEP_APPARMOR, "ask for the apparmor profile")                                           \
	X(STEP_LABEL, "ask for the SELinux label")                                                 \
	X(STEP_KEY_LABEL, "ask for the SELinux label of keys")                                     \
	X(STEP_EXEC, "exec")

enum init_step {
#define INIT_STEP_ENUM(name, text) name,
	INIT_STEPS(INIT_STEP_ENUM)
#undef INIT_STEP_ENUM
		STEP_COUNT
};

/* Each message is one of these; INIT_READY may carry the terminal's master by SCM_RIGHTS. */
struct init_report {
	uint32_t message;
	uint32_t step;
	int32_t error;
	char path[500]; /* cut */
};

#define PLAN_MAGIC 0x70616c6eu

enum plan_flags {
	PLAN_READONLY_ROOT = 1 << 0,
	PLAN_PRIVILEGED = 1 << 1, /* sysfs and cgroups writable */
	PLAN_NO_NEW_PRIVS = 1 << 2,
	PLAN_TTY = 1 << 3,
	PLAN_USERNS = 1 << 4,	  /* in a user namespace: no mknod, and group 5 may not exist */
	PLAN_OWN_IPC = 1 << 5,	  /* a new ipc namespace, and a /dev/shm with it */
	PLAN_NULL_STDIN = 1 << 6, /* the container's own /dev/null */
	PLAN_NULL_STDOUT = 1 << 7,
	PLAN_NULL_STDERR = 1 << 8,
	PLAN_NODE_CGROUPS = 1 << 9, /* in the node's cgroup namespace */
};

/* Count elements at offset bytes from the plan's beginning. */
struct plan_list {
	uint32_t offset, count;
};

/* A string: offset from the plan's beginning, 0 for none. */
typedef uint32_t plan_string;

struct plan_mount {
	int32_t fd; /* a detached mount, or −1: a tmpfs with options */
	uint32_t is_directory;
	uint32_t is_readonly; /* tmpfs only; the detached mount has its attributes */
	plan_string target;
	plan_string options;  /* tmpfs */
	plan_string sub_path; /* what of the mount shall be seen, 0: all of it */
};

struct plan_device {
	plan_string path;
	int32_t fd; /* a detached mount of the host's node, or −1: mknod */
	uint32_t mode, uid, gid;
	uint64_t number;
};

/* A hierarchy of cgroups. */
struct plan_cgroup {
	plan_string name; /* its directory in /sys/fs/cgroup; 0: it is all there is (v2) */
	int32_t fd;	  /* detached mount of the container's own group */
};

struct plan_rlimit {
	int32_t resource;
	uint32_t padding;
	uint64_t soft, hard;
};

struct plan {
	uint32_t magic, size, stage, flags;
	int32_t oom_score_adj;
	int32_t root_fd; /* the overlay, or what PID 1 gets for a root */
	int32_t net_fd, ipc_fd;
	int32_t shm_fd;	 /* detached mount for /dev/shm, −1: own */
	int32_t sys_fd;	 /* detached mount for /sys where a new sysfs is not allowed, else −1 */
	int32_t exec_fd; /* INIT_EXEC: pidfd of the container; INIT_PID1: the program */
	uint32_t setns;	 /* INIT_EXEC: CLONE_NEW… of exec_fd */
	uint32_t uid, gid;
	uint64_t capabilities, ambient;
	uint32_t filter_flags; /* of seccomp(2) */
	plan_string cwd, hostname;
	plan_string apparmor;	     /* profile of the program, 0: none */
	plan_string process_label;   /* SELinux: of the program, 0: the policy's choice */
	plan_string file_label;	     /* SELinux: of the file systems that it makes, 0: none */
	struct plan_list cgroup_fds; /* int32_t: files to write "0" to */
	struct plan_list argv, envp; /* uint64_t offsets of strings and a 0 behind the last */
	struct plan_list groups;     /* uint32_t */
	struct plan_list filter;     /* struct sock_filter */
	struct plan_list rlimits, mounts, devices, cgroups;
	struct plan_list masked, readonly; /* plan_string */
};
