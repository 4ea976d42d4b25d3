/* SPDX-License-Identifier: Apache-2.0 */
/* What the node can do, as Status tells it. */
#pragma once

#include "io/task.h"

struct node_findings {
	char *json;  /* of sandbox/linux/doctor.h */
	char *unfit; /* what keeps containers from running, and what helps; "" on a fit node */
};

/* Looks at the first call; the result stays as long as the process. */
int cri_doctor(struct task *t, const struct node_findings **ret);
