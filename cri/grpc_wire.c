/* SPDX-License-Identifier: Apache-2.0 */
/* gRPC's encodings. Pure functions; the walk over a message keeps its own stack, so that input
 * can't drive recursion on a task's small one. */
#include "cri/grpc_wire.h"

#include <stdio.h>
#include <string.h>

enum grpc_status grpc_status_of(enum err code)
{
	static const enum grpc_status codes[] = {
		[ERR_OK] = GRPC_OK,
		[ERR_NOT_FOUND] = GRPC_NOT_FOUND,
		[ERR_EXISTS] = GRPC_ALREADY_EXISTS,
		[ERR_INVALID] = GRPC_INVALID_ARGUMENT,
		[ERR_PRECONDITION] = GRPC_FAILED_PRECONDITION,
		[ERR_EXHAUSTED] = GRPC_RESOURCE_EXHAUSTED,
		[ERR_DEADLINE] = GRPC_DEADLINE_EXCEEDED,
		[ERR_CANCELLED] = GRPC_CANCELLED,
		[ERR_UNAVAILABLE] = GRPC_UNAVAILABLE,
		[ERR_DENIED] = GRPC_PERMISSION_DENIED,
		[ERR_UNIMPLEMENTED] = GRPC_UNIMPLEMENTED,
		[ERR_INTERNAL] = GRPC_INTERNAL,
	};

	if ((size_t)code >= sizeof(codes) / sizeof(codes[0]))
		return GRPC_INTERNAL;
	return codes[code];
}

bool grpc_is_content_type(const char *s, size_t n)
{
	static const char type[] = "application/grpc";
	size_t length = sizeof(type) - 1;

	if (n < length || memcmp(s, type, length))
		return false;
	return n == length || s[length] == '+' || s[length] == ';';
}

bool grpc_timeout_parse(const char *s, size_t n, uint64_t *ret_ns)
{
	static const char units[] = "HMSmun";
	static const uint64_t unit_ns[] = {
		3600 * 1000000000ull, 60 * 1000000000ull, 1000000000, 1000000, 1000, 1};
	uint64_t value = 0;
	const char *unit;

	if (n < 2 || n > 9)
		return false;
	for (size_t i = 0; i < n - 1; i++) {
		if (s[i] < '0' || s[i] > '9')
			return false;
		value = value * 10 + (uint64_t)(s[i] - '0');
	}
	unit = s[n - 1] ? strchr(units, s[n - 1]) : NULL;
	if (!unit)
		return false;
	if (__builtin_mul_overflow(value, unit_ns[unit - units], &value) || value > INT64_MAX)
		value = INT64_MAX;
	*ret_ns = value;
	return true;
}

void grpc_prefix_write(uint8_t to[GRPC_PREFIX_SIZE], size_t length)
{
	to[0] = 0;
	to[1] = (uint8_t)(length >> 24);
	to[2] = (uint8_t)(length >> 16);
	to[3] = (uint8_t)(length >> 8);
	to[4] = (uint8_t)length;
}

int grpc_message_parse(const uint8_t *body, size_t n, size_t limit, const uint8_t **ret_data,
		       size_t *ret_length, struct error *err)
{
	size_t length;

	if (!n)
		return error_set(err, ERR_INTERNAL, "the request has no message");
	if (n < GRPC_PREFIX_SIZE)
		return error_set(err, ERR_INTERNAL,
				 "the request ends within its message's length prefix");
	if (body[0] & ~1)
		return error_set(err, ERR_INTERNAL, "the request's message has unknown flags %#x",
				 body[0]);
	if (body[0])
		return error_set(err, ERR_UNIMPLEMENTED,
				 "the request is compressed, which is not supported; send it with "
				 "the identity encoding");
	length = (size_t)body[1] << 24 | (size_t)body[2] << 16 | (size_t)body[3] << 8 | body[4];
	if (length > limit)
		return error_set(err, ERR_EXHAUSTED,
				 "the request of %zu bytes is larger than the limit of %zu", length,
				 limit);
	if (n - GRPC_PREFIX_SIZE < length)
		return error_set(err, ERR_INTERNAL,
				 "the request's message of %zu bytes was cut after %zu", length,
				 n - GRPC_PREFIX_SIZE);
	if (n - GRPC_PREFIX_SIZE > length)
		return error_set(err, ERR_INTERNAL,
				 "the request has more than one message, but the method takes one");
	*ret_data = body + GRPC_PREFIX_SIZE;
	*ret_length = length;
	return 0;
}

size_t grpc_percent_encode(char *to, const char *text)
{
	static const char hex[] = "0123456789ABCDEF";
	char *p = to;

	for (; *text; text++) {
		unsigned char c = (unsigned char)*text;

		if (c >= 0x20 && c <= 0x7e && c != '%') {
			*p++ = (char)c;
			continue;
		}
		*p++ = '%';
		*p++ = hex[c >> 4];
		*p++ = hex[c & 15];
	}
	return (size_t)(p - to);
}

/* RFC 7541, 5.1; the bits above the prefix are in first. */
static uint8_t *hpack_integer(uint8_t *to, uint8_t first, unsigned prefix_bits, size_t value)
{
	size_t max = (1u << prefix_bits) - 1;

	if (value < max) {
		*to++ = (uint8_t)(first | value);
		return to;
	}
	*to++ = (uint8_t)(first | max);
	for (value -= max; value >= 128; value >>= 7)
		*to++ = (uint8_t)(value | 128);
	*to++ = (uint8_t)value;
	return to;
}

uint8_t *grpc_hpack_literal(uint8_t *to, unsigned name, const char *name_text, const char *value,
			    size_t value_length)
{
	to = hpack_integer(to, 0x10, 4, name);
	if (!name) {
		size_t n = strlen(name_text);

		to = hpack_integer(to, 0, 7, n);
		memcpy(to, name_text, n);
		to += n;
	}
	to = hpack_integer(to, 0, 7, value_length);
	memcpy(to, value, value_length);
	return to + value_length;
}

/* Length of the well-formed sequence of several bytes at s, or 0. */
static size_t utf8_sequence(const uint8_t *s, size_t n)
{
	size_t length = s[0] >= 0xf0 ? 4 : s[0] >= 0xe0 ? 3 : 2;
	uint8_t low = 0x80, high = 0xbf;

	if (s[0] < 0xc2 || s[0] > 0xf4 || n < length)
		return 0;
	/* overlong forms, surrogates and what lies behind U+10FFFF show in the second byte */
	if (s[0] == 0xe0)
		low = 0xa0;
	else if (s[0] == 0xed)
		high = 0x9f;
	else if (s[0] == 0xf0)
		low = 0x90;
	else if (s[0] == 0xf4)
		high = 0x8f;
	if (s[1] < low || s[1] > high)
		return 0;
	for (size_t i = 2; i < length; i++)
		if ((s[i] & 0xc0) != 0x80)
			return 0;
	return length;
}

size_t grpc_utf8_span(const uint8_t *s, size_t n)
{
	const uint64_t ones = 0x0101010101010101, tops = 0x8080808080808080;
	size_t i = 0;

	while (i < n) {
		size_t length;
		uint64_t word;

		if (n - i >= sizeof(word)) {
			memcpy(&word, s + i, sizeof(word));
			/* no top bit and no zero byte among these eight */
			if (!(((word - ones) | word) & tops)) {
				i += sizeof(word);
				continue;
			}
		}
		if (!s[i])
			return i;
		length = s[i] < 0x80 ? 1 : utf8_sequence(s + i, n - i);
		if (!length)
			return i;
		i += length;
	}
	return n;
}

/* A message being walked, and the field of its parent that it is in. */
struct level {
	const ProtobufCMessageDescriptor *d;
	const ProtobufCFieldDescriptor *field;
	const uint8_t *end;
};

struct walk {
	struct level levels[GRPC_MAX_DEPTH];
	int depth; /* index of the innermost */
	const uint8_t *p;
	struct error *err;
};

static int malformed(struct walk *w)
{
	return error_set(w->err, ERR_INTERNAL, "the message of type %s is not valid protobuf",
			 w->levels[0].d->name);
}

static bool read_varint(struct walk *w, uint64_t *ret)
{
	const uint8_t *end = w->levels[w->depth].end;
	uint64_t value = 0;

	for (unsigned shift = 0; shift < 70 && w->p < end; shift += 7) {
		uint8_t byte = *w->p++;

		if (shift < 64)
			value |= (uint64_t)(byte & 127) << shift;
		if (!(byte & 128)) {
			*ret = value;
			return true;
		}
	}
	return false;
}

static int refuse_string(struct walk *w, const ProtobufCFieldDescriptor *f, size_t at, bool has_nul)
{
	char path[256] = "";
	size_t n = 0;

	for (int i = 1; i <= w->depth && n < sizeof(path) - 1; i++)
		n += (size_t)snprintf(path + n, sizeof(path) - n, "%s.", w->levels[i].field->name);
	return error_set(w->err, ERR_INVALID, "field %s%s: %s at byte %zu", path, f->name,
			 has_nul ? "there is a NUL" : "the string is not valid UTF-8", at);
}

static int walk_bytes(struct walk *w, const ProtobufCFieldDescriptor *f, size_t n)
{
	const uint8_t *data = w->p;

	if (f && f->type == PROTOBUF_C_TYPE_MESSAGE) {
		if (w->depth + 1 == GRPC_MAX_DEPTH)
			return error_set(w->err, ERR_INTERNAL,
					 "the message of type %s nests deeper than %d",
					 w->levels[0].d->name, GRPC_MAX_DEPTH);
		w->levels[++w->depth] =
			(struct level){.d = f->descriptor, .field = f, .end = data + n};
		return 0;
	}
	w->p += n;
	if (f && f->type == PROTOBUF_C_TYPE_STRING) {
		size_t good = grpc_utf8_span(data, n);

		if (good < n)
			return refuse_string(w, f, good, !data[good]);
	}
	return 0;
}

static int walk_field(struct walk *w)
{
	const struct level *level = &w->levels[w->depth];
	size_t left, skip;
	uint64_t tag, value;

	if (!read_varint(w, &tag) || tag > UINT32_MAX || tag < 8)
		return malformed(w);
	left = (size_t)(level->end - w->p);
	switch (tag & 7) {
	case 0:
		return read_varint(w, &value) ? 0 : malformed(w);
	case 1:
	case 5:
		skip = (tag & 7) == 1 ? 8 : 4;
		if (left < skip)
			return malformed(w);
		w->p += skip;
		return 0;
	case 2:
		if (!read_varint(w, &value) || value > (size_t)(level->end - w->p))
			return malformed(w);
		return walk_bytes(
			w, protobuf_c_message_descriptor_get_field(level->d, (unsigned)(tag >> 3)),
			(size_t)value);
	default:
		return malformed(w);
	}
}

int grpc_check_strings(const ProtobufCMessageDescriptor *d, const uint8_t *data, size_t n,
		       struct error *err)
{
	struct walk w = {.p = data, .err = err};

	w.levels[0] = (struct level){.d = d, .end = data + n};
	while (w.depth >= 0) {
		if (w.p == w.levels[w.depth].end)
			w.depth--;
		else
			TRY(walk_field(&w));
	}
	return 0;
}
