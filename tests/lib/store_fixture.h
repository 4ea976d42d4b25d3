/* SPDX-License-Identifier: Apache-2.0 */
/* A store in a directory of its own, on a real loop, for the store's tests. */
#pragma once

#include "store/priv.h"
#include "store/sandboxes.h"

extern struct loop *l;
extern struct store *s;
extern char root[64], db_path[96];

/* cmocka's setup and teardown: the latter closes s, checks for left tasks and files. */
int fixture_setup(void **state);
int fixture_teardown(void **state);
/* Opens s, or fails the test. */
void open_store(void);
void reopen(void);
/* Removes the store's files; it must be closed. */
void remove_files(void);
/* Runs fn on a task and the loop until it has returned. */
void run(void (*fn)(struct task *t));
/* The smallest valid row. */
static inline struct sandbox_row sandbox(const char *id)
{
	return (struct sandbox_row){.id = id, .kind = "linux"};
}

int count_sandboxes(void);
