/* SPDX-License-Identifier: Apache-2.0 */
/* gRPC's encodings: framing, timeouts, percent-encoding, HPACK literals, UTF-8, and the walk over a
 * message's wire form. */
#include "cri/grpc_wire.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "cri/proto/cri.pb-c.h"
#include "io/base/cleanup.h"

#define VERSION (&runtime__v1__version_request__descriptor)
#define LIST (&runtime__v1__list_pod_sandbox_request__descriptor)

static int parse(const char *body, size_t n, size_t limit, struct error *err)
{
	const uint8_t *data = NULL;
	size_t length = 0;
	int r = grpc_message_parse((const uint8_t *)body, n, limit, &data, &length, err);

	return r < 0 ? r : (int)length;
}

static void frames(void **state)
{
	struct error err;

	assert_int_equal(parse("\0\0\0\0\0", 5, 10, &err), 0);
	assert_int_equal(parse("\0\0\0\0\3abc", 8, 3, &err), 3);
	assert_int_equal(parse("", 0, 10, &err), -ERR_INTERNAL);
	assert_int_equal(parse("\0\0\0\0", 4, 10, &err), -ERR_INTERNAL);
	assert_int_equal(parse("\0\0\0\0\3ab", 7, 10, &err), -ERR_INTERNAL);
	assert_int_equal(parse("\0\0\0\0\3abcd", 9, 10, &err), -ERR_INTERNAL);
	assert_non_null(strstr(err.text, "more than one"));
	assert_int_equal(parse("\0\0\0\0\0\0\0\0\0\0", 10, 10, &err), -ERR_INTERNAL);
	assert_int_equal(parse("\1\0\0\0\3abc", 8, 10, &err), -ERR_UNIMPLEMENTED);
	assert_int_equal(parse("\2\0\0\0\3abc", 8, 10, &err), -ERR_INTERNAL);
	/* the announced length counts, whether the bytes have come or not */
	assert_int_equal(parse("\0\0\0\0\4abc", 8, 3, &err), -ERR_EXHAUSTED);
	assert_int_equal(parse("\0\xff\xff\xff\xff", 5, 10, &err), -ERR_EXHAUSTED);
}

static void prefix(void **state)
{
	uint8_t p[GRPC_PREFIX_SIZE];

	grpc_prefix_write(p, 0x01020304);
	assert_memory_equal(p, "\0\1\2\3\4", 5);
}

static void timeouts(void **state)
{
	static const struct {
		const char *text;
		uint64_t ns;
	} good[] = {
		{"1H", 3600000000000},
		{"2M", 120000000000},
		{"3S", 3000000000},
		{"4m", 4000000},
		{"5u", 5000},
		{"6n", 6},
		{"0n", 0},
		{"00000001m", 1000000},
		{"99999999S", 99999999000000000},
		{"99999999H", INT64_MAX},
	};
	static const char *const bad[] = {"",	 "1",	       "m",    "1s",  "-1m",
					  "1 m", "123456789m", "1.5S", "1mm", "0x1m"};
	uint64_t ns = 42;

	for (size_t i = 0; i < sizeof(good) / sizeof(good[0]); i++) {
		assert_true(grpc_timeout_parse(good[i].text, strlen(good[i].text), &ns));
		assert_true(ns == good[i].ns);
	}
	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
		assert_false(grpc_timeout_parse(bad[i], strlen(bad[i]), &ns));
	assert_false(grpc_timeout_parse("1\0", 2, &ns));
}

static void percent(void **state)
{
	char to[64];
	size_t n = grpc_percent_encode(to, "a b%~\n\x7f\xc3\xa4");

	assert_int_equal(n, strlen("a b%25~%0A%7F%C3%A4"));
	assert_memory_equal(to, "a b%25~%0A%7F%C3%A4", n);
	assert_int_equal(grpc_percent_encode(to, ""), 0);
}

static void content_types(void **state)
{
	assert_true(grpc_is_content_type("application/grpc", 16));
	assert_true(grpc_is_content_type("application/grpc+proto", 22));
	assert_true(grpc_is_content_type("application/grpc;a=b", 20));
	assert_false(grpc_is_content_type("application/grpcx", 17));
	assert_false(grpc_is_content_type("application/grp", 15));
	assert_false(grpc_is_content_type("text/plain", 10));
	assert_false(grpc_is_content_type(NULL, 0));
}

static void statuses(void **state)
{
	assert_int_equal(grpc_status_of(ERR_OK), 0);
	assert_int_equal(grpc_status_of(ERR_NOT_FOUND), 5);
	assert_int_equal(grpc_status_of(ERR_EXISTS), 6);
	assert_int_equal(grpc_status_of(ERR_INVALID), 3);
	assert_int_equal(grpc_status_of(ERR_PRECONDITION), 9);
	assert_int_equal(grpc_status_of(ERR_EXHAUSTED), 8);
	assert_int_equal(grpc_status_of(ERR_DEADLINE), 4);
	assert_int_equal(grpc_status_of(ERR_CANCELLED), 1);
	assert_int_equal(grpc_status_of(ERR_UNAVAILABLE), 14);
	assert_int_equal(grpc_status_of(ERR_DENIED), 7);
	assert_int_equal(grpc_status_of(ERR_UNIMPLEMENTED), 12);
	assert_int_equal(grpc_status_of(ERR_INTERNAL), 13);
	assert_int_equal(grpc_status_of((enum err)99), 13);
}

static void literals(void **state)
{
	uint8_t to[400], *end;
	char value[300];

	/* RFC 7541, C.1.2 and C.1.1: 1337 and 10 with prefixes of 5 bits; ours have 7 and 4 */
	end = grpc_hpack_literal(to, 0, "ab", "c", 1);
	assert_int_equal(end - to, 6);
	assert_memory_equal(to,
			    "\x10\x02"
			    "ab"
			    "\x01"
			    "c",
			    6);
	end = grpc_hpack_literal(to, 31, NULL, "x", 1);
	assert_int_equal(end - to, 4);
	assert_memory_equal(to, "\x1f\x10\x01x", 4);
	memset(value, 'v', sizeof(value));
	end = grpc_hpack_literal(to, 8, NULL, value, 127);
	assert_int_equal(end - to, 130);
	assert_memory_equal(to, "\x18\x7f\x00v", 4);
	end = grpc_hpack_literal(to, 8, NULL, value, 300);
	assert_int_equal(end - to, 304);
	/* 300 - 127 = 173 = 0x2d + 128 × 1 */
	assert_memory_equal(to, "\x18\x7f\xad\x01v", 5);
}

static size_t span(const char *s, size_t n)
{
	return grpc_utf8_span((const uint8_t *)s, n);
}

static void utf8(void **state)
{
	static const char *const good[] = {"",
					   "ascii only, longer than eight",
					   "\xc2\x80",
					   "\xdf\xbf",
					   "\xe0\xa0\x80",
					   "\xed\x9f\xbf",
					   "\xee\x80\x80",
					   "\xef\xbf\xbf",
					   "\xf0\x90\x80\x80",
					   "\xf4\x8f\xbf\xbf",
					   "1234567\xc3\xa4"
					   "1234567890"};
	static const char *const bad[] = {"\x80",
					  "\xc0\x80",
					  "\xc1\xbf",
					  "\xc2",
					  "\xc2\x41",
					  "\xe0\x9f\xbf",
					  "\xed\xa0\x80",
					  "\xef\xbf",
					  "\xf0\x8f\xbf\xbf",
					  "\xf4\x90\x80\x80",
					  "\xf5\x80\x80\x80",
					  "\xff",
					  "\xe2\x82\xff"};
	char text[40];

	for (size_t i = 0; i < sizeof(good) / sizeof(good[0]); i++)
		assert_int_equal(span(good[i], strlen(good[i])), strlen(good[i]));
	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
		for (size_t before = 0; before < 20; before++) {
			memset(text, 'a', sizeof(text));
			memcpy(text + before, bad[i], strlen(bad[i]));
			assert_int_equal(span(text, sizeof(text)), before);
			/* the end of the string in the middle of a sequence */
			assert_int_equal(span(text, before + strlen(bad[i])), before);
		}
	for (size_t at = 0; at < sizeof(text); at++) {
		memset(text, 'a', sizeof(text));
		text[at] = '\0';
		assert_int_equal(span(text, sizeof(text)), at);
	}
}

#define CHECK(d, bytes, err) grpc_check_strings(d, (const uint8_t *)(bytes), sizeof(bytes) - 1, err)

static void strings(void **state)
{
	struct error err;

	assert_int_equal(CHECK(VERSION, "", &err), 0);
	assert_int_equal(CHECK(VERSION, "\x0a\x02ok", &err), 0);
	assert_int_equal(CHECK(VERSION, "\x0a\x02o\xff", &err), -ERR_INVALID);
	assert_string_equal(err.text, "field version: the string is not valid UTF-8 at byte 1");
	assert_int_equal(CHECK(VERSION, "\x0a\x03o\0k", &err), -ERR_INVALID);
	assert_string_equal(err.text, "field version: there is a NUL at byte 1");
	/* what is unknown is not ours to judge */
	assert_int_equal(CHECK(VERSION, "\x7a\x01\xff\x50\x05\x0a\x01y", &err), 0);
	assert_int_equal(CHECK(LIST, "\x0a\x0b\x1a\x09\x0a\x01k\x12\x04\xf0\x9f\x98\x80", &err), 0);
	assert_int_equal(CHECK(LIST, "\x0a\x08\x1a\x06\x0a\x01k\x12\x01\xff", &err), -ERR_INVALID);
	assert_non_null(strstr(err.text, "field filter.label_selector.value: "));
	/* an empty submessage at the very end, and the parent going on behind a submessage */
	assert_int_equal(CHECK(LIST, "\x0a\x00", &err), 0);
	assert_int_equal(CHECK(LIST, "\x0a\x03\x0a\x01i\x0a\x03\x0a\x01\xff", &err), -ERR_INVALID);
}

static void malformed(void **state)
{
	static const struct {
		const char *bytes;
		size_t n;
	} bad[] = {
		{"\x0a", 1},
		{"\x0a\x05"
		 "abc",
		 5},
		{"\xff", 1},
		{"\x00\x00", 2},
		{"\x0b", 1},
		{"\x0e\x00", 2},
		{"\x09"
		 "1234567",
		 8},
		{"\x0d"
		 "123",
		 4},
		{"\x08\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01", 12},
		{"\xff\xff\xff\xff\xff\x01\x00", 7},
		{"\x0a\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01", 11},
	};
	struct error err;

	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
		assert_int_equal(
			grpc_check_strings(VERSION, (const uint8_t *)bad[i].bytes, bad[i].n, &err),
			-ERR_INTERNAL);
	/* a submessage longer than its parent */
	assert_int_equal(CHECK(LIST, "\x0a\x02\x1a\x04\x0a\x02kk", &err), -ERR_INTERNAL);
}

/* Random bytes, and real ones with one changed: for the sanitizers. What passes is fit for
 * protobuf-c. */
static void random_bytes(void **state)
{
	static const char seed[] = "\x0a\x11\x0a\x03"
				   "abc\x1a\x0a\x0a\x03key\x12\x03val";
	struct error err;
	uint8_t bytes[64];

	srand(1);
	for (int i = 0; i < 20000; i++) {
		size_t n = i % 2 ? sizeof(seed) - 1 : (size_t)rand() % sizeof(bytes);

		for (size_t j = 0; j < n; j++)
			bytes[j] = i % 2 ? (uint8_t)seed[j] : (uint8_t)rand();
		if (i % 2)
			bytes[(size_t)rand() % n] = (uint8_t)rand();
		if (!grpc_check_strings(LIST, bytes, n, &err)) {
			ProtobufCMessage *m = protobuf_c_message_unpack(LIST, NULL, n, bytes);

			if (m)
				protobuf_c_message_free_unpacked(m, NULL);
		}
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(frames),	 cmocka_unit_test(prefix),
		cmocka_unit_test(timeouts),	 cmocka_unit_test(percent),
		cmocka_unit_test(content_types), cmocka_unit_test(statuses),
		cmocka_unit_test(literals),	 cmocka_unit_test(utf8),
		cmocka_unit_test(strings),	 cmocka_unit_test(malformed),
		cmocka_unit_test(random_bytes),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
