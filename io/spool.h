/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A spool: the file in which a stream's bytes are from the moment they left the pipe until they are
 * in the log. It is only ever written at its end, by splice(2), and given back from its beginning
 * by holes; it is never truncated, so an offset in the file is an offset in the stream, over all
 * restarts. What is held costs memory (the state directory is a tmpfs), a hole costs none; the last
 * page stays.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "io/base/error.h"

struct spool {
	int fd;		  /* -1 while closed; anybody may close it in between */
	uint64_t end;	  /* the stream's bytes so far */
	uint64_t punched; /* below this nothing is left to give back */
};

/* Opens path and takes the file's size for the end; makes it when may_create. Otherwise a missing
 * one is an empty spool, 0 with fd -1. Nothing else than a regular file is taken. */
int spool_open(struct spool *s, const char *path, bool may_create, struct error *err);
void spool_close(struct spool *s);
/* One splice of at most max bytes: how many, 0 at a hang-up, or -errno (-EAGAIN: nothing there). */
ssize_t spool_take(struct spool *s, int pipe_fd, size_t max);
/* How many bytes were read from the offset on (fewer only at the end), or -errno. */
ssize_t spool_read(const struct spool *s, uint64_t offset, void *data, size_t size);
/* Gives back the whole pages before offset: 0 or -errno. */
int spool_punch(struct spool *s, uint64_t offset);

/* Bytes that were given up before they were logged: a hole in front of bytes that still are to be.
 */
struct spool_hole {
	uint64_t begin, end; /* of whole pages; equal: none */
};

/* Makes one of the whole pages between two offsets: 0 or -errno. */
int spool_dig(struct spool *s, uint64_t begin, uint64_t end, struct spool_hole *ret);
/* Finds the first one that is not before offset. */
struct spool_hole spool_find_hole(const struct spool *s, uint64_t offset);
