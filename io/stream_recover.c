/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Taking up streams. Peculiar: the kubelet renames a log first and asks for a new one afterwards; a
 * server that dies in between finds its last records in a file whose name it never heard, so the
 * inode is what is remembered.
 */
#include "io/stream_recover.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "io/base/alloc.h"
#include "io/base/cleanup.h"
#include "io/crilog.h"

char *stream_spool_path(const char *dir, int stream)
{
	return xasprintf("%s/%d.spool", dir, stream + 1);
}

void stream_recovery_done(struct stream_recovery *r)
{
	for (int i = 0; i < 2; i++)
		spool_close(&r->spool[i]);
	close_fd(r->log_fd);
	r->log_fd = -1;
}

/* The descriptor of the regular file with that inode beside path, or -1. */
static int find_rotated(const char *path, uint64_t inode)
{
	const char *base = strrchr(path, '/') + 1;
	cleanup_free char *parent = strndup(path, (size_t)(base - path));
	cleanup_closedir DIR *dir = parent ? opendir(parent) : NULL;
	struct dirent *entry;

	while (dir && (entry = readdir(dir))) {
		struct stat st;

		if (strncmp(entry->d_name, base, strlen(base)) == 0 &&
		    fstatat(dirfd(dir), entry->d_name, &st, AT_SYMLINK_NOFOLLOW) == 0 &&
		    (uint64_t)st.st_ino == inode && S_ISREG(st.st_mode))
			return openat(dirfd(dir), entry->d_name,
				      O_RDWR | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK);
	}
	return -1;
}

static int read_tail(int log_fd, const struct stream_recovery *r, struct io_position *pos,
		     struct error *err)
{
	struct crilog_position tail = {.log_offset = pos->log_offset};

	memcpy(tail.spool_offset, pos->spool_offset, sizeof(tail.spool_offset));
	memcpy(tail.partial, pos->partial, sizeof(tail.partial));
	memcpy(tail.unreported, pos->unreported, sizeof(tail.unreported));
	TRY(crilog_recover(log_fd, r->spool, &tail, err));
	pos->log_offset = tail.log_offset;
	memcpy(pos->spool_offset, tail.spool_offset, sizeof(tail.spool_offset));
	memcpy(pos->partial, tail.partial, sizeof(tail.partial));
	memcpy(pos->unreported, tail.unreported, sizeof(tail.unreported));
	return 0;
}

static int recover_log(const char *path, struct stream_recovery *r, struct error *err)
{
	struct io_position *pos = &r->position;
	uint64_t inode, size;

	TRY(crilog_open(path, true, &r->log_fd, &inode, &size, err));
	if (pos->log_inode == inode)
		return read_tail(r->log_fd, r, pos, err);
	if (pos->log_inode) {
		cleanup_close int rotated = find_rotated(path, pos->log_inode);

		if (rotated >= 0)
			TRY(read_tail(rotated, r, pos, err));
	}
	pos->log_inode = inode;
	pos->log_offset = size;
	r->must_commit = true;
	return 0;
}

/* A container that runs already must not wait for a log that can't be opened: the pump tries it
 * again, as it does with one that fails later. */
static int recover_log_or_later(const char *path, struct stream_recovery *r, struct error *err)
{
	struct io_position was = r->position;
	int result = recover_log(path, r, err);

	if (result == 0 || !was.log_inode)
		return result;
	close_fd(take_fd(&r->log_fd));
	r->position = was;
	r->position.log_inode = r->position.log_offset = 0;
	return 0;
}

static int recover_all(const char *dir, const char *log_path, struct stream_recovery *r,
		       struct error *err)
{
	struct io_position *pos = &r->position;

	for (int i = 0; i < 2; i++) {
		cleanup_free char *path = stream_spool_path(dir, i);

		TRY(spool_open(&r->spool[i], path, false, err));
		/* a state directory that was emptied: the stream begins anew */
		if (pos->spool_offset[i] > r->spool[i].end) {
			pos->spool_offset[i] = r->spool[i].end;
			r->must_commit = true;
		}
	}
	if (log_path)
		TRY(recover_log_or_later(log_path, r, err));
	for (int i = 0; i < 2; i++) {
		if (!log_path)
			pos->spool_offset[i] = r->spool[i].end;
		r->hole[i] = spool_find_hole(&r->spool[i], pos->spool_offset[i]);
	}
	return 0;
}

int stream_recover(const char *dir, const char *log_path, const struct io_position *position,
		   struct stream_recovery *ret, struct error *err)
{
	struct stream_recovery r = {.spool = {{.fd = -1}, {.fd = -1}}, .log_fd = -1};
	int result;

	if (position)
		r.position = *position;
	result = recover_all(dir, log_path, &r, err);
	if (result < 0)
		stream_recovery_done(&r);
	else
		*ret = r;
	return result;
}
