/* SPDX-License-Identifier: Apache-2.0 */
/*
 * System calls that can sleep, on other threads. A job is heap memory that owns all it uses,
 * counted by reference: one for the caller, one for the thread. A caller whose wait ended early
 * (deadline, cancellation) drops its reference and goes; the job runs to its end and frees itself.
 *
 *     struct stat_job *j = stat_job_new(path);        // job_init(&j->job, run, free)
 *     r = offload(t, NULL, &j->job);                  // 0, the error of run, or the wait's
 *     if (r == 0) …results in j…
 *     job_unref(&j->job);                             // always
 *
 * A worker is one dedicated thread that runs jobs in order: for what must happen on one thread (the
 * store's connection) or in a thread's own namespaces (pins, spawner).
 */
#pragma once

#include <stdatomic.h>

#include "io/task.h"

struct worker;

struct job {
	/* On the other thread; fills err on failure. */
	int (*run)(struct job *job, struct error *err);
	/* On the loop, once run returned, before its waiter goes on; optional, NULL after
	 * job_init(). */
	void (*finished)(struct job *job);
	/* When nobody needs it any more; on either thread. */
	void (*free)(struct job *job);
	struct list node; /* the rest is io/offload.c's */
	struct loop *loop;
	struct loop_work done_work;
	struct task_event done;
	struct error err;
	int result;
	atomic_int refs;
};

void job_init(struct job *job, int (*run)(struct job *job, struct error *err),
	      void (*free)(struct job *job));
void job_unref(struct job *job);

/* Runs the job on worker, or on the shared pool for NULL, and waits for it. */
int offload(struct task *t, struct worker *worker, struct job *job);
/* The same in two steps, so that the caller can do something else meanwhile. What the job does to
 * the world is known only after a wait that was successful or gave the job's own error. */
void offload_start(struct task *t, struct worker *worker, struct job *job);
int offload_wait(struct task *t, struct job *job);
/* Waits until the job has ended, however long that takes: for what works on something that must not
 * go, or be used, before. */
int offload_finish(struct task *t, struct job *job);
/* Hands the job over without waiting; drops the caller's reference. Loop thread only. */
void offload_detached(struct loop *l, struct worker *worker, struct job *job);

/* Starts the thread and runs setup(arg) on it first; NULL with err set when that fails. */
struct worker *worker_new(const char *name, int (*setup)(void *arg, struct error *err), void *arg,
			  struct error *err);
/* Finishes what is queued, then joins the thread. */
void worker_free(struct worker *w);
/* For a job of a worker that was freed: what it tells the loop is done now, not in the next turn.
 * Does nothing if that happened already. The caller holds a reference. */
void job_settle(struct job *job);
/* Ends the pool's threads; at exit. */
void offload_shutdown(void);
