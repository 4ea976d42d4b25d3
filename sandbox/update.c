/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Changed limits of a container. What they shall be is committed before any of them changes, so
 * that the next server finishes what this one began. Peculiar: all limits are written, not only
 * those that change, so that a repetition needs to know nothing of what came before.
 */
#include "sandbox/priv.h"

#include "io/base/fault.h"
#include "io/base/log.h"

struct limits {
	void *view; /* the front end's, of the bytes */
	struct buf bytes;
};

static int apply(struct task *t, struct container *c, const void *view)
{
	struct arena *arena CLEANUP(cleanup_arena_fn) = NULL;
	struct resources r = {0};

	if (!view)
		return 0;
	arena = arena_new(TASK_ARENA_CAP);
	c->node->front->resources_spec(arena, view, &r);
	task_stage(t, "changing its limits");
	return c->sandbox->kind->container_update(t, c->handle, &r);
}

static void exchange(struct container *c, struct limits *l)
{
	struct limits old = {c->resources, c->resources_bytes};

	c->resources = l->view;
	c->resources_bytes = l->bytes;
	*l = old;
}

/* Nobody sees them before they are committed. */
static int commit(struct task *t, struct container *c, struct limits *new)
{
	struct store_batch batch CLEANUP(store_batch_done) = {0};

	exchange(c, new);
	container_add_row(&batch, c);
	exchange(c, new);
	TRY(store_commit(t, c->node->store, &batch));
	exchange(c, new);
	return 0;
}

static void take_back(struct task *t, struct container *c)
{
	struct store_batch batch CLEANUP(store_batch_done) = {0};
	struct error cause = t->err;

	if (apply(t, c, c->node->front->resources_of(c)) < 0)
		log_error("container %s: some of its limits may be wrong: %s", c->id, t->err.text);
	container_add_row(&batch, c);
	if (store_commit(t, c->node->store, &batch) < 0)
		log_error("container %s: the next server will try to change its limits: %s", c->id,
			  t->err.text);
	t->err = cause;
}

/* Makes next_resources those that hold, or leaves all as it was. */
static int change(struct task *t, struct container *c)
{
	const struct front_end *front = c->node->front;
	struct limits new = {.bytes = c->next_resources};
	int r;

	c->next_resources = (struct buf){0};
	new.view = front->resources_decode(new.bytes.data, new.bytes.length, &t->err);
	r = new.view ? apply(t, c, new.view) : -(int)t->err.code;
	if (r == 0) {
		FAULT(limits_changed);
		r = commit(t, c, &new);
	}
	if (r < 0)
		take_back(t, c);
	if (new.view)
		front->resources_free(new.view);
	buf_done(&new.bytes);
	return r;
}

static int intend_and_change(struct task *t, struct container *c)
{
	struct store_batch batch CLEANUP(store_batch_done) = {0};
	struct error cause;
	int r;

	container_add_row(&batch, c);
	r = store_commit(t, c->node->store, &batch);
	if (r == 0) {
		FAULT(update_intended);
		return change(t, c);
	}
	/* it may have been committed all the same */
	buf_done(&c->next_resources);
	c->next_resources = (struct buf){0};
	cause = t->err;
	container_write_later(c);
	return error_copy(&t->err, &cause);
}

int container_update(struct task *t, struct node *n, const char *id, const void *change_wanted)
{
	struct container *c cleanup_container = NULL;
	int r;

	TRY(container_acquire(t, n, id, &c));
	if (c->state != CONTAINER_CREATED && c->state != CONTAINER_RUNNING)
		return error_set(&t->err, ERR_PRECONDITION,
				 "container %s: it has ended, so it has no limits to change",
				 c->id);
	TRY(container_check_whole(c, &t->err));
	TRY(n->front->resources_merge(t->arena, c, change_wanted, &c->next_resources, &t->err));
	TRY(task_check(t));
	/* once it is begun, all of it is done */
	task_shield(t, +1);
	r = intend_and_change(t, c);
	task_shield(t, -1);
	return r;
}

void container_finish_update(struct task *t, struct container *c)
{
	if (c->state != CONTAINER_CREATED && c->state != CONTAINER_RUNNING)
		return;
	if (change(t, c) < 0)
		log_error("container %s: an interrupted change of its limits is taken back: %s",
			  c->id, t->err.text);
	else
		log_info("container %s: an interrupted change of its limits is done", c->id);
}
