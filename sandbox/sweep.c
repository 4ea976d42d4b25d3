/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The sweep: at the end of reconcile, what has a place and a name of ours and belongs to nobody is
 * removed. Peculiar: it goes from what another thing's removal may need last to what it needs
 * first, as a teardown does (cgroups, pins, mounts, directories), so it can be repeated.
 */
#include "sandbox/priv.h"

#include <dirent.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

#include "io/base/alloc.h"
#include "io/base/log.h"
#include "io/fs.h"
#include "io/offload.h"
#include "recovery/fdstore.h"

#define PLACES 3

/* A directory that has one for each object. */
struct place {
	int fd; /* the job's own */
	char *path;
	struct map names; /* of ids */
};

struct places_job {
	struct job job;
	struct place places[PLACES];
};

struct node_sweep {
	struct node *node;
	void (*found)(void *data, const char *thing);
	void *data;
};

static int list_place(struct place *p, struct error *err)
{
	int fd = openat(p->fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	cleanup_closedir DIR *list = fd < 0 ? NULL : fdopendir(fd);
	struct dirent *e;

	if (p->fd < 0)
		return 0; /* the directory is not there */
	if (!list) {
		close_fd(fd);
		return error_errno(err, errno, "list %s", p->path);
	}
	while ((e = readdir(list)))
		if (id_is_valid(e->d_name))
			map_put(&p->names, e->d_name, p);
	return 0;
}

static int places_run(struct job *job, struct error *err)
{
	struct places_job *j = container_of(job, struct places_job, job);

	for (int i = 0; i < PLACES; i++)
		TRY(list_place(&j->places[i], err));
	return 0;
}

static void places_free(struct job *job)
{
	struct places_job *j = container_of(job, struct places_job, job);

	for (int i = 0; i < PLACES; i++) {
		close_fd(j->places[i].fd);
		free(j->places[i].path);
		map_done(&j->places[i].names);
	}
	free(j);
}

static void set_place(struct place *p, int fd, const char *parent, const char *name)
{
	p->fd = fcntl(fd, F_DUPFD_CLOEXEC, 3);
	p->path = xasprintf("%s/%s", parent, name);
}

static struct places_job *places_new(const struct node *n)
{
	struct places_job *j = xnew(struct places_job);

	job_init(&j->job, places_run, places_free);
	set_place(&j->places[0], n->states_fd, n->run_dir, "containers");
	set_place(&j->places[1], n->sandboxes_fd, n->run_dir, "sandboxes");
	/* the last, since it takes long */
	set_place(&j->places[2], n->roots_fd, n->root_dir, "containers");
	return j;
}

static bool is_known(void *data, const char *id)
{
	const struct node *n = ((struct node_sweep *)data)->node;

	return map_get(&n->sandboxes, id) || map_get(&n->containers, id) ||
	       map_get(&n->strangers, id);
}

static void each_parent(void *data, void (*fn)(void *arg, const char *parent), void *arg)
{
	struct node *n = ((struct node_sweep *)data)->node;

	map_for_each(slot, &n->sandboxes) {
		struct arena *arena CLEANUP(cleanup_arena_fn) = arena_new(TASK_ARENA_CAP);
		struct sandbox_spec spec = {0};

		if (n->front->sandbox_spec(arena, slot->value, &spec, NULL) == 0 &&
		    spec.cgroup_parent)
			fn(arg, spec.cgroup_parent);
	}
}

static void found(void *data, const char *thing)
{
	struct node_sweep *s = data;

	s->found(s->data, thing);
}

/* "<id>.out" and the like. */
static bool is_owned(void *data, const char *name)
{
	char id[ID_SIZE] = "";

	memcpy(id, name, strnlen(name, ID_SIZE - 1));
	return is_known(data, id);
}

static void find_strays(const struct place *p, struct sweep *sweep)
{
	map_for_each(slot, &p->names) {
		if (!sweep->is_known(sweep->data, slot->key))
			map_put(&sweep->ids, slot->key, sweep);
	}
}

/* What is mounted there goes first, off the loop. */
struct unmount_job {
	struct job job;
	char *path;
};

static int unmount_run(struct job *job, struct error *err)
{
	return fs_unmount_below(container_of(job, struct unmount_job, job)->path, err);
}

static void unmount_free(struct job *job)
{
	struct unmount_job *j = container_of(job, struct unmount_job, job);

	free(j->path);
	free(j);
}

static int unmount_below(struct task *t, const char *path)
{
	struct unmount_job *j = xnew(struct unmount_job);
	int r;

	job_init(&j->job, unmount_run, unmount_free);
	j->path = xstrdup(path);
	r = offload(t, NULL, &j->job);
	job_unref(&j->job);
	return r;
}

static int remove_stray(struct task *t, const struct place *p, const char *id, struct sweep *sweep)
{
	char *path cleanup_free = xasprintf("%s/%s", p->path, id);
	char *thing cleanup_free = xasprintf("directory %s", path);

	/* its object may just have been removed */
	if (faccessat(p->fd, id, F_OK, AT_SYMLINK_NOFOLLOW) < 0)
		return 0;
	sweep->found(sweep->data, thing);
	if (sweep->is_dry)
		return 0;
	TRY(unmount_below(t, path));
	return fs_remove_tree(t, p->fd, id);
}

/* What can't be removed doesn't keep the rest; it is tried again at the next start. */
static int sweep_place(struct task *t, const struct place *p, struct sweep *sweep)
{
	int result = 0;

	map_for_each(slot, &p->names) {
		int r = map_get(&sweep->ids, slot->key) ? remove_stray(t, p, slot->key, sweep) : 0;

		if (r < 0) {
			log_error("%s/%s is nobody's, but stays: %s", p->path, slot->key,
				  t->err.text);
			result = r;
		}
	}
	return result;
}

static int sweep_places(struct task *t, struct node *n, struct places_job *j, struct sweep *sweep)
{
	int result = 0;

	TRY(offload(t, NULL, &j->job));
	for (int i = 0; i < PLACES; i++)
		find_strays(&j->places[i], sweep);
	/* the directories tell the next start which cgroups are ours */
	TRY(node_kind(n, "")->sweep(t, &n->env, sweep));
	for (int i = 0; i < PLACES; i++) {
		int r = sweep_place(t, &j->places[i], sweep);

		result = r < 0 ? r : result;
	}
	return result;
}

int node_sweep(struct task *t, struct node *n, bool is_dry,
	       void (*fn)(void *data, const char *thing), void *data)
{
	struct node_sweep own = {.node = n, .found = fn, .data = data};
	struct sweep sweep = {.is_known = is_known,
			      .each_parent = each_parent,
			      .found = found,
			      .data = &own,
			      .is_dry = is_dry};
	struct places_job *j;
	int r;

	if (n->is_incomplete)
		return error_set(&t->err, ERR_PRECONDITION,
				 "sweep: what belongs to rows that can't be read is not known; run "
				 "crisp fsck --fix");
	j = places_new(n);
	r = sweep_places(t, n, j, &sweep);
	if (r == 0 && !is_dry && n->fdstore)
		r = fdstore_sweep(t, n->fdstore, is_owned, &own);
	job_unref(&j->job);
	map_done(&sweep.ids);
	return r;
}
