/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The image store: which images the node has, under which names, and the directories of their
 * layers. Images are kept in memory (a row each in the database behind it), so looking one up costs
 * no system call. A layer is a directory ROOT/images/layers/<chain id>, complete and synced before
 * its row exists, shared by all images that are built on it, never changed afterwards.
 *
 * Layers go when no image and no holder uses them. A holder (a container) keeps an image's layers
 * even when the image is removed; holds are in memory only, so after a restart each container holds
 * its image again and then image_sweep() drops what nobody held.
 *
 * Archives are untrusted: their documents are bounded and checked (CVE-2023-25153, CVE-2024-3727,
 * GHSA-5j5w-g665-5m35), their bytes are unpacked by a locked-down child. Labels are data, never
 * control input (CVE-2026-53488).
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "io/base/strings.h"
#include "io/task.h"

struct store;
struct image_store;

/* From the OCI image configuration's "config" object; empty lists and NULL when not given. */
struct image_config {
	const char *architecture, *os;
	const char *user;	/* as written: "1000", "www-data:www-data" */
	struct string_list env; /* "NAME=value" */
	struct string_list entrypoint, cmd;
	const char *working_dir;
	struct string_list volumes;	  /* absolute paths in the container, sorted */
	struct string_list exposed_ports; /* "80/tcp", sorted */
	const char *stop_signal;	  /* "SIGTERM", "15", … */
	struct key_value_list labels;	  /* sorted by key */
};

/*
 * Good until the caller next suspends; image_ref() keeps it longer. The names may change while it
 * is kept, the rest never does.
 */
struct image {
	const char *id;			 /* "sha256:…", the digest of its configuration */
	struct string_list repo_tags;	 /* "docker.io/library/busybox:latest", sorted */
	struct string_list repo_digests; /* "docker.io/library/busybox@sha256:…", sorted */
	uint64_t size;			 /* bytes of its unpacked layers and configuration */
	uint64_t imported_ns;		 /* realtime clock */
	bool is_pinned;			 /* the kubelet must not collect it */
	bool is_removed;		 /* only kept for its holders; never found or listed */
	const char *config_json;	 /* the document behind id, byte for byte */
	size_t config_length;
	struct image_config config;
	struct string_list layers;    /* absolute directories, lowest first, to be mounted */
	struct string_list chain_ids; /* of all layers, lowest first */
	int refs;
};

/* What an image is told by where its content matters, not its name: a digest reference if it has
 * one, else its id. */
static inline const char *image_reference(const struct image *img)
{
	return img->repo_digests.count ? img->repo_digests.items[0] : img->id;
}

/* Limits of one import; 0 means the default. */
struct image_limits {
	uint64_t unpacked_bytes; /* of a layer or an archive; 64 GiB */
	uint64_t inodes;	 /* of a layer or an archive; 4 million */
};

/*
 * Opens ROOT/images (made with mode 0700), loads all rows, drops rows whose directory is missing
 * and directories without a row, and what an import left behind; says what it drops and why.
 * Blocks; at start only. s must stay open as long as the image store.
 */
struct image_store *image_store_open(struct loop *l, struct store *s, const char *root_dir,
				     struct error *err);
void image_store_free(struct image_store *st);
void image_store_set_limits(struct image_store *st, const struct image_limits *limits);

/*
 * By id ("sha256:…" or its hex digits), unambiguous prefix of at least 3 of its hex digits, tag
 * ("busybox" means docker.io/library/busybox:latest) or digest reference; NULL when there is none
 * (also for what is no reference).
 */
const struct image *image_find(struct image_store *st, const char *ref);
/* The one with exactly this id, also one that is only kept for its holders. */
const struct image *image_by_id(struct image_store *st, const char *id);
/* Calls fn for every image; fn may not suspend or change the store. */
void image_each(struct image_store *st, void (*fn)(const struct image *img, void *data),
		void *data);
/* Keeps the struct (not the layers: image_hold()) until image_unref(). */
const struct image *image_ref(const struct image *img);
void image_unref(const struct image *img);

/* What an import reports while it runs. */
struct image_progress {
	const char *what;   /* "reading archive", "unpacking sha256:…", "layer exists sha256:…",
			       "imported NAME" */
	size_t done, total; /* layers of the present image */
};

struct image_import {
	const char
		*path; /* an OCI layout or docker archive: directory, or tar (plain, gzip, zstd) */
	struct string_list names; /* given besides those in the archive; only for one image */
	bool is_pinned;
	void (*progress)(const struct image_progress *p, void *data); /* or NULL; may suspend */
	void *data;
};

/*
 * Imports every image in the archive that is for this machine's platform. ret gets the ids (strings
 * and array in t's arena). Errors: ERR_INVALID with the document or entry and why; ERR_NOT_FOUND
 * when path is not there. An image that an error came after stays imported.
 */
int image_import(struct task *t, struct image_store *st, const struct image_import *in,
		 struct string_list *ret);

/*
 * RemoveImage of the CRI: removes the image that ref names, with all its names; 0 also when it is
 * not there. ERR_INVALID for what can't be a reference. Layers go with it unless used.
 */
int image_remove(struct task *t, struct image_store *st, const char *ref);
/* Gives the image one more name (moved from another image that has it). */
int image_tag(struct task *t, struct image_store *st, const char *id, const char *ref);

/*
 * Keeps the image's layers for a holder (a container id), once for a pair. ERR_NOT_FOUND when the
 * id is unknown. No row: holders hold again after a restart. Of a damaged image the layers that
 * are left are kept, which something may be running on; ERR_NOT_FOUND is returned then, too.
 */
int image_hold(struct image_store *st, const char *id, const char *holder, struct error *err);
/* Ends all holds of the holder; layers that nobody needs then go in the background. */
void image_release(struct image_store *st, const char *holder);
/* To be called once after start, when all containers hold what they need. */
int image_sweep(struct task *t, struct image_store *st);

/* Bytes and inodes of all layers, from their rows; ret_dir: the images' directory, as long as st.
 */
void image_fs_info(const struct image_store *st, uint64_t *ret_bytes, uint64_t *ret_inodes,
		   const char **ret_dir);
