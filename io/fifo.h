/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The FIFOs of a container: "0", "1" and "2" in its state directory, mode 0600 and owned by the
 * container's user, so that /dev/stdout can be opened again there. For stdout and stderr the
 * container holds both ends (O_RDWR) and never sees EPIPE while the server is away; for stdin it
 * holds the reading end only, so that closing ours is its end of file.
 *
 * With a terminal there are no ends for the container: "1" is then the pipe that the terminal's
 * output goes through on its way to the spool (container_io.h), both ends ours.
 *
 * A pipe's memory is charged to the real uid that opened it first, and past a limit the kernel
 * gives every process of that uid small pipes (pipe(7), pipe-user-pages-soft). So they are opened
 * under FIFO_REAL_UID, by a thread that keeps the effective uid 0.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

#include "io/base/error.h"

struct task;

/* What a container can write before it waits for a server that is down. */
#define FIFO_PIPE_SIZE (256 * 1024)
/* A real uid of our own, outside the ranges that systems, systemd and user namespaces hand out.
 * Nothing runs or owns a file under it. Where it is not mapped (within a user namespace), or when
 * the server is not root, the pipes are charged to the server's own uid. */
#define FIFO_REAL_UID 0x7e637269u

enum fifo_name {
	FIFO_STDIN,
	FIFO_STDOUT,
	FIFO_STDERR,
};

struct fifo_spec {
	int dir;   /* the container's state directory, borrowed for the call */
	uid_t uid; /* the owner, as the host sees it */
	gid_t gid;
	bool has[3];	  /* which of them, by enum fifo_name */
	bool is_tty;	  /* has[FIFO_STDOUT] is the terminal's pipe, the others are ignored */
	size_t pipe_size; /* bytes, 0 for FIFO_PIPE_SIZE */
};

/* -1 where there is none. */
struct fifo_ends {
	int container[3]; /* blocking, for the container's 0, 1, 2; close them once it is born */
	int server[3];	  /* O_NONBLOCK */
};

static inline struct fifo_ends fifo_ends_none(void)
{
	return (struct fifo_ends){.container = {-1, -1, -1}, .server = {-1, -1, -1}};
}

/*
 * Makes the FIFOs (one that exists is kept, and gets mode and owner again), then opens all ends:
 * the container's first, then ours, and sizes the pipes. A size that the kernel refuses is no
 * error: the pipe is then as large as it may be. Keep the container's ends open until the container
 * is born, or the server's would see a hang-up.
 */
int fifo_open(struct task *t, const struct fifo_spec *spec, struct fifo_ends *ret);
void fifo_ends_close(struct fifo_ends *ends);

/*
 * Our end again, of a container that runs (a server without its keeper). Does not wait. stdin with
 * nobody reading is -ERR_PRECONDITION; what is no FIFO is refused. is_tty as above. A pipe that
 * nobody held meanwhile is new and empty.
 */
int fifo_open_server_end(int dir, enum fifo_name which, bool is_tty, int *ret_fd,
			 struct error *err);
