/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The image store with its database and unpacker: imports of every kind, lookups, shared layers,
 * holders, removal, a restart in between, damage, and that nothing is left in the end.
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
#include <sys/wait.h>
#include <unistd.h>

#include "io/base/buf.h"
#include "io/base/cleanup.h"
#include "io/fs.h"
#include "io/offload.h"
#include "io/task.h"
#include "store/db.h"
#include "store/image/config.h"
#include "store/image/image.h"
#include "tests/lib/images.h"
#include "tests/lib/tar.h"
#include "tests/lib/group.h"

static char top_path[] = "/tmp/crisp-test-images-XXXXXX";
static char root_path[64];
static int top, dir, fds_before;
static struct loop *loop;
static struct store *db;
static struct image_store *st;
static struct fixture_layer base, left, right;
static struct error err;

static void open_store(void)
{
	loop = loop_new(&err);
	assert_non_null(loop);
	db = store_open(loop, root_path, &err);
	if (!db)
		fail_msg("%s", err.text);
	st = image_store_open(loop, db, root_path, &err);
	if (!st)
		fail_msg("%s", err.text);
}

/* Runs fn on a task until it is done and everything else too. */
struct script {
	void (*fn)(struct task *t, void *arg);
	void *arg;
	struct loop_timer timer;
};

static void script_check(void *data)
{
	struct script *s = data;

	if (task_count() == 0)
		loop_stop(loop);
	else
		loop_timer_start(loop, &s->timer, loop_now(loop) + 1000000);
}

static void script_main(struct task *t, void *arg)
{
	struct script *s = arg;

	s->fn(t, s->arg);
}

static void run(void (*fn)(struct task *t, void *arg), void *arg)
{
	struct script s = {.fn = fn, .arg = arg};

	loop_timer_init(&s.timer, "check", script_check, &s);
	task_start(loop, "script", script_main, &s);
	loop_timer_start(loop, &s.timer, loop_now(loop) + 1000000);
	loop_run(loop);
}

static void idle_task(struct task *t, void *arg)
{
}

static void close_store(void)
{
	image_store_free(st);
	store_close(db);
	offload_shutdown();
	/* what threads told last */
	run(idle_task, NULL);
	loop_free(loop);
	task_pool_trim();
}

struct import {
	const char *path;
	const char *name;
	int result;
	struct error err;
	char id[DIGEST_SIZE];
	size_t count, exists, unpacked;
	bool wants_cancel;
	struct task *task;
};

static void on_progress(const struct image_progress *p, void *data)
{
	struct import *im = data;

	im->exists += !strncmp(p->what, "layer exists", 12);
	im->unpacked += !strncmp(p->what, "unpacking", 9);
	if (im->wants_cancel && im->unpacked)
		task_cancel(im->task);
}

static void import_task(struct task *t, void *arg)
{
	struct import *im = arg;
	struct image_import in = {.path = im->path, .progress = on_progress, .data = im};
	struct string_list ids = {0};

	if (im->name)
		in.names = (struct string_list){.items = &im->name, .count = 1};
	im->task = t;
	im->result = image_import(t, st, &in, &ids);
	im->err = t->err;
	im->count = ids.count;
	if (ids.count)
		snprintf(im->id, sizeof(im->id), "%s", ids.items[0]);
}

static struct import do_import(const char *path)
{
	struct import im = {.path = path};

	run(import_task, &im);
	if (im.result < 0)
		fail_msg("%s", im.err.text);
	return im;
}

static void import_bad(const char *path, const char *what)
{
	struct import im = {.path = path};

	run(import_task, &im);
	assert_true(im.result < 0);
	if (!strstr(im.err.text, what))
		fail_msg("says \"%s\", not \"%s\"", im.err.text, what);
}

struct removal {
	const char *ref;
	int result;
	struct error err;
};

static void remove_task(struct task *t, void *arg)
{
	struct removal *rm = arg;

	rm->result = image_remove(t, st, rm->ref);
	rm->err = t->err;
}

static void do_remove(const char *ref)
{
	struct removal rm = {.ref = ref};

	run(remove_task, &rm);
	if (rm.result < 0)
		fail_msg("%s", rm.err.text);
}

static void sweep_task(struct task *t, void *arg)
{
	assert_int_equal(image_sweep(t, st), 0);
}

static size_t count_dir(const char *name)
{
	char path[128];
	cleanup_closedir DIR *d = NULL;
	size_t n = 0;

	snprintf(path, sizeof(path), "%s/images/%s", root_path, name);
	d = opendir(path);
	assert_non_null(d);
	while (readdir(d))
		n++;
	return n - 2;
}

static void count_image(const struct image *img, void *data)
{
	++*(size_t *)data;
}

static size_t count_images(void)
{
	size_t n = 0;

	image_each(st, count_image, &n);
	return n;
}

static void assert_empty(void)
{
	uint64_t bytes, inodes;
	const char *path;

	image_fs_info(st, &bytes, &inodes, &path);
	assert_int_equal(count_images(), 0);
	assert_int_equal(count_dir("layers"), 0);
	assert_int_equal(count_dir("ingest"), 0);
	assert_int_equal(bytes, 0);
	assert_int_equal(inodes, 0);
}

static void sleep_task(struct task *t, void *arg)
{
	assert_int_equal(task_sleep_ms(t, 5), 0);
}

/* What a killed server left in ingest/ goes in the background. */
static void assert_empty_soon(void)
{
	for (int i = 0; i < 1000 && count_dir("ingest"); i++)
		run(sleep_task, NULL);
	assert_empty();
}

/* The content of a file in an image's n-th mounted layer. */
static void assert_in_layer(const struct image *img, size_t n, const char *file, const char *text)
{
	CLEANUP(buf_done) struct buf b = {0};
	cleanup_close int fd = open(img->layers.items[n], O_RDONLY | O_DIRECTORY | O_CLOEXEC);

	assert_true(fd >= 0);
	assert_int_equal(fs_read_at(fd, file, 4096, &b, &err), 0);
	assert_string_equal(b.data, text);
}

/* An OCI layout of one image in top/archive. */
static struct fixture_image make_oci(const struct fixture_layer *const *layers, size_t count,
				     const char *name, const char *config)
{
	CLEANUP(buf_done) struct buf entry = {0};
	struct fixture_image img;

	fixture_oci_image(dir, layers, count, image_architecture, config, &img);
	fixture_descriptor(&entry, OCI_MANIFEST, img.manifest, img.manifest_size, name, NULL);
	fixture_index(dir, entry.data);
	return img;
}

static const char *archive_path(void)
{
	static char path[64];

	snprintf(path, sizeof(path), "%s/archive", top_path);
	return path;
}

static const char *tar_path(const char *filter)
{
	static char path[64];
	CLEANUP(buf_done) struct buf tar = {0};

	fixture_pack(dir, filter, &tar);
	fixture_write(top, "archive.tar", tar.data, tar.length);
	snprintf(path, sizeof(path), "%s/archive.tar", top_path);
	return path;
}

static const struct fixture_layer *const base_left[] = {&base, &left};
static const struct fixture_layer *const base_right[] = {&base, &right};

static void test_import_and_find(void **state)
{
	struct fixture_image made = make_oci(base_left, 2, "busybox:1", "{\"User\":\"7\"}");
	struct import im = do_import(archive_path());
	const struct image *img = image_find(st, "busybox:1");
	char text[200];
	struct stat sb;

	assert_int_equal(im.count, 1);
	assert_string_equal(im.id, made.id);
	assert_non_null(img);
	assert_string_equal(img->id, made.id);
	assert_string_equal(img->repo_tags.items[0], "docker.io/library/busybox:1");
	assert_int_equal(img->repo_digests.count, 1);
	assert_string_equal(img->config.user, "7");
	assert_false(img->is_pinned);
	assert_int_equal(img->layers.count, 2);
	assert_int_equal(img->layers.items[0][0], '/');
	assert_in_layer(img, 0, "base", "base");
	assert_in_layer(img, 1, "left", "left");
	assert_int_equal(stat(img->layers.items[0], &sb), 0);
	assert_int_equal(sb.st_mode & 07777, 0755);
	assert_true(img->size > img->config_length);
	assert_ptr_equal(image_find(st, "docker.io/library/busybox:1"), img);
	assert_ptr_equal(image_find(st, made.id), img);
	assert_ptr_equal(image_find(st, digest_hex(made.id)), img);
	snprintf(text, sizeof(text), "%.12s", digest_hex(made.id));
	assert_ptr_equal(image_find(st, text), img);
	snprintf(text, sizeof(text), "%.20s", made.id);
	assert_ptr_equal(image_find(st, text), img);
	snprintf(text, sizeof(text), "busybox@%s", made.manifest);
	assert_ptr_equal(image_find(st, text), img);
	assert_null(image_find(st, "busybox"));
	assert_null(image_find(st, "busybox:2"));
	assert_null(image_find(st, ""));
	assert_null(image_find(st, "Not A Name"));
	assert_null(image_find(st, made.manifest));
	do_remove("busybox:1");
	assert_empty();
	do_remove("busybox:1");
}

static void test_tars(void **state)
{
	static const char *const filters[] = {NULL, "gzip", "zstd"};
	struct fixture_image made = make_oci(base_left, 2, "app", NULL);

	for (size_t i = 0; i < 3; i++) {
		struct import im = do_import(tar_path(filters[i]));

		assert_string_equal(im.id, made.id);
		assert_in_layer(image_find(st, "app"), 1, "left", "left");
		do_remove(made.id);
		assert_empty();
	}
}

static void put_docker(const char *tags)
{
	CLEANUP(buf_done) struct buf config = {0};
	CLEANUP(buf_done) struct buf list = {0};

	fixture_config(&config, base_left, 2, image_architecture, NULL);
	fixture_write(dir, "config.json", config.data, config.length);
	fixture_write(dir, "0/layer.tar", base.blob.data, base.blob.length);
	fixture_write(dir, "1/layer.tar", left.blob.data, left.blob.length);
	buf_printf(&list,
		   "[{\"Config\":\"config.json\",\"RepoTags\":%s,\"Layers\":[\"0/layer.tar\","
		   "\"1/layer.tar\"]}]",
		   tags);
	fixture_write(dir, "manifest.json", list.data, list.length);
}

static void test_docker(void **state)
{
	struct import im = {.name = "given:1"};

	put_docker("[\"app:1\",\"app:2\"]");
	do_import(archive_path());
	assert_int_equal(image_find(st, "app:1")->repo_tags.count, 2);
	do_remove("app:2");
	assert_empty();
	im.path = tar_path("gzip");
	run(import_task, &im);
	assert_int_equal(im.result, 0);
	assert_int_equal(image_find(st, "given:1")->repo_tags.count, 3);
	do_remove("app:1");
	assert_empty();
}

static void test_shared(void **state)
{
	uint64_t bytes, inodes, first_bytes;
	const char *path;
	struct import im;

	make_oci(base_left, 2, "left", NULL);
	im = do_import(archive_path());
	assert_int_equal(im.exists, 0);
	image_fs_info(st, &first_bytes, &inodes, &path);
	assert_int_equal(inodes, 4);
	make_oci(base_right, 2, "right", NULL);
	im = do_import(archive_path());
	assert_int_equal(im.exists, 1);
	assert_int_equal(count_dir("layers"), 3);
	image_fs_info(st, &bytes, &inodes, &path);
	assert_int_equal(inodes, 6);
	assert_int_equal(bytes, first_bytes / 2 * 3);
	assert_string_equal(image_find(st, "left")->layers.items[0],
			    image_find(st, "right")->layers.items[0]);
	/* again: all is there */
	im = do_import(archive_path());
	assert_int_equal(im.exists, 2);
	do_remove("left");
	assert_int_equal(count_dir("layers"), 2);
	assert_in_layer(image_find(st, "right"), 0, "base", "base");
	do_remove("right");
	assert_empty();
}

static void test_retag(void **state)
{
	struct fixture_image old = make_oci(base_left, 2, "app", NULL);
	struct fixture_image new;
	const struct image *img;

	do_import(archive_path());
	new = make_oci(base_right, 2, "app", NULL);
	do_import(archive_path());
	assert_string_equal(image_find(st, "app")->id, new.id);
	img = image_find(st, old.id);
	assert_int_equal(img->repo_tags.count, 0);
	assert_int_equal(img->repo_digests.count, 1);
	/* the same after a restart */
	close_store();
	open_store();
	assert_int_equal(count_images(), 2);
	assert_string_equal(image_find(st, "app")->id, new.id);
	assert_int_equal(image_find(st, old.id)->repo_tags.count, 0);
	do_remove(old.id);
	do_remove("app");
	assert_empty();
}

static void test_restart(void **state)
{
	struct fixture_image made = make_oci(base_left, 2, "app", "{\"Cmd\":[\"sh\"]}");
	uint64_t bytes, inodes, again_bytes, again_inodes, size;
	const struct image *img;
	const char *path;
	char config[1024];

	do_import(archive_path());
	image_fs_info(st, &bytes, &inodes, &path);
	img = image_find(st, "app");
	size = img->size;
	snprintf(config, sizeof(config), "%s", img->config_json);
	close_store();
	open_store();
	img = image_find(st, "app");
	assert_non_null(img);
	assert_string_equal(img->id, made.id);
	assert_string_equal(img->config_json, config);
	assert_string_equal(img->config.cmd.items[0], "sh");
	assert_int_equal(img->size, size);
	assert_int_equal(img->repo_digests.count, 1);
	assert_in_layer(img, 1, "left", "left");
	image_fs_info(st, &again_bytes, &again_inodes, &path);
	assert_int_equal(again_bytes, bytes);
	assert_int_equal(again_inodes, inodes);
	run(sweep_task, NULL);
	assert_int_equal(count_dir("layers"), 2);
	do_remove("app");
	assert_empty();
}

static void test_holders(void **state)
{
	struct fixture_image made = make_oci(base_left, 2, "app", NULL);
	const struct image *img;

	do_import(archive_path());
	assert_int_equal(image_hold(st, made.manifest, "c1", &err), -ERR_NOT_FOUND);
	assert_int_equal(image_hold(st, made.id, "c1", &err), 0);
	assert_int_equal(image_hold(st, made.id, "c1", &err), 0);
	assert_int_equal(image_hold(st, made.id, "c2", &err), 0);
	do_remove("app");
	assert_null(image_find(st, "app"));
	assert_null(image_find(st, made.id));
	assert_int_equal(count_images(), 0);
	assert_int_equal(count_dir("layers"), 2);
	img = image_by_id(st, made.id);
	assert_non_null(img);
	assert_true(img->is_removed);
	assert_in_layer(img, 0, "base", "base");
	/* over a restart: who holds again keeps it */
	close_store();
	open_store();
	assert_int_equal(count_images(), 0);
	assert_int_equal(image_hold(st, made.id, "c1", &err), 0);
	run(sweep_task, NULL);
	assert_int_equal(count_dir("layers"), 2);
	/* imported again while hidden: it is back, without unpacking */
	assert_int_equal(do_import(archive_path()).exists, 2);
	assert_non_null(image_find(st, "app"));
	do_remove("app");
	image_release(st, "c1");
	image_release(st, "c1");
	run(sweep_task, NULL);
	assert_empty();
	assert_null(image_by_id(st, made.id));
	/* and who does not loses it */
	do_import(archive_path());
	assert_int_equal(image_hold(st, made.id, "c1", &err), 0);
	do_remove("app");
	close_store();
	open_store();
	assert_int_equal(count_dir("layers"), 2);
	run(sweep_task, NULL);
	assert_empty();
}

static void tag_task(struct task *t, void *arg)
{
	struct fixture_image *made = arg;

	assert_int_equal(image_tag(t, st, made->id, "quay.io/a/b:c"), 0);
	assert_int_equal(image_tag(t, st, made->id, "no good"), -ERR_INVALID);
	assert_int_equal(image_tag(t, st, made->manifest, "x"), -ERR_NOT_FOUND);
}

static void test_tag_and_names(void **state)
{
	struct fixture_image made = make_oci(base_left, 2, NULL, NULL);
	struct removal rm = {.ref = "Not A Name"};

	do_import(archive_path());
	assert_int_equal(image_find(st, made.id)->repo_tags.count, 0);
	run(tag_task, &made);
	assert_string_equal(image_find(st, "quay.io/a/b:c")->id, made.id);
	run(remove_task, &rm);
	assert_int_equal(rm.result, -ERR_INVALID);
	rm.ref = "";
	run(remove_task, &rm);
	assert_int_equal(rm.result, -ERR_INVALID);
	do_remove("sha256:0000000000000000000000000000000000000000000000000000000000000000");
	do_remove("nothing:here");
	assert_int_equal(count_images(), 1);
	do_remove(made.id);
	assert_empty();
}

static void test_bad_archives(void **state)
{
	struct fixture_layer lie = {0};
	struct fixture_image made;
	const struct fixture_layer *const with_lie[] = {&base, &lie};
	char path[128];

	import_bad("/nowhere/at/all", "not there");
	import_bad("/dev/null", "neither a file nor a directory");
	import_bad(archive_path(), "neither an OCI layout");
	fixture_write(top, "archive.tar", "garbage", 7);
	snprintf(path, sizeof(path), "%s/archive.tar", top_path);
	import_bad(path, "tar");
	/* a layer whose tar is not the one that the configuration names */
	fixture_layer_make(&lie, "lie", "lie", "gzip");
	memcpy(lie.diff_id, left.diff_id, DIGEST_SIZE);
	make_oci(with_lie, 2, "lie", NULL);
	import_bad(archive_path(), "diff id");
	assert_empty();
	/* one whose bytes changed */
	made = make_oci(base_left, 2, "damaged", NULL);
	snprintf(path, sizeof(path), "blobs/sha256/%s", digest_hex(left.digest));
	fixture_write(dir, path, left.blob.data, left.blob.length - 1);
	import_bad(archive_path(), "damaged");
	left.blob.data[left.blob.length - 1] ^= 1;
	fixture_write(dir, path, left.blob.data, left.blob.length);
	left.blob.data[left.blob.length - 1] ^= 1;
	import_bad(archive_path(), "layer sha256:");
	unlinkat(dir, path, 0);
	import_bad(archive_path(), "not in the archive");
	assert_null(image_find(st, made.id));
	assert_empty();
	fixture_layer_done(&lie);
}

/* An import that is given up leaves nothing, and one after it works. */
static void test_cancel(void **state)
{
	struct import im = {.path = archive_path(), .wants_cancel = true};

	make_oci(base_left, 2, "app", NULL);
	run(import_task, &im);
	assert_int_equal(im.result, -ERR_CANCELLED);
	assert_empty();
	do_import(archive_path());
	do_remove("app");
	assert_empty();
}

static void two_task(struct task *t, void *arg)
{
	struct import *im = arg;

	task_start(loop, "other", import_task, &im[1]);
	import_task(t, &im[0]);
}

/* Two imports at a time unpack each layer once. */
static void test_parallel(void **state)
{
	struct import im[2] = {{.path = archive_path()}, {.path = archive_path()}};

	make_oci(base_left, 2, "app", NULL);
	run(two_task, im);
	assert_int_equal(im[0].result, 0);
	assert_int_equal(im[1].result, 0);
	assert_int_equal(im[0].exists + im[1].exists, 2);
	assert_int_equal(count_dir("layers"), 2);
	do_remove("app");
	assert_empty();
}

/* After a crash or damage: what is whole stays, the rest goes and says so. */
static void test_leftovers(void **state)
{
	char layer[256], elsewhere[300];

	make_oci(base_left, 2, "left", NULL);
	do_import(archive_path());
	make_oci(base_right, 2, "right", NULL);
	do_import(archive_path());
	snprintf(layer, sizeof(layer), "%s", image_find(st, "left")->layers.items[1]);
	close_store();
	snprintf(elsewhere, sizeof(elsewhere), "%s-gone", layer);
	assert_int_equal(rename(layer, elsewhere), 0);
	snprintf(layer, sizeof(layer), "%s/images/ingest/half", root_path);
	assert_int_equal(mkdir(layer, 0755), 0);
	open_store();
	run(sweep_task, NULL);
	assert_null(image_find(st, "left"));
	assert_in_layer(image_find(st, "right"), 1, "right", "right");
	close_store();
	open_store();
	assert_int_equal(count_images(), 1);
	assert_int_equal(count_dir("layers"), 2);
	assert_int_equal(count_dir("ingest"), 0);
	do_remove("right");
	assert_empty();
}

/* A layer that hides all below it at its root: overlayfs would not, so those are not mounted. */
static void test_opaque_root(void **state)
{
	struct fixture_layer opaque = {0};
	const struct fixture_layer *const layers[] = {&base, &opaque};
	const struct image *img;

	TAR(&opaque.blob, .name = ".wh..wh..opq");
	TAR(&opaque.blob, .name = "f", .data = "x", .size = 1);
	tar_end(&opaque.blob);
	digest_of(opaque.blob.data, opaque.blob.length, opaque.diff_id);
	memcpy(opaque.digest, opaque.diff_id, DIGEST_SIZE);
	make_oci(layers, 2, "opaque", NULL);
	do_import(archive_path());
	img = image_find(st, "opaque");
	assert_int_equal(img->layers.count, 1);
	assert_int_equal(img->chain_ids.count, 2);
	assert_in_layer(img, 0, "f", "x");
	close_store();
	open_store();
	assert_int_equal(image_find(st, "opaque")->layers.count, 1);
	do_remove("opaque");
	assert_empty();
	fixture_layer_done(&opaque);
}

/* A server that imports and is killed somewhere on the way, after so many microseconds. */
static void kill_import(unsigned after)
{
	struct import im = {.path = archive_path()};
	int pid = fork();

	if (pid == 0) {
		open_store();
		run(import_task, &im);
		_exit(0);
	}
	usleep(after);
	kill(pid, SIGKILL);
	/* its unpacker becomes ours, and dies too */
	while (waitpid(-1, NULL, 0) > 0)
		;
}

static void test_killed(void **state)
{
	size_t whole = 0, layers = 0;

	make_oci(base_left, 2, "app", NULL);
	assert_int_equal(prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0), 0);
	for (unsigned i = 0; i < 24; i++) {
		const struct image *img;

		close_store();
		kill_import(2000 + i * i * 400);
		open_store();
		img = image_find(st, "app");
		layers += count_dir("layers");
		if (img) {
			whole++;
			assert_in_layer(img, 0, "base", "base");
			assert_in_layer(img, 1, "left", "left");
		}
		do_remove("app");
		run(sweep_task, NULL);
		assert_empty_soon();
	}
	assert_int_equal(prctl(PR_SET_CHILD_SUBREAPER, 0, 0, 0, 0), 0);
	print_message("%zu whole images, %zu layers of 24 kills\n", whole, layers);
	do_import(archive_path());
	do_remove("app");
	assert_empty();
}

static int count_fds(void)
{
	cleanup_closedir DIR *d = opendir("/proc/self/fd");
	int n = 0;

	while (readdir(d))
		n++;
	return n;
}

static int setup(void **state)
{
	fs_remove_tree_blocking(top, "archive", &err);
	fs_remove_tree_blocking(top, "root", &err);
	if (mkdirat(top, "archive", 0755) < 0 || mkdirat(top, "root", 0700) < 0)
		return -1;
	fds_before = count_fds();
	dir = openat(top, "archive", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	open_store();
	return 0;
}

static int teardown(void **state)
{
	close_store();
	close(dir);
	assert_int_equal(count_fds(), fds_before);
	assert_int_equal(waitpid(-1, NULL, WNOHANG), -1);
	assert_int_equal(task_count(), 0);
	unlinkat(top, "archive.tar", 0);
	fs_remove_tree_blocking(top, "archive", &err);
	return fs_remove_tree_blocking(top, "root", &err);
}

static int group_setup(void **state)
{
	if (geteuid() != 0)
		exit(77);
	if (!mkdtemp(top_path))
		return -1;
	snprintf(root_path, sizeof(root_path), "%s/root", top_path);
	top = open(top_path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	fixture_layer_make(&base, "base", "base", "gzip");
	fixture_layer_make(&left, "left", "left", "zstd");
	fixture_layer_make(&right, "right", "right", NULL);
	return top < 0 ? -1 : 0;
}

static int group_teardown(void **state)
{
	fixture_layer_done(&base);
	fixture_layer_done(&left);
	fixture_layer_done(&right);
	close(top);
	return rmdir(top_path);
}

#define T(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		T(test_import_and_find), T(test_tars),	  T(test_docker),   T(test_shared),
		T(test_retag),		 T(test_restart), T(test_holders),  T(test_tag_and_names),
		T(test_bad_archives),	 T(test_cancel),  T(test_parallel), T(test_leftovers),
		T(test_opaque_root),	 T(test_killed),
	};

	return RUN_GROUP(tests, group_setup, group_teardown);
}
