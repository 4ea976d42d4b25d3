/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What joins a container to its pipes and its log. Peculiar: every end of ours goes to the keeper
 * before the container is born, so that what it writes while no server is there outlives it.
 */
#include "sandbox/priv.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>
#include <string.h>

#include "io/base/log.h"
#include "io/fifo.h"
#include "recovery/fdstore.h"
#include "store/streams.h"

/* Names of a container's descriptors in the keeper: "<id>.out" and so on. */
#define FD_NAME_SIZE (ID_SIZE + 8)
static const char *const fd_kinds[] = {"in", "out", "err", "tty"};
enum { FD_TTY = 3, FD_KINDS = 4 };

static const char *fd_name(char *to, const struct container *c, int which)
{
	snprintf(to, FD_NAME_SIZE, "%s.%s", c->id, fd_kinds[which]);
	return to;
}

static int keep_fd(struct task *t, struct container *c, int which, int fd)
{
	char name[FD_NAME_SIZE];

	return fd < 0 ? 0 : fdstore_put(t, c->node->fdstore, fd_name(name, c, which), fd);
}

static void commit_position(void *data, const struct io_position *position,
			    void (*done)(void *done_data, int result), void *done_data)
{
	struct container *c = data;
	struct stream_row row = {
		.container_id = c->id,
		.log_inode = position->log_inode,
		.log_offset = position->log_offset,
		.spool_offset = {position->spool_offset[0], position->spool_offset[1]},
		.partial = {position->partial[0], position->partial[1]},
		.dropped = {position->dropped[0], position->dropped[1]},
		.unreported = {position->unreported[0], position->unreported[1]},
	};

	store_stream_put(c->node->store, &row, done, done_data);
}

/* The server's ends are the pump's from here on. */
static int start_pump(struct task *t, struct container *c, int out_fd, int err_fd, int tty_pipe_fd)
{
	struct container_io_spec spec = {
		.id = c->id,
		.dir = c->state_dir,
		.log_path = c->log_path,
		.out_fd = out_fd,
		.err_fd = err_fd,
		.is_tty = c->has_tty,
		.tty_pipe_fd = tty_pipe_fd,
		.position = c->has_position ? &c->position : NULL,
		.blocks = c->node->log_blocks,
		.commit = commit_position,
		.data = c,
	};

	return container_io_start(t, &spec, &c->io);
}

static int open_state_dir(const struct container *c, int *ret, struct error *err)
{
	int fd = openat(c->node->states_fd, c->id, O_RDONLY | O_DIRECTORY | O_CLOEXEC);

	if (fd < 0)
		return error_errno(err, errno, "open %s", c->state_dir);
	*ret = fd;
	return 0;
}

static int make_pipes(struct task *t, struct container *c, struct fifo_ends *ends)
{
	cleanup_close int dir = -1;
	struct container_info info = {0};
	struct fifo_spec spec = {
		.has = {c->has_stdin && !c->has_tty, true, !c->has_tty},
		.is_tty = c->has_tty,
		.pipe_size = c->node->pipe_size,
	};

	TRY(open_state_dir(c, &dir, &t->err));
	TRY(c->sandbox->kind->container_info(c->handle, &info));
	spec.dir = dir;
	spec.uid = info.host_uid;
	spec.gid = info.host_gid;
	return fifo_open(t, &spec, ends);
}

int container_open_pipes(struct task *t, struct container *c, struct fifo_ends *ends)
{
	TRY(make_pipes(t, c, ends));
	for (int i = 0; i < 3; i++)
		TRY(keep_fd(t, c, i, ends->server[i]));
	c->stdin_fd = take_fd(&ends->server[FIFO_STDIN]);
	return 0;
}

static void pump_main(struct task *t, void *arg)
{
	struct pump_start *p = arg;

	p->result = start_pump(t, p->container, p->out_fd, p->err_fd, -1);
	p->err = t->err;
	task_event_set(&p->done);
}

void container_start_pump(struct pump_start *p, struct container *c, struct fifo_ends *ends)
{
	*p = (struct pump_start){.container = c};
	task_event_init(&p->done);
	if (c->has_tty) {
		task_event_set(&p->done);
		return;
	}
	p->out_fd = take_fd(&ends->server[FIFO_STDOUT]);
	p->err_fd = take_fd(&ends->server[FIFO_STDERR]);
	task_start(c->node->loop, "start of a log", pump_main, p);
}

int container_wait_pump(struct task *t, struct pump_start *p)
{
	/* its task writes to the caller's stack */
	task_event_finish(t, &p->done);
	return p->result < 0 ? error_copy(&t->err, &p->err) : 0;
}

int container_open_terminal(struct task *t, struct container *c, struct fifo_ends *ends, int master)
{
	int r = keep_fd(t, c, FD_TTY, master);

	if (r < 0) {
		close_fd(master);
		return r;
	}
	return start_pump(t, c, master, -1, take_fd(&ends->server[FIFO_STDOUT]));
}

struct container_output container_output(const struct container *c)
{
	struct container_output o = {0};
	struct container_io_stats stats;

	if (c->io) {
		stats = container_io_stats(c->io);
		o.is_log_failing = stats.is_log_failing;
		memcpy(o.taken, stats.bytes, sizeof(o.taken));
		memcpy(o.logged, stats.logged, sizeof(o.logged));
		memcpy(o.dropped, stats.dropped, sizeof(o.dropped));
		return o;
	}
	memcpy(o.taken, c->position.spool_offset, sizeof(o.taken));
	memcpy(o.dropped, c->position.dropped, sizeof(o.dropped));
	for (int i = 0; i < 2; i++)
		o.logged[i] = c->log_path ? o.taken[i] - o.dropped[i] : 0;
	return o;
}

void container_give_up_output(struct container *c)
{
	if (c->io)
		container_io_give_up(c->io);
}

int container_drain_io(struct task *t, struct container *c)
{
	return c->io ? container_io_drain(t, c->io) : 0;
}

void container_drop_io(struct task *t, struct container *c)
{
	char name[FD_NAME_SIZE];

	if (c->io)
		c->position = container_io_position(c->io);
	container_io_free(c->io);
	c->io = NULL;
	close_fd(take_fd(&c->stdin_fd));
	for (int i = 0; i < FD_KINDS; i++)
		if (fdstore_drop(t, c->node->fdstore, fd_name(name, c, i)) < 0)
			log_warning("container %s: %s stays in the keeper: %s", c->id, fd_kinds[i],
				    t->err.text);
}

/* Our end again: the keeper's copy has what was in the pipe, the path only what a living container
 * holds. */
static int reopen_end(struct task *t, struct container *c, int dir, enum fifo_name which, int *ret)
{
	char name[FD_NAME_SIZE];
	int fd = fdstore_take(c->node->fdstore, fd_name(name, c, (int)which));

	if (fd < 0)
		TRY(fifo_open_server_end(dir, which, c->has_tty, &fd, &t->err));
	TRY(keep_fd(t, c, (int)which, fd));
	*ret = fd;
	return 0;
}

int container_reopen_io(struct task *t, struct container *c)
{
	cleanup_close int dir = -1, out = -1, err = -1, master = -1;
	char name[FD_NAME_SIZE];

	/* the keeper may still have the pipes, and what comes through them needs a place */
	if (mkdirat(c->node->states_fd, c->id, 0711) == 0)
		log_error("container %s: %s was missing; output that was not logged yet is lost",
			  c->id, c->state_dir);
	TRY(open_state_dir(c, &dir, &t->err));
	if (c->has_stdin && !c->has_tty && reopen_end(t, c, dir, FIFO_STDIN, &c->stdin_fd) < 0)
		log_debug("container %s: stdin is closed: %s", c->id, t->err.text);
	TRY(reopen_end(t, c, dir, FIFO_STDOUT, &out));
	if (!c->has_tty) {
		TRY(reopen_end(t, c, dir, FIFO_STDERR, &err));
		return start_pump(t, c, take_fd(&out), take_fd(&err), -1);
	}
	master = fdstore_take(c->node->fdstore, fd_name(name, c, FD_TTY));
	if (master < 0)
		log_warning("container %s: its terminal went with the server, as no keeper held it",
			    c->id);
	return start_pump(t, c, take_fd(&master), -1, take_fd(&out));
}

int container_reopen_log(struct task *t, struct node *n, const char *id)
{
	struct container *c cleanup_container = NULL;

	TRY(container_acquire(t, n, id, &c));
	if (c->state != CONTAINER_RUNNING)
		return error_set(&t->err, ERR_PRECONDITION,
				 "container %s is not running: its log is closed", c->id);
	if (!c->io)
		return error_set(&t->err, ERR_PRECONDITION, "container %s has no log", c->id);
	return container_io_reopen(t, c->io);
}
