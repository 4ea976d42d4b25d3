/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Intents: what an operation of several steps is about to do, committed before its first effect and
 * ended together with its result. What is left at the next start is finished or undone by whoever
 * registered the kind; the engine (recovery/) knows that something must be done, never how.
 */
#pragma once

#include "store/db.h"

struct intent_row {
	int64_t id;
	const char *kind, *object_id; /* never NULL */
	const void *data;
	size_t data_size;
};

/* Suspends until it is committed. If the wait ended early, the intent may exist: end it by object.
 */
int store_intent_begin(struct task *t, struct store *s, const char *kind, const char *object_id,
		       const void *data, size_t size, int64_t *ret_id);
int store_intent_end(struct task *t, struct store *s, int64_t id);
/* Ends all intents of that kind on that object. */
int store_intent_end_object(struct task *t, struct store *s, const char *kind,
			    const char *object_id);
/* As store_sandbox_each(). */
int store_intent_each(struct store *s, int (*fn)(void *data, const struct intent_row *row),
		      void *data, struct error *err);

/* Returns the id that the intent will have. */
int64_t batch_intent_begin(struct store_batch *batch, struct store *s, const char *kind,
			   const char *object_id, const void *data, size_t size);
void batch_intent_end(struct store_batch *batch, int64_t id);
/* Ends all intents of that kind. */
void batch_intent_end_kind(struct store_batch *batch, const char *kind);
void batch_intent_end_object(struct store_batch *batch, const char *kind, const char *object_id);

/*
 * How to complete or take back what an intent announced; both are idempotent. The owner of the kind
 * sets one of them, or both when recovery may choose (finish is tried first).
 */
struct recover_ops {
	const char *kind;
	void *owner; /* for finish and undo */
	int (*finish)(struct task *t, void *owner, const struct intent_row *intent);
	int (*undo)(struct task *t, void *owner, const struct intent_row *intent);
	struct recover_ops *next; /* intents.c */
};

/* ops stays the caller's and must live on (static). A kind is registered once. */
void recover_register(struct recover_ops *ops);
/* NULL when nobody registered the kind. */
const struct recover_ops *recover_find(const char *kind);
