/* SPDX-License-Identifier: Apache-2.0 */
/* Pods that are looked at for a reply, held until it is sent. */
#pragma once

#include "cri/proto/cri.pb-c.h"
#include "sandbox/node.h"

struct sandbox_gather {
	struct sandbox **sandboxes; /* references */
	struct sandbox_stats *stats;
	size_t count;
};

/* Looks at the pods that are ready and match the filter (NULL: all); those that ended meanwhile are
 * left out. *g is zeroed before, and given up by sandbox_gather_done() even after a failure. */
int sandbox_gather(struct task *t, struct node *n, const Runtime__V1__PodSandboxStatsFilter *filter,
		   bool has_details, struct sandbox_gather *g);
void sandbox_gather_done(struct sandbox_gather *g);
