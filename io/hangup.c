/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The edge-triggered set. Peculiar: the kernel keys it by open file, which the keeper has too, so
 * closing a descriptor would not take it out.
 */
#include "io/hangup.h"

#include <errno.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

#include "io/base/log.h"

static int set_fd = -1;
static unsigned set_count;
static struct loop_watch *set_watch;

/* One at a time, since a callback may take others out. */
static void on_change(void *data, int events)
{
	struct epoll_event e;

	while (set_fd >= 0 && epoll_wait(set_fd, &e, 1, 0) == 1) {
		struct hangup *h = e.data.ptr;

		h->fn(h->data);
	}
}

static void close_set(void)
{
	if (set_watch)
		loop_watch_free(set_watch);
	set_watch = NULL;
	if (set_fd >= 0)
		close(set_fd);
	set_fd = -1;
}

static int add(struct loop *l, int fd, struct hangup *h)
{
	struct epoll_event e = {.events = EPOLLIN | EPOLLET, .data.ptr = h};

	if (set_fd < 0) {
		set_fd = epoll_create1(EPOLL_CLOEXEC);
		if (set_fd < 0)
			return -errno;
		set_watch = loop_watch_fd(l, set_fd, LOOP_READ, "hung up output", on_change, NULL);
	}
	return epoll_ctl(set_fd, EPOLL_CTL_ADD, fd, &e) < 0 ? -errno : 0;
}

void hangup_watch(struct hangup *h, struct loop *l, int fd, void (*fn)(void *data), void *data)
{
	int r;

	if (h->loop)
		return;
	*h = (struct hangup){.loop = l, .fd = fd, .fn = fn, .data = data};
	r = add(l, fd, h);
	if (r == 0) {
		set_count++;
		return;
	}
	log_warning("output that hung up is not watched: %s", strerror(-r));
	h->loop = NULL;
	if (!set_count)
		close_set();
}

void hangup_forget(struct hangup *h)
{
	if (!h->loop)
		return;
	h->loop = NULL;
	epoll_ctl(set_fd, EPOLL_CTL_DEL, h->fd, NULL);
	if (--set_count == 0)
		close_set();
}
