/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reconciling: one task an object brings what was loaded (load.c) and the world in line, some of
 * them at a time, without waiting for those that are stuck. Peculiar: there is no other recovery
 * code than the handles' recover and the teardown that Remove uses.
 */
#include "sandbox/priv.h"

#include <stdlib.h>
#include <string.h>

#include "io/base/alloc.h"
#include "io/base/fault.h"
#include "io/base/log.h"
#include "recovery/reconcile.h"

/* Objects that are worked on at the same time: enough to keep the processors busy, few enough that
 * a call gets its turn within milliseconds. */
#define SIDE_BY_SIDE 16
#define STUCK_MS 1000

const struct handler *node_handler(const struct node *n, const char *name)
{
	for (size_t i = 0; i < n->handler_count; i++)
		if (!strcmp(n->handlers[i].name, name))
			return &n->handlers[i];
	return NULL;
}

const struct sandboxer *node_kind(const struct node *n, const char *handler)
{
	const struct handler *h = node_handler(n, handler);

	if (h)
		return h->kind;
	/* nothing is configured where nobody runs pods (crisp fsck) */
	return n->handler_count || *handler ? NULL : sandboxer_find("linux");
}

void node_set_env(struct node *n)
{
	n->env = (struct sandboxer_env){
		.loop = n->loop,
		.root_dir = n->root_dir,
		.state_dir = n->state_dir,
		.cgroup_driver = n->cgroup_driver,
		.systemd_address = n->systemd_address,
		.pins = n->pins,
		.fdstore = n->fdstore,
		.container_exited = node_container_exited,
		.sandbox_exited = node_sandbox_exited,
		.container_oom = node_container_oom,
		.data = n,
	};
}

int node_set_pod_cidr(struct task *t, struct node *n, const char *cidr)
{
	TRY(store_meta_put(t, n->store, META_POD_CIDR, cidr));
	free(n->pod_cidr);
	n->pod_cidr = xstrdup(cidr);
	return 0;
}

static int recover_container(struct task *t, struct container *c)
{
	switch (c->state) {
	case CONTAINER_CREATING:
	case CONTAINER_REMOVING:
		return container_teardown(t, c);
	case CONTAINER_CREATED:
	case CONTAINER_RUNNING:
		return container_adopt(t, c);
	case CONTAINER_EXITED:
		break;
	}
	return 0;
}

static void count_worked(struct node *n)
{
	n->recovery.busy--;
	task_cond_broadcast(&n->recovery.changed);
}

static void settle_container(struct task *t, struct container *c)
{
	/* nobody else has the queue before settled is set */
	if (task_mutex_lock(t, &c->queue) < 0 || recover_container(t, c) < 0)
		log_error("container %s could not be recovered: %s", c->id, t->err.text);
	FAULT(container_recovered);
	task_event_set(&c->settled);
	c->node->unsettled--;
	container_release(c);
}

static void recover_container_main(struct task *t, void *arg)
{
	struct container *c = arg;
	struct node *n = c->node;

	settle_container(t, c);
	count_worked(n);
}

static int recover_sandbox(struct task *t, struct sandbox *sb)
{
	struct arena *arena CLEANUP(cleanup_arena_fn) = arena_new(TASK_ARENA_CAP);
	struct sandbox_spec spec = {0};
	int r;

	task_stage(t, "finding its namespaces");
	r = sb->node->front->sandbox_spec(arena, sb, &spec, &t->err);
	list_for_each(c, &sb->containers, struct container, node_in_sandbox)
		spec.container_count +=
			c->state == CONTAINER_CREATED || c->state == CONTAINER_RUNNING;
	if (r == 0)
		r = sb->kind->sandbox_recover(t, &spec, sb->record.data, sb->record.length,
					      &sb->handle);
	TRY(r);
	buf_done(&sb->record);
	if (sb->state == SANDBOX_READY && !sb->kind->sandbox_is_up(sb->handle)) {
		log_warning("sandbox %s is not there any more", sb->id);
		return sandbox_set_state(t, sb, SANDBOX_NOTREADY);
	}
	if (sb->limits.next.length)
		sandbox_finish_update(t, sb);
	return 0;
}

/* Its containers go on side by side: one that is stuck holds up neither it nor the others. Those
 * that have ended, of which there may be many, have nothing to be stuck at. */
static void start_containers(struct task *t, struct sandbox *sb)
{
	struct node *n = sb->node;

	list_for_each(c, &sb->containers, struct container, node_in_sandbox) {
		if (c->state == CONTAINER_EXITED) {
			settle_container(t, container_ref(c));
			continue;
		}
		n->recovery.busy++;
		task_start(n->loop, "adopt a container", recover_container_main, container_ref(c));
	}
}

static void recover_sandbox_main(struct task *t, void *arg)
{
	struct sandbox *sb = arg;
	struct node *n = sb->node;

	if (task_mutex_lock(t, &sb->queue) < 0 || recover_sandbox(t, sb) < 0)
		log_error("sandbox %s could not be recovered: %s", sb->id, t->err.text);
	FAULT(sandbox_recovered);
	start_containers(t, sb);
	if (sb->state == SANDBOX_CREATING || sb->state == SANDBOX_REMOVING)
		if (sandbox_teardown(t, sb) < 0)
			log_error("sandbox %s could not be removed, try again: %s", sb->id,
				  t->err.text);
	task_event_set(&sb->settled);
	n->unsettled--;
	sandbox_release(sb);
	count_worked(n);
}

/* One line for each object that keeps recovery waiting. */
static void report_stuck(struct node *n)
{
	map_for_each(slot, &n->sandboxes) {
		struct sandbox *sb = slot->value;
		struct error err = {0};

		if (sb->settled.is_set || !sb->queue.owner)
			continue;
		error_set(&err, ERR_UNAVAILABLE, "its calls wait");
		task_blame(sb->queue.owner, &err);
		log_warning("sandbox %s is not recovered yet: %s", sb->id, err.text);
	}
	map_for_each(slot, &n->containers) {
		struct container *c = slot->value;
		struct error err = {0};

		if (c->settled.is_set || !c->queue.owner)
			continue;
		error_set(&err, ERR_UNAVAILABLE, "its calls wait");
		task_blame(c->queue.owner, &err);
		log_warning("container %s is not recovered yet: %s", c->id, err.text);
	}
}

/* Returns when fewer than limit are worked on, or none of them got on for STUCK_MS. */
static void wait_for_room(struct task *t, struct node *n, size_t limit)
{
	uint64_t old = task_limit_ms(t, STUCK_MS);

	while (n->recovery.busy >= limit && task_cond_wait(t, &n->recovery.changed) == 0) {
		task_restore_deadline(t, old);
		old = task_limit_ms(t, STUCK_MS);
	}
	task_restore_deadline(t, old);
}

static void log_swept(void *data, const char *thing)
{
	log_warning("%s is nobody's: removed", thing);
}

/* What belongs to nobody is known only when every object has been seen. */
static void sweep(struct task *t, struct node *n)
{
	reconcile_run(t, n->reconcile);
	n->reconcile = NULL;
	if (node_sweep(t, n, false, log_swept, NULL) < 0)
		log_error("what is nobody's stays: %s", t->err.text);
	if (image_sweep(t, n->images) < 0)
		log_error("layers of nobody stay: %s", t->err.text);
	FAULT(world_swept);
	log_info("state and world are in line");
}

static void recovery_main(struct task *t, void *arg)
{
	struct node *n = arg;
	struct sandbox **all = arena_new_array(t->arena, struct sandbox *, n->sandboxes.count);
	size_t count = 0, stuck = 0;

	map_for_each(slot, &n->sandboxes)
		all[count++] = sandbox_ref(slot->value);
	for (size_t i = 0; i < count; i++) {
		wait_for_room(t, n, SIDE_BY_SIDE + stuck);
		if (n->recovery.busy >= SIDE_BY_SIDE + stuck)
			stuck = n->recovery.busy;
		n->recovery.busy++;
		task_start(n->loop, "find a sandbox", recover_sandbox_main, all[i]);
	}
	wait_for_room(t, n, 1);
	if (n->recovery.busy)
		report_stuck(n);
	while (n->recovery.busy) {
		if (task_cond_wait(t, &n->recovery.changed) < 0) {
			log_error("what is nobody's stays: %s", t->err.text);
			return;
		}
	}
	sweep(t, n);
	n->unsettled--;
}

void node_reconcile(struct node *n)
{
	/* the sweep is one more */
	n->unsettled = n->sandboxes.count + n->containers.count + 1;
	task_cond_init(&n->recovery.changed);
	task_start(n->loop, "recovery", recovery_main, n);
}
