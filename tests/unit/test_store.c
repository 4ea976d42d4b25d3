/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The store: what comes back is what went in; groups, isolation, order; kill -9; files that are
 * newer, foreign, full, locked or damaged. Looks into store/priv.h to provoke what can't be had
 * otherwise.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "io/base/alloc.h"
#include "io/base/cleanup.h"
#include "store/containers.h"
#include "store/images.h"
#include "store/intents.h"
#include "store/priv.h"
#include "store/sandboxes.h"
#include "store/streams.h"

static struct loop *l;
static struct store *s;
static char root[64], db_path[96];

static void open_store(void)
{
	struct error err = {0};

	s = store_open(l, root, &err);
	if (!s)
		fail_msg("%s", err.text);
}

static int setup(void **state)
{
	strcpy(root, "/tmp/test_store.XXXXXX");
	if (!mkdtemp(root))
		return -1;
	snprintf(db_path, sizeof(db_path), "%s/crisp.db", root);
	l = loop_new(NULL);
	open_store();
	return 0;
}

static int teardown(void **state)
{
	static const char *const files[] = {"crisp.db", "crisp.db-wal", "crisp.db-shm",
					    "crisp.lock"};
	char path[128];

	store_close(s);
	s = NULL;
	assert_int_equal(task_count(), 0);
	loop_free(l);
	task_pool_trim();
	for (int i = 0; i < 4; i++) {
		snprintf(path, sizeof(path), "%s/%s", root, files[i]);
		unlink(path);
	}
	return rmdir(root);
}

static void reopen(void)
{
	store_close(s);
	open_store();
}

struct call {
	void (*fn)(struct task *t);
};

static void call_task(struct task *t, void *arg)
{
	((struct call *)arg)->fn(t);
	loop_stop(t->loop);
}

static void run(void (*fn)(struct task *t))
{
	struct call call = {fn};

	task_start(l, "call", call_task, &call);
	loop_run(l);
}

static struct sandbox_row sandbox(const char *id)
{
	return (struct sandbox_row){.id = id, .kind = "linux"};
}

static int count_sandbox(void *data, const struct sandbox_row *row)
{
	++*(int *)data;
	return 0;
}

static int count_sandboxes(void)
{
	int n = 0;

	assert_int_equal(store_sandbox_each(s, count_sandbox, &n, NULL), 0);
	return n;
}

/* --- what comes back is what went in --- */

static const char nul_blob[] = "a\0b\0\0c\xff";

static void put_everything(struct task *t)
{
	const struct sandbox_row sb = {
		.id = "sb",
		.state = 3,
		.kind = "linux",
		.handler = "",
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
				      .partial = {false, true}};
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
	char *value = NULL;

	order_count = 0;
	for (int i = 0; i < 3; i++) {
		struct store_batch b = {0};

		batch_meta_put(&b, "last", (const char *[]){"0", "1", "2"}[i]);
		store_commit_later(s, &b, i == 2 ? ask_more : note_done, (void *)(intptr_t)i);
	}
	reopen();
	assert_int_equal(order_count, 3);
	for (int i = 0; i < 3; i++)
		assert_int_equal(order_seen[i], i);
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

	assert_int_equal(store_intent_begin(t, s, "gc", "image", NULL, 0, &id), 0);
	assert_true(id > 0);
	assert_int_equal(store_intent_end(t, s, id), 0);
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

/* --- kill -9 --- */

static int ack_fd;

/* Writes pairs in one batch for ever, says each number once it is committed. */
static void write_until_killed(struct task *t, void *arg)
{
	for (int i = (int)(intptr_t)arg;; i += 4) {
		struct store_batch b = {0};
		char id[16], twin[16];
		struct sandbox_row row = sandbox(id), other = sandbox(twin);

		snprintf(id, sizeof(id), "%d", i);
		snprintf(twin, sizeof(twin), "twin%d", i);
		batch_sandbox_put(&b, &row);
		batch_sandbox_put(&b, &other);
		if (store_commit(t, s, &b) < 0 || write(ack_fd, &i, sizeof(i)) != sizeof(i))
			_exit(1);
	}
}

static void run_victim(int fd)
{
	ack_fd = fd;
	l = loop_new(NULL);
	s = store_open(l, root, NULL);
	if (!s)
		_exit(1);
	for (intptr_t i = 0; i < 4; i++)
		task_start(l, "writer", write_until_killed, (void *)i);
	loop_run(l);
	_exit(1);
}

static int mark_seen(void *data, const struct sandbox_row *row)
{
	bool is_twin = !strncmp(row->id, "twin", 4);
	int n = atoi(row->id + (is_twin ? 4 : 0));
	unsigned char *seen = data;

	if (n < 100000)
		seen[n] |= is_twin ? 2 : 1;
	return 0;
}

static void what_was_acknowledged_survives_kill(void **state)
{
	unsigned char *seen = xcalloc(1, 100000);
	int total = 0;

	srandom((unsigned)getpid());
	for (int round = 0; round < 10; round++) {
		int fds[2], n, acked = 0, status;
		pid_t pid;

		store_close(s);
		s = NULL;
		assert_int_equal(unlink(db_path), 0);
		assert_int_equal(pipe2(fds, O_CLOEXEC), 0);
		fcntl(fds[0], F_SETPIPE_SZ, 1 << 20);
		pid = fork();
		if (pid == 0)
			run_victim(fds[1]);
		close(fds[1]);
		/* the first answer says that it runs */
		assert_int_equal(read(fds[0], &n, sizeof(n)), sizeof(n));
		usleep((useconds_t)random() % 20000);
		kill(pid, SIGKILL);
		assert_int_equal(waitpid(pid, &status, 0), pid);
		assert_true(WIFSIGNALED(status));
		memset(seen, 0, 100000);
		open_store();
		assert_int_equal(store_sandbox_each(s, mark_seen, seen, NULL), 0);
		do {
			acked++;
			assert_true(n >= 100000 || seen[n] == 3);
		} while (read(fds[0], &n, sizeof(n)) == sizeof(n));
		/* pairs are whole, acknowledged or not */
		for (int i = 0; i < 100000; i++)
			assert_true(seen[i] == 0 || seen[i] == 3);
		close(fds[0]);
		total += acked;
	}
	print_message("%d acknowledged pairs in 10 kills\n", total);
	free(seen);
}

/* --- other files than expected --- */

static void sql(const char *text)
{
	sqlite3 *db;

	assert_int_equal(sqlite3_open(db_path, &db), SQLITE_OK);
	if (sqlite3_exec(db, text, NULL, NULL, NULL) != SQLITE_OK)
		fail_msg("%s", sqlite3_errmsg(db));
	sqlite3_close(db);
}

static void expect_refusal(enum err code, const char *a, const char *b)
{
	struct error err = {0};

	s = store_open(l, root, &err);
	assert_null(s);
	assert_int_equal(err.code, code);
	if (!strstr(err.text, a) || !strstr(err.text, b) || !strstr(err.text, root))
		fail_msg("%s", err.text);
}

static void newer_schema_is_refused(void **state)
{
	store_close(s);
	sql("PRAGMA user_version = 99; UPDATE meta SET value = '9.8.7' WHERE key = "
	    "'crisp_version'");
	expect_refusal(ERR_PRECONDITION, "version 99, written by crisp 9.8.7",
		       "install crisp 9.8.7");
	sql("DROP TABLE meta");
	expect_refusal(ERR_PRECONDITION, "version 99", "knows versions up to 1");
}

static void foreign_database_is_refused(void **state)
{
	store_close(s);
	unlink(db_path);
	sql("CREATE TABLE t (x)");
	expect_refusal(ERR_PRECONDITION, "another program's", "choose another root");
}

static void file_that_is_no_database_is_refused(void **state)
{
	char junk[2048];
	int fd;

	store_close(s);
	memset(junk, 'j', sizeof(junk));
	fd = open(db_path, O_WRONLY | O_TRUNC);
	assert_int_equal(write(fd, junk, sizeof(junk)), sizeof(junk));
	close(fd);
	expect_refusal(ERR_INTERNAL, "damaged", "move it away");
}

static void second_server_is_refused(void **state)
{
	char pid_text[32];
	int status;
	pid_t pid = fork();

	if (pid == 0) {
		struct error err = {0};
		struct store *second = store_open(l, root, &err);

		snprintf(pid_text, sizeof(pid_text), "process %d", getppid());
		_exit(!second && err.code == ERR_PRECONDITION && strstr(err.text, pid_text) ? 0
											    : 1);
	}
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_int_equal(status, 0);
}

static void parents_of_the_root_are_made(void **state)
{
	char deep[128], path[192];
	struct error err = {0};
	struct store *other;
	struct stat st;

	snprintf(deep, sizeof(deep), "%s/x/y", root);
	other = store_open(l, deep, &err);
	assert_non_null(other);
	assert_int_equal(stat(deep, &st), 0);
	assert_int_equal(st.st_mode & 0777, 0700);
	store_close(other);
	snprintf(path, sizeof(path), "%s/crisp.db", deep);
	assert_int_equal(unlink(path), 0);
	snprintf(path, sizeof(path), "%s/crisp.lock", deep);
	assert_int_equal(unlink(path), 0);
	assert_int_equal(rmdir(deep), 0);
	snprintf(path, sizeof(path), "%s/x", root);
	assert_int_equal(rmdir(path), 0);
}

static void migration_is_all_or_nothing(void **state)
{
	static const char *const good[] = {"unused",
					   "CREATE TABLE two (x); INSERT INTO two "
					   "SELECT count(*) FROM meta",
					   "ALTER TABLE two RENAME TO three"};
	static const char *const bad[] = {"unused", "CREATE TABLE two (x)",
					  "CREATE TABLE sandboxes (x)"};
	struct error err = {0};

	assert_int_equal(db_migrate(&s->writer, bad, 3, &err), -ERR_INTERNAL);
	assert_non_null(strstr(err.text, "schema version 3"));
	assert_true(sqlite3_get_autocommit(s->writer.db));
	/* "two" is not there any more, so it can be made again */
	assert_int_equal(db_migrate(&s->writer, good, 3, &err), 0);
	assert_int_equal(db_migrate(&s->writer, good, 3, &err), 0);
	sql("SELECT x FROM three");
	sql("PRAGMA user_version = 1");
}

/* --- full, locked, damaged --- */

static void limit_pages(int spare)
{
	sqlite3_stmt *stmt;
	char text[64];

	assert_int_equal(sqlite3_prepare_v2(s->writer.db, "PRAGMA page_count", -1, &stmt, NULL), 0);
	assert_int_equal(sqlite3_step(stmt), SQLITE_ROW);
	snprintf(text, sizeof(text), "PRAGMA max_page_count = %d",
		 spare < 0 ? 1 << 30 : sqlite3_column_int(stmt, 0) + spare);
	sqlite3_finalize(stmt);
	assert_int_equal(sqlite3_exec(s->writer.db, text, NULL, NULL, NULL), SQLITE_OK);
}

static int small_done, small_failed;

static void on_small(void *data, int result, const struct error *err)
{
	small_done++;
	small_failed += result < 0;
}

static void fill_disk(struct task *t)
{
	cleanup_free char *blob = xcalloc(1, 1 << 20);
	struct sandbox_row small = sandbox("small"), large = sandbox("large");
	struct store_batch b = {0};

	assert_int_equal(store_sandbox_put(t, s, &small), 0);
	large.config = blob;
	large.config_size = 1 << 20;
	limit_pages(10);
	/* all in one group: the large one is told so, the small ones are served */
	for (int i = 0; i < 5; i++) {
		batch_meta_put(&b, "small", "v");
		store_commit_later(s, &b, on_small, NULL);
	}
	assert_int_equal(store_sandbox_put(t, s, &large), -ERR_EXHAUSTED);
	assert_non_null(strstr(t->err.text, "full; free space"));
	assert_int_equal(small_done, 5);
	assert_int_equal(small_failed, 0);
	small.state = 1;
	assert_int_equal(store_sandbox_put(t, s, &small), 0);
	assert_int_equal(store_sandbox_delete(t, s, "small"), 0);
	limit_pages(-1);
	assert_int_equal(store_sandbox_put(t, s, &large), 0);
}

static void full_disk_is_an_answer_not_an_end(void **state)
{
	small_done = small_failed = 0;
	run(fill_disk);
	assert_int_equal(count_sandboxes(), 1);
}

static void write_while_locked(struct task *t)
{
	struct sandbox_row row = sandbox("row");
	struct store_batch b = {0};
	sqlite3 *other;

	sqlite3_busy_timeout(s->writer.db, 10);
	assert_int_equal(sqlite3_open(db_path, &other), SQLITE_OK);
	assert_int_equal(sqlite3_exec(other, "BEGIN IMMEDIATE", NULL, NULL, NULL), SQLITE_OK);
	small_done = small_failed = 0;
	batch_meta_put(&b, "small", "v");
	store_commit_later(s, &b, on_small, NULL);
	assert_int_equal(store_sandbox_put(t, s, &row), -ERR_UNAVAILABLE);
	assert_int_equal(small_failed, 1);
	sqlite3_close(other);
	assert_int_equal(store_sandbox_put(t, s, &row), 0);
}

static void locked_file_is_unavailable(void **state)
{
	run(write_while_locked);
	assert_int_equal(count_sandboxes(), 1);
}

#define DAMAGED_SIZE 20000

static void put_damageable(struct task *t)
{
	cleanup_free char *blob = xmalloc(DAMAGED_SIZE);

	for (int i = 0; i < 3; i++) {
		char id[8];
		struct sandbox_row row = sandbox(id);

		snprintf(id, sizeof(id), "%d", i);
		memset(blob, 0xa0 + i, DAMAGED_SIZE);
		row.config = blob;
		row.config_size = DAMAGED_SIZE;
		assert_int_equal(store_sandbox_put(t, s, &row), 0);
	}
}

static int check_undamaged(void *data, const struct sandbox_row *row)
{
	assert_int_equal(row->config_size, DAMAGED_SIZE);
	strcat(data, row->id);
	return 0;
}

/* An overflow page begins with the number of the next one: breaks the chain of row 1. */
static void damage_row_one(void)
{
	cleanup_free unsigned char *page = xmalloc(4096);
	int fd = open(db_path, O_RDWR);

	assert_true(fd >= 0);
	for (off_t at = 0; pread(fd, page, 4096, at) == 4096; at += 4096) {
		size_t i = 4;

		while (i < 4096 && page[i] == 0xa1)
			i++;
		if (i < 4096)
			continue;
		assert_int_equal(pwrite(fd, "\xff\xff\xff\xff", 4, at), 4);
		close(fd);
		return;
	}
	fail_msg("no overflow page found");
}

static void damaged_row_is_left_out_and_reported(void **state)
{
	struct error err = {0};
	char ids[8] = "";

	run(put_damageable);
	store_close(s);
	damage_row_one();
	open_store();
	assert_int_equal(store_sandbox_each(s, check_undamaged, ids, &err), 1);
	assert_string_equal(ids, "02");
	assert_int_equal(err.code, ERR_INTERNAL);
	assert_non_null(strstr(err.text, "sandboxes: 1 rows were left out"));
	assert_non_null(strstr(err.text, "damaged"));
	assert_int_equal(store_check(s, &err), -ERR_INTERNAL);
	assert_non_null(strstr(err.text, "damaged"));
	/* the others live on */
	run(put_in_order);
}

int main(void)
{
#define T(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
	const struct CMUnitTest tests[] = {
		T(rows_survive_a_restart_unchanged),
		T(each_goes_oldest_first_and_stops_when_told),
		T(thousand_writers_share_transactions_and_not_errors),
		T(batch_is_all_or_nothing),
		T(images_are_synced_and_the_rest_is_not),
		T(wal_is_copied_back),
		T(cancelled_writer_leaves_its_row),
		T(closing_writes_what_is_queued),
		T(tasks_that_wait_for_a_closed_store_are_woken),
		T(queued_stream_rows_are_coalesced_in_order),
		T(sandbox_takes_along_what_belongs_to_it),
		T(recover_ops_are_found_by_kind),
		T(what_was_acknowledged_survives_kill),
		T(newer_schema_is_refused),
		T(foreign_database_is_refused),
		T(file_that_is_no_database_is_refused),
		T(second_server_is_refused),
		T(parents_of_the_root_are_made),
		T(migration_is_all_or_nothing),
		T(full_disk_is_an_answer_not_an_end),
		T(locked_file_is_unavailable),
		T(damaged_row_is_left_out_and_reported),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
