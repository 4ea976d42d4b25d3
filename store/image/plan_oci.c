/* SPDX-License-Identifier: Apache-2.0 */
/*
 * OCI image layouts (image-spec: image-layout.md, image-index.md, manifest.md). Peculiar: a
 * document is what its descriptor says it is or nothing; one that could be read as both index and
 * manifest is refused (GHSA-5j5w-g665-5m35).
 */
#include "store/image/plan_private.h"

#include <stdlib.h>
#include <string.h>

#include "io/base/cleanup.h"
#include "io/base/json.h"
#include "store/image/config.h"
#include "store/image/digest.h"
#include "store/image/ref.h"

#define INDEX_DEPTH_MAX 3
#define NAME_ANNOTATION "io.containerd.image.name"
#define REF_ANNOTATION "org.opencontainers.image.ref.name"

static const char *const index_types[] = {
	"application/vnd.oci.image.index.v1+json",
	"application/vnd.docker.distribution.manifest.list.v2+json", NULL};
static const char *const manifest_types[] = {"application/vnd.oci.image.manifest.v1+json",
					     "application/vnd.docker.distribution.manifest.v2+json",
					     NULL};
static const char *const config_types[] = {"application/vnd.oci.image.config.v1+json",
					   "application/vnd.docker.container.image.v1+json", NULL};
static const char *const layer_types[] = {
	"application/vnd.oci.image.layer.v1.tar",
	"application/vnd.oci.image.layer.v1.tar+gzip",
	"application/vnd.oci.image.layer.v1.tar+zstd",
	"application/vnd.oci.image.layer.nondistributable.v1.tar",
	"application/vnd.oci.image.layer.nondistributable.v1.tar+gzip",
	"application/vnd.oci.image.layer.nondistributable.v1.tar+zstd",
	"application/vnd.docker.image.rootfs.diff.tar",
	"application/vnd.docker.image.rootfs.diff.tar.gzip",
	"application/vnd.docker.image.rootfs.diff.tar.zstd",
	"application/vnd.docker.image.rootfs.foreign.diff.tar.gzip",
	NULL};

struct descriptor {
	const char *media_type; /* borrowed from the document */
	const char *digest;
	int64_t size;
	json_t *platform, *annotations;
};

static bool is_one_of(const char *text, const char *const *list)
{
	for (; *list; list++)
		if (!strcmp(text, *list))
			return true;
	return false;
}

static int read_descriptor(struct plan_reader *r, json_t *json, const char *what,
			   struct descriptor *ret)
{
	json_t *size = json_object_get(json, "size");

	*ret = (struct descriptor){
		.media_type = json_string_value(json_object_get(json, "mediaType")),
		.digest = json_string_value(json_object_get(json, "digest")),
		.size = json_integer_value(size),
		.platform = json_object_get(json, "platform"),
		.annotations = json_object_get(json, "annotations"),
	};
	if (!ret->media_type)
		return error_set(r->err, ERR_INVALID, "descriptor of %s: it has no mediaType",
				 what);
	if (!digest_is_valid(ret->digest))
		return error_set(r->err, ERR_INVALID,
				 "descriptor of %s: its digest is not sha256: and 64 hex digits",
				 what);
	if (!json_is_integer(size) || ret->size < 0)
		return error_set(r->err, ERR_INVALID, "descriptor of %s: it has no size", what);
	return 0;
}

/* Reads the blob, whose size and digest must be the descriptor's. */
static int read_blob(struct plan_reader *r, const struct descriptor *d, const char *what,
		     struct buf *ret)
{
	char digest[DIGEST_SIZE];
	int result;

	if (d->size > PLAN_DOCUMENT_MAX)
		return error_set(r->err, ERR_INVALID, "%s %s: %lld bytes, at most %d", what,
				 d->digest, (long long)d->size, PLAN_DOCUMENT_MAX);
	result = plan_document(r, plan_blob_path(r, d->digest), ret);
	if (result < 0) {
		error_wrap(r->err, "%s %s", what, d->digest);
		r->err->code = ERR_INVALID;
		return -ERR_INVALID;
	}
	digest_of(ret->data ? ret->data : "", ret->length, digest);
	if ((int64_t)ret->length != d->size || strcmp(digest, d->digest) != 0)
		return error_set(
			r->err, ERR_INVALID,
			"%s %s: its bytes do not have this digest and size: the archive is "
			"damaged",
			what, d->digest);
	return 0;
}

/* An object that is the kind that its descriptor says. */
static int read_document(struct plan_reader *r, const struct descriptor *d, const char *what,
			 json_t **ret)
{
	CLEANUP(buf_done) struct buf text = {0};
	json_t *doc cleanup_json = NULL;
	json_t *type;

	TRY(read_blob(r, d, what, &text));
	if (json_parse(text.data ? text.data : "", text.length, &doc, r->err) < 0)
		return error_wrap(r->err, "%s %s", what, d->digest);
	if (json_object_get(doc, "layers") && json_object_get(doc, "manifests"))
		return error_set(r->err, ERR_INVALID, "%s %s: it has both layers and manifests",
				 what, d->digest);
	type = json_object_get(doc, "mediaType");
	if (type && (!json_is_string(type) || strcmp(json_string_value(type), d->media_type) != 0))
		return error_set(r->err, ERR_INVALID,
				 "%s %s: its own mediaType is not that of its descriptor (%s)",
				 what, d->digest, d->media_type);
	*ret = doc;
	doc = NULL;
	return 0;
}

static int add_layers(struct plan_reader *r, json_t *layers, struct plan_image *img)
{
	struct descriptor d;
	json_t *item;
	size_t i;

	json_array_foreach(layers, i, item)
	{
		TRY(read_descriptor(r, item, "a layer", &d));
		if (!is_one_of(d.media_type, layer_types))
			return error_set(r->err, ERR_INVALID,
					 "layer %s: the media type %s is unknown", d.digest,
					 d.media_type);
		img->layers[i].digest = arena_strdup(r->plan->arena, d.digest);
		img->layers[i].size = d.size;
		img->layers[i].path = plan_blob_path(r, d.digest);
	}
	return 0;
}

static int read_manifest(struct plan_reader *r, const struct descriptor *d,
			 struct plan_image **ret_image)
{
	CLEANUP(buf_done) struct buf config = {0};
	json_t *doc cleanup_json = NULL;
	struct descriptor config_descriptor;
	json_t *layers;
	bool is_new;

	TRY(read_document(r, d, "manifest", &doc));
	layers = json_object_get(doc, "layers");
	if (!json_is_array(layers))
		return error_set(r->err, ERR_INVALID, "manifest %s: it has no layers", d->digest);
	TRY(read_descriptor(r, json_object_get(doc, "config"), "a configuration",
			    &config_descriptor));
	if (!is_one_of(config_descriptor.media_type, config_types))
		return error_set(r->err, ERR_INVALID,
				 "manifest %s: it is no container image but %s", d->digest,
				 config_descriptor.media_type);
	TRY(read_blob(r, &config_descriptor, "configuration", &config));
	TRY(plan_add_image(r, &config, json_array_size(layers), ret_image, &is_new));
	if (!is_new)
		return 0;
	(*ret_image)->manifest_digest = arena_strdup(r->plan->arena, d->digest);
	return add_layers(r, layers, *ret_image);
}

/* 2: says that it is for us, 1: says nothing, 0: for another machine, or an attestation. */
static int platform_rank(const struct descriptor *d)
{
	const char *os = json_string_value(json_object_get(d->platform, "os"));
	const char *arch = json_string_value(json_object_get(d->platform, "architecture"));

	if (!json_is_object(d->platform))
		return 1;
	return os && arch && !strcmp(os, "linux") && !strcmp(arch, image_architecture) ? 2 : 0;
}

/* Follows indexes down to the manifest for us; ret_image stays NULL when there is none. */
static int read_any_manifest(struct plan_reader *r, const struct descriptor *top,
			     struct plan_image **ret_image)
{
	json_t *docs[INDEX_DEPTH_MAX] = {0};
	struct descriptor d = *top;
	int result = 0, depth = 0;

	while (result == 0 && is_one_of(d.media_type, index_types)) {
		struct descriptor candidate, best = {0};
		json_t *item;
		size_t i;
		int rank = 0;

		if (depth == INDEX_DEPTH_MAX) {
			result = error_set(r->err, ERR_INVALID, "index %s: nested too deep",
					   top->digest);
			break;
		}
		result = read_document(r, &d, "index", &docs[depth]);
		json_array_foreach(json_object_get(docs[depth], "manifests"), i, item)
		{
			if (result == 0)
				result = read_descriptor(r, item, "a manifest", &candidate);
			if (result == 0 && platform_rank(&candidate) > rank) {
				rank = platform_rank(&candidate);
				best = candidate;
			}
		}
		if (result < 0 || rank == 0)
			goto done;
		depth++;
		d = best;
	}
	if (result == 0 && !is_one_of(d.media_type, manifest_types))
		result = error_set(r->err, ERR_INVALID, "manifest %s: the media type %s is unknown",
				   d.digest, d.media_type);
	if (result == 0)
		result = read_manifest(r, &d, ret_image);
done:
	for (int i = 0; i < INDEX_DEPTH_MAX; i++)
		json_decref(docs[i]);
	return result;
}

static int add_entry(struct plan_reader *r, json_t *item)
{
	struct plan_image *img = NULL;
	struct descriptor d;
	const char *name;

	TRY(read_descriptor(r, item, "an image", &d));
	if (platform_rank(&d) == 0)
		return 0;
	TRY(read_any_manifest(r, &d, &img));
	if (!img)
		return 0;
	name = json_string_value(json_object_get(d.annotations, NAME_ANNOTATION));
	if (!name) {
		name = json_string_value(json_object_get(d.annotations, REF_ANNOTATION));
		/* a bare word may be a tag or a repository: it names nothing by itself */
		if (name && !strpbrk(name, "/:@"))
			name = NULL;
	}
	return name ? plan_add_name(r, img, name, d.digest) : 0;
}

int plan_read_oci(struct plan_reader *r)
{
	CLEANUP(buf_done) struct buf text = {0};
	json_t *doc cleanup_json = NULL;
	json_t *item, *type;
	size_t i;

	TRY(plan_document(r, "index.json", &text));
	if (json_parse(text.data ? text.data : "", text.length, &doc, r->err) < 0)
		return error_wrap(r->err, "index.json");
	type = json_object_get(doc, "mediaType");
	if (json_object_get(doc, "layers") || !json_is_array(json_object_get(doc, "manifests")) ||
	    (type && (!json_is_string(type) || strcmp(json_string_value(type), index_types[0]))))
		return error_set(r->err, ERR_INVALID, "index.json: it is no OCI image index");
	json_array_foreach(json_object_get(doc, "manifests"), i, item) TRY(add_entry(r, item));
	return 0;
}
