/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The event loop: libev behind a few functions, so that ev.h stays in loop.c. One loop a process,
 * on one thread; all callbacks run on it, and only loop_post_remote() may be called from another.
 *
 * Time is CLOCK_MONOTONIC in nanoseconds. A loop made by loop_new_virtual() has a clock of its own
 * that stands still while anything is runnable and jumps to the next timer otherwise (tests).
 *
 * A watchdog measures every callback; one that takes longer than LOOP_SLOW_NS is logged with its
 * name and counted.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "io/base/error.h"
#include "io/base/list.h"

struct loop;
struct loop_watch;

#define LOOP_READ 1
#define LOOP_WRITE 2
#define LOOP_SLOW_NS (10 * 1000000ull)
#define LOOP_NEVER UINT64_MAX

/* NULL with err set when epoll or eventfd can't be had. */
struct loop *loop_new(struct error *err);
struct loop *loop_new_virtual(struct error *err);
void loop_free(struct loop *l);
/* Runs until loop_stop(), or, for a virtual loop, until nothing can happen any more. */
void loop_run(struct loop *l);
void loop_stop(struct loop *l);
/* Nanoseconds, never going back. */
uint64_t loop_now(const struct loop *l);
/* How many callbacks were slower than LOOP_SLOW_NS so far. */
uint64_t loop_slow_count(const struct loop *l);

/*
 * Watches fd level-triggered for LOOP_READ and/or LOOP_WRITE; 0 pauses. name (static) is what the
 * watchdog says. The descriptor stays the caller's and must outlive the watch. loop_watch_free()
 * may be called within the callback.
 */
struct loop_watch *loop_watch_fd(struct loop *l, int fd, int events, const char *name,
				 void (*fn)(void *data, int events), void *data);
void loop_watch_set(struct loop_watch *w, int events);
void loop_watch_free(struct loop_watch *w);

/* A timer, embedded in its owner; once fired it is stopped and may be started again. */
struct loop_timer {
	void (*fn)(void *data);
	void *data;
	const char *name;
	uint64_t at;
	long index; /* in the heap, -1 when stopped */
};

void loop_timer_init(struct loop_timer *timer, const char *name, void (*fn)(void *data),
		     void *data);
/* (Re)starts it for the time at. */
void loop_timer_start(struct loop *l, struct loop_timer *timer, uint64_t at);
void loop_timer_stop(struct loop *l, struct loop_timer *timer);

/* Work to be run by the loop soon, once a post, in order; embedded in its owner. */
struct loop_work {
	void (*fn)(void *data);
	void *data;
	const char *name;
	struct list node;
};

void loop_work_init(struct loop_work *work, const char *name, void (*fn)(void *data), void *data);
/* Does nothing if it is posted already. */
void loop_post(struct loop *l, struct loop_work *work);
void loop_work_cancel(struct loop_work *work);
/* From any thread. The work must not be posted otherwise at the same time. */
void loop_post_remote(struct loop *l, struct loop_work *work);
/* Undoes loop_post() or loop_post_remote(), whose thread must be done with it: false when the work
 * ran already or was never posted. */
bool loop_take_back(struct loop *l, struct loop_work *work);
/* The descriptor that loop_post_remote() writes to; a thread with a descriptor table of its own
 * keeps it there under the same number. */
int loop_remote_fd(const struct loop *l);
/* While held, a virtual loop waits for the outside (threads, children) instead of moving its clock.
 */
void loop_hold(struct loop *l, int delta);

/* Called before the loop waits, once a turn; for the HTTP library's own loop. One per loop. */
void loop_set_prepare(struct loop *l, const char *name, void (*fn)(void *data), void *data);
/* A signal as a callback on the loop. */
void loop_on_signal(struct loop *l, int signal, void (*fn)(void *data), void *data);
