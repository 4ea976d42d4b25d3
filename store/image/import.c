/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Import. A tar is first taken apart into ingest/ by the locked-down child; from there on an
 * archive is a directory. Peculiar: all that an import leaves in ingest/ is under one random name,
 * removed at its end, or at the next start.
 */
#include "store/image/store_private.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "io/base/alloc.h"
#include "io/base/cleanup.h"
#include "io/fs.h"
#include "io/offload.h"

/* Opens the archive; a regular file also gets a directory to be taken apart in. */
struct open_job {
	struct job job;
	char *path;
	int ingest;
	char name[FS_RANDOM_NAME];
	int source, dir; /* results: dir is the source itself when that is a directory */
	bool is_tar;
};

static int open_run(struct job *job, struct error *err)
{
	struct open_job *j = container_of(job, struct open_job, job);
	struct stat st;

	j->source = open(j->path, O_RDONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
	if (j->source < 0 && errno == ENOENT)
		return error_set(err, ERR_NOT_FOUND, "it is not there");
	if (j->source < 0 || fstat(j->source, &st) < 0)
		return error_errno(err, errno, "open it");
	j->is_tar = S_ISREG(st.st_mode);
	if (!j->is_tar && !S_ISDIR(st.st_mode))
		return error_set(err, ERR_INVALID, "it is neither a file nor a directory");
	if (!j->is_tar) {
		j->dir = take_fd(&j->source);
		return 0;
	}
	if (mkdirat(j->ingest, j->name, 0700) < 0)
		return error_errno(err, errno, "make a directory to take it apart in");
	j->dir = openat(j->ingest, j->name, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	return j->dir < 0 ? error_errno(err, errno, "open the directory to take it apart in") : 0;
}

static void open_free(struct job *job)
{
	struct open_job *j = container_of(job, struct open_job, job);

	close_fd(j->ingest);
	close_fd(j->source);
	close_fd(j->dir);
	free(j->path);
	free(j);
}

struct plan_job {
	struct job job;
	int dir;
	char **names;
	size_t name_count;
	struct plan *plan; /* result */
};

static int plan_run(struct job *job, struct error *err)
{
	struct plan_job *j = container_of(job, struct plan_job, job);
	struct string_list names = {.items = (const char **)j->names, .count = j->name_count};

	return plan_read(j->dir, &names, &j->plan, err);
}

static void plan_job_free(struct job *job)
{
	struct plan_job *j = container_of(job, struct plan_job, job);

	for (size_t i = 0; i < j->name_count; i++)
		free(j->names[i]);
	free(j->names);
	close_fd(j->dir);
	plan_free(j->plan);
	free(j);
}

static struct plan_job *plan_job_new(int dir, const struct string_list *names)
{
	struct plan_job *j = xnew(struct plan_job);

	job_init(&j->job, plan_run, plan_job_free);
	j->dir = fcntl(dir, F_DUPFD_CLOEXEC, 3);
	j->name_count = names->count;
	j->names = xcalloc(names->count + 1, sizeof(*j->names));
	for (size_t i = 0; i < names->count; i++)
		j->names[i] = xstrdup(names->items[i]);
	return j;
}

struct importer {
	struct task *t;
	struct image_store *st;
	const struct image_import *in;
	int dir;
};

static void report(const struct importer *im, const char *what, const char *object, size_t done,
		   size_t total)
{
	struct image_progress p = {.done = done, .total = total};

	if (!im->in->progress)
		return;
	p.what = arena_printf(im->t->arena, "%s%s%s", what, *object ? " " : "", object);
	im->in->progress(&p, im->in->data);
}

/* layers gets what was taken, also on failure: the caller drops it. */
static int take_layers(struct importer *im, const struct plan_image *img, struct layer **layers,
		       size_t *ret_count)
{
	for (size_t i = 0; i < img->layer_count; i++) {
		const struct plan_layer *from = &img->layers[i];
		bool is_new;

		if (!layer_is_ready(im->st, from->chain_id))
			report(im, "unpacking", from->diff_id, i, img->layer_count);
		TRY(layer_ensure(im->t, im->st, im->dir, from, layers, i, &layers[i], &is_new));
		*ret_count = i + 1;
		if (!is_new)
			report(im, "layer exists", from->diff_id, i + 1, img->layer_count);
	}
	return 0;
}

static int import_image(struct importer *im, const struct plan_image *img)
{
	cleanup_free struct layer **layers = xcalloc(img->layer_count, sizeof(*layers));
	size_t taken = 0;
	int r = take_layers(im, img, layers, &taken);

	if (r == 0)
		r = image_commit(im->t, im->st, img, layers, im->in->is_pinned);
	for (size_t i = 0; i < taken; i++)
		layer_drop(im->st, layers[i]);
	if (r < 0)
		return r;
	report(im, "imported", img->repo_tags.count ? img->repo_tags.items[0] : img->id,
	       img->layer_count, img->layer_count);
	return 0;
}

static int import_all(struct importer *im, struct plan_job *j, struct string_list *ret)
{
	struct string_list ids = {0};

	TRY(offload(im->t, NULL, &j->job));
	ids.items = arena_new_array(im->t->arena, const char *, j->plan->count);
	for (struct plan_image *img = j->plan->images; img; img = img->next) {
		TRY(import_image(im, img));
		ids.items[ids.count++] = arena_strdup(im->t->arena, img->id);
	}
	*ret = ids;
	return 0;
}

static int take_apart(struct task *t, struct image_store *st, const struct open_job *j)
{
	struct unpack_request q = {.stream = j->source,
				   .target = j->dir,
				   .max_bytes = st->limits.unpacked_bytes,
				   .max_inodes = st->limits.inodes};
	struct unpack_result got;

	return unpack_run(t, st->unpacker, &q, &got);
}

static int import_opened(struct importer *im, struct open_job *o, struct string_list *ret)
{
	struct plan_job *j;
	int r;

	if (o->is_tar) {
		report(im, "reading", im->in->path, 0, 0);
		TRY(take_apart(im->t, im->st, o));
	}
	im->dir = o->dir;
	j = plan_job_new(o->dir, &im->in->names);
	r = import_all(im, j, ret);
	job_unref(&j->job);
	return r;
}

/* Whatever came of it, nothing is left: in ingest/, or of layers that no image came to use. */
static void clean_up(struct task *t, struct image_store *st, const char *name, int result)
{
	struct error err = t->err;

	task_shield(t, 1);
	fs_remove_tree(t, st->ingest_fd, name);
	if (result < 0)
		layer_collect(t, st);
	task_shield(t, -1);
	t->err = err;
}

int image_import(struct task *t, struct image_store *st, const struct image_import *in,
		 struct string_list *ret)
{
	struct importer im = {.t = t, .st = st, .in = in};
	struct open_job *o = xnew(struct open_job);
	char name[FS_RANDOM_NAME];
	int r;

	job_init(&o->job, open_run, open_free);
	o->path = xstrdup(in->path);
	o->ingest = fcntl(st->ingest_fd, F_DUPFD_CLOEXEC, 3);
	o->source = o->dir = -1;
	fs_random_name(o->name);
	memcpy(name, o->name, sizeof(name));
	r = offload(t, NULL, &o->job);
	if (r == 0)
		r = import_opened(&im, o, ret);
	job_unref(&o->job);
	clean_up(t, st, name, r);
	return r < 0 ? error_wrap(&t->err, "import %s", in->path) : 0;
}
