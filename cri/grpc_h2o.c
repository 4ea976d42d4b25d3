/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The transport of the gRPC server: h2o's HTTP/2 connections within our event loop. h2o 2.2.5 knows
 * no trailers, allows 100 streams and trusts its peers in places, so this file reaches into its
 * private structures; it is the only one that does, and the build asserts the exact version.
 *
 * - h2o's event loop is one epoll descriptor, watched by ours. It is run when that is readable,
 * when one of its timers is due, and at the end of a turn in which we sent something.
 * - Every frame passes our hook before h2o sees it (conn->_read_expect). It drops what h2o would
 * abort or loop on, answers a body that is too large, and hides how many streams are open.
 * - Headers and trailers are written as raw frames. Bodies go through h2o's scheduler, unless they
 * fit at once into the client's window: then the whole answer is one write.
 * - A stream ends only within its proceed callback: a stream that has ended and still waits for one
 *   must not get a window, or h2o asserts (close_window()).
 */
#include "cri/grpc.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>

#include <h2o.h>
#include <h2o/http2.h>
#include <h2o/http2_internal.h>

#include "cri/grpc_priv.h"
#include "io/base/alloc.h"
#include "io/base/cleanup.h"
#include "io/base/log.h"

/* An idle client stays; h2o's idle timer must be finite and less than the time since 1970. */
#define IDLE_MS (365ull * 24 * 3600 * 1000)
/* Timers that are further away than this are not worth a wake-up of ours. */
#define FAR_MS (24ull * 3600 * 1000)
/* What fits into one frame of any client, RFC 9113 4.2. */
#define FRAME_MAX 16384
/* With this much waiting to be written, data takes turns in h2o's scheduler. */
#define WRITE_AHEAD (64 * 1024)
#define BODY_MAX ((size_t)GRPC_REQUEST_MAX + GRPC_PREFIX_SIZE)
/* Marks the stream whose body was refused: the rest of it is dropped on arrival. */
#define REFUSED_WINDOW (-((ssize_t)1 << 61))
/* So far below zero that no update makes it positive. */
#define CLOSED_WINDOW (-((ssize_t)1 << 61))
/* Any header block of ours: status, content type, and an error's text with each byte as %XX. */
#define HEADER_BLOCK_MAX (128 + 3 * sizeof(((struct error *)0)->text))
#define FREE_ROUNDS 1000
/* h2o writes as fast as a client reads; this is how long others wait for it. */
#define RUN_NS (2 * 1000000ull)

struct transport {
	struct grpc_server *server;
	struct loop *loop;
	h2o_globalconf_t conf;
	h2o_context_t ctx;
	h2o_accept_ctx_t accept;
	h2o_loop_t *h2o;
	int epoll_fd;
	struct loop_watch *watch;
	struct loop_timer timer;
	bool is_dirty;		/* h2o has something to do at the end of this turn */
	struct loop_work again; /* h2o has more to do, but others come first */
	struct list connections;
	size_t connection_count;
};

struct connection {
	struct transport *transport;
	struct list node;
	h2o_socket_t *sock;
	/* h2o's own parser of the next frame, which our hook calls */
	ssize_t (*expect)(h2o_http2_conn_t *conn, const uint8_t *src, size_t n, const char **err);
	bool has_preface;
};

/* In the request's pool; call->stream points to it. */
struct stream {
	h2o_generator_t generator;
	struct transport *transport;
	h2o_req_t *req;
	struct call *call;
};

struct handler {
	h2o_handler_t super;
	struct transport *transport;
};

/* h2o keeps it private: its loop with the epoll descriptor behind. */
struct h2o_epoll_loop {
	h2o_evloop_t super;
	int fd;
};

static h2o_http2_stream_t *h2o_stream(const struct call *c)
{
	const struct stream *st = c->stream;

	return H2O_STRUCT_FROM_MEMBER(h2o_http2_stream_t, req, st->req);
}

static h2o_http2_conn_t *h2o_conn(const struct call *c)
{
	const struct stream *st = c->stream;

	return (h2o_http2_conn_t *)st->req->conn;
}

/* Writes that h2o postponed by its clock, which went backwards. */
static void flush_all(struct transport *tr)
{
	list_for_each_safe(c, &tr->connections, struct connection, node) {
		h2o_http2_conn_t *conn = c->sock->data;
		h2o_timeout_entry_t *entry = &conn->_write.timeout_entry;

		if (!h2o_timeout_is_linked(entry))
			continue;
		h2o_timeout_unlink(entry);
		entry->cb(entry);
	}
}

static void run_h2o(struct transport *tr)
{
	h2o_loop_t *l = tr->h2o;
	uint64_t before = l->_now, until = loop_now(tr->loop) + RUN_NS, wake_at;
	bool has_more;

	tr->is_dirty = false;
	do {
		h2o_evloop_run(l, 0);
		if (l->_now < before)
			flush_all(tr);
		before = l->_now;
		has_more = l->_statechanged.head || l->_pending_as_client || l->_pending_as_server;
	} while (has_more && loop_now(tr->loop) < until);
	/* h2o's epoll does not know yet what it has to wait for */
	if (has_more)
		loop_post(tr->loop, &tr->again);

	wake_at = h2o_timeout_get_wake_at(&l->_timeouts);
	if (wake_at == UINT64_MAX || wake_at > l->_now + FAR_MS)
		loop_timer_stop(tr->loop, &tr->timer);
	else
		loop_timer_start(tr->loop, &tr->timer,
				 loop_now(tr->loop) +
					 (wake_at > l->_now ? wake_at - l->_now : 0) * 1000000);
}

static void on_epoll(void *data, int events)
{
	run_h2o(data);
}

static void on_timer(void *data)
{
	run_h2o(data);
}

static void on_again(void *data)
{
	struct transport *tr = data;

	tr->is_dirty = true;
}

static void on_turn_end(void *data)
{
	struct transport *tr = data;

	if (tr->is_dirty)
		run_h2o(tr);
}

static void put_frame(h2o_http2_conn_t *conn, uint8_t type, uint8_t flags, uint32_t stream_id,
		      const void *payload, size_t n)
{
	h2o_iovec_t to = h2o_buffer_reserve(&conn->_write.buf, H2O_HTTP2_FRAME_HEADER_SIZE + n);

	h2o_http2_encode_frame_header((uint8_t *)to.base, n, type, flags, (int32_t)stream_id);
	if (n)
		memcpy(to.base + H2O_HTTP2_FRAME_HEADER_SIZE, payload, n);
	conn->_write.buf->size += H2O_HTTP2_FRAME_HEADER_SIZE + n;
}

/* ":status" and "content-type: application/grpc"; static indices 8 and 31 of RFC 7541, appendix A.
 */
static uint8_t *put_headers(uint8_t *p, int http_status)
{
	char number[12];

	if (http_status == 200) {
		*p++ = 0x80 | 8;
	} else {
		int n = snprintf(number, sizeof(number), "%d", http_status);

		p = grpc_hpack_literal(p, 8, NULL, number, (size_t)n);
	}
	return grpc_hpack_literal(p, 31, NULL, "application/grpc", strlen("application/grpc"));
}

static uint8_t *put_status(uint8_t *p, const struct call *c)
{
	char number[12];
	int n = snprintf(number, sizeof(number), "%d", (int)c->status);

	p = grpc_hpack_literal(p, 0, "grpc-status", number, (size_t)n);
	if (!c->message)
		return p;
	return grpc_hpack_literal(p, 0, "grpc-message", c->message, c->message_length);
}

static void begin_response(struct call *c)
{
	struct stream *st = c->stream;

	c->has_headers = true;
	h2o_start_response(st->req, &st->generator);
	h2o_http2_stream_set_state(h2o_conn(c), h2o_stream(c), H2O_HTTP2_STREAM_STATE_SEND_BODY);
}

static void send_headers(struct call *c)
{
	uint8_t block[64];
	uint8_t *end = put_headers(block, c->http_status);

	if (c->has_headers)
		return;
	begin_response(c);
	put_frame(h2o_conn(c), H2O_HTTP2_FRAME_TYPE_HEADERS, H2O_HTTP2_FRAME_FLAG_END_HEADERS,
		  h2o_stream(c)->stream_id, block, (size_t)(end - block));
}

/* The status, behind headers and data or together with the headers. */
static void send_trailers(struct call *c)
{
	uint8_t block[HEADER_BLOCK_MAX], *p = block;

	if (!c->has_headers) {
		begin_response(c);
		p = put_headers(p, c->http_status);
	}
	p = put_status(p, c);
	put_frame(h2o_conn(c), H2O_HTTP2_FRAME_TYPE_HEADERS,
		  H2O_HTTP2_FRAME_FLAG_END_HEADERS | H2O_HTTP2_FRAME_FLAG_END_STREAM,
		  h2o_stream(c)->stream_id, block, (size_t)(p - block));
	c->is_trailed = true;
}

/* Whether all that is queued may go out as one frame right now. */
static bool fits_at_once(const struct call *c)
{
	h2o_http2_conn_t *conn = h2o_conn(c);
	ssize_t n = (ssize_t)c->queued.length;

	return n <= FRAME_MAX && n <= h2o_http2_window_get_window(&conn->_write.window) &&
	       n <= h2o_http2_window_get_window(&h2o_stream(c)->output_window) &&
	       conn->_write.buf->size < WRITE_AHEAD;
}

static void send_at_once(struct call *c)
{
	h2o_http2_conn_t *conn = h2o_conn(c);
	h2o_http2_stream_t *stream = h2o_stream(c);

	put_frame(conn, H2O_HTTP2_FRAME_TYPE_DATA, 0, stream->stream_id, c->queued.data,
		  c->queued.length);
	h2o_http2_window_consume_window(&conn->_write.window, c->queued.length);
	h2o_http2_window_consume_window(&stream->output_window, c->queued.length);
	buf_done(&c->queued);
}

void transport_send(struct call *c)
{
	struct stream *st = c->stream;
	h2o_iovec_t data;

	if (c->is_flying)
		return;
	send_headers(c);
	c->flying = c->queued;
	c->queued = (struct buf){0};
	c->is_flying = true;
	data = h2o_iovec_init(c->flying.data, c->flying.length);
	h2o_send(st->req, &data, 1, H2O_SEND_STATE_IN_PROGRESS);
	st->transport->is_dirty = true;
}

void transport_finish(struct call *c)
{
	struct stream *st = c->stream;

	if (c->is_flying)
		return;
	if (c->queued.length && !fits_at_once(c)) {
		transport_send(c);
		return;
	}
	if (c->queued.length) {
		send_headers(c);
		send_at_once(c);
	}
	send_trailers(c);
	h2o_http2_conn_register_for_proceed_callback(h2o_conn(c), h2o_stream(c));
	st->transport->is_dirty = true;
}

/* A stream that has ended but is still in h2o's list must never be given a window again. */
static void close_window(h2o_http2_stream_t *stream)
{
	stream->output_window._avail = CLOSED_WINDOW;
}

static void on_proceed(h2o_generator_t *generator, h2o_req_t *req)
{
	struct stream *st = (struct stream *)(void *)generator;
	struct call *c = st->call;
	h2o_http2_stream_t *stream;
	h2o_http2_conn_t *conn;

	if (!c->stream)
		return;
	if (!c->is_trailed) {
		grpc_call_sent(c);
		return;
	}
	stream = h2o_stream(c);
	conn = h2o_conn(c);
	close_window(stream);
	h2o_http2_stream_set_state(conn, stream, H2O_HTTP2_STREAM_STATE_END_STREAM);
	/* h2o goes on with this list after we return, and closes the stream */
	h2o_linklist_insert(&conn->_write.streams_to_proceed, &stream->_refs.link);
}

static void on_stream_disposed(void *data)
{
	struct stream *st = data;

	grpc_call_gone(st->call);
	grpc_call_unref(st->call);
}

static int on_request(h2o_handler_t *handler, h2o_req_t *req)
{
	struct transport *tr = ((struct handler *)(void *)handler)->transport;
	h2o_http2_stream_t *stream = H2O_STRUCT_FROM_MEMBER(h2o_http2_stream_t, req, req);
	ssize_t type = h2o_find_header(&req->headers, H2O_TOKEN_CONTENT_TYPE, -1);
	ssize_t timeout = h2o_find_header_by_str(&req->headers, H2O_STRLIT("grpc-timeout"), -1);
	struct grpc_request r = {
		.path = req->input.path.base,
		.path_length = req->input.path.len,
		.is_post = h2o_memis(req->input.method.base, req->input.method.len,
				     H2O_STRLIT("POST")),
		.is_too_large = stream->input_window._avail == REFUSED_WINDOW,
	};
	struct stream *st;

	/* our idea of h2o's map of streams is wrong: nothing below could be trusted */
	if (h2o_http2_conn_get_stream((h2o_http2_conn_t *)req->conn, stream->stream_id) != stream)
		abort();
	if (type >= 0) {
		r.content_type = req->headers.entries[type].value.base;
		r.content_type_length = req->headers.entries[type].value.len;
	}
	if (timeout >= 0) {
		r.timeout = req->headers.entries[timeout].value.base;
		r.timeout_length = req->headers.entries[timeout].value.len;
	}
	st = h2o_mem_alloc_shared(&req->pool, sizeof(*st), on_stream_disposed);
	*st = (struct stream){.generator = {.proceed = on_proceed}, .transport = tr, .req = req};
	st->call = grpc_call_begin(tr->server, st, &r);
	return 0;
}

const uint8_t *transport_body(const struct call *c, size_t *ret_length)
{
	const struct stream *st = c->stream;

	*ret_length = st->req->entity.len;
	return (const uint8_t *)st->req->entity.base;
}

void transport_drop_body(struct call *c)
{
	h2o_http2_stream_t *stream = h2o_stream(c);

	stream->req.entity = (h2o_iovec_t){NULL};
	if (stream->_req_body)
		h2o_buffer_dispose(&stream->_req_body);
}

/* Takes a DATA frame off the connection's window without keeping it. */
static void swallow_data(h2o_http2_conn_t *conn, const h2o_http2_frame_t *f)
{
	ssize_t full = H2O_HTTP2_SETTINGS_HOST.initial_window_size, left;

	h2o_http2_window_consume_window(&conn->_input_window, f->length);
	left = h2o_http2_window_get_window(&conn->_input_window);
	if (left * 2 >= full)
		return;
	h2o_http2_encode_window_update_frame(&conn->_write.buf, 0, (int32_t)(full - left));
	h2o_http2_window_update(&conn->_input_window, full - left);
	h2o_http2_conn_request_write(conn);
}

/* Answers a request whose body is too large before all of it is here; h2o itself would reset the
 * stream, which clients take for a server that is away. */
static void refuse_body(struct transport *tr, h2o_http2_conn_t *conn, h2o_http2_stream_t *stream)
{
	h2o_buffer_dispose(&stream->_req_body);
	stream->input_window._avail = REFUSED_WINDOW;
	h2o_http2_stream_set_state(conn, stream, H2O_HTTP2_STREAM_STATE_REQ_PENDING);
	h2o_http2_stream_set_state(conn, stream, H2O_HTTP2_STREAM_STATE_SEND_HEADERS);
	if (conn->pull_stream_ids.max_processed < stream->stream_id)
		conn->pull_stream_ids.max_processed = stream->stream_id;
	h2o_process_request(&stream->req);
	grpc_trim_soon(tr->server);
}

static bool drop_data(struct transport *tr, h2o_http2_conn_t *conn, const h2o_http2_frame_t *f)
{
	h2o_http2_stream_t *stream = h2o_http2_conn_get_stream(conn, f->stream_id);
	h2o_http2_data_payload_t payload;
	const char *ignored;

	if (!stream)
		return false;
	if (stream->input_window._avail != REFUSED_WINDOW) {
		if (stream->state != H2O_HTTP2_STREAM_STATE_RECV_BODY ||
		    h2o_http2_decode_data_payload(&payload, f, &ignored) ||
		    stream->_req_body->size + payload.length <= BODY_MAX)
			return false;
		refuse_body(tr, conn, stream);
	}
	swallow_data(conn, f);
	return true;
}

/* Turns the deprecated priority of a HEADERS frame into the default, so that clients can't build
 * trees in h2o's scheduler. The frame is in the connection's own buffer. */
static void level_priority(const h2o_http2_frame_t *f)
{
	size_t at = f->flags & H2O_HTTP2_FRAME_FLAG_PADDED ? 1 : 0;
	uint8_t *payload = (uint8_t *)(uintptr_t)f->payload;

	if (!(f->flags & H2O_HTTP2_FRAME_FLAG_PRIORITY) || f->length < at + 5)
		return;
	memset(payload + at, 0, 4);
	payload[at + 4] = 15;
}

/* Whether h2o must not see this frame. */
static bool is_dropped(struct transport *tr, h2o_http2_conn_t *conn, const h2o_http2_frame_t *f)
{
	h2o_http2_stream_t *stream;

	switch (f->type) {
	case H2O_HTTP2_FRAME_TYPE_DATA:
		return drop_data(tr, conn, f);
	case H2O_HTTP2_FRAME_TYPE_HEADERS:
		level_priority(f);
		return false;
	case H2O_HTTP2_FRAME_TYPE_PRIORITY:
		return f->length == 5 && f->stream_id;
	case H2O_HTTP2_FRAME_TYPE_WINDOW_UPDATE:
		stream = h2o_http2_conn_get_stream(conn, f->stream_id);
		return stream && stream->state == H2O_HTTP2_STREAM_STATE_END_STREAM;
	default:
		/* RFC 9113, 4.1: unknown types are ignored; h2o prints a line for each */
		return f->type > H2O_HTTP2_FRAME_TYPE_CONTINUATION;
	}
}

/* h2o's own parser. It refuses the 101st open stream, so it is shown none that is open already. */
static ssize_t pass_frame(struct connection *c, h2o_http2_conn_t *conn, const uint8_t *src,
			  size_t n, const char **err)
{
	uint32_t *open = &conn->num_streams.pull.open;
	uint32_t hidden = *open < GRPC_MAX_STREAMS ? *open : 0;
	ssize_t r;

	*open -= hidden;
	r = c->expect(conn, src, n, err);
	*open += hidden;
	return r;
}

static ssize_t read_frame(struct connection *c, h2o_http2_conn_t *conn, const uint8_t *src,
			  size_t n, const char **err)
{
	h2o_http2_stream_t *stream;
	h2o_http2_frame_t f;
	ssize_t size, r;

	size = h2o_http2_decode_frame(&f, src, n, &H2O_HTTP2_SETTINGS_HOST, err);
	if (size < 0)
		return size;
	/* within a header block nothing else may come, and h2o says so */
	if (!conn->_headers_unparsed && is_dropped(c->transport, conn, &f))
		return size;
	r = pass_frame(c, conn, src, n, err);
	/* h2o asks for the same frame again, forever, on a connection that is half closed */
	if (r == 0)
		return H2O_HTTP2_ERROR_PROTOCOL;
	if (r < 0)
		return r;
	stream = h2o_http2_conn_get_stream(conn, f.stream_id);
	if (stream && stream->state == H2O_HTTP2_STREAM_STATE_END_STREAM) {
		/* reset; h2o disposes of it after its next write, which may be never */
		close_window(stream);
		if (stream->req._generator)
			grpc_call_gone(((struct stream *)(void *)stream->req._generator)->call);
	}
	return r;
}

static ssize_t read_preface(struct connection *c, h2o_http2_conn_t *conn, const uint8_t *src,
			    size_t n, const char **err)
{
	static const char preface[] = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
	static const char answer[] =
		"HTTP/1.1 505 HTTP Version Not Supported\r\nConnection: close\r\n"
		"Content-Type: text/plain\r\n\r\n"
		"This socket speaks gRPC: HTTP/2 with prior knowledge, without TLS.\n";
	static const uint8_t settings[] = {
		0, 3, 0, 0, GRPC_MAX_STREAMS >> 8, GRPC_MAX_STREAMS & 255};
	size_t length = sizeof(preface) - 1;
	ssize_t r;

	if (memcmp(src, preface, n < length ? n : length)) {
		log_info("closed a connection whose client does not speak HTTP/2");
		(void)!send(h2o_socket_get_fd(c->sock), answer, sizeof(answer) - 1,
			    MSG_DONTWAIT | MSG_NOSIGNAL);
		return H2O_HTTP2_ERROR_PROTOCOL_CLOSE_IMMEDIATELY;
	}
	r = pass_frame(c, conn, src, n, err);
	if (r > 0) {
		c->has_preface = true;
		/* behind h2o's own SETTINGS, which say 100 streams */
		put_frame(conn, H2O_HTTP2_FRAME_TYPE_SETTINGS, 0, 0, settings, sizeof(settings));
		h2o_http2_conn_request_write(conn);
	}
	return r;
}

static ssize_t on_frame(h2o_http2_conn_t *conn, const uint8_t *src, size_t n, const char **err)
{
	struct connection *c = conn->sock->on_close.data;
	ssize_t r;

	r = c->has_preface ? read_frame(c, conn, src, n, err) : read_preface(c, conn, src, n, err);
	if (conn->_read_expect != on_frame) {
		c->expect = conn->_read_expect;
		conn->_read_expect = on_frame;
	}
	/* the connection ends when its last write is done; until then h2o would pile up what comes
	 */
	if (r < 0 && r != H2O_HTTP2_ERROR_INCOMPLETE)
		h2o_socket_read_stop(conn->sock);
	return r;
}

static void on_close(void *data)
{
	struct connection *c = data;

	list_remove(&c->node);
	c->transport->connection_count--;
	free(c);
}

void transport_accept(struct transport *tr, int fd)
{
	struct connection *c = xnew(struct connection);
	struct timeval now = {0};
	h2o_http2_conn_t *conn;

	c->transport = tr;
	c->sock = h2o_evloop_socket_create(tr->h2o, fd, H2O_SOCKET_FLAG_IS_ACCEPTED_CONNECTION);
	c->sock->on_close.cb = on_close;
	c->sock->on_close.data = c;
	list_append(&tr->connections, &c->node);
	tr->connection_count++;
	h2o_http2_accept(&tr->accept, c->sock, now);
	conn = c->sock->data;
	c->expect = conn->_read_expect;
	conn->_read_expect = on_frame;
	tr->is_dirty = true;
}

/* Only says so: with h2o's own state for it, h2o closes a connection under its last call's reply.
 */
void transport_goaway(struct transport *tr)
{
	list_for_each(c, &tr->connections, struct connection, node) {
		h2o_http2_conn_t *conn = c->sock->data;

		if (!c->has_preface) {
			shutdown(h2o_socket_get_fd(c->sock), SHUT_RDWR);
		} else if (conn->state < H2O_HTTP2_CONN_STATE_IS_CLOSING) {
			h2o_http2_encode_goaway_frame(
				&conn->_write.buf, conn->pull_stream_ids.max_open,
				H2O_HTTP2_ERROR_NONE,
				h2o_iovec_init(H2O_STRLIT("the server is shutting down")));
			h2o_http2_conn_request_write(conn);
		}
	}
	tr->is_dirty = true;
}

size_t transport_connections(const struct transport *tr)
{
	return tr->connection_count;
}

/* Finds the epoll descriptor in h2o's private structure and makes sure that it is one. */
static int find_epoll(h2o_loop_t *l, struct error *err)
{
	int fd = ((struct h2o_epoll_loop *)(void *)l)->fd;
	struct epoll_event event = {0};
	int other = eventfd(0, EFD_CLOEXEC);

	/* ENOENT is the answer of an epoll that does not have the other one */
	if (other >= 0 && epoll_ctl(fd, EPOLL_CTL_MOD, other, &event) < 0 && errno == ENOENT) {
		close(other);
		return fd;
	}
	close_fd(other);
	return error_set(err, ERR_INTERNAL, "h2o's event loop is not as expected: no epoll in it");
}

static void init_h2o(struct transport *tr)
{
	h2o_hostconf_t *host;
	h2o_pathconf_t *path;
	struct handler *handler;

	h2o_config_init(&tr->conf);
	tr->conf.http2.idle_timeout = IDLE_MS;
	tr->conf.http2.max_concurrent_requests_per_connection = GRPC_MAX_STREAMS * 2;
	tr->conf.max_request_entity_size = BODY_MAX;
	/* large requests in memory, not in temporary files */
	h2o_socket_buffer_mmap_settings.threshold = SIZE_MAX;
	host = h2o_config_register_host(&tr->conf, h2o_iovec_init(H2O_STRLIT("default")), 65535);
	path = h2o_config_register_path(host, "/", 0);
	handler = (struct handler *)(void *)h2o_create_handler(path, sizeof(*handler));
	handler->super.on_req = on_request;
	handler->transport = tr;
	h2o_context_init(&tr->ctx, tr->h2o, &tr->conf);
	tr->accept.ctx = &tr->ctx;
	tr->accept.hosts = tr->conf.hosts;
}

struct transport *transport_new(struct grpc_server *s, struct loop *l, struct error *err)
{
	struct transport *tr = xnew(struct transport);

	tr->server = s;
	tr->loop = l;
	list_init(&tr->connections);
	tr->h2o = h2o_evloop_create();
	tr->epoll_fd = find_epoll(tr->h2o, err);
	if (tr->epoll_fd < 0) {
		h2o_evloop_destroy(tr->h2o);
		free(tr);
		return NULL;
	}
	init_h2o(tr);
	loop_timer_init(&tr->timer, "h2o timer", on_timer, tr);
	loop_work_init(&tr->again, "h2o again", on_again, tr);
	tr->watch = loop_watch_fd(l, tr->epoll_fd, LOOP_READ, "h2o", on_epoll, tr);
	loop_set_prepare(l, "h2o", on_turn_end, tr);
	tr->is_dirty = true;
	return tr;
}

void transport_free(struct transport *tr)
{
	h2o_multithread_queue_t *queue;

	list_for_each(c, &tr->connections, struct connection, node)
		shutdown(h2o_socket_get_fd(c->sock), SHUT_RDWR);
	for (int i = 0; tr->connection_count && i < FREE_ROUNDS; i++)
		run_h2o(tr);
	if (tr->connection_count)
		log_error("%zu connections could not be closed", tr->connection_count);
	loop_set_prepare(tr->loop, NULL, NULL, NULL);
	loop_watch_free(tr->watch);
	loop_timer_stop(tr->loop, &tr->timer);
	loop_work_cancel(&tr->again);
	queue = tr->ctx.queue;
	h2o_context_dispose(&tr->ctx);
	/* 2.2.5 forgets it */
	free(queue);
	h2o_config_dispose(&tr->conf);
	h2o_evloop_destroy(tr->h2o);
	close(tr->epoll_fd);
	free(tr);
}
