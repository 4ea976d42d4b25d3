/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The store: what comes back is what went in; groups, isolation, order, waits that end early. Looks
 * into store/priv.h to see what can't be seen otherwise.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "io/base/alloc.h"
#include "io/base/cleanup.h"
#include "store/containers.h"
#include "store/images.h"
#include "store/intents.h"
#include "store/streams.h"
#include "tests/lib/store_fixture.h"

/* --- what comes back is what went in --- */

static const char nul_blob[] = "a\0b\0\0c\xff";

static void put_everything(struct task *t)
{
	const struct sandbox_row sb = {
		.id = "sb",
		.state = 3,
		.kind = "linux",
		.handler = "",
		.options = "no_new_privs\nrlimit nofile 1 2\n",
		.config = nul_blob,
		.config_size = sizeof(nul_blob),
		.record = "r",
		.record_size = 1,
		.created_at = INT64_MAX,
		.name = "näme",
		.namespace_ = "default",
		.uid = "u'; DROP TABLE sandboxes; --",
		.attempt = UINT32_MAX,
		.netns = "/run/netns/x",
		.reason = NULL,
	};
	const struct container_row c = {
		.id = "c",
		.sandbox_id = "sb",
		.state = 2,
		.config = nul_blob,
		.config_size = sizeof(nul_blob),
		.image_id = "sha256:1",
		.image_ref = "sha256:2",
		.user_image = "busybox",
		.created_at = 1,
		.started_at = 2,
		.finished_at = 3,
		.exit_code = 137,
		.exit_known = true,
		.reason = "OOMKilled",
		.message = "m",
		.log_path = "/var/log/x",
		.pid = 4711,
		.uid = UINT32_MAX,
		.gid = 7,
	};
	const struct stream_row st = {.container_id = "c",
				      .log_inode = UINT64_MAX,
				      .log_offset = 1ull << 40,
				      .spool_offset = {5, 6},
				      .partial = {false, true},
				      .dropped = {7, 8},
				      .unreported = {3, 4}};
	const struct image_row im = {.id = "sha256:1",
				     .config = "{}",
				     .config_size = 2,
				     .manifest_digest = "sha256:2",
				     .chain_ids = "a\nb",
				     .repo_tags = "x:1",
				     .repo_digests = "",
				     .size_bytes = 1ull << 50,
				     .created_at = 9,
				     .is_pinned = true,
				     .is_removed = true};
	const struct layer_row la = {.chain_id = "a",
				     .diff_id = "d",
				     .parent = NULL,
				     .size_bytes = 8,
				     .inodes = 9,
				     .state = 1,
				     .created_at = 2};

	assert_int_equal(store_sandbox_put(t, s, &sb), 0);
	assert_int_equal(store_container_put(t, s, &c), 0);
	store_stream_put(s, &st, NULL, NULL);
	assert_int_equal(store_image_put(t, s, &im), 0);
	assert_int_equal(store_layer_put(t, s, &la), 0);
	assert_int_equal(store_meta_put(t, s, "boot_id", "b1"), 0);
	assert_int_equal(store_meta_put(t, s, "boot_id", "b2"), 0);
}

static int check_sandbox(void *data, const struct sandbox_row *row)
{
	assert_string_equal(row->id, "sb");
	assert_int_equal(row->state, 3);
	assert_string_equal(row->kind, "linux");
	assert_string_equal(row->handler, "");
	assert_string_equal(row->options, "no_new_privs\nrlimit nofile 1 2\n");
	assert_int_equal(row->config_size, sizeof(nul_blob));
	assert_memory_equal(row->config, nul_blob, sizeof(nul_blob));
	assert_int_equal(row->record_size, 1);
	assert_true(row->created_at == INT64_MAX);
	assert_string_equal(row->name, "näme");
	assert_string_equal(row->namespace_, "default");
	assert_string_equal(row->uid, "u'; DROP TABLE sandboxes; --");
	assert_int_equal(row->attempt, UINT32_MAX);
	assert_string_equal(row->netns, "/run/netns/x");
	assert_null(row->reason);
	return ++*(int *)data, 0;
}

static int check_container(void *data, const struct container_row *row)
{
	assert_string_equal(row->id, "c");
	assert_string_equal(row->sandbox_id, "sb");
	assert_memory_equal(row->config, nul_blob, sizeof(nul_blob));
	assert_null(row->record);
	assert_int_equal(row->record_size, 0);
	assert_string_equal(row->image_id, "sha256:1");
	assert_string_equal(row->image_ref, "sha256:2");
	assert_string_equal(row->user_image, "busybox");
	assert_int_equal(row->created_at, 1);
	assert_int_equal(row->started_at, 2);
	assert_int_equal(row->finished_at, 3);
	assert_int_equal(row->exit_code, 137);
	assert_true(row->exit_known);
	assert_string_equal(row->reason, "OOMKilled");
	assert_string_equal(row->message, "m");
	assert_string_equal(row->log_path, "/var/log/x");
	assert_int_equal(row->pid, 4711);
	assert_int_equal(row->uid, UINT32_MAX);
	assert_int_equal(row->gid, 7);
	return ++*(int *)data, 0;
}

static int check_stream(void *data, const struct stream_row *row)
{
	assert_string_equal(row->container_id, "c");
	assert_true(row->log_inode == UINT64_MAX);
	assert_true(row->log_offset == 1ull << 40);
	assert_int_equal(row->spool_offset[0], 5);
	assert_int_equal(row->spool_offset[1], 6);
	assert_false(row->partial[0]);
	assert_true(row->partial[1]);
	assert_int_equal(row->dropped[0], 7);
	assert_int_equal(row->dropped[1], 8);
	assert_int_equal(row->unreported[0], 3);
	assert_int_equal(row->unreported[1], 4);
	return ++*(int *)data, 0;
}

static int check_image(void *data, const struct image_row *row)
{
	assert_string_equal(row->id, "sha256:1");
	assert_memory_equal(row->config, "{}", 2);
	assert_string_equal(row->manifest_digest, "sha256:2");
	assert_string_equal(row->chain_ids, "a\nb");
	assert_string_equal(row->repo_tags, "x:1");
	assert_string_equal(row->repo_digests, "");
	assert_true(row->size_bytes == 1ull << 50);
	assert_true(row->is_pinned && row->is_removed);
	return ++*(int *)data, 0;
}

static int check_layer(void *data, const struct layer_row *row)
{
	assert_string_equal(row->chain_id, "a");
	assert_string_equal(row->diff_id, "d");
	assert_null(row->parent);
	assert_int_equal(row->size_bytes, 8);
	assert_int_equal(row->inodes, 9);
	assert_int_equal(row->state, 1);
	return ++*(int *)data, 0;
}

static void rows_survive_a_restart_unchanged(void **state)
{
	struct error err = {0};
	char *boot = NULL;
	int n = 0;

	run(put_everything);
	reopen();
	assert_int_equal(store_sandbox_each(s, check_sandbox, &n, &err), 0);
	assert_int_equal(store_container_each(s, check_container, &n, &err), 0);
	assert_int_equal(store_stream_each(s, check_stream, &n, &err), 0);
	assert_int_equal(store_image_each(s, check_image, &n, &err), 0);
	assert_int_equal(store_layer_each(s, check_layer, &n, &err), 0);
	assert_int_equal(n, 5);
	assert_int_equal(store_meta_get(s, "boot_id", &boot, &err), 0);
	assert_string_equal(boot, "b2");
	free(boot);
	assert_int_equal(store_meta_get(s, "none", &boot, &err), 0);
	assert_null(boot);
	assert_int_equal(store_check(s, &err), 0);
}

static void put_in_order(struct task *t)
{
	static const char *const ids[] = {"z", "a", "m", "z"};

	for (int i = 0; i < 4; i++) {
		struct sandbox_row row = sandbox(ids[i]);

		row.state = i;
		assert_int_equal(store_sandbox_put(t, s, &row), 0);
	}
}

static int collect_ids(void *data, const struct sandbox_row *row)
{
	strcat(data, row->id);
	if (row->id[0] == 'z')
		assert_int_equal(row->state, 3);
	return row->id[0] == 'm' ? -ERR_DENIED : 0;
}

static int count_image(void *data, const struct image_row *row)
{
	return ++*(int *)data, 0;
}

static int count_layer(void *data, const struct layer_row *row)
{
	return ++*(int *)data, 0;
}

static void put_and_delete_image(struct task *t)
{
	const struct image_row image = {.id = "i"}, other = {.id = "j"};
	const struct layer_row layer = {.chain_id = "i"}, lower = {.chain_id = "j"};

	assert_int_equal(store_image_put(t, s, &image), 0);
	assert_int_equal(store_image_put(t, s, &other), 0);
	assert_int_equal(store_layer_put(t, s, &layer), 0);
	assert_int_equal(store_layer_put(t, s, &lower), 0);
	assert_int_equal(store_image_delete(t, s, "i"), 0);
	assert_int_equal(store_layer_delete(t, s, "j"), 0);
}

static void images_and_layers_are_deleted_by_name(void **state)
{
	int images = 0, layers = 0;

	run(put_and_delete_image);
	assert_int_equal(store_image_each(s, count_image, &images, NULL), 0);
	assert_int_equal(store_layer_each(s, count_layer, &layers, NULL), 0);
	assert_int_equal(images, 1);
	assert_int_equal(layers, 1);
}

static void each_goes_oldest_first_and_stops_when_told(void **state)
{
	char ids[16] = "";

	run(put_in_order);
	assert_int_equal(store_sandbox_each(s, collect_ids, ids, NULL), -ERR_DENIED);
	assert_string_equal(ids, "zam");
}

/* --- groups --- */

struct crowd {
	int left, failed;
};

struct member {
	struct crowd *crowd;
	int number;
};

static void crowd_member(struct task *t, void *arg)
{
	struct member *m = arg;
	char id[16];
	struct sandbox_row row = sandbox(id);

	snprintf(id, sizeof(id), "sb%d", m->number);
	/* every tenth one is wrong: no kind */
	if (m->number % 10 == 9)
		row.kind = NULL;
	if (store_sandbox_put(t, s, &row) < 0) {
		assert_int_equal(m->number % 10, 9);
		assert_int_equal(t->err.code, ERR_INTERNAL);
		assert_non_null(strstr(t->err.text, "sandboxes.kind"));
		m->crowd->failed++;
	}
	if (--m->crowd->left == 0)
		loop_stop(t->loop);
}

static void thousand_writers_share_transactions_and_not_errors(void **state)
{
	enum { COUNT = 1000 };
	struct member *members = xcalloc(COUNT, sizeof(*members));
	struct crowd crowd = {.left = COUNT};
	struct store_counters before = store_counters(s), after;

	for (int i = 0; i < COUNT; i++) {
		members[i] = (struct member){&crowd, i};
		task_start(l, "member", crowd_member, &members[i]);
	}
	loop_run(l);
	free(members);
	after = store_counters(s);
	assert_int_equal(crowd.failed, COUNT / 10);
	assert_int_equal(count_sandboxes(), COUNT - COUNT / 10);
	assert_int_equal(after.writes - before.writes, COUNT);
	assert_int_equal(after.failed_writes - before.failed_writes, COUNT / 10);
	assert_in_range(after.transactions - before.transactions, 1, 10);
}

static void commit_half_wrong(struct task *t)
{
	CLEANUP(store_batch_done) struct store_batch b = {0};
	struct sandbox_row good = sandbox("good"), bad = sandbox("bad");
	int64_t intent;

	bad.kind = NULL;
	intent = batch_intent_begin(&b, s, "k", "good", NULL, 0);
	batch_sandbox_put(&b, &good);
	batch_sandbox_put(&b, &bad);
	assert_int_equal(store_commit(t, s, &b), -ERR_INTERNAL);
	assert_null(b.first);
	/* an empty one is committed at once */
	assert_int_equal(store_commit(t, s, &b), 0);
	batch_intent_end(&b, intent);
	batch_sandbox_put(&b, &good);
	batch_sandbox_delete(&b, "good");
	assert_int_equal(store_commit(t, s, &b), 0);
	/* dropped by its cleanup */
	batch_sandbox_put(&b, &good);
}

static int count_intent(void *data, const struct intent_row *row)
{
	++*(int *)data;
	return 0;
}

static int wrong_results[3];

static void on_wrong(void *data, int result, const struct error *err)
{
	wrong_results[(intptr_t)data] = result;
}

static void commit_half_wrong_among_others(struct task *t)
{
	static const char *const ids[] = {"before", "half", "after"};

	for (int i = 0; i < 3; i++) {
		struct sandbox_row row = sandbox(ids[i]);
		struct store_batch b = {0};

		batch_sandbox_put(&b, &row);
		row.id = "none";
		row.kind = NULL;
		if (i == 1)
			batch_sandbox_put(&b, &row);
		store_commit_later(s, &b, on_wrong, (void *)(intptr_t)i);
	}
	assert_int_equal(store_meta_put(t, s, "wait", "1"), 0);
	assert_int_equal(wrong_results[0], 0);
	assert_int_equal(wrong_results[1], -ERR_INTERNAL);
	assert_int_equal(wrong_results[2], 0);
}

static void wrong_batch_in_a_group_leaves_nothing(void **state)
{
	struct store_counters before = store_counters(s);

	run(commit_half_wrong_among_others);
	assert_int_equal(count_sandboxes(), 2);
	assert_int_equal(store_counters(s).transactions - before.transactions, 1);
}

static void batch_is_all_or_nothing(void **state)
{
	int intents = 0;

	run(commit_half_wrong);
	assert_int_equal(count_sandboxes(), 0);
	assert_int_equal(store_intent_each(s, count_intent, &intents, NULL), 0);
	assert_int_equal(intents, 0);
}

static void put_both_kinds(struct task *t)
{
	const struct image_row image = {.id = "i"};
	struct sandbox_row row = sandbox("s");

	assert_int_equal(store_sandbox_put(t, s, &row), 0);
	assert_false(s->is_full_sync);
	assert_int_equal(store_image_put(t, s, &image), 0);
	assert_true(s->is_full_sync);
	assert_int_equal(store_sandbox_put(t, s, &row), 0);
	assert_false(s->is_full_sync);
}

static void images_are_synced_and_the_rest_is_not(void **state)
{
	run(put_both_kinds);
}

static void put_large(struct task *t)
{
	cleanup_free char *blob = xcalloc(1, 100000);
	struct sandbox_row row = sandbox("large");

	row.config = blob;
	row.config_size = 100000;
	for (int i = 0; i < 200; i++) {
		/* SQLite writes no page that stays the same */
		memset(blob, i, 100000);
		assert_int_equal(store_sandbox_put(t, s, &row), 0);
	}
}

static void wal_is_copied_back(void **state)
{
	char path[128];
	struct stat st;

	run(put_large);
	assert_in_range(store_counters(s).checkpoints, 1, 100);
	snprintf(path, sizeof(path), "%s-wal", db_path);
	assert_int_equal(stat(path, &st), 0);
	assert_in_range(st.st_size, 0, 12 << 20);
	assert_int_equal(stat(db_path, &st), 0);
	assert_int_equal(st.st_mode & 0777, 0600);
}

/* --- waits that end early, stores that close --- */

static void impatient(struct task *t, void *arg)
{
	struct sandbox_row row = sandbox(arg);

	assert_int_equal(store_sandbox_put(t, s, &row), -ERR_CANCELLED);
}

static void cancel_writers(struct task *t)
{
	struct task *early = task_start(l, "early", impatient, (char[]){"early"});
	struct task *late = task_start(l, "late", impatient, (char[]){"late"});
	struct sandbox_row row = sandbox("third");

	task_cancel(early); /* before it asked: nothing happens */
	assert_int_equal(task_yield(t), 0);
	task_cancel(late); /* while it waits: it happens all the same */
	assert_int_equal(store_sandbox_put(t, s, &row), 0);
}

static void cancelled_writer_leaves_its_row(void **state)
{
	run(cancel_writers);
	assert_int_equal(count_sandboxes(), 2);
}

static int order_seen[8], order_count;

static void note_done(void *data, int result, const struct error *err)
{
	assert_int_equal(result, 0);
	assert_null(err);
	order_seen[order_count++] = (int)(intptr_t)data;
}

static void ask_more(void *data, int result, const struct error *err)
{
	struct store_batch b = {0};

	note_done(data, result, err);
	batch_meta_put(&b, "more", "x");
	store_commit_later(s, &b, note_done, (void *)99);
}

static void closing_writes_what_is_queued(void **state)
{
	struct store_batch empty = {0};
	char *value = NULL;

	order_count = 0;
	/* nothing to do is done too */
	store_commit_later(s, &empty, note_done, (void *)7);
	for (int i = 0; i < 3; i++) {
		struct store_batch b = {0};

		batch_meta_put(&b, "last", (const char *[]){"0", "1", "2"}[i]);
		store_commit_later(s, &b, i == 2 ? ask_more : note_done, (void *)(intptr_t)i);
	}
	reopen();
	assert_int_equal(order_count, 4);
	assert_int_equal(order_seen[0], 7);
	for (int i = 0; i < 3; i++)
		assert_int_equal(order_seen[i + 1], i);
	assert_int_equal(store_meta_get(s, "last", &value, NULL), 0);
	assert_string_equal(value, "2");
	free(value);
	assert_int_equal(store_meta_get(s, "more", &value, NULL), 0);
	assert_null(value);
}

static void waiting_writer(struct task *t, void *arg)
{
	struct sandbox_row row = sandbox("waiting");

	*(int *)arg = store_sandbox_put(t, s, &row);
	loop_stop(t->loop);
}

static void stop_loop(void *data)
{
	loop_stop(l);
}

/* With the flush on its way, and with it only queued. */
static void tasks_that_wait_for_a_closed_store_are_woken(void **state)
{
	for (int turns = 1; turns < 4; turns++) {
		struct loop_work stop;
		int result = 1;

		task_start(l, "waiting", waiting_writer, &result);
		loop_work_init(&stop, "stop", stop_loop, NULL);
		for (int i = 0; i < turns && result == 1; i++) {
			loop_post(l, &stop);
			loop_run(l);
		}
		store_close(s);
		s = NULL;
		while (result == 1)
			loop_run(l);
		assert_int_equal(result, 0);
		open_store();
		assert_int_equal(count_sandboxes(), 1);
	}
}

/* --- streams --- */

static int streams_done, streams_failed;

static void on_stream(void *data, int result)
{
	streams_done++;
	streams_failed += result < 0;
}

static void put_stream(const char *id, uint64_t offset)
{
	const struct stream_row row = {.container_id = id, .log_offset = offset};

	store_stream_put(s, &row, on_stream, NULL);
}

static int read_offset(void *data, const struct stream_row *row)
{
	*(uint64_t *)data = row->log_offset;
	return 0;
}

static void write_streams(struct task *t)
{
	const struct container_row c = {.id = "c", .sandbox_id = "sb"};
	const struct stream_row reopened = {.container_id = "c", .log_offset = 2000};
	struct store_batch b = {0};

	assert_int_equal(store_container_put(t, s, &c), 0);
	for (uint64_t i = 1; i <= 1000; i++)
		put_stream("c", i);
	/* in between comes one that somebody waits for; the order must hold */
	batch_stream_put(&b, &reopened);
	store_commit_later(s, &b, NULL, NULL);
	put_stream("c", 2001);
	put_stream("c", 2002);
	put_stream("other", 1);
	assert_int_equal(store_meta_put(t, s, "wait", "1"), 0);
}

static void delete_then_put(struct task *t)
{
	assert_int_equal(store_container_delete(t, s, "c"), 0);
	put_stream("c", 3000);
	assert_int_equal(store_meta_put(t, s, "wait", "1"), 0);
}

static void queued_stream_rows_are_coalesced_in_order(void **state)
{
	struct store_counters before = store_counters(s), after;
	uint64_t offset = 0;

	streams_done = streams_failed = 0;
	run(write_streams);
	after = store_counters(s);
	assert_int_equal(streams_done, 1003);
	assert_int_equal(streams_failed, 0);
	assert_int_equal(after.coalesced_streams - before.coalesced_streams, 999 + 1);
	assert_in_range(after.writes - before.writes, 1, 10);
	assert_int_equal(store_stream_each(s, read_offset, &offset, NULL), 0);
	assert_int_equal(offset, 2002);
	offset = 0;
	run(delete_then_put);
	assert_int_equal(store_stream_each(s, read_offset, &offset, NULL), 0);
	assert_int_equal(offset, 0);
}

/* --- intents and what goes with a sandbox --- */

static void fill_two_sandboxes(struct task *t)
{
	static const char *const ids[] = {"a", "b"};
	int64_t last = 0, id = 0;

	for (int i = 0; i < 2; i++) {
		struct sandbox_row sb = sandbox(ids[i]);
		const char *container = (const char *[]){"ca", "cb"}[i];
		const struct container_row c = {.id = container, .sandbox_id = ids[i]};

		assert_int_equal(store_sandbox_put(t, s, &sb), 0);
		assert_int_equal(store_container_put(t, s, &c), 0);
		put_stream(container, 1);
		assert_int_equal(store_intent_begin(t, s, "sandbox", ids[i], "\0x", 2, &id), 0);
		assert_true(id > last);
		last = id;
		assert_int_equal(store_intent_begin(t, s, "container", container, NULL, 0, &id), 0);
	}
	assert_int_equal(store_intent_begin(t, s, "pull", "image", NULL, 0, &id), 0);
	assert_int_equal(store_intent_begin(t, s, "gc", "image", NULL, 0, &id), 0);
	assert_int_equal(store_intent_begin(t, s, "pull", "image2", NULL, 0, &id), 0);
	assert_int_equal(store_intent_end(t, s, id), 0);
	assert_int_equal(store_intent_end_object(t, s, "pull", "image"), 0);
	assert_int_equal(store_sandbox_delete(t, s, "a"), 0);
	assert_int_equal(store_sandbox_delete(t, s, "a"), 0);
}

static int check_intent(void *data, const struct intent_row *row)
{
	int *n = data;
	static const char *const kinds[] = {"sandbox", "container", "gc"};
	static const char *const objects[] = {"b", "cb", "image"};

	assert_in_range(*n, 0, 2);
	assert_string_equal(row->kind, kinds[*n]);
	assert_string_equal(row->object_id, objects[*n]);
	if (*n == 0)
		assert_memory_equal(row->data, "\0x", 2);
	else
		assert_int_equal(row->data_size, 0);
	++*n;
	return 0;
}

static int count_container(void *data, const struct container_row *row)
{
	++*(int *)data;
	return 0;
}

static int count_stream(void *data, const struct stream_row *row)
{
	++*(int *)data;
	return 0;
}

static void begin_one_more(struct task *t)
{
	int64_t id = 0;

	for (int i = 0; i < 10; i++) {
		assert_int_equal(store_intent_begin(t, s, "gc", "image", NULL, 0, &id), 0);
		assert_int_equal(store_intent_end(t, s, id), 0);
	}
}

static void sandbox_takes_along_what_belongs_to_it(void **state)
{
	int n = 0, containers = 0, streams = 0;

	run(fill_two_sandboxes);
	reopen();
	/* ids go on where they were, or this would collide */
	run(begin_one_more);
	assert_int_equal(count_sandboxes(), 1);
	assert_int_equal(store_container_each(s, count_container, &containers, NULL), 0);
	assert_int_equal(containers, 1);
	assert_int_equal(store_stream_each(s, count_stream, &streams, NULL), 0);
	assert_int_equal(streams, 1);
	assert_int_equal(store_intent_each(s, check_intent, &n, NULL), 0);
	assert_int_equal(n, 3);
}

static int finish_nothing(struct task *t, void *owner, const struct intent_row *intent)
{
	return 0;
}

static void recover_ops_are_found_by_kind(void **state)
{
	static struct recover_ops a = {.kind = "a", .finish = finish_nothing},
				  b = {.kind = "b", .undo = finish_nothing};

	recover_register(&a);
	recover_register(&b);
	assert_ptr_equal(recover_find("a"), &a);
	assert_ptr_equal(recover_find("b"), &b);
	assert_null(recover_find("c"));
}

int main(void)
{
#define T(name) cmocka_unit_test_setup_teardown(name, fixture_setup, fixture_teardown)
	const struct CMUnitTest tests[] = {
		T(rows_survive_a_restart_unchanged),
		T(images_and_layers_are_deleted_by_name),
		T(each_goes_oldest_first_and_stops_when_told),
		T(thousand_writers_share_transactions_and_not_errors),
		T(batch_is_all_or_nothing),
		T(wrong_batch_in_a_group_leaves_nothing),
		T(images_are_synced_and_the_rest_is_not),
		T(wal_is_copied_back),
		T(cancelled_writer_leaves_its_row),
		T(closing_writes_what_is_queued),
		T(tasks_that_wait_for_a_closed_store_are_woken),
		T(queued_stream_rows_are_coalesced_in_order),
		T(sandbox_takes_along_what_belongs_to_it),
		T(recover_ops_are_found_by_kind),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
