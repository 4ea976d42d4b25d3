/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the node's kernel and limits can do for containers, which fallback is used where they can't,
 * and what to do about it: for `crisp doctor`, which needs no server, and for the server's Status.
 * Needs root, and opens and tries things: not for the loop's thread. What it makes is gone after
 * it.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>

#include "io/base/buf.h"

enum finding_state {
	FINDING_OK,
	FINDING_FALLBACK, /* it works in another way */
	FINDING_MISSING,  /* what needs it is refused */
};

struct finding {
	const char *name;
	enum finding_state state;
	char detail[160];   /* what was found */
	const char *advice; /* one sentence; NULL: nothing to do */
	bool is_vital;	    /* without it no container runs, or not as it was asked for */
};

struct doctor_report {
	struct finding *items;
	size_t count;
	bool is_fit; /* nothing vital is missing */
};

/* root: a descriptor of "/", or, for tests, of a tree with proc/sys and sys as far as they matter;
 * what is tried is the machine's own. */
void doctor_run(int root, struct doctor_report *ret);
void doctor_report_done(struct doctor_report *report);
/* {NAME: {"state", "detail", "advice"}, …}, in the report's order. */
void doctor_json(const struct doctor_report *report, struct buf *ret);
/* What is vital and missing, and what helps, in one line; nothing when it is fit. */
void doctor_unfit(const struct doctor_report *report, struct buf *ret);
/* The state's word: "ok", "fallback", "missing". */
const char *finding_word(enum finding_state state);
