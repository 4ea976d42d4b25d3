/* SPDX-License-Identifier: Apache-2.0 */
/* Rows of pod sandboxes. Pointers in a row are borrowed; strings may be NULL unless said otherwise.
 */
#pragma once

#include "store/db.h"

struct sandbox_row {
	const char *id;	     /* never NULL */
	int state;	     /* the server's enum */
	const char *kind;    /* sandboxer; never NULL */
	const char *handler; /* RuntimeClass handler */
	const char *options; /* what it meant; NULL in rows of older versions */
	const void *config;  /* PodSandboxConfig exactly as received */
	size_t config_size;
	const void *record; /* the kind's own */
	size_t record_size;
	/* as those of a container */
	const void *resources, *next_resources;
	size_t resources_size, next_resources_size;
	int64_t created_at; /* realtime ns */
	const char *name, *namespace_, *uid;
	uint32_t attempt;
	const char *netns;  /* path, for display */
	const char *reason; /* why it is not ready */
};

/* Inserts or replaces. */
int store_sandbox_put(struct task *t, struct store *s, const struct sandbox_row *row);
/* With its containers and the streams and intents of all of them; fine when there is none. */
int store_sandbox_delete(struct task *t, struct store *s, const char *id);
/*
 * Calls fn for each row, oldest first; a negative result of fn ends it and is returned. Rows that
 * can't be read are skipped: the result is then their number and err says which.
 */
int store_sandbox_each(struct store *s, int (*fn)(void *data, const struct sandbox_row *row),
		       void *data, struct error *err);

void batch_sandbox_put(struct store_batch *batch, const struct sandbox_row *row);
/* As after a reboot: all sandboxes in state from go to state to. */
void batch_sandbox_move_all(struct store_batch *batch, int from, int to);
void batch_sandbox_delete(struct store_batch *batch, const char *id);
