/* SPDX-License-Identifier: Apache-2.0 */
/* Reports of kernels that killed for memory, as /dev/kmsg gives them. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "io/base/cleanup.h"
#include "sandbox/linux/oom_report.h"
#include "tests/lib/group.h"

#define CONTAINER "/kubepods/burstable/pod1/c1"

/* prefix: level of the kernel's facility, serial number, microseconds, flags */
#define REPORT(level, limit, victim)                                                               \
	level ",1234,5678,-;oom-kill:constraint=CONSTRAINT_MEMCG,nodemask=(null),cpuset=c1,"       \
	      "mems_allowed=0," limit ",task_memcg=" victim ",task=tail,pid=7,uid=0\n"

static void expect(const char *record, const char *path, const char *culprit)
{
	cleanup_free char *found = oom_report_parse(record, path);

	if (culprit)
		assert_string_equal(found ? found : "(none)", culprit);
	else
		assert_null(found);
}

static void the_limit_is_its_own(void **state)
{
	expect(REPORT("6", "oom_memcg=" CONTAINER, CONTAINER), CONTAINER, CONTAINER);
}

static void the_limit_is_a_group_s_above(void **state)
{
	expect(REPORT("6", "oom_memcg=/kubepods/burstable/pod1", CONTAINER), CONTAINER,
	       "/kubepods/burstable/pod1");
	expect(REPORT("6", "oom_memcg=/kubepods", CONTAINER), CONTAINER, "/kubepods");
	expect(REPORT("6", "oom_memcg=/", CONTAINER), CONTAINER, "/");
}

static void the_node_has_no_memory_left(void **state)
{
	expect(REPORT("6", "global_oom", CONTAINER), CONTAINER, "/");
}

/* As seen from a cgroup namespace, or from a container that has the node's hierarchy. */
static void paths_may_begin_elsewhere(void **state)
{
	expect(REPORT("6", "oom_memcg=/outer/kubepods", "/outer" CONTAINER), CONTAINER,
	       "/kubepods");
	expect(REPORT("6", "oom_memcg=/outer" CONTAINER, "/outer" CONTAINER), CONTAINER, CONTAINER);
	expect(REPORT("6", "oom_memcg=/outer", "/outer" CONTAINER), CONTAINER, "/");
}

static void groups_of_the_container_s_own_are_its(void **state)
{
	expect(REPORT("6", "oom_memcg=" CONTAINER "/a", CONTAINER "/a/b"), CONTAINER, CONTAINER);
	expect(REPORT("6", "oom_memcg=/kubepods", CONTAINER "/a/b"), CONTAINER, "/kubepods");
}

static void other_records_are_none(void **state)
{
	expect(REPORT("6", "oom_memcg=/kubepods", "/kubepods/burstable/pod1/c12"), CONTAINER, NULL);
	expect(REPORT("6", "oom_memcg=/kubepods", "/kubepods/other"), CONTAINER, NULL);
	expect("6,1,2,-;Memory cgroup out of memory: Killed process 7 (tail)\n", CONTAINER, NULL);
	expect("6,1,2,-;oom-kill:constraint=CONSTRAINT_MEMCG\n", CONTAINER, NULL);
	expect("", CONTAINER, NULL);
	expect("6", CONTAINER, NULL);
}

/* What a program wrote to /dev/kmsg has another facility, whatever it says. */
static void forged_records_are_none(void **state)
{
	expect(REPORT("14", "oom_memcg=/kubepods", CONTAINER), CONTAINER, NULL);
	expect(REPORT("8", "oom_memcg=/kubepods", CONTAINER), CONTAINER, NULL);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(the_limit_is_its_own),
		cmocka_unit_test(the_limit_is_a_group_s_above),
		cmocka_unit_test(the_node_has_no_memory_left),
		cmocka_unit_test(paths_may_begin_elsewhere),
		cmocka_unit_test(groups_of_the_container_s_own_are_its),
		cmocka_unit_test(other_records_are_none),
		cmocka_unit_test(forged_records_are_none),
	};

	return RUN_GROUP(tests, NULL, NULL);
}
