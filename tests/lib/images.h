/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Image archives for tests: OCI layouts and docker archives, written into a directory. Aborts (a
 * failed assertion) when something can't be made.
 */
#pragma once

#include <stddef.h>

#include "io/base/buf.h"
#include "store/image/digest.h"

#define OCI_INDEX "application/vnd.oci.image.index.v1+json"
#define OCI_MANIFEST "application/vnd.oci.image.manifest.v1+json"
#define OCI_CONFIG "application/vnd.oci.image.config.v1+json"
#define OCI_LAYER "application/vnd.oci.image.layer.v1.tar"

struct fixture_layer {
	char diff_id[DIGEST_SIZE];
	struct buf blob;
	char digest[DIGEST_SIZE]; /* of the blob */
};

struct fixture_image {
	char id[DIGEST_SIZE];
	char manifest[DIGEST_SIZE];
	size_t manifest_size;
};

/* A layer of one file; filter NULL, "gzip" or "zstd". */
void fixture_layer_make(struct fixture_layer *l, const char *file, const char *text,
			const char *filter);
void fixture_layer_done(struct fixture_layer *l);
/* Writes a file beneath dir, making its parents. */
void fixture_write(int dir, const char *path, const void *data, size_t n);
/* Writes text as a blob; ret may be NULL. */
void fixture_blob(int dir, const char *text, char ret[DIGEST_SIZE]);
/* The configuration of an image of these layers; config is its "config" object, or NULL. */
void fixture_config(struct buf *ret, const struct fixture_layer *const *layers, size_t count,
		    const char *arch, const char *config);
/* Writes layers, configuration and manifest of an image into an OCI layout. */
void fixture_oci_image(int dir, const struct fixture_layer *const *layers, size_t count,
		       const char *arch, const char *config, struct fixture_image *ret);
/* One entry of index.json; name NULL: without the annotation. */
void fixture_descriptor(struct buf *ret, const char *type, const char *digest, size_t size,
			const char *name, const char *platform);
/* Writes index.json and oci-layout; entries: descriptors joined by commas. */
void fixture_index(int dir, const char *entries);
/* Packs the directory as a tar, optionally compressed. */
void fixture_pack(int dir, const char *filter, struct buf *ret);
