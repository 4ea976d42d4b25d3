/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What containers and pods use. Peculiar: there is at most one reading of an object at a time,
 * which all who ask meanwhile wait for, so a kernel that hangs costs one thread and not one for
 * each question.
 */
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

#include "io/base/alloc.h"
#include "io/base/cleanup.h"
#include "sandbox/linux/kind.h"
#include "sandbox/linux/net_usage.h"

/* One that takes so long is not waited for any more by those who come later. */
#define HUNG_NS (500 * 1000000ull)

struct reading {
	struct job job;
	struct reading **slot; /* in its owner, one of these two, a reference */
	struct linux_container *container;
	struct linux_sandbox *sandbox;
	const char *cgroup; /* of a pod only if it is its own, else NULL */
	int net;	    /* a network namespace, or -1 */
	bool has_details;
	pid_t pid;	/* the main process, or 0 */
	uint64_t since; /* loop time */
	struct usage usage;
	struct net_list traffic;
};

static int run_reading(struct job *job, struct error *err)
{
	struct reading *r = container_of(job, struct reading, job);
	struct rlimit limit;

	usage_init(&r->usage);
	if (r->net >= 0)
		TRY(net_usage_read(r->net, &r->traffic, err));
	if (!r->cgroup)
		return 0;
	TRY(cgroup_usage(kind.cgroups, r->cgroup, r->has_details, &r->usage, err));
	if (r->has_details && r->pid && prlimit(r->pid, RLIMIT_NOFILE, NULL, &limit) == 0)
		r->usage.figures[USAGE_DESCRIPTORS_LIMIT] = limit.rlim_cur;
	return 0;
}

static void reading_finished(struct job *job)
{
	*container_of(job, struct reading, job)->slot = NULL;
}

static void free_reading(struct job *job)
{
	struct reading *r = container_of(job, struct reading, job);

	linux_container_unref(r->container);
	linux_sandbox_unref(r->sandbox);
	close_fd(r->net);
	net_list_done(&r->traffic);
	free(r);
}

/* A new one, which is in the slot as long as it runs. */
static struct reading *reading_new(struct task *t, struct reading **slot, const char *cgroup)
{
	struct reading *r = xnew(struct reading);

	job_init(&r->job, run_reading, free_reading);
	r->job.finished = reading_finished;
	r->slot = slot;
	r->cgroup = cgroup;
	r->net = -1;
	r->since = loop_now(t->loop);
	*slot = r;
	return r;
}

/* A reference on the one that is under way, if there is one. */
static int reading_join(struct task *t, struct reading *under_way, const char *what,
			struct reading **ret)
{
	*ret = NULL;
	TRY(task_check(t));
	if (!under_way)
		return 0;
	if (loop_now(t->loop) - under_way->since > HUNG_NS)
		return error_set(&t->err, ERR_UNAVAILABLE,
				 "usage of %s: an earlier reading still hangs", what);
	atomic_fetch_add(&under_way->job.refs, 1);
	*ret = under_way;
	return 0;
}

int linux_container_usage(struct task *t, void *container, bool has_details,
			  struct usage *ret_usage)
{
	struct linux_container *c = container;
	struct reading *r;
	int result;

	TRY(reading_join(t, c->reading, c->spec.id, &r));
	if (!r) {
		r = reading_new(t, &c->reading, c->cgroup);
		r->container = linux_container_ref(c);
		r->has_details = has_details;
		r->pid = c->life == LIFE_RUNNING ? c->pid : 0;
		offload_start(t, NULL, &r->job);
	}
	result = offload_wait(t, &r->job);
	if (result == 0)
		*ret_usage = r->usage;
	job_unref(&r->job);
	return result;
}

static void copy_traffic(const struct net_list *from, struct net_list *ret)
{
	*ret = *from;
	ret->items = xcalloc(from->count ?: 1, sizeof(*ret->items));
	if (from->count)
		memcpy(ret->items, from->items, from->count * sizeof(*ret->items));
}

/* -1 without error for a pod on the node's network, or whose own is gone. */
static int open_net(struct task *t, const struct linux_sandbox *s, int *ret_net)
{
	char name[PIN_NAME_SIZE];
	int r;

	if (s->spec.net == NS_NODE || !s->is_up)
		return 0;
	pin_name(name, s->spec.id, "net");
	r = pins_get(t, kind.env.pins, name, ret_net);
	return r == -ERR_NOT_FOUND ? 0 : r;
}

static int read_sandbox(struct task *t, struct linux_sandbox *s, struct sandbox_usage *ret)
{
	cleanup_close int net = -1;
	struct reading *r;
	int result;

	TRY(open_net(t, s, &net));
	TRY(reading_join(t, s->reading, s->spec.id, &r));
	if (!r) {
		r = reading_new(t, &s->reading,
				s->spec.has_own_parent ? s->spec.cgroup_parent : NULL);
		r->sandbox = linux_sandbox_ref(s);
		r->net = take_fd(&net);
		offload_start(t, NULL, &r->job);
	}
	result = offload_wait(t, &r->job);
	if (result == 0) {
		ret->usage = r->usage;
		copy_traffic(&r->traffic, &ret->net);
	}
	job_unref(&r->job);
	return result;
}

int linux_sandbox_usage(struct task *t, void *sandbox, struct sandbox_usage *ret)
{
	struct linux_sandbox *s = linux_sandbox_ref(sandbox);
	int r = read_sandbox(t, s, ret);

	linux_sandbox_unref(s);
	return r;
}
