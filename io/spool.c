/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Splice in, read, punch. Peculiar: the write position is given with each splice instead of
 * O_APPEND, which splice(2) refuses.
 */
#include "io/spool.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "io/base/cleanup.h"
#include "io/base/fault.h"

#define PAGE 4096u

int spool_open(struct spool *s, const char *path, bool may_create, struct error *err)
{
	int flags = O_RDWR | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK | (may_create ? O_CREAT : 0);
	cleanup_close int fd = open(path, flags, 0600);
	struct stat st;

	if (fd < 0 && errno == ENOENT && !may_create) {
		*s = (struct spool){.fd = -1};
		return 0;
	}
	if (fd < 0)
		return error_errno(err, errno, "open spool %s", path);
	if (fstat(fd, &st) < 0)
		return error_errno(err, errno, "stat spool %s", path);
	if (!S_ISREG(st.st_mode))
		return error_set(err, ERR_PRECONDITION,
				 "open spool %s: not a regular file; somebody replaced it", path);
	s->fd = take_fd(&fd);
	s->end = (uint64_t)st.st_size;
	return 0;
}

void spool_close(struct spool *s)
{
	close_fd(s->fd);
	s->fd = -1;
}

ssize_t spool_take(struct spool *s, int pipe_fd, size_t max)
{
	loff_t offset = (loff_t)s->end;
	ssize_t n;

	do {
		n = splice(pipe_fd, NULL, s->fd, &offset, max, SPLICE_F_NONBLOCK | SPLICE_F_MOVE);
	} while (n < 0 && errno == EINTR);
	if (n < 0)
		return -errno;
	FAULT(stream_spliced);
	s->end += (uint64_t)n;
	return n;
}

ssize_t spool_read(const struct spool *s, uint64_t offset, void *data, size_t size)
{
	size_t got = 0;

	while (got < size) {
		ssize_t n = pread(s->fd, (char *)data + got, size - got, (off_t)(offset + got));

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return -errno;
		if (n == 0)
			break;
		got += (size_t)n;
	}
	return (ssize_t)got;
}

static int punch(struct spool *s, uint64_t begin, uint64_t end)
{
	if (fallocate(s->fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, (off_t)begin,
		      (off_t)(end - begin)) < 0)
		return -errno;
	return 0;
}

int spool_punch(struct spool *s, uint64_t offset)
{
	uint64_t upto = offset / PAGE * PAGE;
	int r;

	if (upto <= s->punched)
		return 0;
	r = punch(s, s->punched, upto);
	if (r < 0)
		return r;
	s->punched = upto;
	FAULT(spool_given_back);
	return 0;
}

int spool_dig(struct spool *s, uint64_t begin, uint64_t end, struct spool_hole *ret)
{
	struct spool_hole hole = {(begin + PAGE - 1) / PAGE * PAGE, end / PAGE * PAGE};
	int r = 0;

	if (hole.end <= hole.begin)
		hole = (struct spool_hole){0};
	else
		r = punch(s, hole.begin, hole.end);
	if (r == 0)
		*ret = hole;
	return r;
}

struct spool_hole spool_find_hole(const struct spool *s, uint64_t offset)
{
	struct spool_hole hole = {0};
	off_t begin, end;

	if (s->fd < 0 || offset >= s->end)
		return hole;
	begin = lseek(s->fd, (off_t)offset, SEEK_HOLE);
	/* there is always one behind the end */
	if (begin < 0 || (uint64_t)begin >= s->end)
		return hole;
	end = lseek(s->fd, begin, SEEK_DATA);
	hole.begin = (uint64_t)begin;
	hole.end = end < 0 ? s->end : (uint64_t)end;
	return hole;
}
