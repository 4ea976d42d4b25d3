/* SPDX-License-Identifier: Apache-2.0 */
/* AppArmor's side of the node, in a tree that stands for it: no kernel is asked. */
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

#include "io/base/alloc.h"
#include "io/base/cleanup.h"
#include "io/fs.h"
#include "sandbox/linux/apparmor.h"

#define ENABLED "sys/module/apparmor/parameters"
#define LIST "sys/kernel/security/apparmor"

static char dir[] = "/tmp/crisp-apparmor-XXXXXX";
static int root;
static struct error err;

static void put(const char *place, const char *name, const char *text, mode_t mode)
{
	char *path cleanup_free = xasprintf("%s/%s", dir, place);
	struct buf content = {0};
	cleanup_close int at = -1;

	assert_int_equal(fs_make_dirs(path, 0755, &err), 0);
	at = open(path, O_PATH | O_DIRECTORY | O_CLOEXEC);
	buf_puts(&content, text);
	assert_int_equal(fs_write_at(at, name, &content, mode, &err), 0);
	buf_done(&content);
}

static int setup(void **state)
{
	assert_non_null(mkdtemp(dir));
	root = open(dir, O_PATH | O_DIRECTORY | O_CLOEXEC);
	return root < 0;
}

static int teardown(void **state)
{
	cleanup_close int tmp = open("/tmp", O_PATH | O_DIRECTORY | O_CLOEXEC);

	close(root);
	return fs_remove_tree_blocking(tmp, dir + strlen("/tmp/"), &err);
}

static void expect(enum apparmor_kind kind, const char *profile, int code, const char *says)
{
	err = (struct error){0};
	assert_int_equal(apparmor_need(root, kind, profile, &err), code);
	if (says && !strstr(err.text, says))
		fail_msg("\"%s\" does not say \"%s\"", err.text, says);
}

static void without_it_only_a_profile_of_the_node_is_refused(void **state)
{
	for (int i = 0; i < 2; i++) {
		assert_false(apparmor_is_enabled(root));
		expect(APPARMOR_UNCONFINED, NULL, 0, NULL);
		expect(APPARMOR_RUNTIME_DEFAULT, NULL, 0, NULL);
		expect(APPARMOR_LOCALHOST, "mine", -ERR_INVALID, "no AppArmor");
		put(ENABLED, "enabled", "N\n", 0644);
	}
	assert_null(apparmor_name(APPARMOR_RUNTIME_DEFAULT, NULL, false));
}

static void a_profile_must_be_loaded(void **state)
{
	put(ENABLED, "enabled", "Y\n", 0644);
	assert_true(apparmor_is_enabled(root));
	expect(APPARMOR_UNCONFINED, NULL, 0, NULL);
	expect(APPARMOR_LOCALHOST, "mine", -ERR_PRECONDITION, "securityfs");
	put(LIST, "profiles", "mine too (enforce)\nminer (complain)\n/bin/x (enforce)", 0644);
	expect(APPARMOR_LOCALHOST, "mine", -ERR_INVALID, "mine: it is not loaded");
	expect(APPARMOR_LOCALHOST, "mine too (enforce)", -ERR_INVALID, "not loaded");
	expect(APPARMOR_LOCALHOST, "", -ERR_INVALID, "not loaded");
	expect(APPARMOR_LOCALHOST, "mine too", 0, NULL);
	expect(APPARMOR_LOCALHOST, "miner", 0, NULL);
	expect(APPARMOR_LOCALHOST, "/bin/x", 0, NULL);
	assert_string_equal(apparmor_name(APPARMOR_LOCALHOST, "miner", true), "miner");
	assert_null(apparmor_name(APPARMOR_UNCONFINED, NULL, true));
}

static void the_default_is_loaded_where_it_is_missing(void **state)
{
	expect(APPARMOR_RUNTIME_DEFAULT, NULL, -ERR_PRECONDITION, "no apparmor_parser");
	/* one that does nothing */
	put("sbin", "none", "", 0644);
	{
		char *link cleanup_free = xasprintf("%s/sbin/apparmor_parser", dir);

		assert_int_equal(symlink("/bin/true", link), 0);
	}
	expect(APPARMOR_RUNTIME_DEFAULT, NULL, -ERR_PRECONDITION, "did not load it");
	put(LIST, "profiles", "a (enforce)\n" APPARMOR_DEFAULT " (enforce)\n", 0644);
	expect(APPARMOR_RUNTIME_DEFAULT, NULL, 0, NULL);
	assert_string_equal(apparmor_name(APPARMOR_RUNTIME_DEFAULT, NULL, true), APPARMOR_DEFAULT);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(without_it_only_a_profile_of_the_node_is_refused),
		cmocka_unit_test(a_profile_must_be_loaded),
		cmocka_unit_test(the_default_is_loaded_where_it_is_missing),
	};

	return cmocka_run_group_tests(tests, setup, teardown);
}
