/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Tasks on ucontext. Peculiar: a task is entered only from the loop (resume work), never from
 * another task, so there is one context to go back to; stacks are pooled and end in a guard page
 * made by MADV_GUARD_INSTALL (no extra mapping a stack), or by mprotect below kernel 6.13.
 */
#include "io/task.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <ucontext.h>

#include "io/base/alloc.h"
#include "io/base/fault.h"
#include "io/base/log.h"

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/common_interface_defs.h>
/* instrumented frames are several times larger */
#define STACK_SIZE (TASK_STACK * 8)
#else
#define STACK_SIZE TASK_STACK
#endif
#if defined(__SANITIZE_THREAD__)
#include <sanitizer/tsan_interface.h>
#endif

#ifndef MADV_GUARD_INSTALL
#define MADV_GUARD_INSTALL 102
#endif

#define GUARD_SIZE 4096
#define POOL_MAX 64

struct stack {
	struct stack *next; /* in the pool; lies at the stack's top end */
};

struct task_impl {
	struct task task;
	ucontext_t context;
	char *stack; /* lowest address, the guard page */
	void (*fn)(struct task *t, void *arg);
	void *arg;
	struct loop_work resume;
	struct loop_timer timer;
	struct list node;    /* in all */
	struct list *waiter; /* the node it waits by, on its own stack; NULL when runnable */
	int result;
	uint64_t deadline, shield_deadline;
	uint64_t parked_at;
	int shields;
	bool is_cancelled, is_done;
#if defined(__SANITIZE_ADDRESS__)
	void *fake_stack;
#endif
#if defined(__SANITIZE_THREAD__)
	void *fiber;
#endif
};

struct waiter {
	struct list node;
	struct task_impl *impl;
};

static struct list all = {&all, &all};
static size_t all_count;
static ucontext_t loop_context;
static struct stack *pool;
static size_t pool_count;
#if defined(__SANITIZE_ADDRESS__)
static const void *loop_stack;
static size_t loop_stack_size;
#endif
#if defined(__SANITIZE_THREAD__)
static void *loop_fiber;
#endif

static char *stack_of_node(struct stack *s)
{
	return (char *)s + sizeof(*s) - GUARD_SIZE - STACK_SIZE;
}

static char *stack_get(void)
{
	char *low;

	if (pool) {
		struct stack *s = pool;

		pool = s->next;
		pool_count--;
		return stack_of_node(s);
	}
	low = mmap(NULL, GUARD_SIZE + STACK_SIZE, PROT_READ | PROT_WRITE,
		   MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_STACK, -1, 0);
	if (low == MAP_FAILED)
		abort();
	if (madvise(low, GUARD_SIZE, MADV_GUARD_INSTALL) < 0 &&
	    mprotect(low, GUARD_SIZE, PROT_NONE) < 0)
		abort();
	return low;
}

static void stack_put(char *low)
{
	struct stack *s;

	if (pool_count >= POOL_MAX) {
		munmap(low, GUARD_SIZE + STACK_SIZE);
		return;
	}
	s = (struct stack *)(void *)(low + GUARD_SIZE + STACK_SIZE - sizeof(*s));
	s->next = pool;
	pool = s;
	pool_count++;
}

void task_pool_trim(void)
{
	while (pool) {
		char *low = stack_of_node(pool);

		pool = pool->next;
		munmap(low, GUARD_SIZE + STACK_SIZE);
	}
	pool_count = 0;
}

static void enter_task(struct task_impl *ti)
{
#if defined(__SANITIZE_ADDRESS__)
	void *fake = NULL;

	__sanitizer_start_switch_fiber(&fake, ti->stack + GUARD_SIZE, STACK_SIZE);
#endif
#if defined(__SANITIZE_THREAD__)
	loop_fiber = __tsan_get_current_fiber();
	__tsan_switch_to_fiber(ti->fiber, 0);
#endif
	swapcontext(&loop_context, &ti->context);
#if defined(__SANITIZE_ADDRESS__)
	__sanitizer_finish_switch_fiber(fake, NULL, NULL);
#endif
}

static void leave_task(struct task_impl *ti)
{
#if defined(__SANITIZE_ADDRESS__)
	__sanitizer_start_switch_fiber(ti->is_done ? NULL : &ti->fake_stack, loop_stack,
				       loop_stack_size);
#endif
#if defined(__SANITIZE_THREAD__)
	__tsan_switch_to_fiber(loop_fiber, 0);
#endif
	swapcontext(&ti->context, &loop_context);
#if defined(__SANITIZE_ADDRESS__)
	__sanitizer_finish_switch_fiber(ti->fake_stack, &loop_stack, &loop_stack_size);
#endif
}

/* makecontext(3) passes ints only, so the pointer comes in halves. */
static void task_main(unsigned high, unsigned low)
{
	struct task_impl *ti = (struct task_impl *)((uintptr_t)high << 32 | low);

#if defined(__SANITIZE_ADDRESS__)
	__sanitizer_finish_switch_fiber(NULL, &loop_stack, &loop_stack_size);
#endif
	ti->fn(&ti->task, ti->arg);
	ti->is_done = true;
	leave_task(ti);
	abort();
}

static void on_resume(void *data)
{
	struct task_impl *ti = data;

	enter_task(ti);
	if (!ti->is_done)
		return;
	loop_timer_stop(ti->task.loop, &ti->timer);
	list_remove(&ti->node);
	all_count--;
	arena_free(ti->task.arena);
#if defined(__SANITIZE_THREAD__)
	__tsan_destroy_fiber(ti->fiber);
#endif
	stack_put(ti->stack);
	free(ti);
}

static void wake(struct task_impl *ti, int result)
{
	if (!ti->waiter)
		return;
	list_remove(ti->waiter);
	ti->waiter = NULL;
	ti->result = result;
	loop_post(ti->task.loop, &ti->resume);
}

static void on_deadline(void *data)
{
	wake(data, -ERR_DEADLINE);
}

struct task *task_start(struct loop *l, const char *name, void (*fn)(struct task *t, void *arg),
			void *arg)
{
	struct task_impl *ti = xnew(struct task_impl);

	ti->task.loop = l;
	ti->task.name = name;
	ti->task.impl = ti;
	ti->task.arena = arena_new(TASK_ARENA_CAP);
	ti->fn = fn;
	ti->arg = arg;
	ti->deadline = ti->shield_deadline = LOOP_NEVER;
	ti->stack = stack_get();
	loop_work_init(&ti->resume, name, on_resume, ti);
	loop_timer_init(&ti->timer, name, on_deadline, ti);
	list_append(&all, &ti->node);
	all_count++;
	getcontext(&ti->context);
	ti->context.uc_stack.ss_sp = ti->stack + GUARD_SIZE;
	ti->context.uc_stack.ss_size = STACK_SIZE;
	ti->context.uc_link = NULL;
#if defined(__SANITIZE_THREAD__)
	ti->fiber = __tsan_create_fiber(0);
#endif
	makecontext(&ti->context, (void (*)(void))task_main, 2, (unsigned)((uintptr_t)ti >> 32),
		    (unsigned)(uintptr_t)ti);
	loop_post(l, &ti->resume);
	return &ti->task;
}

size_t task_count(void)
{
	return all_count;
}

void task_each(void (*fn)(const struct task *t, uint64_t parked_ns, void *data), void *data)
{
	list_for_each(ti, &all, struct task_impl, node) {
		if (ti->waiter)
			fn(&ti->task, loop_now(ti->task.loop) - ti->parked_at, data);
	}
}

void task_stage(struct task *t, const char *stage)
{
	t->stage = stage;
	t->stage_since = loop_now(t->loop);
}

void task_blame(const struct task *t, struct error *err)
{
	const char *slash;

	if (!t || !t->stage)
		return;
	slash = strrchr(t->name, '/'); /* a call's name is its whole path */
	error_wrap(err, "%s is %s since %.1f s", slash ? slash + 1 : t->name, t->stage,
		   (double)(loop_now(t->loop) - t->stage_since) / 1e9);
}

void task_cancel(struct task *t)
{
	t->impl->is_cancelled = true;
	if (!t->impl->shields)
		wake(t->impl, -ERR_CANCELLED);
}

static uint64_t *effective_deadline(const struct task *t)
{
	return t->impl->shields ? &t->impl->shield_deadline : &t->impl->deadline;
}

static int wait_error(struct task *t, int code)
{
	if (code == -ERR_CANCELLED)
		return error_set(&t->err, ERR_CANCELLED, "%s: the caller went away", t->name);
	error_set(&t->err, ERR_DEADLINE, "%s: the deadline passed", t->name);
	task_blame(t, &t->err);
	return -ERR_DEADLINE;
}

int task_check(struct task *t)
{
	if (t->impl->is_cancelled && !t->impl->shields)
		return wait_error(t, -ERR_CANCELLED);
	if (loop_now(t->loop) >= *effective_deadline(t))
		return wait_error(t, -ERR_DEADLINE);
	return 0;
}

int task_work_done(struct task *t)
{
	if (fault_of_task("work", t->name) != FAULT_FAIL)
		return 0;
	return error_set(&t->err, ERR_INTERNAL, "%s: failed, as was ordered for a test", t->name);
}

uint64_t task_deadline(const struct task *t)
{
	return *effective_deadline(t);
}

uint64_t task_limit(struct task *t, uint64_t at)
{
	uint64_t *deadline = effective_deadline(t), old = *deadline;

	if (at < old)
		*deadline = at;
	return old;
}

/* Saturates: a client may ask for a timeout of centuries. */
static uint64_t time_after_ms(const struct task *t, uint64_t ms)
{
	uint64_t now = loop_now(t->loop);

	return ms < (LOOP_NEVER - now) / 1000000 ? now + ms * 1000000 : LOOP_NEVER;
}

uint64_t task_limit_ms(struct task *t, uint64_t timeout_ms)
{
	return task_limit(t, time_after_ms(t, timeout_ms));
}

void task_restore_deadline(struct task *t, uint64_t deadline)
{
	*effective_deadline(t) = deadline;
}

void task_shield(struct task *t, int delta)
{
	if (!t->impl->shields)
		t->impl->shield_deadline = loop_now(t->loop) + TASK_SHIELD_NS;
	t->impl->shields += delta;
	if (t->impl->shields < 0)
		abort();
}

/* What a test ordered for this wait. */
static void take_fault(struct task *t)
{
	switch (fault_of_task("wait", t->name)) {
	case FAULT_CANCEL:
		t->impl->is_cancelled = true;
		break;
	case FAULT_DEADLINE:
		t->impl->deadline = loop_now(t->loop);
		break;
	case FAULT_NONE:
	case FAULT_FAIL:
		break;
	}
}

/* Suspends t in queue until wake(), its deadline or its cancellation. */
static int park(struct task *t, struct list *queue)
{
	struct task_impl *ti = t->impl;
	struct waiter w = {.impl = ti};

	take_fault(t);
	TRY(task_check(t));
	list_init(&w.node);
	if (queue)
		list_append(queue, &w.node);
	ti->waiter = &w.node;
	ti->parked_at = loop_now(t->loop);
	loop_timer_start(t->loop, &ti->timer, *effective_deadline(t));
	leave_task(ti);
	loop_timer_stop(t->loop, &ti->timer);
	return ti->result < 0 ? wait_error(t, ti->result) : 0;
}

static void wake_all(struct list *waiters)
{
	while (!list_is_empty(waiters))
		wake(container_of(waiters->next, struct waiter, node)->impl, 0);
}

static void on_sleep_over(void *data)
{
	wake(data, 0);
}

int task_sleep_ms(struct task *t, uint64_t ms)
{
	struct loop_timer timer;
	int r;

	loop_timer_init(&timer, t->name, on_sleep_over, t->impl);
	loop_timer_start(t->loop, &timer, time_after_ms(t, ms));
	r = park(t, NULL);
	loop_timer_stop(t->loop, &timer);
	return r;
}

int task_yield(struct task *t)
{
	struct loop_work work;
	int r;

	loop_work_init(&work, t->name, on_sleep_over, t->impl);
	loop_post(t->loop, &work);
	r = park(t, NULL);
	loop_work_cancel(&work);
	return r;
}

static void on_fd_ready(void *data, int events)
{
	wake(data, 0);
}

int task_wait_fd(struct task *t, int fd, int events)
{
	struct loop_watch *watch =
		loop_watch_fd(t->loop, fd, events, t->name, on_fd_ready, t->impl);
	int r;

	loop_hold(t->loop, 1);
	r = park(t, NULL);
	loop_hold(t->loop, -1);
	loop_watch_free(watch);
	return r;
}

void task_event_init(struct task_event *e)
{
	list_init(&e->waiters);
	e->is_set = false;
}

void task_event_set(struct task_event *e)
{
	e->is_set = true;
	wake_all(&e->waiters);
}

int task_event_wait(struct task *t, struct task_event *e)
{
	return e->is_set ? 0 : park(t, &e->waiters);
}

void task_event_finish(struct task *t, struct task_event *e)
{
	uint64_t deadline;

	task_shield(t, +1);
	deadline = task_deadline(t);
	task_restore_deadline(t, LOOP_NEVER);
	if (task_event_wait(t, e) < 0)
		abort();
	task_restore_deadline(t, deadline);
	task_shield(t, -1);
}

void task_cond_init(struct task_cond *c)
{
	list_init(&c->waiters);
}

void task_cond_broadcast(struct task_cond *c)
{
	wake_all(&c->waiters);
}

int task_cond_wait(struct task *t, struct task_cond *c)
{
	return park(t, &c->waiters);
}

void task_mutex_init(struct task_mutex *m)
{
	list_init(&m->waiters);
	m->owner = NULL;
}

int task_mutex_lock(struct task *t, struct task_mutex *m)
{
	int r;

	if (m->owner) {
		r = park(t, &m->waiters);
		if (r < 0)
			task_blame(m->owner, &t->err);
		return r;
	}
	TRY(task_check(t));
	m->owner = t;
	return 0;
}

void task_mutex_unlock(struct task_mutex *m)
{
	struct task_impl *next;

	if (!m->owner)
		abort();
	/* handed over, not released: a newcomer must not overtake */
	if (list_is_empty(&m->waiters)) {
		m->owner = NULL;
		return;
	}
	next = container_of(m->waiters.next, struct waiter, node)->impl;
	m->owner = &next->task;
	wake(next, 0);
}
