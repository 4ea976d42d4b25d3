/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Labels of pods and containers. Peculiar: what keeps the containers of two pods from each other's
 * files is their level alone, so one is drawn that no other pod has; all that are known are held,
 * those that were asked for too.
 */
#include <errno.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#include "io/base/alloc.h"
#include "io/base/cleanup.h"
#include "sandbox/linux/kind.h"

/* Of the policies that there are: c0 to c1023. */
#define CATEGORIES 1024
/* Half a million levels, so that of 10,000 pods one in fifty draws meets a taken one. */
#define DRAWS_MAX 64

struct label_job {
	struct job job;
	struct linux_sandbox *sandbox;
	char *level;
	struct selinux_labels labels;
};

/* The map's values count those that have the level. */
static void hold(struct linux_sandbox *s, const char *level)
{
	uintptr_t count = (uintptr_t)map_get(&kind.levels, level);

	map_put(&kind.levels, level, (void *)(count + 1));
	s->level = xstrdup(level);
}

void label_sandbox_forget(struct linux_sandbox *s)
{
	uintptr_t count;

	if (!s->level)
		return;
	count = (uintptr_t)map_get(&kind.levels, s->level);
	if (count > 1)
		map_put(&kind.levels, s->level, (void *)(count - 1));
	else
		map_remove(&kind.levels, s->level);
	free(s->level);
	s->level = NULL;
}

/* Two categories, the lower one first. */
static int draw(char *ret, size_t size, struct error *err)
{
	uint16_t random[2];
	unsigned a, b;

	do {
		if (getrandom(random, sizeof(random), 0) != sizeof(random))
			return error_errno(err, errno, "draw a level for a pod");
		a = random[0] % CATEGORIES;
		b = random[1] % CATEGORIES;
	} while (a == b);
	snprintf(ret, size, "s0:c%u,c%u", a < b ? a : b, a < b ? b : a);
	return 0;
}

static int hold_new(struct linux_sandbox *s, struct error *err)
{
	char level[32];

	for (int i = 0; i < DRAWS_MAX; i++) {
		TRY(draw(level, sizeof(level), err));
		if (map_get(&kind.levels, level))
			continue;
		hold(s, level);
		return 0;
	}
	return error_set(err, ERR_EXHAUSTED,
			 "sandbox %s: no free SELinux level was found; remove pods, or give one in "
			 "selinux_options.level",
			 s->spec.id);
}

/* What was drawn is given up where the policy has no levels. */
static void set_labels(struct linux_sandbox *s, struct selinux_labels labels)
{
	const char *level = selinux_level(labels.process);

	s->labels = labels;
	label_sandbox_forget(s);
	if (level)
		hold(s, level);
}

static int run_label(struct job *job, struct error *err)
{
	struct label_job *j = container_of(job, struct label_job, job);

	return selinux_compose(&kind.selinux, &j->sandbox->spec.selinux, j->level, &j->labels, err);
}

static void free_label(struct job *job)
{
	struct label_job *j = container_of(job, struct label_job, job);

	selinux_labels_done(&j->labels);
	linux_sandbox_unref(j->sandbox);
	free(j->level);
	free(j);
}

static int compose(struct task *t, struct linux_sandbox *s)
{
	struct label_job *j = xnew(struct label_job);
	int r;

	job_init(&j->job, run_label, free_label);
	j->sandbox = linux_sandbox_ref(s);
	j->level = xstrdup_null(s->level);
	r = offload(t, NULL, &j->job);
	if (r == 0) {
		set_labels(s, j->labels);
		j->labels = (struct selinux_labels){0};
	}
	job_unref(&j->job);
	return r;
}

int label_sandbox(struct task *t, struct linux_sandbox *s)
{
	/* no job for a refusal */
	if (kind.selinux.fs < 0)
		return selinux_compose(&kind.selinux, &s->spec.selinux, NULL, &s->labels, &t->err);
	if (!s->spec.selinux.level)
		TRY(hold_new(s, &t->err));
	return compose(t, s);
}

void label_sandbox_recover(struct linux_sandbox *s, const char *record, size_t size)
{
	set_labels(s, label_read(record, size));
}

int label_container(const struct linux_container *c, struct selinux_labels *ret, struct error *err)
{
	const struct selinux_labels *pod = &c->sandbox->labels;

	if (selinux_is_asked(&c->spec.selinux))
		TRY(selinux_compose(&kind.selinux, &c->spec.selinux, selinux_level(pod->process),
				    ret, err));
	else
		*ret = (struct selinux_labels){xstrdup_null(pod->process), xstrdup_null(pod->file)};
	if (c->spec.is_privileged) {
		free(ret->process);
		ret->process = NULL;
	}
	return 0;
}

void label_record(const struct selinux_labels *labels, struct buf *ret)
{
	if (labels->process)
		buf_printf(ret, "process_label=%s\n", labels->process);
	if (labels->file)
		buf_printf(ret, "file_label=%s\n", labels->file);
}

static char *read_one(const char *record, size_t size, const char *key)
{
	cleanup_free char *value = xmalloc(size + 1);

	return record_find(record, size, key, value, size + 1) ? xstrdup(value) : NULL;
}

struct selinux_labels label_read(const char *record, size_t size)
{
	/* the kernel may be another one now */
	if (kind.selinux.fs < 0)
		return (struct selinux_labels){0};
	return (struct selinux_labels){read_one(record, size, "process_label"),
				       read_one(record, size, "file_label")};
}
