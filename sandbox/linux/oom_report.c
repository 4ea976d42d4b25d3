/* SPDX-License-Identifier: Apache-2.0 */
/*
 * "…;oom-kill:constraint=CONSTRAINT_MEMCG,…,oom_memcg=/a,task_memcg=/a/b,task=x,pid=1,uid=0", or
 * "…,global_oom,task_memcg=/a/b,…". Peculiar: the paths are the kernel's, so ours may be only their
 * ends; and whoever may write to /dev/kmsg can't write as the kernel, whose facility is 0.
 */
#include "sandbox/linux/oom_report.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "io/base/alloc.h"
#include "io/base/cleanup.h"

/* A record is never longer (CONSOLE_EXT_LOG_MAX). */
#define RECORD_MAX 8192
#define KEPT 64
/* Lower ones are levels of the kernel's own facility. */
#define FACILITY 8

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static int kmsg_fd = -1;
static char *kept[KEPT]; /* the last reports, as they were read */
static size_t next_kept;

/* The value of key, up to the next ','. Paths of cgroups with commas in them are none of ours. */
static char *field(const char *text, const char *key)
{
	const char *at = strstr(text, key);

	return at ? xasprintf("%.*s", (int)strcspn(at + strlen(key), ",\n"), at + strlen(key))
		  : NULL;
}

/* Where the end of whole is path, or path with groups below it; NULL if it isn't. */
static const char *find_end(const char *whole, const char *path)
{
	size_t length = strlen(path);

	for (const char *at = whole; (at = strstr(at, path)); at++)
		if (!at[length] || at[length] == '/')
			return at;
	return NULL;
}

static size_t depth_of(const char *path)
{
	size_t n = 0;

	for (; *path; path++)
		n += *path == '/' && path[1];
	return n;
}

/* path with as many of its last components gone as culprit has fewer than the victim's group. */
static char *cut(const char *path, size_t levels)
{
	char *result = xstrdup(path);

	for (; levels && *result; levels--)
		*strrchr(result, '/') = '\0';
	if (*result)
		return result;
	free(result);
	return xstrdup("/");
}

static bool is_report(const char *record)
{
	const char *text = strchr(record, ';');

	return text && strtoul(record, NULL, 10) < FACILITY && !strncmp(text, ";oom-kill:", 10);
}

char *oom_report_parse(const char *record, const char *path)
{
	cleanup_free char *victim = NULL, *culprit = NULL;
	const char *end;
	size_t to_path;

	if (!is_report(record))
		return NULL;
	victim = field(record, ",task_memcg=");
	culprit = field(record, ",oom_memcg=");
	end = victim ? find_end(victim, path) : NULL;
	if (!end)
		return NULL;
	if (!culprit)
		return xstrdup("/");
	to_path = (size_t)(end - victim) + strlen(path);
	/* a group of the container's own making */
	if (strlen(culprit) > to_path)
		return xstrdup(path);
	victim[to_path] = '\0';
	return cut(path, depth_of(victim) - depth_of(culprit));
}

static void keep(const char *record)
{
	free(kept[next_kept]);
	kept[next_kept] = xstrdup(record);
	next_kept = (next_kept + 1) % KEPT;
}

static void read_new(void)
{
	char *record cleanup_free = xmalloc(RECORD_MAX + 1);
	ssize_t n;

	if (kmsg_fd < 0)
		return;
	/* one record a read; EPIPE: some were overwritten before we came */
	while ((n = read(kmsg_fd, record, RECORD_MAX)) > 0 || (n < 0 && errno == EPIPE)) {
		if (n < 0)
			continue;
		record[n] = '\0';
		if (is_report(record))
			keep(record);
	}
}

char *oom_report_find(const char *path)
{
	char *found = NULL;

	pthread_mutex_lock(&lock);
	read_new();
	for (size_t i = 1; i <= KEPT && !found; i++) {
		const char *record = kept[(next_kept + KEPT - i) % KEPT];

		if (record)
			found = oom_report_parse(record, path);
	}
	pthread_mutex_unlock(&lock);
	return found;
}

void oom_reports_init(void)
{
	kmsg_fd = open("/dev/kmsg", O_RDONLY | O_NONBLOCK | O_CLOEXEC);
}

void oom_reports_done(void)
{
	close_fd(kmsg_fd);
	kmsg_fd = -1;
	for (size_t i = 0; i < KEPT; i++) {
		free(kept[i]);
		kept[i] = NULL;
	}
}
