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

static void expect_policy(const char *of_process, const char *of_file)
{
	struct selinux s = SELINUX_NONE;

	selinux_read_policy(root, &s);
	assert_string_equal(s.process ?: "none", of_process ?: "none");
	assert_string_equal(s.file ?: "none", of_file ?: "none");
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

static const struct selinux_spec nothing;
static char process[] = "system_u:system_r:container_t:s0";
static char file[] = "system_u:object_r:container_file_t:s0";
static struct selinux policy = {.process = process, .file = file};

/* What stands for selinuxfs takes every label and gives back what was written. */
static void expect_labels(const struct selinux_spec *asked, const char *level,
			  const char *of_process, const char *of_file)
{
	struct selinux_labels labels;

	put("sys/fs/selinux", "context", "");
	err = (struct error){0};
	if (selinux_compose(&policy, asked, level, &labels, &err) < 0)
		fail_msg("%s", err.text);
	assert_string_equal(labels.process ?: "none", of_process ?: "none");
	assert_string_equal(labels.file ?: "none", of_file ?: "none");
	selinux_labels_done(&labels);
}

static void expect_refusal(const struct selinux_spec *asked, int code, const char *says)
{
	struct selinux_labels labels;

	err = (struct error){0};
	assert_int_equal(selinux_compose(&policy, asked, "s0:c1,c2", &labels, &err), code);
	if (!strstr(err.text, says))
		fail_msg("\"%s\" does not say \"%s\"", err.text, says);
	assert_null(labels.process);
	assert_null(labels.file);
}

static void what_is_left_out_is_the_policys(void **state)
{
	static const struct selinux_spec type = {.type = "mine_t"}, user = {.user = "me"},
					 role = {.role = "role"}, level = {.level = "s0:c7"},
					 all = {"u", "r", "t", "s1-s2:c1.c3,c5"};

	policy.fs = fs;
	expect_labels(&nothing, NULL, policy.process, policy.file);
	expect_labels(&nothing, "s0:c1,c2", "system_u:system_r:container_t:s0:c1,c2",
		      "system_u:object_r:container_file_t:s0:c1,c2");
	expect_labels(&type, "s0:c1,c2", "system_u:system_r:mine_t:s0:c1,c2",
		      "system_u:object_r:container_file_t:s0:c1,c2");
	expect_labels(&user, NULL, "me:system_r:container_t:s0", "me:object_r:container_file_t:s0");
	expect_labels(&role, NULL, "system_u:role:container_t:s0", policy.file);
	expect_labels(&level, "s0:c1,c2", "system_u:system_r:container_t:s0:c7",
		      "system_u:object_r:container_file_t:s0:c7");
	expect_labels(&all, "s0:c1,c2", "u:r:t:s1-s2:c1.c3,c5",
		      "u:object_r:container_file_t:s1-s2:c1.c3,c5");
	assert_string_equal(selinux_level("u:r:t:s0:c1,c2"), "s0:c1,c2");
	assert_null(selinux_level("u:r:t"));
	assert_null(selinux_level(NULL));
}

static void a_policy_without_levels_gets_none(void **state)
{
	struct selinux before = policy;
	char plain_process[] = "u:r:t", plain_file[] = "u:object_r:f";

	policy = (struct selinux){fs, plain_process, plain_file};
	expect_labels(&nothing, "s0:c1,c2", "u:r:t", "u:object_r:f");
	policy = before;
}

static void without_labels_of_the_policy_one_is_given_whole(void **state)
{
	static const struct selinux_spec part = {.type = "t", .level = "s0"},
					 whole = {"u", "r", "t", NULL};
	struct selinux before = policy;

	policy = (struct selinux){.fs = fs};
	expect_labels(&nothing, "s0:c1,c2", NULL, NULL);
	expect_labels(&whole, "s0:c1,c2", "u:r:t", NULL);
	expect_refusal(&part, -ERR_INVALID, "install container-selinux");
	policy = before;
}

static void put_link(const char *to)
{
	assert_int_equal(unlinkat(fs, "context", 0), 0);
	assert_int_equal(symlinkat(to, fs, "context"), 0);
}

/* Files of procfs stand for it, of which one refuses with EINVAL and one answers something else. */
static void the_kernel_has_the_last_word(void **state)
{
	static const struct selinux_spec type = {.type = "t"};
	struct selinux_labels labels;
	char long_type[300];

	policy.fs = fs;
	put_link("/proc/self/oom_score_adj");
	expect_refusal(&type, -ERR_INVALID, "selinux_options");
	expect_refusal(&nothing, -ERR_PRECONDITION, "container_t:s0:c1,c2");
	put_link("nowhere");
	expect_refusal(&nothing, -ERR_INTERNAL, "ask the kernel");
	put_link("/proc/self/comm");
	assert_int_equal(selinux_compose(&policy, &nothing, NULL, &labels, &err), 0);
	assert_string_equal(labels.process, "system_u:system\n");
	selinux_labels_done(&labels);
	assert_int_equal(unlinkat(fs, "context", 0), 0);
	put("sys/fs/selinux", "context", "");
	memset(long_type, 't', sizeof(long_type));
	long_type[sizeof(long_type) - 1] = 0;
	expect_refusal(&(struct selinux_spec){.type = long_type}, -ERR_INVALID, "at most 255");
}

static void without_selinux_each_part_is_refused(void **state)
{
	static const struct selinux_spec asked[] = {
		{.user = "x"}, {.role = "x"}, {.type = "x"}, {.level = "x"}};
	static const char *const names[] = {"user", "role", "type", "level"};
	struct selinux_labels labels;

	policy.fs = -1;
	for (size_t i = 0; i < 4; i++) {
		char *field cleanup_free =
			xasprintf("config.linux.security_context.selinux_options.%s:", names[i]);

		expect_refusal(&asked[i], -ERR_INVALID, field);
		expect_refusal(&asked[i], -ERR_INVALID, "no SELinux");
	}
	assert_int_equal(selinux_compose(&policy, &nothing, "s0:c1,c2", &labels, &err), 0);
	assert_null(labels.process);
	assert_null(labels.file);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_directory_is_no_selinuxfs),
		cmocka_unit_test(the_mode_is_told),
		cmocka_unit_test(the_policys_labels_are_found),
		cmocka_unit_test(what_is_left_out_is_the_policys),
		cmocka_unit_test(a_policy_without_levels_gets_none),
		cmocka_unit_test(without_labels_of_the_policy_one_is_given_whole),
		cmocka_unit_test(the_kernel_has_the_last_word),
		cmocka_unit_test(without_selinux_each_part_is_refused),
	};

	return cmocka_run_group_tests(tests, setup, teardown);
}
