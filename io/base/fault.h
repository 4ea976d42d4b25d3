/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Faults on demand, in a build with -DFAULTS=ON; in any other they cost nothing and are not there.
 * $CRISP_FAULT names a file with one line
 *
 *     KIND COUNT ACTION SERIAL NAME
 *
 * that makes the COUNT-th passing of the place do ACTION, once: the file is removed first, so that
 * the next server lives on, and a test sees that the place was reached. SERIAL tells one line from
 * the next of the same text. KIND and NAME are
 *
 *     at    a fault point (fault_points.h), in whatever thread
 *     wait  a task's name: where it is about to suspend
 *     work  a task's name: what it offloaded or committed is done
 *
 * and ACTION is kill (as kill -9), term (SIGTERM), or, for a wait, deadline and cancel, and for
 * work, fail: it is done, and yet is reported as failed. With failing, all work of the task fails
 * from there on, until the test removes the file.
 */
#pragma once

#include "io/base/fault_points.h"

enum fault_action { FAULT_NONE, FAULT_FAIL, FAULT_DEADLINE, FAULT_CANCEL };

#define FAULT_ENUM(name) FAULT_AT_##name,
enum fault_point { FAULT_POINTS(FAULT_ENUM) };
#undef FAULT_ENUM

#if CRISP_FAULTS
/* Any thread. */
void fault_at(enum fault_point point);
enum fault_action fault_of_task(const char *kind, const char *name);
#else
static inline void fault_at(enum fault_point point)
{
}

static inline enum fault_action fault_of_task(const char *kind, const char *name)
{
	return FAULT_NONE;
}
#endif

#define FAULT(point) fault_at(FAULT_AT_##point)
