/* SPDX-License-Identifier: Apache-2.0 */
/* The init helper's own string functions do what the C library's do. */
#include <limits.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

/* under names that don't hide the C library's, which they are compared with */
#define memcpy own_memcpy
#define memset own_memset
#define strlen own_strlen
#define strchr own_strchr
#define strrchr own_strrchr
#define strncmp own_strncmp
#define strcmp own_strcmp
#define strncpy own_strncpy
#define strcspn own_strcspn
#define strspn own_strspn
#define strsep own_strsep
#define vsnprintf own_vsnprintf
#define snprintf own_snprintf
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wmissing-prototypes"
#include "sandbox/linux/init/text.c"
#pragma GCC diagnostic pop
#undef memcpy
#undef memset
#undef strlen
#undef strchr
#undef strrchr
#undef strncmp
#undef strcmp
#undef strncpy
#undef strcspn
#undef strspn
#undef strsep
#undef vsnprintf
#undef snprintf

static const char *const texts[] = {"",	   "a",	      "/",	 "//",	  "a/b",
				    "/a/", "a,b,,c",  "ab",	 "\xff/", "mode=755,size=64k",
				    ",",   "abcabca", "a=b=c,d", "PATH=/"};
#define TEXTS (sizeof(texts) / sizeof(texts[0]))

static int sign(int n)
{
	return (n > 0) - (n < 0);
}

static void text_functions_agree_with_the_c_library(void **state)
{
	for (size_t i = 0; i < TEXTS; i++) {
		const char *a = texts[i];

		assert_int_equal(own_strlen(a), strlen(a));
		for (const char *c = "/a,=\xff";; c++) {
			assert_ptr_equal(own_strchr(a, *c), strchr(a, *c));
			assert_ptr_equal(own_strrchr(a, *c), strrchr(a, *c));
			if (!*c)
				break;
		}
		for (size_t k = 0; k < TEXTS; k++) {
			const char *b = texts[k];

			assert_int_equal(sign(own_strcmp(a, b)), sign(strcmp(a, b)));
			for (size_t n = 0; n < 4; n++)
				assert_int_equal(sign(own_strncmp(a, b, n)),
						 sign(strncmp(a, b, n)));
			assert_int_equal(own_strspn(a, b), strspn(a, b));
			assert_int_equal(own_strcspn(a, b), strcspn(a, b));
		}
	}
}

static void strsep_cuts_at_each_separator(void **state)
{
	for (size_t i = 0; i < TEXTS; i++) {
		char a[40], b[40], *ours = a, *theirs = b, *one, *other;

		strcpy(a, texts[i]);
		strcpy(b, texts[i]);
		do {
			one = own_strsep(&ours, ",=");
			other = strsep(&theirs, ",=");
			assert_int_equal(!one, !other);
			if (one)
				assert_string_equal(one, other);
		} while (one);
	}
}

static void copies_end_where_they_should(void **state)
{
	char bytes[8];

	assert_ptr_equal(own_memset(bytes, 'x', sizeof(bytes)), bytes);
	assert_ptr_equal(own_memcpy(bytes + 1, "abc", 2), bytes + 1);
	assert_memory_equal(bytes, "xabxxxxx", 8);
	assert_ptr_equal(own_strncpy(bytes, "12", 5), bytes);
	assert_memory_equal(bytes, "12\0\0\0xxx", 8);
	own_strncpy(bytes, "123456789", 7);
	assert_memory_equal(bytes, "1234567x", 8);
}

static void snprintf_writes_no_more_than_fits(void **state)
{
	static const int numbers[] = {0, 1, -1, 999, -1000, INT_MAX, INT_MIN};
	char ours[64], theirs[64];

	for (size_t i = 0; i < sizeof(numbers) / sizeof(numbers[0]); i++) {
		for (size_t size = 0; size < 40; size++) {
			memset(ours, 'x', sizeof(ours));
			memset(theirs, 'x', sizeof(theirs));
			assert_int_equal(
				own_snprintf(ours, size, "%d %u exec %s%.*s/%s.", numbers[i],
					     (unsigned)numbers[i], "profile", 3, "abcdef", ""),
				snprintf(theirs, size, "%d %u exec %s%.*s/%s.", numbers[i],
					 (unsigned)numbers[i], "profile", 3, "abcdef", ""));
			assert_memory_equal(ours, theirs, sizeof(ours));
		}
	}
	assert_int_equal(own_snprintf(ours, sizeof(ours), "%.*s", 9, "ab"), 2);
	assert_int_equal(own_snprintf(ours, sizeof(ours), "%lx", 1ul), -1);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(text_functions_agree_with_the_c_library),
		cmocka_unit_test(strsep_cuts_at_each_separator),
		cmocka_unit_test(copies_end_where_they_should),
		cmocka_unit_test(snprintf_writes_no_more_than_fits),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
