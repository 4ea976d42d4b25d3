/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Changed limits, of a container or of a whole sandbox. What they shall be is committed before any
 * of them changes, so that the next server finishes what this one began. Peculiar: all limits are
 * written, not only those that change, so that a repetition needs to know nothing of what came
 * before.
 */
#include "sandbox/priv.h"

#include "io/base/fault.h"
#include "io/base/log.h"

#define LOOK_MS 200

/* What has limits. */
struct limited {
	const char *what, *id;
	struct node *node;
	void *object;
	struct limits *limits;
	const struct limits_front *front;
	int (*apply)(struct task *t, void *object, const struct resources *resources,
		     const struct resources *undone);
	void (*add_row)(struct store_batch *batch, void *object);
};

static int apply_to_container(struct task *t, void *object, const struct resources *resources,
			      const struct resources *undone)
{
	struct container *c = object;

	return c->sandbox->kind->container_update(t, c->handle, resources, undone);
}

static int apply_to_sandbox(struct task *t, void *object, const struct resources *resources,
			    const struct resources *undone)
{
	struct sandbox *sb = object;

	return sb->kind->sandbox_update(t, sb->handle, resources, undone);
}

static void add_container(struct store_batch *batch, void *object)
{
	container_add_row(batch, object);
}

static void add_sandbox(struct store_batch *batch, void *object)
{
	sandbox_add_row(batch, object);
}

static struct limited of_container(struct container *c)
{
	return (struct limited){"container",
				c->id,
				c->node,
				c,
				&c->limits,
				c->node->front->container_limits,
				apply_to_container,
				add_container};
}

static struct limited of_sandbox(struct sandbox *sb)
{
	return (struct limited){"sandbox",	  sb->id,
				sb->node,	  sb,
				&sb->limits,	  sb->node->front->sandbox_limits,
				apply_to_sandbox, add_sandbox};
}

void limits_done(struct limits *l)
{
	buf_done(&l->bytes);
	buf_done(&l->next);
	*l = (struct limits){0};
}

/* undone: or NULL. */
static int apply(struct task *t, const struct limited *l, const struct buf *limits,
		 const struct buf *undone)
{
	struct arena *arena CLEANUP(cleanup_arena_fn) = arena_new(TASK_ARENA_CAP);
	struct resources new = {0}, old = {0};

	l->front->spec(arena, l->object, limits, &new);
	if (undone)
		l->front->spec(arena, l->object, undone, &old);
	task_stage(t, "changing its limits");
	return l->apply(t, l->object, &new, undone ? &old : NULL);
}

static void exchange(struct limits *a, struct limits *b)
{
	struct limits c = *a;

	*a = *b;
	*b = c;
}

static int write_row(struct task *t, const struct limited *l)
{
	struct store_batch batch CLEANUP(store_batch_done) = {0};

	l->add_row(&batch, l->object);
	return store_commit(t, l->node->store, &batch);
}

/* Nobody sees them before they are committed. */
static int commit(struct task *t, const struct limited *l, struct limits *new)
{
	struct store_batch batch CLEANUP(store_batch_done) = {0};

	exchange(l->limits, new);
	l->add_row(&batch, l->object);
	exchange(l->limits, new);
	TRY(store_commit(t, l->node->store, &batch));
	exchange(l->limits, new);
	return 0;
}

static void take_back(struct task *t, const struct limited *l, const struct buf *undone)
{
	struct error cause = t->err;

	if (apply(t, l, &l->limits->bytes, undone) < 0)
		log_error("%s %s: some of its limits may be wrong: %s", l->what, l->id,
			  t->err.text);
	if (write_row(t, l) < 0)
		log_error("%s %s: the next server will try to change its limits: %s", l->what,
			  l->id, t->err.text);
	t->err = cause;
}

/* Makes the next ones those that hold, or leaves all as it was. */
static int change(struct task *t, const struct limited *l)
{
	struct limits new = {.bytes = l->limits->next};
	int r;

	l->limits->next = (struct buf){0};
	r = apply(t, l, &new.bytes, NULL);
	if (r == 0) {
		FAULT(limits_changed);
		r = commit(t, l, &new);
	}
	if (r < 0)
		take_back(t, l, &new.bytes);
	limits_done(&new);
	return r;
}

static int intend_and_change(struct task *t, const struct limited *l)
{
	struct store_batch later = {0};
	struct error cause;

	if (write_row(t, l) == 0) {
		FAULT(update_intended);
		return change(t, l);
	}
	/* it may have been committed all the same */
	buf_done(&l->limits->next);
	l->limits->next = (struct buf){0};
	cause = t->err;
	l->add_row(&later, l->object);
	store_commit_later(l->node->store, &later, NULL, NULL);
	return error_copy(&t->err, &cause);
}

static int update(struct task *t, const struct limited *l, const void *change_wanted)
{
	int r;

	TRY(l->front->merge(t->arena, l->object, change_wanted, &l->limits->next, &t->err));
	r = task_check(t);
	if (r < 0) {
		buf_done(&l->limits->next);
		l->limits->next = (struct buf){0};
		return r;
	}
	/* once it is begun, all of it is done */
	task_shield(t, +1);
	r = intend_and_change(t, l);
	task_shield(t, -1);
	return r;
}

int container_update(struct task *t, struct node *n, const char *id, const void *change_wanted)
{
	struct container *c cleanup_container = NULL;
	struct limited l;

	TRY(container_acquire(t, n, id, &c));
	if (c->state != CONTAINER_CREATED && c->state != CONTAINER_RUNNING)
		return error_set(&t->err, ERR_PRECONDITION,
				 "container %s: it has ended, so it has no limits to change",
				 c->id);
	TRY(container_check_whole(c, &t->err));
	l = of_container(c);
	return update(t, &l, change_wanted);
}

int sandbox_update(struct task *t, struct node *n, const char *id, const void *change_wanted)
{
	struct sandbox *sb cleanup_sandbox = NULL;
	struct limited l;

	TRY(sandbox_acquire(t, n, id, &sb));
	if (sb->state != SANDBOX_READY)
		return error_set(&t->err, ERR_PRECONDITION,
				 "sandbox %s: it is not ready, so it has no limits to change",
				 sb->id);
	TRY(sandbox_check_handle(sb, &t->err));
	l = of_sandbox(sb);
	return update(t, &l, change_wanted);
}

int container_limits(struct task *t, struct container *c, struct limits_now *ret)
{
	struct resources asked = {0};
	uint64_t old;
	int r;

	TRY(container_check_handle(c, &t->err));
	if (c->state != CONTAINER_CREATED && c->state != CONTAINER_RUNNING)
		return error_set(&t->err, ERR_PRECONDITION, "container %s has ended", c->id);
	c->node->front->container_limits->spec(t->arena, c, &c->limits.bytes, &asked);
	old = task_limit_ms(t, LOOK_MS);
	r = c->sandbox->kind->container_limits(t, c->handle, &asked, ret);
	task_restore_deadline(t, old);
	return r;
}

static void finish(struct task *t, const struct limited *l)
{
	if (change(t, l) < 0)
		log_error("%s %s: an interrupted change of its limits is taken back: %s", l->what,
			  l->id, t->err.text);
	else
		log_info("%s %s: an interrupted change of its limits is done", l->what, l->id);
}

void container_finish_update(struct task *t, struct container *c)
{
	struct limited l = of_container(c);

	if (c->state == CONTAINER_CREATED || c->state == CONTAINER_RUNNING)
		finish(t, &l);
}

void sandbox_finish_update(struct task *t, struct sandbox *sb)
{
	struct limited l = of_sandbox(sb);

	if (sb->state == SANDBOX_READY)
		finish(t, &l);
}
