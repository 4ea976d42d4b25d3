/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Builds a plan for the init helper (init/protocol.h): the bytes, and the descriptors that the
 * helper will find. Made on one thread; the spawner takes it over as a whole.
 */
#pragma once

#include <stdbool.h>

#include "io/base/buf.h"
#include "io/base/error.h"
#include "io/base/strings.h"
#include "sandbox/linux/init/protocol.h"

/* Descriptors with their targets: index i becomes descriptor i of the helper. */
struct plan_fd {
	int fd;
	bool is_owned;
};

struct plan_builder {
	struct buf bytes; /* begins with the struct plan */
	struct plan_fd *fds;
	size_t fd_count;
};

/* A plan of that stage without anything in it; stdio as the helper gets it, lent; -1: /dev/null. */
void plan_init(struct plan_builder *b, enum init_stage stage, const int stdio[3]);
/* Frees and closes what is owned. Harmless twice. */
void plan_done(struct plan_builder *b);
/* The plan so far; good until the next call. */
struct plan *plan_get(struct plan_builder *b);

/* The number by which the helper will know fd; -1 stays -1. Given ones are closed with the plan,
 * lent ones must outlive the start. */
int plan_give_fd(struct plan_builder *b, int fd);
int plan_lend_fd(struct plan_builder *b, int fd);

plan_string plan_add_string(struct plan_builder *b, const char *s);
struct plan_list plan_add_list(struct plan_builder *b, const void *items, size_t count,
			       size_t size);
/* Of plan_string. */
struct plan_list plan_add_strings(struct plan_builder *b, const struct string_list *list);
/* For execve: uint64_t offsets with a 0 at the end. */
struct plan_list plan_add_vector(struct plan_builder *b, const struct string_list *list);

/*
 * Puts the bytes into a memfd, which becomes INIT_FD_PLAN, and makes the control socket; the
 * helper's end becomes INIT_FD_CONTROL. *ret_control is the caller's.
 */
int plan_seal(struct plan_builder *b, int *ret_control, struct error *err);
