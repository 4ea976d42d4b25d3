/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Statistics of containers and sandboxes. Peculiar: whatever hangs, an answer comes within a limit
 * for each object, with what is known by then; many are looked at side by side. Nothing is looked
 * at unless somebody asks. A writable layer can have any size, so what was measured holds for a
 * while.
 */
#include "sandbox/priv.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/openat2.h>
#include <sys/statvfs.h>

#include "io/base/alloc.h"
#include "io/base/clock.h"
#include "io/fs.h"
#include "io/offload.h"

/* What one object may take. */
#define STATS_MS 1000
#define LAYER_WAIT_MS 300
#define SIDE_BY_SIDE 16
/* A layer is measured again after this time at the earliest, and after so many times what the
 * measuring took: 5 % of one processor's time at most. */
#define LAYER_AGE_NS 10000000000ll
#define LAYER_COST 20

struct layer_job {
	struct job job;
	struct container *container; /* a reference, given up on the loop */
	int roots_fd;
	char *id; /* the container's */
	int64_t ended;
	struct layer_usage found;
};

/* What the container writes into volumes of its own counts as well. */
static int add_volumes(struct layer_job *j, struct error *err)
{
	cleanup_free char *path = xasprintf("%s/" CONTAINER_VOLUMES, j->id);
	int r = fs_openat2(j->roots_fd, path, O_RDONLY | O_DIRECTORY, 0, RESOLVE_BENEATH);
	cleanup_close int dir = r;
	uint64_t bytes, inodes;

	if (r == -ENOENT)
		return 0;
	if (r < 0)
		return error_errno(err, -r, "open %s", path);
	TRY(fs_usage(dir, &bytes, &inodes, err));
	j->found.bytes += bytes;
	j->found.inodes += inodes;
	return 0;
}

static int measure_layer(struct job *job, struct error *err)
{
	struct layer_job *j = container_of(job, struct layer_job, job);
	cleanup_close int dir = -1;
	cleanup_free char *path = xasprintf("%s/upper", j->id);
	struct statvfs fs;

	j->found.at = realtime_ns();
	TRY(fs_open_beneath(j->roots_fd, path, O_RDONLY | O_DIRECTORY, 0, &dir, err));
	TRY(fs_usage(dir, &j->found.bytes, &j->found.inodes, err));
	TRY(add_volumes(j, err));
	if (fstatvfs(dir, &fs) < 0)
		return error_errno(err, errno, "statvfs %s", path);
	j->found.fs_bytes = (uint64_t)fs.f_blocks * fs.f_frsize;
	j->found.fs_inodes = fs.f_files;
	j->found.fs_inodes_free = fs.f_ffree;
	j->ended = realtime_ns();
	return 0;
}

static void layer_measured(struct job *job)
{
	struct layer_job *j = container_of(job, struct layer_job, job);
	struct container *c = j->container;

	c->layer_job = NULL;
	if (job->result == 0) {
		c->layer = j->found;
		c->layer_cost = j->ended - j->found.at;
	}
	container_unref(c);
}

static void free_layer_job(struct job *job)
{
	struct layer_job *j = container_of(job, struct layer_job, job);

	free(j->id);
	free(j);
}

static bool is_layer_fresh(const struct container *c)
{
	int64_t age = realtime_ns() - c->layer.at;

	if (!c->layer.at || age < 0)
		return false;
	/* nobody writes there any more */
	if (c->state == CONTAINER_EXITED)
		return c->layer.at > c->finished_at;
	return age < LAYER_AGE_NS || age < c->layer_cost * LAYER_COST;
}

static void begin_layer(struct task *t, struct container *c)
{
	struct layer_job *j = xnew(struct layer_job);

	job_init(&j->job, measure_layer, free_layer_job);
	j->job.finished = layer_measured;
	j->container = container_ref(c);
	j->roots_fd = c->node->roots_fd;
	j->id = xstrdup(c->id);
	c->layer_job = &j->job;
	offload_start(t, NULL, &j->job);
	job_unref(&j->job);
}

/* Waits a moment for a figure that is new. An older one is better than none. */
static void look_at_layer(struct task *t, struct container *c)
{
	uint64_t old;
	struct job *job;

	if (is_layer_fresh(c))
		return;
	if (!c->layer_job)
		begin_layer(t, c);
	job = c->layer_job;
	atomic_fetch_add(&job->refs, 1);
	old = task_limit_ms(t, LAYER_WAIT_MS);
	(void)offload_wait(t, job);
	task_restore_deadline(t, old);
	job_unref(job);
}

static void look_at_container(struct task *t, struct container *c, bool has_details,
			      struct container_stats *ret)
{
	uint64_t old = task_limit_ms(t, STATS_MS);

	ret->nano_cores = USAGE_NONE;
	usage_init(&ret->usage);
	if (c->handle && (c->state == CONTAINER_CREATED || c->state == CONTAINER_RUNNING) &&
	    c->sandbox->kind->container_usage(t, c->handle, has_details, &ret->usage) == 0 &&
	    ret->usage.figures[USAGE_CPU] != USAGE_NONE)
		ret->nano_cores =
			cpu_rate_add(&c->cpu_rate, ret->usage.at, ret->usage.figures[USAGE_CPU]);
	look_at_layer(t, c);
	ret->layer = c->layer;
	task_restore_deadline(t, old);
}

/* Tasks that go through a list together. */
struct crew {
	void (*look)(struct task *t, void *arg, size_t i);
	void *arg;
	size_t next, count, busy;
	struct task_event done;
};

static void crew_main(struct task *t, void *arg)
{
	struct crew *crew = arg;

	while (crew->next < crew->count)
		crew->look(t, crew->arg, crew->next++);
	if (!--crew->busy)
		task_event_set(&crew->done);
}

/* Calls look for 0 to count - 1. What it uses may be the caller's. */
static int side_by_side(struct task *t, size_t count,
			void (*look)(struct task *t, void *arg, size_t i), void *arg)
{
	struct crew crew = {.look = look, .arg = arg, .count = count};
	int r;

	if (count == 1)
		look(t, arg, 0);
	if (count <= 1)
		return task_check(t);
	task_event_init(&crew.done);
	crew.busy = count < SIDE_BY_SIDE ? count : SIDE_BY_SIDE;
	for (size_t i = crew.busy; i > 0; i--)
		task_start(t->loop, "statistics", crew_main, &crew);
	r = task_event_wait(t, &crew.done);
	/* nobody begins another one, and those that were begun end within their limits */
	crew.next = count;
	task_event_finish(t, &crew.done);
	return r;
}

struct containers {
	struct container **items;
	struct container_stats *stats;
	bool has_details;
};

static void look_at_one(struct task *t, void *arg, size_t i)
{
	struct containers *all = arg;

	look_at_container(t, all->items[i], all->has_details, &all->stats[i]);
}

int containers_stats(struct task *t, struct container **containers, size_t count, bool has_details,
		     struct container_stats *ret)
{
	struct containers all = {containers, ret, has_details};

	return side_by_side(t, count, look_at_one, &all);
}

static void look_at_layer_of(struct task *t, void *arg, size_t i)
{
	struct container **all = arg;

	look_at_layer(t, all[i]);
}

int layers_usage(struct task *t, struct node *n, uint64_t *ret_bytes, uint64_t *ret_inodes)
{
	struct container **all;
	size_t count = 0;
	int r;

	all = arena_new_array(t->arena, struct container *, n->containers.count);
	map_for_each(slot, &n->containers) {
		struct container *c = slot->value;

		if (c->state != CONTAINER_CREATING)
			all[count++] = container_ref(c);
	}
	r = side_by_side(t, count, look_at_layer_of, all);
	*ret_bytes = *ret_inodes = 0;
	for (size_t i = 0; i < count; i++) {
		*ret_bytes += all[i]->layer.bytes;
		*ret_inodes += all[i]->layer.inodes;
		container_unref(all[i]);
	}
	return r;
}

struct sandboxes {
	struct sandbox **items;
	struct sandbox_stats *stats;
};

static void look_at_sandbox(struct task *t, void *arg, size_t i)
{
	struct sandboxes *all = arg;
	struct sandbox *sb = all->items[i];
	struct sandbox_stats *stats = &all->stats[i];
	uint64_t old = task_limit_ms(t, STATS_MS);

	usage_init(&stats->all.usage);
	if (sb->handle && sb->state == SANDBOX_READY)
		stats->is_sum = sb->kind->sandbox_usage(t, sb->handle, &stats->all) == 0 &&
				!stats->all.usage.at;
	task_restore_deadline(t, old);
}

/* What is in it now; the arena has the list. */
static void take_containers(struct task *t, const struct sandbox *sb, struct sandbox_stats *stats)
{
	size_t count = 0;

	list_for_each(c, &sb->containers, struct container, node_in_sandbox)
		count++;
	stats->containers = arena_new_array(t->arena, struct container *, count);
	list_for_each(c, &sb->containers, struct container, node_in_sandbox)
		if (c->state != CONTAINER_CREATING)
			stats->containers[stats->count++] = container_ref(c);
}

/* Where the kind can't tell of the whole, it is the sum of what there is; but not in place of a
 * figure that hangs, as that has what ended, too. */
static void sum_up(struct sandbox *sb, struct sandbox_stats *stats)
{
	struct usage *u = &stats->all.usage;

	for (size_t i = 0; i < stats->count && stats->is_sum; i++)
		usage_add(u, &stats->stats[i].usage);
	stats->nano_cores = USAGE_NONE;
	if (u->figures[USAGE_CPU] != USAGE_NONE)
		stats->nano_cores = cpu_rate_add(&sb->cpu_rate, u->at, u->figures[USAGE_CPU]);
}

int sandboxes_stats(struct task *t, struct sandbox **sandboxes, size_t count, bool has_details,
		    struct sandbox_stats *ret)
{
	struct sandboxes all = {sandboxes, ret};
	struct containers flat = {.has_details = has_details};
	size_t total = 0;

	TRY(side_by_side(t, count, look_at_sandbox, &all));
	for (size_t i = 0; i < count; i++) {
		take_containers(t, sandboxes[i], &ret[i]);
		total += ret[i].count;
	}
	flat.items = arena_new_array(t->arena, struct container *, total);
	flat.stats = arena_new_array(t->arena, struct container_stats, total);
	total = 0;
	for (size_t i = 0; i < count; i++) {
		for (size_t k = 0; k < ret[i].count; k++)
			flat.items[total + k] = ret[i].containers[k];
		ret[i].stats = flat.stats + total;
		total += ret[i].count;
	}
	TRY(side_by_side(t, total, look_at_one, &flat));
	for (size_t i = 0; i < count; i++)
		sum_up(sandboxes[i], &ret[i]);
	return 0;
}

void sandbox_stats_done(struct sandbox_stats *stats)
{
	for (size_t i = 0; i < stats->count; i++)
		container_unref(stats->containers[i]);
	net_list_done(&stats->all.net);
	*stats = (struct sandbox_stats){0};
}
