/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Stream rows. Peculiar: a row that is still queued is changed in place, so a busy log costs one
 * row a transaction; and one that comes after its container was deleted must not bring a row back.
 */
#include "store/streams.h"
#include "store/priv.h"

static const char put_sql[] =
	"INSERT INTO streams (container_id, log_inode, log_offset, spool_out, spool_err, "
	"partial_out, partial_err, dropped_out, dropped_err, unreported_out, unreported_err) "
	"SELECT ?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11 "
	"WHERE EXISTS (SELECT 1 FROM containers WHERE id = ?1) "
	"ON CONFLICT (container_id) DO UPDATE SET log_inode = excluded.log_inode, "
	"log_offset = excluded.log_offset, spool_out = excluded.spool_out, "
	"spool_err = excluded.spool_err, partial_out = excluded.partial_out, "
	"partial_err = excluded.partial_err, dropped_out = excluded.dropped_out, "
	"dropped_err = excluded.dropped_err, unreported_out = excluded.unreported_out, "
	"unreported_err = excluded.unreported_err";

static const char delete_sql[] = "DELETE FROM streams WHERE container_id = ?";

static const struct table table = {
	.name = "streams",
	.keys = {"SELECT rowid FROM streams INDEXED BY sqlite_autoindex_streams_1 ORDER BY rowid",
		 "SELECT rowid FROM streams ORDER BY rowid"},
	.sql = "SELECT container_id, log_inode, log_offset, spool_out, spool_err, partial_out, "
	       "partial_err, dropped_out, dropped_err, unreported_out, unreported_err "
	       "FROM streams WHERE rowid = ?",
};

/* Everything but the id, which is the first value. SQLite's integers are signed; so be it. */
static void set_offsets(struct store_op *op, const struct stream_row *row)
{
	op->count = 1;
	op_int(op, (int64_t)row->log_inode);
	op_int(op, (int64_t)row->log_offset);
	op_int(op, (int64_t)row->spool_offset[0]);
	op_int(op, (int64_t)row->spool_offset[1]);
	op_int(op, row->partial[0]);
	op_int(op, row->partial[1]);
	op_int(op, (int64_t)row->dropped[0]);
	op_int(op, (int64_t)row->dropped[1]);
	op_int(op, (int64_t)row->unreported[0]);
	op_int(op, (int64_t)row->unreported[1]);
}

void batch_stream_put(struct store_batch *batch, const struct stream_row *row)
{
	struct store_op *op = op_new(batch, put_sql);

	batch->has_streams = true;
	op_text(op, row->container_id);
	set_offsets(op, row);
}

void batch_stream_delete(struct store_batch *batch, const char *container_id)
{
	op_text(op_new(batch, delete_sql), container_id);
}

void store_stream_put(struct store *s, const struct stream_row *row,
		      void (*done)(void *data, int result), void *data)
{
	struct write *w;

	if (s->is_closing)
		return;
	w = map_get(&s->streams, row->container_id);
	if (w) {
		set_offsets(commit_op(w), row);
		s->counters.coalesced_streams++;
	} else {
		struct store_batch batch = {0};

		batch_stream_put(&batch, row);
		w = commit_queue(s, &batch);
		map_put(&s->streams, row->container_id, w);
	}
	if (done)
		commit_listen(w, done, data);
}

struct each {
	int (*fn)(void *data, const struct stream_row *row);
	void *data;
};

static int read_row(void *arg, sqlite3_stmt *columns)
{
	const struct each *e = arg;
	struct stream_row row = {
		.container_id = db_text(columns, 0),
		.log_inode = (uint64_t)sqlite3_column_int64(columns, 1),
		.log_offset = (uint64_t)sqlite3_column_int64(columns, 2),
		.spool_offset = {(uint64_t)sqlite3_column_int64(columns, 3),
				 (uint64_t)sqlite3_column_int64(columns, 4)},
		.partial = {sqlite3_column_int(columns, 5), sqlite3_column_int(columns, 6)},
		.dropped = {(uint64_t)sqlite3_column_int64(columns, 7),
			    (uint64_t)sqlite3_column_int64(columns, 8)},
		.unreported = {(uint64_t)sqlite3_column_int64(columns, 9),
			       (uint64_t)sqlite3_column_int64(columns, 10)},
	};

	return e->fn(e->data, &row);
}

int store_stream_each(struct store *s, int (*fn)(void *data, const struct stream_row *row),
		      void *data, struct error *err)
{
	return db_scan(s, &table, read_row, &(struct each){fn, data}, err);
}
