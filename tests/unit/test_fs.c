/* SPDX-License-Identifier: Apache-2.0 */
/* io/fs: nothing is opened outside, trees of any depth go, links and their targets stay apart. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "io/base/cleanup.h"
#include "io/fs.h"
#include "io/offload.h"
#include "io/task.h"
#include "tests/lib/group.h"

static char top_path[] = "/tmp/crisp-test-fs-XXXXXX";
static int top;

static int setup(void **state)
{
	if (!mkdtemp(top_path))
		return -1;
	top = open(top_path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	return top < 0 ? -1 : 0;
}

static int teardown(void **state)
{
	close(top);
	return rmdir(top_path);
}

static void make_file(int dir, const char *name, const char *text)
{
	cleanup_close int fd = openat(dir, name, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);

	assert_true(fd >= 0);
	assert_int_equal(write(fd, text, strlen(text)), strlen(text));
}

static bool exists(const char *name)
{
	struct stat st;

	return fstatat(top, name, &st, AT_SYMLINK_NOFOLLOW) == 0;
}

#define LONG_NAME "so-long-a-name-that-a-path-of-a-hundred-is-over-PATH_MAX"

/* depth directories within each other, with two files in each */
static void make_deep(const char *name, int depth)
{
	cleanup_close int cur = dup(top);

	for (int i = 0; i < depth; i++) {
		const char *dir = i ? LONG_NAME : name;
		int next;

		assert_int_equal(mkdirat(cur, dir, 0755), 0);
		next = openat(cur, dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
		assert_true(next >= 0);
		close(cur);
		cur = next;
		make_file(cur, "a", "a");
		make_file(cur, "0", "b");
	}
}

static void test_remove_deep(void **state)
{
	struct error err;

	make_deep("deep", 300);
	assert_int_equal(fs_remove_tree_blocking(top, "deep", &err), 0);
	assert_false(exists("deep"));
}

static void test_remove_wide(void **state)
{
	struct error err;
	char name[32];

	assert_int_equal(mkdirat(top, "wide", 0755), 0);
	for (int i = 0; i < 300; i++) {
		snprintf(name, sizeof(name), "wide/%d", i);
		if (i % 3)
			make_file(top, name, "x");
		else
			assert_int_equal(mkdirat(top, name, 0), 0);
		if (i % 6 == 0) {
			snprintf(name, sizeof(name), "wide/%d/f", i);
			make_file(top, name, "x");
		}
	}
	assert_int_equal(fs_remove_tree_blocking(top, "wide", &err), 0);
	assert_false(exists("wide"));
}

static void test_remove_links(void **state)
{
	struct error err;

	assert_int_equal(mkdirat(top, "kept", 0755), 0);
	make_file(top, "kept/f", "x");
	assert_int_equal(mkdirat(top, "tree", 0755), 0);
	assert_int_equal(symlinkat("../kept", top, "tree/link"), 0);
	assert_int_equal(symlinkat("kept", top, "alone"), 0);
	assert_int_equal(fs_remove_tree_blocking(top, "tree", &err), 0);
	assert_int_equal(fs_remove_tree_blocking(top, "alone", &err), 0);
	assert_int_equal(fs_remove_tree_blocking(top, "never-there", &err), 0);
	assert_true(exists("kept/f"));
	assert_int_equal(fs_remove_tree_blocking(top, "kept", &err), 0);
	assert_int_equal(fs_remove_tree_blocking(top, "kept", &err), 0);
}

static void test_open(void **state)
{
	struct error err;
	int fd = -1;

	assert_int_equal(mkdirat(top, "root", 0755), 0);
	make_file(top, "out", "outside");
	make_file(top, "root/in", "inside");
	assert_int_equal(symlinkat("../out", top, "root/up"), 0);
	assert_int_equal(symlinkat("/in", top, "root/abs"), 0);
	cleanup_close int root = openat(top, "root", O_RDONLY | O_DIRECTORY | O_CLOEXEC);

	assert_int_equal(fs_open_beneath(root, "../out", O_RDONLY, 0, &fd, &err), -ERR_INTERNAL);
	assert_int_equal(err.sys, EXDEV);
	assert_int_equal(fs_open_beneath(root, "up", O_RDONLY, 0, &fd, &err), -ERR_INTERNAL);
	assert_int_equal(fs_open_beneath(root, "abs", O_RDONLY, 0, &fd, &err), -ERR_INTERNAL);
	assert_int_equal(fs_open_in_root(root, "up", O_RDONLY, 0, &fd, &err), -ERR_INTERNAL);
	assert_int_equal(err.sys, ENOENT);
	assert_int_equal(fs_open_in_root(root, "../../abs", O_RDONLY, 0, &fd, &err), 0);
	close(fd);
	assert_int_equal(fs_open_beneath(root, "in", O_RDONLY, 0, &fd, &err), 0);
	close(fd);
	assert_int_equal(fs_remove_tree_blocking(top, "root", &err), 0);
	assert_int_equal(unlinkat(top, "out", 0), 0);
}

static void test_read(void **state)
{
	struct error err;
	struct buf b = {0};

	make_file(top, "doc", "12345");
	assert_int_equal(fs_read_at(top, "doc", 5, &b, &err), 0);
	assert_string_equal(b.data, "12345");
	assert_int_equal(fs_read_at(top, "doc", 4, &b, &err), -ERR_INVALID);
	assert_int_equal(fs_read_at(top, "nodoc", 4, &b, &err), -ERR_NOT_FOUND);
	assert_int_equal(fs_read_at(top, ".", 4, &b, &err), -ERR_INVALID);
	assert_int_equal(mkfifoat(top, "fifo", 0600), 0);
	assert_int_equal(fs_read_at(top, "fifo", 4, &b, &err), -ERR_INVALID);
	buf_done(&b);
	unlinkat(top, "doc", 0);
	unlinkat(top, "fifo", 0);
}

static void test_usage(void **state)
{
	uint64_t bytes = 0, inodes = 0;
	struct error err;
	static char page[8192] = {1};

	assert_int_equal(mkdirat(top, "u", 0755), 0);
	assert_int_equal(mkdirat(top, "u/d", 0755), 0);
	cleanup_close int fd = openat(top, "u/d/f", O_WRONLY | O_CREAT | O_CLOEXEC, 0600);

	assert_int_equal(write(fd, page, sizeof(page)), sizeof(page));
	assert_int_equal(fsync(fd), 0);
	assert_int_equal(linkat(top, "u/d/f", top, "u/g", 0), 0);
	assert_int_equal(symlinkat("/etc", top, "u/l"), 0);
	cleanup_close int dir = openat(top, "u", O_RDONLY | O_DIRECTORY | O_CLOEXEC);

	assert_int_equal(fs_usage(dir, &bytes, &inodes, &err), 0);
	assert_int_equal(inodes, 4);
	assert_in_range(bytes, 8192, 8192 + 3 * 4096);
	assert_int_equal(fs_remove_tree_blocking(top, "u", &err), 0);
}

static atomic_bool is_measured;

static void *come_and_go(void *arg)
{
	char name[16];

	while (!is_measured) {
		for (int i = 0; i < 200; i++) {
			snprintf(name, sizeof(name), "busy/%d", i);
			mkdirat(top, name, 0755);
		}
		for (int i = 0; i < 200; i++) {
			snprintf(name, sizeof(name), "busy/%d", i);
			unlinkat(top, name, AT_REMOVEDIR);
		}
	}
	return NULL;
}

static void test_usage_of_what_changes(void **state)
{
	uint64_t bytes, inodes;
	struct error err;
	pthread_t thread;

	assert_int_equal(mkdirat(top, "busy", 0755), 0);
	cleanup_close int dir = openat(top, "busy", O_RDONLY | O_DIRECTORY | O_CLOEXEC);

	assert_int_equal(pthread_create(&thread, NULL, come_and_go, NULL), 0);
	for (int i = 0; i < 300; i++) {
		assert_int_equal(fs_usage(dir, &bytes, &inodes, &err), 0);
		assert_in_range(inodes, 1, 201);
	}
	is_measured = true;
	pthread_join(thread, NULL);
	assert_int_equal(fs_remove_tree_blocking(top, "busy", &err), 0);
}

static void remove_task(struct task *t, void *arg)
{
	make_deep("task", 5);
	*(int *)arg = fs_remove_tree(t, top, "task");
}

static void test_remove_on_task(void **state)
{
	struct error err;
	struct loop *l = loop_new_virtual(&err);
	int result = 1;

	task_start(l, "remove", remove_task, &result);
	loop_run(l);
	assert_int_equal(result, 0);
	assert_false(exists("task"));
	offload_shutdown();
	task_pool_trim();
	loop_free(l);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_remove_deep),    cmocka_unit_test(test_remove_wide),
		cmocka_unit_test(test_remove_links),   cmocka_unit_test(test_open),
		cmocka_unit_test(test_read),	       cmocka_unit_test(test_usage),
		cmocka_unit_test(test_remove_on_task), cmocka_unit_test(test_usage_of_what_changes),
	};

	return RUN_GROUP(tests, setup, teardown);
}
