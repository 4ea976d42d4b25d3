/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Scope cleanup, for what is ours alone: memory and descriptors. What the world can see (mounts,
 * processes, rows) is undone by the owners' teardown functions, never here. Declare and initialise
 * on one line.
 */
#pragma once

#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#define CLEANUP(function) __attribute__((cleanup(function)))

static inline void cleanup_free_fn(void *p)
{
	free(*(void **)p);
}

/* close(2) keeps errno, so that it can stand between a failing call and its report. */
static inline void close_fd(int fd)
{
	int saved = errno;

	if (fd >= 0)
		close(fd);
	errno = saved;
}

static inline void cleanup_close_fn(const int *fd)
{
	close_fd(*fd);
}

static inline void cleanup_closedir_fn(DIR **dir)
{
	if (*dir)
		closedir(*dir);
}

static inline void cleanup_fclose_fn(FILE **file)
{
	if (*file)
		fclose(*file);
}

#define cleanup_free CLEANUP(cleanup_free_fn)
#define cleanup_close CLEANUP(cleanup_close_fn)
#define cleanup_closedir CLEANUP(cleanup_closedir_fn)
#define cleanup_fclose CLEANUP(cleanup_fclose_fn)

/* Moves the value out, leaving NULL or -1 for the cleanup. */
#define take_ptr(p)                                                                                \
	({                                                                                         \
		__typeof__(p) *take_ = &(p);                                                       \
		__typeof__(p) value_ = *take_;                                                     \
		*take_ = NULL;                                                                     \
		value_;                                                                            \
	})

static inline int take_fd(int *fd)
{
	int value = *fd;

	*fd = -1;
	return value;
}
