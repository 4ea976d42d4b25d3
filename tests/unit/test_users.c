/* SPDX-License-Identifier: Apache-2.0 */
/* Users of an image that may be hostile. */
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

#include "io/base/buf.h"
#include "sandbox/linux/users.h"

static char root[] = "/tmp/crisp-test-users-XXXXXX";
static int root_fd = -1, etc_fd = -1;
static struct error err;

static void put(const char *name, const char *text, size_t n)
{
	int fd;

	unlinkat(etc_fd, name, 0);
	fd = openat(etc_fd, name, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644);
	assert_true(fd >= 0);
	assert_int_equal(write(fd, text, n), n);
	close(fd);
}

static const char passwd[] = "root:x:0:0:root:/root:/bin/sh\n"
			     "\n"
			     "# comment\n"
			     "broken\n"
			     "daemon:x:1:1:d:/usr/sbin\n"
			     "web:x:1000:1001:,,,:/home/web:/bin/sh\n"
			     "huge:x:4294967296:0::/:/bin/sh\n"
			     "wrap:x:4294967295:0::/:/bin/sh\n"
			     "minus:x:-1:0::/:/bin/sh\n"
			     "relative:x:1002:1002::home:/bin/sh\n"
			     "1234:x:77:78::/odd:/bin/sh\n"
			     "web:x:0:0::/second:/bin/sh";
static const char group[] = "root:x:0:\n"
			    "web:x:1001:\n"
			    "audio:x:29:web,daemon\n"
			    "video:x:44:root,web\n"
			    "wrong:x:4294967296:web\n"
			    "prefix:x:45:webmaster,myweb\n"
			    "tape:x:26:web";

static int setup(void **state)
{
	if (root_fd < 0) {
		assert_non_null(mkdtemp(root));
		root_fd = open(root, O_PATH | O_DIRECTORY | O_CLOEXEC);
		assert_int_equal(mkdirat(root_fd, "etc", 0755), 0);
		etc_fd = openat(root_fd, "etc", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	}
	put("passwd", passwd, strlen(passwd));
	put("group", group, strlen(group));
	return 0;
}

static int look_up(const char *user, const char *gid, struct user_ids *ret)
{
	struct user_spec spec = {.user = user, .group = gid, .policy = GROUPS_MERGE};

	err = (struct error){0};
	return user_lookup(root_fd, &spec, ret, &err);
}

static void assert_user(const char *user, const char *gid, uid_t uid, gid_t want_gid)
{
	struct user_ids ids = {0};

	if (look_up(user, gid, &ids) < 0)
		fail_msg("%s: %s", user, err.text);
	assert_int_equal(ids.uid, uid);
	assert_int_equal(ids.gid, want_gid);
	assert_true(ids.group_count >= 1);
	assert_int_equal(ids.groups[0], want_gid);
	user_ids_done(&ids);
	user_ids_done(&ids);
}

static void numbers_and_names_are_found(void **state)
{
	assert_user(NULL, NULL, 0, 0);
	assert_user("", NULL, 0, 0);
	assert_user("0", NULL, 0, 0);
	assert_user("root", NULL, 0, 0);
	assert_user("web", NULL, 1000, 1001);
	assert_user("1000", NULL, 1000, 1001);
	assert_user("5000", NULL, 5000, 0);
	assert_user("2147483647", NULL, 2147483647, 0);
	assert_user("daemon", NULL, 1, 1);
	assert_user("web", "audio", 1000, 29);
	assert_user("web", "7", 1000, 7);
	assert_user("web:audio", NULL, 1000, 29);
	assert_user("1000:0", NULL, 1000, 0);
	assert_user("web:", NULL, 1000, 1001);
	assert_user(":audio", NULL, 0, 29);
	/* digits are a number, whatever passwd says */
	assert_user("1234", NULL, 1234, 0);
	assert_user("0001000", NULL, 1000, 1001);
}

static void numbers_that_do_not_fit_are_refused(void **state)
{
	static const char *const bad[] = {"2147483648",
					  "4294967295",
					  "4294967296",
					  "4294967297:0",
					  "99999999999",
					  "99999999999999999999999",
					  "-1",
					  "+1",
					  "1:4294967296",
					  "1:-1",
					  "18446744073709551616"};
	struct user_ids ids;

	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
		assert_int_equal(look_up(bad[i], NULL, &ids), -ERR_INVALID);
	/* not even when passwd has a user of that name */
	put("passwd", "4294967296:x:0:0::/:/bin/sh\n", 28);
	assert_int_equal(look_up("4294967296", NULL, &ids), -ERR_INVALID);
}

static void unknown_names_are_refused(void **state)
{
	static const char *const bad[] = {"nobody",  "huge", "wrap", "minus",	    "we",
					  "webb",    "0x10", "1a",   "web:nogroup", "web:wrong",
					  "web:1:2", "a b",  "web\n"};
	struct user_ids ids;

	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
		assert_int_equal(look_up(bad[i], NULL, &ids), -ERR_INVALID);
	assert_int_equal(look_up("nobody", NULL, &ids), -ERR_INVALID);
	assert_string_equal(err.text, "user nobody is not in the image's /etc/passwd");
	assert_int_equal(look_up("web", "nogroup", &ids), -ERR_INVALID);
	assert_string_equal(err.text, "group nogroup is not in the image's /etc/group");
}

static void groups_are_merged_or_not(void **state)
{
	gid_t extra[] = {29, 500, 500, 1001};
	struct user_spec spec = {.user = "web", .supplemental = {extra, 4}, .policy = GROUPS_MERGE};
	static const gid_t merged[] = {1001, 29, 500, 44, 26}, strict[] = {1001, 29, 500};
	struct user_ids ids = {0};

	assert_int_equal(user_lookup(root_fd, &spec, &ids, &err), 0);
	assert_int_equal(ids.group_count, 5);
	assert_memory_equal(ids.groups, merged, sizeof(merged));
	assert_string_equal(ids.home, "/home/web");
	user_ids_done(&ids);
	/* by number it is the same user */
	spec.user = "1000";
	assert_int_equal(user_lookup(root_fd, &spec, &ids, &err), 0);
	assert_int_equal(ids.group_count, 5);
	user_ids_done(&ids);
	spec.policy = GROUPS_STRICT;
	assert_int_equal(user_lookup(root_fd, &spec, &ids, &err), 0);
	assert_int_equal(ids.group_count, 3);
	assert_memory_equal(ids.groups, strict, sizeof(strict));
	user_ids_done(&ids);
	extra[0] = 4294967295u;
	assert_int_equal(user_lookup(root_fd, &spec, &ids, &err), -ERR_INVALID);
}

static void homes_are_absolute(void **state)
{
	struct user_ids ids = {0};

	assert_int_equal(look_up("relative", NULL, &ids), 0);
	assert_string_equal(ids.home, "/");
	user_ids_done(&ids);
	assert_int_equal(look_up("5000", NULL, &ids), 0);
	assert_string_equal(ids.home, "/");
	user_ids_done(&ids);
	assert_int_equal(look_up("daemon", NULL, &ids), 0);
	assert_string_equal(ids.home, "/usr/sbin");
	user_ids_done(&ids);
}

static void missing_files_are_empty(void **state)
{
	struct user_ids ids;

	unlinkat(etc_fd, "passwd", 0);
	unlinkat(etc_fd, "group", 0);
	assert_user("1000:7", NULL, 1000, 7);
	assert_user(NULL, NULL, 0, 0);
	assert_int_equal(look_up("root", NULL, &ids), -ERR_INVALID);
}

static void links_stay_in_the_image(void **state)
{
	struct user_ids ids;

	put("real", "inside:x:5:6::/:/bin/sh\n", 24);
	unlinkat(etc_fd, "passwd", 0);
	assert_int_equal(symlinkat("/etc/real", etc_fd, "passwd"), 0);
	assert_user("inside", NULL, 5, 6);
	unlinkat(etc_fd, "passwd", 0);
	assert_int_equal(symlinkat("../../../../../../etc/passwd", etc_fd, "passwd"), 0);
	assert_true(look_up("root", NULL, &ids) < 0);
	unlinkat(etc_fd, "passwd", 0);
	assert_int_equal(symlinkat("/proc/self/fd/0", etc_fd, "passwd"), 0);
	assert_int_equal(look_up("root", NULL, &ids), -ERR_INVALID);
	unlinkat(etc_fd, "real", 0);
}

static void odd_files_are_refused(void **state)
{
	__attribute__((cleanup(buf_done))) struct buf big = {0};
	struct user_ids ids;

	unlinkat(etc_fd, "passwd", 0);
	assert_int_equal(mkfifoat(etc_fd, "passwd", 0644), 0);
	assert_int_equal(look_up("root", NULL, &ids), -ERR_INVALID);
	unlinkat(etc_fd, "passwd", 0);
	assert_int_equal(mkdirat(etc_fd, "passwd", 0755), 0);
	assert_int_equal(look_up("root", NULL, &ids), -ERR_INVALID);
	unlinkat(etc_fd, "passwd", AT_REMOVEDIR);
	for (int i = 0; i < 40000; i++)
		buf_printf(&big, "user%d:x:%d:%d::/:/bin/sh\n", i, i, i);
	put("passwd", big.data, big.length);
	if (big.length > USERS_FILE_MAX)
		assert_int_equal(look_up("user1", NULL, &ids), -ERR_INVALID);
	put("passwd", big.data, USERS_FILE_MAX);
	assert_user("user1", NULL, 1, 1);
	put("passwd", "root\0:x:0:0::/:/bin/sh\nok:x:3:4::/a\0b:/bin/sh\n", 46);
	assert_int_equal(look_up("root", NULL, &ids), -ERR_INVALID);
	assert_int_equal(look_up("ok", NULL, &ids), 0);
	assert_string_equal(ids.home, "/");
	user_ids_done(&ids);
}

static int cleanup(void **state)
{
	unlinkat(etc_fd, "passwd", 0);
	unlinkat(etc_fd, "group", 0);
	unlinkat(root_fd, "etc", AT_REMOVEDIR);
	close(etc_fd);
	close(root_fd);
	return rmdir(root);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup(numbers_and_names_are_found, setup),
		cmocka_unit_test_setup(numbers_that_do_not_fit_are_refused, setup),
		cmocka_unit_test_setup(unknown_names_are_refused, setup),
		cmocka_unit_test_setup(groups_are_merged_or_not, setup),
		cmocka_unit_test_setup(homes_are_absolute, setup),
		cmocka_unit_test_setup(missing_files_are_empty, setup),
		cmocka_unit_test_setup(links_stay_in_the_image, setup),
		cmocka_unit_test_setup(odd_files_are_refused, setup),
	};

	return cmocka_run_group_tests(tests, NULL, cleanup);
}
