/* SPDX-License-Identifier: Apache-2.0 */
/* store/image/ref: what is accepted, its normal form, and what is refused. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <string.h>

#include "store/image/ref.h"

#define HEX "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"
#define A16 "aaaaaaaaaaaaaaaa"
#define A128 A16 A16 A16 A16 A16 A16 A16 A16

static const struct {
	const char *text, *normal; /* NULL: refused */
} cases[] = {
	{"busybox", "docker.io/library/busybox:latest"},
	{"busybox:1.36", "docker.io/library/busybox:1.36"},
	{"user/app", "docker.io/user/app:latest"},
	{"docker.io/busybox", "docker.io/library/busybox:latest"},
	{"index.docker.io/busybox:1", "docker.io/library/busybox:1"},
	{"index.docker.io/user/app", "docker.io/user/app:latest"},
	{"localhost/app", "localhost/app:latest"},
	{"localhost:5000/app", "localhost:5000/app:latest"},
	{"host:5000/a/b:t", "host:5000/a/b:t"},
	{"127.0.0.1:5000/a", "127.0.0.1:5000/a:latest"},
	{"[::1]:5000/a:t", "[::1]:5000/a:t"},
	{"registry.k8s.io/e2e-test-images/busybox:1.29-2",
	 "registry.k8s.io/e2e-test-images/busybox:1.29-2"},
	{"UPPER/app", "UPPER/app:latest"},
	{"a@sha256:" HEX, "docker.io/library/a@sha256:" HEX},
	{"a:t@sha256:" HEX, "docker.io/library/a@sha256:" HEX},
	{"a__b/c-----d/e.f_g", "docker.io/a__b/c-----d/e.f_g:latest"},
	{"a:" A128, "docker.io/library/a:" A128},
	{"a.b.c/d:_x", "a.b.c/d:_x"},
	{HEX ":t", NULL},
	{"x" HEX, "docker.io/library/x" HEX ":latest"},
	{"", NULL},
	{":", NULL},
	{"@", NULL},
	{"/", NULL},
	{"a/", NULL},
	{"/a", NULL},
	{"a//b", NULL},
	{"a:", NULL},
	{":a", NULL},
	{"a:.t", NULL},
	{"a:-t", NULL},
	{"a:t t", NULL},
	{"a:b:c", NULL},
	{"a:" A128 "a", NULL},
	{"Busybox", NULL},
	{"a/Busybox", NULL},
	{"a b", NULL},
	{" a", NULL},
	{"a\n", NULL},
	{"-a", NULL},
	{"a-", NULL},
	{"a..b", NULL},
	{"a___b", NULL},
	{"a._b", NULL},
	{".", NULL},
	{"..", NULL},
	{"../a", NULL},
	{"a/../b", NULL},
	{"-host.io/a", NULL},
	{"host-.io/a", NULL},
	{"host..io/a", NULL},
	{"host.io:/a", NULL},
	{"host.io:x/a", NULL},
	{"[::1/a", NULL},
	{"[]/a", NULL},
	{"a@", NULL},
	{"a@sha256:" HEX "0", NULL},
	{"a@sha256:0123", NULL},
	{"a@sha256:../../../../../../../../../../../../../../../../../../../../../aaaa", NULL},
	{"a@SHA256:" HEX, NULL},
	{"a@sha256:ABCDEF6789abcdef0123456789abcdef0123456789abcdef0123456789abcdef", NULL},
	{"a@sha512:" HEX HEX, NULL},
	{"a@sha256:" HEX "@sha256:" HEX, NULL},
	{"sha256:" HEX, "docker.io/library/sha256:" HEX},
	{"\xc3\xa4", NULL},
	{A128 A128, NULL},
	{A128 "/" A128 "/" A128 "/" A128 "/" A128, NULL},
};

static void test_table(void **state)
{
	for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
		struct error err = {0};
		struct ref ref;
		char normal[REF_SIZE];
		int r = ref_parse(cases[i].text, &ref, &err);

		if (!cases[i].normal) {
			if (r != -ERR_INVALID || !strstr(err.text, "reference"))
				fail_msg("accepted: %s", cases[i].text);
			continue;
		}
		if (r < 0)
			fail_msg("refused: %s", err.text);
		ref_format(&ref, normal);
		assert_string_equal(normal, cases[i].normal);
	}
}

/* The normal form is its own normal form. */
static void test_idempotent(void **state)
{
	for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
		struct error err;
		struct ref ref;
		char again[REF_SIZE];

		if (!cases[i].normal)
			continue;
		assert_int_equal(ref_parse(cases[i].normal, &ref, &err), 0);
		ref_format(&ref, again);
		assert_string_equal(again, cases[i].normal);
	}
}

static void test_digests(void **state)
{
	char d[DIGEST_SIZE], chain[DIGEST_SIZE];

	digest_of("", 0, d);
	assert_string_equal(
		d, "sha256:e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
	digest_chain(NULL, d, chain);
	assert_string_equal(chain, d);

	digest_chain(d, d, chain);
	assert_string_equal(
		chain, "sha256:de9d9016b852e46e9f3973e20d3a6d17e120f7144931d50cd6e2a8ad53e81960");
	assert_false(digest_is_valid(NULL));
	assert_false(digest_is_valid("sha256:"));
	assert_false(digest_is_valid(HEX));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_table),
		cmocka_unit_test(test_idempotent),
		cmocka_unit_test(test_digests),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
