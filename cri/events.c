/* SPDX-License-Identifier: Apache-2.0 */
/*
 * GetContainerEvents. An event is packed in the moment of its change, with the statuses of that
 * moment, into a queue of each reader. Peculiar: a reader whose queue is full is ended, so that it
 * gets to know that it missed something.
 */
#include <stdlib.h>
#include <string.h>

#include "cri/methods.h"
#include "cri/reply.h"
#include "io/base/alloc.h"
#include "io/base/clock.h"

/* What one reader may leave waiting. */
#define QUEUE_EVENTS 4096
#define QUEUE_BYTES (16u << 20)

struct event {
	struct list node;
	size_t size;
	uint8_t message[];
};

struct reader {
	struct node_watcher watcher;
	struct task *task;
	struct list events;
	size_t count, bytes;
	bool is_behind;
	struct task_cond changed;
};

static Runtime__V1__ContainerEventType type_of(enum node_event event)
{
	switch (event) {
	case EVENT_CREATED:
		return RUNTIME__V1__CONTAINER_EVENT_TYPE__CONTAINER_CREATED_EVENT;
	case EVENT_STARTED:
		return RUNTIME__V1__CONTAINER_EVENT_TYPE__CONTAINER_STARTED_EVENT;
	case EVENT_STOPPED:
		return RUNTIME__V1__CONTAINER_EVENT_TYPE__CONTAINER_STOPPED_EVENT;
	case EVENT_DELETED:
		break;
	}
	return RUNTIME__V1__CONTAINER_EVENT_TYPE__CONTAINER_DELETED_EVENT;
}

static struct event *event_new(enum node_event type, const struct sandbox *sb,
			       const struct container *c)
{
	struct arena *arena = arena_new(TASK_ARENA_CAP);
	Runtime__V1__ContainerEventResponse m = RUNTIME__V1__CONTAINER_EVENT_RESPONSE__INIT;
	struct event *e;
	size_t size;

	/* of the pod itself, as the kubelet knows it from other runtimes */
	m.container_id = (char *)(c ? c->id : sb->id);
	m.container_event_type = type_of(type);
	m.created_at = realtime_ns();
	m.pod_sandbox_status = reply_sandbox_status(arena, sb);
	m.containers_statuses = reply_container_statuses(arena, sb, &m.n_containers_statuses);
	size = protobuf_c_message_get_packed_size(&m.base);
	e = xmalloc(sizeof(*e) + size);
	e->size = protobuf_c_message_pack(&m.base, e->message);
	arena_free(arena);
	return e;
}

/* The caller frees it. */
static struct event *take_first(struct reader *r)
{
	struct event *e = list_first(&r->events, struct event, node);

	if (!e)
		return NULL;
	list_remove(&e->node);
	r->count--;
	r->bytes -= e->size;
	return e;
}

static void drop_all(struct reader *r)
{
	struct event *e;

	while ((e = take_first(r)))
		free(e);
}

static void on_change(void *data, enum node_event type, const struct sandbox *sb,
		      const struct container *c)
{
	struct reader *r = data;
	struct event *e;

	if (r->is_behind)
		return;
	e = event_new(type, sb, c);
	list_append(&r->events, &e->node);
	r->count++;
	r->bytes += e->size;
	if (r->count <= QUEUE_EVENTS && r->bytes <= QUEUE_BYTES) {
		task_cond_broadcast(&r->changed);
		return;
	}
	r->is_behind = true;
	drop_all(r);
	/* it may be waiting for its client, for ever */
	task_cancel(r->task);
}

static int send_next(struct task *t, struct call *call, struct reader *r)
{
	struct event *e cleanup_free = NULL;

	while (!(e = take_first(r)))
		TRY(task_cond_wait(t, &r->changed));
	return call_send_packed(t, call, e->message, e->size);
}

int cri_get_container_events(struct task *t, struct call *call, const void *message)
{
	struct reader reader = {.watcher = {.changed = on_change, .data = &reader}, .task = t};
	int r = 0;

	list_init(&reader.events);
	task_cond_init(&reader.changed);
	node_watch(call_data(call), &reader.watcher);
	while (r == 0)
		r = send_next(t, call, &reader);
	node_unwatch(&reader.watcher);
	drop_all(&reader);
	if (reader.is_behind)
		return error_set(&t->err, ERR_EXHAUSTED,
				 "more than %d events or %u MiB wait to be read: the reader is too "
				 "slow; list what is there and ask for events anew",
				 QUEUE_EVENTS, QUEUE_BYTES >> 20);
	return r;
}
