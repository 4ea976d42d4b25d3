/* SPDX-License-Identifier: Apache-2.0 */
/* Rows of containers. Pointers in a row are borrowed; strings may be NULL unless said otherwise. */
#pragma once

#include <sys/types.h>

#include "store/db.h"

struct container_row {
	const char *id, *sandbox_id; /* never NULL */
	int state;		     /* the server's enum */
	const void *config;	     /* ContainerConfig exactly as received */
	size_t config_size;
	const void *record; /* the kind's own */
	size_t record_size;
	/* as an update left them, and as one under way shall leave them; NULL: as in config */
	const void *resources, *next_resources;
	size_t resources_size, next_resources_size;
	const void *edits; /* what its CDI devices mean; NULL: it has none */
	size_t edits_size;
	const char *image_id;			     /* "sha256:…" of the image's config */
	const char *image_ref;			     /* what ContainerStatus.image_ref says */
	const char *user_image;			     /* as the user wrote it */
	int64_t created_at, started_at, finished_at; /* realtime ns, 0: not yet */
	int exit_code;
	bool exit_known; /* false: it ended and nobody can tell how */
	const char *reason, *message;
	const char *log_path; /* absolute */
	pid_t pid;	      /* 0: never started */
	uint32_t uid, gid;
};

/* As those of sandboxes.h. Deleting takes the container's streams and intents along. */
int store_container_put(struct task *t, struct store *s, const struct container_row *row);
int store_container_delete(struct task *t, struct store *s, const char *id);
int store_container_each(struct store *s, int (*fn)(void *data, const struct container_row *row),
			 void *data, struct error *err);

void batch_container_put(struct store_batch *batch, const struct container_row *row);
/* As after a reboot: all containers in state from get the state, the exit and the reason of end,
 * with its finished_at or when they started, whichever is later. */
void batch_container_end_all(struct store_batch *batch, int from, const struct container_row *end);
void batch_container_delete(struct store_batch *batch, const char *id);
