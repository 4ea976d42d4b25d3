/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Loading and reconciling: what the rows say is made into objects before the socket answers; then
 * one task a sandbox brings them and the world in line. Peculiar: there is no other recovery code
 * than the handles' recover and the teardown that Remove uses.
 */
#include "sandbox/priv.h"

#include <string.h>

#include "io/base/alloc.h"
#include "io/base/log.h"
#include "recovery/fdstore.h"
#include "recovery/reconcile.h"
#include "store/containers.h"
#include "store/sandboxes.h"
#include "store/streams.h"

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

static void keep_record(struct node *n, const char *id, const void *record, size_t size)
{
	struct buf *b = xnew(struct buf);

	buf_append(b, record, size);
	map_put(&n->records, id, b);
}

static struct buf *take_record(struct node *n, const char *id)
{
	return map_remove(&n->records, id);
}

static void drop_record(struct buf *b)
{
	if (!b)
		return;
	buf_done(b);
	free(b);
}

/* A row that makes no sense is left alone and reported: the rest of the node is not its hostage. */
static int load_sandbox(void *data, const struct sandbox_row *row)
{
	struct node *n = data;
	const struct sandboxer *kind = sandboxer_find(row->kind);
	struct sandbox *sb;
	struct error err = {0};

	if (strlen(row->id) != ID_SIZE - 1 || !row->name || !kind) {
		log_error(
			"sandbox row %.64s: damaged or of a kind that this build lacks; left alone",
			row->id);
		return 0;
	}
	sb = sandbox_new(n, row->id);
	sb->kind = kind;
	sb->state = (enum sandbox_state)row->state;
	if (sb->state == SANDBOX_READY && n->is_rebooted)
		sb->state = SANDBOX_NOTREADY;
	sb->handler = xstrdup(row->handler ? row->handler : "");
	sb->name = xstrdup(row->name);
	sb->created_at = row->created_at;
	buf_append(&sb->config_bytes, row->config, row->config_size);
	sb->config = n->front->sandbox_decode(row->config, row->config_size, &err);
	if (!sb->config) {
		log_error("sandbox row %s: %s; left alone", row->id, err.text);
		sandbox_unref(sb);
		return 0;
	}
	keep_record(n, sb->id, row->record, row->record_size);
	sandbox_enter(sb);
	sandbox_unref(sb);
	return 0;
}

static int load_container(void *data, const struct container_row *row)
{
	struct node *n = data;
	struct sandbox *sb = map_get(&n->sandboxes, row->sandbox_id);
	struct container *c;
	char *name cleanup_free = NULL;
	struct error err = {0};

	if (strlen(row->id) != ID_SIZE - 1 || !sb || !row->image_id) {
		log_error("container row %.64s: damaged, or its sandbox is; left alone", row->id);
		return 0;
	}
	c = container_new(n, sb, row->id);
	c->state = (enum container_state)row->state;
	c->created_at = row->created_at;
	c->started_at = row->started_at;
	c->finished_at = row->finished_at;
	c->exit_code = row->exit_code;
	c->reason = xstrdup_null(row->reason);
	c->message = xstrdup_null(row->message);
	c->log_path = xstrdup_null(row->log_path);
	c->image_id = xstrdup(row->image_id);
	c->image_ref = xstrdup(row->image_ref ? row->image_ref : row->image_id);
	buf_append(&c->config_bytes, row->config, row->config_size);
	c->config = n->front->container_decode(row->config, row->config_size, &err);
	if (!c->config) {
		log_error("container row %s: %s; left alone", row->id, err.text);
		container_unref(c);
		return 0;
	}
	name = n->front->container_name(c->config);
	c->name = xasprintf("%s/%s", sb->id, name);
	if (c->state == CONTAINER_RUNNING && n->is_rebooted)
		container_end_by_reboot(c);
	if (c->state == CONTAINER_EXITED)
		task_event_set(&c->exited);
	keep_record(n, c->id, row->record, row->record_size);
	if (image_hold(n->images, c->image_id, c->id, &err) < 0)
		log_error("container %s: %s", c->id, err.text);
	container_enter(c);
	container_unref(c);
	return 0;
}

static int load_position(void *data, const struct stream_row *row)
{
	struct node *n = data;
	struct container *c = map_get(&n->containers, row->container_id);

	if (!c)
		return 0;
	c->position.log_inode = row->log_inode;
	c->position.log_offset = row->log_offset;
	memcpy(c->position.spool_offset, row->spool_offset, sizeof(row->spool_offset));
	memcpy(c->position.partial, row->partial, sizeof(row->partial));
	c->has_position = true;
	return 0;
}

/* Rows that could not be read at all: the store counted and named them. */
static int report_skipped(int result, const struct error *err)
{
	if (result > 0)
		log_error("%d damaged rows were left alone: %s", result, err->text);
	return result < 0 ? result : 0;
}

int node_load(struct node *n, struct error *err)
{
	TRY(report_skipped(store_sandbox_each(n->store, load_sandbox, n, err), err));
	TRY(report_skipped(store_container_each(n->store, load_container, n, err), err));
	TRY(report_skipped(store_stream_each(n->store, load_position, n, err), err));
	exec_register(n);
	n->reconcile = reconcile_load(n->store, err);
	return n->reconcile ? 0 : -(int)err->code;
}

static int recover_container(struct task *t, struct container *c)
{
	struct buf *record = take_record(c->node, c->id);
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
	drop_record(record);
	return r;
}

static void recover_containers(struct task *t, struct sandbox *sb)
{
	list_for_each_safe(c, &sb->containers, struct container, node_in_sandbox) {
		container_ref(c);
		/* nobody else has the queue before settled is set */
		if (task_mutex_lock(t, &c->queue) < 0 || recover_container(t, c) < 0)
			log_error("container %s could not be recovered: %s", c->id, t->err.text);
		task_event_set(&c->settled);
		container_release(c);
	}
}

static int recover_sandbox(struct task *t, struct sandbox *sb)
{
	struct arena *arena CLEANUP(cleanup_arena_fn) = arena_new(TASK_ARENA_CAP);
	struct sandbox_spec spec = {0};
	struct buf *record = take_record(sb->node, sb->id);
	int r;

	r = sb->node->front->sandbox_spec(arena, sb, &spec, &t->err);
	if (r == 0)
		r = sb->kind->sandbox_recover(t, &spec, record->data, record->length, &sb->handle);
	drop_record(record);
	TRY(r);
	if (sb->state == SANDBOX_READY && !sb->kind->sandbox_is_up(sb->handle)) {
		log_warning("sandbox %s is not there any more", sb->id);
		return sandbox_set_state(t, sb, SANDBOX_NOTREADY);
	}
	return 0;
}

/* What belongs to nobody is known only when every object has been seen. */
static void sweep_main(struct task *t, void *arg)
{
	struct node *n = arg;

	reconcile_run(t, n->reconcile);
	n->reconcile = NULL;
	if (fdstore_sweep(t, n->fdstore) < 0)
		log_error("descriptors of nobody stay in the keeper: %s", t->err.text);
	if (image_sweep(t, n->images) < 0)
		log_error("layers of nobody stay: %s", t->err.text);
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
