/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What an archive holds: its documents are read from a directory (an OCI layout or a docker
 * archive, taken apart), checked and joined to a list of images to import. Blocks; run it in
 * offload. Nothing outside the directory is read, and no document over PLAN_DOCUMENT_MAX.
 */
#pragma once

#include "io/base/arena.h"
#include "io/base/error.h"
#include "io/base/strings.h"
#include "store/image/image.h"

#define PLAN_DOCUMENT_MAX (4 * 1024 * 1024)
#define PLAN_IMAGES_MAX 1024

struct plan_layer {
	const char *path;   /* of its blob in the directory, resolved beneath it */
	const char *digest; /* of the blob as it is; NULL when the archive names none */
	int64_t size;	    /* of the blob; −1 when the archive names none */
	const char *diff_id, *chain_id;
};

struct plan_image {
	const char *id;
	const char *manifest_digest; /* NULL in a docker archive */
	const char *config_json;
	size_t config_length;
	struct string_list repo_tags; /* normal forms */
	struct string_list repo_digests;
	struct plan_layer *layers; /* lowest first */
	size_t layer_count;
	struct plan_image *next;
};

struct plan {
	struct arena *arena; /* of all of it */
	struct plan_image *images;
	size_t count;
};

/* names: more names, when the directory holds one image. ERR_INVALID with document and reason. */
int plan_read(int dir, const struct string_list *names, struct plan **ret, struct error *err);
void plan_free(struct plan *plan);
