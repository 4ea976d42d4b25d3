/* SPDX-License-Identifier: Apache-2.0 */
/* Names and limits in systemd's terms. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "io/base/alloc.h"
#include "sandbox/linux/units.h"

static void slices_have_their_places(void **state)
{
	static const char *const good[][2] = {
		{"crisp.slice", "/crisp.slice"},
		{"a-b-c.slice", "/a.slice/a-b.slice/a-b-c.slice"},
		{"/a.slice/a-b.slice", "/a.slice/a-b.slice"},
		{"a.slice/a-b.slice", "/a.slice/a-b.slice"},
		{"/kubepods/burstable/podX", "/kubepods/burstable/podX"},
	};
	static const char *const bad[] = {"-.slice",	 "-a.slice",	    "a-.slice",
					  "a--b.slice",	 "a b.slice",	    "/a-b.slice",
					  "/b.slice/a",	 "a.slice:crisp:x", "../a.slice",
					  "/../a.slice", ".slice",	    "relative"};
	struct error err = {0};
	char *path;

	for (size_t i = 0; i < sizeof(good) / sizeof(good[0]); i++) {
		assert_int_equal(unit_parent_path(good[i][0], &path, &err), 0);
		assert_string_equal(path, good[i][1]);
		free(path);
	}
	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
		if (unit_parent_path(bad[i], &path, &err) != -ERR_INVALID)
			fail_msg("%s is taken", bad[i]);
}

static void styles_are_the_drivers(void **state)
{
	static const char *const slices[] = {"kubepods-podX.slice",
					     "/kubepods.slice/kubepods-podX.slice",
					     "kubepods-podX.slice:cri:123"};
	struct error err = {0};

	for (size_t i = 0; i < sizeof(slices) / sizeof(slices[0]); i++) {
		assert_int_equal(unit_check_style(slices[i], true, &err), 0);
		assert_int_equal(unit_check_style(slices[i], false, &err), -ERR_INVALID);
		assert_non_null(strstr(err.text, "cgroupDriver: cgroupfs"));
	}
	assert_int_equal(unit_check_style("/kubepods/podX", false, &err), 0);
	assert_int_equal(unit_check_style("/kubepods/podX", true, &err), -ERR_INVALID);
	assert_non_null(strstr(err.text, "cgroupDriver: systemd"));
}

static void units_are_told_by_their_path(void **state)
{
	char id[5];
	char *slice = unit_slice_of("/a.slice/a-b.slice/crisp-1.scope");

	assert_string_equal(slice, "a-b.slice");
	free(slice);
	assert_null(unit_slice_of("/a.slice"));
	assert_string_equal(unit_of("/a.slice/crisp-1.scope"), "crisp-1.scope");
	assert_string_equal(unit_of("/a.slice"), "a.slice");
	assert_null(unit_of("/crisp/abcd"));
	assert_true(unit_id("abcd", id, 4));
	assert_true(unit_id("crisp-1234.scope", id, 4));
	assert_string_equal(id, "1234");
	assert_true(unit_id("crisp-1234.slice", id, 4));
	assert_false(unit_id("crisp-12345.slice", id, 4));
	assert_false(unit_id("other-1234.scope", id, 4));
	assert_false(unit_id("crisp-1234.mount", id, 4));
}

static const struct unit_property *find(const struct unit_properties *p, const char *name)
{
	for (size_t i = 0; i < p->count; i++)
		if (!strcmp(p->items[i].name, name))
			return &p->items[i];
	return NULL;
}

static uint64_t number(const struct unit_properties *p, const char *name)
{
	const struct unit_property *found = find(p, name);

	if (!found)
		fail_msg("no %s", name);
	return found->number;
}

static struct cgroups v2(void)
{
	struct cgroups cg = {.count = 1, .is_pure_v2 = true};

	cg.hierarchies[0].is_v2 = true;
	return cg;
}

static void limits_become_properties(void **state)
{
	struct resources r = {.cpu_shares = 1024,
			      .cpu_quota_us = 12345,
			      .cpu_period_us = 50000,
			      .cpuset_cpus = "0-2,9",
			      .memory_limit = 4096,
			      .memory_swap_limit = 4096,
			      .pids_limit = -1};
	struct key_value unified[] = {{"memory.high", "2048"}, {"cpu.idle", "1"}};
	struct cgroups cg = v2();
	struct setting_list settings = {0};
	struct unit_properties p = {0};
	const struct unit_property *cpus;
	struct error err = {0};

	r.unified = (struct key_value_list){unified, 2};
	assert_int_equal(limits_plan(&cg, &r, &settings, &err), 0);
	unit_add_limits(&cg, &settings, &p);
	assert_int_equal(number(&p, "CPUWeight"), 100);
	/* 24.69 % of a processor, and never less than that */
	assert_int_equal(number(&p, "CPUQuotaPerSecUSec"), 250000);
	assert_int_equal(number(&p, "CPUQuotaPeriodUSec"), 50000);
	assert_int_equal(number(&p, "MemoryMax"), 4096);
	assert_int_equal(number(&p, "MemorySwapMax"), 0);
	assert_int_equal(number(&p, "MemoryHigh"), 2048);
	assert_true(number(&p, "TasksMax") == UINT64_MAX);
	cpus = find(&p, "AllowedCPUs");
	assert_non_null(cpus);
	assert_int_equal(cpus->size, 2);
	assert_int_equal(cpus->bytes[0], 7);
	assert_int_equal(cpus->bytes[1], 2);
	assert_null(find(&p, "AllowedMemoryNodes"));
	unit_properties_done(&p);
	setting_list_done(&settings);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(slices_have_their_places),
		cmocka_unit_test(styles_are_the_drivers),
		cmocka_unit_test(units_are_told_by_their_path),
		cmocka_unit_test(limits_become_properties),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
