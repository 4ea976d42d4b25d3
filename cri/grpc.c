/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Methods, calls and their tasks. Peculiar: a call has two owners, its task and its stream, and
 * either may end first; a reply is kept until the handler has returned, so that an error after
 * call_reply() still replaces it, and a small one leaves in one write.
 */
#include "cri/grpc.h"

#include <malloc.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>

#include "cri/grpc_priv.h"
#include "io/base/alloc.h"
#include "io/base/log.h"
#include "io/base/map.h"

/* A streaming method may have this much waiting for the client. */
#define QUEUE_SIZE (64 * 1024)
/* Allocations from here on are worth a malloc_trim() after they were freed. */
#define LARGE_SIZE (1024 * 1024)
#define TRIM_DELAY_NS (500 * 1000000ull)
#define LISTENERS_MAX 8
/* How long before its own deadline a client is answered, at the most. */
#define MARGIN_MAX_NS (200 * 1000000ull)

struct grpc_server {
	struct loop *loop;
	struct transport *transport;
	struct map methods;
	void *data;
	struct listener *listeners[LISTENERS_MAX];
	size_t listener_count;
	struct list calls;
	size_t call_count;
	struct loop_timer trim;
	bool is_shut_down;
	bool is_freed; /* what is left are calls whose tasks have not returned */
};

static void on_trim(void *data)
{
	malloc_trim(0);
}

void grpc_trim_soon(struct grpc_server *s)
{
	if (s->trim.index < 0 && !s->is_freed)
		loop_timer_start(s->loop, &s->trim, loop_now(s->loop) + TRIM_DELAY_NS);
}

static void free_buf(struct call *c, struct buf *b)
{
	if (b->capacity >= LARGE_SIZE)
		grpc_trim_soon(c->server);
	buf_done(b);
}

static void on_accepted(void *data, int fd)
{
	struct grpc_server *s = data;

	transport_accept(s->transport, fd);
}

struct grpc_server *grpc_server_new(struct loop *l, const struct grpc_method *methods, size_t count,
				    void *data, struct error *err)
{
	struct grpc_server *s = xnew(struct grpc_server);

	s->loop = l;
	s->data = data;
	list_init(&s->calls);
	loop_timer_init(&s->trim, "malloc_trim", on_trim, s);
	s->transport = transport_new(s, l, err);
	if (!s->transport) {
		free(s);
		return NULL;
	}
	/* a client that hangs up while it is written to must not end the process */
	signal(SIGPIPE, SIG_IGN);
	grpc_server_add_methods(s, methods, count);
	return s;
}

void grpc_server_add_methods(struct grpc_server *s, const struct grpc_method *methods, size_t count)
{
	for (size_t i = 0; i < count; i++)
		if (map_put(&s->methods, methods[i].path, (void *)(uintptr_t)&methods[i]))
			abort();
}

int grpc_server_listen(struct grpc_server *s, int listen_fd, struct error *err)
{
	struct listener *li;

	if (s->listener_count == LISTENERS_MAX) {
		close(listen_fd);
		return error_set(err, ERR_EXHAUSTED, "a gRPC server has at most %d sockets",
				 LISTENERS_MAX);
	}
	li = listener_new(s->loop, listen_fd, on_accepted, s, err);
	if (!li)
		return err ? -(int)err->code : -ERR_INTERNAL;
	s->listeners[s->listener_count++] = li;
	return 0;
}

void grpc_server_shutdown(struct grpc_server *s)
{
	s->is_shut_down = true;
	while (s->listener_count)
		listener_free(s->listeners[--s->listener_count]);
	transport_goaway(s->transport);
}

size_t grpc_server_calls(const struct grpc_server *s)
{
	return s->call_count;
}

size_t grpc_server_connections(const struct grpc_server *s)
{
	return transport_connections(s->transport);
}

static void free_last(struct grpc_server *s)
{
	if (s->is_freed && !s->call_count)
		free(s);
}

void grpc_server_free(struct grpc_server *s)
{
	if (!s)
		return;
	while (s->listener_count)
		listener_free(s->listeners[--s->listener_count]);
	transport_free(s->transport);
	s->transport = NULL;
	loop_timer_stop(s->loop, &s->trim);
	map_done(&s->methods);
	s->is_freed = true;
	free_last(s);
}

void *call_data(const struct call *c)
{
	return c->server->data;
}

const struct grpc_method *call_method(const struct call *c)
{
	return c->method;
}

bool call_is_gone(const struct call *c)
{
	return !c->stream;
}

void grpc_call_unref(struct call *c)
{
	struct grpc_server *s = c->server;

	if (--c->refs)
		return;
	free_buf(c, &c->queued);
	free_buf(c, &c->flying);
	free(c->message);
	list_remove(&c->node);
	free(c);
	s->call_count--;
	free_last(s);
}

void grpc_call_gone(struct call *c)
{
	if (!c->stream)
		return;
	c->stream = NULL;
	free_buf(c, &c->queued);
	if (c->task)
		task_cancel(c->task);
	task_cond_broadcast(&c->drained);
}

void grpc_call_sent(struct call *c)
{
	free_buf(c, &c->flying);
	c->is_flying = false;
	if (c->is_finished)
		transport_finish(c);
	else if (c->queued.length)
		transport_send(c);
	task_cond_broadcast(&c->drained);
}

static void finish(struct call *c, enum grpc_status status, const char *message)
{
	if (!c->stream || c->is_finished)
		return;
	c->is_finished = true;
	c->status = status;
	if (message) {
		c->message = xmalloc(3 * strlen(message) + 1);
		c->message_length = grpc_percent_encode(c->message, message);
	}
	transport_finish(c);
}

/* The failed call's line in the log; the client's own doing is not worth a warning. */
static void log_call(const char *name, enum err code, uint64_t took_ns, const char *text)
{
	double took_ms = (double)took_ns / 1e6;

	if (!code)
		log_debug("%s: ok after %.3f ms", name, took_ms);
	else if (code == ERR_CANCELLED)
		log_info("%s: cancelled after %.3f ms: %s", name, took_ms, text);
	else
		log_warning("%s: %s after %.3f ms: %s", name, err_name(code), took_ms, text);
}

struct unpack {
	struct arena *arena;
	bool is_full;
};

static void *unpack_alloc(void *data, size_t size)
{
	struct unpack *u = data;
	void *p = arena_try(u->arena, size);

	if (!p)
		u->is_full = true;
	return p;
}

static void unpack_free(void *data, void *p)
{
	/* the arena goes as a whole */
}

static int unpack_request(struct task *t, struct call *c, const ProtobufCMessage **ret)
{
	struct unpack u = {.arena = t->arena};
	ProtobufCAllocator allocator = {
		.alloc = unpack_alloc, .free = unpack_free, .allocator_data = &u};
	const ProtobufCMessageDescriptor *d = c->method->request;
	const uint8_t *body, *data;
	size_t body_length, length;
	ProtobufCMessage *m;

	body = transport_body(c, &body_length);
	TRY(grpc_message_parse(body, body_length, GRPC_REQUEST_MAX, &data, &length, &t->err));
	TRY(grpc_check_strings(d, data, length, &t->err));
	m = protobuf_c_message_unpack(d, &allocator, length, data);
	if (!m && u.is_full)
		return error_set(
			&t->err, ERR_EXHAUSTED,
			"the request of %zu bytes takes more than %d MiB when it is unpacked",
			length, TASK_ARENA_CAP >> 20);
	if (!m)
		return error_set(&t->err, ERR_INTERNAL,
				 "the message of type %s is not valid protobuf", d->name);
	*ret = m;
	return 0;
}

static int run(struct task *t, struct call *c)
{
	const ProtobufCMessage *request = NULL;

	if (!c->stream)
		return error_set(&t->err, ERR_CANCELLED,
				 "the client went away before the call began");
	TRY(unpack_request(t, c, &request));
	transport_drop_body(c);
	TRY(c->method->handler(t, c, request));
	if (!c->method->is_streaming && !c->has_reply)
		return error_set(&t->err, ERR_INTERNAL, "the method %s gave no reply",
				 c->method->path);
	return 0;
}

static uint64_t margin_of(uint64_t timeout)
{
	return timeout / 20 < MARGIN_MAX_NS ? timeout / 20 : MARGIN_MAX_NS;
}

/* The deadline passed, and the task could not leave what it is at. */
static void on_overdue(void *data)
{
	struct call *c = data;
	struct error err = {0};

	error_set(&err, ERR_DEADLINE, "the deadline passed, but it goes on");
	task_blame(c->task, &err);
	log_call(c->method->path, ERR_DEADLINE, loop_now(c->server->loop) - c->began, err.text);
	free_buf(c, &c->queued);
	finish(c, grpc_status_of(ERR_DEADLINE), err.text);
}

static void watch_deadline(struct call *c)
{
	if (c->deadline == LOOP_NEVER || c->method->is_streaming)
		return;
	loop_timer_start(c->server->loop, &c->overdue,
			 c->deadline + margin_of(c->deadline - c->began) / 2);
}

static void call_main(struct task *t, void *arg)
{
	struct call *c = arg;
	const char *text = NULL;
	enum err code;
	int r;

	task_limit(t, c->deadline);
	watch_deadline(c);
	r = run(t, c);
	loop_timer_stop(t->loop, &c->overdue);
	c->task = NULL;
	code = r < -ERR_INTERNAL || r > 0 ? ERR_INTERNAL : (enum err)(-r);
	if (code) {
		text = t->err.code == code && *t->err.text ? t->err.text : err_name(code);
		if (!c->method->is_streaming)
			free_buf(c, &c->queued);
	}
	log_call(c->method->path, code, loop_now(t->loop) - c->began, text);
	finish(c, grpc_status_of(code), text);
	if (arena_used(t->arena) >= LARGE_SIZE)
		grpc_trim_soon(c->server);
	grpc_call_unref(c);
}

/* Ends a call that needs no task: it never reaches a handler. */
static void reject(struct call *c, int http_status, struct error *err)
{
	log_call(c->method ? c->method->path : "a call", err->code, 0, err->text);
	c->http_status = http_status;
	finish(c, grpc_status_of(err->code), err->text);
}

/* 0, or the HTTP status to reject it with, with err set. */
static int check_request(struct grpc_server *s, struct call *c, const struct grpc_request *r,
			 struct error *err)
{
	char *path = xasprintf("%.*s", (int)r->path_length, r->path);
	uint64_t timeout = 0;

	c->method = strlen(path) == r->path_length ? map_get(&s->methods, path) : NULL;
	free(path);
	if (!r->is_post) {
		error_set(err, ERR_INVALID, "a gRPC call is a POST, but the method is another");
		return 405;
	}
	if (!grpc_is_content_type(r->content_type, r->content_type_length)) {
		error_set(err, ERR_INVALID,
			  "content-type %.*s is not gRPC; it must be application/grpc",
			  (int)(r->content_type_length < 100 ? r->content_type_length : 100),
			  r->content_type_length ? r->content_type : "");
		return 415;
	}
	if (!c->method || !c->method->handler)
		error_set(err, ERR_UNIMPLEMENTED, "method %.*s is not implemented",
			  (int)(r->path_length < 500 ? r->path_length : 500), r->path);
	else if (r->timeout && !grpc_timeout_parse(r->timeout, r->timeout_length, &timeout))
		error_set(err, ERR_INTERNAL, "grpc-timeout %.*s is malformed",
			  (int)(r->timeout_length < 50 ? r->timeout_length : 50), r->timeout);
	else if (r->is_too_large)
		error_set(err, ERR_EXHAUSTED, "the request is larger than the limit of %u bytes",
			  GRPC_REQUEST_MAX);
	else if (s->is_shut_down)
		error_set(err, ERR_UNAVAILABLE, "the server is shutting down; try again");
	else if (s->call_count > GRPC_MAX_CALLS)
		error_set(err, ERR_EXHAUSTED, "there are %d calls in flight; try again later",
			  GRPC_MAX_CALLS);
	else if (r->timeout)
		c->deadline = c->began + timeout - margin_of(timeout);
	return err->code ? 200 : 0;
}

struct call *grpc_call_begin(struct grpc_server *s, void *stream, const struct grpc_request *r)
{
	struct call *c = xnew(struct call);
	struct error err = {0};
	int http_status;

	c->server = s;
	c->stream = stream;
	c->began = loop_now(s->loop);
	c->deadline = LOOP_NEVER;
	loop_timer_init(&c->overdue, "a call's deadline", on_overdue, c);
	c->http_status = 200;
	c->refs = 1;
	task_cond_init(&c->drained);
	list_append(&s->calls, &c->node);
	s->call_count++;
	http_status = check_request(s, c, r, &err);
	if (http_status) {
		reject(c, http_status, &err);
		return c;
	}
	c->refs++;
	c->task = task_start(s->loop, c->method->path, call_main, c);
	return c;
}

/* Room behind the queue for a message of that length, which enter() makes a part of it. */
static int reserve(struct task *t, struct call *c, size_t length, uint8_t **ret)
{
	if (length > GRPC_REPLY_MAX)
		return error_set(&t->err, ERR_EXHAUSTED,
				 "the reply of %zu bytes is larger than the limit of %u", length,
				 GRPC_REPLY_MAX);
	*ret = (uint8_t *)buf_reserve(&c->queued, GRPC_PREFIX_SIZE + length) + GRPC_PREFIX_SIZE;
	return 0;
}

static int enter(struct task *t, struct call *c, uint8_t *message, size_t length)
{
	struct error err = {0};

	if (grpc_check_strings(c->method->response, message, length, &err) < 0)
		return error_set(&t->err, ERR_INTERNAL, "the reply can't be sent: %s", err.text);
	grpc_prefix_write(message - GRPC_PREFIX_SIZE, length);
	c->queued.length += GRPC_PREFIX_SIZE + length;
	return 0;
}

/* Appends the message to the queue, length-prefixed. */
static int enqueue(struct task *t, struct call *c, const ProtobufCMessage *m)
{
	size_t length = protobuf_c_message_get_packed_size(m);
	uint8_t *to = NULL;

	if (m->descriptor != c->method->response)
		return error_set(&t->err, ERR_INTERNAL, "the method %s replies with %s, not %s",
				 c->method->path, c->method->response->name, m->descriptor->name);
	TRY(reserve(t, c, length, &to));
	protobuf_c_message_pack(m, to);
	return enter(t, c, to, length);
}

int call_reply(struct task *t, struct call *c, const ProtobufCMessage *response)
{
	if (c->method->is_streaming || c->has_reply)
		return error_set(&t->err, ERR_INTERNAL, "the method %s can't reply %s",
				 c->method->path,
				 c->has_reply ? "twice" : "once: it is a streaming one");
	c->has_reply = true;
	return c->stream && !c->is_finished ? enqueue(t, c, response) : 0;
}

/* Waits until there is room for one more. */
static int wait_for_room(struct task *t, struct call *c)
{
	if (!c->method->is_streaming)
		return error_set(&t->err, ERR_INTERNAL, "the method %s is not a streaming one",
				 c->method->path);
	while (c->stream && c->queued.length >= QUEUE_SIZE)
		TRY(task_cond_wait(t, &c->drained));
	if (!c->stream)
		return error_set(&t->err, ERR_CANCELLED, "%s: the client went away",
				 c->method->path);
	return 0;
}

int call_send(struct task *t, struct call *c, const ProtobufCMessage *message)
{
	TRY(wait_for_room(t, c));
	TRY(enqueue(t, c, message));
	transport_send(c);
	return 0;
}

int call_send_packed(struct task *t, struct call *c, const void *message, size_t size)
{
	uint8_t *to = NULL;

	TRY(wait_for_room(t, c));
	TRY(reserve(t, c, size, &to));
	memcpy(to, message, size);
	TRY(enter(t, c, to, size));
	transport_send(c);
	return 0;
}
