/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The unpacker: what it accepts and how that looks, what it refuses and what it says, that nothing
 * is ever touched outside of its root, how it is locked in, that it leaves nothing.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/wait.h>
#include <sys/xattr.h>
#include <unistd.h>

#include "io/base/buf.h"
#include "io/base/cleanup.h"
#include "io/fs.h"
#include "io/offload.h"
#include "io/task.h"
#include "store/image/unpack.h"
#include "tests/lib/tar.h"
#include "tests/lib/group.h"

static char top_path[] = "/tmp/crisp-test-unpack-XXXXXX";
static int top;
static struct unpacker *unpacker;
static struct loop *loop;

/* One run: target is made anew in top/target. */
struct run {
	const struct buf *stream;
	int stream_fd; /* instead of stream when ≥ 0 */
	bool is_archive;
	uint64_t max_bytes, max_inodes;
	const char *lower; /* in top */
	int result;
	struct error err;
	struct unpack_result got;
	struct task *task;
};

static int count_fds(void)
{
	cleanup_closedir DIR *d = opendir("/proc/self/fd");
	int n = 0;

	while (readdir(d))
		n++;
	return n;
}

static void run_task(struct task *t, void *arg)
{
	struct run *run = arg;
	cleanup_close int lower = -1;
	cleanup_close int target = openat(top, "target", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	struct unpack_request q = {.is_layer = !run->is_archive,
				   .stream = run->stream_fd,
				   .target = target,
				   .max_bytes = run->max_bytes ? run->max_bytes : 100 << 20,
				   .max_inodes = run->max_inodes ? run->max_inodes : 1000};

	if (run->lower) {
		lower = openat(top, run->lower, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
		q.lowers = &lower;
		q.lower_count = 1;
	}
	run->result = unpack_run(t, unpacker, &q, &run->got);
	run->err = t->err;
	loop_stop(loop);
}

static int make_stream(const struct buf *b)
{
	int fd = openat(top, ".", O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);

	assert_true(fd >= 0);
	assert_int_equal(pwrite(fd, b->data, b->length, 0), b->length);
	return fd;
}

static void reset_target(void)
{
	struct error err;

	assert_int_equal(fs_remove_tree_blocking(top, "target", &err), 0);
	assert_int_equal(mkdirat(top, "target", 0755), 0);
}

static void execute(struct run *run)
{
	int before = count_fds();

	reset_target();
	if (run->stream)
		run->stream_fd = make_stream(run->stream);
	run->task = task_start(loop, "unpack", run_task, run);
	loop_run(loop);
	if (run->stream)
		close(run->stream_fd);
	assert_int_equal(waitpid(-1, NULL, WNOHANG), -1);
	assert_int_equal(errno, ECHILD);
	assert_int_equal(count_fds(), before);
}

static void accept_run(struct run *run)
{
	execute(run);
	if (run->result != 0)
		fail_msg("refused: %s", run->err.text);
}

static void accept(const struct buf *tar)
{
	struct run run = {.stream = tar};

	accept_run(&run);
}

static void refuse_run(struct run *run, const char *what)
{
	execute(run);
	assert_int_not_equal(run->result, 0);
	if (!strstr(run->err.text, what))
		fail_msg("says \"%s\", not \"%s\"", run->err.text, what);
}

static void refuse(const struct buf *tar, const char *what)
{
	struct run run = {.stream = tar};

	refuse_run(&run, what);
	assert_int_equal(run.result, -ERR_INVALID);
}

static struct stat look(const char *name)
{
	struct stat st = {0};
	char path[512];

	snprintf(path, sizeof(path), "target/%s", name);
	if (fstatat(top, path, &st, AT_SYMLINK_NOFOLLOW) < 0)
		fail_msg("%s: %s", name, strerror(errno));
	return st;
}

static bool exists(const char *name)
{
	char path[512];
	struct stat st;

	snprintf(path, sizeof(path), "target/%s", name);
	return fstatat(top, path, &st, AT_SYMLINK_NOFOLLOW) == 0;
}

static void assert_content(const char *name, const char *text)
{
	CLEANUP(buf_done) struct buf b = {0};
	struct error err = {0};
	char path[512];

	snprintf(path, sizeof(path), "target/%s", name);
	if (fs_read_at(top, path, 1 << 20, &b, &err) < 0)
		fail_msg("%s", err.text);
	assert_string_equal(b.data ? b.data : "", text);
}

static bool is_opaque(const char *name)
{
	char path[512], value[2] = "";

	snprintf(path, sizeof(path), "%s/target/%s", top_path, name);
	return lgetxattr(path, "trusted.overlay.opaque", value, 1) == 1 && *value == 'y';
}

static bool is_whiteout(const char *name)
{
	struct stat st = look(name);

	return S_ISCHR(st.st_mode) && st.st_rdev == makedev(0, 0);
}

#define FILE_OF(text) .data = (text), .size = strlen(text)

static void test_plain(void **state)
{
	CLEANUP(buf_done) struct buf tar = {0};
	struct run run = {.stream = &tar};
	struct stat st;

	TAR(&tar, .name = "./", .type = '5', .mode = 0751, .uid = 3, .gid = 4, .mtime = 77);
	TAR(&tar, .name = "./dir/", .type = '5', .mode = 01777, .mtime = 1000);
	TAR(&tar, .name = "dir/file", .mode = 04755, .uid = 1000, .gid = 1001, .mtime = 2000,
	    FILE_OF("hello"));
	TAR(&tar, .name = "/abs", .mode = 0600, FILE_OF("abs"));
	TAR(&tar, .name = "dir/link", .type = '2', .link = "../abs", .uid = 7, .mtime = 3000);
	TAR(&tar, .name = "hard", .type = '1', .link = "dir/file");
	TAR(&tar, .name = "hardlink-to-link", .type = '1', .link = "/dir/link");
	TAR(&tar, .name = "fifo", .type = '6', .mode = 0622);
	TAR(&tar, .name = "null", .type = '3', .mode = 0666, .major = 1, .minor = 3);
	TAR(&tar, .name = "a/../b/./c", FILE_OF("c"));
	tar_end(&tar);
	accept_run(&run);
	st = look(".");
	assert_int_equal(st.st_mode & 07777, 0751);
	assert_int_equal(st.st_uid, 3);
	assert_int_equal(st.st_mtime, 77);
	st = look("dir");
	assert_int_equal(st.st_mode & 07777, 01777);
	assert_int_equal(st.st_mtime, 1000);
	st = look("dir/file");
	assert_int_equal(st.st_mode & 07777, 04755);
	assert_int_equal(st.st_uid, 1000);
	assert_int_equal(st.st_gid, 1001);
	assert_int_equal(st.st_mtime, 2000);
	assert_int_equal(st.st_nlink, 2);
	assert_content("hard", "hello");
	assert_content("abs", "abs");
	st = look("hardlink-to-link");
	assert_true(S_ISLNK(st.st_mode));
	assert_int_equal(st.st_uid, 7);
	assert_int_equal(st.st_mtime, 3000);
	assert_true(S_ISFIFO(look("fifo").st_mode));
	assert_int_equal(look("fifo").st_mode & 07777, 0622);
	assert_int_equal(look("null").st_rdev, makedev(1, 3));
	assert_int_equal(look("null").st_mode & 07777, 0666);
	assert_content("b/c", "c");
	assert_false(exists("a"));
	assert_int_equal(run.got.inodes, 9);
	assert_true(run.got.bytes >= 4096);
}

static void test_whiteouts(void **state)
{
	CLEANUP(buf_done) struct buf tar = {0};
	struct run run = {.stream = &tar, .lower = "lower"};

	TAR(&tar, .name = "before/.wh..wh..opq");
	TAR(&tar, .name = "before/f", FILE_OF("f"));
	TAR(&tar, .name = "after/f", FILE_OF("f"));
	TAR(&tar, .name = "after/.wh..wh..opq");
	TAR(&tar, .name = ".wh.gone");
	TAR(&tar, .name = "dir/.wh.linked", .type = '1', .link = "before/f");
	TAR(&tar, .name = ".wh.remade");
	TAR(&tar, .name = "remade/", .type = '5');
	TAR(&tar, .name = ".wh.implied");
	TAR(&tar, .name = "implied/x", FILE_OF("x"));
	TAR(&tar, .name = "made/", .type = '5');
	TAR(&tar, .name = ".wh.made");
	TAR(&tar, .name = "kept", FILE_OF("kept"));
	TAR(&tar, .name = ".wh.kept");
	TAR(&tar, .name = ".wh..wh.plnk", .type = '5');
	TAR(&tar, .name = ".wh..wh.aufs");
	tar_end(&tar);
	assert_int_equal(mkdirat(top, "lower", 0755), 0);
	accept_run(&run);
	assert_true(is_opaque("before"));
	assert_content("before/f", "f");
	assert_true(is_opaque("after"));
	assert_content("after/f", "f");
	assert_true(is_whiteout("gone"));
	assert_true(is_whiteout("dir/linked"));
	assert_true(is_opaque("remade"));
	assert_true(is_opaque("implied"));
	assert_content("implied/x", "x");
	assert_true(is_opaque("made"));
	assert_content("kept", "kept");
	assert_false(is_opaque("dir"));
	assert_false(exists(".wh..wh.aufs"));
	/* in the lowest layer there is nothing to hide */
	run.lower = NULL;
	accept_run(&run);
	assert_false(exists("gone"));
	assert_int_equal(unlinkat(top, "lower", AT_REMOVEDIR), 0);
}

static void test_root_opaque(void **state)
{
	CLEANUP(buf_done) struct buf tar = {0};

	TAR(&tar, .name = ".wh..wh..opq");
	tar_end(&tar);
	accept(&tar);
	assert_true(is_opaque("."));
}

static void test_bad_whiteouts(void **state)
{
	static const char *const names[] = {".wh.", "d/.wh.", ".wh..", ".wh...", NULL};
	CLEANUP(buf_done) struct buf inside = {0};

	for (int i = 0; names[i]; i++) {
		CLEANUP(buf_done) struct buf tar = {0};

		TAR(&tar, .name = names[i]);
		tar_end(&tar);
		refuse(&tar, names[i]);
	}
	TAR(&inside, .name = "a/.wh.b/c", FILE_OF("c"));
	tar_end(&inside);
	refuse(&inside, "within a whiteout");
}

/* A parent that the layer does not speak of looks as it does below. */
static void test_missing_parents(void **state)
{
	CLEANUP(buf_done) struct buf tar = {0};
	struct run run = {.stream = &tar, .lower = "lower"};
	struct error err;

	assert_int_equal(mkdirat(top, "lower", 0755), 0);
	assert_int_equal(mkdirat(top, "lower/tmp", 0755), 0);
	assert_int_equal(fchmodat(top, "lower/tmp", 01777, 0), 0);
	assert_int_equal(fchownat(top, "lower/tmp", 5, 6, 0), 0);
	TAR(&tar, .name = "tmp/x/y", FILE_OF("y"));
	tar_end(&tar);
	accept_run(&run);
	assert_int_equal(look("tmp").st_mode & 07777, 01777);
	assert_int_equal(look("tmp").st_uid, 5);
	assert_int_equal(look("tmp").st_gid, 6);
	assert_int_equal(look("tmp/x").st_mode & 07777, 0755);
	assert_int_equal(look("tmp/x").st_uid, 0);
	assert_content("tmp/x/y", "y");
	assert_int_equal(fs_remove_tree_blocking(top, "lower", &err), 0);
}

/* A directory beside the target that archives try to reach. */
static void make_canary(void)
{
	cleanup_close int fd = -1;

	assert_int_equal(mkdirat(top, "canary", 0700), 0);
	fd = openat(top, "canary/f", O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
	assert_int_equal(write(fd, "safe", 4), 4);
}

static void check_canary(void)
{
	CLEANUP(buf_done) struct buf b = {0};
	struct error err;
	struct stat st;
	cleanup_closedir DIR *d = NULL;
	int n = 0;

	assert_int_equal(fs_read_at(top, "canary/f", 100, &b, &err), 0);
	assert_string_equal(b.data, "safe");
	assert_int_equal(fstatat(top, "canary/f", &st, 0), 0);
	assert_int_equal(st.st_mode & 07777, 0600);
	assert_int_equal(st.st_nlink, 1);
	assert_int_equal(fstatat(top, "canary", &st, 0), 0);
	assert_int_equal(st.st_mode & 07777, 0700);
	d = fdopendir(openat(top, "canary", O_RDONLY | O_DIRECTORY | O_CLOEXEC));
	while (readdir(d))
		n++;
	assert_int_equal(n, 3);
	assert_int_equal(fs_remove_tree_blocking(top, "canary", &err), 0);
}

static void test_nothing_outside(void **state)
{
	char canary[256], file[300];

	snprintf(canary, sizeof(canary), "%s/canary", top_path);
	snprintf(file, sizeof(file), "%s/f", canary);
	make_canary();
	{
		/* links out, then entries under and over them (CVE-2021-32760) */
		CLEANUP(buf_done) struct buf tar = {0};

		TAR(&tar, .name = "up", .type = '2', .link = "../canary");
		TAR(&tar, .name = "f", .type = '2', .link = file);
		TAR(&tar, .name = "f", .mode = 0777, FILE_OF("evil"));
		TAR(&tar, .name = "d", .type = '2', .link = canary);
		TAR(&tar, .name = "d/", .type = '5', .mode = 0777);
		TAR(&tar, .name = "d/f", .mode = 0777, FILE_OF("evil"));
		TAR(&tar, .name = "g", .type = '2', .link = "../canary/f");
		TAR(&tar, .name = "h", .type = '1', .link = "g");
		TAR(&tar, .name = "h2", .type = '1', .link = "h");
		tar_end(&tar);
		accept(&tar);
		assert_content("f", "evil");
		assert_content("d/f", "evil");
		assert_true(S_ISLNK(look("h2").st_mode));
	}
	{
		/* a link out that exists within: stays within */
		CLEANUP(buf_done) struct buf tar = {0};

		TAR(&tar, .name = "canary/", .type = '5');
		TAR(&tar, .name = "up", .type = '2', .link = "../../../canary");
		TAR(&tar, .name = "up/f", .mode = 0777, FILE_OF("evil"));
		TAR(&tar, .name = "up/new", .mode = 0777, FILE_OF("evil"));
		tar_end(&tar);
		accept(&tar);
		assert_content("canary/f", "evil");
		assert_content("canary/new", "evil");
	}
	static const struct {
		const char *link, *name, *what;
	} bad[] = {
		{NULL, "../canary/f", "out of the root"},
		{NULL, "../../../../../../../../etc/crisp-evil", "out of the root"},
		{NULL, "a/../../canary/f", "out of the root"},
		{NULL, "..", "out of the root"},
		{"../canary", "up/f", "link to nothing"},
		{"loop", "loop/f", "loop/f"},
	};

	for (size_t i = 0; i < sizeof(bad) / sizeof(*bad); i++) {
		CLEANUP(buf_done) struct buf tar = {0};
		struct run run = {.stream = &tar};

		if (bad[i].link)
			TAR(&tar, .name = i == 5 ? "loop" : "up", .type = '2', .link = bad[i].link);
		TAR(&tar, .name = bad[i].name, .mode = 0777, FILE_OF("evil"));
		tar_end(&tar);
		refuse_run(&run, bad[i].what);
		assert_int_equal(run.result, -ERR_INVALID);
	}
	static const char *const targets[] = {"../canary/f", "up/f", "later", "nowhere/f",
					      ".",	     "dir",  "self",  NULL};

	for (int i = 0; targets[i]; i++) {
		CLEANUP(buf_done) struct buf tar = {0};

		TAR(&tar, .name = "up", .type = '2', .link = canary);
		TAR(&tar, .name = "dir", .type = '5');
		TAR(&tar, .name = "self", .type = '1', .link = targets[i]);
		TAR(&tar, .name = "later", FILE_OF("x"));
		tar_end(&tar);
		refuse(&tar, "hard link");
	}
	check_canary();
}

static void test_duplicates(void **state)
{
	CLEANUP(buf_done) struct buf tar = {0};

	TAR(&tar, .name = "f", FILE_OF("longer"));
	TAR(&tar, .name = "f", FILE_OF("2"));
	TAR(&tar, .name = "d/x/y", FILE_OF("y"));
	TAR(&tar, .name = "d", FILE_OF("now a file"));
	TAR(&tar, .name = "l", .type = '2', .link = "f");
	TAR(&tar, .name = "l/", .type = '5', .mode = 0711);
	TAR(&tar, .name = "l/z", FILE_OF("z"));
	TAR(&tar, .name = "e/", .type = '5', .mode = 0700);
	TAR(&tar, .name = "e/x", FILE_OF("x"));
	TAR(&tar, .name = "e/", .type = '5', .mode = 0711);
	/* what is replaced on the way to the next entry */
	TAR(&tar, .name = "one/", .type = '5');
	TAR(&tar, .name = "two/", .type = '5');
	TAR(&tar, .name = "way", .type = '2', .link = "one");
	TAR(&tar, .name = "way/a", FILE_OF("a"));
	TAR(&tar, .name = "way", .type = '2', .link = "two");
	TAR(&tar, .name = "way/b", FILE_OF("b"));
	TAR(&tar, .name = "g/old", FILE_OF("old"));
	TAR(&tar, .name = "g", FILE_OF("g"));
	TAR(&tar, .name = "g/", .type = '5');
	TAR(&tar, .name = "g/new", FILE_OF("new"));
	tar_end(&tar);
	accept(&tar);
	assert_content("one/a", "a");
	assert_content("two/b", "b");
	assert_content("g/new", "new");
	assert_false(exists("g/old"));
	assert_content("f", "2");
	assert_content("d", "now a file");
	assert_content("l/z", "z");
	assert_content("e/x", "x");
	assert_int_equal(look("e").st_mode & 07777, 0711);
	CLEANUP(buf_done) struct buf under = {0};

	TAR(&under, .name = "f", FILE_OF("file"));
	TAR(&under, .name = "f/x", FILE_OF("x"));
	tar_end(&under);
	refuse(&under, "no directory");
}

static void test_names(void **state)
{
	CLEANUP(buf_done) struct buf tar = {0};
	CLEANUP(buf_done) struct buf pax = {0};
	char longest[256], path[320], component[302];
	static char deep[5000];

	memset(longest, 'n', 255);
	longest[255] = 0;
	snprintf(path, sizeof(path), "dir/%s", longest);
	memset(component, 'c', 301);
	component[301] = 0;
	tar_record(&pax, "linkpath", "\xcc\x88", 2);
	TAR(&tar, .name = "first-link", .type = '2', .pax = &pax);
	buf_consume(&pax, pax.length);
	TAR(&tar, .name = path, FILE_OF("long"));
	/* composed, decomposed, no UTF-8 at all: names are bytes */
	TAR(&tar, .name = "\xc3\xa4", FILE_OF("nfc"));
	TAR(&tar, .name = "a\xcc\x88", FILE_OF("nfd"));
	TAR(&tar, .name = "\xff\xfe", FILE_OF("raw"));
	tar_record(&pax, "path", "b\xcc\x88", 3);
	TAR(&tar, .name = "x", .pax = &pax, FILE_OF("pax nfd"));
	buf_consume(&pax, pax.length);
	tar_record(&pax, "path", "\xfe\xff", 2);
	TAR(&tar, .name = "x", .pax = &pax, FILE_OF("pax raw"));
	buf_consume(&pax, pax.length);
	tar_record(&pax, "linkpath", "b\xcc\x88", 3);
	TAR(&tar, .name = "link", .type = '2', .pax = &pax);
	TAR(&tar, .name = "hard", .type = '1', .link = "b\xcc\x88");
	tar_end(&tar);
	accept(&tar);
	assert_true(S_ISLNK(look("first-link").st_mode));
	assert_content(path, "long");
	assert_content("\xc3\xa4", "nfc");
	assert_content("a\xcc\x88", "nfd");
	assert_content("\xff\xfe", "raw");
	assert_content("b\xcc\x88", "pax nfd");
	assert_content("\xfe\xff", "pax raw");
	assert_content("link", "pax nfd");
	assert_content("hard", "pax nfd");
	CLEANUP(buf_done) struct buf bad = {0};

	TAR(&bad, .name = component, FILE_OF("x"));
	tar_end(&bad);
	refuse(&bad, "longer than 255");
	for (int i = 0; i < 2200; i++)
		strcat(deep, "d/");
	CLEANUP(buf_done) struct buf too_deep = {0};

	TAR(&too_deep, .name = deep, FILE_OF("x"));
	tar_end(&too_deep);
	refuse(&too_deep, "longer than 4095");
}

/* The C library looks for converters when a name is no ASCII: never in the layer. */
static void test_planted_converter(void **state)
{
	static const char *const paths[] = {"usr/lib/x86_64-linux-gnu/gconv/gconv-modules.cache",
					    "usr/lib/x86_64-linux-gnu/gconv/gconv-modules",
					    "usr/lib/aarch64-linux-gnu/gconv/gconv-modules"};
	CLEANUP(buf_done) struct buf tar = {0};
	CLEANUP(buf_done) struct buf pax = {0};

	for (size_t i = 0; i < 3; i++)
		TAR(&tar, .name = paths[i], FILE_OF("module UTF-8// INTERNAL /evil 1\n"));
	tar_record(&pax, "path", "\xc3\xa4", 2);
	TAR(&tar, .name = "x", .pax = &pax, .mtime = 5, FILE_OF("x"));
	tar_end(&tar);
	accept(&tar);
	assert_content("\xc3\xa4", "x");
	for (size_t i = 0; i < 3; i++)
		assert_int_equal(look(paths[i]).st_atim.tv_sec, 0);
}

static void test_attributes(void **state)
{
	/* VFS_CAP_REVISION_2, effective, CAP_NET_RAW */
	static const unsigned char cap[20] = {1, 0, 0, 2, 0, 0x20};
	CLEANUP(buf_done) struct buf tar = {0};
	CLEANUP(buf_done) struct buf pax = {0};
	char path[300], value[64];

	tar_record(&pax, "SCHILY.xattr.security.capability", cap, sizeof(cap));
	tar_record(&pax, "SCHILY.xattr.user.ok", "yes", 3);
	tar_record(&pax, "SCHILY.xattr.trusted.overlay.opaque", "y", 1);
	tar_record(&pax, "SCHILY.xattr.trusted.overlay.redirect", "/x", 2);
	tar_record(&pax, "SCHILY.xattr.user.overlay.opaque", "y", 1);
	TAR(&tar, .name = "ping", .mode = 0755, .uid = 5, .pax = &pax, FILE_OF("x"));
	TAR(&tar, .name = "dir/", .type = '5', .pax = &pax);
	buf_consume(&pax, pax.length);
	tar_record(&pax, "mtime", "1234567890.5", 12);
	tar_record(&pax, "uid", "4294967294", 10);
	TAR(&tar, .name = "precise", .pax = &pax, FILE_OF("x"));
	tar_end(&tar);
	accept(&tar);
	snprintf(path, sizeof(path), "%s/target/ping", top_path);
	assert_int_equal(lgetxattr(path, "security.capability", value, sizeof(value)), 20);
	assert_memory_equal(value, cap, 20);
	assert_int_equal(lgetxattr(path, "user.ok", value, sizeof(value)), 3);
	assert_int_equal(lgetxattr(path, "trusted.overlay.redirect", value, 64), -1);
	assert_int_equal(lgetxattr(path, "user.overlay.opaque", value, 64), -1);
	assert_false(is_opaque("dir"));
	assert_int_equal(look("precise").st_mtim.tv_sec, 1234567890);
	assert_int_equal(look("precise").st_mtim.tv_nsec, 500000000);
	assert_int_equal(look("precise").st_uid, 4294967294u);
	static const char *const uids[] = {"4294967295", "4294967296", "-1", NULL};

	for (int i = 0; uids[i]; i++) {
		CLEANUP(buf_done) struct buf bad = {0};

		buf_consume(&pax, pax.length);
		tar_record(&pax, "uid", uids[i], strlen(uids[i]));
		TAR(&bad, .name = "f", .pax = &pax, FILE_OF("x"));
		tar_end(&bad);
		refuse(&bad, "out of range");
	}
}

static void test_sparse(void **state)
{
	static const char map[512] = "2\n0\n5\n9663676416\n6\n";
	CLEANUP(buf_done) struct buf tar = {0};
	CLEANUP(buf_done) struct buf pax = {0};
	CLEANUP(buf_done) struct buf data = {0};
	struct run run = {.stream = &tar, .max_bytes = 20ull << 30};

	/* GNU format 1.0: 5 bytes at 0, 6 at 9 GiB, 9 GiB + 6 long */
	tar_record(&pax, "GNU.sparse.major", "1", 1);
	tar_record(&pax, "GNU.sparse.minor", "0", 1);
	tar_record(&pax, "GNU.sparse.name", "sparse", 6);
	tar_record(&pax, "GNU.sparse.realsize", "9663676422", 10);
	buf_append(&data, map, sizeof(map));
	buf_append(&data, "begin", 5);
	buf_append(&data, "theend", 6);
	TAR(&tar, .name = "x", .pax = &pax, .data = data.data, .size = data.length);
	tar_end(&tar);
	accept_run(&run);
	assert_int_equal(look("sparse").st_size, 9663676422);
	assert_true(look("sparse").st_blocks < 100);
	run.max_bytes = 1 << 30;
	refuse_run(&run, "larger than the limit");
	CLEANUP(buf_done) struct buf cut = {0};

	buf_consume(&pax, pax.length);
	tar_record(&pax, "size", "9663676416", 10);
	TAR(&cut, .name = "huge", .pax = &pax, FILE_OF("x"));
	tar_end(&cut);
	run.stream = &cut;
	run.max_bytes = 20ull << 30;
	refuse_run(&run, "Truncated");
}

static void small_tar(struct buf *tar)
{
	CLEANUP(buf_done) struct buf noise = {0};
	uint32_t x = 1;

	for (int i = 0; i < 50000; i++) {
		x = x * 1664525 + 1013904223;
		buf_append(&noise, &x, 4);
	}
	TAR(tar, .name = "noise", .data = noise.data, .size = noise.length);
	TAR(tar, .name = "f", FILE_OF("text"));
	tar_end(tar);
}

static void test_compression(void **state)
{
	static const char *const filters[] = {"gzip", "zstd", NULL};
	CLEANUP(buf_done) struct buf tar = {0};
	char diff_id[DIGEST_SIZE], digest[DIGEST_SIZE];

	small_tar(&tar);
	digest_of(tar.data, tar.length, diff_id);
	for (int i = 0; filters[i]; i++) {
		CLEANUP(buf_done) struct buf whole = {0};
		CLEANUP(buf_done) struct buf parts = {0};
		struct run run = {.stream = &whole};

		compress_append(&whole, filters[i], tar.data, tar.length);
		accept_run(&run);
		digest_of(whole.data, whole.length, digest);
		assert_string_equal(run.got.digest, digest);
		assert_string_equal(run.got.diff_id, diff_id);
		assert_content("f", "text");
		/* two members or frames, cut anywhere */
		compress_append(&parts, filters[i], tar.data, 70001);
		compress_append(&parts, filters[i], tar.data + 70001, tar.length - 70001);
		run.stream = &parts;
		accept_run(&run);
		assert_string_equal(run.got.diff_id, diff_id);
		/* cut off */
		whole.length -= 5;
		run.stream = &whole;
		refuse_run(&run, "");
		whole.length = whole.length / 2;
		refuse_run(&run, "");
		/* more behind its end */
		buf_append(&parts, "garbage behind the end of it all", 32);
		run.stream = &parts;
		refuse_run(&run, "");
	}
}

static void test_streams(void **state)
{
	static const char *const other[] = {"\xfd"
					    "7zXZ",
					    "BZh9", "\x04\x22\x4d\x18", NULL};
	CLEANUP(buf_done) struct buf tar = {0};
	CLEANUP(buf_done) struct buf empty = {0};
	char diff_id[DIGEST_SIZE];
	struct run run = {.stream = &tar};

	/* what follows the end of a tar belongs to the digest and to nothing else */
	small_tar(&tar);
	buf_append(&tar, "behind the end", 14);
	digest_of(tar.data, tar.length, diff_id);
	accept_run(&run);
	assert_string_equal(run.got.diff_id, diff_id);
	assert_string_equal(run.got.digest, diff_id);
	tar.length = 100000;
	refuse_run(&run, "Truncated");
	tar_end(&empty);
	run.stream = &empty;
	accept_run(&run);
	assert_int_equal(run.got.inodes, 1);
	for (int i = 0; other[i]; i++) {
		CLEANUP(buf_done) struct buf b = {0};

		buf_append(&b, other[i], strlen(other[i]));
		buf_append(&b, "\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0", 16);
		refuse(&b, "compressed with");
	}
	CLEANUP(buf_done) struct buf text = {0};

	for (int i = 0; i < 100; i++)
		buf_puts(&text, "this is no archive at all\n");
	refuse(&text, "tar:");
}

static void test_limits(void **state)
{
	CLEANUP(buf_done) struct buf tar = {0};
	CLEANUP(buf_done) struct buf zeros = {0};
	CLEANUP(buf_done) struct buf bomb = {0};
	struct run run = {.stream = &tar, .max_inodes = 10};
	char name[16];

	for (int i = 0; i < 11; i++) {
		snprintf(name, sizeof(name), "f%d", i);
		TAR(&tar, .name = name, FILE_OF("x"));
	}
	tar_end(&tar);
	refuse_run(&run, "limit of 10 files");
	memset(buf_reserve(&zeros, 2 << 20), 0, 2 << 20);
	TAR(&bomb, .name = "bomb", .data = zeros.data, .size = 2 << 20);
	tar_end(&bomb);
	CLEANUP(buf_done) struct buf packed = {0};

	compress_append(&packed, "gzip", bomb.data, bomb.length);
	run = (struct run){.stream = &packed, .max_bytes = 1 << 20};
	refuse_run(&run, "limit");
}

static void test_archive_mode(void **state)
{
	CLEANUP(buf_done) struct buf tar = {0};
	CLEANUP(buf_done) struct buf node = {0};
	struct run run = {.stream = &tar, .is_archive = true};

	TAR(&tar, .name = "blobs/sha256/.wh.x", .mode = 04777, .uid = 9, FILE_OF("x"));
	TAR(&tar, .name = "l", .type = '2', .link = "blobs", .uid = 9);
	tar_end(&tar);
	accept_run(&run);
	assert_int_equal(look("blobs/sha256/.wh.x").st_mode & 07777, 0600);
	assert_int_equal(look("blobs/sha256/.wh.x").st_uid, 0);
	assert_int_equal(look("blobs").st_mode & 07777, 0700);
	TAR(&node, .name = "n", .type = '3', .major = 1, .minor = 3);
	tar_end(&node);
	run.stream = &node;
	refuse_run(&run, "neither file, directory nor link");
}

/* --- how it is locked in, seen from outside while it waits for its stream --- */

struct watch {
	struct run run;
	struct loop_timer timer;
	int writer;
	bool is_seen;
	char status[4096], root[512];
	int fds;
};

static void read_child(struct watch *w, int pid)
{
	char path[64];
	ssize_t n;
	cleanup_closedir DIR *d = NULL;

	snprintf(path, sizeof(path), "/proc/%d/status", pid);
	cleanup_close int fd = open(path, O_RDONLY | O_CLOEXEC);

	n = read(fd, w->status, sizeof(w->status) - 1);
	w->status[n > 0 ? n : 0] = 0;
	snprintf(path, sizeof(path), "/proc/%d/root", pid);
	n = readlink(path, w->root, sizeof(w->root) - 1);
	w->root[n > 0 ? n : 0] = 0;
	snprintf(path, sizeof(path), "/proc/%d/fd", pid);
	d = opendir(path);
	for (w->fds = -2; d && readdir(d); w->fds++)
		;
}

/* Children belong to threads in /proc. */
static int child_of(int pid)
{
	char path[64], text[64] = "";
	cleanup_closedir DIR *tasks = NULL;
	struct dirent *e;

	snprintf(path, sizeof(path), "/proc/%d/task", pid);
	tasks = opendir(path);
	while (tasks && (e = readdir(tasks))) {
		snprintf(path, sizeof(path), "/proc/%d/task/%.10s/children", pid, e->d_name);
		cleanup_close int fd = open(path, O_RDONLY | O_CLOEXEC);

		if (fd >= 0 && read(fd, text, sizeof(text) - 1) > 0)
			return atoi(text);
	}
	return 0;
}

static void on_look(void *data)
{
	struct watch *w = data;
	int child = child_of(getpid());

	if (child)
		read_child(w, child);
	if (!strstr(w->status, "Seccomp:\t2")) {
		loop_timer_start(loop, &w->timer, loop_now(loop) + 5000000);
		return;
	}
	w->is_seen = true;
	task_cancel(w->run.task);
}

static void test_locked_in(void **state)
{
	static struct watch w = {.run = {.stream_fd = -1}};
	char root[300];
	int ends[2];

	assert_int_equal(pipe2(ends, O_CLOEXEC), 0);
	w.run.stream_fd = ends[0];
	loop_timer_init(&w.timer, "look", on_look, &w);
	loop_timer_start(loop, &w.timer, loop_now(loop) + 5000000);
	execute(&w.run);
	assert_true(w.is_seen);
	assert_int_equal(w.run.result, -ERR_CANCELLED);
	assert_non_null(strstr(w.status, "NoNewPrivs:\t1"));
	/* CHOWN DAC_OVERRIDE FOWNER FSETID MKNOD SETFCAP */
	assert_non_null(strstr(w.status, "CapEff:\t000000008800001b"));
	assert_non_null(strstr(w.status, "CapPrm:\t000000008800001b"));
	snprintf(root, sizeof(root), "%s/target", top_path);
	assert_string_equal(w.root, root);
	assert_int_equal(w.fds, 6);
	close(ends[0]);
	close(ends[1]);
}

/* A server of its own that unpacks from a stream that never comes. */
static void be_server(int stream)
{
	struct run run = {.stream_fd = stream};
	struct error err;

	loop = loop_new(&err);
	unpacker = unpacker_new(&err);
	task_start(loop, "unpack", run_task, &run);
	loop_run(loop);
	_exit(1);
}

static bool is_locked_in(int pid)
{
	static struct watch w;

	read_child(&w, pid);
	return strstr(w.status, "Seccomp:\t2");
}

static void test_killed_server(void **state)
{
	int ends[2], server, child = 0, status;

	reset_target();
	assert_int_equal(pipe2(ends, O_CLOEXEC), 0);
	assert_int_equal(prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0), 0);
	server = fork();
	if (server == 0)
		be_server(ends[0]);
	for (int i = 0; i < 2000 && !(child && is_locked_in(child)); i++) {
		usleep(2000);
		child = child_of(server);
	}
	assert_true(child > 0);
	kill(server, SIGKILL);
	assert_int_equal(waitpid(server, &status, 0), server);
	assert_int_equal(waitpid(child, &status, 0), child);
	assert_true(WIFSIGNALED(status));
	assert_int_equal(WTERMSIG(status), SIGKILL);
	assert_int_equal(prctl(PR_SET_CHILD_SUBREAPER, 0, 0, 0, 0), 0);
	close(ends[0]);
	close(ends[1]);
}

static int setup(void **state)
{
	struct error err;

	if (geteuid() != 0)
		exit(77);
	if (!mkdtemp(top_path))
		return -1;
	top = open(top_path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	loop = loop_new(&err);
	unpacker = unpacker_new(&err);
	return top < 0 || !loop || !unpacker ? -1 : 0;
}

static int teardown(void **state)
{
	struct error err;

	fs_remove_tree_blocking(top, "target", &err);
	unpacker_free(unpacker);
	offload_shutdown();
	loop_free(loop);
	task_pool_trim();
	close(top);
	return rmdir(top_path);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_plain),
		cmocka_unit_test(test_whiteouts),
		cmocka_unit_test(test_root_opaque),
		cmocka_unit_test(test_bad_whiteouts),
		cmocka_unit_test(test_missing_parents),
		cmocka_unit_test(test_nothing_outside),
		cmocka_unit_test(test_duplicates),
		cmocka_unit_test(test_names),
		cmocka_unit_test(test_planted_converter),
		cmocka_unit_test(test_attributes),
		cmocka_unit_test(test_sparse),
		cmocka_unit_test(test_compression),
		cmocka_unit_test(test_streams),
		cmocka_unit_test(test_limits),
		cmocka_unit_test(test_archive_mode),
		cmocka_unit_test(test_locked_in),
		cmocka_unit_test(test_killed_server),
	};

	return RUN_GROUP(tests, setup, teardown);
}
