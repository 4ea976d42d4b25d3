/* SPDX-License-Identifier: Apache-2.0 */
/*
 * SELinux's side of the node. Peculiar: no kernel is asked. A tree stands for the host's root, a
 * directory of it for selinuxfs; so nothing here shows what an SELinux kernel does.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "io/base/alloc.h"
#include "io/base/cleanup.h"
#include "io/fs.h"
#include "sandbox/linux/selinux.h"

static char dir[] = "/tmp/crisp-selinux-XXXXXX";
static int root, fs;
static struct error err;

static void put(const char *place, const char *name, const char *text)
{
	char *path cleanup_free = xasprintf("%s/%s", dir, place);
	struct buf content = {0};
	cleanup_close int at = -1;

	assert_int_equal(fs_make_dirs(path, 0755, &err), 0);
	at = open(path, O_PATH | O_DIRECTORY | O_CLOEXEC);
	buf_puts(&content, text);
	assert_int_equal(fs_write_at(at, name, &content, 0644, &err), 0);
	buf_done(&content);
}

static int setup(void **state)
{
	assert_non_null(mkdtemp(dir));
	root = open(dir, O_PATH | O_DIRECTORY | O_CLOEXEC);
	put("sys/fs/selinux", "enforce", "1");
	fs = fs_openat2(root, "sys/fs/selinux", O_PATH | O_DIRECTORY, 0, 0);
	return root < 0 || fs < 0;
}

static int teardown(void **state)
{
	cleanup_close int tmp = open("/tmp", O_PATH | O_DIRECTORY | O_CLOEXEC);

	close(root);
	close(fs);
	return fs_remove_tree_blocking(tmp, dir + strlen("/tmp/"), &err);
}

static void a_directory_is_no_selinuxfs(void **state)
{
	struct selinux s;

	put("usr/share/containers/selinux", "contexts", "process = \"u:r:t:s0\"\n");
	assert_int_equal(selinux_open_fs(root), -1);
	s = selinux_open(root);
	assert_int_equal(s.fs, -1);
	assert_null(s.process);
	selinux_done(&s);
	assert_int_equal(unlinkat(root, "usr/share/containers/selinux/contexts", 0), 0);
}

static void the_mode_is_told(void **state)
{
	assert_true(selinux_is_enforcing(fs));
	put("sys/fs/selinux", "enforce", "0");
	assert_false(selinux_is_enforcing(fs));
}

static void expect_policy(const char *process, const char *file)
{
	struct selinux s = SELINUX_NONE;

	selinux_read_policy(root, &s);
	if (process)
		assert_string_equal(s.process, process);
	else
		assert_null(s.process);
	if (file)
		assert_string_equal(s.file, file);
	else
		assert_null(s.file);
	selinux_done(&s);
}

static void the_policys_labels_are_found(void **state)
{
	expect_policy(NULL, NULL);
	put("etc/selinux/mine/contexts", "lxc_contexts",
	    "# process = \"a:b:c:s0\"\nprocess = \"u:r:old_t:s0\"\n"
	    "process=\t\"u:r:lxc_t:s0\"\ncontent = \"u:r:x_t:s0\"\nfile =\"u:r:lxc_file_t:s0\"");
	expect_policy(NULL, NULL);
	put("etc/selinux", "config", "SELINUX=enforcing\n #SELINUXTYPE=other\nSELINUXTYPE=mine \n");
	expect_policy("u:r:lxc_t:s0", "u:r:lxc_file_t:s0");
	put("etc/selinux", "config", "SELINUXTYPE=../selinux/mine\n");
	expect_policy(NULL, NULL);
	put("usr/share/containers/selinux", "contexts", "process = \"u:r:container_t:s0\"\n");
	expect_policy("u:r:container_t:s0", NULL);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_directory_is_no_selinuxfs),
		cmocka_unit_test(the_mode_is_told),
		cmocka_unit_test(the_policys_labels_are_found),
	};

	return cmocka_run_group_tests(tests, setup, teardown);
}
