/* SPDX-License-Identifier: Apache-2.0 */
/* What the files of this folder share: making, persisting and taking down objects. */
#pragma once

#include "io/base/clock.h"
#include "io/fifo.h"
#include "sandbox/node.h"
#include "store/db.h"

/* Of the store. */
#define META_POD_CIDR "pod_cidr"

struct sandbox_row;
struct container_row;

/* New objects with one reference, not in the maps; id may be NULL for a random one. */
struct sandbox *sandbox_new(struct node *n, const char *id);
struct container *container_new(struct node *n, struct sandbox *sb, const char *id);
/* Into and out of the maps, which own a reference. */
void sandbox_enter(struct sandbox *sb);
void sandbox_leave(struct sandbox *sb);
void container_enter(struct container *c);
void container_leave(struct container *c);

/* Has the watchers hear of it; c may be NULL. */
void node_tell(enum node_event event, const struct sandbox *sb, const struct container *c);

/* Its queue, once recovery has seen to it; an error of the wait says what it is at. The caller has
 * a reference. */
int container_lock(struct task *t, struct container *c);

/* The one door to a state: checks the transition, makes it durable, then sets it. */
int sandbox_set_state(struct task *t, struct sandbox *sb, enum sandbox_state state);
int container_set_state(struct task *t, struct container *c, enum container_state state);
/* The first row, in state CREATING: the intent. */
int sandbox_insert(struct task *t, struct sandbox *sb);
int container_insert(struct task *t, struct container *c);
/* The row as it is. */
void container_add_row(struct store_batch *batch, struct container *c);
void sandbox_add_row(struct store_batch *batch, struct sandbox *sb);
/* Gives up what updates left. */
void limits_done(struct limits *l);
/* Writes what the kind records of it, without waiting. */
void container_write_later(struct container *c);

/* The sandboxer of a RuntimeClass handler, or NULL. */
/* NULL when it is not configured (any more). */
const struct handler *node_handler(const struct node *n, const char *name);
const struct sandboxer *node_kind(const struct node *n, const char *handler);

/* 64 lower hex digits, as every id that we gave: nothing else may become a path. */
bool id_is_valid(const char *id);

/* load.c: says it in the log; from now on the container can only end and be removed. */
void container_set_damaged(struct container *c, const char *damage);

/*
 * The one way down, for failed calls, Remove and recovery alike: idempotent, whatever was made of
 * the object. The caller holds its queue; on success the object is out of the maps and the store.
 */
int sandbox_teardown(struct task *t, struct sandbox *sb);
int container_teardown(struct task *t, struct container *c);
/* One without a handle is one whose recovery failed: ERR_UNAVAILABLE. */
int sandbox_check_handle(const struct sandbox *sb, struct error *err);
int container_check_handle(const struct container *c, struct error *err);
/* That, and that its spec says all that a start or an exec must know: ERR_PRECONDITION. */
int container_check_whole(const struct container *c, struct error *err);
/* Ends it if it runs and waits for that. The caller must not hold the queue. */
int container_end(struct task *t, struct container *c, uint64_t grace_ms);

/* Keeps its image and those that it mounts, until image_release(); ERR_NOT_FOUND when one is
 * damaged or gone. */
int container_hold_images(struct container *c, struct error *err);
/* Specs by the front end, in an arena of the caller's. */
int container_make_spec(struct arena *arena, struct container *c, struct container_spec *ret,
			struct error *err);
/* profile.c: appends the text of the host's seccomp profile that its configuration names, if it
 * does. ERR_INVALID for one that can't be had. */
int container_read_profile(struct task *t, const struct container *c, struct buf *ret);
/* cdi_job.c: what the devices mean by the files that are there now (cdi.h); nothing for none. */
int cdi_find_edits(struct task *t, const struct node *n, const struct string_list *names,
		   struct buf *ret);
/* A start of the pump that goes on beside its caller. */
struct pump_start {
	struct container *container;
	int out_fd, err_fd;
	struct task_event done;
	int result;
	struct error err;
};

/*
 * stdio.c: a container's pipes and the pump to its log. open_pipes makes both ends and gives ours
 * to the keeper; the caller closes what is left in ends once the container is born. start_pump
 * takes our ends and goes on while the caller does something else; wait_pump (any number of times)
 * tells how it went, and must have returned before p goes. With a terminal, whose pump is
 * open_terminal's (it takes master), start_pump does nothing. reopen_io does all of it for one that
 * was started in an earlier life. drain_io returns when all output is logged; give_up_output lets
 * it drop what a log that fails doesn't take; drop_io ends everything.
 */
int container_open_pipes(struct task *t, struct container *c, struct fifo_ends *ends);
void container_start_pump(struct pump_start *p, struct container *c, struct fifo_ends *ends);
int container_wait_pump(struct task *t, struct pump_start *p);
int container_open_terminal(struct task *t, struct container *c, struct fifo_ends *ends,
			    int master);
int container_reopen_io(struct task *t, struct container *c);
int container_drain_io(struct task *t, struct container *c);
void container_give_up_output(struct container *c);
void container_drop_io(struct task *t, struct container *c);
/* Takes a created or running container of an earlier life back: handle, pump, exit. */
int container_adopt(struct task *t, struct container *c);
/* update.c: a server died while it changed the limits: they become the next ones, or stay. */
void container_finish_update(struct task *t, struct container *c);
void sandbox_finish_update(struct task *t, struct sandbox *sb);
/* exec.c: execs that a restart finds begun are ended; after a reboot nothing is left of them. */
void exec_register(struct node *n);
void exec_drop_intents(struct store_batch *batch);
/* reboot.c: before anything comes up, the boot is noted. 0 at once if it is. */
int node_note_boot(struct task *t, struct node *n);
/* In memory only; for rows that could not be changed. */
void container_end_by_reboot(struct container *c);
/* What the environment's functions of these names are. */
void node_container_oom(void *data, const char *container_id, uint64_t kills, const char *group);
void node_container_exited(void *data, const char *container_id);
void node_sandbox_exited(void *data, const char *sandbox_id);
