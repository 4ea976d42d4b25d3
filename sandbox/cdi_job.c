/* SPDX-License-Identifier: Apache-2.0 */
/* What CDI devices mean, found on another thread. */
#include "sandbox/priv.h"

#include <stdlib.h>
#include <string.h>

#include "io/base/alloc.h"
#include "io/base/log.h"
#include "io/offload.h"
#include "sandbox/cdi.h"

struct cdi_job {
	struct job job;
	const struct string_list *dirs; /* the node's */
	struct string_list names;	/* a copy */
	struct buf edits;
	struct buf problems; /* one a line */
};

static void note_problem(void *data, const char *problem)
{
	struct buf *problems = data;

	buf_printf(problems, "%s\n", problem);
}

static int cdi_run(struct job *job, struct error *err)
{
	struct cdi_job *j = container_of(job, struct cdi_job, job);

	return cdi_resolve(j->dirs, &j->names, note_problem, &j->problems, &j->edits, err);
}

static void cdi_free(struct job *job)
{
	struct cdi_job *j = container_of(job, struct cdi_job, job);

	for (size_t i = 0; i < j->names.count; i++)
		free((char *)j->names.items[i]);
	free(j->names.items);
	buf_done(&j->edits);
	buf_done(&j->problems);
	free(j);
}

static void log_problems(struct cdi_job *j)
{
	char *text cleanup_free = buf_take(&j->problems), *next = text, *line;

	while ((line = strsep(&next, "\n")))
		if (*line)
			log_warning("%s", line);
}

int cdi_find_edits(struct task *t, const struct node *n, const struct string_list *names,
		   struct buf *ret)
{
	struct cdi_job *j;
	int r;

	if (!names->count)
		return 0;
	j = xnew(struct cdi_job);
	job_init(&j->job, cdi_run, cdi_free);
	j->dirs = &n->cdi_dirs;
	j->names.items = xcalloc(names->count, sizeof(*j->names.items));
	for (size_t i = 0; i < names->count; i++)
		j->names.items[j->names.count++] = xstrdup(names->items[i]);
	task_stage(t, "reading what its CDI devices are");
	r = offload(t, NULL, &j->job);
	if (r == 0)
		buf_append(ret, j->edits.data, j->edits.length);
	if (j->job.done.is_set)
		log_problems(j);
	job_unref(&j->job);
	return r;
}
