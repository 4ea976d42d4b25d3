/* SPDX-License-Identifier: Apache-2.0 */
/* The unpacker's parent. Peculiar: the report comes from a process that read what others wrote, so
 * its sizes are bounded and its strings are ended here. */
#include "store/image/unpack.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/openat2.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <sys/xattr.h>
#include <unistd.h>

#include "io/base/alloc.h"
#include "io/base/buf.h"
#include "io/base/cleanup.h"
#include "io/embed.h"
#include "io/fs.h"
#include "io/offload.h"
#include "io/process.h"
#include "store/image/unpack/protocol.h"

extern const char unpack_program[], unpack_program_end[];

struct unpacker {
	int exe;
	struct worker *worker;
};

struct unpacker *unpacker_new(struct error *err)
{
	struct unpacker *u = xnew(struct unpacker);

	if (embed_memfd("crisp-unpack", unpack_program, unpack_program_end, &u->exe, err) < 0) {
		free(u);
		return NULL;
	}
	u->worker = worker_new("unpack", NULL, NULL, err);
	if (!u->worker) {
		close(u->exe);
		free(u);
		return NULL;
	}
	return u;
}

void unpacker_free(struct unpacker *u)
{
	if (!u)
		return;
	worker_free(u->worker);
	close(u->exe);
	free(u);
}

struct start_job {
	struct job job;
	char max_bytes[24], max_inodes[24];
	bool is_layer;
	int exe;
	int *extra; /* what the child gets, from UNPACK_STREAM on; -1: none any more */
	size_t extra_count;
	int pidfd; /* result; whoever takes it must see the child's end */
};

#define REPORT_INDEX (UNPACK_REPORT - UNPACK_STREAM)

static int start_run(struct job *job, struct error *err)
{
	struct start_job *j = container_of(job, struct start_job, job);
	const char *argv[] = {"crisp-unpack", j->is_layer ? "layer" : "archive", j->max_bytes,
			      j->max_inodes, NULL};
	struct process_spec spec = {.exe_fd = j->exe,
				    .argv = argv,
				    .stdio = {-1, -1, -1},
				    .extra = j->extra,
				    .extra_count = j->extra_count};
	pid_t pid;
	int r = process_start(&spec, &j->pidfd, &pid, err);

	/* else the report's end would not be seen */
	close_fd(take_fd(&j->extra[REPORT_INDEX]));
	return r;
}

static void start_free(struct job *job)
{
	struct start_job *j = container_of(job, struct start_job, job);
	siginfo_t info;

	/* nobody waited for it to the end */
	if (j->pidfd >= 0) {
		process_signal(j->pidfd, SIGKILL, NULL);
		waitid((idtype_t)P_PIDFD, (id_t)j->pidfd, &info, WEXITED);
		close(j->pidfd);
	}
	for (size_t i = 0; i < j->extra_count; i++)
		close_fd(j->extra[i]);
	close_fd(j->exe);
	free(j->extra);
	free(j);
}

static struct start_job *start_new(struct unpacker *u, const struct unpack_request *q, int report)
{
	struct start_job *j = xnew(struct start_job);

	job_init(&j->job, start_run, start_free);
	snprintf(j->max_bytes, sizeof(j->max_bytes), "%llu", (unsigned long long)q->max_bytes);
	snprintf(j->max_inodes, sizeof(j->max_inodes), "%llu", (unsigned long long)q->max_inodes);
	j->is_layer = q->is_layer;
	j->pidfd = -1;
	j->exe = fcntl(u->exe, F_DUPFD_CLOEXEC, 3);
	j->extra_count = UNPACK_LOWER - UNPACK_STREAM + q->lower_count;
	j->extra = xcalloc(j->extra_count, sizeof(int));
	j->extra[0] = fcntl(q->stream, F_DUPFD_CLOEXEC, 3);
	j->extra[1] = fcntl(q->target, F_DUPFD_CLOEXEC, 3);
	j->extra[REPORT_INDEX] = report;
	for (size_t i = 0; i < q->lower_count; i++)
		j->extra[REPORT_INDEX + 1 + i] = fcntl(q->lowers[i], F_DUPFD_CLOEXEC, 3);
	return j;
}

/* The report's pipe is the job's from here on. */
static int start(struct task *t, struct unpacker *u, const struct unpack_request *q, int report,
		 int *ret_pidfd)
{
	struct start_job *j = start_new(u, q, report);
	int r = 0;

	/* a descriptor that could not be had would arrive as /dev/null */
	for (size_t i = 0; i < j->extra_count; i++)
		if (j->extra[i] < 0 || j->exe < 0)
			r = error_set(&t->err, ERR_EXHAUSTED, "no descriptor for the unpacker");
	if (r == 0)
		r = offload(t, u->worker, &j->job);
	if (r == 0)
		*ret_pidfd = take_fd(&j->pidfd);
	job_unref(&j->job);
	return r;
}

static int read_report(struct task *t, int fd, struct buf *ret)
{
	size_t max = sizeof(struct unpack_report) + UNPACK_OPAQUE_MAX;

	while (ret->length <= max) {
		ssize_t n = read(fd, buf_reserve(ret, 65536), 65536);

		if (n == 0)
			return 0;
		if (n > 0)
			ret->length += (size_t)n;
		else if (errno == EAGAIN)
			TRY(task_wait_fd(t, fd, LOOP_READ));
		else if (errno != EINTR)
			return error_errno(&t->err, errno, "read the unpacker's report");
	}
	return error_set(&t->err, ERR_INTERNAL, "the unpacker's report is too long");
}

/* What the child says, or what became of it when it says nothing. */
static int check_report(struct buf *text, const struct process_exit *end, struct unpack_report *ret,
			struct error *err)
{
	if (text->length >= sizeof(*ret))
		memcpy(ret, text->data, sizeof(*ret));
	if (text->length < sizeof(*ret) || ret->size != sizeof(*ret)) {
		if (end->signal)
			return error_set(err, ERR_INTERNAL, "the unpacker died of signal %d%s",
					 end->signal,
					 end->signal == 31   ? " (a forbidden system call)"
					 : end->signal == 24 ? " (it took too long)"
							     : "");
		return error_set(err, ERR_INTERNAL, "the unpacker exited with %d", end->code);
	}
	ret->text[sizeof(ret->text) - 1] = 0;
	ret->digest[DIGEST_SIZE - 1] = 0;
	ret->diff_id[DIGEST_SIZE - 1] = 0;
	if (ret->code < 0 || ret->code > ERR_INTERNAL)
		return error_set(err, ERR_INTERNAL, "the unpacker's report makes no sense");
	if (ret->code)
		return error_set(err, (enum err)ret->code, "%s", ret->text);
	if (ret->opaque_bytes != text->length - sizeof(*ret) ||
	    (ret->opaque_bytes && text->data[text->length - 1]))
		return error_set(err, ERR_INTERNAL, "the unpacker's report makes no sense");
	buf_consume(text, sizeof(*ret));
	return 0;
}

struct mark_job {
	struct job job;
	int target;
	struct buf paths;
};

static int mark_run(struct job *job, struct error *err)
{
	struct mark_job *j = container_of(job, struct mark_job, job);
	const char *end = j->paths.data + j->paths.length;

	for (const char *path = j->paths.data; path < end; path += strlen(path) + 1) {
		int r = fs_openat2(j->target, *path ? path : ".", O_RDONLY | O_DIRECTORY, 0,
				   RESOLVE_IN_ROOT | RESOLVE_NO_SYMLINKS);
		cleanup_close int fd = r;

		if (r < 0)
			return error_errno(err, -r, "open the opaque directory %s", path);
		if (fsetxattr(fd, "trusted.overlay.opaque", "y", 1, 0) < 0)
			return error_errno(err, errno, "mark %s as opaque", path);
		if (fsync(fd) < 0)
			return error_errno(err, errno, "sync %s", path);
	}
	return 0;
}

static void mark_free(struct job *job)
{
	struct mark_job *j = container_of(job, struct mark_job, job);

	close_fd(j->target);
	buf_done(&j->paths);
	free(j);
}

static int mark_opaque(struct task *t, int target, struct buf *paths)
{
	int own = fcntl(target, F_DUPFD_CLOEXEC, 3);
	struct mark_job *j;
	int r;

	if (own < 0)
		return error_errno(&t->err, errno, "descriptor of the layer");
	j = xnew(struct mark_job);
	job_init(&j->job, mark_run, mark_free);
	j->target = own;
	j->paths = *paths;
	*paths = (struct buf){0};
	r = offload(t, NULL, &j->job);
	job_unref(&j->job);
	return r;
}

/* The child may be in the middle of something when the wait for it was given up. */
static void end_child(struct task *t, int pidfd, struct process_exit *ret)
{
	struct error err = t->err;

	process_signal(pidfd, SIGKILL, NULL);
	task_shield(t, 1);
	process_wait(t, pidfd, ret);
	task_shield(t, -1);
	t->err = err;
}

int unpack_run(struct task *t, struct unpacker *u, const struct unpack_request *q,
	       struct unpack_result *ret)
{
	CLEANUP(buf_done) struct buf text = {0};
	struct unpack_report report = {0};
	struct process_exit end = {0};
	cleanup_close int pidfd = -1;
	int ends[2];
	int r;

	if (pipe2(ends, O_CLOEXEC) < 0 || fcntl(ends[0], F_SETFL, O_NONBLOCK) < 0)
		return error_errno(&t->err, errno, "pipe for the unpacker");
	r = start(t, u, q, ends[1], &pidfd);
	if (r == 0)
		r = read_report(t, ends[0], &text);
	if (r == 0)
		r = process_wait(t, pidfd, &end);
	if (r < 0 && pidfd >= 0)
		end_child(t, pidfd, &end);
	close(ends[0]);
	if (r < 0)
		return r;
	TRY(check_report(&text, &end, &report, &t->err));
	if (text.length)
		TRY(mark_opaque(t, q->target, &text));
	*ret = (struct unpack_result){.bytes = report.bytes, .inodes = report.inodes};
	memcpy(ret->digest, report.digest, DIGEST_SIZE);
	memcpy(ret->diff_id, report.diff_id, DIGEST_SIZE);
	return 0;
}
