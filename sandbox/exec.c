/* SPDX-License-Identifier: Apache-2.0 */
/*
 * ExecSync. Peculiar: its end is the end of the main process, whoever else holds the pipes; and
 * whatever ends the wait early ends all that the exec started, before the caller hears of it.
 */
#include "sandbox/priv.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "io/base/alloc.h"
#include "io/base/log.h"
#include "io/capture.h"
#include "io/fs.h"
#include "store/intents.h"

/* For the last bytes, when a background child keeps the pipes open. */
#define DRAIN_MS 20

static void cleanup_capture_fn(struct capture **c)
{
	capture_free(*c);
}

struct exec {
	struct container *container;
	char id[FS_RANDOM_NAME];
	struct exec_process process;
	int64_t intent; /* 0: not begun */
	struct task_event intent_done;
	int intent_result;
	struct error intent_err;
};

#define INTENT_KIND "exec"

/* Both pipes, with the container's ends in stdio; reading ends are the capture's. */
static int open_pipes(struct task *t, struct container_stdio *stdio, struct capture **ret)
{
	int out[2], err[2];

	if (pipe2(out, O_CLOEXEC) < 0)
		return error_errno(&t->err, errno, "pipe for an exec");
	if (pipe2(err, O_CLOEXEC) < 0) {
		close_fd(out[0]);
		close_fd(out[1]);
		return error_errno(&t->err, errno, "pipe for an exec");
	}
	*stdio = (struct container_stdio){.in = -1, .out = out[1], .err = err[1]};
	*ret = capture_new(t->loop, out[0], err[0], CAPTURE_EXEC_LIMIT);
	return 0;
}

static void on_intent(void *data, int result, const struct error *err)
{
	struct exec *e = data;

	e->intent_result = result;
	if (err)
		e->intent_err = *err;
	task_event_set(&e->intent_done);
}

/* The commit goes on while the kind prepares. */
static void begin_intent(struct node *n, struct exec *e)
{
	struct store_batch batch = {0};

	e->intent = batch_intent_begin(&batch, n->store, INTENT_KIND, e->container->id, e->id,
				       sizeof(e->id));
	store_commit_later(n->store, &batch, on_intent, e);
}

static int wait_intent(struct task *t, void *data)
{
	struct exec *e = data;

	TRY(task_event_wait(t, &e->intent_done));
	return e->intent_result < 0 ? error_copy(&t->err, &e->intent_err) : 0;
}

static int start(struct task *t, struct node *n, const char *container_id,
		 const struct string_list *argv, const struct container_stdio *stdio,
		 struct exec *ret)
{
	struct container *c cleanup_container = NULL;
	struct exec_spec spec = {.id = ret->id, .argv = *argv};

	TRY(container_acquire(t, n, container_id, &c));
	if (c->state != CONTAINER_RUNNING)
		return error_set(&t->err, ERR_PRECONDITION, "container %s is not running", c->id);
	TRY(container_check_whole(c, &t->err));
	ret->container = container_ref(c);
	begin_intent(n, ret);
	return c->sandbox->kind->container_exec(t, c->handle, &spec, stdio, wait_intent, ret,
						&ret->process);
}

/* Nobody waits for this: a restart before the commit finds nothing to end. */
static void end_intent(struct node *n, const struct exec *e)
{
	struct store_batch batch = {0};

	if (!e->intent)
		return;
	batch_intent_end(&batch, e->intent);
	store_commit_later(n->store, &batch, NULL, NULL);
}

/* An exec of a server that died: its client is gone, so it is ended. */
static int undo_exec(struct task *t, void *owner, const struct intent_row *intent)
{
	struct container *c cleanup_container = NULL;
	char id[FS_RANDOM_NAME] = "";
	int r = container_acquire(t, owner, intent->object_id, &c);

	if (r == -ERR_NOT_FOUND)
		return 0;
	TRY(r);
	if (!c->handle || intent->data_size != sizeof(id))
		return 0;
	memcpy(id, intent->data, sizeof(id) - 1);
	TRY(c->sandbox->kind->container_exec_kill(t, c->handle, id));
	return c->sandbox->kind->container_exec_done(t, c->handle, id);
}

void exec_register(struct node *n)
{
	static struct recover_ops ops = {.kind = INTENT_KIND, .undo = undo_exec};

	ops.owner = n;
	recover_register(&ops);
}

void exec_drop_intents(struct store_batch *batch)
{
	batch_intent_end_kind(batch, INTENT_KIND);
}

/* The queue is taken anew each time: a stop must not wait for an exec. */
static int with_queue(struct task *t, struct exec *e,
		      int (*fn)(struct task *t, void *container, const char *exec_id))
{
	struct task_mutex *held cleanup_unlock = NULL;

	TRY(task_mutex_lock(t, &e->container->queue));
	held = &e->container->queue;
	return e->container->handle ? fn(t, e->container->handle, e->id) : 0;
}

static int wait_end(struct task *t, struct exec *e, uint64_t timeout_ms, struct process_exit *ret)
{
	uint64_t old = timeout_ms ? task_limit_ms(t, timeout_ms) : task_deadline(t);
	int r = process_wait(t, e->process.pidfd, ret);

	task_restore_deadline(t, old);
	return r;
}

/* What the wait left running: nothing of it may stay. */
static void kill_exec(struct task *t, struct exec *e)
{
	struct process_exit exit;

	if (with_queue(t, e, e->container->sandbox->kind->container_exec_kill) < 0 ||
	    process_wait(t, e->process.pidfd, &exit) < 0)
		log_warning("exec in container %s could not be ended: %s", e->container->id,
			    t->err.text);
}

static int run(struct task *t, struct exec *e, uint64_t timeout_ms, struct capture *capture,
	       struct exec_result *ret)
{
	struct process_exit exit = {0};
	int r = wait_end(t, e, timeout_ms, &exit);
	struct error cause = t->err;

	if (r < 0) {
		task_shield(t, +1);
		kill_exec(t, e);
		task_shield(t, -1);
	}
	if (r == -ERR_DEADLINE && timeout_ms)
		return error_set(&t->err, ERR_DEADLINE,
				 "exec in container %s: not done after %llu ms, so it was killed",
				 e->container->id, (unsigned long long)timeout_ms);
	if (r < 0)
		return error_copy(&t->err, &cause);
	TRY(capture_finish(t, capture, DRAIN_MS));
	ret->exit_code = exit.code;
	ret->out = capture->output[0];
	ret->err = capture->output[1];
	capture->output[0] = capture->output[1] = (struct buf){0};
	return 0;
}

/* What the caller need not wait for. */
static void done_main(struct task *t, void *arg)
{
	struct exec *e = arg;

	/* its callback has e */
	if (e->intent && task_event_wait(t, &e->intent_done) < 0)
		abort();
	if (with_queue(t, e, e->container->sandbox->kind->container_exec_done) < 0)
		log_warning("exec in container %s left something: %s", e->container->id,
			    t->err.text);
	end_intent(e->container->node, e);
	container_unref(e->container);
	free(e);
}

int container_exec_sync(struct task *t, struct node *n, const char *id,
			const struct string_list *argv, uint64_t timeout_ms,
			struct exec_result *ret)
{
	struct capture *capture CLEANUP(cleanup_capture_fn) = NULL;
	struct exec *e = xnew(struct exec);
	struct container_stdio stdio;
	int r = open_pipes(t, &stdio, &capture);

	if (r < 0) {
		free(e);
		return r;
	}
	e->process = (struct exec_process){.pidfd = -1, .master = -1};
	task_event_init(&e->intent_done);
	fs_random_name(e->id);
	r = start(t, n, id, argv, &stdio, e);
	close_fd(stdio.out);
	close_fd(stdio.err);
	if (r == 0)
		r = run(t, e, timeout_ms, capture, ret);
	close_fd(e->process.pidfd);
	if (e->container)
		task_start(n->loop, "exec done", done_main, e);
	else
		free(e);
	return r;
}
