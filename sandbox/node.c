/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reconciling: one task a sandbox brings what was loaded (load.c) and the world in line. Peculiar:
 * there is no other recovery code than the handles' recover and the teardown that Remove uses.
 */
#include "sandbox/priv.h"

#include "io/base/fault.h"
#include "io/base/log.h"
#include "recovery/reconcile.h"

const struct sandboxer *node_kind(const struct node *n, const char *handler)
{
	return sandboxer_find(*handler ? handler : "linux");
}

void node_set_env(struct node *n)
{
	n->env = (struct sandboxer_env){
		.loop = n->loop,
		.root_dir = n->root_dir,
		.state_dir = n->state_dir,
		.pins = n->pins,
		.fdstore = n->fdstore,
		.container_exited = node_container_exited,
		.sandbox_exited = node_sandbox_exited,
		.data = n,
	};
}

static int recover_container(struct task *t, struct container *c)
{
	struct buf *record = record_take(c->node, c->id);
	int r = 0;

	switch (c->state) {
	case CONTAINER_CREATING:
	case CONTAINER_REMOVING:
		r = container_teardown(t, c);
		break;
	case CONTAINER_CREATED:
	case CONTAINER_RUNNING:
	case CONTAINER_EXITED:
		r = container_adopt(t, c, record);
		break;
	}
	record_drop(record);
	return r;
}

static void recover_containers(struct task *t, struct sandbox *sb)
{
	list_for_each_safe(c, &sb->containers, struct container, node_in_sandbox) {
		container_ref(c);
		/* nobody else has the queue before settled is set */
		if (task_mutex_lock(t, &c->queue) < 0 || recover_container(t, c) < 0)
			log_error("container %s could not be recovered: %s", c->id, t->err.text);
		FAULT(container_recovered);
		task_event_set(&c->settled);
		container_release(c);
	}
}

static int recover_sandbox(struct task *t, struct sandbox *sb)
{
	struct arena *arena CLEANUP(cleanup_arena_fn) = arena_new(TASK_ARENA_CAP);
	struct sandbox_spec spec = {0};
	struct buf *record = record_take(sb->node, sb->id);
	int r;

	r = sb->node->front->sandbox_spec(arena, sb, &spec, &t->err);
	if (r == 0)
		r = sb->kind->sandbox_recover(t, &spec, record->data, record->length, &sb->handle);
	record_drop(record);
	TRY(r);
	if (sb->state == SANDBOX_READY && !sb->kind->sandbox_is_up(sb->handle)) {
		log_warning("sandbox %s is not there any more", sb->id);
		return sandbox_set_state(t, sb, SANDBOX_NOTREADY);
	}
	return 0;
}

static void log_swept(void *data, const char *thing)
{
	log_warning("%s is nobody's: removed", thing);
}

/* What belongs to nobody is known only when every object has been seen. */
static void sweep_main(struct task *t, void *arg)
{
	struct node *n = arg;

	reconcile_run(t, n->reconcile);
	n->reconcile = NULL;
	if (node_sweep(t, n, false, log_swept, NULL) < 0)
		log_error("what is nobody's stays: %s", t->err.text);
	if (image_sweep(t, n->images) < 0)
		log_error("layers of nobody stay: %s", t->err.text);
	FAULT(world_swept);
	log_info("state and world are in line");
}

static void reconcile_main(struct task *t, void *arg)
{
	struct sandbox *sb = arg;
	struct node *n = sb->node;

	if (task_mutex_lock(t, &sb->queue) < 0)
		log_error("sandbox %s: %s", sb->id, t->err.text);
	if (recover_sandbox(t, sb) < 0)
		log_error("sandbox %s could not be recovered: %s", sb->id, t->err.text);
	FAULT(sandbox_recovered);
	recover_containers(t, sb);
	if (sb->state == SANDBOX_CREATING || sb->state == SANDBOX_REMOVING)
		if (sandbox_teardown(t, sb) < 0)
			log_error("sandbox %s could not be removed, try again: %s", sb->id,
				  t->err.text);
	task_event_set(&sb->settled);
	sandbox_release(sb);
	if (--n->unsettled == 0)
		task_start(n->loop, "sweep", sweep_main, n);
}

void node_reconcile(struct node *n)
{
	n->unsettled = n->sandboxes.count;
	if (!n->unsettled)
		task_start(n->loop, "sweep", sweep_main, n);
	map_for_each(slot, &n->sandboxes) {
		task_start(n->loop, "reconcile", reconcile_main, sandbox_ref(slot->value));
	}
}
