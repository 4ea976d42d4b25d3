/* SPDX-License-Identifier: Apache-2.0 */
/* Locking in. Peculiar: what a sanitizer's run-time needs is let through when one is built in, and
 * then its address space is not limited. */
#include "io/confine.h"

#include <errno.h>
#include <linux/capability.h>
#include <seccomp.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "io/base/cleanup.h"

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define IS_SANITIZED 1
#else
#define IS_SANITIZED 0
#endif

static const int sanitizer_syscalls[] = {
	SYS_sigaltstack, SYS_openat,	   SYS_readlink, SYS_gettid,	SYS_getpid,
	SYS_sched_yield, SYS_rt_sigaction, SYS_prctl,	 SYS_getrusage,
};

static int drop_capabilities(uint64_t keep, struct error *err)
{
	struct __user_cap_header_struct head = {.version = _LINUX_CAPABILITY_VERSION_3};
	struct __user_cap_data_struct data[2];

	if (syscall(SYS_capget, &head, data) < 0)
		return error_errno(err, errno, "read the capabilities");
	for (int i = 0; i < 2; i++) {
		data[i].permitted &= (uint32_t)(keep >> (32 * i));
		data[i].effective = data[i].permitted;
		data[i].inheritable = 0;
	}
	if (prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0) < 0)
		return error_errno(err, errno, "clear the ambient capabilities");
	if (syscall(SYS_capset, &head, data) < 0)
		return error_errno(err, errno, "drop capabilities");
	return 0;
}

/* A hard limit that is lower already stays. */
static int set_limit(const struct confine_limit *limit, struct error *err)
{
	struct rlimit r;

	if (IS_SANITIZED && (limit->resource == RLIMIT_AS || limit->resource == RLIMIT_DATA))
		return 0;
	if (getrlimit(limit->resource, &r) < 0)
		return error_errno(err, errno, "read limit %d", limit->resource);
	if (limit->value < r.rlim_max)
		r.rlim_max = limit->value;
	r.rlim_cur = r.rlim_max;
	if (setrlimit(limit->resource, &r) < 0)
		return error_errno(err, errno, "set limit %d", limit->resource);
	return 0;
}

/* mmap(2) and mprotect(2), which have it in the same place, never make memory executable: what the
 * child runs was loaded before. */
static int allow_one(scmp_filter_ctx filter, int number)
{
	if (number == SYS_mmap || number == SYS_mprotect)
		return seccomp_rule_add(filter, SCMP_ACT_ALLOW, number, 1,
					SCMP_A2(SCMP_CMP_MASKED_EQ, PROT_EXEC, 0));
	return seccomp_rule_add(filter, SCMP_ACT_ALLOW, number, 0);
}

static int allow(scmp_filter_ctx filter, const int *syscalls, size_t count)
{
	for (size_t i = 0; i < count; i++) {
		int r = allow_one(filter, syscalls[i]);

		if (r < 0 && r != -EEXIST)
			return r;
	}
	return 0;
}

static int load_filter(const struct confine_spec *spec, struct error *err)
{
	scmp_filter_ctx filter = seccomp_init(SCMP_ACT_KILL_PROCESS);
	int r;

	if (!filter)
		return error_set(err, ERR_INTERNAL, "system call filter: no memory");
	r = allow(filter, spec->syscalls, spec->syscall_count);
	if (r == 0 && IS_SANITIZED)
		r = allow(filter, sanitizer_syscalls,
			  sizeof(sanitizer_syscalls) / sizeof(*sanitizer_syscalls));
	if (r == 0)
		r = seccomp_load(filter);
	seccomp_release(filter);
	return r < 0 ? error_errno(err, -r, "load the system call filter") : 0;
}

int confine_self(const struct confine_spec *spec, struct error *err)
{
	if (spec->root >= 0 && (fchdir(spec->root) < 0 || chroot(".") < 0))
		return error_errno(err, errno, "change the root directory");
	for (size_t i = 0; i < spec->limit_count; i++)
		TRY(set_limit(&spec->limits[i], err));
	if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0)
		return error_errno(err, errno, "set no_new_privs");
	TRY(drop_capabilities(spec->capabilities, err));
	return load_filter(spec, err);
}
