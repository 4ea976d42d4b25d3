/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The database file: lock, open, version, errors, reading. Peculiar: the lock is a POSIX record
 * lock on a file of its own, since that neither outlives the process nor is inherited by its
 * children, and SQLite's own locks would let two servers share the file.
 */
#include "store/db.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <time.h>
#include <unistd.h>

#include "io/base/alloc.h"
#include "io/base/cleanup.h"
#include "store/priv.h"
#include "store/schema.inc"

/* How long the lock of the root directory is tried for: 2 s. */
#define LOCK_TRIES 1000
#define LOCK_PAUSE_US 2000

#define APPLICATION_ID 0x43525350 /* "CRSP" */
#define BUSY_MS 2000
#define CACHE_KIB 1024
/* A WAL that grew beyond it (a long checkpoint, a large batch) is cut when it restarts. */
#define WAL_KEEP (16 * 1024 * 1024)
/* Less free space than this is kept for changing what is there. */
#define ROOM (1024 * 1024)

/* steps[v] makes version v + 1 of v */
static const char *const steps[] = {schema_1, schema_2, schema_3, schema_4, schema_5, schema_6};
#define SCHEMA_VERSION ((int)(sizeof(steps) / sizeof(steps[0])))

int db_error(struct error *err, const struct connection *c, int rc, const char *what)
{
	const char *why = c->db ? sqlite3_errmsg(c->db) : sqlite3_errstr(rc);
	int sys = c->db ? sqlite3_system_errno(c->db) : 0, r;

	switch (rc & 0xff) {
	case SQLITE_IOERR:
	case SQLITE_CANTOPEN:
		if (sys == ENOSPC || sys == EDQUOT)
			goto full;
		r = error_set(err, ERR_UNAVAILABLE, "%s %s: %s%s%s; check the disk", what, c->path,
			      why, sys ? ": " : "", sys ? strerrordesc_np(sys) : "");
		break;
	case SQLITE_FULL:
	full:
		r = error_set(err, ERR_EXHAUSTED, "%s %s: %s; free space on its file system", what,
			      c->path, why);
		break;
	case SQLITE_NOMEM:
		r = error_set(err, ERR_EXHAUSTED, "%s %s: %s", what, c->path, why);
		break;
	case SQLITE_BUSY:
	case SQLITE_LOCKED:
	case SQLITE_READONLY:
	case SQLITE_PROTOCOL:
		r = error_set(err, ERR_UNAVAILABLE, "%s %s: %s; see that no other program uses it",
			      what, c->path, why);
		break;
	case SQLITE_CORRUPT:
		r = error_set(err, ERR_INTERNAL,
			      "%s %s: it is damaged (%s); crisp fsck --fix saves what can be read",
			      what, c->path, why);
		break;
	case SQLITE_NOTADB:
		r = error_set(err, ERR_INTERNAL,
			      "%s %s: it is damaged (%s); restore it, or move it away to begin "
			      "anew",
			      what, c->path, why);
		break;
	default:
		r = error_set(err, ERR_INTERNAL, "%s %s: %s", what, c->path, why);
	}
	if (err)
		err->sys = sys;
	return r;
}

sqlite3_stmt *db_statement(struct connection *c, const char *sql, struct error *err)
{
	int rc;

	for (unsigned i = 0; i < c->count; i++)
		if (c->statements[i].sql == sql)
			return c->statements[i].stmt;
	if (c->count == STATEMENTS_MAX)
		abort();
	rc = sqlite3_prepare_v3(c->db, sql, -1, SQLITE_PREPARE_PERSISTENT,
				&c->statements[c->count].stmt, NULL);
	if (rc != SQLITE_OK) {
		db_error(err, c, rc, "prepare a statement for");
		return NULL;
	}
	c->statements[c->count].sql = sql;
	return c->statements[c->count++].stmt;
}

const char *db_text(sqlite3_stmt *columns, int i)
{
	return (const char *)sqlite3_column_text(columns, i);
}

const void *db_blob(sqlite3_stmt *columns, int i, size_t *ret_size)
{
	const void *data = sqlite3_column_blob(columns, i);

	*ret_size = (size_t)sqlite3_column_bytes(columns, i);
	return data;
}

static int exec(struct connection *c, const char *what, const char *sql, struct error *err)
{
	int rc = sqlite3_exec(c->db, sql, NULL, NULL, NULL);

	return rc == SQLITE_OK ? 0 : db_error(err, c, rc, what);
}

/* A query with one number, such as a pragma. */
static int query_int(struct connection *c, const char *sql, int64_t *ret, struct error *err)
{
	sqlite3_stmt *stmt = NULL;
	int rc = sqlite3_prepare_v2(c->db, sql, -1, &stmt, NULL);

	if (rc == SQLITE_OK)
		rc = sqlite3_step(stmt);
	if (rc == SQLITE_ROW)
		*ret = sqlite3_column_int64(stmt, 0);
	else
		db_error(err, c, rc, "read");
	sqlite3_finalize(stmt);
	return rc == SQLITE_ROW ? 0 : err ? -(int)err->code : -ERR_INTERNAL;
}

int db_migrate(struct connection *c, const char *const *list, int count, struct error *err)
{
	char version_sql[64];
	int64_t version;
	int r;

	TRY(query_int(c, "PRAGMA user_version", &version, err));
	if (version == count)
		return 0;
	TRY(exec(c, "migrate", "BEGIN IMMEDIATE", err));
	r = 0;
	for (int64_t v = version; r == 0 && v < count; v++) {
		r = exec(c, "migrate", list[v], err);
		if (r < 0)
			error_wrap(err, "schema version %d", (int)v + 1);
	}
	snprintf(version_sql, sizeof(version_sql), "PRAGMA user_version = %d", count);
	if (r == 0)
		r = exec(c, "migrate", version_sql, err);
	if (r == 0)
		r = exec(c, "migrate", "COMMIT", err);
	if (r < 0 && !sqlite3_get_autocommit(c->db))
		sqlite3_exec(c->db, "ROLLBACK", NULL, NULL, NULL);
	return r;
}

static const char meta_get_sql[] = "SELECT value FROM meta WHERE key = ?";
static const char meta_put_sql[] = "INSERT INTO meta (key, value) VALUES (?, ?) "
				   "ON CONFLICT (key) DO UPDATE SET value = excluded.value";

static int get_meta(struct connection *c, const char *key, char **ret_value, struct error *err)
{
	sqlite3_stmt *stmt = db_statement(c, meta_get_sql, err);
	char *value = NULL;
	int rc;

	if (!stmt)
		return err ? -(int)err->code : -ERR_INTERNAL;
	sqlite3_bind_text(stmt, 1, key, -1, SQLITE_STATIC);
	rc = sqlite3_step(stmt);
	if (rc == SQLITE_ROW)
		value = xstrdup_null(db_text(stmt, 0));
	else if (rc != SQLITE_DONE)
		db_error(err, c, rc, "read");
	sqlite3_reset(stmt);
	sqlite3_clear_bindings(stmt);
	if (rc != SQLITE_ROW && rc != SQLITE_DONE)
		return err ? -(int)err->code : -ERR_INTERNAL;
	*ret_value = value;
	return 0;
}

/* Refuses what another program, or a newer crisp, made. */
static int check_version(struct connection *c, struct error *err)
{
	int64_t version, application, tables;

	TRY(query_int(c, "PRAGMA user_version", &version, err));
	TRY(query_int(c, "PRAGMA application_id", &application, err));
	TRY(query_int(c, "SELECT count(*) FROM sqlite_schema", &tables, err));
	if (application != APPLICATION_ID && (application || version || tables))
		return error_set(err, ERR_PRECONDITION,
				 "open %s: it is another program's database; choose another root",
				 c->path);
	if (version > SCHEMA_VERSION) {
		cleanup_free char *writer = NULL;

		/* the newer schema may have no such table */
		(void)get_meta(c, "crisp_version", &writer, NULL);
		return error_set(err, ERR_PRECONDITION,
				 "open %s: its schema is version %d, written by crisp %s, and this "
				 "crisp %s knows versions up to %d; install crisp %s or newer",
				 c->path, (int)version, writer ?: "(unknown)", CRISP_VERSION,
				 SCHEMA_VERSION, writer ?: "of that version");
	}
	return 0;
}

void db_close(struct connection *c)
{
	for (unsigned i = 0; i < c->count; i++)
		sqlite3_finalize(c->statements[i].stmt);
	c->count = 0;
	sqlite3_close(c->db);
	c->db = NULL;
}

int db_open(struct connection *c, const char *path, int flags, struct error *err)
{
	char pragmas[128];
	int rc;

	c->path = path;
	rc = sqlite3_open_v2(path, &c->db, flags | SQLITE_OPEN_NOMUTEX | SQLITE_OPEN_EXRESCODE,
			     NULL);
	if (rc != SQLITE_OK)
		return db_error(err, c, rc, "open");
	sqlite3_busy_timeout(c->db, BUSY_MS);
	snprintf(pragmas, sizeof(pragmas), "PRAGMA cache_size = -%d; PRAGMA temp_store = MEMORY",
		 CACHE_KIB);
	return exec(c, "open", pragmas, err);
}

/* The directory with its parents; only the last one is private. */
static int make_root(const char *root_dir, struct error *err)
{
	cleanup_free char *path = xstrdup(root_dir);

	for (char *p = strchr(path + 1, '/'); p; p = strchr(p + 1, '/')) {
		*p = 0;
		if (mkdir(path, 0755) < 0 && errno != EEXIST)
			return error_errno(err, errno, "make directory %s", path);
		*p = '/';
	}
	if (mkdir(path, 0700) < 0 && errno != EEXIST)
		return error_errno(err, errno, "make directory %s", path);
	return 0;
}

/* What a server that was just killed still has open is closed only when the last process that
 * shares its descriptors has ended. */
static int take_lock(int fd, struct flock *lock)
{
	for (int i = 0; fcntl(fd, F_SETLK, lock) < 0; i++) {
		if ((errno != EACCES && errno != EAGAIN) || i == LOCK_TRIES)
			return -errno;
		usleep(LOCK_PAUSE_US);
	}
	return 0;
}

static int lock_root(const char *root_dir, int *ret_fd, struct error *err)
{
	cleanup_free char *path = xasprintf("%s/crisp.lock", root_dir);
	struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
	cleanup_close int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
	int r;

	if (fd < 0)
		return error_errno(err, errno, "open %s", path);
	r = take_lock(fd, &lock);
	if (r < 0) {
		if (r != -EACCES && r != -EAGAIN)
			return error_errno(err, -r, "lock %s", path);
		lock.l_pid = 0;
		fcntl(fd, F_GETLK, &lock);
		return error_set(err, ERR_PRECONDITION,
				 "open %s: process %d uses it; stop that, or choose another root",
				 root_dir, lock.l_pid);
	}
	*ret_fd = take_fd(&fd);
	return 0;
}

/* SQLite takes an empty file for a new database, and would begin anew beside what the old one knew.
 */
static int check_emptied(const struct store *s, const char *root_dir, struct error *err)
{
	cleanup_free char *images = xasprintf("%s/images", root_dir);
	struct stat st;

	if (stat(s->path, &st) < 0 || st.st_size || access(images, F_OK) < 0)
		return 0;
	return error_set(err, ERR_INTERNAL,
			 "open %s: it is damaged (emptied, since %s is there); restore it, or move "
			 "it away to begin anew",
			 s->path, images);
}

/* Ids must not be given twice; where the last one can't be read, time is above all of them. */
static void find_next_intent(struct store *s)
{
	struct error ignored;

	if (query_int(&s->writer, "SELECT coalesce(max(id), 0) + 1 FROM intents", &s->next_intent,
		      &ignored) < 0)
		s->next_intent = (int64_t)time(NULL) * 1000000;
}

/* For the message to a crisp that is older; not worth failing for. */
static void note_version(struct connection *c)
{
	cleanup_free char *last = NULL;

	if (get_meta(c, "crisp_version", &last, NULL) == 0 && last && !strcmp(last, CRISP_VERSION))
		return;
	(void)exec(c, "write to",
		   "INSERT OR REPLACE INTO meta (key, value) VALUES ('crisp_version', "
		   "'" CRISP_VERSION "')",
		   NULL);
}

int db_prepare(struct connection *c, struct error *err)
{
	int64_t application;
	char pragmas[256];

	/* each start would write it, which a full disk refuses */
	TRY(query_int(c, "PRAGMA application_id", &application, err));
	snprintf(pragmas, sizeof(pragmas), "PRAGMA application_id = %d", APPLICATION_ID);
	if (application != APPLICATION_ID)
		TRY(exec(c, "open", pragmas, err));
	snprintf(pragmas, sizeof(pragmas),
		 "PRAGMA journal_mode = WAL; PRAGMA synchronous = "
		 "NORMAL; PRAGMA journal_size_limit = %d",
		 WAL_KEEP);
	TRY(exec(c, "open", pragmas, err));
	return db_migrate(c, steps, SCHEMA_VERSION, err);
}

/* So that what is there can still be stopped and removed when the disk is full: blocks behind the
 * WAL's end (SQLite sees its length only), and a database that grows in large steps. */
static void reserve_room(const struct store *s)
{
	cleanup_free char *wal = xasprintf("%s-wal", s->path);
	cleanup_close int fd = open(wal, O_WRONLY | O_CLOEXEC);
	int step = ROOM;

	sqlite3_file_control(s->writer.db, "main", SQLITE_FCNTL_CHUNK_SIZE, &step);
	if (fd >= 0 && fallocate(fd, FALLOC_FL_KEEP_SIZE, 0, ROOM) < 0)
		return; /* not every file system can */
}

int store_check_room(const struct store *s, struct error *err)
{
	struct statvfs fs;

	if (fstatvfs(s->lock_fd, &fs) < 0)
		return error_errno(err, errno, "statvfs %s", s->path);
	/* a tmpfs without a limit has no blocks */
	if (!fs.f_blocks || (uint64_t)fs.f_bfree * fs.f_frsize >= ROOM)
		return 0;
	return error_set(err, ERR_EXHAUSTED,
			 "%s: the disk is full (less than %d KiB are free); free space on its file "
			 "system",
			 s->path, ROOM / 1024);
}

static int open_writer(struct store *s, struct error *err)
{
	struct connection *c = &s->writer;
	/* SQLite gives the WAL the same mode */
	int fd = open(s->path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);

	if (fd < 0)
		return error_errno(err, errno, "open %s", s->path);
	close(fd);
	TRY(db_open(c, s->path, SQLITE_OPEN_READWRITE, err));
	TRY(check_version(c, err));
	TRY(db_prepare(c, err));
	find_next_intent(s);
	note_version(c);
	reserve_room(s);
	return 0;
}

static void free_store(struct store *s)
{
	db_close(&s->reader);
	db_close(&s->writer);
	close_fd(s->lock_fd);
	map_done(&s->streams);
	free(s->path);
	free(s);
}

struct store *store_open(struct loop *l, const char *root_dir, struct error *err)
{
	struct store *s = xnew(struct store);

	s->loop = l;
	s->lock_fd = -1;
	s->path = xasprintf("%s/crisp.db", root_dir);
	if (make_root(root_dir, err) < 0 || lock_root(root_dir, &s->lock_fd, err) < 0 ||
	    check_emptied(s, root_dir, err) < 0 || open_writer(s, err) < 0 ||
	    db_open(&s->reader, s->path, SQLITE_OPEN_READONLY, err) < 0)
		goto fail;
	commit_init(s);
	s->worker = worker_new("store", NULL, NULL, err);
	if (s->worker)
		return s;
fail:
	free_store(s);
	return NULL;
}

static int check_current(struct store *s, struct error *err)
{
	int64_t version;

	TRY(check_version(&s->reader, err));
	TRY(query_int(&s->reader, "PRAGMA user_version", &version, err));
	if (version == SCHEMA_VERSION)
		return 0;
	return error_set(err, ERR_PRECONDITION,
			 "open %s: its schema is version %d, not %d; start crispd once, which "
			 "brings it there",
			 s->path, (int)version, SCHEMA_VERSION);
}

static int open_offline(struct store *s, const char *root_dir, bool is_writable, struct error *err)
{
	if (access(s->path, F_OK) < 0)
		return error_set(err, ERR_NOT_FOUND, "%s: there is no store of crisp's", root_dir);
	TRY(lock_root(root_dir, &s->lock_fd, err));
	TRY(check_emptied(s, root_dir, err));
	TRY(db_open(&s->reader, s->path, SQLITE_OPEN_READONLY, err));
	s->is_writable = is_writable;
	return check_current(s, err);
}

int db_need_writer(struct store *s, struct error *err)
{
	if (s->writer.db)
		return 0;
	if (!s->is_writable)
		abort();
	return db_open(&s->writer, s->path, SQLITE_OPEN_READWRITE, err);
}

struct store *store_open_offline(const char *root_dir, bool is_writable, struct error *err)
{
	struct store *s = xnew(struct store);

	s->lock_fd = -1;
	s->path = xasprintf("%s/crisp.db", root_dir);
	list_init(&s->queue);
	if (open_offline(s, root_dir, is_writable, err) == 0)
		return s;
	free_store(s);
	return NULL;
}

void store_close(struct store *s)
{
	if (!s)
		return;
	if (!s->worker) { /* offline */
		free_store(s);
		return;
	}
	s->is_closing = true;
	worker_free(s->worker);
	commit_rest(s);
	free_store(s);
}

/* What SQLite says about a damaged file, in one line. */
static int damaged(const struct store *s, const char *why, struct error *err)
{
	cleanup_free char *line = xstrdup(why ? why : "no answer");

	for (char *p = line; (p = strchr(p, '\n'));)
		*p = ' ';
	return error_set(err, ERR_INTERNAL,
			 "check %s: it is damaged (%s); crisp fsck --fix saves what can be read",
			 s->path, line);
}

int store_check(struct store *s, struct error *err)
{
	sqlite3_stmt *stmt = NULL;
	int rc = sqlite3_prepare_v2(s->reader.db, "PRAGMA quick_check(1)", -1, &stmt, NULL), r = 0;

	if (rc == SQLITE_OK)
		rc = sqlite3_step(stmt);
	if (rc != SQLITE_ROW)
		r = db_error(err, &s->reader, rc, "check");
	else if (strcmp(db_text(stmt, 0) ?: "", "ok"))
		r = damaged(s, db_text(stmt, 0), err);
	sqlite3_finalize(stmt);
	return r;
}

int store_meta_get(struct store *s, const char *key, char **ret_value, struct error *err)
{
	return get_meta(&s->reader, key, ret_value, err);
}

void batch_meta_put(struct store_batch *batch, const char *key, const char *value)
{
	struct store_op *op = op_new(batch, meta_put_sql);

	op_text(op, key);
	op_text(op, value);
}

int store_meta_put(struct task *t, struct store *s, const char *key, const char *value)
{
	struct store_batch b = {0};

	batch_meta_put(&b, key, value);
	return commit_now(t, s, b);
}

struct keys {
	int64_t *ids;
	size_t count, capacity;
};

static int read_keys(struct connection *c, const char *sql, struct keys *keys)
{
	sqlite3_stmt *stmt = NULL;
	int rc = sqlite3_prepare_v2(c->db, sql, -1, &stmt, NULL);

	keys->count = 0;
	while (rc == SQLITE_OK || rc == SQLITE_ROW) {
		rc = sqlite3_step(stmt);
		if (rc != SQLITE_ROW)
			break;
		if (keys->count == keys->capacity) {
			keys->capacity = keys->capacity ? keys->capacity * 2 : 256;
			keys->ids = xrealloc(keys->ids, keys->capacity * sizeof(*keys->ids));
		}
		keys->ids[keys->count++] = sqlite3_column_int64(stmt, 0);
	}
	sqlite3_finalize(stmt);
	return rc == SQLITE_DONE ? SQLITE_OK : rc;
}

/* One row: 0, 1 when it can't be read (err says why), or row's negative result. */
static int scan_row(struct connection *c, sqlite3_stmt *stmt, int64_t id,
		    int (*row)(void *arg, sqlite3_stmt *columns), void *arg, struct error *err)
{
	int rc, r = 0;

	sqlite3_bind_int64(stmt, 1, id);
	rc = sqlite3_step(stmt);
	if (rc == SQLITE_ROW) {
		r = row(arg, stmt);
	} else if (rc != SQLITE_DONE) {
		db_error(err, c, rc, "read");
		r = 1;
	}
	sqlite3_reset(stmt);
	return r;
}

static void end_scan(struct connection *c, struct keys *keys)
{
	/* some errors have ended it */
	if (!sqlite3_get_autocommit(c->db))
		(void)exec(c, "read", "COMMIT", NULL);
	free(keys->ids);
}

int db_scan(struct store *s, const struct table *table,
	    int (*row)(void *arg, sqlite3_stmt *columns), void *arg, struct error *err)
{
	struct connection *c = &s->reader;
	sqlite3_stmt *stmt = db_statement(c, table->sql, err);
	struct keys keys = {0};
	int rc = SQLITE_ERROR, r = 0, skipped = 0;
	struct error why = {0};

	if (!stmt)
		return err ? -(int)err->code : -ERR_INTERNAL;
	/* else each row would lock the file anew, which takes longer than to read it */
	(void)exec(c, "read", "BEGIN", NULL);
	for (int i = 0; i < 2 && table->keys[i] && rc != SQLITE_OK; i++)
		rc = read_keys(c, table->keys[i], &keys);
	if (rc != SQLITE_OK) {
		db_error(&why, c, rc, "read");
		if (!keys.count && (rc & 0xff) != SQLITE_CORRUPT) {
			end_scan(c, &keys);
			return error_copy(err, &why);
		}
		skipped++;
	}
	for (size_t i = 0; i < keys.count && r >= 0; i++) {
		r = scan_row(c, stmt, keys.ids[i], row, arg, &why);
		skipped += r > 0;
	}
	end_scan(c, &keys);
	if (r < 0)
		return r;
	if (skipped) {
		error_copy(err, &why);
		error_wrap(err, "%s: %d rows were left out", table->name, skipped);
	}
	return skipped;
}
