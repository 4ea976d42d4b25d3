/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Locks a child of ours in before it reads what others wrote: a root directory, few capabilities,
 * no new privileges, limits, and an allow-list of system calls whose violation kills. Called by the
 * child itself when it has opened all it needs; there is no way back.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "io/base/error.h"

struct confine_limit {
	int resource; /* RLIMIT_* */
	uint64_t value;
};

struct confine_spec {
	int root; /* directory that becomes "/" and the working directory; −1: keep */
	uint64_t capabilities; /* bits (1 << CAP_x) that are kept, of those we have */
	const struct confine_limit *limits;
	size_t limit_count;
	const int *syscalls; /* SYS_*; mmap and mprotect without PROT_EXEC only */
	size_t syscall_count;
};

int confine_self(const struct confine_spec *spec, struct error *err);
