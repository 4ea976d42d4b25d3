/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Tasks: stackful coroutines on the event loop, so that "do these five things in order" reads from
 * top to bottom. All tasks run on the loop's thread, one at a time, and give way only where they
 * wait. The four rules:
 *
 * 1. Waiting is in the signature: what can suspend takes `struct task *t` first; what does not have
 *    one can't. There is no way to ask for the current task.
 * 2. Scope cleanup frees only what is ours and never suspends; what the world can see is undone by
 *    the owner's idempotent teardown.
 * 3. Undo is shielded (task_shield) from the deadline and the cancellation that caused it.
 * 4. A wait that timed out means "unknown", not "not done".
 *
 * A wait returns 0, or -ERR_DEADLINE or -ERR_CANCELLED with t->err set. Stacks are TASK_STACK
 * bytes: no large locals, no recursion that input can drive.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "io/base/arena.h"
#include "io/base/error.h"
#include "io/base/list.h"
#include "io/loop.h"

#define TASK_STACK (64 * 1024)
/* A request may not unpack into more than this. */
#define TASK_ARENA_CAP (64 * 1024 * 1024)
/* What an undo may take before it is given up to the next attempt. */
#define TASK_SHIELD_NS (60 * 1000000000ull)

struct task_impl;

struct task {
	struct error err;    /* of the last failed call; valid after a negative return */
	struct arena *arena; /* dropped with the task */
	struct loop *loop;
	const char *name;	/* static; for the watchdog and the log */
	const char *stage;	/* task_stage() */
	uint64_t stage_since;	/* loop time */
	struct task_impl *impl; /* io/task.c only */
};

/* Starts fn(t, arg) on the next turn of the loop. The task is freed when fn returns; the returned
 * pointer is good until then, for task_cancel(). */
struct task *task_start(struct loop *l, const char *name, void (*fn)(struct task *t, void *arg),
			void *arg);
/* How many tasks exist. */
size_t task_count(void);
/* Calls fn for each task that is suspended, with for how long (ns); for the watchdog's dump. */
void task_each(void (*fn)(const struct task *t, uint64_t parked_ns, void *data), void *data);
/* Notes what t is at from now on, for whoever has to wait for it: a static text that goes behind
 * "is", such as "opening its log". */
void task_stage(struct task *t, const char *stage);
/* For a wait that failed because of what t is at: prepends that to err. Nothing if t is NULL or has
 * no stage. */
void task_blame(const struct task *t, struct error *err);
/* Frees pooled stacks; for leak checks at exit. */
void task_pool_trim(void);

/* Makes the present or next unshielded wait of t fail with ERR_CANCELLED, and every later one. */
void task_cancel(struct task *t);
/* 0, or the error that the next wait would give. */
int task_check(struct task *t);
/* At is an absolute loop time; the earlier of the present and the new deadline holds. Returns the
 * old one for task_restore_deadline(). */
uint64_t task_limit(struct task *t, uint64_t at);
uint64_t task_limit_ms(struct task *t, uint64_t timeout_ms);
void task_restore_deadline(struct task *t, uint64_t deadline);
/* Loop time, LOOP_NEVER when there is none. */
uint64_t task_deadline(const struct task *t);
/* For whoever has work done elsewhere for a task: 0, or the failure that a test wants to see
 * instead (io/base/fault.h). */
int task_work_done(struct task *t);
/* +1 and -1, nesting: within, cancellation and the old deadline do not count; TASK_SHIELD_NS does.
 */
void task_shield(struct task *t, int delta);

int task_sleep_ms(struct task *t, uint64_t ms);
/* Lets everything else that is runnable run once. */
int task_yield(struct task *t);
/* Waits until fd is ready for LOOP_READ and/or LOOP_WRITE. */
int task_wait_fd(struct task *t, int fd, int events);

/* A latch: once set, it stays set; waiters go on. */
struct task_event {
	struct list waiters;
	bool is_set;
};

void task_event_init(struct task_event *e);
void task_event_set(struct task_event *e);
int task_event_wait(struct task *t, struct task_event *e);
/* Waits however long it takes: for the end of what uses something of the caller's. */
void task_event_finish(struct task *t, struct task_event *e);

/* A condition: task_cond_wait() returns after the next task_cond_broadcast(); callers re-check. */
struct task_cond {
	struct list waiters;
};

void task_cond_init(struct task_cond *c);
void task_cond_broadcast(struct task_cond *c);
int task_cond_wait(struct task *t, struct task_cond *c);

/* A queue for one object's operations: first come, first served. */
struct task_mutex {
	struct list waiters;
	struct task *owner; /* until it unlocks; NULL: nobody */
};

void task_mutex_init(struct task_mutex *m);
/* An error of the wait says what the owner is at. */
int task_mutex_lock(struct task *t, struct task_mutex *m);
void task_mutex_unlock(struct task_mutex *m);

static inline void cleanup_unlock_fn(struct task_mutex **m)
{
	if (*m)
		task_mutex_unlock(*m);
}

/* struct task_mutex *held cleanup_unlock = NULL; …lock…; held = &x->mutex; */
#define cleanup_unlock __attribute__((cleanup(cleanup_unlock_fn)))
