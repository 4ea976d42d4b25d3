/* SPDX-License-Identifier: Apache-2.0 */
/* Intent rows and the register of those who can finish or undo them. */
#include "store/intents.h"

#include <stdlib.h>
#include <string.h>

#include "store/priv.h"

static const char begin_sql[] =
	"INSERT INTO intents (id, kind, object_id, data) VALUES (?, ?, ?, ?)";
static const char end_sql[] = "DELETE FROM intents WHERE id = ?";
static const char end_object_sql[] = "DELETE FROM intents WHERE object_id = ? AND kind = ?";

static const char end_kind_sql[] = "DELETE FROM intents WHERE kind = ?";

static const struct table table = {
	.name = "intents",
	.keys = {"SELECT rowid FROM intents INDEXED BY intents_by_object ORDER BY rowid",
		 "SELECT rowid FROM intents ORDER BY rowid"},
	.sql = "SELECT id, kind, object_id, data FROM intents WHERE id = ?",
};

static struct recover_ops *registered;

int64_t batch_intent_begin(struct store_batch *batch, struct store *s, const char *kind,
			   const char *object_id, const void *data, size_t size)
{
	struct store_op *op = op_new(batch, begin_sql);
	int64_t id = s->next_intent++;

	op_int(op, id);
	op_text(op, kind);
	op_text(op, object_id);
	op_blob(op, data, size);
	return id;
}

void batch_intent_end(struct store_batch *batch, int64_t id)
{
	op_int(op_new(batch, end_sql), id);
}

void batch_intent_end_kind(struct store_batch *batch, const char *kind)
{
	op_text(op_new(batch, end_kind_sql), kind);
}

void batch_intent_end_object(struct store_batch *batch, const char *kind, const char *object_id)
{
	struct store_op *op = op_new(batch, end_object_sql);

	op_text(op, object_id);
	op_text(op, kind);
}

int store_intent_begin(struct task *t, struct store *s, const char *kind, const char *object_id,
		       const void *data, size_t size, int64_t *ret_id)
{
	struct store_batch b = {0};
	int64_t id = batch_intent_begin(&b, s, kind, object_id, data, size);

	TRY(commit_now(t, s, b));
	*ret_id = id;
	return 0;
}

int store_intent_end(struct task *t, struct store *s, int64_t id)
{
	struct store_batch b = {0};

	batch_intent_end(&b, id);
	return commit_now(t, s, b);
}

int store_intent_end_object(struct task *t, struct store *s, const char *kind,
			    const char *object_id)
{
	struct store_batch b = {0};

	batch_intent_end_object(&b, kind, object_id);
	return commit_now(t, s, b);
}

struct each {
	int (*fn)(void *data, const struct intent_row *row);
	void *data;
};

static int read_row(void *arg, sqlite3_stmt *columns)
{
	const struct each *e = arg;
	struct intent_row row = {
		.id = sqlite3_column_int64(columns, 0),
		.kind = db_text(columns, 1),
		.object_id = db_text(columns, 2),
	};

	row.data = db_blob(columns, 3, &row.data_size);
	return e->fn(e->data, &row);
}

int store_intent_each(struct store *s, int (*fn)(void *data, const struct intent_row *row),
		      void *data, struct error *err)
{
	return db_scan(s, &table, read_row, &(struct each){fn, data}, err);
}

void recover_register(struct recover_ops *ops)
{
	if (recover_find(ops->kind) || (!ops->finish && !ops->undo))
		abort();
	ops->next = registered;
	registered = ops;
}

const struct recover_ops *recover_find(const char *kind)
{
	for (const struct recover_ops *ops = registered; ops; ops = ops->next)
		if (!strcmp(ops->kind, kind))
			return ops;
	return NULL;
}
