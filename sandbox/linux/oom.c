/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Kernels that kill for memory, told when it happens. Peculiar: no container has a descriptor for
 * it. On v2 one inotify watches all of them. On v1, where only an eventfd tells and does not say of
 * which group, some of them share one: an event costs a look at each container that has the same,
 * which is one in CHANNELS. It is told before the kill, so there the looks are repeated for a
 * moment. An event that is missed costs only the time of its line in the log: what counts is read
 * at the end of a container, and when a server begins to watch one.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/inotify.h>
#include <unistd.h>

#include "io/base/alloc.h"
#include "io/base/cleanup.h"
#include "io/base/log.h"
#include "sandbox/linux/kind.h"
#include "sandbox/linux/oom_report.h"

#define CHANNELS 16

struct channel {
	int fd; /* -1: there is none */
	struct loop_watch *watch;
	struct list watched;   /* struct linux_container, oom.node */
	struct list signalled; /* v2: those that the kernel told of; then not in watched */
	uint64_t departures;   /* v1: groups that went, of which the kernel has yet to tell */
	bool is_busy;	       /* somebody looks */
	bool is_signalled;     /* and has to do so again */
};

static struct channel channels[CHANNELS];
static unsigned next_channel;
static struct map by_watch; /* v2: inotify's number → container */
static bool has_failed;	    /* and said so */

/* A look at some containers, off the loop. */
struct look {
	struct linux_container *container; /* a reference */
	struct cgroup_oom seen, now;
	char *culprit;
	bool is_found; /* something new */
};

struct look_job {
	struct job job;
	struct look *looks;
	size_t count;
};

/* Begins to watch one, and then looks at it, since nobody told of what was before. */
struct watch_job {
	struct job job;
	struct channel *channel;
	int watch;
	bool is_watched;
	struct look look;
};

static bool is_v2(void)
{
	return cgroup_oom_events(kind.cgroups) == OOM_EVENTS_INOTIFY;
}

/* Tells what is new; another look may have been faster. */
static void take(struct look *l)
{
	struct oom_state *oom = &l->container->oom;
	uint64_t kills = l->now.kills > oom->seen.kills ? l->now.kills - oom->seen.kills : 0;

	oom->seen = l->now;
	if (!kills)
		return;
	free(oom->culprit);
	oom->culprit = take_ptr(l->culprit);
	kind.env.container_oom(kind.env.data, l->container->spec.id, kills, oom->culprit);
}

/* is_first: what the limits saw before is of interest, too. */
static void look_at(struct look *l, bool is_first)
{
	const char *path = l->container->cgroup;
	int r = cgroup_oom_read(kind.cgroups, path, is_first ? NULL : &l->seen, &l->now, NULL);

	/* one that is gone was looked at when it ended */
	l->is_found = r == 0 && l->now.kills > l->seen.kills;
	if (l->is_found)
		l->culprit = cgroup_oom_culprit(kind.cgroups, path, &l->seen, &l->now);
	else if (r < 0)
		l->now = l->seen;
}

static int run_look(struct job *job, struct error *err)
{
	struct look_job *j = container_of(job, struct look_job, job);

	for (size_t i = 0; i < j->count; i++)
		look_at(&j->looks[i], false);
	return 0;
}

static struct look look_new(struct linux_container *c)
{
	return (struct look){.container = linux_container_ref(c), .seen = c->oom.seen};
}

static void look_done(struct look *l)
{
	linux_container_unref(l->container);
	free(l->culprit);
}

static void free_look(struct job *job)
{
	struct look_job *j = container_of(job, struct look_job, job);

	for (size_t i = 0; i < j->count; i++)
		look_done(&j->looks[i]);
	free(j->looks);
	free(j);
}

static struct look_job *job_new(size_t room)
{
	struct look_job *j = xnew(struct look_job);

	job_init(&j->job, run_look, free_look);
	j->looks = xcalloc(room ?: 1, sizeof(*j->looks));
	return j;
}

/* Of all that the kernel may have told of: on v2 it said which. */
static struct look_job *gather(struct channel *ch)
{
	struct list *from = is_v2() ? &ch->signalled : &ch->watched;
	struct look_job *j;
	size_t count = 0;

	list_for_each(c, from, struct linux_container, oom.node)
		count++;
	j = job_new(count);
	while (j->count < count) {
		struct linux_container *c = list_first(from, struct linux_container, oom.node);

		j->looks[j->count++] = look_new(c);
		list_remove(&c->oom.node);
		list_append(&ch->watched, &c->oom.node);
	}
	return j;
}

/* Whether there was anything to tell. */
static bool run_looks(struct task *t, struct look_job *j)
{
	bool is_found = false;

	if (j->count && offload(t, NULL, &j->job) == 0) {
		for (size_t i = 0; i < j->count; i++) {
			is_found |= j->looks[i].is_found;
			take(&j->looks[i]);
		}
	}
	job_unref(&j->job);
	return is_found;
}

void linux_oom_look(struct task *t, struct linux_container *c)
{
	struct look_job *j = job_new(1);

	j->looks[j->count++] = look_new(c);
	run_looks(t, j);
}

static void look(struct task *t, struct channel *ch)
{
	static const uint64_t pauses_ms[] = {0, 2, 20, 200};
	size_t tries = is_v2() ? 1 : sizeof(pauses_ms) / sizeof(pauses_ms[0]);

	for (size_t i = 0; i < tries; i++)
		if ((pauses_ms[i] && task_sleep_ms(t, pauses_ms[i]) < 0) ||
		    run_looks(t, gather(ch)))
			return;
}

static void look_main(struct task *t, void *arg)
{
	struct channel *ch = arg;

	while (ch->is_signalled) {
		ch->is_signalled = false;
		look(t, ch);
	}
	ch->is_busy = false;
}

static void signal_channel(struct channel *ch)
{
	ch->is_signalled = true;
	if (ch->is_busy)
		return;
	ch->is_busy = true;
	task_start(kind.env.loop, "kills for memory", look_main, ch);
}

static void on_eventfd(void *data, int events)
{
	struct channel *ch = data;
	uint64_t n;

	if (read(ch->fd, &n, sizeof(n)) != sizeof(n))
		return;
	if (n <= ch->departures) {
		ch->departures -= n;
		return;
	}
	ch->departures = 0;
	if (!list_is_empty(&ch->watched))
		signal_channel(ch);
}

static void move_to_signalled(struct channel *ch, struct linux_container *c)
{
	list_remove(&c->oom.node);
	list_append(&ch->signalled, &c->oom.node);
}

static void take_event(struct channel *ch, const struct inotify_event *e)
{
	struct linux_container *c;
	char number[16];

	if (e->mask & IN_Q_OVERFLOW) {
		list_for_each_safe(all, &ch->watched, struct linux_container, oom.node)
			move_to_signalled(ch, all);
		return;
	}
	snprintf(number, sizeof(number), "%d", e->wd);
	c = map_get(&by_watch, number);
	if (c && e->mask & IN_MODIFY)
		move_to_signalled(ch, c);
}

static void on_inotify(void *data, int events)
{
	struct channel *ch = data;
	char text[2048] __attribute__((aligned(__alignof__(struct inotify_event))));
	ssize_t n = read(ch->fd, text, sizeof(text));

	for (char *at = text; at < text + n;) {
		const struct inotify_event *e = (const void *)at;

		take_event(ch, e);
		at += sizeof(*e) + e->len;
	}
	if (!list_is_empty(&ch->signalled))
		signal_channel(ch);
}

static void say_failed(const char *why)
{
	if (!has_failed)
		log_warning("kills for memory are told only at a container's end: %s", why);
	has_failed = true;
}

static void open_channel(struct channel *ch)
{
	ch->fd = is_v2() ? inotify_init1(IN_CLOEXEC | IN_NONBLOCK)
			 : eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	if (ch->fd < 0)
		say_failed(strerror(errno));
	else
		ch->watch = loop_watch_fd(kind.env.loop, ch->fd, LOOP_READ, "kills for memory",
					  is_v2() ? on_inotify : on_eventfd, ch);
}

static int run_watch(struct job *job, struct error *err)
{
	struct watch_job *j = container_of(job, struct watch_job, job);
	int r = cgroup_oom_watch(kind.cgroups, j->look.container->cgroup, j->channel->fd, &j->watch,
				 err);

	j->is_watched = r == 0;
	look_at(&j->look, true);
	return r;
}

static void set_watched(struct linux_container *c, struct channel *ch, int watch)
{
	char number[16];

	c->oom.channel = ch;
	c->oom.watch = watch;
	list_append(&ch->watched, &c->oom.node);
	if (!is_v2())
		return;
	snprintf(number, sizeof(number), "%d", watch);
	map_put(&by_watch, number, c);
}

static void watch_finished(struct job *job)
{
	struct watch_job *j = container_of(job, struct watch_job, job);
	struct linux_container *c = j->look.container;

	/* it went meanwhile */
	if (c->oom.is_over) {
		j->channel->departures += j->is_watched && !is_v2();
		return;
	}
	if (j->is_watched)
		set_watched(c, j->channel, j->watch);
	else if (job->err.sys != ENOENT)
		say_failed(job->err.text);
	take(&j->look);
}

static void free_watch(struct job *job)
{
	struct watch_job *j = container_of(job, struct watch_job, job);

	look_done(&j->look);
	free(j);
}

void linux_oom_watch(struct linux_container *c)
{
	struct channel *ch = &channels[is_v2() ? 0 : next_channel++ % CHANNELS];
	struct watch_job *j;

	if (ch->fd < 0 || c->oom.channel)
		return;
	j = xnew(struct watch_job);
	job_init(&j->job, run_watch, free_watch);
	j->job.finished = watch_finished;
	j->look = look_new(c);
	j->channel = ch;
	offload_detached(kind.env.loop, NULL, &j->job);
}

void linux_oom_unwatch(struct linux_container *c, bool has_gone)
{
	char number[16];

	c->oom.is_over = true;
	if (!c->oom.channel)
		return;
	list_remove(&c->oom.node);
	if (is_v2()) {
		snprintf(number, sizeof(number), "%d", c->oom.watch);
		map_remove(&by_watch, number);
		(void)inotify_rm_watch(c->oom.channel->fd, c->oom.watch);
	} else {
		c->oom.channel->departures += has_gone;
	}
	c->oom.channel = NULL;
}

void linux_oom_init(void)
{
	enum cgroup_oom_events kinds = cgroup_oom_events(kind.cgroups);
	size_t count = kinds == OOM_EVENTS_NONE ? 0 : kinds == OOM_EVENTS_INOTIFY ? 1 : CHANNELS;

	oom_reports_init();
	for (size_t i = 0; i < CHANNELS; i++) {
		channels[i] = (struct channel){.fd = -1};
		list_init(&channels[i].watched);
		list_init(&channels[i].signalled);
		if (i < count)
			open_channel(&channels[i]);
	}
}

void linux_oom_shutdown(void)
{
	for (size_t i = 0; i < CHANNELS; i++) {
		loop_watch_free(channels[i].watch);
		close_fd(channels[i].fd);
	}
	map_done(&by_watch);
	oom_reports_done();
}
