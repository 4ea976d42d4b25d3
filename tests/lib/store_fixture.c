/* SPDX-License-Identifier: Apache-2.0 */
/* The store's tests share their globals: one store at a time is what a process has, too. */
#include "tests/lib/store_fixture.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct loop *l;
struct store *s;
char root[64], db_path[96];

void open_store(void)
{
	struct error err = {0};

	s = store_open(l, root, &err);
	if (!s)
		fail_msg("%s", err.text);
}

int fixture_setup(void **state)
{
	/* no disk: hundreds of stores are made, and kill -9 needs none */
	strcpy(root,
	       access("/dev/shm", W_OK) ? "/tmp/test_store.XXXXXX" : "/dev/shm/test_store.XXXXXX");
	if (!mkdtemp(root))
		return -1;
	snprintf(db_path, sizeof(db_path), "%s/crisp.db", root);
	l = loop_new(NULL);
	open_store();
	return 0;
}

void remove_files(void)
{
	static const char *const files[] = {"crisp.db", "crisp.db-wal", "crisp.db-shm",
					    "crisp.lock"};
	char path[128];

	for (int i = 0; i < 4; i++) {
		snprintf(path, sizeof(path), "%s/%s", root, files[i]);
		unlink(path);
	}
}

int fixture_teardown(void **state)
{
	store_close(s);
	s = NULL;
	assert_int_equal(task_count(), 0);
	loop_free(l);
	task_pool_trim();
	remove_files();
	return rmdir(root);
}

void reopen(void)
{
	store_close(s);
	open_store();
}

struct call {
	void (*fn)(struct task *t);
};

static void call_task(struct task *t, void *arg)
{
	((struct call *)arg)->fn(t);
	loop_stop(t->loop);
}

void run(void (*fn)(struct task *t))
{
	struct call call = {fn};

	task_start(l, "call", call_task, &call);
	loop_run(l);
}

static int count_sandbox(void *data, const struct sandbox_row *row)
{
	++*(int *)data;
	return 0;
}

int count_sandboxes(void)
{
	int n = 0;

	assert_int_equal(store_sandbox_each(s, count_sandbox, &n, NULL), 0);
	return n;
}
