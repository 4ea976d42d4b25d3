/* SPDX-License-Identifier: Apache-2.0 */
/* Rows of images and layers against the directories. Peculiar: layers are judged first, then the
 * images on them; what a used image needs is spared. */
#include "store/image/check.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "io/base/alloc.h"
#include "io/base/cleanup.h"
#include "io/base/map.h"
#include "io/fs.h"
#include "store/image/digest.h"
#include "store/images.h"

struct checker {
	const struct image_check *check;
	int layers_fd;		  /* -1: there is no such directory */
	struct map rows;	  /* chain ids with a row */
	struct map faults;	  /* chain id → why (malloced) */
	struct map spared;	  /* chain ids that a used image needs */
	struct store_batch batch; /* rows to be deleted */
};

static void found(const struct checker *c, bool is_fixed, const char *format, ...)
	__attribute__((format(printf, 3, 4)));

static void found(const struct checker *c, bool is_fixed, const char *format, ...)
{
	char *text = NULL;
	va_list args;

	va_start(args, format);
	if (vasprintf(&text, format, args) < 0)
		abort();
	va_end(args);
	c->check->found(c->check->data, text, is_fixed && c->check->is_fix);
	free(text);
}

/* What is wrong with the layer, malloced, or NULL. */
static char *judge_layer(const struct checker *c, const struct layer_row *row)
{
	cleanup_close int dir = -1;
	uint64_t bytes, inodes;
	struct error err;

	if (!digest_is_valid(row->chain_id))
		return xstrdup("that is no chain id");
	if (c->layers_fd >= 0)
		dir = openat(c->layers_fd, digest_hex(row->chain_id),
			     O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	if (dir < 0)
		return xstrdup("its directory is missing");
	if (fs_usage(dir, &bytes, &inodes, &err) < 0)
		return xstrdup(err.text);
	if (inodes == row->inodes)
		return NULL;
	return xasprintf("it has %llu files, %llu were unpacked", (unsigned long long)inodes,
			 (unsigned long long)row->inodes);
}

static int check_layer(void *data, const struct layer_row *row)
{
	struct checker *c = data;
	char *fault;

	if (!row->chain_id)
		return 0;
	map_put(&c->rows, row->chain_id, c);
	fault = judge_layer(c, row);
	if (fault)
		map_put(&c->faults, row->chain_id, fault);
	return 0;
}

/* The first of its layers that is not whole, malloced, or NULL. */
static char *faulty_layer(const struct checker *c, const char *chain_ids)
{
	cleanup_free char *copy = xstrdup(chain_ids ? chain_ids : "");
	char *rest = copy, *line;

	while ((line = strsep(&rest, "\n")))
		if (!map_get(&c->rows, line) || map_get(&c->faults, line))
			return xstrdup(line);
	return NULL;
}

static void spare_layers(struct checker *c, const char *chain_ids)
{
	cleanup_free char *copy = xstrdup(chain_ids ? chain_ids : "");
	char *rest = copy, *line;

	while ((line = strsep(&rest, "\n")))
		map_put(&c->spared, line, c);
}

static int check_image(void *data, const struct image_row *row)
{
	struct checker *c = data;
	cleanup_free char *layer = NULL;
	bool is_used;

	if (!row->id)
		return 0;
	layer = faulty_layer(c, row->chain_ids);
	is_used = c->check->is_used(c->check->data, row->id);
	if (is_used)
		spare_layers(c, row->chain_ids);
	if (!layer)
		return 0;
	found(c, !is_used, "image %s: its layer %s is damaged or missing%s; import it again",
	      row->id, layer, is_used ? ", and a container is on it" : "");
	if (!is_used)
		batch_image_delete(&c->batch, row->id);
	return 0;
}

static int remove_layers(struct checker *c, struct error *err)
{
	map_for_each(slot, &c->faults) {
		bool is_spared = map_get(&c->spared, slot->key);

		found(c, !is_spared, "layer %s: %s", slot->key, (const char *)slot->value);
		if (is_spared)
			continue;
		batch_layer_delete(&c->batch, slot->key);
		if (c->check->is_fix && c->layers_fd >= 0 && digest_is_valid(slot->key))
			TRY(fs_remove_tree_blocking(c->layers_fd, digest_hex(slot->key), err));
	}
	return 0;
}

/* What has no row, by name of a chain id's digits; all of it where there are no rows. */
static int check_dir(struct checker *c, int dir, const char *path, bool has_rows, struct error *err)
{
	int fd = openat(dir, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	cleanup_closedir DIR *list = fd < 0 ? NULL : fdopendir(fd);
	struct dirent *e;

	if (!list) {
		close_fd(fd);
		return error_errno(err, errno, "list %s", path);
	}
	while ((e = readdir(list))) {
		cleanup_free char *chain_id = xasprintf(DIGEST_PREFIX "%s", e->d_name);

		if (!strcmp(e->d_name, ".") || !strcmp(e->d_name, "..") ||
		    (has_rows && map_get(&c->rows, chain_id)))
			continue;
		if (c->check->is_fix)
			TRY(fs_remove_tree_blocking(dir, e->d_name, err));
		found(c, true, "directory %s/%s: it is nobody's", path, e->d_name);
	}
	return 0;
}

static int check_place(struct checker *c, const char *root_dir, const char *name, int *ret_fd,
		       struct error *err)
{
	cleanup_free char *path = xasprintf("%s/images/%s", root_dir, name);

	*ret_fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (*ret_fd < 0 && errno != ENOENT)
		return error_errno(err, errno, "open %s", path);
	return 0;
}

static int check_places(struct checker *c, const char *root_dir, bool is_complete,
			struct error *err)
{
	cleanup_free char *layers = xasprintf("%s/images/layers", root_dir);
	cleanup_free char *ingest = xasprintf("%s/images/ingest", root_dir);
	cleanup_close int fd = -1;

	TRY(check_place(c, root_dir, "ingest", &fd, err));
	if (fd >= 0)
		TRY(check_dir(c, fd, ingest, false, err));
	/* else the directory of a row that could not be read would be nobody's */
	if (c->layers_fd >= 0 && is_complete)
		TRY(check_dir(c, c->layers_fd, layers, true, err));
	return 0;
}

static int check_all(struct checker *c, struct store *s, const char *root_dir, struct error *err)
{
	int layers, images;

	TRY(check_place(c, root_dir, "layers", &c->layers_fd, err));
	layers = store_layer_each(s, check_layer, c, err);
	TRY(layers);
	images = store_image_each(s, check_image, c, err);
	TRY(images);
	TRY(remove_layers(c, err));
	TRY(check_places(c, root_dir, layers == 0 && images == 0, err));
	return c->check->is_fix ? store_commit_blocking(s, &c->batch, err) : 0;
}

int image_store_check(struct store *s, const char *root_dir, const struct image_check *check,
		      struct error *err)
{
	struct checker c = {.check = check, .layers_fd = -1};
	int r = check_all(&c, s, root_dir, err);

	map_for_each(slot, &c.faults)
		free(slot->value);
	map_done(&c.faults);
	map_done(&c.rows);
	map_done(&c.spared);
	store_batch_done(&c.batch);
	close_fd(c.layers_fd);
	return r;
}
