/* SPDX-License-Identifier: Apache-2.0 */
/* The time of day, for what people read and what outlives us. Waits count by loop time. */
#pragma once

#include <stdint.h>
#include <time.h>

static inline int64_t realtime_ns(void)
{
	struct timespec now;

	clock_gettime(CLOCK_REALTIME, &now);
	return now.tv_sec * 1000000000ll + now.tv_nsec;
}
