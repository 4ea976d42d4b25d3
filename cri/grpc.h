/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The gRPC server: HTTP/2 with prior knowledge on unix sockets, unary and server-streaming methods.
 * Every call is one task, named by its method; its deadline is the client's grpc-timeout, and it is
 * cancelled when the client resets the stream or goes away. A handler returns 0 or -ERR_x with
 * t->err set, which becomes the call's gRPC status and grpc-message; failed calls are logged here,
 * once.
 *
 * A message is at most GRPC_REQUEST_MAX bytes and unpacks into the task's arena, whose cap holds.
 * Strings are checked in both directions: what is not UTF-8 or has a NUL inside is refused, naming
 * the field. Protocol: gRPC over HTTP/2 (grpc/doc/PROTOCOL-HTTP2.md), RFC 9113, RFC 7541.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>

#include <protobuf-c/protobuf-c.h>

#include "io/base/error.h"
#include "io/loop.h"
#include "io/task.h"

#define GRPC_REQUEST_MAX (16u * 1024 * 1024)
#define GRPC_REPLY_MAX (256u * 1024 * 1024)

struct grpc_server;
/* One RPC in flight. Owned by the server; the handler has it until it returns. */
struct call;

/* request is the unpacked message, in t->arena. The call ends when this returns. */
typedef int (*call_fn)(struct task *t, struct call *c, const void *request);

struct grpc_method {
	const char *path; /* "/runtime.v1.RuntimeService/Version", static */
	const ProtobufCMessageDescriptor *request, *response;
	bool is_streaming; /* call_send() any number of times instead of one call_reply() */
	call_fn handler;   /* NULL: UNIMPLEMENTED, naming the method */
};

/*
 * methods stays the caller's and must outlive the server. data is what call_data() gives to
 * handlers. One server a loop: it takes loop_set_prepare(). SIGPIPE is ignored from now on. NULL
 * with err set when epoll can't be had.
 */
struct grpc_server *grpc_server_new(struct loop *l, const struct grpc_method *methods, size_t count,
				    void *data, struct error *err);
/* A further table; a path that is in an earlier one is a programming error. */
void grpc_server_add_methods(struct grpc_server *s, const struct grpc_method *methods,
			     size_t count);
/* Accepts on a listening unix stream socket, which is the server's from now on (also when this
 * fails). Only peers with uid 0 or our own effective uid are let in. May be called for several
 * sockets. */
int grpc_server_listen(struct grpc_server *s, int listen_fd, struct error *err);
/* Closes the listening sockets and sends GOAWAY on every connection: calls in flight go on, new
 * ones go elsewhere. */
void grpc_server_shutdown(struct grpc_server *s);
/* How many calls are in flight, and how many connections are open. */
size_t grpc_server_calls(const struct grpc_server *s);
size_t grpc_server_connections(const struct grpc_server *s);
/*
 * Closes every connection and cancels every call. Handlers that have not returned yet find their
 * call gone; the loop has to run until they are through (task_count()), or they are leaked. Must
 * not be called from a handler. NULL is allowed.
 */
void grpc_server_free(struct grpc_server *s);

void *call_data(const struct call *c);
const struct grpc_method *call_method(const struct call *c);
/* True once the client has gone or has reset the call. */
bool call_is_gone(const struct call *c);

/*
 * The reply of a unary method, once, before the handler returns 0. Packs response at once, so it
 * may be dropped afterwards; does not wait for the client to take it. 0 as well when the client has
 * gone. -ERR_INTERNAL when a string is not UTF-8 (naming its field), -ERR_EXHAUSTED past
 * GRPC_REPLY_MAX.
 */
int call_reply(struct task *t, struct call *c, const ProtobufCMessage *response);
/* One message of a streaming method; waits while the client's window is full. -ERR_CANCELLED when
 * the client has gone. */
int call_send(struct task *t, struct call *c, const ProtobufCMessage *message);
/* The same of one that is packed already. */
int call_send_packed(struct task *t, struct call *c, const void *message, size_t size);

/*
 * A listening unix socket at path, mode 0600, close-on-exec and non-blocking: missing directories
 * are made (0700), a stale socket is replaced. ERR_EXISTS when a server answers there, ERR_INVALID
 * when the path is too long or something else than a socket. Returns the descriptor.
 */
int grpc_listen_unix(const char *path, struct error *err);
