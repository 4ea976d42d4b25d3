/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Files by descriptor. A path that others had a hand in is opened beneath a directory that we hold
 * (openat2(2)), so no link leads out; a tree is removed and measured without recursion, links are
 * never followed and mounts never crossed. What has no task parameter blocks: call it from offload,
 * from a child, or at start.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "io/base/buf.h"
#include "io/base/error.h"

struct task;

/* openat2(2) with close-on-exec: a descriptor or -errno. resolve: RESOLVE_* of linux/openat2.h. */
int fs_openat2(int dir, const char *path, int flags, mode_t mode, uint64_t resolve);
/* Refuses what leads out of dir, by "..", an absolute path or a link (RESOLVE_BENEATH). */
int fs_open_beneath(int dir, const char *path, int flags, mode_t mode, int *ret_fd,
		    struct error *err);
/* Takes dir for the root, as a process that was chrooted there would (RESOLVE_IN_ROOT). */
int fs_open_in_root(int dir, const char *path, int flags, mode_t mode, int *ret_fd,
		    struct error *err);

/* Appends the whole regular file; -ERR_INVALID when it is larger than max or no regular file. A
 * file that is not there is -ERR_NOT_FOUND: name is looked up beneath dir. */
int fs_read_at(int dir, const char *name, size_t max, struct buf *ret, struct error *err);

/* The same for a path of the host's own, links followed; a missing file is no ERR_NOT_FOUND here.
 */
int fs_read_file(const char *path, size_t max, struct buf *ret, struct error *err);
/* The same, but what it opens is no link, though one may lead there. */
int fs_read_no_link(const char *path, size_t max, struct buf *ret, struct error *err);
/* Makes or overwrites dir/name; not atomic, not synced. */
int fs_write_at(int dir, const char *name, const struct buf *content, mode_t mode,
		struct error *err);
/* Makes the directory of that absolute path with mode, and missing ones above it with 0755. */
int fs_make_dirs(const char *path, mode_t mode, struct error *err);

/* The blocks (in bytes) and inodes of everything beneath the directory and itself, a hard-linked
 * file once, other file systems not entered. It may change meanwhile. */
int fs_usage(int dir, uint64_t *ret_bytes, uint64_t *ret_inodes, struct error *err);

/* Removes dir/name and all that is in it: 0 also when it was not there. Depth and number of entries
 * cost no memory or descriptors. A mount point within is an error that names it. */
int fs_remove_tree_blocking(int dir, const char *name, struct error *err);
/* The same on another thread. When the wait ends early the removal still runs to its end. */
int fs_remove_tree(struct task *t, int dir, const char *name);

/* Undoes what mountinfo (proc_pid_mountinfo(5)) does to space, tab, newline and backslash: \ooo. */
void fs_unescape_mount(char *s);
/* Unmounts (MNT_DETACH) what is mounted on that absolute path and below it. */
int fs_unmount_below(const char *dir, struct error *err);

#define FS_RANDOM_NAME 33
/* 32 random hex digits. */
void fs_random_name(char name[FS_RANDOM_NAME]);
