/* SPDX-License-Identifier: Apache-2.0 */
/* Intents of an earlier life are finished or undone, in order; and a reboot is noticed until it was
 * dealt with. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "io/base/log.h"
#include "recovery/boot.h"
#include "recovery/reconcile.h"
#include "tests/lib/store_fixture.h"

static char done[256]; /* what was called, in order */
static bool finish_fails;

static void note(const char *what, const struct intent_row *i)
{
	size_t length = strlen(done);

	snprintf(done + length, sizeof(done) - length, "%s %s %.*s;", what, i->object_id,
		 (int)i->data_size, (const char *)i->data);
}

static int finish(struct task *t, void *owner, const struct intent_row *i)
{
	assert_ptr_equal(owner, done);
	TRY(task_yield(t));
	note("finish", i);
	return finish_fails ? error_set(&t->err, ERR_INTERNAL, "no luck") : 0;
}

static int undo(struct task *t, void *owner, const struct intent_row *i)
{
	TRY(task_yield(t));
	note("undo", i);
	return 0;
}

static struct recover_ops finisher = {.kind = "finisher", .owner = done, .finish = finish};
static struct recover_ops undoer = {.kind = "undoer", .undo = undo};
static struct recover_ops both = {.kind = "both", .owner = done, .finish = finish, .undo = undo};

static void begin(struct task *t)
{
	static const char *const kinds[] = {"undoer", "finisher", "nobodys", "both"};
	char object[16];
	int64_t id;

	for (size_t i = 0; i < 4; i++) {
		snprintf(object, sizeof(object), "o%zu", i);
		assert_int_equal(store_intent_begin(t, s, kinds[i], object, "data", 4, &id), 0);
	}
}

static struct reconcile *loaded;
static size_t left;

static void load(void)
{
	loaded = reconcile_load(s, NULL);
	assert_non_null(loaded);
	done[0] = '\0';
}

static void complete(struct task *t)
{
	/* recovery does not depend on how its task was started */
	task_cancel(t);
	left = reconcile_run(t, loaded);
}

static void intents_are_completed(void **state)
{
	log_set_level(LOG_ERROR + 1);
	run(begin);
	reopen();
	load();
	/* what begins now is no leftover */
	run(begin);
	finish_fails = true;
	run(complete);
	assert_string_equal(done, "undo o0 data;finish o1 data;finish o3 data;undo o3 data;");
	assert_int_equal(left, 2);
	reopen();
	load();
	finish_fails = false;
	run(complete);
	assert_string_equal(done, "finish o1 data;undo o0 data;finish o1 data;finish o3 data;");
	assert_int_equal(left, 2);
	log_set_level(LOG_INFO);
}

static void commit_boot(struct task *t)
{
	struct store_batch batch = {0};

	assert_int_equal(boot_note(&batch, &t->err), 0);
	assert_int_equal(store_commit(t, s, &batch), 0);
}

static bool is_rebooted(void)
{
	enum boot boot;

	assert_int_equal(boot_check(s, &boot, NULL), 0);
	return boot == BOOT_OTHER;
}

static void reboot_is_noticed(void **state)
{
	assert_false(is_rebooted());
	run(commit_boot);
	reopen();
	assert_false(is_rebooted());
	setenv("CRISP_BOOT_ID", "another", 1);
	assert_true(is_rebooted());
	reopen();
	assert_true(is_rebooted());
	run(commit_boot);
	reopen();
	assert_false(is_rebooted());
	unsetenv("CRISP_BOOT_ID");
	assert_true(is_rebooted());
}

#define test(fn) cmocka_unit_test_setup_teardown(fn, fixture_setup, fixture_teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		test(intents_are_completed),
		test(reboot_is_noticed),
	};

	recover_register(&finisher);
	recover_register(&undoer);
	recover_register(&both);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
