/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Rows into objects, without touching the world. Peculiar: a damaged row costs only what it is
 * about. As long as its id is known it becomes an object that can be stopped and removed, by a
 * configuration that says nothing; else it is left alone, for crisp fsck. Both are logged.
 */
#include "sandbox/priv.h"

#include <string.h>

#include "io/base/alloc.h"
#include "io/base/log.h"
#include "recovery/reconcile.h"
#include "store/containers.h"
#include "store/sandboxes.h"
#include "store/streams.h"

#define REASON_DAMAGED "Damaged"

#define HINT_REMOVE "remove it"
#define HINT_FSCK "crisp fsck --fix removes it"

static void report(const struct node *n, enum row_kind kind, const char *id, const char *why,
		   const char *hint)
{
	static const char *const names[] = {"sandbox", "container", "position of container"};
	const char *what = id ? id : "(none)";

	if (n->row_report)
		n->row_report->damaged(n->row_report->data, kind, what, why);
	else
		log_error("%s %.64s is damaged: %s; %s", names[kind], what, why, hint);
}

static enum sandbox_state sandbox_state_of(const struct node *n, int state)
{
	if (state == SANDBOX_READY && n->is_rebooted)
		return SANDBOX_NOTREADY;
	return state >= SANDBOX_CREATING && state <= SANDBOX_REMOVING ? (enum sandbox_state)state
								      : SANDBOX_NOTREADY;
}

/* An object keeps no bytes that can't be decoded. */
static const char *fill_limits(struct arena *arena, struct limits *l,
			       const struct limits_front *front, const struct limits *row)
{
	if (front->check(arena, &row->bytes, NULL) < 0 || front->check(arena, &row->next, NULL) < 0)
		return "its limits can't be read";
	buf_set(&l->bytes, row->bytes.data, row->bytes.length);
	buf_set(&l->next, row->next.data, row->next.length);
	return NULL;
}

/* Bytes of a row, only to be read. */
static struct buf lent(const void *bytes, size_t size)
{
	return (struct buf){.data = (char *)bytes, .length = size};
}

/* What is wrong with a row, or NULL. */
static const char *fill_sandbox(struct arena *arena, struct sandbox *sb,
				const struct sandbox_row *row)
{
	const struct front_end *front = sb->node->front;
	const struct limits limits = {lent(row->resources, row->resources_size),
				      lent(row->next_resources, row->next_resources_size)};
	const char *damage;

	buf_set(&sb->config, row->config, row->config_size);
	damage = fill_limits(arena, &sb->limits, front->sandbox_limits, &limits);
	if (!front->sandbox_decode(arena, &sb->config, NULL)) {
		buf_done(&sb->config);
		front->sandbox_blank(sb->id, &sb->config);
		if (sb->state == SANDBOX_READY)
			sb->state = SANDBOX_NOTREADY;
		return "its configuration can't be read";
	}
	if (damage)
		return damage;
	if (row->state < SANDBOX_CREATING || row->state > SANDBOX_REMOVING)
		return "its state is none";
	return row->name ? NULL : "it has no name";
}

static struct sandbox *new_sandbox(struct node *n, const char *id, const char *name)
{
	struct sandbox *sb = sandbox_new(n, id);

	sb->kind = node_kind(n, "");
	sb->state = SANDBOX_NOTREADY;
	sb->is_told = true;
	sb->name = xstrdup(name ? name : sb->id);
	return sb;
}

/* What its handler meant when the pod was made. Older servers did not note it. */
static void load_options(struct sandbox *sb, const char *options)
{
	struct node *n = sb->node;
	const struct handler *handler = node_handler(n, sb->handler);

	if (options)
		sb->options = xstrdup(options);
	else if (handler)
		sb->options = handler_text(handler);
	if (handler || !n->handler_count || map_get(&n->lost_handlers, sb->handler))
		return;
	map_put(&n->lost_handlers, sb->handler, n);
	log_warning("runtime handler \"%.80s\" is no longer configured: sandbox %s and others that "
		    "were made by it %s; configure it again, or remove them",
		    sb->handler, sb->id,
		    options ? "keep the options that it had" : "have none of its options");
}

static int load_sandbox(void *data, const struct sandbox_row *row)
{
	struct node *n = data;
	const struct sandboxer *kind = row->kind ? sandboxer_find(row->kind) : NULL;
	struct arena *arena CLEANUP(cleanup_arena_fn) = NULL;
	const char *damage;
	struct sandbox *sb;

	if (!id_is_valid(row->id)) {
		report(n, ROW_SANDBOX, row->id, "that is no id", HINT_FSCK);
		return 0;
	}
	if (!kind) {
		log_error("sandbox %s is left alone: this build has no sandboxer %.32s", row->id,
			  row->kind ? row->kind : "(none)");
		map_put(&n->strangers, row->id, n);
		return 0;
	}
	sb = new_sandbox(n, row->id, row->name);
	sb->kind = kind;
	sb->state = sandbox_state_of(n, row->state);
	sb->handler = xstrdup(row->handler ? row->handler : "");
	load_options(sb, row->options);
	sb->created_at = row->created_at;
	arena = arena_new(TASK_ARENA_CAP);
	damage = fill_sandbox(arena, sb, row);
	if (damage)
		report(n, ROW_SANDBOX, sb->id, damage, HINT_REMOVE);
	sb->is_told = sb->state != SANDBOX_CREATING;
	buf_set(&sb->record, row->record, row->record_size);
	sandbox_enter(sb);
	sandbox_unref(sb);
	return 0;
}

/* Something must have what is left of a pod, to be removed by. */
static struct sandbox *load_orphan(struct node *n, const struct container_row *row)
{
	const char *id = id_is_valid(row->sandbox_id) ? row->sandbox_id : NULL;
	struct sandbox *sb = new_sandbox(n, id, NULL);
	char *why cleanup_free = NULL;

	why = xasprintf("its sandbox %.64s is lost, sandbox %s stands for it",
			row->sandbox_id ? row->sandbox_id : "(none)", sb->id);
	report(n, ROW_CONTAINER, row->id, why, HINT_REMOVE);
	sb->handler = xstrdup("");
	n->front->sandbox_blank(sb->id, &sb->config);
	sandbox_enter(sb);
	sandbox_unref(sb);
	return sb;
}

void container_set_damaged(struct container *c, const char *damage)
{
	report(c->node, ROW_CONTAINER, c->id, damage, HINT_REMOVE);
	c->is_damaged = true;
	if (c->state != CONTAINER_CREATED && c->state != CONTAINER_EXITED)
		return;
	c->state = CONTAINER_EXITED;
	free(c->reason);
	free(c->message);
	c->reason = xstrdup(REASON_DAMAGED);
	c->message = xasprintf("%s; remove it", damage);
	task_event_set(&c->exited);
}

/* *ret_config: decoded. */
static const char *fill_config(struct arena *arena, struct container *c,
			       const struct container_row *row, void **ret_config)
{
	const struct front_end *front = c->node->front;
	const struct limits limits = {lent(row->resources, row->resources_size),
				      lent(row->next_resources, row->next_resources_size)};
	const char *damage;

	buf_set(&c->config, row->config, row->config_size);
	damage = fill_limits(arena, &c->limits, front->container_limits, &limits);
	*ret_config = front->container_decode(arena, &c->config, NULL);
	if (*ret_config)
		return damage;
	buf_done(&c->config);
	front->container_blank(c->id, &c->config);
	*ret_config = front->container_decode(arena, &c->config, NULL);
	return "its configuration can't be read";
}

/* What is wrong with a row, or NULL. */
static const char *fill_container(struct arena *arena, struct container *c,
				  const struct container_row *row)
{
	char *name cleanup_free = NULL;
	const char *damage;
	void *config;

	c->state = row->state >= CONTAINER_CREATING && row->state <= CONTAINER_REMOVING
			   ? (enum container_state)row->state
			   : CONTAINER_EXITED;
	c->created_at = row->created_at;
	c->started_at = row->started_at;
	c->finished_at = row->finished_at;
	c->exit_code = row->exit_code;
	c->reason = xstrdup_null(row->reason);
	c->message = xstrdup_null(row->message);
	buf_set(&c->edits, row->edits, row->edits_size);
	if (row->log_path && row->log_path[0] == '/')
		c->log_path = xstrdup(row->log_path);
	c->image_id = xstrdup(row->image_id ? row->image_id : "");
	c->image_ref = xstrdup(row->image_ref ? row->image_ref : c->image_id);
	damage = fill_config(arena, c, row, &config);
	name = c->node->front->container_name(config);
	c->name = xasprintf("%s/%s", c->sandbox->id, name);
	if (damage)
		return damage;
	if (row->state < CONTAINER_CREATING || row->state > CONTAINER_REMOVING)
		return "its state is none";
	return row->image_id ? NULL : "it has no image";
}

static int load_container(void *data, const struct container_row *row)
{
	struct node *n = data;
	struct sandbox *sb = row->sandbox_id ? map_get(&n->sandboxes, row->sandbox_id) : NULL;
	struct arena *arena CLEANUP(cleanup_arena_fn) = NULL;
	struct error err = {0};
	const char *damage;
	struct container *c;

	if (!id_is_valid(row->id)) {
		report(n, ROW_CONTAINER, row->id, "that is no id", HINT_FSCK);
		return 0;
	}
	if (!sb && row->sandbox_id && map_get(&n->strangers, row->sandbox_id)) {
		map_put(&n->strangers, row->id, n);
		return 0;
	}
	c = container_new(n, sb ? sb : load_orphan(n, row), row->id);
	arena = arena_new(TASK_ARENA_CAP);
	damage = fill_container(arena, c, row);
	if (damage)
		container_set_damaged(c, damage);
	if (c->state == CONTAINER_RUNNING && n->is_rebooted)
		container_end_by_reboot(c);
	c->is_told = c->state != CONTAINER_CREATING;
	if (c->state == CONTAINER_EXITED)
		task_event_set(&c->exited);
	buf_set(&c->record, row->record, row->record_size);
	if (n->images && container_hold_images(c, &err) < 0)
		log_error("container %s: %s; until then it can only end", c->id, err.text);
	container_enter(c);
	container_unref(c);
	return 0;
}

/* A position of a container that is lost. */
static void drop_position(struct node *n, const char *container_id)
{
	struct store_batch batch = {0};

	if (n->is_incomplete || (container_id && map_get(&n->strangers, container_id)))
		return;
	report(n, ROW_STREAM, container_id, "there is no such container", "it is removed");
	if (n->row_report)
		return;
	batch_stream_delete(&batch, container_id ? container_id : "");
	store_commit_later(n->store, &batch, NULL, NULL);
}

static int load_position(void *data, const struct stream_row *row)
{
	struct node *n = data;
	struct container *c = row->container_id ? map_get(&n->containers, row->container_id) : NULL;

	if (!c) {
		drop_position(n, row->container_id);
		return 0;
	}
	c->position.log_inode = row->log_inode;
	c->position.log_offset = row->log_offset;
	memcpy(c->position.spool_offset, row->spool_offset, sizeof(row->spool_offset));
	memcpy(c->position.partial, row->partial, sizeof(row->partial));
	memcpy(c->position.dropped, row->dropped, sizeof(row->dropped));
	memcpy(c->position.unreported, row->unreported, sizeof(row->unreported));
	c->has_position = true;
	return 0;
}

/* Rows that could not be read at all: nobody knows what is theirs. */
static int report_skipped(struct node *n, int result, const struct error *err)
{
	if (result <= 0)
		return result;
	log_error("nothing is swept until this is repaired by crisp fsck --fix: %s", err->text);
	n->is_incomplete = true;
	return 0;
}

int node_load(struct node *n, struct error *err)
{
	struct store *s = n->store;

	list_init(&n->watchers);
	TRY(report_skipped(n, store_sandbox_each(s, load_sandbox, n, err), err));
	TRY(report_skipped(n, store_container_each(s, load_container, n, err), err));
	TRY(report_skipped(n, store_stream_each(s, load_position, n, err), err));
	if (n->row_report)
		return 0;
	if (store_meta_get(s, META_POD_CIDR, &n->pod_cidr, err) < 0)
		log_error("the addresses for pods are lost until the kubelet tells them again: %s",
			  err->text);
	exec_register(n);
	n->reconcile = reconcile_load(n->store, err);
	return n->reconcile ? 0 : -(int)err->code;
}
