/* SPDX-License-Identifier: Apache-2.0 */
/*
 * System call filters of containers, compiled by libseccomp once and kept as BPF. A lookup that
 * hits the cache does not suspend and costs a hash of the profile's text (nothing for
 * RuntimeDefault).
 *
 * RuntimeDefault is a table of our own with what containers are usually allowed; the rest gives
 * EPERM, and a system call that is newer than the table ENOSYS, so that libc's fallbacks work.
 * Localhost is the JSON of the OCI runtime specification ("linux.seccomp" in config-linux.md) with
 * the `includes` and `excludes` of Docker's profiles; names that neither libseccomp nor we know are
 * skipped.
 */
#pragma once

#include <linux/filter.h>
#include <stddef.h>
#include <stdint.h>

#include "io/task.h"
#include "sandbox/spec.h"

/* Immutable once made; counted by reference, the loop's thread only. */
struct seccomp_filter {
	struct sock_filter *code;
	size_t count;	/* instructions, at most BPF_MAXINSNS */
	unsigned flags; /* of seccomp(2), SECCOMP_FILTER_FLAG_* */
	size_t refs;
};

/*
 * The filter for a container with these capabilities (bit n is CAP_n; they widen what is allowed).
 * *ret is NULL for SECCOMP_UNCONFINED. Owned by the caller: seccomp_filter_unref(). Suspends only
 * to compile. A profile that is empty, no JSON or asks for what can't be had is ERR_INVALID, and
 * the text names the place.
 */
int seccomp_filter_get(struct task *t, enum seccomp_kind kind, const char *profile,
		       uint64_t capabilities, struct seccomp_filter **ret);
struct seccomp_filter *seccomp_filter_ref(struct seccomp_filter *f);
void seccomp_filter_unref(struct seccomp_filter *f);
/* Drops the cache; at exit. */
void seccomp_cache_done(void);

/* Compiles without cache; any thread. For seccomp_filter_get() and tests. */
int seccomp_compile(enum seccomp_kind kind, const char *profile, uint64_t capabilities,
		    struct seccomp_filter **ret, struct error *err);
