/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Images, their names and holders. Peculiar: every change is written first and then made in memory,
 * under the commit queue, so what a lookup finds is always durable.
 */
#include "store/image/store_private.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "io/base/alloc.h"
#include "io/base/buf.h"
#include "io/base/cleanup.h"
#include "io/base/fault.h"
#include "io/base/log.h"
#include "io/fs.h"
#include "io/offload.h"
#include "store/image/config.h"
#include "store/image/digest.h"
#include "store/image/ref.h"
#include "store/images.h"

#define ID_PREFIX_MIN 3

/* A container's images. */
struct holder {
	struct image_entry **entries;
	size_t count;
};

static struct image_entry *entry_of(const struct image *img)
{
	return container_of((struct image *)img, struct image_entry, image);
}

/* --- lists of names: malloced strings, sorted --- */

static void names_done(struct string_list *list)
{
	for (size_t i = 0; i < list->count; i++)
		free((char *)list->items[i]);
	free(list->items);
	*list = (struct string_list){0};
}

static void names_add(struct string_list *list, const char *name)
{
	size_t at = 0;

	while (at < list->count && strcmp(list->items[at], name) < 0)
		at++;
	if (at < list->count && !strcmp(list->items[at], name))
		return;
	list->items = xrealloc(list->items, (list->count + 1) * sizeof(*list->items));
	memmove(list->items + at + 1, list->items + at, (list->count - at) * sizeof(*list->items));
	list->items[at] = xstrdup(name);
	list->count++;
}

static void names_drop(struct string_list *list, const char *name)
{
	for (size_t i = 0; i < list->count; i++) {
		if (strcmp(list->items[i], name) != 0)
			continue;
		free((char *)list->items[i]);
		list->count--;
		memmove(list->items + i, list->items + i + 1,
			(list->count - i) * sizeof(*list->items));
		return;
	}
}

static void names_copy(struct string_list *to, const struct string_list *from)
{
	for (size_t i = 0; i < from->count; i++)
		names_add(to, from->items[i]);
}

static char *names_join(const struct string_list *list)
{
	struct buf b = {0};

	for (size_t i = 0; i < list->count; i++)
		buf_printf(&b, "%s%s", i ? "\n" : "", list->items[i]);
	return buf_take(&b);
}

static void names_split(struct string_list *list, const char *text)
{
	cleanup_free char *copy = xstrdup(text ? text : "");
	char *rest = copy, *line;

	while ((line = strsep(&rest, "\n")))
		if (*line)
			names_add(list, line);
}

/* --- entries --- */

const struct image *image_ref(const struct image *img)
{
	entry_of(img)->image.refs++;
	return img;
}

void image_unref(const struct image *img)
{
	struct image_entry *e;

	if (!img || --entry_of(img)->image.refs)
		return;
	e = entry_of(img);
	names_done(&e->image.repo_tags);
	names_done(&e->image.repo_digests);
	arena_free(e->arena);
	free(e->manifest_digest);
	free(e->layers);
	free(e);
}

/* What is mounted: nothing below a layer whose root is opaque. */
static void list_layers(struct image_entry *e)
{
	struct image *img = &e->image;
	size_t first = 0;

	img->layers.items = arena_new_array(e->arena, const char *, e->layer_count);
	img->chain_ids.items = arena_new_array(e->arena, const char *, e->layer_count);
	for (size_t i = 0; i < e->layer_count; i++) {
		if (e->layers[i]->is_opaque)
			first = i;
		img->size += e->layers[i]->bytes;
		img->chain_ids.items[i] = arena_strdup(e->arena, e->layers[i]->chain_id);
	}
	img->chain_ids.count = e->layer_count;
	for (size_t i = first; i < e->layer_count; i++)
		img->layers.items[img->layers.count++] = arena_strdup(e->arena, e->layers[i]->path);
}

static void take_layers(struct image_entry *e, struct layer *const *layers, size_t count)
{
	e->layer_count = count;
	e->layers = xcalloc(count + 1, sizeof(*e->layers));
	for (size_t i = 0; i < count; i++) {
		e->layers[i] = layers[i];
		layer_take(layers[i]);
	}
}

/* Takes the layers; in no map yet. */
static struct image_entry *entry_new(const char *config, size_t n, struct layer *const *layers,
				     size_t layer_count, struct error *err)
{
	struct image_entry *e = xnew(struct image_entry);
	struct string_list diff_ids;
	char id[DIGEST_SIZE];

	e->image.refs = 1;
	e->arena = arena_new(64 * 1024 * 1024);
	if (image_config_parse(config, n, e->arena, &e->image.config, &diff_ids, err) < 0) {
		image_unref(&e->image);
		return NULL;
	}
	digest_of(config, n, id);
	e->image.id = arena_strdup(e->arena, id);
	e->image.config_json = memcpy(arena_alloc(e->arena, n + 1), config, n);
	e->image.config_length = n;
	e->image.size = n;
	take_layers(e, layers, layer_count);
	list_layers(e);
	return e;
}

static void map_names(struct image_store *st, struct image_entry *e)
{
	for (size_t i = 0; i < e->image.repo_tags.count; i++)
		map_put(&st->names, e->image.repo_tags.items[i], e);
	for (size_t i = 0; i < e->image.repo_digests.count; i++)
		map_put(&st->names, e->image.repo_digests.items[i], e);
}

static void unmap_names(struct image_store *st, struct image_entry *e)
{
	for (size_t i = 0; i < e->image.repo_tags.count; i++)
		map_remove(&st->names, e->image.repo_tags.items[i]);
	for (size_t i = 0; i < e->image.repo_digests.count; i++)
		map_remove(&st->names, e->image.repo_digests.items[i]);
	names_done(&e->image.repo_tags);
	names_done(&e->image.repo_digests);
}

static void drop_layers(struct image_store *st, struct layer *const *layers, size_t count)
{
	for (size_t i = 0; i < count; i++)
		layer_drop(st, layers[i]);
}

/* Out of the store; its layers become unused. */
static void entry_forget(struct image_store *st, struct image_entry *e)
{
	unmap_names(st, e);
	map_remove(&st->images, e->image.id);
	drop_layers(st, e->layers, e->layer_count);
	image_unref(&e->image);
}

/* The row as it shall be; flags and names as given. */
static void put_row(struct store_batch *batch, const struct image_entry *e,
		    const struct string_list *tags, const struct string_list *digests,
		    bool is_pinned, bool is_removed)
{
	cleanup_free char *tag_text = names_join(tags);
	cleanup_free char *digest_text = names_join(digests);
	cleanup_free char *chain_text = names_join(&e->image.chain_ids);
	struct image_row row = {.id = e->image.id,
				.config = e->image.config_json,
				.config_size = e->image.config_length,
				.manifest_digest = e->manifest_digest,
				.chain_ids = chain_text,
				.repo_tags = tag_text,
				.repo_digests = digest_text,
				.size_bytes = e->image.size,
				.created_at = (int64_t)e->image.imported_ns,
				.is_pinned = is_pinned,
				.is_removed = is_removed};

	batch_image_put(batch, &row);
}

/* --- lookup --- */

static const struct image *visible(struct image_entry *e)
{
	return e && !e->image.is_removed && !e->is_dropping ? &e->image : NULL;
}

static const struct image *find_prefix(struct image_store *st, const char *hex)
{
	const struct image *found = NULL;
	size_t n = strlen(hex);

	if (n < ID_PREFIX_MIN || n > DIGEST_HEX || !digest_is_hex(hex, n))
		return NULL;
	map_for_each(slot, &st->images) {
		const struct image *img = visible(slot->value);

		if (!img || strncmp(digest_hex(img->id), hex, n) != 0)
			continue;
		if (found)
			return NULL;
		found = img;
	}
	return found;
}

const struct image *image_find(struct image_store *st, const char *ref)
{
	const struct image *img = visible(map_get(&st->images, ref));
	char normal[REF_SIZE];
	struct ref parsed;

	if (img)
		return img;
	if (!strncmp(ref, DIGEST_PREFIX, strlen(DIGEST_PREFIX)))
		img = find_prefix(st, ref + strlen(DIGEST_PREFIX));
	if (!img && ref_parse(ref, &parsed, NULL) == 0) {
		ref_format(&parsed, normal);
		img = visible(map_get(&st->names, normal));
	}
	return img ? img : find_prefix(st, ref);
}

const struct image *image_by_id(struct image_store *st, const char *id)
{
	struct image_entry *e = map_get(&st->images, id);

	return e ? &e->image : NULL;
}

void image_each(struct image_store *st, void (*fn)(const struct image *img, void *data), void *data)
{
	map_for_each(slot, &st->images) {
		const struct image *img = visible(slot->value);

		if (img)
			fn(img, data);
	}
}

void image_fs_info(const struct image_store *st, uint64_t *ret_bytes, uint64_t *ret_inodes,
		   const char **ret_dir)
{
	*ret_bytes = st->bytes;
	*ret_inodes = st->inodes;
	*ret_dir = st->dir;
}

/* --- changes --- */

/* Rows of the images that lose one of these names to e. */
static void put_losers(struct image_store *st, struct store_batch *batch,
		       const struct image_entry *e, const struct string_list *names)
{
	struct map seen = {0};

	for (size_t i = 0; i < names->count; i++) {
		struct image_entry *loser = map_get(&st->names, names->items[i]);
		struct string_list tags = {0}, digests = {0};

		if (!loser || loser == e || map_put(&seen, loser->image.id, loser))
			continue;
		names_copy(&tags, &loser->image.repo_tags);
		names_copy(&digests, &loser->image.repo_digests);
		for (size_t k = 0; k < names->count; k++) {
			names_drop(&tags, names->items[k]);
			names_drop(&digests, names->items[k]);
		}
		put_row(batch, loser, &tags, &digests, loser->image.is_pinned,
			loser->image.is_removed);
		names_done(&tags);
		names_done(&digests);
	}
	map_done(&seen);
}

static void take_names(struct image_store *st, struct image_entry *e,
		       const struct string_list *names)
{
	for (size_t i = 0; i < names->count; i++) {
		struct image_entry *loser = map_get(&st->names, names->items[i]);

		if (loser && loser != e) {
			names_drop(&loser->image.repo_tags, names->items[i]);
			names_drop(&loser->image.repo_digests, names->items[i]);
		}
	}
}

/* Writes e with these further names, then gives them to it. The commit queue is held. */
static int give_names(struct task *t, struct image_store *st, struct image_entry *e,
		      const struct string_list *tags, const struct string_list *digests,
		      bool is_pinned)
{
	CLEANUP(store_batch_done) struct store_batch batch = {.is_durable = true};
	struct string_list all_tags = {0}, all_digests = {0};
	int r;

	names_copy(&all_tags, &e->image.repo_tags);
	names_copy(&all_tags, tags);
	names_copy(&all_digests, &e->image.repo_digests);
	names_copy(&all_digests, digests);
	put_losers(st, &batch, e, &all_tags);
	put_losers(st, &batch, e, &all_digests);
	put_row(&batch, e, &all_tags, &all_digests, is_pinned, false);
	/* written or not, memory and rows must agree */
	task_shield(t, 1);
	r = store_commit(t, st->db, &batch);
	task_shield(t, -1);
	if (r == 0) {
		take_names(st, e, &all_tags);
		take_names(st, e, &all_digests);
		unmap_names(st, e);
		e->image.repo_tags = all_tags;
		e->image.repo_digests = all_digests;
		e->image.is_pinned = is_pinned;
		e->image.is_removed = false;
		map_names(st, e);
		return 0;
	}
	names_done(&all_tags);
	names_done(&all_digests);
	return r;
}

int image_commit(struct task *t, struct image_store *st, const struct plan_image *from,
		 struct layer *const *layers, bool is_pinned)
{
	struct task_mutex *held cleanup_unlock = NULL;
	struct image_entry *e, *fresh = NULL;
	struct timespec now;
	int r;

	TRY(task_mutex_lock(t, &st->commit));
	held = &st->commit;
	e = map_get(&st->images, from->id);
	if (!e) {
		e = fresh = entry_new(from->config_json, from->config_length, layers,
				      from->layer_count, &t->err);
		if (!e)
			return -(int)t->err.code;
		clock_gettime(CLOCK_REALTIME, &now);
		e->image.imported_ns = (uint64_t)(now.tv_sec * 1000000000ll + now.tv_nsec);
		e->manifest_digest = xstrdup_null(from->manifest_digest);
		map_put(&st->images, e->image.id, e);
		e->image.is_removed = true;
	}
	r = give_names(t, st, e, &from->repo_tags, &from->repo_digests,
		       is_pinned || e->image.is_pinned);
	FAULT(image_committed);
	if (r < 0 && fresh && !fresh->holds)
		entry_forget(st, fresh);
	return r;
}

int image_tag(struct task *t, struct image_store *st, const char *id, const char *ref)
{
	struct task_mutex *held cleanup_unlock = NULL;
	struct string_list tags = {0}, none = {0};
	struct image_entry *e;
	char normal[REF_SIZE];
	const char *name = normal;
	struct ref parsed;

	TRY(ref_parse(ref, &parsed, &t->err));
	if (*parsed.digest)
		return error_set(&t->err, ERR_INVALID, "tag %s: a digest can't be given", ref);
	ref_format(&parsed, normal);
	TRY(task_mutex_lock(t, &st->commit));
	held = &st->commit;
	e = map_get(&st->images, id);
	if (!e || e->image.is_removed)
		return error_set(&t->err, ERR_NOT_FOUND, "image %s is not there", id);
	tags = (struct string_list){.items = &name, .count = 1};
	return give_names(t, st, e, &tags, &none, e->image.is_pinned);
}

/* Drops the row, or hides it for its holders. The commit queue is held. */
static int remove_entry(struct task *t, struct image_store *st, struct image_entry *e)
{
	CLEANUP(store_batch_done) struct store_batch batch = {.is_durable = true};
	struct string_list none = {0};
	int r;

	if (e->holds)
		put_row(&batch, e, &none, &none, false, true);
	else
		batch_image_delete(&batch, e->image.id);
	e->is_dropping = !e->holds;
	task_shield(t, 1);
	r = store_commit(t, st->db, &batch);
	task_shield(t, -1);
	if (r == 0 && e->is_dropping) {
		entry_forget(st, e);
		return 0;
	}
	e->is_dropping = false;
	if (r == 0) {
		unmap_names(st, e);
		e->image.is_removed = true;
	}
	return r;
}

int image_remove(struct task *t, struct image_store *st, const char *ref)
{
	struct ref parsed;
	bool is_id = digest_is_valid(ref) || digest_is_hex(ref, strlen(ref));

	if (!*ref || !is_id)
		TRY(ref_parse(ref, &parsed, &t->err));
	{
		struct task_mutex *held cleanup_unlock = NULL;
		const struct image *img;

		TRY(task_mutex_lock(t, &st->commit));
		held = &st->commit;
		img = image_find(st, ref);
		if (!img)
			return 0;
		TRY(remove_entry(t, st, entry_of(img)));
	}
	return layer_collect(t, st);
}

/* Its row goes too, unless it was imported again. The commit queue is held. */
static int remove_damaged(struct task *t, struct image_store *st, struct image_entry *e)
{
	if (!map_get(&st->images, e->image.id))
		TRY(store_image_delete(t, st->db, e->image.id));
	map_remove(&st->damaged, e->image.id);
	drop_layers(st, e->layers, e->layer_count);
	image_unref(&e->image);
	return 0;
}

int image_sweep(struct task *t, struct image_store *st)
{
	{
		struct task_mutex *held cleanup_unlock = NULL;

		TRY(task_mutex_lock(t, &st->commit));
		held = &st->commit;
		/* removing from the map does not move what is still to come */
		map_for_each(slot, &st->images) {
			struct image_entry *e = slot->value;

			if (e->image.is_removed && !e->holds)
				TRY(remove_entry(t, st, e));
		}
		map_for_each(slot, &st->damaged) {
			struct image_entry *e = slot->value;

			if (!e->holds)
				TRY(remove_damaged(t, st, e));
		}
	}
	return layer_collect(t, st);
}

/* --- holders --- */

static void add_hold(struct image_store *st, struct image_entry *e, const char *holder)
{
	struct holder *h = map_get(&st->holders, holder);

	if (!h) {
		h = xnew(struct holder);
		map_put(&st->holders, holder, h);
	}
	for (size_t i = 0; i < h->count; i++)
		if (h->entries[i] == e)
			return;
	h->entries = xrealloc(h->entries, (h->count + 1) * sizeof(struct image_entry *));
	h->entries[h->count++] = e;
	e->holds++;
}

int image_hold(struct image_store *st, const char *id, const char *holder, struct error *err)
{
	struct image_entry *e = map_get(&st->images, id);
	struct image_entry *damaged = map_get(&st->damaged, id);

	if (damaged)
		add_hold(st, damaged, holder);
	if (!e || e->is_dropping)
		return error_set(err, ERR_NOT_FOUND, "image %s is %s", id,
				 damaged ? "damaged; import it again" : "not there");
	add_hold(st, e, holder);
	return 0;
}

static void sweep_main(struct task *t, void *arg)
{
	if (image_sweep(t, arg) < 0)
		log_warning("layers of removed images stay until the next start: %s", t->err.text);
}

void image_release(struct image_store *st, const char *holder)
{
	struct holder *h = map_remove(&st->holders, holder);
	bool is_last = false;

	if (!h)
		return;
	for (size_t i = 0; i < h->count; i++)
		if (--h->entries[i]->holds == 0 && h->entries[i]->image.is_removed)
			is_last = true;
	free(h->entries);
	free(h);
	if (is_last)
		task_start(st->loop, "image sweep", sweep_main, st);
}

/* --- start and end --- */

struct loader {
	struct image_store *st;
	struct store_batch broken; /* rows to be deleted */
};

static int load_layer(void *data, const struct layer_row *row)
{
	struct loader *ld = data;
	struct stat sb;

	if (!row->chain_id || !digest_is_valid(row->chain_id) ||
	    fstatat(ld->st->layers_fd, digest_hex(row->chain_id), &sb, AT_SYMLINK_NOFOLLOW) < 0 ||
	    !S_ISDIR(sb.st_mode)) {
		log_error("layer %.80s has no directory: images on it must be imported again",
			  row->chain_id ? row->chain_id : "(none)");
		if (row->chain_id)
			batch_layer_delete(&ld->broken, row->chain_id);
		return 0;
	}
	layer_load(ld->st, row->chain_id, row->size_bytes, row->inodes);
	return 0;
}

/* Those layers of the chain ids that are there; false when one is missing. */
static bool find_layers(struct image_store *st, const char *chain_ids, struct layer **layers,
			size_t *ret_count)
{
	cleanup_free char *copy = xstrdup(chain_ids ? chain_ids : "");
	char *rest = copy, *line;
	bool is_whole = true;
	size_t n = 0;

	while ((line = strsep(&rest, "\n"))) {
		if (n < IMAGE_LAYERS_MAX && (layers[n] = map_get(&st->layers, line)))
			n++;
		else
			is_whole = false;
	}
	*ret_count = n;
	return is_whole;
}

/* What is left of an image is kept as long as a container needs it, and its row with it, so that a
 * restart does the same. */
static void load_damaged(struct image_store *st, const struct image_row *row,
			 struct layer *const *layers, size_t count, const char *why)
{
	struct image_entry *e = xnew(struct image_entry);

	log_error("image %.80s (%s) is damaged: %s; import it again", row->id,
		  row->repo_tags ? row->repo_tags : "", why);
	e->image.refs = 1;
	e->image.is_removed = true;
	e->arena = arena_new(SIZE_MAX);
	e->image.id = arena_strdup(e->arena, row->id);
	take_layers(e, layers, count);
	map_put(&st->damaged, e->image.id, e);
}

static struct image_entry *load_whole(struct image_store *st, const struct image_row *row,
				      struct layer *const *layers, size_t count, struct error *err)
{
	struct image_entry *e = entry_new(row->config, row->config_size, layers, count, err);

	if (!e || !strcmp(e->image.id, row->id))
		return e;
	error_set(err, ERR_INTERNAL, "its configuration has another digest");
	drop_layers(st, layers, count);
	image_unref(&e->image);
	return NULL;
}

static int load_image(void *data, const struct image_row *row)
{
	struct image_store *st = ((struct loader *)data)->st;
	struct layer *layers[IMAGE_LAYERS_MAX];
	struct error err = {.text = "a layer is missing"};
	struct image_entry *e = NULL;
	size_t n;

	if (!row->id)
		return 0;
	if (find_layers(st, row->chain_ids, layers, &n) && row->config)
		e = load_whole(st, row, layers, n, &err);
	if (!e) {
		load_damaged(st, row, layers, n, err.text);
		return 0;
	}
	e->manifest_digest = xstrdup_null(row->manifest_digest);
	e->image.imported_ns = (uint64_t)row->created_at;
	e->image.is_pinned = row->is_pinned;
	e->image.is_removed = row->is_removed;
	names_split(&e->image.repo_tags, row->repo_tags);
	names_split(&e->image.repo_digests, row->repo_digests);
	map_put(&st->images, e->image.id, e);
	map_names(st, e);
	return 0;
}

static int open_sub(int parent, const char *name, int *ret_fd, struct error *err)
{
	if (mkdirat(parent, name, 0700) < 0 && errno != EEXIST)
		return error_errno(err, errno, "make %s", name);
	return fs_open_beneath(parent, name, O_RDONLY | O_DIRECTORY, 0, ret_fd, err);
}

static int open_dirs(struct image_store *st, const char *root_dir, struct error *err)
{
	cleanup_close int root = open(root_dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	cleanup_free char *real = realpath(root_dir, NULL);

	if (root < 0 || !real)
		return error_errno(err, errno, "open %s", root_dir);
	st->dir = xasprintf("%s/images", real);
	TRY(open_sub(root, "images", &st->dir_fd, err));
	TRY(open_sub(st->dir_fd, "layers", &st->layers_fd, err));
	return open_sub(st->dir_fd, "ingest", &st->ingest_fd, err);
}

/* Removes what is in ingest/ now, while new names may come. */
struct sweep_job {
	struct job job;
	int ingest;
	struct string_list names;
};

static int sweep_run(struct job *job, struct error *err)
{
	struct sweep_job *j = container_of(job, struct sweep_job, job);
	int r = 0;

	for (size_t i = 0; i < j->names.count && r == 0; i++)
		r = fs_remove_tree_blocking(j->ingest, j->names.items[i], err);
	if (r < 0)
		log_warning("what an import left behind stays: %s", err->text);
	return r;
}

static void sweep_free(struct job *job)
{
	struct sweep_job *j = container_of(job, struct sweep_job, job);

	close_fd(j->ingest);
	names_done(&j->names);
	free(j);
}

static int list_dir(int dir, struct string_list *ret, struct error *err)
{
	int fd = openat(dir, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	cleanup_closedir DIR *stream = fd < 0 ? NULL : fdopendir(fd);
	struct dirent *e;

	if (!stream) {
		close_fd(fd);
		return error_errno(err, errno, "read the images' directory");
	}
	while ((e = readdir(stream)))
		if (strcmp(e->d_name, ".") != 0 && strcmp(e->d_name, "..") != 0)
			names_add(ret, e->d_name);
	return 0;
}

/* Layers without a row go to ingest/, and all of that goes in the background. */
static int sweep_leftovers(struct image_store *st, struct error *err)
{
	struct string_list names = {0};
	char chain_id[DIGEST_SIZE + 256], name[FS_RANDOM_NAME];
	struct sweep_job *j;
	int r = list_dir(st->layers_fd, &names, err);

	for (size_t i = 0; i < names.count && r == 0; i++) {
		snprintf(chain_id, sizeof(chain_id), DIGEST_PREFIX "%s", names.items[i]);
		fs_random_name(name);
		if (map_get(&st->layers, chain_id) || st->is_incomplete)
			continue;
		log_warning("layer %s is nobody's, as an import that was killed leaves it: removed",
			    names.items[i]);
		if (renameat(st->layers_fd, names.items[i], st->ingest_fd, name) < 0)
			r = error_errno(err, errno, "move the unknown layer %s away",
					names.items[i]);
	}
	names_done(&names);
	if (r == 0)
		r = list_dir(st->ingest_fd, &names, err);
	if (r < 0 || names.count == 0) {
		names_done(&names);
		return r;
	}
	j = xnew(struct sweep_job);
	job_init(&j->job, sweep_run, sweep_free);
	j->ingest = fcntl(st->ingest_fd, F_DUPFD_CLOEXEC, 3);
	j->names = names;
	offload_detached(st->loop, NULL, &j->job);
	return 0;
}

static void on_broken_deleted(void *data, int result, const struct error *err)
{
	if (result < 0)
		log_warning("rows of missing layers stay: %s", err->text);
}

/* Whose layers can't be told from nobody's then, so all of them stay. */
static int report_skipped(struct image_store *st, int result, const struct error *err)
{
	if (result <= 0)
		return result;
	log_error("no layer is removed until this is repaired by crisp fsck --fix: %s", err->text);
	st->is_incomplete = true;
	return 0;
}

static int load_rows(struct image_store *st, struct error *err)
{
	struct loader ld = {.st = st};
	int r = report_skipped(st, store_layer_each(st->db, load_layer, &ld, err), err);

	if (r == 0)
		r = report_skipped(st, store_image_each(st->db, load_image, &ld, err), err);
	if (r == 0 && ld.broken.first)
		store_commit_later(st->db, &ld.broken, on_broken_deleted, NULL);
	store_batch_done(&ld.broken);
	return r;
}

struct image_store *image_store_open(struct loop *l, struct store *s, const char *root_dir,
				     struct error *err)
{
	struct image_store *st = xnew(struct image_store);

	st->loop = l;
	st->db = s;
	st->dir_fd = st->layers_fd = st->ingest_fd = -1;
	st->unpacker = unpacker_new(err);
	st->limits = (struct image_limits){MAX_BYTES_DEFAULT, MAX_INODES_DEFAULT};
	list_init(&st->unused);
	task_mutex_init(&st->commit);
	task_cond_init(&st->changed);
	if (!st->unpacker || open_dirs(st, root_dir, err) < 0 || load_rows(st, err) < 0 ||
	    sweep_leftovers(st, err) < 0) {
		image_store_free(st);
		return NULL;
	}
	return st;
}

void image_store_set_limits(struct image_store *st, const struct image_limits *limits)
{
	if (limits->unpacked_bytes)
		st->limits.unpacked_bytes = limits->unpacked_bytes;
	if (limits->inodes)
		st->limits.inodes = limits->inodes;
}

void image_store_free(struct image_store *st)
{
	if (!st)
		return;
	map_for_each(slot, &st->images)
		image_unref(&((struct image_entry *)slot->value)->image);
	map_for_each(slot, &st->damaged)
		image_unref(&((struct image_entry *)slot->value)->image);
	map_for_each(slot, &st->layers)
		layer_free(st, slot->value);
	map_for_each(slot, &st->holders) {
		free(((struct holder *)slot->value)->entries);
		free(slot->value);
	}
	map_done(&st->images);
	map_done(&st->damaged);
	map_done(&st->names);
	map_done(&st->layers);
	map_done(&st->holders);
	close_fd(st->dir_fd);
	close_fd(st->layers_fd);
	close_fd(st->ingest_fd);
	unpacker_free(st->unpacker);
	free(st->dir);
	free(st);
}
