/* SPDX-License-Identifier: Apache-2.0 */
/* Container rows. */
#include "store/containers.h"
#include "store/priv.h"

static const char container_put_sql[] =
	"INSERT INTO containers (id, sandbox_id, state, config, record, image_id, "
	"image_ref, user_image, created_at, started_at, finished_at, exit_code, "
	"exit_known, reason, message, log_path, pid, uid, gid, resources, next_resources, "
	"edits) VALUES (?, ?, ?, ?, ?, ?, "
	"?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT (id) DO UPDATE SET "
	"sandbox_id = excluded.sandbox_id, state = excluded.state, config = "
	"excluded.config, record = excluded.record, image_id = excluded.image_id, "
	"image_ref = excluded.image_ref, user_image = excluded.user_image, created_at = "
	"excluded.created_at, started_at = excluded.started_at, finished_at = "
	"excluded.finished_at, exit_code = excluded.exit_code, exit_known = "
	"excluded.exit_known, reason = excluded.reason, message = excluded.message, "
	"log_path = excluded.log_path, pid = excluded.pid, uid = excluded.uid, gid = "
	"excluded.gid, resources = excluded.resources, next_resources = "
	"excluded.next_resources, edits = excluded.edits";

static const char delete_intents_sql[] = "DELETE FROM intents WHERE object_id = ?";

static const char delete_stream_sql[] = "DELETE FROM streams WHERE container_id = ?";

static const char delete_container_sql[] = "DELETE FROM containers WHERE id = ?";

static const char end_all_sql[] =
	"UPDATE containers SET state = ?, exit_code = ?, exit_known = ?, reason = ?, message = ?, "
	"finished_at = max(started_at, ?) WHERE state = ?";

static const struct table container_table = {
	.name = "containers",
	.keys = {"SELECT rowid FROM containers INDEXED BY sqlite_autoindex_containers_1 ORDER BY "
		 "rowid",
		 "SELECT rowid FROM containers ORDER BY rowid"},
	.sql = "SELECT id, sandbox_id, state, config, record, image_id, image_ref, user_image, "
	       "created_at, started_at, finished_at, exit_code, exit_known, reason, message, "
	       "log_path, pid, uid, gid, resources, next_resources, edits FROM containers WHERE "
	       "rowid = ?",
};

void batch_container_put(struct store_batch *batch, const struct container_row *row)
{
	struct store_op *op = op_new(batch, container_put_sql);

	op_text(op, row->id);
	op_text(op, row->sandbox_id);
	op_int(op, row->state);
	op_blob(op, row->config, row->config_size);
	op_blob(op, row->record, row->record_size);
	op_text(op, row->image_id);
	op_text(op, row->image_ref);
	op_text(op, row->user_image);
	op_int(op, row->created_at);
	op_int(op, row->started_at);
	op_int(op, row->finished_at);
	op_int(op, row->exit_code);
	op_int(op, row->exit_known);
	op_text(op, row->reason);
	op_text(op, row->message);
	op_text(op, row->log_path);
	op_int(op, row->pid);
	op_int(op, row->uid);
	op_int(op, row->gid);
	op_blob(op, row->resources, row->resources_size);
	op_blob(op, row->next_resources, row->next_resources_size);
	op_blob(op, row->edits, row->edits_size);
}

void batch_container_end_all(struct store_batch *batch, int from, const struct container_row *end)
{
	struct store_op *op = op_new(batch, end_all_sql);

	op_int(op, end->state);
	op_int(op, end->exit_code);
	op_int(op, end->exit_known);
	op_text(op, end->reason);
	op_text(op, end->message);
	op_int(op, end->finished_at);
	op_int(op, from);
}

void batch_container_delete(struct store_batch *batch, const char *id)
{
	op_text(op_new(batch, delete_intents_sql), id);
	op_text(op_new(batch, delete_stream_sql), id);
	op_text(op_new(batch, delete_container_sql), id);
}

int store_container_put(struct task *t, struct store *s, const struct container_row *row)
{
	struct store_batch b = {0};

	batch_container_put(&b, row);
	return commit_now(t, s, b);
}

int store_container_delete(struct task *t, struct store *s, const char *id)
{
	struct store_batch b = {0};

	batch_container_delete(&b, id);
	return commit_now(t, s, b);
}

struct container_each {
	int (*fn)(void *data, const struct container_row *row);
	void *data;
};

static int read_container(void *arg, sqlite3_stmt *columns)
{
	const struct container_each *e = arg;
	struct container_row row = {
		.id = db_text(columns, 0),
		.sandbox_id = db_text(columns, 1),
		.state = sqlite3_column_int(columns, 2),
		.image_id = db_text(columns, 5),
		.image_ref = db_text(columns, 6),
		.user_image = db_text(columns, 7),
		.created_at = sqlite3_column_int64(columns, 8),
		.started_at = sqlite3_column_int64(columns, 9),
		.finished_at = sqlite3_column_int64(columns, 10),
		.exit_code = sqlite3_column_int(columns, 11),
		.exit_known = sqlite3_column_int(columns, 12),
		.reason = db_text(columns, 13),
		.message = db_text(columns, 14),
		.log_path = db_text(columns, 15),
		.pid = sqlite3_column_int(columns, 16),
		.uid = (uint32_t)sqlite3_column_int64(columns, 17),
		.gid = (uint32_t)sqlite3_column_int64(columns, 18),
	};

	row.config = db_blob(columns, 3, &row.config_size);
	row.record = db_blob(columns, 4, &row.record_size);
	row.resources = db_blob(columns, 19, &row.resources_size);
	row.next_resources = db_blob(columns, 20, &row.next_resources_size);
	row.edits = db_blob(columns, 21, &row.edits_size);
	return e->fn(e->data, &row);
}

int store_container_each(struct store *s, int (*fn)(void *data, const struct container_row *row),
			 void *data, struct error *err)
{
	return db_scan(s, &container_table, read_container, &(struct container_each){fn, data},
		       err);
}
