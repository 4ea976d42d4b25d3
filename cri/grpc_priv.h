/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The seam between the gRPC server (grpc.c: methods, tasks, messages, status) and its transport
 * (grpc_h2o.c: connections, streams, HTTP/2). The transport calls grpc_call_*(), grpc.c calls
 * transport_*(); both only on the loop's thread.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "cri/grpc.h"
#include "cri/grpc_wire.h"
#include "io/base/buf.h"
#include "io/base/list.h"

/* Calls in flight at once, and streams that one connection may have open. */
#define GRPC_MAX_CALLS 10000
#define GRPC_MAX_STREAMS 5000

struct transport;

struct call {
	struct grpc_server *server;
	const struct grpc_method *method; /* NULL when it is unknown */
	struct task *task;		  /* NULL before its start and after its end */
	void *stream;			  /* the transport's; NULL once the client has gone */
	struct buf queued;		  /* length-prefixed messages that wait */
	struct buf flying;		  /* what the transport sends from */
	bool is_flying;
	bool has_headers; /* the response has begun */
	bool has_reply;
	bool is_finished; /* status and message hold; nothing is queued any more */
	bool is_trailed;  /* the trailers are with the transport */
	enum grpc_status status;
	int http_status;       /* 200 unless the request was no gRPC */
	char *message;	       /* percent-encoded, not terminated; NULL for none */
	size_t message_length; /* at most 3 bytes for each of an error's text */
	struct task_cond drained;
	struct list node; /* in the server's calls */
	uint64_t began;
	uint64_t deadline; /* a little before the client's, so that it gets to know why */
	struct loop_timer overdue;
	int refs; /* the task's and the stream's */
};

/* A request as the transport found it; nothing is terminated or checked. */
struct grpc_request {
	const char *path, *content_type, *timeout;
	size_t path_length, content_type_length, timeout_length;
	bool is_post;
	bool is_too_large; /* its body passed the limit and was dropped */
};

/* Starts the call of a complete request. The transport owns one reference and must end it with
 * grpc_call_gone() and grpc_call_unref(). */
struct call *grpc_call_begin(struct grpc_server *s, void *stream, const struct grpc_request *r);
/* The stream went away, or was reset. Harmless when repeated. */
void grpc_call_gone(struct call *c);
/* flying was handed over as a whole: it is freed, what is queued or the end follows. */
void grpc_call_sent(struct call *c);
void grpc_call_unref(struct call *c);
/* Gives freed memory back to the system soon, after something large. */
void grpc_trim_soon(struct grpc_server *s);

struct transport *transport_new(struct grpc_server *s, struct loop *l, struct error *err);
/* Takes an accepted connection over. */
void transport_accept(struct transport *tr, int fd);
/* Tells every client to open no more calls here. */
void transport_goaway(struct transport *tr);
size_t transport_connections(const struct transport *tr);
void transport_free(struct transport *tr);

/* The request's body, as long as the stream has it. */
const uint8_t *transport_body(const struct call *c, size_t *ret_length);
void transport_drop_body(struct call *c);
/* Sends queued, unless something is flying: then grpc_call_sent() will. */
void transport_send(struct call *c);
/* Sends what is queued, then the status. Once a call, when is_finished is set. */
void transport_finish(struct call *c);

/*
 * Accepting (grpc_socket.c). Each accepted connection of an allowed peer goes to fn. At the limit
 * of descriptors, connections are accepted by means of a spare one and closed, so that clients see
 * an error instead of silence.
 */
struct listener;
struct listener *listener_new(struct loop *l, int fd, void (*fn)(void *data, int fd), void *data,
			      struct error *err);
void listener_free(struct listener *li);
