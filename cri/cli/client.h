/* SPDX-License-Identifier: Apache-2.0 */
/* A gRPC client for the command line: one call after another to a unix socket, by libcurl's HTTP/2.
 * Blocking. */
#pragma once

#include <protobuf-c/protobuf-c.h>

#include "io/base/error.h"

struct client;

/* Does not connect yet. */
struct client *client_new(const char *socket_path);
void client_free(struct client *c);

/*
 * Calls a method ("/runtime.v1.RuntimeService/Version") and hands each message of the reply to fn
 * as it arrives, unpacked; it is freed when fn returns. Errors: the server's own code and sentence,
 * or ERR_UNAVAILABLE when nothing answers on the socket.
 */
int client_call(struct client *c, const char *method, const ProtobufCMessage *request,
		const ProtobufCMessageDescriptor *reply,
		void (*fn)(const ProtobufCMessage *message, void *data), void *data,
		struct error *err);
