/* SPDX-License-Identifier: Apache-2.0 */
/* Between plan.c (what both kinds of archive need) and the readers of each kind. */
#pragma once

#include "io/base/buf.h"
#include "store/image/plan.h"

struct plan_reader {
	int dir;
	struct plan *plan;
	const struct string_list *names; /* given by the user */
	struct error *err;
};

/* Reads a document; ERR_NOT_FOUND only from here. */
int plan_document(struct plan_reader *r, const char *path, struct buf *ret);
/* Adds the image whose configuration is config, one that is there already (by id) only gains names.
 * ret_image's layers have diff and chain ids; blobs are the caller's. ret_image is NULL when it was
 * there. layer_count: what the manifest says. */
int plan_add_image(struct plan_reader *r, const struct buf *config, size_t layer_count,
		   struct plan_image **ret_image, bool *ret_is_new);
/* Adds a name as its normal form; with manifest_digest also the digest reference. */
int plan_add_name(struct plan_reader *r, struct plan_image *img, const char *name,
		  const char *manifest_digest);
/* "blobs/sha256/<hex>" */
const char *plan_blob_path(struct plan_reader *r, const char *digest);

int plan_read_oci(struct plan_reader *r);
int plan_read_docker(struct plan_reader *r);
