/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A damaged database is copied row by row into a new one. Peculiar: the new one takes the old one's
 * name in one rename, after the old one's WAL was emptied, since SQLite would apply that to it.
 */
#include "store/priv.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "io/base/alloc.h"
#include "io/base/cleanup.h"

#define TABLE(name)                                                                                \
	{                                                                                          \
		{"SELECT rowid FROM old." name " ORDER BY rowid",                                  \
		 "SELECT rowid FROM old." name " ORDER BY rowid DESC"},                            \
			"INSERT OR IGNORE INTO main." name " SELECT * FROM old." name              \
			" WHERE rowid = ?",                                                        \
	}

/* A scan that meets a damaged page ends there, so a second one comes from the other end. */
static const struct {
	const char *keys[2], *copy;
} tables[] = {TABLE("sandboxes"), TABLE("containers"), TABLE("streams"),
	      TABLE("images"),	  TABLE("layers"),     TABLE("intents")};

static int run(struct connection *c, const char *sql, struct error *err)
{
	int rc = sqlite3_exec(c->db, sql, NULL, NULL, NULL);

	return rc == SQLITE_OK ? 0 : db_error(err, c, rc, "rebuild");
}

static int prepare(struct connection *c, const char *sql, sqlite3_stmt **ret, struct error *err)
{
	int rc = sqlite3_prepare_v2(c->db, sql, -1, ret, NULL);

	return rc == SQLITE_OK ? 0 : db_error(err, c, rc, "rebuild");
}

/* Every row has its own query; what fails is left out. */
static int copy_rows(struct connection *c, const char *keys_sql, const char *copy_sql,
		     struct error *err)
{
	sqlite3_stmt *keys = NULL, *copy = NULL;
	int r = prepare(c, keys_sql, &keys, err);

	if (r == 0)
		r = prepare(c, copy_sql, &copy, err);
	while (r == 0 && sqlite3_step(keys) == SQLITE_ROW) {
		sqlite3_bind_int64(copy, 1, sqlite3_column_int64(keys, 0));
		sqlite3_step(copy);
		sqlite3_reset(copy);
	}
	sqlite3_finalize(keys);
	sqlite3_finalize(copy);
	return r;
}

static int copy_all(struct connection *c, const char *old_path, struct error *err)
{
	char *attach = sqlite3_mprintf("ATTACH %Q AS old", old_path);
	int r = run(c, attach, err);

	sqlite3_free(attach);
	TRY(r);
	for (size_t i = 0; i < sizeof(tables) / sizeof(tables[0]); i++)
		for (int k = 0; k < 2; k++)
			TRY(copy_rows(c, tables[i].keys[k], tables[i].copy, err));
	/* the boot id: without it, it is as if there had been no reboot */
	sqlite3_exec(c->db, "INSERT OR IGNORE INTO main.meta SELECT * FROM old.meta", NULL, NULL,
		     NULL);
	return run(c, "DETACH old; PRAGMA journal_mode = DELETE", err);
}

static int take_place(struct store *s, const char *new_path, struct error *err)
{
	cleanup_free char *kept = xasprintf("%s.damaged", s->path);
	int rc = sqlite3_wal_checkpoint_v2(s->writer.db, NULL, SQLITE_CHECKPOINT_TRUNCATE, NULL,
					   NULL);

	if (rc != SQLITE_OK)
		return db_error(err, &s->writer, rc, "rebuild");
	unlink(kept);
	if (link(s->path, kept) < 0)
		return error_errno(err, errno, "keep %s as %s", s->path, kept);
	if (rename(new_path, s->path) < 0)
		return error_errno(err, errno, "rename %s", new_path);
	return 0;
}

int store_rebuild(struct store *s, struct error *err)
{
	cleanup_free char *new_path = xasprintf("%s.rebuilt", s->path);
	struct connection c = {0};
	int r;

	TRY(db_need_writer(s, err));
	unlink(new_path);
	r = db_open(&c, new_path, SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE, err);
	if (r == 0)
		r = db_prepare(&c, err);
	if (r == 0)
		r = copy_all(&c, s->path, err);
	db_close(&c);
	/* a reader would keep the WAL from being emptied */
	db_close(&s->reader);
	if (r == 0)
		r = take_place(s, new_path, err);
	if (r < 0)
		unlink(new_path);
	return r;
}
