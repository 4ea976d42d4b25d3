/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Kills for memory as cgroup v2 counts and tells them, on plain files in a directory that stands
 * for cgroupfs; test_cgroup has v1's on the real one.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/inotify.h>
#include <sys/stat.h>
#include <unistd.h>

#include "io/base/cleanup.h"
#include "sandbox/linux/cgroup_priv.h"
#include "tests/lib/group.h"

static char root[] = "/tmp/crisp-test-oom-XXXXXX";
static struct cgroups cg;
static struct error err;

static void put(const char *file, const char *text)
{
	int fd = openat(cg.hierarchies[0].fd, file, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);

	assert_true(fd >= 0);
	assert_int_equal(write(fd, text, strlen(text)), strlen(text));
	close(fd);
}

/* So many kills in the container, so many times by the limit of it, the pod, and kubepods. */
static void set_counters(int kills, int own, int pod, int all)
{
	char text[128];

	snprintf(text, sizeof(text), "low 0\nhigh 0\nmax 9\noom 7\noom_kill %d\noom_group_kill 0\n",
		 kills);
	put("kubepods/pod/c/memory.events", text);
	snprintf(text, sizeof(text), "low 0\nmax 9\noom %d\noom_kill %d\n", own, kills);
	put("kubepods/pod/c/memory.events.local", text);
	snprintf(text, sizeof(text), "max 9\noom %d\noom_kill 0\n", pod);
	put("kubepods/pod/memory.events.local", text);
	snprintf(text, sizeof(text), "max 9\noom %d\noom_kill 0\n", all);
	put("kubepods/memory.events.local", text);
}

static struct cgroup_oom read_oom(const struct cgroup_oom *seen)
{
	struct cgroup_oom oom;

	assert_int_equal(cgroup_oom_read(&cg, "/kubepods/pod/c", seen, &oom, &err), 0);
	return oom;
}

static void expect_culprit(int own, int pod, int all, const char *culprit)
{
	struct cgroup_oom before, after;
	cleanup_free char *found = NULL;

	set_counters(1, 3, 4, 5);
	before = read_oom(NULL);
	assert_int_equal(before.kills, 1);
	set_counters(2, 3 + own, 4 + pod, 5 + all);
	after = read_oom(&before);
	assert_int_equal(after.kills, 2);
	found = cgroup_oom_culprit(&cg, "/kubepods/pod/c", &before, &after);
	if (culprit)
		assert_string_equal(found, culprit);
	else
		assert_null(found);
}

static void the_counters_say_by_whose_limit(void **state)
{
	expect_culprit(1, 0, 0, "/kubepods/pod/c");
	expect_culprit(0, 1, 0, "/kubepods/pod");
	expect_culprit(0, 0, 1, "/kubepods");
	expect_culprit(1, 1, 1, "/kubepods/pod/c");
	/* of no limit's, and no kernel has reported it */
	expect_culprit(0, 0, 0, NULL);
}

/* Limits that are hit without a kill are of no interest before there is one. */
static void without_kills_nothing_is_new(void **state)
{
	struct cgroup_oom before, after;

	set_counters(1, 3, 4, 5);
	before = read_oom(NULL);
	set_counters(1, 30, 40, 50);
	after = read_oom(&before);
	assert_memory_equal(&before, &after, sizeof(before));
	assert_int_equal(cgroup_oom_read(&cg, "/kubepods/none", NULL, &after, &err),
			 -ERR_NOT_FOUND);
}

static void one_descriptor_tells_of_all(void **state)
{
	cleanup_close int fd = inotify_init1(IN_CLOEXEC | IN_NONBLOCK);
	struct inotify_event event;
	int watch = -1, other = -1;

	put("kubepods/pod/d/memory.events", "oom_kill 0\n");
	assert_int_equal(cgroup_oom_events(&cg), OOM_EVENTS_INOTIFY);
	assert_int_equal(cgroup_oom_watch(&cg, "/kubepods/pod/c", fd, &watch, &err), 0);
	assert_int_equal(cgroup_oom_watch(&cg, "/kubepods/pod/d", fd, &other, &err), 0);
	assert_int_not_equal(watch, other);
	assert_true(read(fd, &event, sizeof(event)) < 0);
	put("kubepods/pod/d/memory.events", "oom_kill 1\n");
	assert_int_equal(read(fd, &event, sizeof(event)), sizeof(event));
	assert_int_equal(event.wd, other);
	assert_true(event.mask & IN_MODIFY);
	assert_true(cgroup_oom_watch(&cg, "/kubepods/none", fd, &other, &err) < 0);
}

static int setup(void **state)
{
	static const char *const groups[] = {"kubepods", "kubepods/pod", "kubepods/pod/c",
					     "kubepods/pod/d"};

	assert_non_null(mkdtemp(root));
	cg.hierarchies[0].fd = open(root, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	cg.hierarchies[0].is_v2 = cg.is_pure_v2 = true;
	cg.count = 1;
	for (size_t i = 0; i < sizeof(groups) / sizeof(groups[0]); i++)
		assert_int_equal(mkdirat(cg.hierarchies[0].fd, groups[i], 0755), 0);
	return 0;
}

static int teardown(void **state)
{
	cleanup_free char *command = NULL;

	close(cg.hierarchies[0].fd);
	return asprintf(&command, "rm -r %s", root) < 0 || system(command) != 0;
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(the_counters_say_by_whose_limit),
		cmocka_unit_test(without_kills_nothing_is_new),
		cmocka_unit_test(one_descriptor_tells_of_all),
	};

	return RUN_GROUP(tests, setup, teardown);
}
