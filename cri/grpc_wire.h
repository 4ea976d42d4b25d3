/* SPDX-License-Identifier: Apache-2.0 */
/*
 * gRPC's own encodings, without I/O: length-prefixed messages, grpc-timeout, grpc-message, status
 * codes, HPACK literals, and the check of a protobuf message's strings on the wire. All input comes
 * from outside. Sources: grpc/doc/PROTOCOL-HTTP2.md, grpc/doc/statuscodes.md, RFC 7541, RFC 3629.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <protobuf-c/protobuf-c.h>

#include "io/base/error.h"

#define GRPC_PREFIX_SIZE 5
/* Submessages within each other that a request may have; the CRI needs fewer than ten. */
#define GRPC_MAX_DEPTH 32

enum grpc_status {
	GRPC_OK = 0,
	GRPC_CANCELLED = 1,
	GRPC_UNKNOWN = 2,
	GRPC_INVALID_ARGUMENT = 3,
	GRPC_DEADLINE_EXCEEDED = 4,
	GRPC_NOT_FOUND = 5,
	GRPC_ALREADY_EXISTS = 6,
	GRPC_PERMISSION_DENIED = 7,
	GRPC_RESOURCE_EXHAUSTED = 8,
	GRPC_FAILED_PRECONDITION = 9,
	GRPC_UNIMPLEMENTED = 12,
	GRPC_INTERNAL = 13,
	GRPC_UNAVAILABLE = 14,
};

enum grpc_status grpc_status_of(enum err code);

/* "application/grpc", alone or followed by "+…" or ";…". */
bool grpc_is_content_type(const char *s, size_t n);

/* A grpc-timeout, one to eight digits and a unit of "HMSmun", in nanoseconds; what is longer than
 * 292 years is that. False when it is malformed. */
bool grpc_timeout_parse(const char *s, size_t n, uint64_t *ret_ns);

void grpc_prefix_write(uint8_t to[GRPC_PREFIX_SIZE], size_t length);
/*
 * Finds the one message in a request's body. ERR_INTERNAL when the framing is broken or there is
 * not exactly one message, ERR_UNIMPLEMENTED when it is compressed, ERR_EXHAUSTED when it is larger
 * than limit.
 */
int grpc_message_parse(const uint8_t *body, size_t n, size_t limit, const uint8_t **ret_data,
		       size_t *ret_length, struct error *err);

/* Writes text as a grpc-message value: bytes outside of 0x20–0x7e and '%' become %XX. to holds
 * 3 bytes for each of text's. Returns the length; to is not terminated. */
size_t grpc_percent_encode(char *to, const char *text);

/* Appends an HPACK literal header field, never indexed, no Huffman. name is a static index, or 0
 * for name_text. Returns the new end; to has room for the lengths and 12 bytes more. */
uint8_t *grpc_hpack_literal(uint8_t *to, unsigned name, const char *name_text, const char *value,
			    size_t value_length);

/*
 * Walks the wire form of a message of type d and refuses strings that are not UTF-8 or hold a NUL,
 * which protobuf-c would let through or cut. ERR_INVALID naming the field, ERR_INTERNAL when the
 * bytes are no protobuf message or nest deeper than GRPC_MAX_DEPTH. Does not recurse.
 */
int grpc_check_strings(const ProtobufCMessageDescriptor *d, const uint8_t *data, size_t n,
		       struct error *err);

/* The first byte that is not part of well-formed UTF-8 without NUL, or n. */
size_t grpc_utf8_span(const uint8_t *s, size_t n);
