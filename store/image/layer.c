/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Layers. Peculiar: a layer is unpacked under a random name in ingest/, synced, renamed to its own
 * name, and only then has a row; it is removed in the opposite order. So whatever has a row is
 * whole, and whatever has none is swept at start.
 */
#include "store/image/store_private.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/openat2.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/xattr.h>
#include <time.h>
#include <unistd.h>

#include "io/base/alloc.h"
#include "io/base/cleanup.h"
#include "io/base/fault.h"
#include "io/fs.h"
#include "io/offload.h"
#include "store/image/config.h"
#include "store/image/digest.h"
#include "store/images.h"

static struct layer *layer_new(struct image_store *st, const char *chain_id)
{
	struct layer *l = xnew(struct layer);

	l->chain_id = xstrdup(chain_id);
	l->path = xasprintf("%s/layers/%s", st->dir, digest_hex(chain_id));
	list_init(&l->unused);
	map_put(&st->layers, chain_id, l);
	return l;
}

void layer_free(struct image_store *st, struct layer *l)
{
	map_remove(&st->layers, l->chain_id);
	list_remove(&l->unused);
	free(l->chain_id);
	free(l->path);
	free(l);
}

static void make_ready(struct image_store *st, struct layer *l, uint64_t bytes, uint64_t inodes)
{
	char value;

	l->bytes = bytes;
	l->inodes = inodes;
	l->state = LAYER_READY;
	l->is_opaque = getxattr(l->path, "trusted.overlay.opaque", &value, 1) == 1 && value == 'y';
	st->bytes += bytes;
	st->inodes += inodes;
}

struct layer *layer_load(struct image_store *st, const char *chain_id, uint64_t bytes,
			 uint64_t inodes)
{
	struct layer *l = layer_new(st, chain_id);

	make_ready(st, l, bytes, inodes);
	list_append(&st->unused, &l->unused);
	return l;
}

void layer_take(struct layer *l)
{
	l->refs++;
	list_remove(&l->unused);
}

void layer_drop(struct image_store *st, struct layer *l)
{
	if (--l->refs == 0)
		list_append(&st->unused, &l->unused);
}

/* Opens the blob and the layers below and makes the target. */
struct prepare_job {
	struct job job;
	int source, ingest;
	char *blob;
	int64_t size; /* that the blob must have, or −1 */
	char name[FS_RANDOM_NAME];
	char **below;
	size_t below_count;
	int stream, target, *lowers; /* results */
};

static int open_blob(struct prepare_job *j, struct error *err)
{
	int r = fs_openat2(j->source, j->blob, O_RDONLY | O_NONBLOCK | O_NOCTTY, 0,
			   RESOLVE_BENEATH | RESOLVE_NO_MAGICLINKS);
	struct stat st;

	if (r == -ENOENT)
		return error_set(err, ERR_INVALID, "%s is not in the archive", j->blob);
	if (r < 0)
		return error_errno(err, -r, "open %s", j->blob);
	j->stream = r;
	if (fstat(r, &st) < 0 || !S_ISREG(st.st_mode))
		return error_set(err, ERR_INVALID, "%s is no regular file", j->blob);
	if (j->size >= 0 && st.st_size != j->size)
		return error_set(
			err, ERR_INVALID,
			"%s has %lld bytes, its manifest says %lld: the archive is damaged",
			j->blob, (long long)st.st_size, (long long)j->size);
	return 0;
}

static int prepare_run(struct job *job, struct error *err)
{
	struct prepare_job *j = container_of(job, struct prepare_job, job);

	TRY(open_blob(j, err));
	for (size_t i = 0; i < j->below_count; i++) {
		j->lowers[i] = open(j->below[i], O_RDONLY | O_DIRECTORY | O_CLOEXEC);
		if (j->lowers[i] < 0)
			return error_errno(err, errno, "open the layer %s", j->below[i]);
	}
	if (mkdirat(j->ingest, j->name, 0755) < 0)
		return error_errno(err, errno, "make a directory to unpack into");
	j->target = openat(j->ingest, j->name, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (j->target < 0 || fchmod(j->target, 0755) < 0)
		return error_errno(err, errno, "open the directory to unpack into");
	return 0;
}

static void prepare_free(struct job *job)
{
	struct prepare_job *j = container_of(job, struct prepare_job, job);

	for (size_t i = 0; i < j->below_count; i++) {
		close_fd(j->lowers[i]);
		free(j->below[i]);
	}
	close_fd(j->source);
	close_fd(j->ingest);
	close_fd(j->stream);
	close_fd(j->target);
	free(j->blob);
	free(j->below);
	free(j->lowers);
	free(j);
}

static struct prepare_job *prepare_new(struct image_store *st, int source,
				       const struct plan_layer *from, struct layer *const *below,
				       size_t below_count)
{
	struct prepare_job *j = xnew(struct prepare_job);

	job_init(&j->job, prepare_run, prepare_free);
	j->source = fcntl(source, F_DUPFD_CLOEXEC, 3);
	j->ingest = fcntl(st->ingest_fd, F_DUPFD_CLOEXEC, 3);
	j->stream = j->target = -1;
	j->blob = xstrdup(from->path);
	j->size = from->size;
	j->below_count = below_count;
	j->below = xcalloc(below_count + 1, sizeof(*j->below));
	j->lowers = xcalloc(below_count + 1, sizeof(*j->lowers));
	for (size_t i = 0; i < below_count; i++) {
		j->below[i] = xstrdup(below[i]->path);
		j->lowers[i] = -1;
	}
	fs_random_name(j->name);
	return j;
}

/* Renames between two directories and makes that durable. */
struct move_job {
	struct job job;
	int from, to;
	char *name, *new_name;
};

static int move_run(struct job *job, struct error *err)
{
	struct move_job *j = container_of(job, struct move_job, job);

	if (renameat2(j->from, j->name, j->to, j->new_name, RENAME_NOREPLACE) < 0)
		return error_errno(err, errno, "rename the layer %s to %s", j->name, j->new_name);
	FAULT(layer_moved);
	if (fsync(j->to) < 0)
		return error_errno(err, errno, "sync the layers' directory");
	return 0;
}

static void move_free(struct job *job)
{
	struct move_job *j = container_of(job, struct move_job, job);

	close_fd(j->from);
	close_fd(j->to);
	free(j->name);
	free(j->new_name);
	free(j);
}

static int move_layer(struct task *t, int from, const char *name, int to, const char *new_name)
{
	struct move_job *j = xnew(struct move_job);
	int r;

	job_init(&j->job, move_run, move_free);
	j->from = fcntl(from, F_DUPFD_CLOEXEC, 3);
	j->to = fcntl(to, F_DUPFD_CLOEXEC, 3);
	j->name = xstrdup(name);
	j->new_name = xstrdup(new_name);
	r = offload(t, NULL, &j->job);
	job_unref(&j->job);
	return r;
}

static int check_digests(const struct plan_layer *from, const struct unpack_result *got,
			 struct error *err)
{
	if (from->digest && strcmp(from->digest, got->digest) != 0)
		return error_set(err, ERR_INVALID, "its bytes have the digest %s: it is damaged",
				 got->digest);
	if (strcmp(from->diff_id, got->diff_id) != 0)
		return error_set(err, ERR_INVALID,
				 "unpacked it has the diff id %s, its image says %s: it is damaged",
				 got->diff_id, from->diff_id);
	return 0;
}

static int unpack_into(struct task *t, struct image_store *st, struct prepare_job *j,
		       const struct plan_layer *from, struct unpack_result *ret)
{
	struct unpack_request q = {.is_layer = true,
				   .max_bytes = st->limits.unpacked_bytes,
				   .max_inodes = st->limits.inodes,
				   .lower_count = j->below_count};

	TRY(offload(t, NULL, &j->job));
	q.stream = j->stream;
	q.target = j->target;
	q.lowers = j->lowers;
	TRY(unpack_run(t, st->unpacker, &q, ret));
	FAULT(layer_unpacked);
	return check_digests(from, ret, &t->err);
}

/* Takes a directory away that has no row (any more). Idempotent. */
static int discard_dir(struct task *t, struct image_store *st, const struct layer *l)
{
	const char *hex = digest_hex(l->chain_id);
	char name[FS_RANDOM_NAME];
	struct stat sb;

	if (fstatat(st->layers_fd, hex, &sb, AT_SYMLINK_NOFOLLOW) < 0)
		return errno == ENOENT ? 0 : error_errno(&t->err, errno, "look at %s", l->path);
	fs_random_name(name);
	TRY(move_layer(t, st->layers_fd, hex, st->ingest_fd, name));
	return fs_remove_tree(t, st->ingest_fd, name);
}

static int commit_layer(struct task *t, struct image_store *st, struct layer *l,
			const struct plan_layer *from, const char *name, const char *parent,
			const struct unpack_result *got)
{
	struct timespec now;
	struct layer_row row = {.chain_id = l->chain_id,
				.diff_id = from->diff_id,
				.parent = parent,
				.size_bytes = got->bytes,
				.inodes = got->inodes,
				.state = LAYER_READY};

	clock_gettime(CLOCK_REALTIME, &now);
	row.created_at = now.tv_sec * 1000000000ll + now.tv_nsec;
	/* one whose removal failed half-way may be in the way */
	TRY(discard_dir(t, st, l));
	TRY(move_layer(t, st->ingest_fd, name, st->layers_fd, digest_hex(l->chain_id)));
	return store_layer_put(t, st->db, &row);
}

static int layer_unpack(struct task *t, struct image_store *st, struct layer *l, int source,
			const struct plan_layer *from, struct layer *const *below, size_t count)
{
	struct prepare_job *j = prepare_new(st, source, from, below, count);
	const char *parent = count ? below[count - 1]->chain_id : NULL;
	struct unpack_result got;
	struct error err;
	int r = unpack_into(t, st, j, from, &got);

	/* from here on a wait that ends early would leave a layer that nobody knows */
	task_shield(t, 1);
	if (r == 0)
		r = commit_layer(t, st, l, from, j->name, parent, &got);
	if (r < 0) {
		err = t->err;
		if (fs_remove_tree(t, st->ingest_fd, j->name) == 0 &&
		    store_layer_delete(t, st->db, l->chain_id) == 0)
			discard_dir(t, st, l);
		t->err = err;
	}
	task_shield(t, -1);
	job_unref(&j->job);
	if (r < 0)
		return error_wrap(&t->err, "layer %s", from->digest ? from->digest : from->diff_id);
	make_ready(st, l, got.bytes, got.inodes);
	return 0;
}

bool layer_is_ready(const struct image_store *st, const char *chain_id)
{
	const struct layer *l = map_get(&st->layers, chain_id);

	return l && l->state == LAYER_READY;
}

int layer_ensure(struct task *t, struct image_store *st, int source, const struct plan_layer *from,
		 struct layer *const *below, size_t below_count, struct layer **ret,
		 bool *ret_is_new)
{
	struct layer *l;
	int r;

	while ((l = map_get(&st->layers, from->chain_id)) && l->state != LAYER_READY)
		TRY(task_cond_wait(t, &st->changed));
	*ret_is_new = !l;
	if (!l) {
		l = layer_new(st, from->chain_id);
		l->state = LAYER_UNPACKING;
		r = layer_unpack(t, st, l, source, from, below, below_count);
		task_cond_broadcast(&st->changed);
		if (r < 0) {
			layer_free(st, l);
			return r;
		}
	}
	layer_take(l);
	*ret = l;
	return 0;
}

/* A row that can't be deleted keeps its layer, for the next attempt; once it is deleted the layer
 * is forgotten, whatever becomes of its directory. */
static int layer_remove(struct task *t, struct image_store *st, struct layer *l)
{
	int r;

	l->state = LAYER_REMOVING;
	list_remove(&l->unused);
	r = store_layer_delete(t, st->db, l->chain_id);
	if (r < 0) {
		l->state = LAYER_READY;
		list_append(&st->unused, &l->unused);
		task_cond_broadcast(&st->changed);
		return error_wrap(&t->err, "remove layer %s", l->chain_id);
	}
	st->bytes -= l->bytes;
	st->inodes -= l->inodes;
	r = discard_dir(t, st, l);
	if (r < 0)
		error_wrap(&t->err, "remove layer %s", l->chain_id);
	layer_free(st, l);
	task_cond_broadcast(&st->changed);
	return r;
}

int layer_collect(struct task *t, struct image_store *st)
{
	int r = 0;

	task_shield(t, 1);
	while (r == 0 && !st->is_incomplete && !list_is_empty(&st->unused))
		r = layer_remove(t, st, list_first(&st->unused, struct layer, unused));
	task_shield(t, -1);
	return r;
}
