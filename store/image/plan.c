/* SPDX-License-Identifier: Apache-2.0 */
/* What an archive holds, whichever kind it is. Peculiar: an archive that is both (docker save since
 * version 25) is read as an OCI layout, which has digests for everything. */
#include "store/image/plan_private.h"

#include <stdlib.h>
#include <string.h>

#include "io/base/alloc.h"
#include "io/fs.h"
#include "store/image/config.h"
#include "store/image/digest.h"
#include "store/image/ref.h"

int plan_document(struct plan_reader *r, const char *path, struct buf *ret)
{
	return fs_read_at(r->dir, path, PLAN_DOCUMENT_MAX, ret, r->err);
}

const char *plan_blob_path(struct plan_reader *r, const char *digest)
{
	return arena_printf(r->plan->arena, "blobs/sha256/%s", digest_hex(digest));
}

static void add_unique(struct arena *arena, struct string_list *list, const char *text)
{
	const char **items;

	for (size_t i = 0; i < list->count; i++)
		if (!strcmp(list->items[i], text))
			return;
	items = arena_new_array(arena, const char *, list->count + 1);
	for (size_t i = 0; i < list->count; i++)
		items[i] = list->items[i];
	items[list->count++] = arena_strdup(arena, text);
	list->items = items;
}

int plan_add_name(struct plan_reader *r, struct plan_image *img, const char *name,
		  const char *manifest_digest)
{
	char text[REF_SIZE];
	struct ref ref;

	TRY(ref_parse(name, &ref, r->err));
	if (*ref.digest && (!manifest_digest || strcmp(ref.digest, manifest_digest) != 0))
		return error_set(r->err, ERR_INVALID,
				 "reference %s: what it names has the digest %s", name,
				 manifest_digest ? manifest_digest : "of no manifest");
	if (!*ref.digest) {
		ref_format(&ref, text);
		add_unique(r->plan->arena, &img->repo_tags, text);
	}
	if (manifest_digest) {
		memcpy(ref.digest, manifest_digest, DIGEST_SIZE);
		ref_format(&ref, text);
		add_unique(r->plan->arena, &img->repo_digests, text);
	}
	return 0;
}

static int check_platform(struct plan_reader *r, const struct image_config *c)
{
	const char *os = c->os ? c->os : "linux";
	const char *arch = c->architecture ? c->architecture : image_architecture;

	if (!strcmp(os, "linux") && !strcmp(arch, image_architecture))
		return 0;
	return error_set(r->err, ERR_INVALID, "image is for %s/%s, this machine is linux/%s", os,
			 arch, image_architecture);
}

int plan_add_image(struct plan_reader *r, const struct buf *config, size_t layer_count,
		   struct plan_image **ret_image, bool *ret_is_new)
{
	struct arena *arena = r->plan->arena;
	struct image_config parsed;
	struct string_list diff_ids;
	char id[DIGEST_SIZE], chain[DIGEST_SIZE];
	struct plan_image *img, **end = &r->plan->images;

	digest_of(config->data, config->length, id);
	for (; *end; end = &(*end)->next)
		if (!strcmp((*end)->id, id)) {
			*ret_image = *end;
			*ret_is_new = false;
			return 0;
		}
	if (r->plan->count == PLAN_IMAGES_MAX)
		return error_set(r->err, ERR_INVALID, "more than %d images", PLAN_IMAGES_MAX);
	TRY(image_config_parse(config->data, config->length, arena, &parsed, &diff_ids, r->err));
	TRY(check_platform(r, &parsed));
	if (diff_ids.count != layer_count)
		return error_set(r->err, ERR_INVALID,
				 "image configuration has %zu diff ids, its manifest %zu layers",
				 diff_ids.count, layer_count);
	img = arena_alloc(arena, sizeof(*img));
	img->id = arena_strdup(arena, id);
	img->config_json =
		memcpy(arena_alloc(arena, config->length + 1), config->data, config->length);
	img->config_length = config->length;
	img->layers = arena_new_array(arena, struct plan_layer, layer_count);
	img->layer_count = layer_count;
	for (size_t i = 0; i < layer_count; i++) {
		digest_chain(i ? chain : NULL, diff_ids.items[i], chain);
		img->layers[i].diff_id = diff_ids.items[i];
		img->layers[i].chain_id = arena_strdup(arena, chain);
		img->layers[i].size = -1;
	}
	r->plan->count++;
	*ret_image = *end = img;
	*ret_is_new = true;
	return 0;
}

static int add_given_names(struct plan_reader *r)
{
	struct plan_image *img = r->plan->images;

	if (!r->names || r->names->count == 0)
		return 0;
	if (r->plan->count != 1)
		return error_set(r->err, ERR_INVALID,
				 "a name was given, but there are %zu images: leave it out",
				 r->plan->count);
	for (size_t i = 0; i < r->names->count; i++)
		TRY(plan_add_name(r, img, r->names->items[i], img->manifest_digest));
	return 0;
}

static int read_any(struct plan_reader *r)
{
	int result = plan_read_oci(r);

	if (result == -ERR_NOT_FOUND)
		result = plan_read_docker(r);
	if (result == -ERR_NOT_FOUND)
		return error_set(r->err, ERR_INVALID,
				 "neither an OCI layout (index.json) nor a docker archive "
				 "(manifest.json)");
	TRY(result);
	if (r->plan->count == 0)
		return error_set(r->err, ERR_INVALID, "it holds no image for linux/%s",
				 image_architecture);
	return add_given_names(r);
}

int plan_read(int dir, const struct string_list *names, struct plan **ret, struct error *err)
{
	struct plan *plan = xnew(struct plan);
	struct plan_reader r = {.dir = dir, .plan = plan, .names = names, .err = err};
	int result;

	plan->arena = arena_new(64 * 1024 * 1024);
	result = read_any(&r);
	if (result < 0) {
		plan_free(plan);
		return result;
	}
	*ret = plan;
	return 0;
}

void plan_free(struct plan *plan)
{
	if (!plan)
		return;
	arena_free(plan->arena);
	free(plan);
}
