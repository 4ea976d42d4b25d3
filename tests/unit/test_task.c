/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Tasks on a loop with virtual time: waiting, deadlines, cancellation, shields, the order in which
 * queues serve, and what ten thousand parked tasks cost.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "io/base/alloc.h"
#include "io/task.h"

#define MS 1000000ull

static struct loop *l;

static int setup(void **state)
{
	l = loop_new_virtual(NULL);
	return l ? 0 : -1;
}

/* Every test must leave the world as it was. */
static int teardown(void **state)
{
	assert_int_equal(task_count(), 0);
	loop_free(l);
	task_pool_trim();
	return 0;
}

struct probe {
	struct task *task;
	struct task_event *event;
	struct task_cond *cond;
	struct task_mutex *mutex;
	uint64_t sleep_ms, limit_ms;
	int result, number;
	uint64_t ended_at;
	struct error err;
	int *order; /* where to note number */
	int *order_count;
};

static void note(struct task *t, struct probe *p, int result)
{
	p->result = result;
	p->err = t->err;
	p->ended_at = loop_now(t->loop);
	if (p->order)
		p->order[(*p->order_count)++] = p->number;
}

static void sleeper(struct task *t, void *arg)
{
	struct probe *p = arg;

	if (p->limit_ms)
		task_limit_ms(t, p->limit_ms);
	note(t, p, task_sleep_ms(t, p->sleep_ms));
}

static void sleep_takes_exactly_its_time(void **state)
{
	struct probe p = {.sleep_ms = 3600 * 1000};
	uint64_t began = loop_now(l);

	task_start(l, "sleeper", sleeper, &p);
	loop_run(l);
	assert_int_equal(p.result, 0);
	assert_int_equal(p.ended_at - began, 3600 * 1000 * MS);
}

static void deadline_ends_a_sleep(void **state)
{
	struct probe p = {.sleep_ms = 1000, .limit_ms = 10};
	uint64_t began = loop_now(l);

	task_start(l, "sleeper", sleeper, &p);
	loop_run(l);
	assert_int_equal(p.result, -ERR_DEADLINE);
	assert_int_equal(p.err.code, ERR_DEADLINE);
	assert_non_null(strstr(p.err.text, "sleeper"));
	assert_int_equal(p.ended_at - began, 10 * MS);
}

/* A client may give a timeout of 99,999,999 hours. */
static void huge_times_do_not_wrap(void **state)
{
	struct probe limit = {.sleep_ms = 5, .limit_ms = 99999999ull * 3600 * 1000};
	struct probe sleep = {.sleep_ms = UINT64_MAX - 1, .limit_ms = 20};

	task_start(l, "limit", sleeper, &limit);
	task_start(l, "sleep", sleeper, &sleep);
	loop_run(l);
	assert_int_equal(limit.result, 0);
	assert_int_equal(sleep.result, -ERR_DEADLINE);
}

static void nest_deadlines(struct task *t, void *arg)
{
	uint64_t none = task_deadline(t), outer, inner;

	assert_true(none == LOOP_NEVER);
	outer = task_limit_ms(t, 100);
	assert_true(outer == LOOP_NEVER);
	inner = task_limit_ms(t, 500);
	assert_int_equal(task_deadline(t), inner);
	task_restore_deadline(t, inner);
	inner = task_limit_ms(t, 10);
	assert_int_equal(task_sleep_ms(t, 50), -ERR_DEADLINE);
	task_restore_deadline(t, inner);
	assert_int_equal(task_sleep_ms(t, 50), 0);
	assert_int_equal(task_sleep_ms(t, 50), -ERR_DEADLINE);
	assert_int_equal(task_check(t), -ERR_DEADLINE);
	assert_int_equal(task_yield(t), -ERR_DEADLINE);
	*(bool *)arg = true;
}

static void earlier_deadline_holds_until_restored(void **state)
{
	bool is_done = false;

	task_start(l, "nest", nest_deadlines, &is_done);
	loop_run(l);
	assert_true(is_done);
}

static void canceller(struct task *t, void *arg)
{
	struct probe *p = arg;

	assert_int_equal(task_sleep_ms(t, 5), 0);
	task_cancel(p->task);
}

static void cancel_ends_a_wait(void **state)
{
	struct probe p = {.sleep_ms = 1000};
	uint64_t began = loop_now(l);

	p.task = task_start(l, "sleeper", sleeper, &p);
	task_start(l, "canceller", canceller, &p);
	loop_run(l);
	assert_int_equal(p.result, -ERR_CANCELLED);
	assert_int_equal(p.ended_at - began, 5 * MS);
}

static void cancel_before_the_first_turn(void **state)
{
	struct probe p = {.sleep_ms = 1000};

	p.task = task_start(l, "sleeper", sleeper, &p);
	task_cancel(p.task);
	loop_run(l);
	assert_int_equal(p.result, -ERR_CANCELLED);
}

static void shielded(struct task *t, void *arg)
{
	struct probe *p = arg;

	task_limit_ms(t, 2);
	task_shield(t, 1);
	task_shield(t, 1);
	assert_int_equal(task_sleep_ms(t, 50), 0);
	task_shield(t, -1);
	assert_int_equal(task_sleep_ms(t, 50), 0);
	/* even an undo does not take for ever */
	assert_int_equal(task_sleep_ms(t, 2 * TASK_SHIELD_NS / MS), -ERR_DEADLINE);
	task_shield(t, -1);
	note(t, p, task_check(t));
}

static void shield_ignores_cancel_and_deadline(void **state)
{
	struct probe p = {0};

	p.task = task_start(l, "shielded", shielded, &p);
	task_start(l, "canceller", canceller, &p);
	loop_run(l);
	assert_int_equal(p.result, -ERR_CANCELLED);
}

static void event_waiter(struct task *t, void *arg)
{
	struct probe *p = arg;

	if (p->limit_ms)
		task_limit_ms(t, p->limit_ms);
	note(t, p, task_event_wait(t, p->event));
}

static void event_setter(struct task *t, void *arg)
{
	struct probe *p = arg;

	assert_int_equal(task_sleep_ms(t, 10), 0);
	task_event_set(p->event);
	/* a wait that was satisfied is not taken back by what comes later in the same turn */
	task_cancel(p->task);
	assert_int_equal(task_event_wait(t, p->event), 0);
}

static void event_wakes_all_that_still_wait(void **state)
{
	struct task_event event;
	struct probe a = {.event = &event}, b = {.event = &event, .limit_ms = 5},
		     c = {.event = &event};

	task_event_init(&event);
	a.task = task_start(l, "a", event_waiter, &a);
	task_start(l, "b", event_waiter, &b);
	task_start(l, "c", event_waiter, &c);
	task_start(l, "setter", event_setter, &a);
	loop_run(l);
	assert_int_equal(a.result, 0);
	assert_int_equal(b.result, -ERR_DEADLINE);
	assert_int_equal(c.result, 0);
	assert_true(list_is_empty(&event.waiters));
}

static void cond_waiter(struct task *t, void *arg)
{
	struct probe *p = arg;

	assert_int_equal(task_cond_wait(t, p->cond), 0);
	note(t, p, task_cond_wait(t, p->cond));
}

static void cond_broadcaster(struct task *t, void *arg)
{
	struct probe *p = arg;

	for (int i = 0; i < 2; i++) {
		assert_int_equal(task_sleep_ms(t, 1), 0);
		task_cond_broadcast(p->cond);
		task_cond_broadcast(p->cond);
	}
}

static void cond_wakes_once_a_broadcast(void **state)
{
	struct task_cond cond;
	int order[3], count = 0;
	struct probe p[3];
	uint64_t began = loop_now(l);

	task_cond_init(&cond);
	for (int i = 0; i < 3; i++) {
		p[i] = (struct probe){
			.cond = &cond, .number = i, .order = order, .order_count = &count};
		task_start(l, "waiter", cond_waiter, &p[i]);
	}
	task_start(l, "broadcaster", cond_broadcaster, &p[0]);
	loop_run(l);
	assert_int_equal(count, 3);
	for (int i = 0; i < 3; i++) {
		assert_int_equal(order[i], i);
		assert_int_equal(p[i].ended_at - began, 2 * MS);
	}
}

static void mutex_user(struct task *t, void *arg)
{
	struct probe *p = arg;
	struct task_mutex *held cleanup_unlock = NULL;
	int r;

	if (p->limit_ms)
		task_limit_ms(t, p->limit_ms);
	r = task_mutex_lock(t, p->mutex);
	if (r == 0) {
		held = p->mutex;
		r = task_sleep_ms(t, 10);
	}
	note(t, p, r);
}

/* 0 holds for 10 ms; 1 gives up at 5; 2 is cancelled in the turn that hands over to it; 3 goes on.
 */
static void mutex_serves_in_order_under_cancellation(void **state)
{
	struct task_mutex mutex;
	int order[5], count = 0;
	struct probe *p = xcalloc(5, sizeof(*p));

	task_mutex_init(&mutex);
	for (int i = 0; i < 5; i++) {
		p[i] = (struct probe){
			.mutex = &mutex, .number = i, .order = order, .order_count = &count};
		if (i == 1)
			p[i].limit_ms = 5;
		if (i == 2)
			p[i].limit_ms = 10;
		p[i].task = task_start(l, "user", mutex_user, &p[i]);
	}
	loop_run(l);
	assert_int_equal(count, 5);
	assert_int_equal(p[0].result, 0);
	assert_int_equal(p[1].result, -ERR_DEADLINE);
	assert_int_equal(p[2].result, -ERR_DEADLINE);
	assert_int_equal(p[3].result, 0);
	assert_int_equal(p[4].result, 0);
	assert_null(mutex.owner);
	assert_true(list_is_empty(&mutex.waiters));
	assert_int_equal(order[3], 3);
	assert_int_equal(order[4], 4);
	free(p);
}

static void staged_holder(struct task *t, void *arg)
{
	struct task_mutex *m = arg;

	assert_int_equal(task_mutex_lock(t, m), 0);
	task_stage(t, "reading a book");
	assert_int_equal(task_sleep_ms(t, 3000), 0);
	task_mutex_unlock(m);
}

static void impatient(struct task *t, void *arg)
{
	struct probe *p = arg;

	task_limit_ms(t, 2500);
	note(t, p, task_mutex_lock(t, p->mutex));
}

static void waiter_learns_what_the_owner_is_at(void **state)
{
	struct task_mutex mutex;
	struct probe p = {.mutex = &mutex};

	task_mutex_init(&mutex);
	task_start(l, "/some.Service/Holder", staged_holder, &mutex);
	task_start(l, "waiter", impatient, &p);
	loop_run(l);
	assert_int_equal(p.result, -ERR_DEADLINE);
	assert_string_equal(p.err.text, "Holder is reading a book since 2.5 s: waiter: the "
					"deadline passed");
}

struct handover {
	struct task_mutex mutex;
	struct task *waiter;
	int result;
};

static void handover_waiter(struct task *t, void *arg)
{
	struct handover *h = arg;

	h->result = task_mutex_lock(t, &h->mutex);
	if (h->result == 0)
		task_mutex_unlock(&h->mutex);
}

static void handover_holder(struct task *t, void *arg)
{
	struct handover *h = arg;

	assert_int_equal(task_mutex_lock(t, &h->mutex), 0);
	assert_int_equal(task_sleep_ms(t, 1), 0);
	task_mutex_unlock(&h->mutex);
	/* it owns the mutex already, so it must learn that and not "cancelled" */
	task_cancel(h->waiter);
}

static void mutex_handed_over_to_a_cancelled_task_is_not_lost(void **state)
{
	struct handover h = {.result = 1};

	task_mutex_init(&h.mutex);
	task_start(l, "holder", handover_holder, &h);
	h.waiter = task_start(l, "waiter", handover_waiter, &h);
	loop_run(l);
	assert_int_equal(h.result, 0);
	assert_null(h.mutex.owner);
}

struct reader {
	int fd, result;
	char got[8];
};

static void reader(struct task *t, void *arg)
{
	struct reader *r = arg;

	r->result = task_wait_fd(t, r->fd, LOOP_READ);
	if (r->result == 0)
		assert_int_equal(read(r->fd, r->got, sizeof(r->got)), 2);
}

static void writer(struct task *t, void *arg)
{
	assert_int_equal(task_wait_fd(t, *(int *)arg, LOOP_WRITE), 0);
	assert_int_equal(write(*(int *)arg, "hi", 2), 2);
}

static void wait_fd_returns_when_readable(void **state)
{
	int fds[2];
	struct reader r = {.result = 1};

	assert_int_equal(pipe(fds), 0);
	r.fd = fds[0];
	task_start(l, "reader", reader, &r);
	task_start(l, "writer", writer, &fds[1]);
	loop_run(l);
	assert_int_equal(r.result, 0);
	assert_string_equal(r.got, "hi");
	close(fds[0]);
	close(fds[1]);
}

static void limited_reader(struct task *t, void *arg)
{
	struct reader *r = arg;

	task_limit_ms(t, 20);
	r->result = task_wait_fd(t, r->fd, LOOP_READ);
	loop_stop(t->loop);
}

static void wait_fd_ends_at_the_deadline_in_real_time(void **state)
{
	struct loop *real = loop_new(NULL);
	struct reader r = {.result = 1};
	uint64_t began = loop_now(real);
	int fds[2];

	assert_int_equal(pipe(fds), 0);
	r.fd = fds[0];
	task_start(real, "reader", limited_reader, &r);
	loop_run(real);
	assert_int_equal(r.result, -ERR_DEADLINE);
	assert_in_range(loop_now(real) - began, 20 * MS, 500 * MS);
	loop_free(real);
	close(fds[0]);
	close(fds[1]);
}

static void yielder(struct task *t, void *arg)
{
	struct probe *p = arg;

	for (int i = 0; i < 3; i++) {
		p->order[(*p->order_count)++] = p->number;
		assert_int_equal(task_yield(t), 0);
	}
}

static void yield_alternates(void **state)
{
	int order[6], count = 0;
	struct probe p[2];

	for (int i = 0; i < 2; i++) {
		p[i] = (struct probe){.number = i, .order = order, .order_count = &count};
		task_start(l, "yielder", yielder, &p[i]);
	}
	loop_run(l);
	assert_int_equal(count, 6);
	for (int i = 0; i < 6; i++)
		assert_int_equal(order[i], i % 2);
}

/* Uses most of a stack, so that a reused one holds the poison and the dirt of its last task. */
static int dig(int depth)
{
	volatile char pad[512];

	memset((void *)pad, depth, sizeof(pad));
	return depth ? dig(depth - 1) + pad[0] : 0;
}

static void digger(struct task *t, void *arg)
{
	char text[64];

	dig(40);
	assert_int_equal(task_sleep_ms(t, 1), 0);
	dig(60);
	snprintf(text, sizeof(text), "%s %d", arena_printf(t->arena, "%d", 7), 8);
	assert_string_equal(text, "7 8");
	++*(int *)arg;
}

static void stacks_are_reused_cleanly(void **state)
{
	int done = 0;

	for (int round = 0; round < 20; round++) {
		for (int i = 0; i < 10 + round * 10; i++)
			task_start(l, "digger", digger, &done);
		loop_run(l);
	}
	assert_int_equal(done, 20 * 10 + 10 * 190);
}

static void resident(long *pages, long *mappings)
{
	FILE *f = fopen("/proc/self/statm", "re");
	long size;
	int c;

	assert_non_null(f);
	assert_int_equal(fscanf(f, "%ld %ld", &size, pages), 2);
	fclose(f);
	f = fopen("/proc/self/maps", "re");
	assert_non_null(f);
	for (*mappings = 0; (c = getc(f)) != EOF;)
		*mappings += c == '\n';
	fclose(f);
}

static void count_parked(const struct task *t, uint64_t parked_ns, void *data)
{
	assert_string_equal(t->name, "sleeper");
	++*(int *)data;
}

struct census {
	long pages, mappings;
	int parked;
};

static void census(void *data)
{
	struct census *c = data;

	resident(&c->pages, &c->mappings);
	task_each(count_parked, &c->parked);
}

static void ten_thousand_tasks_are_cheap(void **state)
{
#if defined(__SANITIZE_THREAD__)
	enum { COUNT = 100 }; /* each costs it a megabyte */
#else
	enum { COUNT = 10000 };
#endif
	struct probe *p = xcalloc(COUNT, sizeof(*p));
	struct census during = {0};
	struct loop_timer timer;
	long pages, mappings;

	resident(&pages, &mappings);
	for (int i = 0; i < COUNT; i++) {
		p[i] = (struct probe){.sleep_ms = 1000 + (uint64_t)i % 7};
		task_start(l, "sleeper", sleeper, &p[i]);
	}
	loop_timer_init(&timer, "census", census, &during);
	loop_timer_start(l, &timer, loop_now(l) + 500 * MS);
	loop_run(l);
	for (int i = 0; i < COUNT; i++)
		assert_int_equal(p[i].result, 0);
	free(p);
	assert_int_equal(during.parked, COUNT);
	print_message("%d parked tasks: %ld KiB each, %ld mappings\n", COUNT,
		      (during.pages - pages) * 4 / COUNT, during.mappings - mappings);
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
	assert_in_range(during.pages - pages, 0, COUNT * 3);
	/* guard pages cost mappings before kernel 6.13 only */
	if (during.mappings - mappings < COUNT)
		assert_in_range(during.mappings - mappings, 0, 100);
#endif
}

int main(void)
{
#define T(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
	const struct CMUnitTest tests[] = {
		T(sleep_takes_exactly_its_time),
		T(deadline_ends_a_sleep),
		T(huge_times_do_not_wrap),
		T(earlier_deadline_holds_until_restored),
		T(cancel_ends_a_wait),
		T(cancel_before_the_first_turn),
		T(shield_ignores_cancel_and_deadline),
		T(event_wakes_all_that_still_wait),
		T(cond_wakes_once_a_broadcast),
		T(mutex_serves_in_order_under_cancellation),
		T(waiter_learns_what_the_owner_is_at),
		T(mutex_handed_over_to_a_cancelled_task_is_not_lost),
		T(wait_fd_returns_when_readable),
		T(wait_fd_ends_at_the_deadline_in_real_time),
		T(yield_alternates),
		T(stacks_are_reused_cleanly),
		T(ten_thousand_tasks_are_cheap),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
