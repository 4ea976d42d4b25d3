/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What limits become in files of v1 and v2, on plain files in a directory that stands for cgroupfs:
 * so v2's are checked on nodes that boot v1 as well, without root.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "sandbox/linux/cgroup_priv.h"
#include "tests/lib/group.h"

#define MIB (1024 * 1024ll)

static char root[] = "/tmp/crisp-test-limits-XXXXXX";
static int group_fd = -1;
static struct cgroups cg;
static struct error err;

static const char *const files[] = {
	"cpu.weight",
	"cpu.max",
	"cpuset.cpus",
	"cpuset.mems",
	"memory.max",
	"memory.swap.max",
	"memory.high",
	"pids.max",
	"hugetlb.2MB.max",
	"io.max",
	"cpu.shares",
	"cpu.cfs_quota_us",
	"cpu.cfs_period_us",
	"memory.limit_in_bytes",
	"hugetlb.2MB.limit_in_bytes",
};

#define FILE_COUNT (sizeof(files) / sizeof(files[0]))

static void put(const char *file, const char *text)
{
	int fd = openat(group_fd, file, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);

	assert_true(fd >= 0);
	assert_int_equal(write(fd, text, strlen(text)), strlen(text));
	close(fd);
}

static int begin(void **state)
{
	for (size_t i = 0; i < FILE_COUNT; i++)
		put(files[i], "");
	return 0;
}

static void use(bool is_v2)
{
	cg.hierarchies[0].is_v2 = cg.is_pure_v2 = is_v2;
	cg.v2 = is_v2 ? 0 : -1;
	for (int c = 0; c < CONTROLLER_COUNT; c++)
		cg.of[c] = 0;
}

static int apply(const struct resources *r, bool keep)
{
	struct setting_list list = {0};
	int code = limits_plan(&cg, r, &list, &err);

	if (code == 0)
		code = limits_apply(&cg, "/c", &list, keep, &err);
	setting_list_done(&list);
	return code;
}

static void assert_file(const char *file, const char *expected)
{
	char value[256];

	assert_true(cgroup_read(group_fd, file, value, sizeof(value)) >= 0);
	assert_string_equal(value, expected);
}

static void v2_has_its_own_files(void **state)
{
	struct key_value page = {"2MB", "4194304"};
	struct key_value unified[] = {{"memory.high", "1000000"}, {"io.max", "8:0 rbps=1000"}};
	struct resources r = {.cpu_shares = 1024,
			      .cpu_quota_us = 50000,
			      .cpu_period_us = 100000,
			      .cpuset_cpus = "0-1",
			      .cpuset_mems = "0",
			      .memory_limit = 64 * MIB,
			      .memory_swap_limit = 96 * MIB,
			      .pids_limit = 32,
			      .unified = {unified, 2},
			      .hugepage_limits = {&page, 1}};

	use(true);
	assert_int_equal(apply(&r, false), 0);
	assert_file("cpu.weight", "100");
	assert_file("cpu.max", "50000 100000");
	assert_file("cpuset.cpus", "0-1");
	assert_file("cpuset.mems", "0");
	assert_file("memory.max", "67108864");
	assert_file("memory.swap.max", "33554432");
	assert_file("memory.high", "1000000");
	assert_file("io.max", "8:0 rbps=1000");
	assert_file("pids.max", "32");
	assert_file("hugetlb.2MB.max", "4194304");
	assert_file("cpu.shares", "");
}

static void v2_says_max_for_unlimited(void **state)
{
	struct resources r = {.cpu_quota_us = -1,
			      .cpu_period_us = 50000,
			      .memory_limit = -1,
			      .memory_swap_limit = -1,
			      .pids_limit = -1};

	use(true);
	assert_int_equal(apply(&r, false), 0);
	assert_file("cpu.max", "max 50000");
	assert_file("memory.max", "max");
	assert_file("memory.swap.max", "max");
	assert_file("pids.max", "max");
}

static void v2_without_swap_is_zero(void **state)
{
	struct resources r = {.memory_limit = 64 * MIB, .memory_swap_limit = 64 * MIB};

	use(true);
	assert_int_equal(apply(&r, false), 0);
	assert_file("memory.swap.max", "0");
	/* a kernel without swap accounting */
	unlinkat(group_fd, "memory.swap.max", 0);
	assert_int_equal(apply(&r, false), 0);
	assert_int_equal(apply(&r, true), 0);
}

static void v2_changes_quota_or_period_alone(void **state)
{
	struct resources quota = {.cpu_quota_us = 30000}, period = {.cpu_period_us = 90000};

	use(true);
	put("cpu.max", "20000 50000\n");
	assert_int_equal(apply(&period, true), 0);
	assert_file("cpu.max", "20000 90000");
	put("cpu.max", "");
	assert_int_equal(apply(&quota, true), 0);
	assert_file("cpu.max", "30000");
}

static void v1_has_its_own_files(void **state)
{
	struct key_value page = {"2MB", "0"};
	struct resources r = {.cpu_shares = 512,
			      .cpu_quota_us = -1,
			      .cpu_period_us = 100000,
			      .memory_limit = 64 * MIB,
			      .memory_swap_limit = 64 * MIB,
			      .pids_limit = -1,
			      .hugepage_limits = {&page, 1}};

	use(false);
	/* memory.memsw.limit_in_bytes is not there: no swap accounting */
	assert_int_equal(apply(&r, false), 0);
	assert_file("cpu.shares", "512");
	assert_file("cpu.cfs_quota_us", "-1");
	assert_file("cpu.cfs_period_us", "100000");
	assert_file("memory.limit_in_bytes", "67108864");
	assert_file("pids.max", "max");
	assert_file("hugetlb.2MB.limit_in_bytes", "0");
	assert_file("memory.max", "");
}

static void a_missing_controller_is_told(void **state)
{
	struct key_value page = {"2MB", "0"};
	struct resources memory = {.memory_limit = MIB}, pages = {.hugepage_limits = {&page, 1}};

	use(true);
	cg.of[CONTROLLER_MEMORY] = cg.of[CONTROLLER_HUGETLB] = -1;
	assert_int_equal(apply(&memory, false), -ERR_PRECONDITION);
	assert_non_null(strstr(err.text, "memory"));
	assert_int_equal(apply(&pages, false), 0);
	assert_file("hugetlb.2MB.max", "");
}

static void bad_limits_are_refused(void **state)
{
	struct key_value bad[] = {
		{"cgroup.procs", "1"},	 {"memory", "1"},      {"memory.max/../x", "1"},
		{"memory.high", "1\n2"}, {"evil.max", "1"},    {"", "1"},
		{".max", "1"},		 {"memory.high", NULL}};
	struct key_value pages[] = {{"2XB", "1"},  {"MB", "1"}, {"../2MB", "1"},
				    {"2MB", "-1"}, {"2MB", ""}, {"2MB", NULL}};
	struct resources low = {.memory_limit = 2 * MIB, .memory_swap_limit = MIB};
	struct resources only_swap = {.memory_swap_limit = MIB};
	struct resources cpus = {.cpuset_cpus = "0\n"};

	use(true);
	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		struct resources r = {.unified = {&bad[i], 1}};

		assert_int_equal(apply(&r, false), -ERR_INVALID);
	}
	for (size_t i = 0; i < sizeof(pages) / sizeof(pages[0]); i++) {
		struct resources r = {.hugepage_limits = {&pages[i], 1}};

		assert_int_equal(apply(&r, false), -ERR_INVALID);
	}
	assert_int_equal(apply(&low, false), -ERR_INVALID);
	assert_int_equal(apply(&only_swap, false), -ERR_INVALID);
	assert_int_equal(apply(&cpus, false), -ERR_INVALID);
	use(false);
	bad[0] = (struct key_value){"memory.high", "1"};
	assert_int_equal(apply(&(struct resources){.unified = {bad, 1}}, false), -ERR_INVALID);
}

static int setup_all(void **state)
{
	if (!mkdtemp(root))
		return -1;
	cg.count = 1;
	cg.devices_program = -1;
	cg.hierarchies[0].fd = open(root, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	mkdirat(cg.hierarchies[0].fd, "c", 0755);
	group_fd = openat(cg.hierarchies[0].fd, "c", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	return group_fd < 0 ? -1 : 0;
}

static int teardown_all(void **state)
{
	for (size_t i = 0; i < FILE_COUNT; i++)
		unlinkat(group_fd, files[i], 0);
	close(group_fd);
	unlinkat(cg.hierarchies[0].fd, "c", AT_REMOVEDIR);
	close(cg.hierarchies[0].fd);
	return rmdir(root);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup(v2_has_its_own_files, begin),
		cmocka_unit_test_setup(v2_says_max_for_unlimited, begin),
		cmocka_unit_test_setup(v2_without_swap_is_zero, begin),
		cmocka_unit_test_setup(v2_changes_quota_or_period_alone, begin),
		cmocka_unit_test_setup(v1_has_its_own_files, begin),
		cmocka_unit_test_setup(a_missing_controller_is_told, begin),
		cmocka_unit_test_setup(bad_limits_are_refused, begin),
	};

	return RUN_GROUP(tests, setup_all, teardown_all);
}
