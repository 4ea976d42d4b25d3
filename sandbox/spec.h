/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a sandboxer is asked for, in neutral terms (those of the OCI runtime specification, not of
 * CRI). cri/ translates its messages into these; another front end may too. All strings and arrays
 * belong to whoever made the spec and live as long as it; NULL and 0 mean "not given" unless said
 * otherwise. Sizes are bytes, times nanoseconds of the realtime clock.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "io/base/strings.h"

/* Where a namespace comes from. */
enum ns_mode {
	NS_POD,	      /* shared by the pod */
	NS_CONTAINER, /* own */
	NS_NODE,      /* the host's */
	NS_TARGET,    /* another container's */
};

/* user_namespaces(7): ids inside → outside. */
struct id_map {
	uint32_t inside, outside, length;
};

struct id_map_list {
	struct id_map *items;
	size_t count;
};

/* Limits of a cgroup; 0 means not given, pointers tell 0 from not given where that matters. */
struct resources {
	uint64_t cpu_shares;  /* v1 scale, 2…262144 */
	int64_t cpu_quota_us; /* −1: unlimited */
	uint64_t cpu_period_us;
	const char *cpuset_cpus, *cpuset_mems;
	int64_t memory_limit;	   /* −1: unlimited */
	int64_t memory_swap_limit; /* memory and swap together, −1: unlimited */
	int64_t pids_limit;	   /* −1: unlimited */
	int64_t oom_score_adj;
	struct key_value_list unified;	       /* cgroup v2 file → value */
	struct key_value_list hugepage_limits; /* "2MB" → bytes */
};

/* Limits as the kernel holds them. 0 and empty: there is none, or nobody can tell; huge pages and
 * unified are not looked at. What is as it was asked for in the kernel's units is as asked. */
struct limits_now {
	uint64_t cpu_shares;
	int64_t cpu_quota_us;
	uint64_t cpu_period_us;
	int64_t memory_limit, memory_swap_limit, oom_score_adj;
	char cpuset_cpus[256], cpuset_mems[256]; /* where they were asked for */
};

/* Parts of an SELinux label; those that are left out are the policy's, or the pod's. */
struct selinux_spec {
	const char *user, *role, *type, *level;
};

struct sandbox_spec {
	const char *id; /* 64 hex digits; all names that we make derive from it */
	const char *hostname;
	enum ns_mode net, ipc, pid; /* pid NS_POD: a PID 1 of ours holds it */
	bool has_userns;
	struct id_map_list uids, gids;
	const char *cgroup_parent; /* "/kubepods/burstable/podX"; NULL: the kind's own */
	bool has_own_parent;	   /* no other sandbox is in that parent */
	struct key_value_list sysctls;
	struct selinux_spec selinux; /* of containers that ask for nothing themselves */
	/* Of the whole pod, with what the sandbox itself may use. With a cgroup_parent they are in
	 * force there already: who made it set its limits, and changes them. Without one they are
	 * the kind's to enforce. */
	struct resources resources;
	uint64_t shm_size; /* of the pod's /dev/shm */
	/* Recovery: that many containers of an earlier server have not ended and will be
	 * recovered. */
	size_t container_count;
};

enum mount_propagation { PROPAGATION_PRIVATE, PROPAGATION_SLAVE, PROPAGATION_SHARED };

enum mount_kind {
	MOUNT_BIND,
	MOUNT_TMPFS,
	MOUNT_IMAGE,
	MOUNT_VOLUME, /* a directory that is made when the container is, from what its image has */
};

struct mount_spec {
	enum mount_kind kind;
	const char *source; /* bind: host path, may be a symlink; volume: the directory, in one that
			     * goes with the container; else NULL */
	const char *target; /* in the container, resolved beneath its root */
	struct string_list layers; /* image: layer directories, lowest first */
	const char *sub_path;	   /* image: path within it, its links followed within it */
	const char *options;	   /* tmpfs: mount data such as "size=65536k,mode=1777" */
	enum mount_propagation propagation;
	bool is_readonly, is_recursive_readonly;
	bool is_noexec, is_nosuid, is_nodev; /* with all that is mounted below */
	bool is_relabelled; /* bind, volume: all of it gets the label of the container's files */
	struct id_map_list uids, gids; /* id-mapped mount */
};

struct device_spec {
	const char *host_path, *path;	 /* path in the container */
	const char *permissions;	 /* of "rwm" */
	bool has_mode, has_uid, has_gid; /* else as the host's node */
	mode_t mode;
	uid_t uid;
	gid_t gid;
	/* what the host's node has to be; 0 and false: any */
	char type; /* 'b' or 'c' */
	bool has_number;
	dev_t number;
};

struct rlimit_spec {
	int resource; /* RLIMIT_* */
	uint64_t soft, hard;
};

/* What a seccomp profile's text may be at most. */
#define SECCOMP_PROFILE_MAX (1024 * 1024)

enum seccomp_kind { SECCOMP_UNCONFINED, SECCOMP_RUNTIME_DEFAULT, SECCOMP_LOCALHOST };

enum apparmor_kind { APPARMOR_UNCONFINED, APPARMOR_RUNTIME_DEFAULT, APPARMOR_LOCALHOST };

enum groups_policy { GROUPS_MERGE, GROUPS_STRICT };

/* As asked for; names are looked up in the image's own passwd and group. */
struct user_spec {
	const char *user;  /* number or name; NULL: 0 */
	const char *group; /* number or name; NULL: the user's own, else 0 */
	struct {
		gid_t *items;
		size_t count;
	} supplemental;
	enum groups_policy policy;
};

/* As found. groups[0] is the primary group. */
struct user_ids {
	uid_t uid;
	gid_t gid;
	gid_t *groups;
	size_t group_count;
	char *home; /* from passwd, or "/" */
};

struct container_spec {
	const char *id, *sandbox_id;
	struct string_list argv, envp; /* envp as "K=V" */
	const char *cwd;	       /* created if missing; "/" when NULL */
	struct user_spec user;
	struct string_list layers; /* of the root file system, lowest first, absolute */
	const char *upper, *work;  /* overlay directories, absolute, made by the caller */
	bool is_readonly_root;
	struct mount_spec *mounts;
	size_t mount_count;
	struct string_list masked_paths, readonly_paths;
	struct device_spec *devices;
	size_t device_count;
	bool is_privileged, no_new_privs;
	uint64_t capabilities;	       /* bit n is CAP_n: bounding, permitted, effective */
	uint64_t ambient_capabilities; /* also inheritable then; else inheritable is empty */
	enum seccomp_kind seccomp;
	/* SECCOMP_LOCALHOST: a file with the JSON text that stays as it is while the container is
	 */
	const char *seccomp_profile;
	enum apparmor_kind apparmor;
	const char *apparmor_profile; /* APPARMOR_LOCALHOST: its name */
	struct selinux_spec selinux;  /* none of it given: the pod's */
	enum ns_mode pid;
	const char *pid_target; /* NS_TARGET: container id */
	bool has_tty, has_stdin;
	int stop_signal;
	struct rlimit_spec *rlimits;
	size_t rlimit_count;
	struct resources resources;
};

struct exec_spec {
	const char *id;
	struct string_list argv;
	bool has_tty;
};
