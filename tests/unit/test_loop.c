/* SPDX-License-Identifier: Apache-2.0 */
/* The loop: order of timers and posted work, watches, other threads' posts, the watchdog. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "io/base/alloc.h"
#include "io/base/cleanup.h"
#include "io/loop.h"

#define MS 1000000ull

struct tick {
	struct loop *loop;
	struct loop_timer timer;
	struct tick **order;
	size_t *order_count;
	bool is_restarted;
};

static void on_tick(void *data)
{
	struct tick *tick = data;

	assert_int_equal(loop_now(tick->loop), tick->timer.at);
	assert_int_equal(tick->timer.index, -1);
	tick->order[(*tick->order_count)++] = tick;
}

static void many_random_timers_fire_in_order(void **state)
{
	enum { COUNT = 20000 };
	struct loop *l = loop_new_virtual(NULL);
	struct tick *ticks = xcalloc(COUNT, sizeof(*ticks));
	struct tick **order = xcalloc(COUNT, sizeof(struct tick *));
	size_t fired = 0, stopped = 0;
	uint64_t base = loop_now(l);

	srandom(1);
	for (int i = 0; i < COUNT; i++) {
		ticks[i] = (struct tick){.loop = l, .order = order, .order_count = &fired};
		loop_timer_init(&ticks[i].timer, "tick", on_tick, &ticks[i]);
		loop_timer_start(l, &ticks[i].timer, base + (uint64_t)random() % 5000 * MS);
	}
	for (int i = 0; i < COUNT; i++) {
		long dice = random() % 4;

		if (dice == 0) {
			loop_timer_stop(l, &ticks[i].timer);
			loop_timer_stop(l, &ticks[i].timer);
			stopped++;
		} else if (dice == 1) {
			loop_timer_start(l, &ticks[i].timer, base + (uint64_t)random() % 9000 * MS);
		}
	}
	loop_run(l);
	assert_int_equal(fired, COUNT - stopped);
	for (size_t i = 1; i < fired; i++)
		assert_true(order[i - 1]->timer.at <= order[i]->timer.at);
	loop_free(l);
	free(order);
	free(ticks);
}

struct rearm {
	struct loop *loop;
	struct loop_timer timer;
	struct loop_work work;
	int fired;
	bool is_worked;
};

static void on_rearm(void *data)
{
	struct rearm *r = data;

	/* due at once, again and again: everything else must get its turn in between */
	if (++r->fired < 1000 && !r->is_worked)
		loop_timer_start(r->loop, &r->timer, loop_now(r->loop));
}

static void on_rearm_work(void *data)
{
	((struct rearm *)data)->is_worked = true;
}

static void timer_that_restarts_itself_does_not_starve_others(void **state)
{
	struct loop *l = loop_new_virtual(NULL);
	struct rearm r = {.loop = l};

	loop_timer_init(&r.timer, "rearm", on_rearm, &r);
	loop_work_init(&r.work, "work", on_rearm_work, &r);
	loop_timer_start(l, &r.timer, loop_now(l));
	loop_post(l, &r.work);
	loop_run(l);
	assert_true(r.is_worked);
	assert_in_range(r.fired, 1, 3);
	loop_free(l);
}

struct step {
	struct loop *loop;
	struct loop_work work;
	struct step *posts; /* by this one */
	int number;
	int *order, *count;
};

static void on_step(void *data)
{
	struct step *s = data;

	s->order[(*s->count)++] = s->number;
	if (s->posts)
		loop_post(s->loop, &s->posts->work);
}

static void posted_work_runs_in_order_once(void **state)
{
	struct loop *l = loop_new_virtual(NULL);
	int order[8], count = 0;
	struct step s[5];

	for (int i = 0; i < 5; i++) {
		s[i] = (struct step){.loop = l, .number = i, .order = order, .count = &count};
		loop_work_init(&s[i].work, "step", on_step, &s[i]);
	}
	s[0].posts = &s[4];
	loop_post(l, &s[0].work);
	loop_post(l, &s[1].work);
	loop_post(l, &s[0].work);
	loop_post(l, &s[2].work);
	loop_post(l, &s[3].work);
	loop_work_cancel(&s[2].work);
	loop_run(l);
	assert_int_equal(count, 4);
	assert_int_equal(order[0], 0);
	assert_int_equal(order[1], 1);
	assert_int_equal(order[2], 3);
	assert_int_equal(order[3], 4);
	loop_free(l);
}

struct flood {
	struct loop *loop;
	struct loop_work work[1000];
	int arrived;
};

static void on_flood(void *data)
{
	struct flood *f = data;

	if (++f->arrived == 1000)
		loop_stop(f->loop);
}

static void *flood_main(void *arg)
{
	struct flood *f = arg;

	for (int i = 0; i < 1000; i++)
		loop_post_remote(f->loop, &f->work[i]);
	return NULL;
}

static void posts_of_another_thread_all_arrive(void **state)
{
	struct flood *f = xnew(struct flood);
	pthread_t thread;

	f->loop = loop_new(NULL);
	for (int i = 0; i < 1000; i++)
		loop_work_init(&f->work[i], "flood", on_flood, f);
	assert_int_equal(pthread_create(&thread, NULL, flood_main, f), 0);
	loop_run(f->loop);
	pthread_join(thread, NULL);
	assert_int_equal(f->arrived, 1000);
	loop_free(f->loop);
	free(f);
}

static void taken_back_post_does_not_run(void **state)
{
	struct flood *f = xnew(struct flood);

	f->loop = loop_new_virtual(NULL);
	loop_work_init(&f->work[0], "flood", on_flood, f);
	assert_false(loop_take_back(f->loop, &f->work[0]));
	loop_post_remote(f->loop, &f->work[0]);
	assert_true(loop_take_back(f->loop, &f->work[0]));
	loop_post(f->loop, &f->work[0]);
	assert_true(loop_take_back(f->loop, &f->work[0]));
	loop_run(f->loop);
	assert_int_equal(f->arrived, 0);
	loop_free(f->loop);
	free(f);
}

struct pipe_end {
	struct loop *loop;
	struct loop_watch *watch;
	int fd, calls;
	bool frees_itself;
};

static void on_readable(void *data, int events)
{
	struct pipe_end *p = data;
	char c;

	assert_int_equal(events, LOOP_READ);
	p->calls++;
	if (p->frees_itself) {
		loop_watch_free(take_ptr(p->watch));
		loop_stop(p->loop);
		return;
	}
	if (p->calls < 3)
		return;
	assert_int_equal(read(p->fd, &c, 1), 1);
	loop_watch_set(p->watch, 0);
	loop_stop(p->loop);
}

static void watch_is_level_triggered_and_pausable(void **state)
{
	struct loop *l = loop_new(NULL);
	struct pipe_end p = {.loop = l};
	int fds[2];

	assert_int_equal(pipe(fds), 0);
	p.fd = fds[0];
	p.watch = loop_watch_fd(l, p.fd, 0, "pipe", on_readable, &p);
	loop_watch_set(p.watch, LOOP_READ);
	assert_int_equal(write(fds[1], "ab", 2), 2);
	loop_run(l);
	assert_int_equal(p.calls, 3);
	/* one byte is left; paused, so nothing is said of it until it is resumed */
	p.frees_itself = true;
	loop_watch_set(p.watch, LOOP_READ);
	loop_run(l);
	assert_int_equal(p.calls, 4);
	assert_null(p.watch);
	loop_free(l);
	close(fds[0]);
	close(fds[1]);
}

static void on_slow(void *data)
{
	nanosleep(&(struct timespec){.tv_nsec = 15 * 1000000}, NULL);
	if (data)
		loop_stop(data);
}

/* What it wrote to stderr while the loop ran. */
static void run_captured(struct loop *l, char *to, size_t size)
{
	int saved = fcntl(2, F_DUPFD_CLOEXEC, 3), fds[2];
	ssize_t n;

	assert_int_equal(pipe(fds), 0);
	assert_int_equal(dup2(fds[1], 2), 2);
	loop_run(l);
	dup2(saved, 2);
	close(saved);
	close(fds[1]);
	n = read(fds[0], to, size - 1);
	close(fds[0]);
	to[n > 0 ? n : 0] = 0;
}

static void watchdog_names_the_slow_callback(void **state)
{
	struct loop *l = loop_new_virtual(NULL);
	struct loop_work work, quick;
	char log[2048];
	struct step s = {.loop = l, .order = (int[2]){0}, .count = &(int){0}};

	loop_work_init(&quick, "the quick one", on_step, &s);
	loop_work_init(&work, "the slow one", on_slow, NULL);
	loop_post(l, &quick);
	loop_post(l, &work);
	run_captured(l, log, sizeof(log));
	assert_int_equal(loop_slow_count(l), 1);
	assert_non_null(strstr(log, "the slow one"));
	assert_null(strstr(log, "the quick one"));
	loop_free(l);
}

struct signalled {
	struct loop *loop;
	int count;
};

static void on_usr1(void *data)
{
	struct signalled *s = data;

	s->count++;
	loop_stop(s->loop);
}

static void signal_arrives_on_the_loop(void **state)
{
	struct signalled s = {.loop = loop_new(NULL)};

	loop_on_signal(s.loop, SIGUSR1, on_usr1, &s);
	kill(getpid(), SIGUSR1);
	loop_run(s.loop);
	assert_int_equal(s.count, 1);
	loop_free(s.loop);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(many_random_timers_fire_in_order),
		cmocka_unit_test(timer_that_restarts_itself_does_not_starve_others),
		cmocka_unit_test(posted_work_runs_in_order_once),
		cmocka_unit_test(posts_of_another_thread_all_arrive),
		cmocka_unit_test(taken_back_post_does_not_run),
		cmocka_unit_test(watch_is_level_triggered_and_pausable),
		cmocka_unit_test(watchdog_names_the_slow_callback),
		cmocka_unit_test(signal_arrives_on_the_loop),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
