/* SPDX-License-Identifier: Apache-2.0 */
/* gRPC over libcurl. Peculiar: curl delivers trailers through its header callback, and the body in
 * pieces that know nothing of messages. */
#include "cri/cli/client.h"

#include <curl/curl.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "io/base/alloc.h"
#include "io/base/buf.h"
#include "io/base/cleanup.h"

struct client {
	CURL *curl;
	char *socket_path;
};

struct reply {
	const ProtobufCMessageDescriptor *descriptor;
	void (*fn)(const ProtobufCMessage *message, void *data);
	void *data;
	struct buf body; /* what is not yet a whole message */
	int status;	 /* grpc-status, −1 before it came */
	struct buf message;
	bool is_damaged;
};

struct client *client_new(const char *socket_path)
{
	struct client *c = xnew(struct client);

	c->socket_path = xstrdup(socket_path);
	c->curl = curl_easy_init();
	if (!c->curl)
		abort();
	return c;
}

void client_free(struct client *c)
{
	if (!c)
		return;
	curl_easy_cleanup(c->curl);
	free(c->socket_path);
	free(c);
}

/* Five bytes before each message: compressed flag and length, big-endian (gRPC over HTTP/2). */
static void take_messages(struct reply *r)
{
	while (r->body.length >= 5 && !r->is_damaged) {
		const unsigned char *p = (unsigned char *)r->body.data;
		size_t size = (size_t)p[1] << 24 | (size_t)p[2] << 16 | (size_t)p[3] << 8 | p[4];
		ProtobufCMessage *m;

		if (r->body.length < size + 5)
			return;
		m = protobuf_c_message_unpack(r->descriptor, NULL, size, p + 5);
		buf_consume(&r->body, size + 5);
		if (!m) {
			r->is_damaged = true;
			return;
		}
		r->fn(m, r->data);
		protobuf_c_message_free_unpacked(m, NULL);
	}
}

static size_t on_body(char *data, size_t size, size_t count, void *context)
{
	struct reply *r = context;

	buf_append(&r->body, data, size * count);
	take_messages(r);
	return size * count;
}

static void percent_decode(const char *s, size_t n, struct buf *ret)
{
	for (size_t i = 0; i < n; i++) {
		char hex[3] = {0}, *end, c = s[i];

		if (c == '%' && i + 2 < n) {
			long value;

			memcpy(hex, s + i + 1, 2);
			value = strtol(hex, &end, 16);
			if (!*end) {
				c = (char)value;
				i += 2;
			}
		}
		buf_append(ret, &c, 1);
	}
}

static size_t on_header(char *line, size_t size, size_t count, void *context)
{
	struct reply *r = context;
	size_t n = size * count;

	while (n && (line[n - 1] == '\n' || line[n - 1] == '\r'))
		n--;
	if (n > 13 && !strncasecmp(line, "grpc-status: ", 13)) {
		r->status = atoi(line + 13);
	} else if (n > 14 && !strncasecmp(line, "grpc-message: ", 14)) {
		r->message.length = 0;
		percent_decode(line + 14, n - 14, &r->message);
	}
	return size * count;
}

/* gRPC's status codes (grpc/doc/statuscodes.md) as ours. */
static enum err code_of(int status)
{
	static const enum err codes[] = {
		[0] = ERR_OK,
		[1] = ERR_CANCELLED,
		[2] = ERR_INTERNAL,
		[3] = ERR_INVALID,
		[4] = ERR_DEADLINE,
		[5] = ERR_NOT_FOUND,
		[6] = ERR_EXISTS,
		[7] = ERR_DENIED,
		[8] = ERR_EXHAUSTED,
		[9] = ERR_PRECONDITION,
		[10] = ERR_UNAVAILABLE,
		[11] = ERR_INVALID,
		[12] = ERR_UNIMPLEMENTED,
		[13] = ERR_INTERNAL,
		[14] = ERR_UNAVAILABLE,
	};

	if (status < 0 || (size_t)status >= sizeof(codes) / sizeof(codes[0]))
		return ERR_INTERNAL;
	return codes[status];
}

static void frame(const ProtobufCMessage *request, struct buf *ret)
{
	size_t n = protobuf_c_message_get_packed_size(request);
	unsigned char head[5] = {0, (unsigned char)(n >> 24), (unsigned char)(n >> 16),
				 (unsigned char)(n >> 8), (unsigned char)n};

	buf_append(ret, head, sizeof(head));
	protobuf_c_message_pack(request, (uint8_t *)buf_reserve(ret, n));
	ret->length += n;
}

static int outcome(const struct client *c, CURLcode code, const struct reply *r, struct error *err)
{
	if (r->status > 0)
		return error_set(err, code_of(r->status), "%s",
				 r->message.length ? r->message.data : "the server gave no reason");
	if (code != CURLE_OK)
		return error_set(err, ERR_UNAVAILABLE, "crispd on %s: %s; is it running?",
				 c->socket_path, curl_easy_strerror(code));
	if (r->status < 0 || r->is_damaged)
		return error_set(err, ERR_INTERNAL, "crispd on %s: its reply makes no sense",
				 c->socket_path);
	return 0;
}

int client_call(struct client *c, const char *method, const ProtobufCMessage *request,
		const ProtobufCMessageDescriptor *descriptor,
		void (*fn)(const ProtobufCMessage *message, void *data), void *data,
		struct error *err)
{
	struct reply r = {.descriptor = descriptor, .fn = fn, .data = data, .status = -1};
	struct buf body CLEANUP(buf_done) = {0};
	char *url cleanup_free = xasprintf("http://localhost%s", method);
	struct curl_slist *headers = NULL;
	CURLcode code;

	frame(request, &body);
	headers = curl_slist_append(headers, "content-type: application/grpc");
	headers = curl_slist_append(headers, "te: trailers");
	curl_easy_setopt(c->curl, CURLOPT_URL, url);
	curl_easy_setopt(c->curl, CURLOPT_UNIX_SOCKET_PATH, c->socket_path);
	curl_easy_setopt(c->curl, CURLOPT_HTTP_VERSION, (long)CURL_HTTP_VERSION_2_PRIOR_KNOWLEDGE);
	curl_easy_setopt(c->curl, CURLOPT_POSTFIELDS, body.data);
	curl_easy_setopt(c->curl, CURLOPT_POSTFIELDSIZE, (long)body.length);
	curl_easy_setopt(c->curl, CURLOPT_HTTPHEADER, headers);
	curl_easy_setopt(c->curl, CURLOPT_WRITEFUNCTION, on_body);
	curl_easy_setopt(c->curl, CURLOPT_WRITEDATA, &r);
	curl_easy_setopt(c->curl, CURLOPT_HEADERFUNCTION, on_header);
	curl_easy_setopt(c->curl, CURLOPT_HEADERDATA, &r);
	curl_easy_setopt(c->curl, CURLOPT_PROXY, "");
	/* curl 7.88 can't send a second request on a connection of prior knowledge */
	curl_easy_setopt(c->curl, CURLOPT_FORBID_REUSE, 1L);
	code = curl_easy_perform(c->curl);
	curl_slist_free_all(headers);
	outcome(c, code, &r, err);
	buf_done(&r.body);
	buf_done(&r.message);
	return -(int)err->code;
}
