/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Intents of an earlier life, one after the other. Peculiar: the list is read before the loop runs,
 * so what begins meanwhile is never taken for a leftover.
 */
#include "recovery/reconcile.h"

#include <stdlib.h>
#include <string.h>

#include "io/base/alloc.h"
#include "io/base/list.h"
#include "io/base/log.h"

struct intent {
	struct list node;
	struct intent_row row; /* its strings and data are ours */
};

struct reconcile {
	struct store *store;
	struct list intents; /* in the order of their ids */
};

static int load_intent(void *data, const struct intent_row *row)
{
	struct reconcile *r = data;
	struct intent *i = xnew(struct intent);
	void *copy = xmalloc(row->data_size + 1);

	if (row->data_size)
		memcpy(copy, row->data, row->data_size);
	i->row = (struct intent_row){.id = row->id,
				     .kind = xstrdup(row->kind),
				     .object_id = xstrdup(row->object_id),
				     .data = copy,
				     .data_size = row->data_size};
	list_append(&r->intents, &i->node);
	return 0;
}

static void free_intent(struct intent *i)
{
	list_remove(&i->node);
	free((char *)i->row.kind);
	free((char *)i->row.object_id);
	free((void *)i->row.data);
	free(i);
}

static void free_reconcile(struct reconcile *r)
{
	list_for_each_safe(i, &r->intents, struct intent, node)
		free_intent(i);
	free(r);
}

struct reconcile *reconcile_load(struct store *s, struct error *err)
{
	struct reconcile *r = xnew(struct reconcile);
	struct error own = {0};
	int skipped;

	r->store = s;
	list_init(&r->intents);
	skipped = store_intent_each(s, load_intent, r, &own);
	if (skipped > 0)
		log_error("recovery: %d damaged intents were left alone: %s", skipped, own.text);
	if (skipped >= 0)
		return r;
	error_copy(err, &own);
	free_reconcile(r);
	return NULL;
}

/* What of the two was done is told in *ret_what. */
static int complete(struct task *t, struct reconcile *r, const struct intent_row *row,
		    const char **ret_what)
{
	const struct recover_ops *ops = recover_find(row->kind);
	int result;

	*ret_what = "nothing";
	if (!ops)
		return error_set(&t->err, ERR_UNIMPLEMENTED,
				 "no part of this build knows the kind; a newer crisp wrote it");
	result = -ERR_UNIMPLEMENTED;
	if (ops->finish) {
		*ret_what = "finish";
		result = ops->finish(t, ops->owner, row);
	}
	if (result < 0 && ops->undo) {
		*ret_what = "undo";
		result = ops->undo(t, ops->owner, row);
	}
	return result < 0 ? result : store_intent_end(t, r->store, row->id);
}

static bool try_intent(struct task *t, struct reconcile *r, const struct intent_row *row)
{
	const char *what;
	int result;

	/* a shield gives each its own time: TASK_SHIELD_NS */
	task_shield(t, 1);
	result = complete(t, r, row, &what);
	task_shield(t, -1);
	if (result < 0)
		log_error("recovery: %s %s of %s: %s; it stays for the next start", what, row->kind,
			  row->object_id, t->err.text);
	else
		log_info("recovery: %s %s of %s: done", what, row->kind, row->object_id);
	return result == 0;
}

size_t reconcile_run(struct task *t, struct reconcile *r)
{
	size_t left = 0;

	list_for_each(i, &r->intents, struct intent, node)
		left += !try_intent(t, r, &i->row);
	free_reconcile(r);
	return left;
}
