/* SPDX-License-Identifier: Apache-2.0 */
/* What the node can do, as Status tells it. */
#pragma once

#include "io/task.h"

/* The JSON of sandbox/linux/doctor.h; it stays. */
int cri_doctor_json(struct task *t, const char **ret);
