/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Rows of images and their layers; the image store's files are store/image/'s business. All writes
 * are durable (fsync). Lists are text, one item a line ("a\nb"), "" or NULL when empty.
 */
#pragma once

#include "store/db.h"

struct image_row {
	const char *id;	    /* "sha256:…", digest of the config; never NULL */
	const void *config; /* the image config's JSON, byte for byte */
	size_t config_size;
	const char *manifest_digest;
	const char *chain_ids;	  /* of its layers, lowest first */
	const char *repo_tags;	  /* normalised names with tag */
	const char *repo_digests; /* names with @digest */
	uint64_t size_bytes;
	int64_t created_at; /* when it came here, realtime ns */
	bool is_pinned;
	bool is_removed; /* by the API, but its layers were in use */
};

struct layer_row {
	const char *chain_id; /* "sha256:…"; never NULL */
	const char *diff_id;
	const char *parent; /* chain id, NULL for the lowest */
	uint64_t size_bytes, inodes;
	int state; /* the image store's enum */
	int64_t created_at;
};

int store_image_put(struct task *t, struct store *s, const struct image_row *row);
int store_image_delete(struct task *t, struct store *s, const char *id);
/* As store_sandbox_each(). */
int store_image_each(struct store *s, int (*fn)(void *data, const struct image_row *row),
		     void *data, struct error *err);
void batch_image_put(struct store_batch *batch, const struct image_row *row);
void batch_image_delete(struct store_batch *batch, const char *id);

int store_layer_put(struct task *t, struct store *s, const struct layer_row *row);
int store_layer_delete(struct task *t, struct store *s, const char *chain_id);
int store_layer_each(struct store *s, int (*fn)(void *data, const struct layer_row *row),
		     void *data, struct error *err);
void batch_layer_put(struct store_batch *batch, const struct layer_row *row);
void batch_layer_delete(struct store_batch *batch, const char *chain_id);
