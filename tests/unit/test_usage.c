/* SPDX-License-Identifier: Apache-2.0 */
/* What the kernel's files say of a group's usage, for v1 and v2 on plain files that stand for
 * cgroupfs; and what is made of the figures. */
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

#include "io/fs.h"
#include "sandbox/linux/cgroup_priv.h"
#include "sandbox/linux/net_usage.h"
#include "tests/lib/group.h"

#define SECOND 1000000000ull

static char root[] = "/tmp/crisp-test-usage-XXXXXX";
static struct cgroups cg;
static struct error err;

static void put(const char *file, const char *text)
{
	struct buf content = {(char *)text, strlen(text), 0};
	int group = openat(cg.hierarchies[0].fd, "c", O_RDONLY | O_DIRECTORY | O_CLOEXEC);

	assert_int_equal(fs_write_at(group, file, &content, 0644, &err), 0);
	close(group);
}

static int begin(void **state)
{
	assert_int_equal(fs_remove_tree_blocking(cg.hierarchies[0].fd, "c", &err), 0);
	return mkdirat(cg.hierarchies[0].fd, "c", 0755);
}

static struct usage read_all(bool is_v2, bool has_details)
{
	struct usage u;

	cg.hierarchies[0].is_v2 = cg.is_pure_v2 = is_v2;
	cg.v2 = is_v2 ? 0 : -1;
	for (int c = 0; c < CONTROLLER_COUNT; c++)
		cg.of[c] = is_v2 && c == CONTROLLER_CPUACCT ? -1 : 0;
	assert_int_equal(cgroup_usage(&cg, "/c", has_details, &u, &err), 0);
	assert_true(u.at > 0);
	return u;
}

static struct usage read_usage(bool is_v2)
{
	return read_all(is_v2, false);
}

static void devices_and_page_sizes_are_told_apart(void **state)
{
	struct usage u;
	const struct hugepage_usage *first;

	put("io.stat", "7:0 \n8:0 rbytes=1 wbytes=2 rios=3 wios=4 dbytes=0 dios=0\n"
		       "250:7 rbytes=10 wbytes=20 rios=30 wios=40 dbytes=0 dios=0\n");
	put("hugetlb.2MB.current", "4194304\n");
	put("hugetlb.1GB.current", "0\n");
	put("hugetlb.1GB.rsvd.current", "9\n");
	put("hugetlb.1GB.max", "max\n");
	u = read_all(true, true);
	assert_int_equal(u.device_count, 3);
	assert_int_equal(u.devices[2].major, 250);
	assert_int_equal(u.devices[2].minor, 7);
	assert_int_equal(u.devices[2].read_bytes, 10);
	assert_int_equal(u.devices[2].write_bytes, 20);
	assert_string_equal(u.devices[2].name, "");
	assert_int_equal(u.devices[0].write_bytes, 0);
	assert_int_equal(u.hugepage_count, 2);
	first = strcmp(u.hugepages[0].size, "2MB") ? &u.hugepages[1] : &u.hugepages[0];
	assert_string_equal(first->size, "2MB");
	assert_int_equal(first->bytes, 4194304);
	assert_int_equal(first->peak, USAGE_NONE);
	u = read_usage(true);
	assert_int_equal(u.device_count + u.hugepage_count, 0);
	begin(NULL);
	put("hugetlb.2MB.usage_in_bytes", "2097152\n");
	put("hugetlb.2MB.max_usage_in_bytes", "6291456\n");
	u = read_all(false, true);
	assert_int_equal(u.hugepage_count, 1);
	assert_int_equal(u.hugepages[0].bytes, 2097152);
	assert_int_equal(u.hugepages[0].peak, 6291456);
}

static void v2_is_read(void **state)
{
	struct usage u;

	put("cpu.stat", "usage_usec 12\nuser_usec 7\nsystem_usec 5\nnr_periods 4\n"
			"nr_throttled 3\nthrottled_usec 2\nnr_bursts 6\nburst_usec 8\n");
	put("memory.current", "1000\n");
	put("memory.max", "5000\n");
	put("memory.peak", "2000\n");
	put("memory.stat", "anon 300\nfile 600\nkernel 50\nfile_mapped 20\ninactive_file 400\n"
			   "inactive_file_not 1\npgfault 9\npgmajfault 8\nactive_file 200\n"
			   "file_dirty 31\nfile_writeback 32\n"
			   "workingset_refault_anon 35\nworkingset_refault_file 36\n");
	put("memory.swap.current", "100\n");
	put("memory.swap.max", "150\n");
	put("memory.events", "low 0\nhigh 5\nmax 6\noom 2\noom_kill 1\n");
	put("io.stat", "8:0 rbytes=1 wbytes=2 rios=3 wios=4 dbytes=0 dios=0\n"
		       "8:16 rbytes=10 wbytes=20 rios=30 wios=40 dbytes=0 dios=0\n");
	put("pids.current", "11\n");
	put("pids.max", "max\n");
	put("cgroup.procs", "5\n6\n7\n");
	put("cpu.pressure", "some avg10=1.05 avg60=20.50 avg300=0.00 total=77\n");
	put("memory.pressure", "some avg10=0.00 avg60=0.00 avg300=3.10 total=1\n"
			       "full avg10=100.00 avg60=0.00 avg300=0.01 total=2\n");
	u = read_usage(true);
	assert_int_equal(u.figures[USAGE_CPU], 12000);
	assert_int_equal(u.figures[USAGE_CPU_USER], 7000);
	assert_int_equal(u.figures[USAGE_CPU_SYSTEM], 5000);
	assert_int_equal(u.figures[USAGE_CPU_PERIODS], 4);
	assert_int_equal(u.figures[USAGE_CPU_THROTTLED_PERIODS], 3);
	assert_int_equal(u.figures[USAGE_CPU_THROTTLED], 2000);
	assert_int_equal(u.figures[USAGE_CPU_BURSTS], 6);
	assert_int_equal(u.figures[USAGE_CPU_BURST], 8000);
	assert_int_equal(u.figures[USAGE_MEMORY_ACTIVE_FILE], 200);
	assert_int_equal(u.figures[USAGE_MEMORY_DIRTY], 31);
	assert_int_equal(u.figures[USAGE_MEMORY_WRITEBACK], 32);
	assert_int_equal(u.figures[USAGE_ANON_REFAULTS], 35);
	assert_int_equal(u.figures[USAGE_FILE_REFAULTS], 36);
	assert_int_equal(u.figures[USAGE_MEMORY], 1000);
	assert_int_equal(u.figures[USAGE_MEMORY_LIMIT], 5000);
	assert_int_equal(u.figures[USAGE_MEMORY_PEAK], 2000);
	assert_int_equal(u.figures[USAGE_MEMORY_FAILURES], 6);
	assert_int_equal(u.figures[USAGE_MEMORY_RSS], 300);
	assert_int_equal(u.figures[USAGE_MEMORY_CACHE], 600);
	assert_int_equal(u.figures[USAGE_MEMORY_MAPPED], 20);
	assert_int_equal(u.figures[USAGE_MEMORY_KERNEL], 50);
	assert_int_equal(usage_working_set(&u), 600);
	assert_int_equal(u.figures[USAGE_PAGE_FAULTS], 9);
	assert_int_equal(u.figures[USAGE_MAJOR_PAGE_FAULTS], 8);
	assert_int_equal(u.figures[USAGE_SWAP], 100);
	assert_int_equal(u.figures[USAGE_SWAP_LIMIT], 150);
	assert_int_equal(u.figures[USAGE_OOM_KILLS], 1);
	assert_int_equal(u.figures[USAGE_TASKS], 11);
	assert_int_equal(u.figures[USAGE_TASKS_LIMIT], USAGE_NONE);
	assert_int_equal(u.figures[USAGE_PROCESSES], 3);
	assert_int_equal(u.figures[USAGE_READ_BYTES], 11);
	assert_int_equal(u.figures[USAGE_WRITE_BYTES], 22);
	assert_int_equal(u.figures[USAGE_READS], 33);
	assert_int_equal(u.figures[USAGE_WRITES], 44);
	assert_int_equal(u.figures[USAGE_DESCRIPTORS], USAGE_NONE);
	assert_true(u.cpu.is_known && u.memory.is_known && !u.io.is_known);
	assert_int_equal(u.cpu.some.total, 77000);
	assert_float_equal(u.cpu.some.average[0], 1.05, 0.0001);
	assert_float_equal(u.cpu.some.average[1], 20.5, 0.0001);
	assert_int_equal(u.cpu.full.total, 0);
	assert_float_equal(u.memory.some.average[2], 3.1, 0.0001);
	assert_float_equal(u.memory.full.average[0], 100, 0.0001);
	assert_float_equal(u.memory.full.average[2], 0.01, 0.0001);
	assert_int_equal(u.memory.full.total, 2000);
}

static void v1_is_read(void **state)
{
	struct usage u;

	put("cpuacct.usage", "12000\n");
	put("cpuacct.usage_user", "7000\n");
	put("cpuacct.usage_sys", "5000\n");
	put("cpu.stat", "nr_periods 4\nnr_throttled 3\nthrottled_time 2000\n");
	put("memory.usage_in_bytes", "1000\n");
	put("memory.limit_in_bytes", "5000\n");
	put("memory.memsw.limit_in_bytes", "5150\n");
	put("memory.max_usage_in_bytes", "2000\n");
	put("memory.failcnt", "6\n");
	put("memory.oom_control", "oom_kill_disable 0\nunder_oom 0\noom_kill 1\n");
	put("memory.stat", "rss 1\ninactive_file 2\ntotal_rss 300\ntotal_cache 600\n"
			   "total_mapped_file 20\ntotal_inactive_file 400\ntotal_pgfault 9\n"
			   "total_pgmajfault 8\ntotal_swap 100\n");
	u = read_usage(false);
	assert_int_equal(u.figures[USAGE_CPU], 12000);
	assert_int_equal(u.figures[USAGE_CPU_USER], 7000);
	assert_int_equal(u.figures[USAGE_CPU_THROTTLED], 2000);
	assert_int_equal(u.figures[USAGE_MEMORY_LIMIT], 5000);
	assert_int_equal(u.figures[USAGE_MEMORY_FAILURES], 6);
	assert_int_equal(u.figures[USAGE_MEMORY_RSS], 300);
	assert_int_equal(u.figures[USAGE_MAJOR_PAGE_FAULTS], 8);
	assert_int_equal(usage_working_set(&u), 600);
	assert_int_equal(u.figures[USAGE_SWAP], 100);
	assert_int_equal(u.figures[USAGE_SWAP_LIMIT], 150);
	assert_int_equal(u.figures[USAGE_OOM_KILLS], 1);
	assert_int_equal(u.figures[USAGE_TASKS], USAGE_NONE);
	assert_false(u.cpu.is_known);
}

static void v1_without_limits_has_none(void **state)
{
	struct usage u;

	put("memory.limit_in_bytes", "9223372036854771712\n");
	put("memory.memsw.limit_in_bytes", "9223372036854771712\n");
	u = read_usage(false);
	assert_int_equal(u.figures[USAGE_MEMORY_LIMIT], USAGE_NONE);
	assert_int_equal(u.figures[USAGE_SWAP_LIMIT], USAGE_NONE);
	put("memory.limit_in_bytes", "5000\n");
	u = read_usage(false);
	assert_int_equal(u.figures[USAGE_MEMORY_LIMIT], 5000);
	assert_int_equal(u.figures[USAGE_SWAP_LIMIT], USAGE_NONE);
}

/* Nothing is taken for nothing: a missing file is no zero. */
static void what_is_not_there_is_unknown(void **state)
{
	struct usage u = read_usage(true);

	for (int i = 0; i < USAGE_COUNT; i++)
		if (i != USAGE_PROCESSES)
			assert_int_equal(u.figures[i], USAGE_NONE);
	assert_false(u.cpu.is_known || u.memory.is_known || u.io.is_known);
	put("memory.pressure", "nonsense\n");
	put("memory.stat", "\nanon\n anon 5\nanon x\n");
	put("cpu.stat", "");
	u = read_usage(true);
	assert_false(u.memory.is_known);
	assert_int_equal(u.figures[USAGE_CPU], USAGE_NONE);
	assert_int_equal(u.figures[USAGE_MEMORY_RSS], 0);
	assert_int_equal(usage_working_set(&u), USAGE_NONE);
	assert_int_equal(cgroup_usage(&cg, "/gone", false, &u, &err), -ERR_NOT_FOUND);
}

static void what_is_left_is_never_below_zero(void **state)
{
	struct usage u;

	usage_init(&u);
	u.figures[USAGE_MEMORY] = 100;
	u.figures[USAGE_MEMORY_INACTIVE_FILE] = 200;
	assert_int_equal(usage_working_set(&u), 0);
	assert_int_equal(usage_left(10, 20), 0);
	assert_int_equal(usage_left(20, 5), 15);
	assert_int_equal(usage_left(USAGE_NONE, 5), USAGE_NONE);
	assert_int_equal(usage_left(20, USAGE_NONE), USAGE_NONE);
}

static void a_sum_has_what_counts_for_both(void **state)
{
	struct usage a, b;

	usage_init(&a);
	usage_init(&b);
	b.at = 7;
	b.figures[USAGE_MEMORY] = 5;
	b.figures[USAGE_MEMORY_LIMIT] = 50;
	usage_add(&a, &b);
	b.figures[USAGE_SWAP] = 3;
	usage_add(&a, &b);
	assert_int_equal(a.at, 7);
	assert_int_equal(a.figures[USAGE_MEMORY], 10);
	assert_int_equal(a.figures[USAGE_SWAP], 3);
	assert_int_equal(a.figures[USAGE_CPU], USAGE_NONE);
	assert_int_equal(a.figures[USAGE_MEMORY_LIMIT], USAGE_NONE);
}

static void interfaces_are_read(void **state)
{
	char text[] =
		"Inter-|   Receive                                                |  Transmit\n"
		" face |bytes    packets errs drop fifo frame compressed multicast|bytes    "
		"packets errs drop fifo colls carrier compressed\n"
		"    lo:     100       2    3    4    0     0          0         0      500"
		"       6    7    8    0     0       0          0\n"
		"averylongname15:9 0 0 0 0 0 0 0 18446744073709551615 0 0 0 0 0 0 0\n"
		"  eth1: 1 2 3\n";
	struct net_list list = {0};

	net_usage_parse(text, &list);
	assert_int_equal(list.count, 2);
	assert_string_equal(list.items[0].name, "lo");
	assert_int_equal(list.items[0].received.bytes, 100);
	assert_int_equal(list.items[0].received.packets, 2);
	assert_int_equal(list.items[0].received.errors, 3);
	assert_int_equal(list.items[0].received.dropped, 4);
	assert_int_equal(list.items[0].sent.bytes, 500);
	assert_int_equal(list.items[0].sent.packets, 6);
	assert_int_equal(list.items[0].sent.errors, 7);
	assert_int_equal(list.items[0].sent.dropped, 8);
	assert_string_equal(list.items[1].name, "averylongname15");
	assert_int_equal(list.items[1].sent.bytes, UINT64_MAX);
	net_list_done(&list);
	assert_null(list.items);
}

static void a_rate_is_that_between_two_looks(void **state)
{
	struct cpu_rate r = {0};
	int64_t at = 1700000000ll * SECOND;

	assert_int_equal(cpu_rate_add(&r, at, 5 * SECOND), USAGE_NONE);
	/* too soon to tell */
	assert_int_equal(cpu_rate_add(&r, at + SECOND / 2, 6 * SECOND), USAGE_NONE);
	/* two processors for two seconds */
	assert_int_equal(cpu_rate_add(&r, at + 2 * SECOND, 9 * SECOND), 2 * SECOND);
	/* who asks again at once gets the same */
	assert_int_equal(cpu_rate_add(&r, at + 2 * SECOND + 1, 9 * SECOND + 1), 2 * SECOND);
	assert_int_equal(cpu_rate_add(&r, at + 4 * SECOND, 9 * SECOND), 0);
	/* begun anew, or the clock was set back */
	assert_int_equal(cpu_rate_add(&r, at + 6 * SECOND, SECOND), USAGE_NONE);
	assert_int_equal(cpu_rate_add(&r, at, SECOND), USAGE_NONE);
	/* a week on 1000 processors */
	assert_int_equal(cpu_rate_add(&r, at + 604800 * SECOND, 604800001 * SECOND), 1000 * SECOND);
}

static int setup_all(void **state)
{
	if (!mkdtemp(root))
		return -1;
	cg.count = 1;
	cg.devices_program = -1;
	cg.hierarchies[0].fd = open(root, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	return cg.hierarchies[0].fd < 0 ? -1 : 0;
}

static int teardown_all(void **state)
{
	int r = fs_remove_tree_blocking(cg.hierarchies[0].fd, "c", &err);

	close(cg.hierarchies[0].fd);
	return r < 0 ? r : rmdir(root);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup(v2_is_read, begin),
		cmocka_unit_test_setup(devices_and_page_sizes_are_told_apart, begin),
		cmocka_unit_test_setup(v1_is_read, begin),
		cmocka_unit_test_setup(v1_without_limits_has_none, begin),
		cmocka_unit_test_setup(what_is_not_there_is_unknown, begin),
		cmocka_unit_test(what_is_left_is_never_below_zero),
		cmocka_unit_test(a_sum_has_what_counts_for_both),
		cmocka_unit_test(interfaces_are_read),
		cmocka_unit_test(a_rate_is_that_between_two_looks),
	};

	return RUN_GROUP(tests, setup_all, teardown_all);
}
