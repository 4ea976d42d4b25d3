/* SPDX-License-Identifier: Apache-2.0 */
/* What `crisp doctor` finds, for Status: looked for once, on another thread, when it is first asked
 * for. */
#include "cri/doctor.h"

#include <fcntl.h>

#include "io/base/alloc.h"
#include "io/base/cleanup.h"
#include "io/offload.h"
#include "sandbox/linux/doctor.h"

struct doctor_job {
	struct job job;
	struct buf json, unfit;
};

/* The loop's. */
static struct node_findings findings;

static int run(struct job *job, struct error *err)
{
	struct doctor_job *j = container_of(job, struct doctor_job, job);
	struct doctor_report report CLEANUP(doctor_report_done) = {0};
	cleanup_close int root = open("/", O_PATH | O_DIRECTORY | O_CLOEXEC);

	doctor_run(root, &report);
	doctor_json(&report, &j->json);
	buf_puts(&j->unfit, "");
	doctor_unfit(&report, &j->unfit);
	return 0;
}

static void release(struct job *job)
{
	struct doctor_job *j = container_of(job, struct doctor_job, job);

	buf_done(&j->json);
	buf_done(&j->unfit);
	free(j);
}

int cri_doctor(struct task *t, const struct node_findings **ret)
{
	struct doctor_job *j;
	int r = 0;

	if (!findings.json) {
		j = xnew(struct doctor_job);
		job_init(&j->job, run, release);
		task_stage(t, "looking at what the node can do");
		r = offload(t, NULL, &j->job);
		/* another call may have been quicker */
		if (r == 0 && !findings.json)
			findings = (struct node_findings){buf_take(&j->json), buf_take(&j->unfit)};
		job_unref(&j->job);
	}
	if (r == 0)
		*ret = &findings;
	return r;
}
