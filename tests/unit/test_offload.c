/* SPDX-License-Identifier: Apache-2.0 */
/* Jobs on other threads: results, abandonment, the order of a worker, settling at the end. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "io/base/alloc.h"
#include "io/offload.h"

static struct loop *l;
static atomic_int jobs_alive;

static int setup(void **state)
{
	l = loop_new(NULL);
	return l ? 0 : -1;
}

static int teardown(void **state)
{
	offload_shutdown();
	assert_int_equal(task_count(), 0);
	assert_int_equal(atomic_load(&jobs_alive), 0);
	loop_free(l);
	task_pool_trim();
	return 0;
}

struct sum_job {
	struct job job;
	int a, b, sum;
	int sleep_ms;
	pthread_t thread;
	int *order;
	atomic_int *order_count;
	bool *ret_finished;
};

static int sum_run(struct job *job, struct error *err)
{
	struct sum_job *j = (struct sum_job *)job;

	j->thread = pthread_self();
	if (j->sleep_ms)
		nanosleep(&(struct timespec){.tv_nsec = j->sleep_ms * 1000000L}, NULL);
	if (j->order)
		j->order[atomic_fetch_add(j->order_count, 1)] = j->a;
	if (j->b == 0)
		return error_errno(err, ENOSPC, "add nothing to %d", j->a);
	j->sum = j->a + j->b;
	return 0;
}

static void sum_free(struct job *job)
{
	atomic_fetch_sub(&jobs_alive, 1);
	free(job);
}

static struct sum_job *sum_new(int a, int b)
{
	struct sum_job *j = xnew(struct sum_job);

	job_init(&j->job, sum_run, sum_free);
	atomic_fetch_add(&jobs_alive, 1);
	j->a = a;
	j->b = b;
	return j;
}

static void adder(struct task *t, void *arg)
{
	struct sum_job *j = sum_new(2, 3);

	assert_int_equal(offload(t, NULL, &j->job), 0);
	assert_int_equal(j->sum, 5);
	assert_false(pthread_equal(j->thread, pthread_self()));
	job_unref(&j->job);
	j = sum_new(2, 0);
	assert_int_equal(offload(t, NULL, &j->job), -ERR_EXHAUSTED);
	assert_int_equal(t->err.sys, ENOSPC);
	assert_non_null(strstr(t->err.text, "add nothing to 2"));
	job_unref(&j->job);
	loop_stop(t->loop);
}

static void job_returns_result_or_error(void **state)
{
	task_start(l, "adder", adder, NULL);
	loop_run(l);
}

static void abandoner(struct task *t, void *arg)
{
	struct sum_job *j = sum_new(1, 1);
	uint64_t began = loop_now(t->loop);

	j->sleep_ms = 100;
	task_limit_ms(t, 5);
	assert_int_equal(offload(t, NULL, &j->job), -ERR_DEADLINE);
	job_unref(&j->job);
	assert_true(loop_now(t->loop) - began < 90 * 1000000ull);
	/* still in the thread's hands */
	assert_int_equal(atomic_load(&jobs_alive), 1);
	task_shield(t, 1);
	while (atomic_load(&jobs_alive))
		assert_int_equal(task_sleep_ms(t, 5), 0);
	task_shield(t, -1);
	/* past the deadline nothing is started at all */
	j = sum_new(1, 1);
	assert_int_equal(offload(t, NULL, &j->job), -ERR_DEADLINE);
	assert_int_equal(j->sum, 0);
	job_unref(&j->job);
	loop_stop(t->loop);
}

static void abandoned_job_frees_itself(void **state)
{
	task_start(l, "abandoner", abandoner, NULL);
	loop_run(l);
}

static int remember_thread(void *arg, struct error *err)
{
	*(pthread_t *)arg = pthread_self();
	return 0;
}

struct crowd {
	struct worker *worker;
	int order[100];
	atomic_int order_count;
	int left;
	pthread_t thread;
};

struct member {
	struct crowd *crowd;
	int number;
};

static void crowd_member(struct task *t, void *arg)
{
	struct member *m = arg;
	struct sum_job *j = sum_new(m->number, 1);

	j->order = m->crowd->order;
	j->order_count = &m->crowd->order_count;
	assert_int_equal(offload(t, m->crowd->worker, &j->job), 0);
	assert_int_equal(j->sum, m->number + 1);
	if (m->crowd->worker)
		assert_true(pthread_equal(j->thread, m->crowd->thread));
	job_unref(&j->job);
	if (--m->crowd->left == 0)
		loop_stop(t->loop);
}

static void run_crowd(struct crowd *c)
{
	struct member members[100];

	c->left = 100;
	for (int i = 0; i < 100; i++) {
		members[i] = (struct member){.crowd = c, .number = i};
		task_start(l, "member", crowd_member, &members[i]);
	}
	loop_run(l);
	assert_int_equal(atomic_load(&c->order_count), 100);
}

static void worker_keeps_the_order_on_one_thread(void **state)
{
	struct crowd c = {0};

	c.worker = worker_new("crowd", remember_thread, &c.thread, NULL);
	assert_non_null(c.worker);
	run_crowd(&c);
	for (int i = 0; i < 100; i++)
		assert_int_equal(c.order[i], i);
	worker_free(c.worker);
}

static void pool_runs_a_hundred(void **state)
{
	struct crowd c = {0};

	run_crowd(&c);
}

/* A hundred sleeps of 20 ms would take 2 s on one thread. */
static void sleeper(struct task *t, void *arg)
{
	struct sum_job *j = sum_new(1, 1);

	j->sleep_ms = 20;
	assert_int_equal(offload(t, NULL, &j->job), 0);
	job_unref(&j->job);
	if (--*(int *)arg == 0)
		loop_stop(t->loop);
}

static void pool_grows_when_its_threads_sleep(void **state)
{
	uint64_t began = loop_now(l);
	int left = 100;

	for (int i = 0; i < 100; i++)
		task_start(l, "sleeper", sleeper, &left);
	loop_run(l);
	assert_true(loop_now(l) - began < 1000 * 1000000ull);
}

/* Jobs that hang until the test lets them go. */
struct jam {
	pthread_mutex_t lock;
	int left;
	bool has_overtaken;
};

struct jam_job {
	struct job job;
	struct jam *jam;
};

static int jam_run(struct job *job, struct error *err)
{
	struct jam *jam = ((struct jam_job *)job)->jam;

	pthread_mutex_lock(&jam->lock);
	pthread_mutex_unlock(&jam->lock);
	return 0;
}

static void jam_free(struct job *job)
{
	atomic_fetch_sub(&jobs_alive, 1);
	free(job);
}

static void jammed(struct task *t, void *arg)
{
	struct jam_job *j = xnew(struct jam_job);
	struct jam *jam = arg;

	job_init(&j->job, jam_run, jam_free);
	atomic_fetch_add(&jobs_alive, 1);
	j->jam = jam;
	/* the deadline is nothing to a job that has to end first */
	task_limit_ms(t, 1);
	offload_start(t, NULL, &j->job);
	assert_int_equal(offload_finish(t, &j->job), 0);
	assert_true(jam->has_overtaken);
	assert_int_equal(task_check(t), -ERR_DEADLINE);
	job_unref(&j->job);
	if (--jam->left == 0)
		loop_stop(t->loop);
}

static void overtaker(struct task *t, void *arg)
{
	struct sum_job *j = sum_new(2, 3);
	struct jam *jam = arg;

	task_limit_ms(t, 5000);
	assert_int_equal(offload(t, NULL, &j->job), 0);
	job_unref(&j->job);
	jam->has_overtaken = true;
	pthread_mutex_unlock(&jam->lock);
}

static void jobs_that_hang_hold_up_nobody(void **state)
{
	struct jam jam = {.lock = PTHREAD_MUTEX_INITIALIZER, .left = 150};

	pthread_mutex_lock(&jam.lock);
	for (int i = 0; i < 150; i++)
		task_start(l, "jammed", jammed, &jam);
	task_start(l, "overtaker", overtaker, &jam);
	loop_run(l);
	assert_true(jam.has_overtaken);
}

static int fail_setup(void *arg, struct error *err)
{
	return error_set(err, ERR_DENIED, "no thread today");
}

static void worker_whose_setup_fails_is_not_made(void **state)
{
	struct error err = {0};

	assert_null(worker_new("fails", fail_setup, NULL, &err));
	assert_int_equal(err.code, ERR_DENIED);
}

static void on_finished(struct job *job)
{
	struct sum_job *j = (struct sum_job *)job;

	*j->ret_finished = true;
	if (j->sum == 7)
		loop_stop(job->loop);
}

static void detached_job_reports_on_the_loop(void **state)
{
	struct sum_job *j = sum_new(3, 4);
	bool is_finished = false;

	j->job.finished = on_finished;
	j->ret_finished = &is_finished;
	offload_detached(l, NULL, &j->job);
	loop_run(l);
	assert_true(is_finished);
}

static void freed_workers_job_can_be_settled_without_the_loop(void **state)
{
	struct worker *w = worker_new("settle", NULL, NULL, NULL);
	struct sum_job *j = sum_new(3, 3);
	bool is_finished = false;

	j->job.finished = on_finished;
	j->ret_finished = &is_finished;
	j->sleep_ms = 5;
	atomic_fetch_add(&j->job.refs, 1);
	offload_detached(l, w, &j->job);
	worker_free(w);
	assert_false(is_finished);
	job_settle(&j->job);
	assert_true(is_finished);
	assert_int_equal(j->sum, 6);
	job_settle(&j->job);
	job_unref(&j->job);
}

int main(void)
{
#define T(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
	const struct CMUnitTest tests[] = {
		T(job_returns_result_or_error),
		T(abandoned_job_frees_itself),
		T(worker_keeps_the_order_on_one_thread),
		T(pool_runs_a_hundred),
		T(pool_grows_when_its_threads_sleep),
		T(jobs_that_hang_hold_up_nobody),
		T(worker_whose_setup_fails_is_not_made),
		T(detached_job_reports_on_the_loop),
		T(freed_workers_job_can_be_settled_without_the_loop),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
