/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What RuntimeDefault allows. The set is the one that images are tested with everywhere (Docker's,
 * containerd's and Podman's defaults agree in nearly all of it); names that an architecture lacks
 * are passed over by the compiler.
 */
#include "sandbox/linux/seccomp_priv.h"

#include <errno.h>
#include <linux/capability.h>
#include <linux/sched.h>
#include <sys/socket.h>

#define BIT(cap) (1ull << (cap))
#define NAMESPACES                                                                                 \
	(CLONE_NEWNS | CLONE_NEWUTS | CLONE_NEWIPC | CLONE_NEWUSER | CLONE_NEWPID | CLONE_NEWNET | \
	 CLONE_NEWCGROUP)
#define ERRNO(n) (SECCOMP_RET_ERRNO | (n))

/* For every container. */
static const char *const always[] = {
	/* files */
	"access", "chdir", "chmod", "chown", "chown32", "close", "close_range", "copy_file_range",
	"creat", "dup", "dup2", "dup3", "faccessat", "faccessat2", "fadvise64", "fadvise64_64",
	"fallocate", "fanotify_mark", "fchdir", "fchmod", "fchmodat", "fchmodat2", "fchown",
	"fchown32", "fchownat", "fcntl", "fcntl64", "fdatasync", "fgetxattr", "file_getattr",
	"file_setattr", "flistxattr", "flock", "fremovexattr", "fsetxattr", "fstat", "fstat64",
	"fstatat64", "fstatfs", "fstatfs64", "fsync", "ftruncate", "ftruncate64", "futimesat",
	"getcwd", "getdents", "getdents64", "getxattr", "getxattrat", "inotify_add_watch",
	"inotify_init", "inotify_init1", "inotify_rm_watch", "ioctl", "lchown", "lchown32",
	"lgetxattr", "link", "linkat", "listmount", "listxattr", "listxattrat", "llistxattr",
	"_llseek", "lremovexattr", "lseek", "lsetxattr", "lstat", "lstat64", "mkdir", "mkdirat",
	"mknod", "mknodat", "name_to_handle_at", "newfstatat", "open", "openat", "openat2", "pipe",
	"pipe2", "pread64", "preadv", "preadv2", "pwrite64", "pwritev", "pwritev2", "read",
	"readahead", "readlink", "readlinkat", "readv", "removexattr", "removexattrat", "rename",
	"renameat", "renameat2", "rmdir", "sendfile", "sendfile64", "setxattr", "setxattrat",
	"splice", "stat", "stat64", "statfs", "statfs64", "statmount", "statx", "symlink",
	"symlinkat", "sync", "sync_file_range", "syncfs", "tee", "truncate", "truncate64", "umask",
	"unlink", "unlinkat", "utime", "utimensat", "utimensat_time64", "utimes", "vmsplice",
	"write", "writev",
	/* memory */
	"brk", "cachestat", "madvise", "map_shadow_stack", "membarrier", "memfd_create",
	"memfd_secret", "mincore", "mlock", "mlock2", "mlockall", "mmap", "mmap2", "mprotect",
	"mremap", "mseal", "msync", "munlock", "munlockall", "munmap", "pkey_alloc", "pkey_free",
	"pkey_mprotect", "process_mrelease", "remap_file_pages",
	/* processes, ids, scheduling */
	"capget", "capset", "execve", "execveat", "exit", "exit_group", "fork", "getcpu", "getegid",
	"getegid32", "geteuid", "geteuid32", "getgid", "getgid32", "getgroups", "getgroups32",
	"getpgid", "getpgrp", "getpid", "getppid", "getpriority", "getresgid", "getresgid32",
	"getresuid", "getresuid32", "getrlimit", "get_robust_list", "getrusage", "getsid",
	"get_thread_area", "gettid", "getuid", "getuid32", "ioprio_get", "ioprio_set", "kill",
	"pidfd_open", "pidfd_send_signal", "prctl", "prlimit64", "process_vm_readv",
	"process_vm_writev", "ptrace", "restart_syscall", "rseq", "sched_getaffinity",
	"sched_getattr", "sched_getparam", "sched_get_priority_max", "sched_get_priority_min",
	"sched_getscheduler", "sched_rr_get_interval", "sched_rr_get_interval_time64",
	"sched_setaffinity", "sched_setattr", "sched_setparam", "sched_setscheduler", "sched_yield",
	"setfsgid", "setfsgid32", "setfsuid", "setfsuid32", "setgid", "setgid32", "setgroups",
	"setgroups32", "setpgid", "setpriority", "setregid", "setregid32", "setresgid",
	"setresgid32", "setresuid", "setresuid32", "setreuid", "setreuid32", "setrlimit",
	"set_robust_list", "setsid", "set_thread_area", "set_tid_address", "setuid", "setuid32",
	"sysinfo", "tgkill", "times", "tkill", "ugetrlimit", "uname", "vfork", "wait4", "waitid",
	"waitpid",
	/* signals */
	"pause", "rt_sigaction", "rt_sigpending", "rt_sigprocmask", "rt_sigqueueinfo",
	"rt_sigreturn", "rt_sigsuspend", "rt_sigtimedwait", "rt_sigtimedwait_time64",
	"rt_tgsigqueueinfo", "sigaltstack", "signalfd", "signalfd4", "sigprocmask", "sigreturn",
	/* time */
	"adjtimex", "alarm", "clock_adjtime", "clock_adjtime64", "clock_getres",
	"clock_getres_time64", "clock_gettime", "clock_gettime64", "clock_nanosleep",
	"clock_nanosleep_time64", "getitimer", "gettimeofday", "nanosleep", "setitimer", "time",
	"timer_create", "timer_delete", "timer_getoverrun", "timer_gettime", "timer_gettime64",
	"timer_settime", "timer_settime64", "timerfd_create", "timerfd_gettime",
	"timerfd_gettime64", "timerfd_settime", "timerfd_settime64",
	/* waiting and locking */
	"epoll_create", "epoll_create1", "epoll_ctl", "epoll_ctl_old", "epoll_pwait",
	"epoll_pwait2", "epoll_wait", "epoll_wait_old", "eventfd", "eventfd2", "futex",
	"futex_requeue", "futex_time64", "futex_wait", "futex_waitv", "futex_wake", "io_cancel",
	"io_destroy", "io_getevents", "io_pgetevents", "io_pgetevents_time64", "io_setup",
	"io_submit", "_newselect", "poll", "ppoll", "ppoll_time64", "pselect6", "pselect6_time64",
	"select",
	/* sockets (socket itself is below) */
	"accept", "accept4", "bind", "connect", "getpeername", "getsockname", "getsockopt",
	"listen", "recv", "recvfrom", "recvmmsg", "recvmmsg_time64", "recvmsg", "send", "sendmmsg",
	"sendmsg", "sendto", "setsockopt", "shutdown", "socketcall", "socketpair",
	/* System V and POSIX IPC */
	"ipc", "mq_getsetattr", "mq_notify", "mq_open", "mq_timedreceive", "mq_timedreceive_time64",
	"mq_timedsend", "mq_timedsend_time64", "mq_unlink", "msgctl", "msgget", "msgrcv", "msgsnd",
	"semctl", "semget", "semop", "semtimedop", "semtimedop_time64", "shmat", "shmctl", "shmdt",
	"shmget",
	/* confining oneself, randomness */
	"getrandom", "landlock_add_rule", "landlock_create_ruleset", "landlock_restrict_self",
	"seccomp"};

/* What one architecture has alone. */
static const char *const native[] = {
#if defined(__x86_64__)
	"arch_prctl", "modify_ldt"
#elif defined(__aarch64__)
	"arm_fadvise64_64", "arm_sync_file_range", "sync_file_range2", "breakpoint", "cacheflush",
	"set_tls"
#elif defined(__riscv)
	"riscv_flush_icache", "riscv_hwprobe"
#endif
};

/* With one of the capabilities; each such system call checks them itself once more. */
static const struct {
	uint64_t capabilities;
	const char *name;
} with_capability[] = {
	{BIT(CAP_SYS_ADMIN), "clone"},
	{BIT(CAP_SYS_ADMIN), "clone3"},
	{BIT(CAP_SYS_ADMIN), "fanotify_init"},
	{BIT(CAP_SYS_ADMIN), "fsconfig"},
	{BIT(CAP_SYS_ADMIN), "fsmount"},
	{BIT(CAP_SYS_ADMIN), "fsopen"},
	{BIT(CAP_SYS_ADMIN), "fspick"},
	{BIT(CAP_SYS_ADMIN), "lookup_dcookie"},
	{BIT(CAP_SYS_ADMIN), "lsm_get_self_attr"},
	{BIT(CAP_SYS_ADMIN), "lsm_list_modules"},
	{BIT(CAP_SYS_ADMIN), "lsm_set_self_attr"},
	{BIT(CAP_SYS_ADMIN), "mount"},
	{BIT(CAP_SYS_ADMIN), "mount_setattr"},
	{BIT(CAP_SYS_ADMIN), "move_mount"},
	{BIT(CAP_SYS_ADMIN), "open_tree"},
	{BIT(CAP_SYS_ADMIN), "open_tree_attr"},
	{BIT(CAP_SYS_ADMIN), "quotactl"},
	{BIT(CAP_SYS_ADMIN), "quotactl_fd"},
	{BIT(CAP_SYS_ADMIN), "setdomainname"},
	{BIT(CAP_SYS_ADMIN), "sethostname"},
	{BIT(CAP_SYS_ADMIN), "setns"},
	{BIT(CAP_SYS_ADMIN), "umount"},
	{BIT(CAP_SYS_ADMIN), "umount2"},
	{BIT(CAP_SYS_ADMIN), "unshare"},
	{BIT(CAP_SYS_ADMIN) | BIT(CAP_BPF), "bpf"},
	{BIT(CAP_SYS_ADMIN) | BIT(CAP_PERFMON), "perf_event_open"},
	{BIT(CAP_SYS_ADMIN) | BIT(CAP_SYSLOG), "syslog"},
	{BIT(CAP_DAC_READ_SEARCH), "open_by_handle_at"},
	{BIT(CAP_SYS_BOOT), "reboot"},
	{BIT(CAP_SYS_CHROOT), "chroot"},
	{BIT(CAP_SYS_MODULE), "delete_module"},
	{BIT(CAP_SYS_MODULE), "finit_module"},
	{BIT(CAP_SYS_MODULE), "init_module"},
	{BIT(CAP_SYS_NICE), "get_mempolicy"},
	{BIT(CAP_SYS_NICE), "mbind"},
	{BIT(CAP_SYS_NICE), "set_mempolicy"},
	{BIT(CAP_SYS_NICE), "set_mempolicy_home_node"},
	{BIT(CAP_SYS_PACCT), "acct"},
	{BIT(CAP_SYS_PTRACE), "kcmp"},
	{BIT(CAP_SYS_PTRACE), "pidfd_getfd"},
	{BIT(CAP_SYS_PTRACE), "process_madvise"},
	{BIT(CAP_SYS_RAWIO), "ioperm"},
	{BIT(CAP_SYS_RAWIO), "iopl"},
	{BIT(CAP_SYS_TIME), "clock_settime"},
	{BIT(CAP_SYS_TIME), "clock_settime64"},
	{BIT(CAP_SYS_TIME), "settimeofday"},
	{BIT(CAP_SYS_TIME), "stime"},
	{BIT(CAP_SYS_TTY_CONFIG), "vhangup"},
};

const uint64_t seccomp_default_caps =
	BIT(CAP_SYS_ADMIN) | BIT(CAP_BPF) | BIT(CAP_PERFMON) | BIT(CAP_SYSLOG) |
	BIT(CAP_DAC_READ_SEARCH) | BIT(CAP_SYS_BOOT) | BIT(CAP_SYS_CHROOT) | BIT(CAP_SYS_MODULE) |
	BIT(CAP_SYS_NICE) | BIT(CAP_SYS_PACCT) | BIT(CAP_SYS_PTRACE) | BIT(CAP_SYS_RAWIO) |
	BIT(CAP_SYS_TIME) | BIT(CAP_SYS_TTY_CONFIG);

/* PER_LINUX, PER_LINUX32, the same with UNAME26, and asking. */
static const uint64_t personalities[] = {0x0, 0x8, 0x20000, 0x20008, 0xffffffff};

/*
 * All address families but AF_ALG (kernel crypto with a long record of holes) and AF_VSOCK (no
 * namespace confines it). Equality instead of "not equal": the filter compares 64 bits where the
 * kernel looks at 32.
 */
#define FAMILIES_BELOW AF_ALG
static const uint64_t families[] = {AF_NFC, AF_KCM, AF_QIPCRTR, AF_SMC, AF_XDP, AF_MCTP};

static void allow(struct seccomp_profile *p, const char *name)
{
	(void)seccomp_profile_add(
		p, &(struct seccomp_rule){.name = name, .action = SECCOMP_RET_ALLOW});
}

static void allow_arg(struct seccomp_profile *p, const char *name, enum seccomp_compare compare,
		      uint64_t value)
{
	struct seccomp_rule rule = {.name = name, .action = SECCOMP_RET_ALLOW, .arg_count = 1};

	rule.args[0] = (struct seccomp_arg){.compare = compare, .value = value};
	(void)seccomp_profile_add(p, &rule);
}

void seccomp_default_profile(uint64_t capabilities, struct seccomp_profile *ret)
{
	struct seccomp_profile p = {.default_action = ERRNO(EPERM)};

#if defined(__x86_64__)
	p.arches[p.arch_count++] = "x86_64";
	p.arches[p.arch_count++] = "x86";
	p.arches[p.arch_count++] = "x32";
#elif defined(__aarch64__)
	p.arches[p.arch_count++] = "aarch64";
	p.arches[p.arch_count++] = "arm";
#endif
	for (size_t i = 0; i < sizeof(always) / sizeof(always[0]); i++)
		allow(&p, always[i]);
	for (size_t i = 0; i < sizeof(native) / sizeof(native[0]); i++)
		allow(&p, native[i]);
	for (size_t i = 0; i < sizeof(with_capability) / sizeof(with_capability[0]); i++)
		if (with_capability[i].capabilities & capabilities)
			allow(&p, with_capability[i].name);
	for (size_t i = 0; i < sizeof(personalities) / sizeof(personalities[0]); i++)
		allow_arg(&p, "personality", COMPARE_EQ, personalities[i]);
	allow_arg(&p, "socket", COMPARE_LT, FAMILIES_BELOW);
	for (size_t i = 0; i < sizeof(families) / sizeof(families[0]); i++)
		allow_arg(&p, "socket", COMPARE_EQ, families[i]);
	if (!(capabilities & BIT(CAP_SYS_ADMIN))) {
		/* clone3's flags lie in memory, out of a filter's sight; libc falls back to clone
		 */
		struct seccomp_rule clone3 = {.name = "clone3", .action = ERRNO(ENOSYS)};

		allow_arg(&p, "clone", COMPARE_MASKED_EQ, NAMESPACES);
		(void)seccomp_profile_add(&p, &clone3);
	}
	*ret = p;
}
