/* SPDX-License-Identifier: Apache-2.0 */
/* Sandbox rows. Peculiar: what belongs to a sandbox is deleted with it, by statement, not by
 * trigger. */
#include "store/sandboxes.h"
#include "store/priv.h"

static const char sandbox_put_sql[] =
	"INSERT INTO sandboxes (id, state, kind, handler, config, record, created_at, "
	"name, namespace, uid, attempt, netns, reason, resources, next_resources, options) VALUES "
	"(?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT (id) DO UPDATE SET state = "
	"excluded.state, kind = "
	"excluded.kind, handler = excluded.handler, config = excluded.config, record = "
	"excluded.record, created_at = excluded.created_at, name = excluded.name, "
	"namespace = excluded.namespace, uid = excluded.uid, attempt = "
	"excluded.attempt, netns = excluded.netns, reason = excluded.reason, "
	"resources = excluded.resources, next_resources = excluded.next_resources, "
	"options = excluded.options";

static const char delete_intents_sql[] =
	"DELETE FROM intents WHERE object_id = ?1 OR object_id IN (SELECT id FROM "
	"containers WHERE sandbox_id = ?1)";

static const char delete_streams_sql[] =
	"DELETE FROM streams WHERE container_id IN (SELECT id FROM containers WHERE "
	"sandbox_id = ?)";

static const char delete_containers_sql[] = "DELETE FROM containers WHERE sandbox_id = ?";

static const char delete_sandbox_sql[] = "DELETE FROM sandboxes WHERE id = ?";

static const char move_all_sql[] = "UPDATE sandboxes SET state = ? WHERE state = ?";

static const struct table sandbox_table = {
	.name = "sandboxes",
	.keys = {"SELECT rowid FROM sandboxes INDEXED BY sqlite_autoindex_sandboxes_1 ORDER BY "
		 "rowid",
		 "SELECT rowid FROM sandboxes ORDER BY rowid"},
	.sql = "SELECT id, state, kind, handler, config, record, created_at, name, namespace, "
	       "uid, attempt, netns, reason, resources, next_resources, options FROM sandboxes "
	       "WHERE rowid = ?",
};

void batch_sandbox_put(struct store_batch *batch, const struct sandbox_row *row)
{
	struct store_op *op = op_new(batch, sandbox_put_sql);

	op_text(op, row->id);
	op_int(op, row->state);
	op_text(op, row->kind);
	op_text(op, row->handler);
	op_blob(op, row->config, row->config_size);
	op_blob(op, row->record, row->record_size);
	op_int(op, row->created_at);
	op_text(op, row->name);
	op_text(op, row->namespace_);
	op_text(op, row->uid);
	op_int(op, row->attempt);
	op_text(op, row->netns);
	op_text(op, row->reason);
	op_blob(op, row->resources, row->resources_size);
	op_blob(op, row->next_resources, row->next_resources_size);
	op_text(op, row->options);
}

void batch_sandbox_move_all(struct store_batch *batch, int from, int to)
{
	struct store_op *op = op_new(batch, move_all_sql);

	op_int(op, to);
	op_int(op, from);
}

void batch_sandbox_delete(struct store_batch *batch, const char *id)
{
	op_text(op_new(batch, delete_intents_sql), id);
	op_text(op_new(batch, delete_streams_sql), id);
	op_text(op_new(batch, delete_containers_sql), id);
	op_text(op_new(batch, delete_sandbox_sql), id);
}

int store_sandbox_put(struct task *t, struct store *s, const struct sandbox_row *row)
{
	struct store_batch b = {0};

	batch_sandbox_put(&b, row);
	return commit_now(t, s, b);
}

int store_sandbox_delete(struct task *t, struct store *s, const char *id)
{
	struct store_batch b = {0};

	batch_sandbox_delete(&b, id);
	return commit_now(t, s, b);
}

struct sandbox_each {
	int (*fn)(void *data, const struct sandbox_row *row);
	void *data;
};

static int read_sandbox(void *arg, sqlite3_stmt *columns)
{
	const struct sandbox_each *e = arg;
	struct sandbox_row row = {
		.id = db_text(columns, 0),
		.state = sqlite3_column_int(columns, 1),
		.kind = db_text(columns, 2),
		.handler = db_text(columns, 3),
		.created_at = sqlite3_column_int64(columns, 6),
		.name = db_text(columns, 7),
		.namespace_ = db_text(columns, 8),
		.uid = db_text(columns, 9),
		.attempt = (uint32_t)sqlite3_column_int64(columns, 10),
		.netns = db_text(columns, 11),
		.reason = db_text(columns, 12),
		.options = db_text(columns, 15),
	};

	row.config = db_blob(columns, 4, &row.config_size);
	row.record = db_blob(columns, 5, &row.record_size);
	row.resources = db_blob(columns, 13, &row.resources_size);
	row.next_resources = db_blob(columns, 14, &row.next_resources_size);
	return e->fn(e->data, &row);
}

int store_sandbox_each(struct store *s, int (*fn)(void *data, const struct sandbox_row *row),
		       void *data, struct error *err)
{
	return db_scan(s, &sandbox_table, read_sandbox, &(struct sandbox_each){fn, data}, err);
}
