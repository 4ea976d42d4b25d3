/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reading outputs into memory. Peculiar: when the main process has ended, what counts is what the
 * pipe holds at that moment (FIONREAD); "until it is empty" may never come true while a child
 * prints on.
 */
#include "io/capture.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "io/base/alloc.h"
#include "io/base/cleanup.h"
#include "io/task.h"

#define TURN (256u * 1024)
#define CHUNK (64u * 1024)

struct capture_impl {
	struct loop *loop;
	struct loop_watch *watch[2];
	int fd[2];
	size_t limit;
	struct loop_timer timer;
	struct task_cond changed;
	struct pipe_data {
		struct capture *c;
		int index;
	} pipe[2];
};

static void close_pipe(struct capture *c, int i)
{
	struct capture_impl *impl = c->impl;

	if (impl->watch[i])
		loop_watch_free(impl->watch[i]);
	impl->watch[i] = NULL;
	close_fd(take_fd(&impl->fd[i]));
}

/* At most max bytes, until there are no more for now. */
static void read_pipe(struct capture *c, int i, size_t max)
{
	static char rest[CHUNK];
	struct capture_impl *impl = c->impl;
	struct buf *b = &c->output[i];

	while (max && impl->fd[i] >= 0) {
		size_t room = impl->limit - b->length, want = max < CHUNK ? max : CHUNK;
		ssize_t n;

		if (room && want > room)
			want = room;
		n = read(impl->fd[i], room ? buf_reserve(b, want) : rest, want);
		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0 && errno == EAGAIN)
			return;
		if (n <= 0) { /* a terminal's end is EIO */
			c->has_ended[i] = true;
			close_pipe(c, i);
			task_cond_broadcast(&impl->changed);
			return;
		}
		if (room) {
			b->length += (size_t)n;
			b->data[b->length] = '\0';
		} else {
			c->dropped[i] += (uint64_t)n;
		}
		max -= (size_t)n;
	}
}

static void on_readable(void *data, int events)
{
	struct pipe_data *p = data;

	read_pipe(p->c, p->index, TURN);
}

static void on_grace_over(void *data)
{
	struct capture_impl *impl = data;

	task_cond_broadcast(&impl->changed);
}

struct capture *capture_new(struct loop *l, int out_fd, int err_fd, size_t limit)
{
	struct capture *c = xnew(struct capture);
	struct capture_impl *impl = xnew(struct capture_impl);

	c->impl = impl;
	*impl = (struct capture_impl){.loop = l, .fd = {out_fd, err_fd}, .limit = limit};
	loop_timer_init(&impl->timer, "capture grace", on_grace_over, impl);
	task_cond_init(&impl->changed);
	for (int i = 0; i < 2; i++) {
		impl->pipe[i] = (struct pipe_data){.c = c, .index = i};
		if (impl->fd[i] < 0) {
			c->has_ended[i] = true;
			continue;
		}
		fcntl(impl->fd[i], F_SETFL, fcntl(impl->fd[i], F_GETFL) | O_NONBLOCK);
		impl->watch[i] = loop_watch_fd(l, impl->fd[i], LOOP_READ, "capture", on_readable,
					       &impl->pipe[i]);
	}
	return c;
}

int capture_finish(struct task *t, struct capture *c, uint64_t grace_ms)
{
	struct capture_impl *impl = c->impl;
	uint64_t until = loop_now(t->loop) + grace_ms * 1000000u;
	int r = 0;

	for (int i = 0; i < 2; i++) {
		int left = 0;

		if (impl->fd[i] < 0)
			continue;
		ioctl(impl->fd[i], FIONREAD, &left);
		/* one more than there is, so that an end that is there already is seen */
		read_pipe(c, i, (size_t)left + 1);
	}
	loop_timer_start(impl->loop, &impl->timer, until);
	while (r == 0 && !(c->has_ended[0] && c->has_ended[1]) && loop_now(t->loop) < until)
		r = task_cond_wait(t, &impl->changed);
	loop_timer_stop(impl->loop, &impl->timer);
	for (int i = 0; i < 2; i++)
		close_pipe(c, i);
	return r;
}

void capture_free(struct capture *c)
{
	if (!c)
		return;
	loop_timer_stop(c->impl->loop, &c->impl->timer);
	for (int i = 0; i < 2; i++) {
		close_pipe(c, i);
		buf_done(&c->output[i]);
	}
	free(c->impl);
	free(c);
}
