/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Relabelling, with real attributes: a kernel without SELinux keeps whatever root puts there, and
 * does not judge it. Needs root.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/xattr.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/xattr.h>
#include <unistd.h>

#include "io/base/alloc.h"
#include "io/base/cleanup.h"
#include "io/fs.h"
#include "sandbox/linux/mounts.h"
#include "sandbox/linux/relabel.h"
#include "sandbox/linux/selinux.h"

#define LABEL "system_u:object_r:container_file_t:s0:c1,c2"

static char dir[] = "/tmp/crisp-relabel-XXXXXX";
static struct error err;

static char *at(const char *name)
{
	return xasprintf("%s/%s", dir, name);
}

static void make_dir(const char *name)
{
	cleanup_free char *path = at(name);

	assert_int_equal(fs_make_dirs(path, 0755, &err), 0);
}

static void make_file(const char *name)
{
	cleanup_free char *path = at(name);

	close(open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0644));
}

static void make_link(const char *name, const char *to)
{
	cleanup_free char *path = at(name);

	assert_int_equal(symlink(to, path), 0);
}

static int open_at(const char *name)
{
	cleanup_free char *path = at(name);
	int fd = open(path, O_PATH | O_CLOEXEC);

	assert_true(fd >= 0);
	return fd;
}

static void assert_label(const char *name, const char *wanted)
{
	cleanup_free char *path = at(name);
	char label[256] = "none";

	lgetxattr(path, XATTR_NAME_SELINUX, label, sizeof(label));
	if (strcmp(label, wanted) != 0)
		fail_msg("%s has the label %s", name, label);
}

static int run(const char *source, const char *label)
{
	cleanup_close int root = open_at("host"), fd = open_at(source);

	err = (struct error){0};
	return relabel(root, fd, source, label, &err);
}

static int setup(void **state)
{
	cleanup_free char *mount_at = NULL;

	assert_non_null(mkdtemp(dir));
	make_dir("host/etc");
	make_dir("host/var/lib/data");
	make_dir("v/a/b/c");
	make_dir("v/mounted");
	make_dir("other");
	make_file("v/file");
	make_file("v/a/b/c/deep");
	make_file("other/outside");
	make_link("v/out", "../other");
	make_link("v/a/file-out", "../../other/outside");
	make_link("to-etc", "host/etc");
	mount_at = at("v/mounted");
	return mount("other", mount_at, "tmpfs", 0, NULL);
}

static int teardown(void **state)
{
	cleanup_close int tmp = open("/tmp", O_PATH | O_DIRECTORY | O_CLOEXEC);
	cleanup_free char *mount_at = at("v/mounted");

	umount2(mount_at, MNT_DETACH);
	return fs_remove_tree_blocking(tmp, dir + strlen("/tmp/"), &err);
}

static void all_of_it_and_nothing_else_is_labelled(void **state)
{
	static const char *const all[] = {
		"v", "v/a", "v/a/b", "v/a/b/c", "v/a/b/c/deep", "v/file", "v/out", "v/a/file-out"};

	if (run("v", LABEL) < 0)
		fail_msg("%s", err.text);
	for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++)
		assert_label(all[i], LABEL);
	assert_label("other", "none");
	assert_label("other/outside", "none");
	assert_label("v/mounted", "none");
}

static time_t changed(const char *name)
{
	cleanup_free char *path = at(name);
	struct stat st;

	assert_int_equal(lstat(path, &st), 0);
	return st.st_ctim.tv_sec * 1000000 + st.st_ctim.tv_nsec / 1000;
}

/* On a tmpfs, which notes each change, also to the same. */
static void what_is_right_is_left_alone(void **state)
{
	time_t inner, top;

	make_file("v/mounted/file");
	assert_int_equal(run("v/mounted", LABEL), 0);
	inner = changed("v/mounted/file");
	top = changed("v/mounted");
	usleep(20000);
	assert_int_equal(run("v/mounted", LABEL), 0);
	assert_int_equal(changed("v/mounted/file"), inner);
	assert_int_equal(changed("v/mounted"), top);
	assert_int_equal(run("v/mounted", "u:r:other_t:s0"), 0);
	assert_label("v/mounted/file", "u:r:other_t:s0");
	assert_int_not_equal(changed("v/mounted/file"), inner);
}

static void a_file_is_labelled(void **state)
{
	assert_int_equal(run("other/outside", LABEL), 0);
	assert_label("other/outside", LABEL);
	assert_label("other", "none");
}

static void what_the_host_lives_by_is_refused(void **state)
{
	static const char *const names[] = {"host", "host/etc", "to-etc", "v/../host/var/lib"};

	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
		assert_int_equal(run(names[i], LABEL), -ERR_INVALID);
		assert_non_null(strstr(err.text, "mounts.selinux_relabel"));
		assert_label("host/etc", "none");
	}
	assert_int_equal(run("host/var/lib/data", LABEL), 0);
	assert_label("host/var/lib/data", LABEL);
	assert_label("host/var/lib", "none");
}

static void open_mount(const char *name, bool is_relabelled, const char *label)
{
	cleanup_free char *path = at(name);
	struct mount_spec m = {.source = path, .target = "/x", .is_relabelled = is_relabelled};
	struct mount_source source;

	if (mount_source_open(&m, -1, label, false, &source, &err) < 0)
		fail_msg("%s", err.text);
	close(source.fd);
}

static void a_mount_is_relabelled_where_it_is_asked_for(void **state)
{
	make_dir("m/below");
	open_mount("m", false, LABEL);
	open_mount("m", true, NULL);
	assert_label("m", "none");
	assert_label("m/below", "none");
	open_mount("m", true, LABEL);
	assert_label("m", LABEL);
	assert_label("m/below", LABEL);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(all_of_it_and_nothing_else_is_labelled),
		cmocka_unit_test(what_is_right_is_left_alone),
		cmocka_unit_test(a_file_is_labelled),
		cmocka_unit_test(what_the_host_lives_by_is_refused),
		cmocka_unit_test(a_mount_is_relabelled_where_it_is_asked_for),
	};
	cleanup_close int root = open("/", O_PATH | O_DIRECTORY | O_CLOEXEC);
	cleanup_close int fs = selinux_open_fs(root);

	if (fs >= 0) {
		fprintf(stderr, "skipped: the kernel has SELinux, which judges labels\n");
		return 77;
	}
	return cmocka_run_group_tests(tests, setup, teardown);
}
