/* SPDX-License-Identifier: Apache-2.0 */
/* Plans. Peculiar: everything is 8-byte aligned, since the helper uses it in place. */
#include "sandbox/linux/plan.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>

#include "io/base/alloc.h"
#include "io/base/cleanup.h"

static uint32_t append(struct plan_builder *b, const void *data, size_t size)
{
	static const char zeros[8];
	size_t offset = b->bytes.length;

	buf_append(&b->bytes, data, size);
	buf_append(&b->bytes, zeros, -b->bytes.length & 7);
	return (uint32_t)offset;
}

static int add_fd(struct plan_builder *b, int fd, bool is_owned)
{
	if (fd < 0)
		return -1;
	b->fds = xrealloc(b->fds, (b->fd_count + 1) * sizeof(*b->fds));
	b->fds[b->fd_count] = (struct plan_fd){fd, is_owned};
	return (int)b->fd_count++;
}

void plan_init(struct plan_builder *b, enum init_stage stage, const int stdio[3])
{
	static const uint32_t null_flags[] = {PLAN_NULL_STDIN, PLAN_NULL_STDOUT, PLAN_NULL_STDERR};
	struct plan plan = {
		.magic = PLAN_MAGIC,
		.stage = stage,
		.root_fd = -1,
		.net_fd = -1,
		.ipc_fd = -1,
		.shm_fd = -1,
		.sys_fd = -1,
		.exec_fd = -1,
	};

	*b = (struct plan_builder){0};
	b->fds = xcalloc(INIT_FD_FIRST, sizeof(*b->fds));
	b->fd_count = INIT_FD_FIRST;
	for (int i = 0; i < INIT_FD_FIRST; i++)
		b->fds[i].fd = i < 3 ? stdio[i] : -1;
	for (int i = 0; i < 3; i++)
		if (stdio[i] < 0)
			plan.flags |= null_flags[i];
	append(b, &plan, sizeof(plan));
}

void plan_done(struct plan_builder *b)
{
	for (size_t i = 0; i < b->fd_count; i++)
		if (b->fds[i].is_owned)
			close_fd(b->fds[i].fd);
	free(b->fds);
	buf_done(&b->bytes);
	*b = (struct plan_builder){0};
}

struct plan *plan_get(struct plan_builder *b)
{
	return (struct plan *)(void *)b->bytes.data;
}

int plan_give_fd(struct plan_builder *b, int fd)
{
	return add_fd(b, fd, true);
}

int plan_lend_fd(struct plan_builder *b, int fd)
{
	return add_fd(b, fd, false);
}

plan_string plan_add_string(struct plan_builder *b, const char *s)
{
	return s ? append(b, s, strlen(s) + 1) : 0;
}

struct plan_list plan_add_list(struct plan_builder *b, const void *items, size_t count, size_t size)
{
	struct plan_list list = {.count = (uint32_t)count};

	list.offset = append(b, items, count * size);
	return list;
}

struct plan_list plan_add_strings(struct plan_builder *b, const struct string_list *strings)
{
	plan_string *offsets = xcalloc(strings->count + 1, sizeof(*offsets));
	struct plan_list list;

	for (size_t i = 0; i < strings->count; i++)
		offsets[i] = plan_add_string(b, strings->items[i]);
	list = plan_add_list(b, offsets, strings->count, sizeof(*offsets));
	free(offsets);
	return list;
}

struct plan_list plan_add_vector(struct plan_builder *b, const struct string_list *strings)
{
	uint64_t *offsets = xcalloc(strings->count + 1, sizeof(*offsets));
	struct plan_list list;

	for (size_t i = 0; i < strings->count; i++)
		offsets[i] = plan_add_string(b, strings->items[i]);
	list = plan_add_list(b, offsets, strings->count + 1, sizeof(*offsets));
	list.count--;
	free(offsets);
	return list;
}

static int write_plan(struct plan_builder *b, int fd, struct error *err)
{
	size_t done = 0;

	plan_get(b)->size = (uint32_t)b->bytes.length;
	while (done < b->bytes.length) {
		ssize_t n = write(fd, b->bytes.data + done, b->bytes.length - done);

		if (n < 0)
			return error_errno(err, errno, "write the plan of a process");
		done += (size_t)n;
	}
	return 0;
}

int plan_seal(struct plan_builder *b, int *ret_control, struct error *err)
{
	cleanup_close int memory = memfd_create("plan", MFD_CLOEXEC);
	int pair[2];

	if (memory < 0)
		return error_errno(err, errno, "make a memfd for the plan of a process");
	TRY(write_plan(b, memory, err));
	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, pair) < 0)
		return error_errno(err, errno, "make a socket to the init helper");
	/* the helper waits, the server's end goes through the loop */
	if (fcntl(pair[1], F_SETFL, 0) < 0) {
		close_fd(pair[0]);
		close_fd(pair[1]);
		return error_errno(err, errno, "prepare a socket to the init helper");
	}
	b->fds[INIT_FD_PLAN] = (struct plan_fd){take_fd(&memory), true};
	b->fds[INIT_FD_CONTROL] = (struct plan_fd){pair[1], true};
	*ret_control = pair[0];
	return 0;
}
