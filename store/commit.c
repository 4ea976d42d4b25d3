/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Batches and group commit. Peculiar: the queue is the loop thread's alone; one flush at a time is
 * with the store thread, and what is asked for meanwhile waits for the next one, so that no lock is
 * needed and a slow disk makes groups larger, not replies later. A flush of one write is its own
 * transaction; of several, one transaction with a savepoint each. If that is lost as a whole (disk
 * full, an I/O error), the writes are tried one by one, so that each gets its own answer.
 */
#include "store/priv.h"

#include <string.h>

#include "io/base/alloc.h"
#include "io/base/cleanup.h"
#include "io/base/fault.h"

/* What a batch may pack; it was limited before it came here. */
#define BATCH_CAP SIZE_MAX
/* Pages in the WAL at which it is copied back. */
#define CHECKPOINT_PAGES 1000

/* Somebody to be told without a task; in the write's arena. */
struct listener {
	struct listener *next;
	void (*done)(void *data, int result, const struct error *err);
	void (*plain_done)(void *data, int result);
	void *data;
};

/* A batch on its way. refs count the queue and the waiting task, on the loop thread only. */
struct write {
	struct list node;
	struct store_batch batch;
	struct task_event done;
	struct listener *listeners, **listeners_end;
	int refs;
	int result;
	struct error *err; /* set when it failed */
};

/* One job of the store thread: a transaction or a checkpoint. */
struct flush {
	struct job job;
	struct store *store;
	struct list writes;
	bool is_checkpoint, is_durable;
	bool wants_checkpoint;
	uint64_t transactions;
};

struct store_op *op_new(struct store_batch *batch, const char *sql)
{
	struct store_op *op;

	if (!batch->arena)
		batch->arena = arena_new(BATCH_CAP);
	op = arena_alloc(batch->arena, sizeof(*op));
	op->arena = batch->arena;
	op->sql = sql;
	if (batch->last)
		batch->last->next = op;
	else
		batch->first = op;
	batch->last = op;
	return op;
}

static struct value *add_value(struct store_op *op, int type)
{
	if (op->count == OP_VALUES_MAX)
		abort();
	op->values[op->count].type = type;
	return &op->values[op->count++];
}

void op_int(struct store_op *op, int64_t number)
{
	add_value(op, SQLITE_INTEGER)->number = number;
}

static void op_bytes(struct store_op *op, int type, const void *data, size_t size)
{
	struct value *v = add_value(op, data ? type : SQLITE_NULL);

	if (!data)
		return;
	/* one more, so that an empty blob is not a NULL pointer */
	v->data = memcpy(arena_alloc(op->arena, size + 1), data, size);
	v->size = size;
}

void op_text(struct store_op *op, const char *text)
{
	op_bytes(op, SQLITE_TEXT, text, text ? strlen(text) : 0);
}

void op_blob(struct store_op *op, const void *data, size_t size)
{
	op_bytes(op, SQLITE_BLOB, data, data ? size : 0);
}

void store_batch_done(struct store_batch *batch)
{
	arena_free(batch->arena);
	*batch = (struct store_batch){0};
}

static void unref_write(struct write *w)
{
	if (--w->refs)
		return;
	store_batch_done(&w->batch);
	free(w->err);
	free(w);
}

/* --- on the store thread --- */

static int bind_values(sqlite3_stmt *stmt, const struct store_op *op)
{
	int rc = SQLITE_OK;

	for (int i = 0; i < (int)op->count && rc == SQLITE_OK; i++) {
		const struct value *v = &op->values[i];

		if (v->type == SQLITE_INTEGER)
			rc = sqlite3_bind_int64(stmt, i + 1, v->number);
		else if (v->type == SQLITE_TEXT)
			rc = sqlite3_bind_text64(stmt, i + 1, v->data, v->size, SQLITE_STATIC,
						 SQLITE_UTF8);
		else if (v->type == SQLITE_BLOB)
			rc = sqlite3_bind_blob64(stmt, i + 1, v->data, v->size, SQLITE_STATIC);
		else
			rc = sqlite3_bind_null(stmt, i + 1);
	}
	return rc;
}

static int run_op(struct connection *c, const struct store_op *op, struct error *err)
{
	sqlite3_stmt *stmt = db_statement(c, op->sql, err);
	int rc, r = 0;

	if (!stmt)
		return -(int)err->code;
	rc = bind_values(stmt, op);
	if (rc == SQLITE_OK)
		rc = sqlite3_step(stmt);
	if (rc != SQLITE_DONE)
		r = db_error(err, c, rc, "write to");
	sqlite3_reset(stmt);
	sqlite3_clear_bindings(stmt);
	return r;
}

static int run_sql(struct connection *c, const char *sql, struct error *err)
{
	return run_op(c, &(struct store_op){.sql = sql}, err);
}

static const char begin_sql[] = "BEGIN IMMEDIATE";
static const char commit_sql[] = "COMMIT";
static const char rollback_sql[] = "ROLLBACK";
static const char savepoint_sql[] = "SAVEPOINT w";
static const char release_sql[] = "RELEASE w";
static const char rollback_to_sql[] = "ROLLBACK TO w";

static int run_ops(struct connection *c, const struct write *w, struct error *err)
{
	for (const struct store_op *op = w->batch.first; op; op = op->next)
		TRY(run_op(c, op, err));
	return 0;
}

static void set_result(struct write *w, int result, const struct error *err)
{
	w->result = result;
	if (result == 0)
		return;
	if (!w->err)
		w->err = xnew(struct error);
	*w->err = *err;
}

/* Ends a transaction that may be gone already. */
static void roll_back(struct connection *c)
{
	struct error ignored;

	if (!sqlite3_get_autocommit(c->db))
		run_sql(c, rollback_sql, &ignored);
}

static int commit(struct connection *c, struct error *err)
{
	FAULT(store_written);
	TRY(run_sql(c, commit_sql, err));
	FAULT(store_committed);
	return 0;
}

/* A reader may keep it from finishing: then it waits for as many more pages. */
static void run_checkpoint(struct store *s)
{
	int in_wal = 0, copied = -1;

	sqlite3_wal_checkpoint_v2(s->writer.db, NULL, SQLITE_CHECKPOINT_PASSIVE, &in_wal, &copied);
	s->checkpoint_at = CHECKPOINT_PAGES + (copied < in_wal ? s->wal_pages : 0);
}

static int try_single(struct connection *c, const struct write *w, struct error *err)
{
	int r = run_sql(c, begin_sql, err);

	if (r == 0)
		r = run_ops(c, w, err);
	if (r == 0)
		r = commit(c, err);
	if (r < 0)
		roll_back(c);
	return r;
}

static void run_single(struct flush *f, struct write *w)
{
	struct connection *c = &f->store->writer;
	struct error err = {0};
	int r = try_single(c, w, &err);

	/* a WAL that was copied back begins anew in the blocks that it has */
	if (r == -ERR_EXHAUSTED) {
		run_checkpoint(f->store);
		r = try_single(c, w, &err);
	}
	f->transactions++;
	set_result(w, r, &err);
}

/* False when the transaction as a whole was lost, and with it every result. */
static bool run_together(struct flush *f)
{
	struct connection *c = &f->store->writer;
	struct error err = {0};

	if (run_sql(c, begin_sql, &err) < 0)
		return false;
	f->transactions++;
	list_for_each(w, &f->writes, struct write, node) {
		int r;

		if (run_sql(c, savepoint_sql, &err) < 0)
			goto lost;
		r = run_ops(c, w, &err);
		set_result(w, r, &err);
		/* fails if the error took the whole transaction along */
		if (r < 0 && run_sql(c, rollback_to_sql, &err) < 0)
			goto lost;
		if (run_sql(c, release_sql, &err) < 0)
			goto lost;
	}
	if (commit(c, &err) == 0)
		return true;
lost:
	roll_back(c);
	return false;
}

/* PRAGMA synchronous has no effect within a transaction, so it is set between them. */
static void set_sync(struct store *s, bool is_full)
{
	if (s->is_full_sync == is_full)
		return;
	if (sqlite3_exec(s->writer.db,
			 is_full ? "PRAGMA synchronous = FULL" : "PRAGMA synchronous = NORMAL",
			 NULL, NULL, NULL) == SQLITE_OK)
		s->is_full_sync = is_full;
}

static void run_writes(struct flush *f)
{
	set_sync(f->store, f->is_durable);
	if (f->writes.next->next == &f->writes || !run_together(f))
		list_for_each(w, &f->writes, struct write, node)
			run_single(f, w);
}

static int run_flush(struct job *job, struct error *err)
{
	struct flush *f = container_of(job, struct flush, job);
	struct store *s = f->store;

	if (f->is_checkpoint)
		run_checkpoint(s);
	else
		run_writes(f);
	f->wants_checkpoint = !f->is_checkpoint && s->wal_pages >= s->checkpoint_at;
	return 0;
}

static int on_wal(void *data, sqlite3 *db, const char *name, int pages)
{
	((struct store *)data)->wal_pages = pages;
	return SQLITE_OK;
}

/* --- on the loop's thread --- */

static void free_flush(struct job *job)
{
	free(container_of(job, struct flush, job));
}

static void tell(const struct write *w)
{
	for (struct listener *n = w->listeners; n; n = n->next) {
		if (n->done)
			n->done(n->data, w->result, w->result < 0 ? w->err : NULL);
		if (n->plain_done)
			n->plain_done(n->data, w->result);
	}
}

static void finish_writes(struct store *s, struct flush *f)
{
	s->counters.transactions += f->transactions;
	while (!list_is_empty(&f->writes)) {
		struct write *w = list_first(&f->writes, struct write, node);

		list_remove(&w->node);
		s->counters.writes++;
		s->counters.failed_writes += w->result < 0;
		task_event_set(&w->done);
		tell(w);
		unref_write(w);
	}
}

/* Moves the queue into a new flush. */
static struct flush *take_queue(struct store *s)
{
	struct flush *f = xnew(struct flush);

	f->store = s;
	list_init(&f->writes);
	while (!list_is_empty(&s->queue)) {
		struct write *w = list_first(&s->queue, struct write, node);

		list_remove(&w->node);
		list_append(&f->writes, &w->node);
		f->is_durable |= w->batch.is_durable;
	}
	map_done(&s->streams);
	return f;
}

static void on_flushed(struct job *job);

static void submit(struct store *s, struct flush *f)
{
	f->store = s;
	job_init(&f->job, run_flush, free_flush);
	f->job.finished = on_flushed;
	s->flush = f;
	offload_detached(s->loop, s->worker, &f->job);
}

static void start_flush(void *data)
{
	struct store *s = data;

	if (!s->flush && !s->is_closing && !list_is_empty(&s->queue))
		submit(s, take_queue(s));
}

/* The flush's last reference is dropped after this. */
static void on_flushed(struct job *job)
{
	struct flush *f = container_of(job, struct flush, job);
	struct store *s = f->store;

	s->flush = NULL;
	if (f->is_checkpoint)
		s->counters.checkpoints++;
	else
		finish_writes(s, f);
	if (f->wants_checkpoint && !s->is_closing) {
		struct flush *checkpoint = xnew(struct flush);

		checkpoint->is_checkpoint = true;
		list_init(&checkpoint->writes);
		submit(s, checkpoint);
	} else {
		/* after those that were woken just now had their turn, so that they join in */
		if (!list_is_empty(&s->queue))
			loop_post(s->loop, &s->kick);
	}
}

void commit_init(struct store *s)
{
	list_init(&s->queue);
	loop_work_init(&s->kick, "store", start_flush, s);
	s->checkpoint_at = CHECKPOINT_PAGES;
	sqlite3_wal_hook(s->writer.db, on_wal, s);
}

void commit_rest(struct store *s)
{
	struct flush *f = s->flush;

	if (f)
		job_settle(&f->job);
	loop_work_cancel(&s->kick);
	if (list_is_empty(&s->queue))
		return;
	f = take_queue(s);
	run_writes(f);
	finish_writes(s, f);
	free(f);
}

static struct write *new_write(struct store_batch *batch)
{
	struct write *w = xnew(struct write);

	w->batch = *batch;
	*batch = (struct store_batch){0};
	w->refs = 1;
	w->listeners_end = &w->listeners;
	list_init(&w->node);
	task_event_init(&w->done);
	return w;
}

static void enqueue(struct store *s, struct write *w)
{
	/* a stream row queued before it must not take up what comes after it */
	if (w->batch.has_streams)
		map_done(&s->streams);
	list_append(&s->queue, &w->node);
	if (!s->flush)
		loop_post(s->loop, &s->kick);
}

static struct listener *add_listener(struct write *w, void *data)
{
	struct listener *n = arena_alloc(w->batch.arena, sizeof(*n));

	n->data = data;
	*w->listeners_end = n;
	w->listeners_end = &n->next;
	return n;
}

int store_commit(struct task *t, struct store *s, struct store_batch *batch)
{
	struct write *w;
	int r;

	TRY(task_check(t));
	if (!batch->first)
		return 0;
	w = new_write(batch);
	w->refs++;
	enqueue(s, w);
	r = task_event_wait(t, &w->done);
	if (r == 0)
		r = w->result < 0 ? error_copy(&t->err, w->err) : task_work_done(t);
	unref_write(w);
	return r;
}

int commit_now(struct task *t, struct store *s, struct store_batch batch)
{
	int r = store_commit(t, s, &batch);

	store_batch_done(&batch);
	return r;
}

void store_commit_later(struct store *s, struct store_batch *batch,
			void (*done)(void *data, int result, const struct error *err), void *data)
{
	struct write *w;

	if (s->is_closing) {
		store_batch_done(batch);
		return;
	}
	if (!batch->arena)
		batch->arena = arena_new(BATCH_CAP);
	w = new_write(batch);
	if (done)
		add_listener(w, data)->done = done;
	enqueue(s, w);
}

int store_commit_blocking(struct store *s, struct store_batch *batch, struct error *err)
{
	struct flush f = {.store = s, .is_durable = batch->is_durable};
	struct write *w;
	int r;

	if (s->flush)
		abort();
	if (!batch->first)
		return 0;
	TRY(db_need_writer(s, err));
	w = new_write(batch);
	w->refs++;
	list_init(&f.writes);
	list_append(&f.writes, &w->node);
	run_writes(&f);
	finish_writes(s, &f);
	r = w->result < 0 ? error_copy(err, w->err) : 0;
	unref_write(w);
	return r;
}

struct write *commit_queue(struct store *s, struct store_batch *batch)
{
	struct write *w = new_write(batch);

	enqueue(s, w);
	return w;
}

struct store_op *commit_op(struct write *w)
{
	return w->batch.first;
}

void commit_listen(struct write *w, void (*done)(void *data, int result), void *data)
{
	add_listener(w, data)->plain_done = done;
}

struct store_counters store_counters(const struct store *s)
{
	return s->counters;
}
