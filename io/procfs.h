/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Files of procfs by which a process, a namespace or the kernel is changed. What lies at /proc may
 * be another file system, and a file in it may be covered by another one, so that what is written
 * changes nothing, or the wrong thing (CVE-2025-52881, CVE-2023-28642). So nothing beneath /proc is
 * opened to be written but by this: the root must be that of a procfs, and the way from there stays
 * in that very mount. All functions return -errno, where -EXDEV says that something else than the
 * kernel's own file is there. Needs nothing of the C library but what sandbox/linux/init/calls.c
 * has, since the init helper is linked with it.
 */
#pragma once

/* Opens path, as "self/oom_score_adj", beneath the caller's /proc, close-on-exec. */
int procfs_open(const char *path, int flags);
/* The same beneath dir, which one of these functions opened. */
int procfs_open_at(int dir, const char *path, int flags);
/* Opens, writes text with one write(2), closes. 0 or -errno. */
int procfs_write(const char *path, const char *text);
int procfs_write_at(int dir, const char *path, const char *text);
/* The root of a procfs that is mounted nowhere, so that nobody can cover what is in it; the
 * verified /proc where the kernel refuses us one. It costs about 0.1 ms. */
int procfs_own(void);
