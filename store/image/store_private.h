/* SPDX-License-Identifier: Apache-2.0 */
/* Between the files of the image store: store.c (images and names), layer.c, import.c. */
#pragma once

#include "io/base/arena.h"
#include "io/base/list.h"
#include "io/base/map.h"
#include "store/image/image.h"
#include "store/image/plan.h"
#include "store/image/unpack.h"

#define MAX_BYTES_DEFAULT (64ull * 1024 * 1024 * 1024)
#define MAX_INODES_DEFAULT 4000000ull

/*
 *   (none) → UNPACKING → READY → REMOVING → (none)
 *
 * Who wants a layer that is UNPACKING or REMOVING waits for image_store.changed and looks again.
 */
enum layer_state { LAYER_UNPACKING, LAYER_READY, LAYER_REMOVING };

struct layer {
	char *chain_id, *path;
	uint64_t bytes, inodes;
	enum layer_state state;
	bool is_opaque; /* its root hides all layers below */
	size_t refs;	/* images, and imports under way */
	struct list unused;
};

/* An image with what only the store sees. */
struct image_entry {
	struct image image;
	struct arena *arena; /* of all but the names */
	char *manifest_digest;
	struct layer **layers;
	size_t layer_count, holds;
	bool is_dropping; /* its row is being deleted: no new holders */
};

struct image_store {
	struct loop *loop;
	struct store *db;
	char *dir; /* ROOT/images */
	int dir_fd, layers_fd, ingest_fd;
	struct unpacker *unpacker;
	struct image_limits limits;
	struct map images;  /* id → image_entry */
	struct map damaged; /* the same, of images that lack something: for their holders only */
	struct map names;   /* tag or digest reference → image_entry */
	struct map layers;  /* chain id → layer */
	struct map holders; /* id → holder */
	struct list unused;
	bool is_incomplete;	  /* some row could not be read */
	struct task_mutex commit; /* rows and names change under it */
	struct task_cond changed; /* some layer's state */
	uint64_t bytes, inodes;	  /* of all layers that are READY */
};

/* layer.c */
struct layer *layer_load(struct image_store *st, const char *chain_id, uint64_t bytes,
			 uint64_t inodes);
void layer_free(struct image_store *st, struct layer *l);
void layer_take(struct layer *l);
/* At the last one it is queued for layer_collect(). */
void layer_drop(struct image_store *st, struct layer *l);
/*
 * Takes the layer, which is unpacked from the blob beneath source if need be. below: the layers
 * under it, lowest first. ret_is_new tells whether it was.
 */
int layer_ensure(struct task *t, struct image_store *st, int source, const struct plan_layer *from,
		 struct layer *const *below, size_t below_count, struct layer **ret,
		 bool *ret_is_new);
/* Removes all unused layers; shielded. */
int layer_collect(struct task *t, struct image_store *st);

/* store.c */
/* Makes the image of the plan (or gives more names to it); takes layers for itself. */
int image_commit(struct task *t, struct image_store *st, const struct plan_image *from,
		 struct layer *const *layers, bool is_pinned);
/* Whether it is there, whole. */
bool layer_is_ready(const struct image_store *st, const char *chain_id);
