/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The seccomp profile that a container takes from the host. Peculiar: it is read once, at creation,
 * so that what becomes of the file later changes nothing of the container (CVE-2023-2431 is a
 * profile that silently became none); the copy lies in the container's own directory.
 */
#include "sandbox/priv.h"

#include <string.h>

#include "io/base/alloc.h"
#include "io/fs.h"
#include "io/offload.h"

/* The path may lie on a dead mount, so the job owns all it uses. */
struct read_job {
	struct job job;
	char *path;
	struct buf text;
};

static int run_read(struct job *job, struct error *err)
{
	struct read_job *j = container_of(job, struct read_job, job);
	struct error why = {0};

	if (fs_read_no_link(j->path, SECCOMP_PROFILE_MAX, &j->text, &why) < 0)
		return error_set(err, why.code == ERR_EXHAUSTED ? ERR_EXHAUSTED : ERR_INVALID,
				 "read the seccomp profile: %s", why.text);
	if (!j->text.length)
		return error_set(err, ERR_INVALID, "read the seccomp profile: %s is empty",
				 j->path);
	if (memchr(j->text.data, 0, j->text.length))
		return error_set(err, ERR_INVALID, "read the seccomp profile: %s has a NUL byte",
				 j->path);
	return 0;
}

static void free_read(struct job *job)
{
	struct read_job *j = container_of(job, struct read_job, job);

	buf_done(&j->text);
	free(j->path);
	free(j);
}

int container_read_profile(struct task *t, const struct container *c, struct buf *ret)
{
	const struct front_end *front = c->node->front;
	const char *path =
		front->container_profile(front->container_decode(t->arena, &c->config, NULL));
	struct read_job *j;
	int r;

	if (!path)
		return 0;
	task_stage(t, "reading its seccomp profile");
	j = xnew(struct read_job);
	job_init(&j->job, run_read, free_read);
	j->path = xstrdup(path);
	r = offload(t, NULL, &j->job);
	if (r == 0)
		buf_append(ret, j->text.data, j->text.length);
	job_unref(&j->job);
	return r;
}
