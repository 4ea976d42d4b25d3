/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The first start after a reboot: all that ran has ended. Peculiar: it is a few statements in the
 * transaction that notes the new boot, before the socket answers, so what is started afterwards is
 * never taken for a thing of the earlier boot. On a full disk it is made up for by the first call
 * that brings something up; nothing of this boot has run until then.
 */
#include "sandbox/priv.h"

#include <time.h>

#include "io/base/alloc.h"
#include "io/base/log.h"
#include "recovery/boot.h"
#include "store/containers.h"
#include "store/sandboxes.h"

#define REASON "NodeRebooted"
#define MESSAGE "the node rebooted while the container ran"
#define EXIT_CODE 255

/* The end of the earlier boot, as far as anybody can tell. */
static int64_t boot_time_ns(void)
{
	struct timespec up;

	clock_gettime(CLOCK_BOOTTIME, &up);
	return realtime_ns() - ((int64_t)up.tv_sec * 1000000000 + up.tv_nsec);
}

static int end_all(struct store_batch *batch, struct error *err)
{
	struct container_row end = {
		.state = CONTAINER_EXITED,
		.exit_code = EXIT_CODE,
		.reason = REASON,
		.message = MESSAGE,
		.finished_at = boot_time_ns(),
	};

	batch_container_end_all(batch, CONTAINER_RUNNING, &end);
	batch_sandbox_move_all(batch, SANDBOX_READY, SANDBOX_NOTREADY);
	exec_drop_intents(batch);
	return boot_note(batch, err);
}

/* A table that is damaged somewhere can't be changed as a whole. */
static int note_alone(struct node *n, struct error *err)
{
	struct store_batch batch CLEANUP(store_batch_done) = {0};

	TRY(boot_note(&batch, err));
	return store_commit_blocking(n->store, &batch, err);
}

void node_check_boot(struct node *n)
{
	struct store_batch batch CLEANUP(store_batch_done) = {0};
	enum boot boot = BOOT_SAME;
	struct error err = {0};
	int r = boot_check(n->store, &boot, &err);

	if (r == 0 && boot == BOOT_SAME)
		return;
	if (boot == BOOT_OTHER)
		log_info("the node was rebooted: all that ran has ended");
	if (r == 0)
		r = boot == BOOT_OTHER ? end_all(&batch, &err) : boot_note(&batch, &err);
	if (r == 0)
		r = store_commit_blocking(n->store, &batch, &err);
	if (r == 0)
		return;
	log_error("the boot can't be noted: %s", err.text);
	n->is_rebooted = boot == BOOT_OTHER;
	n->is_boot_open = r != -ERR_INTERNAL || note_alone(n, &err) < 0;
}

int node_note_boot(struct task *t, struct node *n)
{
	struct store_batch batch CLEANUP(store_batch_done) = {0};

	if (!n->is_boot_open)
		return 0;
	TRY(end_all(&batch, &t->err));
	TRY(store_commit(t, n->store, &batch));
	n->is_boot_open = false;
	return 0;
}

void container_end_by_reboot(struct container *c)
{
	int64_t booted = boot_time_ns();

	free(c->reason);
	free(c->message);
	c->reason = xstrdup(REASON);
	c->message = xstrdup(MESSAGE);
	c->exit_code = EXIT_CODE;
	c->finished_at = booted > c->started_at ? booted : c->started_at;
	c->state = CONTAINER_EXITED;
}
