/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Descriptors that have hung up and may come back: a terminal that nobody has open any more, until
 * some process of its container opens it again. A level-triggered watch would spin meanwhile, so
 * they are in an edge-triggered epoll set: one descriptor for all of them, and none while there
 * are none.
 */
#pragma once

#include "io/loop.h"

struct hangup {
	struct loop *loop; /* NULL: not watched */
	int fd;
	void (*fn)(void *data);
	void *data;
};

/*
 * Calls fn, on the loop, when something happens to fd, and once soon after this call: it looks
 * whether it is back. The struct is embedded in its owner, zeroed at first. Nothing happens if it
 * is watched already. Without memory for it nobody is called.
 */
void hangup_watch(struct hangup *h, struct loop *l, int fd, void (*fn)(void *data), void *data);
/* Before fd is closed. Fine if it is not watched; may be called by fn. */
void hangup_forget(struct hangup *h);
