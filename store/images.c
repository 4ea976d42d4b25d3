/* SPDX-License-Identifier: Apache-2.0 */
/* Image and layer rows, always fsynced: their files are, and one without the other is garbage. */
#include "store/images.h"
#include "store/priv.h"

static const char image_put_sql[] =
	"INSERT INTO images (id, config, manifest_digest, chain_ids, repo_tags, "
	"repo_digests, size_bytes, created_at, is_pinned, is_removed) VALUES (?, ?, ?, "
	"?, ?, ?, ?, ?, ?, ?) ON CONFLICT (id) DO UPDATE SET config = excluded.config, "
	"manifest_digest = excluded.manifest_digest, chain_ids = excluded.chain_ids, "
	"repo_tags = excluded.repo_tags, repo_digests = excluded.repo_digests, "
	"size_bytes = excluded.size_bytes, created_at = excluded.created_at, is_pinned "
	"= excluded.is_pinned, is_removed = excluded.is_removed";

static const char delete_image_sql[] = "DELETE FROM images WHERE id = ?";

static const struct table image_table = {
	.name = "images",
	.keys = {"SELECT rowid FROM images INDEXED BY sqlite_autoindex_images_1 ORDER BY rowid",
		 "SELECT rowid FROM images ORDER BY rowid"},
	.sql = "SELECT id, config, manifest_digest, chain_ids, repo_tags, repo_digests, "
	       "size_bytes, created_at, is_pinned, is_removed FROM images WHERE rowid = ?",
};

void batch_image_put(struct store_batch *batch, const struct image_row *row)
{
	struct store_op *op = op_new(batch, image_put_sql);

	op_text(op, row->id);
	op_blob(op, row->config, row->config_size);
	op_text(op, row->manifest_digest);
	op_text(op, row->chain_ids);
	op_text(op, row->repo_tags);
	op_text(op, row->repo_digests);
	op_int(op, (int64_t)row->size_bytes);
	op_int(op, row->created_at);
	op_int(op, row->is_pinned);
	op_int(op, row->is_removed);
	batch->is_durable = true;
}

void batch_image_delete(struct store_batch *batch, const char *id)
{
	op_text(op_new(batch, delete_image_sql), id);
	batch->is_durable = true;
}

int store_image_put(struct task *t, struct store *s, const struct image_row *row)
{
	struct store_batch b = {0};

	batch_image_put(&b, row);
	return commit_now(t, s, b);
}

int store_image_delete(struct task *t, struct store *s, const char *id)
{
	struct store_batch b = {0};

	batch_image_delete(&b, id);
	return commit_now(t, s, b);
}

struct image_each {
	int (*fn)(void *data, const struct image_row *row);
	void *data;
};

static int read_image(void *arg, sqlite3_stmt *columns)
{
	const struct image_each *e = arg;
	struct image_row row = {
		.id = db_text(columns, 0),
		.manifest_digest = db_text(columns, 2),
		.chain_ids = db_text(columns, 3),
		.repo_tags = db_text(columns, 4),
		.repo_digests = db_text(columns, 5),
		.size_bytes = (uint64_t)sqlite3_column_int64(columns, 6),
		.created_at = sqlite3_column_int64(columns, 7),
		.is_pinned = sqlite3_column_int(columns, 8),
		.is_removed = sqlite3_column_int(columns, 9),
	};

	row.config = db_blob(columns, 1, &row.config_size);
	return e->fn(e->data, &row);
}

int store_image_each(struct store *s, int (*fn)(void *data, const struct image_row *row),
		     void *data, struct error *err)
{
	return db_scan(s, &image_table, read_image, &(struct image_each){fn, data}, err);
}

static const char layer_put_sql[] =
	"INSERT INTO layers (chain_id, diff_id, parent, size_bytes, inodes, state, "
	"created_at) VALUES (?, ?, ?, ?, ?, ?, ?) ON CONFLICT (chain_id) DO UPDATE SET "
	"diff_id = excluded.diff_id, parent = excluded.parent, size_bytes = "
	"excluded.size_bytes, inodes = excluded.inodes, state = excluded.state, "
	"created_at = excluded.created_at";

static const char delete_layer_sql[] = "DELETE FROM layers WHERE chain_id = ?";

static const struct table layer_table = {
	.name = "layers",
	.keys = {"SELECT rowid FROM layers INDEXED BY sqlite_autoindex_layers_1 ORDER BY rowid",
		 "SELECT rowid FROM layers ORDER BY rowid"},
	.sql = "SELECT chain_id, diff_id, parent, size_bytes, inodes, state, created_at FROM "
	       "layers WHERE rowid = ?",
};

void batch_layer_put(struct store_batch *batch, const struct layer_row *row)
{
	struct store_op *op = op_new(batch, layer_put_sql);

	op_text(op, row->chain_id);
	op_text(op, row->diff_id);
	op_text(op, row->parent);
	op_int(op, (int64_t)row->size_bytes);
	op_int(op, (int64_t)row->inodes);
	op_int(op, row->state);
	op_int(op, row->created_at);
	batch->is_durable = true;
}

void batch_layer_delete(struct store_batch *batch, const char *chain_id)
{
	op_text(op_new(batch, delete_layer_sql), chain_id);
	batch->is_durable = true;
}

int store_layer_put(struct task *t, struct store *s, const struct layer_row *row)
{
	struct store_batch b = {0};

	batch_layer_put(&b, row);
	return commit_now(t, s, b);
}

int store_layer_delete(struct task *t, struct store *s, const char *chain_id)
{
	struct store_batch b = {0};

	batch_layer_delete(&b, chain_id);
	return commit_now(t, s, b);
}

struct layer_each {
	int (*fn)(void *data, const struct layer_row *row);
	void *data;
};

static int read_layer(void *arg, sqlite3_stmt *columns)
{
	const struct layer_each *e = arg;
	struct layer_row row = {
		.chain_id = db_text(columns, 0),
		.diff_id = db_text(columns, 1),
		.parent = db_text(columns, 2),
		.size_bytes = (uint64_t)sqlite3_column_int64(columns, 3),
		.inodes = (uint64_t)sqlite3_column_int64(columns, 4),
		.state = sqlite3_column_int(columns, 5),
		.created_at = sqlite3_column_int64(columns, 6),
	};

	return e->fn(e->data, &row);
}

int store_layer_each(struct store *s, int (*fn)(void *data, const struct layer_row *row),
		     void *data, struct error *err)
{
	return db_scan(s, &layer_table, read_layer, &(struct layer_each){fn, data}, err);
}
