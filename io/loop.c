/* SPDX-License-Identifier: Apache-2.0 */
/*
 * libev behind loop.h. Peculiar: timers are our own heap with one ev_timer for the earliest, so
 * that virtual time needs no second implementation; posted work runs in rounds before the loop
 * waits.
 */
#include "io/loop.h"

#include <ev.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <string.h>
#include <sys/eventfd.h>
#include <time.h>
#include <unistd.h>

#include "io/base/alloc.h"
#include "io/base/cleanup.h"
#include "io/base/log.h"

struct signal_watch {
	ev_signal ev;
	struct loop *loop;
	void (*fn)(void *data);
	void *data;
	struct signal_watch *next;
};

struct loop {
	struct ev_loop *ev;
	ev_timer timer;
	ev_prepare prepare;
	ev_io remote_io;
	int remote_fd;
	pthread_mutex_t remote_lock;
	struct list remote; /* loop_work posted by other threads */
	struct list posted;
	struct loop_timer **heap;
	long heap_count, heap_capacity;
	void (*prepare_fn)(void *data);
	void *prepare_data;
	const char *prepare_name;
	struct signal_watch *signals;
	bool is_virtual, is_stopped;
	uint64_t virtual_now;
	int holds;
	uint64_t slow_count;
};

struct loop_watch {
	ev_io ev;
	struct loop *loop;
	void (*fn)(void *data, int events);
	void *data;
	const char *name;
};

static uint64_t monotonic_ns(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

uint64_t loop_now(const struct loop *l)
{
	return l->is_virtual ? l->virtual_now : monotonic_ns();
}

uint64_t loop_slow_count(const struct loop *l)
{
	return l->slow_count;
}

static void check_slow(struct loop *l, const char *name, uint64_t since)
{
	uint64_t took = monotonic_ns() - since;

	if (took <= LOOP_SLOW_NS)
		return;
	l->slow_count++;
	log_warning("the event loop was held for %llu ms by %s",
		    (unsigned long long)(took / 1000000), name);
}

static void swap_timers(struct loop *l, long i, long j)
{
	struct loop_timer *t = l->heap[i];

	l->heap[i] = l->heap[j];
	l->heap[j] = t;
	l->heap[i]->index = i;
	l->heap[j]->index = j;
}

static void sift_up(struct loop *l, long i)
{
	for (; i > 0 && l->heap[i]->at < l->heap[(i - 1) / 2]->at; i = (i - 1) / 2)
		swap_timers(l, i, (i - 1) / 2);
}

static void sift_down(struct loop *l, long i)
{
	for (;;) {
		long least = i, left = 2 * i + 1, right = left + 1;

		if (left < l->heap_count && l->heap[left]->at < l->heap[least]->at)
			least = left;
		if (right < l->heap_count && l->heap[right]->at < l->heap[least]->at)
			least = right;
		if (least == i)
			return;
		swap_timers(l, i, least);
		i = least;
	}
}

void loop_timer_init(struct loop_timer *timer, const char *name, void (*fn)(void *data), void *data)
{
	*timer = (struct loop_timer){.fn = fn, .data = data, .name = name, .index = -1};
}

void loop_timer_start(struct loop *l, struct loop_timer *timer, uint64_t at)
{
	loop_timer_stop(l, timer);
	if (at == LOOP_NEVER)
		return;
	if (l->heap_count == l->heap_capacity) {
		l->heap_capacity = l->heap_capacity ? l->heap_capacity * 2 : 64;
		l->heap = xrealloc(l->heap, (size_t)l->heap_capacity * sizeof(*l->heap));
	}
	timer->at = at;
	timer->index = l->heap_count++;
	l->heap[timer->index] = timer;
	sift_up(l, timer->index);
}

void loop_timer_stop(struct loop *l, struct loop_timer *timer)
{
	long i = timer->index;

	if (i < 0)
		return;
	l->heap_count--;
	if (i != l->heap_count) {
		struct loop_timer *moved = l->heap[l->heap_count];

		l->heap[i] = moved;
		moved->index = i;
		sift_up(l, i);
		sift_down(l, moved->index);
	}
	timer->index = -1;
}

/* A timer that starts itself for now waits for the next turn: each fires as often as there were
 * timers at the beginning, at the most. */
static void fire_timers(struct loop *l)
{
	uint64_t now = loop_now(l);

	for (long left = l->heap_count; left && l->heap_count && l->heap[0]->at <= now; left--) {
		struct loop_timer *timer = l->heap[0];
		const char *name = timer->name;
		uint64_t began = monotonic_ns();

		loop_timer_stop(l, timer);
		timer->fn(timer->data);
		check_slow(l, name, began);
	}
}

void loop_work_init(struct loop_work *work, const char *name, void (*fn)(void *data), void *data)
{
	*work = (struct loop_work){.fn = fn, .data = data, .name = name};
	list_init(&work->node);
}

void loop_post(struct loop *l, struct loop_work *work)
{
	if (list_is_empty(&work->node))
		list_append(&l->posted, &work->node);
}

void loop_work_cancel(struct loop_work *work)
{
	list_remove(&work->node);
}

void loop_post_remote(struct loop *l, struct loop_work *work)
{
	uint64_t one = 1;

	pthread_mutex_lock(&l->remote_lock);
	list_append(&l->remote, &work->node);
	pthread_mutex_unlock(&l->remote_lock);
	while (write(l->remote_fd, &one, sizeof(one)) < 0 && errno == EINTR)
		;
}

bool loop_take_back(struct loop *l, struct loop_work *work)
{
	bool was_posted;

	pthread_mutex_lock(&l->remote_lock);
	was_posted = !list_is_empty(&work->node);
	list_remove(&work->node);
	pthread_mutex_unlock(&l->remote_lock);
	return was_posted;
}

int loop_remote_fd(const struct loop *l)
{
	return l->remote_fd;
}

void loop_hold(struct loop *l, int delta)
{
	l->holds += delta;
}

/* Runs what is posted now; what that posts in turn waits for the next round, so that descriptors
 * get their chance in between. */
static void run_posted(struct loop *l)
{
	struct list round;

	if (list_is_empty(&l->posted))
		return;
	round = l->posted;
	round.next->prev = round.prev->next = &round;
	list_init(&l->posted);
	while (!list_is_empty(&round)) {
		struct loop_work *work = container_of(round.next, struct loop_work, node);
		const char *name = work->name;
		uint64_t began = monotonic_ns();

		list_remove(&work->node);
		work->fn(work->data);
		check_slow(l, name, began);
	}
}

static void on_remote(struct ev_loop *ev, ev_io *w, int events)
{
	struct loop *l = w->data;
	uint64_t count;

	(void)!read(l->remote_fd, &count, sizeof(count));
	pthread_mutex_lock(&l->remote_lock);
	while (!list_is_empty(&l->remote)) {
		struct list *node = l->remote.next;

		list_remove(node);
		list_append(&l->posted, node);
	}
	pthread_mutex_unlock(&l->remote_lock);
}

static void on_timer(struct ev_loop *ev, ev_timer *w, int events)
{
	/* the wake-up is all: on_prepare fires what is due */
}

static void arm_timer(struct loop *l)
{
	ev_tstamp after = 0;

	if (list_is_empty(&l->posted)) {
		if (!l->heap_count) {
			ev_timer_stop(l->ev, &l->timer);
			return;
		}
		if (!l->is_virtual) {
			uint64_t now = monotonic_ns(), at = l->heap[0]->at;

			ev_now_update(l->ev);
			after = at > now ? (ev_tstamp)(at - now) / 1e9 : 0;
		}
	}
	ev_timer_stop(l->ev, &l->timer);
	ev_timer_set(&l->timer, after, 0);
	ev_timer_start(l->ev, &l->timer);
}

static void on_prepare(struct ev_loop *ev, ev_prepare *w, int events)
{
	struct loop *l = w->data;

	fire_timers(l);
	run_posted(l);
	if (l->prepare_fn) {
		uint64_t began = monotonic_ns();

		l->prepare_fn(l->prepare_data);
		check_slow(l, l->prepare_name, began);
	}
	if (l->is_stopped)
		ev_break(ev, EVBREAK_ALL);
	if (!l->is_virtual || !list_is_empty(&l->posted))
		arm_timer(l);
}

static struct loop *new_loop(bool is_virtual, struct error *err)
{
	struct loop *l = xnew(struct loop);

	l->is_virtual = is_virtual;
	l->virtual_now = 1000000000;
	list_init(&l->posted);
	list_init(&l->remote);
	pthread_mutex_init(&l->remote_lock, NULL);
	l->remote_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	if (l->remote_fd < 0) {
		error_errno(err, errno, "eventfd for the event loop");
		free(l);
		return NULL;
	}
	l->ev = ev_loop_new(EVBACKEND_EPOLL | EVFLAG_NOENV);
	if (!l->ev) {
		error_errno(err, errno, "epoll for the event loop");
		close(l->remote_fd);
		free(l);
		return NULL;
	}
	ev_timer_init(&l->timer, on_timer, 0, 0);
	ev_prepare_init(&l->prepare, on_prepare);
	l->prepare.data = l;
	ev_prepare_start(l->ev, &l->prepare);
	ev_io_init(&l->remote_io, on_remote, l->remote_fd, EV_READ);
	l->remote_io.data = l;
	ev_io_start(l->ev, &l->remote_io);
	return l;
}

struct loop *loop_new(struct error *err)
{
	return new_loop(false, err);
}

struct loop *loop_new_virtual(struct error *err)
{
	return new_loop(true, err);
}

void loop_free(struct loop *l)
{
	if (!l)
		return;
	for (struct signal_watch *s = l->signals, *next; s; s = next) {
		next = s->next;
		ev_signal_stop(l->ev, &s->ev);
		free(s);
	}
	ev_loop_destroy(l->ev);
	close(l->remote_fd);
	pthread_mutex_destroy(&l->remote_lock);
	free(l->heap);
	free(l);
}

/* One turn of virtual time: what is ready, else the next timer, else false. */
static bool turn_virtual(struct loop *l)
{
	ev_run(l->ev, EVRUN_NOWAIT);
	if (!list_is_empty(&l->posted))
		return true;
	if (l->holds) {
		ev_run(l->ev, EVRUN_ONCE);
		return true;
	}
	if (!l->heap_count)
		return false;
	if (l->heap[0]->at > l->virtual_now)
		l->virtual_now = l->heap[0]->at;
	return true;
}

void loop_run(struct loop *l)
{
	l->is_stopped = false;
	if (l->is_virtual) {
		while (!l->is_stopped && turn_virtual(l))
			;
		return;
	}
	while (!l->is_stopped)
		ev_run(l->ev, EVRUN_ONCE);
}

void loop_stop(struct loop *l)
{
	l->is_stopped = true;
}

static void on_watch(struct ev_loop *ev, ev_io *w, int events)
{
	struct loop_watch *watch = w->data;
	struct loop *l = watch->loop;
	const char *name = watch->name;
	uint64_t began = monotonic_ns();

	watch->fn(watch->data,
		  (events & EV_READ ? LOOP_READ : 0) | (events & EV_WRITE ? LOOP_WRITE : 0));
	check_slow(l, name, began);
}

struct loop_watch *loop_watch_fd(struct loop *l, int fd, int events, const char *name,
				 void (*fn)(void *data, int events), void *data)
{
	struct loop_watch *w = xnew(struct loop_watch);

	w->loop = l;
	w->fn = fn;
	w->data = data;
	w->name = name;
	ev_io_init(&w->ev, on_watch, fd, 0);
	w->ev.data = w;
	loop_watch_set(w, events);
	return w;
}

void loop_watch_set(struct loop_watch *w, int events)
{
	int wanted = (events & LOOP_READ ? EV_READ : 0) | (events & LOOP_WRITE ? EV_WRITE : 0);

	if (ev_is_active(&w->ev) && (w->ev.events & (EV_READ | EV_WRITE)) == wanted)
		return;
	ev_io_stop(w->loop->ev, &w->ev);
	ev_io_set(&w->ev, w->ev.fd, wanted);
	if (wanted)
		ev_io_start(w->loop->ev, &w->ev);
}

void loop_watch_free(struct loop_watch *w)
{
	if (!w)
		return;
	ev_io_stop(w->loop->ev, &w->ev);
	free(w);
}

void loop_set_prepare(struct loop *l, const char *name, void (*fn)(void *data), void *data)
{
	l->prepare_fn = fn;
	l->prepare_data = data;
	l->prepare_name = name;
}

static void on_signal(struct ev_loop *ev, ev_signal *w, int events)
{
	struct signal_watch *s = w->data;

	s->fn(s->data);
}

void loop_on_signal(struct loop *l, int signal, void (*fn)(void *data), void *data)
{
	struct signal_watch *s = xnew(struct signal_watch);

	s->loop = l;
	s->fn = fn;
	s->data = data;
	s->next = l->signals;
	l->signals = s;
	ev_signal_init(&s->ev, on_signal, signal);
	s->ev.data = s;
	ev_signal_start(l->ev, &s->ev);
}
