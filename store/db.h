/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The durable state: one SQLite file (WAL), ROOT/crisp.db. A store thread owns the writing
 * connection; what all tasks ask for while it works goes into its next transaction, a savepoint
 * each (group commit), and a write returns when its transaction committed: kill -9 after that loses
 * nothing. Writes marked durable (images) are also fsynced before they return; the others may be
 * lost by a power cut.
 *
 * Callers keep their state in memory and write rows; they read (the store_*_each functions) at
 * start, before the loop runs, on a connection that no write delays.
 *
 * Errors of writes: ERR_EXHAUSTED (disk full), ERR_UNAVAILABLE (I/O error, locked; the server goes
 * on), ERR_INTERNAL (a damaged file), or the wait's own. A write whose wait ended early may still
 * happen (rule 4). Errors of a write never touch others of the same transaction.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "io/task.h"

struct store;
struct store_op;

/*
 * Opens or makes the store; root_dir is made (0700) if missing. Before the loop runs. NULL with err
 * set: ERR_PRECONDITION when another process has it open or a newer crisp wrote it (the text names
 * both versions), ERR_INTERNAL when it is damaged.
 */
struct store *store_open(struct loop *l, const char *root_dir, struct error *err);
/* Writes what is queued, then closes. Tasks that wait are woken if the loop goes on. NULL is fine.
 */
void store_close(struct store *s);

/*
 * For repair while no server runs: like store_open(), but nothing is made, migrated or written, and
 * there is no thread: rows are read, and, if it is writable, changed by store_commit_blocking().
 * ERR_NOT_FOUND when there is no store; ERR_PRECONDITION also for a schema that is older than this
 * program's.
 */
struct store *store_open_offline(const char *root_dir, bool is_writable, struct error *err);
/*
 * Puts a new database in the place of a damaged one, with all rows that can be read. The old one
 * stays beside it as crisp.db.damaged. Of a writable offline store, to be closed afterwards.
 */
int store_rebuild(struct store *s, struct error *err);

/* For what makes new things: ERR_EXHAUSTED when the disk is so full that the rest is kept for
 * stopping and removing what is there. */
int store_check_room(const struct store *s, struct error *err);

struct store_counters {
	uint64_t transactions, writes, failed_writes, checkpoints;
	uint64_t coalesced_streams; /* store_stream_put() that replaced a queued one */
};

struct store_counters store_counters(const struct store *s);
/* Reads every page; slow. 0, or ERR_INTERNAL saying what is damaged, in one sentence. Any thread
 * but only one at a time, and not while a store_*_each runs. */
int store_check(struct store *s, struct error *err);

/*
 * Several rows in one transaction: all of them or none. Zero-initialised; the batch_*() calls of
 * the other headers add to it (copying what they are given); store_commit() empties it,
 * store_batch_done() drops what was not committed.
 *
 *     CLEANUP(store_batch_done) struct store_batch b = {0};
 *     batch_sandbox_put(&b, &row);
 *     batch_intent_end(&b, intent);
 *     r = store_commit(t, s, &b);
 */
struct store_batch {
	struct arena *arena;
	struct store_op *first, *last;
	bool has_streams;
	bool is_durable; /* set by rows that want fsync; callers may set it too */
};

/* Suspends until all of it is committed. */
int store_commit(struct task *t, struct store *s, struct store_batch *batch);
/* Without a task: done(data, result, err) is called on the loop after the commit, never within; err
 * is borrowed, NULL on success. done may be NULL. */
void store_commit_later(struct store *s, struct store_batch *batch,
			void (*done)(void *data, int result, const struct error *err), void *data);
/* On the calling thread: before the loop runs, or on an offline store. */
int store_commit_blocking(struct store *s, struct store_batch *batch, struct error *err);
void store_batch_done(struct store_batch *batch);

/* Small facts by name: the boot id, the version that wrote last. ret_value is the caller's, NULL
 * when there is none. At start, like the store_*_each functions. */
int store_meta_get(struct store *s, const char *key, char **ret_value, struct error *err);
int store_meta_put(struct task *t, struct store *s, const char *key, const char *value);
void batch_meta_put(struct store_batch *batch, const char *key, const char *value);
