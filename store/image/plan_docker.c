/* SPDX-License-Identifier: Apache-2.0 */
/* Docker archives (docker save, podman save --format docker-archive): manifest.json lists images
 * with the paths of their configuration and layers. */
#include "store/image/plan_private.h"

#include <string.h>

#include "io/base/cleanup.h"
#include "io/base/json.h"
#include "store/image/digest.h"

/* Names such as "<hex>.json" and "blobs/sha256/<hex>" promise a content. */
static int check_promise(struct plan_reader *r, const char *path, const struct plan_image *img)
{
	const char *base = strrchr(path, '/') ? strrchr(path, '/') + 1 : path;
	size_t n = strlen(base);
	bool is_promise = n >= DIGEST_HEX && digest_is_hex(base, DIGEST_HEX) &&
			  (n == DIGEST_HEX || !strcmp(base + DIGEST_HEX, ".json"));

	if (is_promise && strncmp(base, digest_hex(img->id), DIGEST_HEX) != 0)
		return error_set(r->err, ERR_INVALID,
				 "configuration %s: its bytes have the digest %s: the archive is "
				 "damaged",
				 path, img->id);
	return 0;
}

static int add_image(struct plan_reader *r, json_t *item)
{
	const char *config_path = json_string_value(json_object_get(item, "Config"));
	json_t *layers = json_object_get(item, "Layers");
	json_t *tags = json_object_get(item, "RepoTags"), *tag;
	CLEANUP(buf_done) struct buf config = {0};
	struct plan_image *img;
	bool is_new;
	size_t i;

	if (!config_path || !json_is_array(layers) ||
	    (tags && !json_is_null(tags) && !json_is_array(tags)))
		return error_set(r->err, ERR_INVALID,
				 "manifest.json: an image needs Config, Layers and RepoTags");
	if (plan_document(r, config_path, &config) < 0) {
		error_wrap(r->err, "configuration %s", config_path);
		r->err->code = ERR_INVALID;
		return -ERR_INVALID;
	}
	TRY(plan_add_image(r, &config, json_array_size(layers), &img, &is_new));
	TRY(check_promise(r, config_path, img));
	json_array_foreach(layers, i, tag)
	{
		if (!json_is_string(tag))
			return error_set(r->err, ERR_INVALID, "manifest.json: a layer is no path");
		if (is_new)
			img->layers[i].path = arena_strdup(r->plan->arena, json_string_value(tag));
	}
	json_array_foreach(tags, i, tag)
	{
		if (!json_is_string(tag))
			return error_set(r->err, ERR_INVALID, "manifest.json: a tag is no string");
		TRY(plan_add_name(r, img, json_string_value(tag), NULL));
	}
	return 0;
}

int plan_read_docker(struct plan_reader *r)
{
	CLEANUP(buf_done) struct buf text = {0};
	json_t *doc cleanup_json = NULL;
	json_t *item;
	size_t i;

	TRY(plan_document(r, "manifest.json", &text));
	if (json_parse(text.data ? text.data : "", text.length, &doc, r->err) < 0)
		return error_wrap(r->err, "manifest.json");
	if (!json_is_array(doc))
		return error_set(r->err, ERR_INVALID, "manifest.json: it is no list");
	json_array_foreach(doc, i, item) TRY(add_image(r, item));
	return 0;
}
