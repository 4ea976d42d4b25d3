/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Sandboxes and containers as objects: references, lookup, the doors to their states. Peculiar: a
 * change of state becomes visible only after its commit, so that no list shows what a crash could
 * take back.
 */
#include "sandbox/priv.h"

#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#include "io/base/alloc.h"
#include "store/containers.h"
#include "store/sandboxes.h"

#define LOOK_MS 200

static void make_id(char *id)
{
	static const char digits[] = "0123456789abcdef";
	unsigned char bytes[(ID_SIZE - 1) / 2];

	if (getrandom(bytes, sizeof(bytes), 0) != sizeof(bytes))
		abort();
	for (size_t i = 0; i < sizeof(bytes); i++) {
		id[2 * i] = digits[bytes[i] >> 4];
		id[2 * i + 1] = digits[bytes[i] & 15];
	}
	id[ID_SIZE - 1] = 0;
}

bool id_is_valid(const char *id)
{
	return id && strlen(id) == ID_SIZE - 1 && strspn(id, "0123456789abcdef") == ID_SIZE - 1;
}

struct sandbox *sandbox_new(struct node *n, const char *id)
{
	struct sandbox *sb = xnew(struct sandbox);

	sb->node = n;
	if (id)
		memcpy(sb->id, id, ID_SIZE - 1);
	else
		make_id(sb->id);
	sb->dir = xasprintf("%s/sandboxes/%s", n->run_dir, sb->id);
	sb->created_at = realtime_ns();
	task_mutex_init(&sb->queue);
	task_event_init(&sb->settled);
	list_init(&sb->containers);
	sb->refs = 1;
	return sb;
}

struct sandbox *sandbox_ref(struct sandbox *sb)
{
	sb->refs++;
	return sb;
}

void sandbox_unref(struct sandbox *sb)
{
	if (!sb || --sb->refs)
		return;
	if (sb->handle)
		sb->kind->sandbox_forget(sb->handle);
	limits_done(&sb->limits);
	buf_done(&sb->config);
	buf_done(&sb->record);
	free(sb->handler);
	free(sb->options);
	free(sb->name);
	free(sb->dir);
	free(sb);
}

struct container *container_new(struct node *n, struct sandbox *sb, const char *id)
{
	struct container *c = xnew(struct container);

	c->node = n;
	c->sandbox = sandbox_ref(sb);
	list_init(&c->node_in_sandbox);
	if (id)
		memcpy(c->id, id, ID_SIZE - 1);
	else
		make_id(c->id);
	c->state_dir = xasprintf("%s/containers/%s", n->run_dir, c->id);
	c->root_dir = xasprintf("%s/containers/%s", n->root_dir, c->id);
	c->stdin_fd = -1;
	c->created_at = realtime_ns();
	task_mutex_init(&c->queue);
	task_event_init(&c->settled);
	task_event_init(&c->exited);
	c->refs = 1;
	return c;
}

struct container *container_ref(struct container *c)
{
	c->refs++;
	return c;
}

/* Nobody works on it any more. Dead containers may lie about by ten thousands, so their handles
 * go. */
static void rest(struct container *c)
{
	if (c->state != CONTAINER_EXITED || !c->handle || c->is_removed)
		return;
	buf_done(&c->record);
	c->sandbox->kind->container_record(c->handle, &c->record);
	c->sandbox->kind->container_forget(take_ptr(c->handle));
}

void container_unref(struct container *c)
{
	if (!c)
		return;
	if (--c->refs == 1)
		rest(c);
	if (c->refs)
		return;
	if (c->io)
		container_io_free(c->io);
	if (c->handle)
		c->sandbox->kind->container_forget(c->handle);
	limits_done(&c->limits);
	close_fd(c->stdin_fd);
	buf_done(&c->config);
	buf_done(&c->record);
	free(c->name);
	free(c->state_dir);
	free(c->root_dir);
	free(c->log_path);
	free(c->image_id);
	free(c->image_ref);
	free(c->reason);
	free(c->message);
	buf_done(&c->edits);
	sandbox_unref(c->sandbox);
	free(c);
}

void node_watch(struct node *n, struct node_watcher *w)
{
	list_append(&n->watchers, &w->node);
}

void node_unwatch(struct node_watcher *w)
{
	list_remove(&w->node);
}

void node_tell(enum node_event event, const struct sandbox *sb, const struct container *c)
{
	list_for_each(w, &sb->node->watchers, struct node_watcher, node)
		w->changed(w->data, event, sb, c);
}

void sandbox_enter(struct sandbox *sb)
{
	map_put(&sb->node->sandboxes, sb->id, sandbox_ref(sb));
	map_put(&sb->node->sandbox_names, sb->name, sb);
}

void sandbox_leave(struct sandbox *sb)
{
	if (sb->is_removed)
		return;
	sb->is_removed = true;
	map_remove(&sb->node->sandboxes, sb->id);
	if (map_get(&sb->node->sandbox_names, sb->name) == sb)
		map_remove(&sb->node->sandbox_names, sb->name);
	if (sb->is_told)
		node_tell(EVENT_DELETED, sb, NULL);
	sandbox_unref(sb);
}

void container_enter(struct container *c)
{
	map_put(&c->node->containers, c->id, container_ref(c));
	map_put(&c->node->container_names, c->name, c);
	list_append(&c->sandbox->containers, &c->node_in_sandbox);
}

void container_leave(struct container *c)
{
	if (c->is_removed)
		return;
	c->is_removed = true;
	map_remove(&c->node->containers, c->id);
	if (map_get(&c->node->container_names, c->name) == c)
		map_remove(&c->node->container_names, c->name);
	list_remove(&c->node_in_sandbox);
	if (c->is_told)
		node_tell(EVENT_DELETED, c->sandbox, c);
	container_unref(c);
}

/* The one object whose id begins with prefix; a whole id costs one probe of the map. */
static void *find(const struct map *m, const char *id)
{
	size_t n = strlen(id), matches = 0;
	void *found = map_get(m, id);

	if (found || n == 0 || n >= ID_SIZE - 1)
		return found;
	map_for_each(slot, m) {
		if (strncmp(slot->key, id, n))
			continue;
		found = slot->value;
		matches++;
	}
	return matches == 1 ? found : NULL;
}

struct sandbox *sandbox_find(struct node *n, const char *id)
{
	return find(&n->sandboxes, id);
}

struct container *container_find(struct node *n, const char *id)
{
	return find(&n->containers, id);
}

static int not_found(struct task *t, const char *what, const char *id)
{
	return error_set(&t->err, ERR_NOT_FOUND, "%s %.80s: there is none with this id", what, id);
}

/* Until recovery has seen to an object it owns its queue. */
static int lock_settled(struct task *t, struct task_event *settled, struct task_mutex *queue)
{
	int r = task_event_wait(t, settled);

	if (r < 0)
		task_blame(queue->owner, &t->err);
	return r < 0 ? r : task_mutex_lock(t, queue);
}

int container_lock(struct task *t, struct container *c)
{
	int r = lock_settled(t, &c->settled, &c->queue);

	return r < 0 ? error_wrap(&t->err, "wait for container %s", c->id) : 0;
}

int sandbox_acquire(struct task *t, struct node *n, const char *id, struct sandbox **ret)
{
	struct sandbox *sb = sandbox_find(n, id);
	int r;

	if (!sb)
		return not_found(t, "sandbox", id);
	sandbox_ref(sb);
	r = lock_settled(t, &sb->settled, &sb->queue);
	if (r < 0) {
		error_wrap(&t->err, "wait for sandbox %s", sb->id);
		sandbox_unref(sb);
		return r;
	}
	if (sb->is_removed) {
		/* before the release: id may be the object's own */
		r = not_found(t, "sandbox", id);
		sandbox_release(sb);
		return r;
	}
	*ret = sb;
	return 0;
}

int container_acquire(struct task *t, struct node *n, const char *id, struct container **ret)
{
	struct container *c = container_find(n, id);
	int r;

	if (!c)
		return not_found(t, "container", id);
	container_ref(c);
	r = container_lock(t, c);
	if (r < 0) {
		container_unref(c);
		return r;
	}
	if (c->is_removed) {
		/* before the release: id may be the object's own */
		r = not_found(t, "container", id);
		container_release(c);
		return r;
	}
	*ret = c;
	return 0;
}

int container_look(struct task *t, struct container *c)
{
	uint64_t old = task_limit_ms(t, LOOK_MS);
	int r = task_event_wait(t, &c->settled);

	task_restore_deadline(t, old);
	return r == -ERR_DEADLINE ? task_check(t) : r;
}

static struct container *find_unsettled(const struct sandbox *sb)
{
	list_for_each(c, &sb->containers, struct container, node_in_sandbox)
		if (!c->settled.is_set)
			return c;
	return NULL;
}

int sandbox_look(struct task *t, struct sandbox *sb)
{
	uint64_t old = task_limit_ms(t, LOOK_MS);
	int r = task_event_wait(t, &sb->settled);
	struct container *c;

	while (r == 0 && (c = find_unsettled(sb))) {
		container_ref(c);
		r = task_event_wait(t, &c->settled);
		container_unref(c);
	}
	task_restore_deadline(t, old);
	return r == -ERR_DEADLINE ? task_check(t) : r;
}

void sandbox_release(struct sandbox *sb)
{
	task_mutex_unlock(&sb->queue);
	sandbox_unref(sb);
}

void container_release(struct container *c)
{
	task_mutex_unlock(&c->queue);
	container_unref(c);
}

/* The row as it will be in that state. */
static void add_sandbox_row(struct store_batch *batch, struct sandbox *sb, enum sandbox_state state)
{
	struct sandbox_row row = {
		.id = sb->id,
		.state = (int)state,
		.kind = sb->kind->name,
		.handler = sb->handler,
		.options = sb->options,
		.name = sb->name,
		.config = sb->config.data,
		.config_size = sb->config.length,
		.created_at = sb->created_at,
		.resources = sb->limits.bytes.data,
		.resources_size = sb->limits.bytes.length,
		.next_resources = sb->limits.next.data,
		.next_resources_size = sb->limits.next.length,
	};
	struct buf record CLEANUP(buf_done) = {0};

	if (sb->handle)
		sb->kind->sandbox_record(sb->handle, &record);
	row.record = sb->handle ? record.data : sb->record.data;
	row.record_size = sb->handle ? record.length : sb->record.length;
	batch_sandbox_put(batch, &row);
}

static int write_sandbox(struct task *t, struct sandbox *sb, enum sandbox_state state)
{
	struct store_batch batch CLEANUP(store_batch_done) = {0};

	add_sandbox_row(&batch, sb, state);
	return store_commit(t, sb->node->store, &batch);
}

void sandbox_add_row(struct store_batch *batch, struct sandbox *sb)
{
	add_sandbox_row(batch, sb, sb->state);
}

/* The row as it will be in that state. */
static void add_row(struct store_batch *batch, struct container *c, enum container_state state)
{
	struct container_row row = {
		.id = c->id,
		.sandbox_id = c->sandbox->id,
		.state = (int)state,
		.config = c->config.data,
		.config_size = c->config.length,
		.resources = c->limits.bytes.data,
		.resources_size = c->limits.bytes.length,
		.next_resources = c->limits.next.data,
		.next_resources_size = c->limits.next.length,
		.edits = c->edits.data,
		.edits_size = c->edits.length,
		.image_id = c->image_id,
		.image_ref = c->image_ref,
		.log_path = c->log_path,
		.created_at = c->created_at,
		.started_at = c->started_at,
		.finished_at = c->finished_at,
		.exit_code = c->exit_code,
		.reason = c->reason,
		.message = c->message,
	};
	struct buf record CLEANUP(buf_done) = {0};

	if (c->handle)
		c->sandbox->kind->container_record(c->handle, &record);
	row.record = c->handle ? record.data : c->record.data;
	row.record_size = c->handle ? record.length : c->record.length;
	batch_container_put(batch, &row);
}

static int write_container(struct task *t, struct container *c, enum container_state state)
{
	struct store_batch batch CLEANUP(store_batch_done) = {0};

	add_row(&batch, c, state);
	return store_commit(t, c->node->store, &batch);
}

void container_add_row(struct store_batch *batch, struct container *c)
{
	add_row(batch, c, c->state);
}

void container_write_later(struct container *c)
{
	struct store_batch batch = {0};

	container_add_row(&batch, c);
	store_commit_later(c->node->store, &batch, NULL, NULL);
}

int sandbox_insert(struct task *t, struct sandbox *sb)
{
	TRY(store_check_room(sb->node->store, &t->err));
	return write_sandbox(t, sb, SANDBOX_CREATING);
}

int container_insert(struct task *t, struct container *c)
{
	TRY(store_check_room(c->node->store, &t->err));
	return write_container(t, c, CONTAINER_CREATING);
}

static const unsigned sandbox_next[] = {
	[SANDBOX_CREATING] = 1u << SANDBOX_READY | 1u << SANDBOX_REMOVING,
	[SANDBOX_READY] = 1u << SANDBOX_NOTREADY | 1u << SANDBOX_REMOVING,
	[SANDBOX_NOTREADY] = 1u << SANDBOX_REMOVING,
	[SANDBOX_REMOVING] = 0,
};

static const unsigned container_next[] = {
	[CONTAINER_CREATING] = 1u << CONTAINER_CREATED | 1u << CONTAINER_REMOVING,
	/* EXITED without having run: its start failed */
	[CONTAINER_CREATED] =
		1u << CONTAINER_RUNNING | 1u << CONTAINER_EXITED | 1u << CONTAINER_REMOVING,
	/* CREATED again: the server died before its program was executed */
	[CONTAINER_RUNNING] = 1u << CONTAINER_EXITED | 1u << CONTAINER_CREATED,
	[CONTAINER_EXITED] = 1u << CONTAINER_REMOVING,
	[CONTAINER_REMOVING] = 0,
};

static void tell_sandbox(struct sandbox *sb, enum sandbox_state old)
{
	if (sb->state == SANDBOX_READY) {
		sb->is_told = true;
		node_tell(EVENT_CREATED, sb, NULL);
		node_tell(EVENT_STARTED, sb, NULL);
	} else if (old == SANDBOX_READY) {
		node_tell(EVENT_STOPPED, sb, NULL);
	}
}

/* Its start is told by who knows that its program runs. */
static void tell_container(struct container *c, enum container_state old)
{
	if (c->state == CONTAINER_CREATED && old == CONTAINER_CREATING) {
		c->is_told = true;
		node_tell(EVENT_CREATED, c->sandbox, c);
	} else if (c->state == CONTAINER_EXITED) {
		node_tell(EVENT_STOPPED, c->sandbox, c);
	}
}

int sandbox_set_state(struct task *t, struct sandbox *sb, enum sandbox_state state)
{
	enum sandbox_state old = sb->state;

	if (state == old)
		return 0;
	if (!(sandbox_next[old] & 1u << state))
		return error_set(&t->err, ERR_INTERNAL, "sandbox %s: no way from state %d to %d",
				 sb->id, (int)old, (int)state);
	if (state == SANDBOX_READY)
		TRY(node_note_boot(t, sb->node));
	TRY(write_sandbox(t, sb, state));
	sb->state = state;
	tell_sandbox(sb, old);
	return 0;
}

int container_set_state(struct task *t, struct container *c, enum container_state state)
{
	enum container_state old = c->state;

	if (state == old)
		return 0;
	if (!(container_next[old] & 1u << state))
		return error_set(&t->err, ERR_INTERNAL, "container %s: no way from state %d to %d",
				 c->id, (int)old, (int)state);
	if (state == CONTAINER_RUNNING)
		TRY(node_note_boot(t, c->node));
	TRY(write_container(t, c, state));
	c->state = state;
	tell_container(c, old);
	return 0;
}
