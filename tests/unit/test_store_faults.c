/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The store against the world: kill -9; files that are newer, foreign, full, locked or damaged; and
 * a disk whose n-th call fails, for every n.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "io/base/alloc.h"
#include "io/base/cleanup.h"
#include "tests/lib/store_fixture.h"

/* --- kill -9 --- */

static int ack_fd;

/* Writes pairs in one batch for ever, says each number once it is committed. */
static void write_until_killed(struct task *t, void *arg)
{
	for (int i = (int)(intptr_t)arg;; i += 4) {
		struct store_batch b = {0};
		char id[16], twin[16];
		struct sandbox_row row = sandbox(id), other = sandbox(twin);

		snprintf(id, sizeof(id), "%d", i);
		snprintf(twin, sizeof(twin), "twin%d", i);
		batch_sandbox_put(&b, &row);
		batch_sandbox_put(&b, &other);
		if (store_commit(t, s, &b) < 0 || write(ack_fd, &i, sizeof(i)) != sizeof(i))
			_exit(1);
	}
}

static void run_victim(int fd)
{
	ack_fd = fd;
	l = loop_new(NULL);
	s = store_open(l, root, NULL);
	if (!s)
		_exit(1);
	for (intptr_t i = 0; i < 4; i++)
		task_start(l, "writer", write_until_killed, (void *)i);
	loop_run(l);
	_exit(1);
}

static int mark_seen(void *data, const struct sandbox_row *row)
{
	bool is_twin = !strncmp(row->id, "twin", 4);
	int n = atoi(row->id + (is_twin ? 4 : 0));
	unsigned char *seen = data;

	if (n < 100000)
		seen[n] |= is_twin ? 2 : 1;
	return 0;
}

static void what_was_acknowledged_survives_kill(void **state)
{
	unsigned char *seen = xcalloc(1, 100000);
	int total = 0;

	srandom((unsigned)getpid());
	for (int round = 0; round < 10; round++) {
		int fds[2], n, acked = 0, status;
		pid_t pid;

		store_close(s);
		s = NULL;
		assert_int_equal(unlink(db_path), 0);
		assert_int_equal(pipe2(fds, O_CLOEXEC), 0);
		fcntl(fds[0], F_SETPIPE_SZ, 1 << 20);
		pid = fork();
		if (pid == 0)
			run_victim(fds[1]);
		close(fds[1]);
		/* the first answer says that it runs */
		assert_int_equal(read(fds[0], &n, sizeof(n)), sizeof(n));
		usleep((useconds_t)random() % 20000);
		kill(pid, SIGKILL);
		assert_int_equal(waitpid(pid, &status, 0), pid);
		assert_true(WIFSIGNALED(status));
		memset(seen, 0, 100000);
		open_store();
		assert_int_equal(store_sandbox_each(s, mark_seen, seen, NULL), 0);
		do {
			acked++;
			assert_true(n >= 100000 || seen[n] == 3);
		} while (read(fds[0], &n, sizeof(n)) == sizeof(n));
		/* pairs are whole, acknowledged or not */
		for (int i = 0; i < 100000; i++)
			assert_true(seen[i] == 0 || seen[i] == 3);
		close(fds[0]);
		total += acked;
	}
	print_message("%d acknowledged pairs in 10 kills\n", total);
	free(seen);
}

/* --- other files than expected --- */

static void sql(const char *text)
{
	sqlite3 *db;

	assert_int_equal(sqlite3_open(db_path, &db), SQLITE_OK);
	if (sqlite3_exec(db, text, NULL, NULL, NULL) != SQLITE_OK)
		fail_msg("%s", sqlite3_errmsg(db));
	sqlite3_close(db);
}

static void expect_refusal(enum err code, const char *a, const char *b)
{
	struct error err = {0};

	s = store_open(l, root, &err);
	assert_null(s);
	assert_int_equal(err.code, code);
	if (!strstr(err.text, a) || !strstr(err.text, b) || !strstr(err.text, root))
		fail_msg("%s", err.text);
}

static void newer_schema_is_refused(void **state)
{
	store_close(s);
	sql("PRAGMA user_version = 99; UPDATE meta SET value = '9.8.7' WHERE key = "
	    "'crisp_version'");
	expect_refusal(ERR_PRECONDITION, "version 99, written by crisp 9.8.7",
		       "install crisp 9.8.7");
	sql("DROP TABLE meta");
	expect_refusal(ERR_PRECONDITION, "version 99", "knows versions up to 6");
}

static void foreign_database_is_refused(void **state)
{
	store_close(s);
	unlink(db_path);
	sql("CREATE TABLE t (x)");
	expect_refusal(ERR_PRECONDITION, "another program's", "choose another root");
}

static void file_that_is_no_database_is_refused(void **state)
{
	char junk[2048];
	int fd;

	store_close(s);
	memset(junk, 'j', sizeof(junk));
	fd = open(db_path, O_WRONLY | O_TRUNC);
	assert_int_equal(write(fd, junk, sizeof(junk)), sizeof(junk));
	close(fd);
	expect_refusal(ERR_INTERNAL, "damaged", "move it away");
}

static void second_server_is_refused(void **state)
{
	char pid_text[32];
	int status;
	pid_t pid = fork();

	if (pid == 0) {
		struct error err = {0};
		struct store *second = store_open(l, root, &err);

		snprintf(pid_text, sizeof(pid_text), "process %d", getppid());
		_exit(!second && err.code == ERR_PRECONDITION && strstr(err.text, pid_text) ? 0
											    : 1);
	}
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_int_equal(status, 0);
}

/* The next one may come before the last one is quite gone. */
static void dying_server_is_waited_for(void **state)
{
	int status;
	pid_t pid = fork();

	if (pid == 0)
		_exit(store_open(l, root, NULL) ? 0 : 1);
	usleep(100000);
	store_close(s);
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_int_equal(status, 0);
	open_store();
}

static void parents_of_the_root_are_made(void **state)
{
	char deep[128], path[192];
	struct error err = {0};
	struct store *other;
	struct stat st;

	snprintf(deep, sizeof(deep), "%s/x/y", root);
	other = store_open(l, deep, &err);
	assert_non_null(other);
	assert_int_equal(stat(deep, &st), 0);
	assert_int_equal(st.st_mode & 0777, 0700);
	store_close(other);
	snprintf(path, sizeof(path), "%s/crisp.db", deep);
	assert_int_equal(unlink(path), 0);
	snprintf(path, sizeof(path), "%s/crisp.lock", deep);
	assert_int_equal(unlink(path), 0);
	assert_int_equal(rmdir(deep), 0);
	snprintf(path, sizeof(path), "%s/x", root);
	assert_int_equal(rmdir(path), 0);
}

static void migration_is_all_or_nothing(void **state)
{
	static const char *const good[] = {"unused",
					   "unused",
					   "unused",
					   "unused",
					   "unused",
					   "unused",
					   "CREATE TABLE two (x); INSERT INTO two "
					   "SELECT count(*) FROM meta",
					   "ALTER TABLE two RENAME TO three"};
	static const char *const bad[] = {"unused",
					  "unused",
					  "unused",
					  "unused",
					  "unused",
					  "unused",
					  "CREATE TABLE two (x)",
					  "CREATE TABLE sandboxes (x)"};
	struct error err = {0};

	assert_int_equal(db_migrate(&s->writer, bad, 8, &err), -ERR_INTERNAL);
	assert_non_null(strstr(err.text, "schema version 8"));
	assert_true(sqlite3_get_autocommit(s->writer.db));
	/* "two" is not there any more, so it can be made again */
	assert_int_equal(db_migrate(&s->writer, good, 8, &err), 0);
	assert_int_equal(db_migrate(&s->writer, good, 8, &err), 0);
	sql("SELECT x FROM three");
	sql("PRAGMA user_version = 6");
}

/* --- full, locked, damaged --- */

static void limit_pages(int spare)
{
	sqlite3_stmt *stmt;
	char text[64];

	assert_int_equal(sqlite3_prepare_v2(s->writer.db, "PRAGMA page_count", -1, &stmt, NULL), 0);
	assert_int_equal(sqlite3_step(stmt), SQLITE_ROW);
	snprintf(text, sizeof(text), "PRAGMA max_page_count = %d",
		 spare < 0 ? 1 << 30 : sqlite3_column_int(stmt, 0) + spare);
	sqlite3_finalize(stmt);
	assert_int_equal(sqlite3_exec(s->writer.db, text, NULL, NULL, NULL), SQLITE_OK);
}

static int small_done, small_failed;

static void on_small(void *data, int result, const struct error *err)
{
	small_done++;
	small_failed += result < 0;
}

static void fill_disk(struct task *t)
{
	cleanup_free char *blob = xcalloc(1, 1 << 20);
	struct sandbox_row small = sandbox("small"), large = sandbox("large");
	struct store_batch b = {0};

	assert_int_equal(store_sandbox_put(t, s, &small), 0);
	large.config = blob;
	large.config_size = 1 << 20;
	limit_pages(10);
	/* all in one group: the large one is told so, the small ones are served */
	for (int i = 0; i < 5; i++) {
		batch_meta_put(&b, "small", "v");
		store_commit_later(s, &b, on_small, NULL);
	}
	assert_int_equal(store_sandbox_put(t, s, &large), -ERR_EXHAUSTED);
	assert_non_null(strstr(t->err.text, "full; free space"));
	assert_int_equal(small_done, 5);
	assert_int_equal(small_failed, 0);
	small.state = 1;
	assert_int_equal(store_sandbox_put(t, s, &small), 0);
	assert_int_equal(store_sandbox_delete(t, s, "small"), 0);
	limit_pages(-1);
	assert_int_equal(store_sandbox_put(t, s, &large), 0);
}

static void full_disk_is_an_answer_not_an_end(void **state)
{
	small_done = small_failed = 0;
	run(fill_disk);
	assert_int_equal(count_sandboxes(), 1);
}

static void write_while_locked(struct task *t)
{
	struct sandbox_row row = sandbox("row");
	struct store_batch b = {0};
	sqlite3 *other;

	sqlite3_busy_timeout(s->writer.db, 10);
	assert_int_equal(sqlite3_open(db_path, &other), SQLITE_OK);
	assert_int_equal(sqlite3_exec(other, "BEGIN IMMEDIATE", NULL, NULL, NULL), SQLITE_OK);
	small_done = small_failed = 0;
	batch_meta_put(&b, "small", "v");
	store_commit_later(s, &b, on_small, NULL);
	assert_int_equal(store_sandbox_put(t, s, &row), -ERR_UNAVAILABLE);
	assert_int_equal(small_failed, 1);
	sqlite3_close(other);
	assert_int_equal(store_sandbox_put(t, s, &row), 0);
}

static void locked_file_is_unavailable(void **state)
{
	run(write_while_locked);
	assert_int_equal(count_sandboxes(), 1);
}

#define DAMAGED_SIZE 20000

static void put_damageable(struct task *t)
{
	cleanup_free char *blob = xmalloc(DAMAGED_SIZE);

	for (int i = 0; i < 3; i++) {
		char id[8];
		struct sandbox_row row = sandbox(id);

		snprintf(id, sizeof(id), "%d", i);
		memset(blob, 0xa0 + i, DAMAGED_SIZE);
		row.config = blob;
		row.config_size = DAMAGED_SIZE;
		assert_int_equal(store_sandbox_put(t, s, &row), 0);
	}
}

static int check_undamaged(void *data, const struct sandbox_row *row)
{
	assert_int_equal(row->config_size, DAMAGED_SIZE);
	strcat(data, row->id);
	return 0;
}

/* An overflow page begins with the number of the next one: breaks the chain of row 1. */
static void damage_row_one(void)
{
	cleanup_free unsigned char *page = xmalloc(4096);
	int fd = open(db_path, O_RDWR);

	assert_true(fd >= 0);
	for (off_t at = 0; pread(fd, page, 4096, at) == 4096; at += 4096) {
		size_t i = 4;

		while (i < 4096 && page[i] == 0xa1)
			i++;
		if (i < 4096)
			continue;
		assert_int_equal(pwrite(fd, "\xff\xff\xff\xff", 4, at), 4);
		close(fd);
		return;
	}
	fail_msg("no overflow page found");
}

static void damaged_row_is_left_out_and_reported(void **state)
{
	struct error err = {0};
	char ids[8] = "";

	run(put_damageable);
	store_close(s);
	damage_row_one();
	open_store();
	assert_int_equal(store_sandbox_each(s, check_undamaged, ids, &err), 1);
	assert_string_equal(ids, "02");
	assert_int_equal(err.code, ERR_INTERNAL);
	assert_non_null(strstr(err.text, "sandboxes: 1 rows were left out"));
	assert_non_null(strstr(err.text, "damaged"));
	assert_int_equal(store_check(s, &err), -ERR_INTERNAL);
	assert_non_null(strstr(err.text, "damaged"));
	/* the others live on */
	assert_int_equal(unlink(db_path), 0);
	reopen();
	run(put_damageable);
}

static void damage_root_of(const char *name)
{
	sqlite3_stmt *stmt;
	sqlite3 *db;
	off_t page;
	int fd;

	assert_int_equal(sqlite3_open(db_path, &db), SQLITE_OK);
	sqlite3_prepare_v2(db, "SELECT rootpage FROM sqlite_schema WHERE name = ?", -1, &stmt,
			   NULL);
	sqlite3_bind_text(stmt, 1, name, -1, SQLITE_STATIC);
	assert_int_equal(sqlite3_step(stmt), SQLITE_ROW);
	page = sqlite3_column_int(stmt, 0);
	sqlite3_finalize(stmt);
	sqlite3_close(db);
	fd = open(db_path, O_WRONLY);
	assert_int_equal(pwrite(fd, "damaged!", 8, (page - 1) * 4096), 8);
	close(fd);
}

static void damaged_index_costs_no_row_and_damaged_table_is_said(void **state)
{
	struct error err = {0};
	char ids[8] = "";

	run(put_damageable);
	store_close(take_ptr(s));
	damage_root_of("sqlite_autoindex_sandboxes_1");
	open_store();
	assert_int_equal(store_sandbox_each(s, check_undamaged, ids, &err), 0);
	assert_string_equal(ids, "012");
	store_close(take_ptr(s));
	damage_root_of("sandboxes");
	open_store();
	err = (struct error){0};
	assert_true(store_sandbox_each(s, check_undamaged, ids, &err) != 0);
	assert_int_equal(err.code, ERR_INTERNAL);
	assert_non_null(strstr(err.text, "damaged"));
	assert_string_equal(ids, "012");
}

/* --- the n-th call fails, for every n --- */

/* SQLite's own VFS with one fault: call number fault_at and, if it lasts, all after it. */
static sqlite3_vfs *real_vfs;
static sqlite3_vfs fault_vfs;
static int fault_at, fault_code, fault_calls, fault_hits;
static bool fault_lasts;

struct fault_file {
	sqlite3_file base;
	sqlite3_file *real;
};

static sqlite3_file *real_of(sqlite3_file *file)
{
	return ((struct fault_file *)file)->real;
}

static int fault(void)
{
	int call = ++fault_calls;

	if (!fault_at || call < fault_at || (call > fault_at && !fault_lasts))
		return SQLITE_OK;
	fault_hits++;
	return fault_code;
}

static int f_close(sqlite3_file *f)
{
	return real_of(f)->pMethods ? real_of(f)->pMethods->xClose(real_of(f)) : SQLITE_OK;
}

static int f_read(sqlite3_file *f, void *to, int n, sqlite3_int64 at)
{
	return fault() ? SQLITE_IOERR_READ : real_of(f)->pMethods->xRead(real_of(f), to, n, at);
}

static int f_write(sqlite3_file *f, const void *from, int n, sqlite3_int64 at)
{
	int rc = fault();

	return rc ? rc : real_of(f)->pMethods->xWrite(real_of(f), from, n, at);
}

static int f_truncate(sqlite3_file *f, sqlite3_int64 size)
{
	return fault() ? SQLITE_IOERR_TRUNCATE : real_of(f)->pMethods->xTruncate(real_of(f), size);
}

static int f_sync(sqlite3_file *f, int flags)
{
	return fault() ? SQLITE_IOERR_FSYNC : real_of(f)->pMethods->xSync(real_of(f), flags);
}

static int f_size(sqlite3_file *f, sqlite3_int64 *size)
{
	return real_of(f)->pMethods->xFileSize(real_of(f), size);
}

static int f_lock(sqlite3_file *f, int level)
{
	return real_of(f)->pMethods->xLock(real_of(f), level);
}

static int f_unlock(sqlite3_file *f, int level)
{
	return real_of(f)->pMethods->xUnlock(real_of(f), level);
}

static int f_check(sqlite3_file *f, int *ret)
{
	return real_of(f)->pMethods->xCheckReservedLock(real_of(f), ret);
}

static int f_control(sqlite3_file *f, int op, void *arg)
{
	return real_of(f)->pMethods->xFileControl(real_of(f), op, arg);
}

static int f_sector(sqlite3_file *f)
{
	return real_of(f)->pMethods->xSectorSize(real_of(f));
}

static int f_device(sqlite3_file *f)
{
	return real_of(f)->pMethods->xDeviceCharacteristics(real_of(f));
}

static int f_shm_map(sqlite3_file *f, int page, int size, int extend, void volatile **ret)
{
	return fault() ? SQLITE_IOERR_SHMMAP
		       : real_of(f)->pMethods->xShmMap(real_of(f), page, size, extend, ret);
}

static int f_shm_lock(sqlite3_file *f, int at, int n, int flags)
{
	return real_of(f)->pMethods->xShmLock(real_of(f), at, n, flags);
}

static void f_shm_barrier(sqlite3_file *f)
{
	real_of(f)->pMethods->xShmBarrier(real_of(f));
}

static int f_shm_unmap(sqlite3_file *f, int remove)
{
	return real_of(f)->pMethods->xShmUnmap(real_of(f), remove);
}

static int fault_open(sqlite3_vfs *vfs, sqlite3_filename name, sqlite3_file *file, int flags,
		      int *ret_flags)
{
	static const sqlite3_io_methods methods = {
		.iVersion = 2,
		.xClose = f_close,
		.xRead = f_read,
		.xWrite = f_write,
		.xTruncate = f_truncate,
		.xSync = f_sync,
		.xFileSize = f_size,
		.xLock = f_lock,
		.xUnlock = f_unlock,
		.xCheckReservedLock = f_check,
		.xFileControl = f_control,
		.xSectorSize = f_sector,
		.xDeviceCharacteristics = f_device,
		.xShmMap = f_shm_map,
		.xShmLock = f_shm_lock,
		.xShmBarrier = f_shm_barrier,
		.xShmUnmap = f_shm_unmap,
	};
	struct fault_file *f = (struct fault_file *)file;
	int rc;

	f->base.pMethods = NULL;
	if (fault())
		return SQLITE_CANTOPEN;
	f->real = (sqlite3_file *)(f + 1);
	rc = real_vfs->xOpen(real_vfs, name, f->real, flags, ret_flags);
	if (f->real->pMethods)
		f->base.pMethods = &methods;
	return rc;
}

static void use_faults(bool is_on)
{
	if (!real_vfs) {
		real_vfs = sqlite3_vfs_find(NULL);
		fault_vfs = *real_vfs;
		fault_vfs.zName = "fault";
		fault_vfs.szOsFile = (int)sizeof(struct fault_file) + real_vfs->szOsFile;
		fault_vfs.xOpen = fault_open;
	}
	if (is_on)
		sqlite3_vfs_register(&fault_vfs, 1);
	else
		sqlite3_vfs_unregister(&fault_vfs);
}

static void arm(int at, int code, bool lasts)
{
	fault_at = at;
	fault_code = code;
	fault_lasts = lasts;
	fault_calls = fault_hits = 0;
}

#define FAULTY_WRITES 12
static int faulty_results[FAULTY_WRITES];
static int faulty_n;

static void on_faulty(void *data, int result, const struct error *err)
{
	faulty_results[(intptr_t)data] = result;
	if (result == -ERR_INTERNAL)
		fail_msg("fault %d: %s", faulty_n, err->text);
}

/* Groups, single ones, a durable one, large ones, and checkpoints in between. */
static void write_faultily(struct task *t)
{
	cleanup_free char *blob = xmalloc(20000);

	for (int i = 0; i < FAULTY_WRITES; i++) {
		struct store_batch b = {0};
		char id[8];
		struct sandbox_row row = sandbox(id);

		snprintf(id, sizeof(id), "%d", i);
		memset(blob, i, 20000);
		row.config = blob;
		row.config_size = i % 2 ? 20000 : 10;
		batch_sandbox_put(&b, &row);
		b.is_durable = i == 5;
		faulty_results[i] = 1;
		store_commit_later(s, &b, on_faulty, (void *)(intptr_t)i);
		if (i >= 4)
			(void)store_meta_put(t, s, "turn", id);
	}
	/* the disk is well again */
	fault_at = 0;
	assert_int_equal(store_meta_put(t, s, "turn", "last"), 0);
}

static int check_faulty(void *data, const struct sandbox_row *row)
{
	int i = atoi(row->id);

	assert_int_equal(row->config_size, i % 2 ? 20000 : 10);
	for (size_t k = 0; k < row->config_size; k++)
		assert_int_equal(((const unsigned char *)row->config)[k], i);
	((bool *)data)[i] = true;
	return 0;
}

/* False when the n-th call was never made. */
static bool survive_fault(int n, int code, bool lasts)
{
	bool seen[FAULTY_WRITES] = {false};
	struct error err = {0};
	bool was_hit;

	faulty_n = n;
	use_faults(true);
	open_store();
	use_faults(false);
	s->checkpoint_at = 8;
	arm(n, code, lasts);
	run(write_faultily);
	was_hit = fault_hits > 0;
	reopen();
	if (store_sandbox_each(s, check_faulty, seen, &err) || store_check(s, &err) < 0)
		fail_msg("fault %d: %s", n, err.text);
	for (int i = 0; i < FAULTY_WRITES; i++) {
		assert_int_not_equal(faulty_results[i], 1);
		if (seen[i] != (faulty_results[i] == 0))
			fail_msg("fault %d: row %d is %s but was answered %d", n, i,
				 seen[i] ? "there" : "missing", faulty_results[i]);
	}
	store_close(take_ptr(s));
	remove_files();
	return was_hit;
}

static void every_failing_call_is_answered_truly(void **state)
{
	int n = 0;

	store_close(take_ptr(s));
	remove_files();
	while (survive_fault(++n, SQLITE_IOERR_WRITE, false))
		;
	print_message("%d calls failed\n", n - 1);
	assert_true(n > 50);
	for (int i = 1; i < n; i += 3) {
		survive_fault(i, SQLITE_FULL, true);
		survive_fault(i, SQLITE_IOERR_WRITE, true);
	}
	open_store();
}

static void every_failing_call_of_open_is_reported(void **state)
{
	int n = 0;

	do {
		struct error err = {0};

		store_close(take_ptr(s));
		remove_files();
		use_faults(true);
		n++;
		arm(n, SQLITE_FULL, n % 2);
		s = store_open(l, root, &err);
		use_faults(false);
		if (!s) {
			assert_in_range(err.code, ERR_EXHAUSTED, ERR_UNAVAILABLE);
			assert_non_null(strstr(err.text, root));
		}
	} while (fault_hits);
	arm(0, 0, false);
	assert_true(n > 5);
	reopen();
	run(put_damageable);
}

int main(void)
{
#define T(name) cmocka_unit_test_setup_teardown(name, fixture_setup, fixture_teardown)
	const struct CMUnitTest tests[] = {
		T(what_was_acknowledged_survives_kill),
		T(newer_schema_is_refused),
		T(foreign_database_is_refused),
		T(file_that_is_no_database_is_refused),
		T(second_server_is_refused),
		T(dying_server_is_waited_for),
		T(parents_of_the_root_are_made),
		T(migration_is_all_or_nothing),
		T(full_disk_is_an_answer_not_an_end),
		T(locked_file_is_unavailable),
		T(damaged_row_is_left_out_and_reported),
		T(damaged_index_costs_no_row_and_damaged_table_is_said),
		T(every_failing_call_is_answered_truly),
		T(every_failing_call_of_open_is_reported),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
