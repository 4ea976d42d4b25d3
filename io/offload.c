/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The thread pool and workers. Peculiar: the pool grows to POOL_MAX when all its threads are busy,
 * and a thread whose job hangs (on a dead mount) does not count, so that it stops nobody else: a
 * thread of its own, the relief, is there as long as jobs wait, and looks for such. Threads that
 * were idle for a while end.
 */
#include "io/offload.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <time.h>

#include "io/base/alloc.h"
#include "io/base/log.h"

#define POOL_MAX 64
/* With those that hang; what is more has to wait until one of them ends. */
#define POOL_HUNG_MAX 512
#define HUNG_NS (200 * 1000000ull)
#define POOL_IDLE_S 10
#define THREAD_STACK (256 * 1024)

/* A queue of jobs with the threads that serve it. */
struct queue {
	pthread_mutex_t lock;
	pthread_cond_t changed;
	struct list jobs;
	struct list busy; /* struct server, the longest first */
	int threads, idle, queued;
	bool is_closing;
};

/* A thread with a job. */
struct server {
	struct list node;
	uint64_t since; /* CLOCK_MONOTONIC, ns */
};

struct worker {
	struct queue queue;
	pthread_t thread;
	const char *name;
	int (*setup)(void *arg, struct error *err);
	void *arg;
	struct error *err;
	bool is_ready, is_failed;
};

static struct queue pool = {.lock = PTHREAD_MUTEX_INITIALIZER,
			    .changed = PTHREAD_COND_INITIALIZER,
			    .jobs = {&pool.jobs, &pool.jobs},
			    .busy = {&pool.busy, &pool.busy}};
/* Under the pool's lock. */
static pthread_cond_t relief_wakes = PTHREAD_COND_INITIALIZER;
static bool has_relief;

static void on_job_done(void *data)
{
	struct job *job = data;

	loop_hold(job->loop, -1);
	if (job->finished)
		job->finished(job);
	task_event_set(&job->done);
	job_unref(job);
}

void job_init(struct job *job, int (*run)(struct job *job, struct error *err),
	      void (*free_fn)(struct job *job))
{
	job->run = run;
	job->finished = NULL;
	job->free = free_fn;
	job->result = 0;
	list_init(&job->node);
	task_event_init(&job->done);
	loop_work_init(&job->done_work, "job done", on_job_done, job);
	atomic_init(&job->refs, 1);
}

void job_unref(struct job *job)
{
	if (job && atomic_fetch_sub(&job->refs, 1) == 1)
		job->free(job);
}

void job_settle(struct job *job)
{
	if (loop_take_back(job->loop, &job->done_work))
		on_job_done(job);
}

static void run_job(struct job *job)
{
	job->err.code = ERR_OK;
	job->result = job->run(job, &job->err);
	loop_post_remote(job->loop, &job->done_work);
}

/* The next job, or NULL when the thread should end. Called and returns with the lock held. */
static struct job *next_job(struct queue *q, bool may_time_out)
{
	while (list_is_empty(&q->jobs)) {
		struct timespec until;
		int r;

		if (q->is_closing)
			return NULL;
		clock_gettime(CLOCK_REALTIME, &until);
		until.tv_sec += POOL_IDLE_S;
		q->idle++;
		r = may_time_out ? pthread_cond_timedwait(&q->changed, &q->lock, &until)
				 : pthread_cond_wait(&q->changed, &q->lock);
		q->idle--;
		if (r == ETIMEDOUT && list_is_empty(&q->jobs))
			return NULL;
	}
	struct job *job = container_of(q->jobs.next, struct job, node);

	list_remove(&job->node);
	q->queued--;
	return job;
}

static uint64_t monotonic_ns(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

static void serve(struct queue *q, bool may_time_out)
{
	struct server self;
	struct job *job;

	pthread_mutex_lock(&q->lock);
	while ((job = next_job(q, may_time_out))) {
		self.since = monotonic_ns();
		list_init(&self.node);
		list_append(&q->busy, &self.node);
		pthread_mutex_unlock(&q->lock);
		run_job(job);
		pthread_mutex_lock(&q->lock);
		list_remove(&self.node);
	}
	q->threads--;
	pthread_cond_broadcast(&q->changed);
	pthread_mutex_unlock(&q->lock);
}

static void *pool_main(void *arg)
{
	serve(&pool, true);
	return NULL;
}

/* Signals belong to the loop's thread. */
static int start_thread(pthread_t *ret, bool is_detached, void *(*fn)(void *), void *arg)
{
	pthread_attr_t attr;
	sigset_t every, old;
	int r;

	pthread_attr_init(&attr);
	pthread_attr_setstacksize(&attr, THREAD_STACK);
	if (is_detached)
		pthread_attr_setdetachstate(&attr, PTHREAD_CREATE_DETACHED);
	sigfillset(&every);
	pthread_sigmask(SIG_SETMASK, &every, &old);
	r = pthread_create(ret, &attr, fn, arg);
	pthread_sigmask(SIG_SETMASK, &old, NULL);
	pthread_attr_destroy(&attr);
	return r;
}

static int count_hung(void)
{
	uint64_t now = monotonic_ns();
	int count = 0;

	list_for_each(s, &pool.busy, struct server, node) {
		if (now - s->since < HUNG_NS)
			break;
		count++;
	}
	return count;
}

/* One more thread, if a job has none and there may be more. */
static bool grow(int hung)
{
	int most = hung < POOL_HUNG_MAX ? POOL_MAX + hung : POOL_HUNG_MAX;
	pthread_t thread;

	if (pool.queued <= pool.idle || pool.threads >= most ||
	    start_thread(&thread, true, pool_main, NULL))
		return false;
	pool.threads++;
	return true;
}

static void wait_for_hung(void)
{
	struct timespec until;

	clock_gettime(CLOCK_REALTIME, &until);
	until.tv_nsec += (long)HUNG_NS;
	until.tv_sec += until.tv_nsec / 1000000000;
	until.tv_nsec %= 1000000000;
	pthread_cond_timedwait(&relief_wakes, &pool.lock, &until);
}

static void *relief_main(void *arg)
{
	bool is_told = false;

	pthread_mutex_lock(&pool.lock);
	while (!pool.is_closing && pool.queued > pool.idle) {
		int hung = count_hung();

		for (int missing = pool.queued - pool.idle; missing > 0 && grow(hung); missing--)
			;
		if (hung >= POOL_HUNG_MAX && !is_told)
			log_error("%d system calls hang, and nothing more can begin that needs a "
				  "thread: look for a dead mount",
				  hung);
		is_told |= hung >= POOL_HUNG_MAX;
		wait_for_hung();
	}
	has_relief = false;
	pthread_cond_broadcast(&pool.changed);
	pthread_mutex_unlock(&pool.lock);
	return NULL;
}

static void find_thread(void)
{
	pthread_t thread;

	if (!grow(0) && pool.queued > pool.idle && !has_relief)
		has_relief = start_thread(&thread, true, relief_main, NULL) == 0;
	if (!pool.threads)
		abort();
}

static void submit(struct loop *l, struct queue *q, struct job *job)
{
	job->loop = l;
	atomic_fetch_add(&job->refs, 1);
	loop_hold(l, 1);
	pthread_mutex_lock(&q->lock);
	list_append(&q->jobs, &job->node);
	q->queued++;
	if (q == &pool)
		find_thread();
	pthread_cond_signal(&q->changed);
	pthread_mutex_unlock(&q->lock);
}

void offload_start(struct task *t, struct worker *worker, struct job *job)
{
	submit(t->loop, worker ? &worker->queue : &pool, job);
}

int offload(struct task *t, struct worker *worker, struct job *job)
{
	TRY(task_check(t));
	offload_start(t, worker, job);
	return offload_wait(t, job);
}

int offload_wait(struct task *t, struct job *job)
{
	TRY(task_event_wait(t, &job->done));
	if (job->result < 0)
		error_copy(&t->err, &job->err);
	return job->result < 0 ? job->result : task_work_done(t);
}

int offload_finish(struct task *t, struct job *job)
{
	task_event_finish(t, &job->done);
	return offload_wait(t, job);
}

void offload_detached(struct loop *l, struct worker *worker, struct job *job)
{
	submit(l, worker ? &worker->queue : &pool, job);
	job_unref(job);
}

static void *worker_main(void *arg)
{
	struct worker *w = arg;
	int r = w->setup ? w->setup(w->arg, w->err) : 0;

	pthread_setname_np(pthread_self(), w->name);
	pthread_mutex_lock(&w->queue.lock);
	w->is_ready = true;
	w->is_failed = r < 0;
	pthread_cond_broadcast(&w->queue.changed);
	pthread_mutex_unlock(&w->queue.lock);
	if (r == 0)
		serve(&w->queue, false);
	return NULL;
}

struct worker *worker_new(const char *name, int (*setup)(void *arg, struct error *err), void *arg,
			  struct error *err)
{
	struct worker *w = xnew(struct worker);
	int r;

	w->name = name;
	w->setup = setup;
	w->arg = arg;
	w->err = err;
	pthread_mutex_init(&w->queue.lock, NULL);
	pthread_cond_init(&w->queue.changed, NULL);
	list_init(&w->queue.jobs);
	list_init(&w->queue.busy);
	r = start_thread(&w->thread, false, worker_main, w);
	if (r) {
		error_errno(err, r, "thread %s", name);
		free(w);
		return NULL;
	}
	pthread_mutex_lock(&w->queue.lock);
	while (!w->is_ready)
		pthread_cond_wait(&w->queue.changed, &w->queue.lock);
	pthread_mutex_unlock(&w->queue.lock);
	if (w->is_failed) {
		pthread_join(w->thread, NULL);
		free(w);
		return NULL;
	}
	return w;
}

void worker_free(struct worker *w)
{
	if (!w)
		return;
	pthread_mutex_lock(&w->queue.lock);
	w->queue.is_closing = true;
	pthread_cond_broadcast(&w->queue.changed);
	pthread_mutex_unlock(&w->queue.lock);
	pthread_join(w->thread, NULL);
	pthread_mutex_destroy(&w->queue.lock);
	pthread_cond_destroy(&w->queue.changed);
	free(w);
}

void offload_shutdown(void)
{
	pthread_mutex_lock(&pool.lock);
	pool.is_closing = true;
	pthread_cond_broadcast(&pool.changed);
	pthread_cond_signal(&relief_wakes);
	while (pool.threads || has_relief)
		pthread_cond_wait(&pool.changed, &pool.lock);
	pool.is_closing = false;
	pthread_mutex_unlock(&pool.lock);
}
