/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Making and opening a container's FIFOs. Peculiar: the real uid is a thread's own as far as the
 * kernel knows, and only the raw system call changes it for this thread alone; glibc's wrapper
 * would change all of them.
 */
#include "io/fifo.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "io/base/alloc.h"
#include "io/base/cleanup.h"
#include "io/base/fault.h"
#include "io/offload.h"

static const char *const names[3] = {"0", "1", "2"};

struct fifo_job {
	struct job job;
	struct fifo_spec spec; /* dir is a duplicate of its own */
	struct fifo_ends ends;
};

static int check_fifo(int fd, const char *name, struct error *err)
{
	struct stat st;

	if (fstat(fd, &st) < 0)
		return error_errno(err, errno, "stat FIFO %s", name);
	if (!S_ISFIFO(st.st_mode))
		return error_set(err, ERR_PRECONDITION,
				 "file %s in the container's state directory: not a FIFO; somebody "
				 "replaced it",
				 name);
	return 0;
}

static int create_one(const struct fifo_spec *s, const char *name, struct error *err)
{
	struct stat st;

	if (mkfifoat(s->dir, name, 0600) < 0 && errno != EEXIST)
		return error_errno(err, errno, "make FIFO %s", name);
	if (fstatat(s->dir, name, &st, AT_SYMLINK_NOFOLLOW) < 0)
		return error_errno(err, errno, "stat FIFO %s", name);
	if (!S_ISFIFO(st.st_mode))
		return error_set(err, ERR_PRECONDITION,
				 "make FIFO %s: another file of that name is there; remove it",
				 name);
	if ((st.st_uid != s->uid || st.st_gid != s->gid) &&
	    fchownat(s->dir, name, s->uid, s->gid, AT_SYMLINK_NOFOLLOW) < 0)
		return error_errno(err, errno, "give FIFO %s to user %u:%u", name, s->uid, s->gid);
	/* whatever the umask was */
	if ((st.st_mode & 07777) != 0600 && fchmodat(s->dir, name, 0600, 0) < 0)
		return error_errno(err, errno, "set the mode of FIFO %s", name);
	return 0;
}

static bool is_wanted(const struct fifo_spec *s, int which)
{
	return s->has[which] && (!s->is_tty || which == FIFO_STDOUT);
}

static int create_all(struct fifo_job *j, struct error *err)
{
	for (int i = 0; i < 3; i++)
		if (is_wanted(&j->spec, i))
			TRY(create_one(&j->spec, names[i], err));
	FAULT(fifos_made);
	return 0;
}

static int open_one(int dir, const char *name, int flags, int *ret_fd, struct error *err)
{
	cleanup_close int fd = openat(dir, name, flags | O_CLOEXEC | O_NOFOLLOW | O_NOCTTY);

	if (fd < 0)
		return error_errno(err, errno, "open FIFO %s", name);
	TRY(check_fifo(fd, name, err));
	*ret_fd = take_fd(&fd);
	return 0;
}

/* The first opening makes the pipe and decides whom it is charged to. */
static int open_container_end(struct fifo_job *j, int which, struct error *err)
{
	size_t size = j->spec.pipe_size ? j->spec.pipe_size : FIFO_PIPE_SIZE;
	cleanup_close int fd = -1;
	int flags;

	if (j->spec.is_tty || which != FIFO_STDIN)
		flags = O_RDWR | (j->spec.is_tty ? O_NONBLOCK : 0);
	else
		flags = O_RDONLY | O_NONBLOCK; /* nobody writes yet: would wait */
	TRY(open_one(j->spec.dir, names[which], flags, &fd, err));
	(void)fcntl(fd, F_SETPIPE_SZ, (int)size);
	if (!j->spec.is_tty && which == FIFO_STDIN && fcntl(fd, F_SETFL, 0) < 0)
		return error_errno(err, errno, "make FIFO %s blocking", names[which]);
	if (j->spec.is_tty)
		j->ends.server[which] = take_fd(&fd);
	else
		j->ends.container[which] = take_fd(&fd);
	return 0;
}

static int open_all(struct fifo_job *j, struct error *err)
{
	for (int i = 0; i < 3; i++) {
		if (!is_wanted(&j->spec, i))
			continue;
		TRY(open_container_end(j, i, err));
		if (!j->spec.is_tty)
			TRY(fifo_open_server_end(j->spec.dir, i, false, &j->ends.server[i], err));
	}
	return 0;
}

static int open_run(struct job *job, struct error *err)
{
	struct fifo_job *j = (struct fifo_job *)job;
	uid_t real = getuid();
	bool is_ours;
	int r;

	TRY(create_all(j, err));
	is_ours = geteuid() == 0 && syscall(SYS_setresuid, FIFO_REAL_UID, -1, -1) == 0;
	r = open_all(j, err);
	/* a thread of the pool that kept the uid would charge it with other people's pipes */
	if (is_ours && syscall(SYS_setresuid, real, -1, -1) < 0)
		abort();
	return r;
}

static void fifo_job_free(struct job *job)
{
	struct fifo_job *j = (struct fifo_job *)job;

	fifo_ends_close(&j->ends);
	close_fd(j->spec.dir);
	free(j);
}

int fifo_open(struct task *t, const struct fifo_spec *spec, struct fifo_ends *ret)
{
	struct fifo_job *j = xnew(struct fifo_job);
	int r;

	job_init(&j->job, open_run, fifo_job_free);
	j->spec = *spec;
	j->spec.dir = fcntl(spec->dir, F_DUPFD_CLOEXEC, 0);
	j->ends = fifo_ends_none();
	r = j->spec.dir < 0 ? error_errno(&t->err, errno, "hold the container's state directory")
			    : offload(t, NULL, &j->job);
	if (r == 0) {
		*ret = j->ends;
		j->ends = fifo_ends_none();
	}
	job_unref(&j->job);
	return r;
}

void fifo_ends_close(struct fifo_ends *ends)
{
	for (int i = 0; i < 3; i++) {
		close_fd(ends->container[i]);
		close_fd(ends->server[i]);
	}
	*ends = fifo_ends_none();
}

int fifo_open_server_end(int dir, enum fifo_name which, bool is_tty, int *ret_fd, struct error *err)
{
	int flags = is_tty ? O_RDWR : which == FIFO_STDIN ? O_WRONLY : O_RDONLY;
	int r = open_one(dir, names[which], flags | O_NONBLOCK, ret_fd, err);

	if (r < 0 && which == FIFO_STDIN && err && err->sys == ENXIO)
		return error_set(err, ERR_PRECONDITION,
				 "open FIFO 0: nobody reads it; the container has ended or closed "
				 "its stdin");
	return r;
}
