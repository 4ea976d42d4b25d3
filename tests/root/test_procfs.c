/* SPDX-License-Identifier: Apache-2.0 */
/* io/procfs: nothing is written but to the kernel's own files, whatever covers them. Needs root,
 * and a mount namespace of its own. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <unistd.h>

#include "io/base/cleanup.h"
#include "io/procfs.h"
#include "tests/lib/group.h"

#define SCORE "self/oom_score_adj"
#define SYSCTL "sys/net/ipv4/ip_unprivileged_port_start"

static char canary[] = "/tmp/crisp-test-procfs-XXXXXX";

static int setup(void **state)
{
	cleanup_close int fd = mkstemp(canary);

	if (fd < 0 || write(fd, "canary", 6) != 6)
		return -1;
	/* sysctls of the net namespace are changed, too */
	if (unshare(CLONE_NEWNS | CLONE_NEWNET) < 0)
		return -1;
	return mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL);
}

static int teardown(void **state)
{
	return unlink(canary);
}

static void is_text(const char *path, const char *want)
{
	char text[64] = "";
	cleanup_close int fd = open(path, O_RDONLY | O_CLOEXEC);
	ssize_t n = read(fd, text, sizeof(text) - 1);

	assert_true(n > 0);
	if (text[n - 1] == '\n')
		text[n - 1] = 0;
	assert_string_equal(text, want);
}

static void cover(const char *with, const char *path)
{
	assert_int_equal(mount(with, path, NULL, MS_BIND, NULL), 0);
}

static void uncover(const char *path)
{
	assert_int_equal(umount2(path, MNT_DETACH), 0);
}

static void what_is_there_is_written(void **state)
{
	cleanup_close int self = procfs_open("self", O_PATH | O_DIRECTORY);

	assert_true(self >= 0);
	assert_int_equal(procfs_write(SCORE, "501"), 0);
	is_text("/proc/" SCORE, "501");
	assert_int_equal(procfs_write_at(self, "oom_score_adj", "502"), 0);
	is_text("/proc/" SCORE, "502");
	assert_int_equal(procfs_write("thread-self/oom_score_adj", "503"), 0);
	is_text("/proc/" SCORE, "503");
	assert_int_equal(procfs_write("self/no_such_file", "1"), -ENOENT);
	assert_int_equal(procfs_write(SCORE, "a"), -EINVAL);
}

/* What would take the text and do nothing with it. */
static void another_file_system_is_refused(void **state)
{
	assert_int_equal(mount("fake", "/proc", "tmpfs", 0, NULL), 0);
	assert_int_equal(mkdir("/proc/self", 0755), 0);
	cleanup_close int fake = open("/proc/" SCORE, O_RDWR | O_CREAT | O_CLOEXEC, 0644);

	assert_true(fake >= 0);
	assert_int_equal(procfs_write(SCORE, "504"), -EXDEV);
	assert_int_equal(lseek(fake, 0, SEEK_END), 0);
	uncover("/proc");
}

/* A part of procfs as /proc: its names mean another thing. */
static void a_part_of_procfs_is_refused(void **state)
{
	cover("/proc/sys", "/proc");
	assert_int_equal(procfs_write("kernel/domainname", "x"), -EXDEV);
	uncover("/proc");
}

/* With the kernel's own harmless file, as attackers prefer, and with one of theirs. */
static void a_covered_file_is_refused(void **state)
{
	const char *with[] = {"/proc/self/comm", canary};
	cleanup_close int self = procfs_open("self", O_PATH | O_DIRECTORY);

	assert_int_equal(procfs_write(SCORE, "505"), 0);
	is_text("/proc/self/comm", "test_procfs");
	for (size_t i = 0; i < 2; i++) {
		cover(with[i], "/proc/" SCORE);
		assert_int_equal(procfs_write(SCORE, "506"), -EXDEV);
		assert_int_equal(procfs_write_at(self, "oom_score_adj", "506"), -EXDEV);
		uncover("/proc/" SCORE);
	}
	is_text("/proc/" SCORE, "505");
	is_text("/proc/self/comm", "test_procfs");
	is_text(canary, "canary");
}

static void a_magic_link_is_refused(void **state)
{
	cleanup_close int fd = open(canary, O_RDWR | O_CLOEXEC);
	char path[32];

	snprintf(path, sizeof(path), "self/fd/%d", fd);
	assert_int_equal(procfs_write(path, "x"), -ELOOP);
	assert_int_equal(procfs_write("self/root/etc/no-such-file", "x"), -ELOOP);
	assert_int_equal(procfs_write("../etc/no-such-file", "x"), -EXDEV);
	is_text(canary, "canary");
}

/* One of our own has nothing on top, and changes the same kernel. */
static void an_own_procfs_is_never_covered(void **state)
{
	cover(canary, "/proc/" SYSCTL);
	cleanup_close int own = procfs_own();

	assert_true(own >= 0);
	assert_int_equal(procfs_write(SYSCTL, "77"), -EXDEV);
	assert_int_equal(procfs_write_at(own, SYSCTL, "78"), 0);
	is_text("/proc/" SYSCTL, "canary");
	uncover("/proc/" SYSCTL);
	is_text("/proc/" SYSCTL, "78");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(what_is_there_is_written),
		cmocka_unit_test(another_file_system_is_refused),
		cmocka_unit_test(a_part_of_procfs_is_refused),
		cmocka_unit_test(a_covered_file_is_refused),
		cmocka_unit_test(a_magic_link_is_refused),
		cmocka_unit_test(an_own_procfs_is_never_covered),
	};

	return RUN_GROUP(tests, setup, teardown);
}
