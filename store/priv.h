/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the store's own files share: the connections, the statements that a batch is made of, and
 * how a table is read. Statements are named by the address of their SQL text, which must be static.
 *
 * Threads: the writer connection belongs to the store thread while that exists, everything else to
 * the loop's. A write that is being committed is the store thread's until its flush has finished.
 */
#pragma once

#include <sqlite3.h>

#include "io/base/map.h"
#include "io/offload.h"
#include "store/db.h"

#define STATEMENTS_MAX 48
#define OP_VALUES_MAX 24

struct connection {
	sqlite3 *db;
	const char *path;
	struct {
		const char *sql;
		sqlite3_stmt *stmt;
	} statements[STATEMENTS_MAX];
	unsigned count;
};

/* One bound parameter. text and blob lie in the batch's arena. */
struct value {
	int type; /* SQLITE_INTEGER, SQLITE_TEXT, SQLITE_BLOB or SQLITE_NULL */
	int64_t number;
	const void *data;
	size_t size;
};

struct store_op {
	struct store_op *next;
	struct arena *arena;
	const char *sql;
	unsigned count;
	struct value values[OP_VALUES_MAX];
};

struct flush;
struct write;

struct store {
	struct loop *loop;
	struct worker *worker;
	char *path; /* of crisp.db */
	int lock_fd;
	struct connection writer, reader;
	struct list queue;   /* struct write, asked for since the last flush began */
	struct map streams;  /* container id → queued struct write */
	struct flush *flush; /* what the store thread has in hand, or NULL */
	struct loop_work kick;
	int64_t next_intent;
	bool is_closing;
	bool is_writable; /* offline: the writer may be opened */
	struct store_counters counters;
	/* the store thread's */
	bool is_full_sync;
	int wal_pages, checkpoint_at;
};

/* db.c */
/* Fills err for a failed SQLite call: "what on PATH: why; what to do". */
int db_error(struct error *err, const struct connection *c, int rc, const char *what);
int db_open(struct connection *c, const char *path, int flags, struct error *err);
void db_close(struct connection *c);
/* Opens the writer of an offline store, as closing one may already change files. */
int db_need_writer(struct store *s, struct error *err);
/* Makes an empty database one of ours, or an older one a current one. */
int db_prepare(struct connection *c, struct error *err);
/* The prepared statement for that text, reset; NULL with err set. Owned by the connection. */
sqlite3_stmt *db_statement(struct connection *c, const char *sql, struct error *err);
/* Brings the database from its version to count by steps[version…], in one transaction. */
int db_migrate(struct connection *c, const char *const *steps, int count, struct error *err);
/*
 * Calls row for each row of a table by ascending rowid, one query a row, so that a damaged page
 * costs only the rows on it. keys are queries for the rowids, tried in turn until one succeeds
 * (NULL ends them); sql has the rowid as its parameter. The result is the number of rows left out.
 */
struct table {
	const char *name;
	const char *keys[2];
	const char *sql;
};

int db_scan(struct store *s, const struct table *table,
	    int (*row)(void *arg, sqlite3_stmt *columns), void *arg, struct error *err);
/* Columns; text may be NULL. */
const char *db_text(sqlite3_stmt *columns, int i);
const void *db_blob(sqlite3_stmt *columns, int i, size_t *ret_size);

/* commit.c */
/* Adds a statement to the batch; its parameters follow in order. */
struct store_op *op_new(struct store_batch *batch, const char *sql);
void op_text(struct store_op *op, const char *text);
void op_int(struct store_op *op, int64_t number);
void op_blob(struct store_op *op, const void *data, size_t size);
/* Commits the batch's only row from a task and empties it. */
int commit_now(struct task *t, struct store *s, struct store_batch batch);
/* A queued batch that its table may still change, until the flush begins and s->streams is emptied.
 */
struct write *commit_queue(struct store *s, struct store_batch *batch);
struct store_op *commit_op(struct write *w);
void commit_listen(struct write *w, void (*done)(void *data, int result), void *data);
/* Runs all that is queued, on the calling thread; the store thread must be gone. */
void commit_rest(struct store *s);
/* Once the writer is open. */
void commit_init(struct store *s);
