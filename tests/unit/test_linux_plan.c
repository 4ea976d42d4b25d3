/* SPDX-License-Identifier: Apache-2.0 */
/* What the linux kind prepares without touching the system: plans, records, copies, sentences. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "sandbox/linux/kind.h"
#include "sandbox/linux/ns.h"
#include "sandbox/linux/spec_copy.h"

static const int no_stdio[3] = {-1, -1, -1};

static void plan_holds_what_was_added(void **state)
{
	const char *words[] = {"one", "", "three three"};
	struct string_list list = {words, 3};
	struct plan_builder b;
	struct plan_list vector, numbers;
	uint64_t number = 77, *offsets;

	plan_init(&b, INIT_EXEC, no_stdio);
	vector = plan_add_vector(&b, &list);
	numbers = plan_add_list(&b, &number, 1, sizeof(number));
	assert_int_equal(plan_get(&b)->flags,
			 PLAN_NULL_STDIN | PLAN_NULL_STDOUT | PLAN_NULL_STDERR);
	assert_int_equal(vector.count, 3);
	assert_int_equal(vector.offset % 8, 0);
	assert_int_equal(numbers.offset % 8, 0);
	offsets = (uint64_t *)(void *)(b.bytes.data + vector.offset);
	for (int i = 0; i < 3; i++)
		assert_string_equal(b.bytes.data + offsets[i], words[i]);
	assert_int_equal(offsets[3], 0);
	assert_int_equal(*(uint64_t *)(void *)(b.bytes.data + numbers.offset), 77);
	assert_int_equal(plan_add_string(&b, NULL), 0);
	plan_done(&b);
	plan_done(&b);
}

static void plan_numbers_descriptors_and_closes_its_own(void **state)
{
	int given = open("/dev/null", O_RDONLY | O_CLOEXEC), lent = open("/dev/null", O_RDONLY);
	struct plan_builder b;
	struct error err;
	int control;
	struct stat st;

	plan_init(&b, INIT_EXEC, no_stdio);
	assert_int_equal(plan_give_fd(&b, given), INIT_FD_FIRST);
	assert_int_equal(plan_lend_fd(&b, lent), INIT_FD_FIRST + 1);
	assert_int_equal(plan_lend_fd(&b, -1), -1);
	assert_int_equal(plan_seal(&b, &control, &err), 0);
	assert_int_equal(fstat(b.fds[INIT_FD_PLAN].fd, &st), 0);
	assert_int_equal(st.st_size, plan_get(&b)->size);
	plan_done(&b);
	assert_int_equal(fcntl(given, F_GETFD), -1);
	assert_int_not_equal(fcntl(lent, F_GETFD), -1);
	/* the helper's end is gone with the plan */
	assert_int_equal(control_go(control, &err), 0);
	close(control);
	close(lent);
}

static void record_finds_whole_keys(void **state)
{
	const char *r = "version=1\nuid=5\nu=6\nhome=/a=b\nlast=9";
	size_t n = strlen(r);
	char value[8];

	assert_true(record_find(r, n, "home", value, sizeof(value)));
	assert_string_equal(value, "/a=b");
	assert_true(record_find(r, n, "u", value, sizeof(value)));
	assert_string_equal(value, "6");
	assert_int_equal(record_number(r, n, "last", 0), 9);
	assert_int_equal(record_number(r, n, "las", -3), -3);
	assert_int_equal(record_number(r, n, "id", -3), -3);
	assert_false(record_find("long=123456789", 14, "long", value, sizeof(value)));
	assert_false(record_find("", 0, "x", value, sizeof(value)));
}

static void failures_are_sentences(void **state)
{
	struct init_report report = {.message = INIT_FAILED, .step = STEP_EXEC, .error = ENOENT};
	struct error err;

	memcpy(report.path, "foo", sizeof("foo"));
	assert_int_equal(control_error(&report, "start container", &err), -ERR_INVALID);
	assert_string_equal(err.text, "start container: exec \"foo\": no such file or directory in "
				      "the image's PATH");
	assert_int_equal(err.sys, ENOENT);
	memcpy(report.path, "/foo", sizeof("/foo"));
	control_error(&report, "start container", &err);
	assert_string_equal(err.text,
			    "start container: exec \"/foo\": no such file or directory, or "
			    "its interpreter is missing");
	report.error = EACCES;
	control_error(&report, "exec", &err);
	assert_string_equal(err.text, "exec: exec \"/foo\": Permission denied");
	report = (struct init_report){.step = STEP_PROC, .error = ELOOP, .path = "/proc"};
	assert_int_equal(control_error(&report, "start container", &err), -ERR_INVALID);
	assert_string_equal(err.text, "start container: mount proc on /proc: Too many levels of "
				      "symbolic links");
	report = (struct init_report){.step = STEP_MOUNT, .error = ENOSPC, .path = "/data"};
	assert_int_equal(control_error(&report, "start container", &err), -ERR_EXHAUSTED);
	report.step = 12345;
	assert_int_equal(control_error(&report, "start container", &err), -ERR_INTERNAL);
}

static void copies_share_nothing(void **state)
{
	char target[] = "/target", env[] = "A=B", layer[] = "/layer";
	const char *envp[] = {env}, *layers[] = {layer};
	struct mount_spec mount = {.target = target, .layers = {layers, 1}};
	struct container_spec spec = {.id = "id",
				      .envp = {envp, 1},
				      .mounts = &mount,
				      .mount_count = 1},
			      copy;
	struct arena *a = arena_new(1 << 20);

	container_spec_copy(a, &spec, &copy);
	target[1] = env[0] = layer[1] = 'X';
	assert_string_equal(copy.envp.items[0], "A=B");
	assert_string_equal(copy.mounts[0].target, "/target");
	assert_string_equal(copy.mounts[0].layers.items[0], "/layer");
	assert_null(copy.cwd);
	assert_null(copy.mounts[0].source);
	arena_free(a);
}

static void ids_map_to_the_outside(void **state)
{
	struct id_map items[] = {{0, 1000, 1}, {10, 200000, 100}};
	struct id_map_list map = {items, 2}, none = {NULL, 0};

	assert_int_equal(id_map_outside(&map, 0), 1000);
	assert_int_equal(id_map_outside(&map, 1), -1);
	assert_int_equal(id_map_outside(&map, 10), 200000);
	assert_int_equal(id_map_outside(&map, 109), 200099);
	assert_int_equal(id_map_outside(&map, 110), -1);
	assert_int_equal(id_map_outside(&none, 0), -1);
	assert_true(id_map_equal(&map, &map));
	assert_false(id_map_equal(&map, &none));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(plan_holds_what_was_added),
		cmocka_unit_test(plan_numbers_descriptors_and_closes_its_own),
		cmocka_unit_test(record_finds_whole_keys),
		cmocka_unit_test(failures_are_sentences),
		cmocka_unit_test(copies_share_nothing),
		cmocka_unit_test(ids_map_to_the_outside),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
