/* SPDX-License-Identifier: Apache-2.0 */
/* Faults by order of a file. Peculiar: it is read at each passing, so that a test may write it at
 * any time. */
#include "io/base/fault.h"

#if CRISP_FAULTS

#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "io/base/cleanup.h"
#include "io/base/log.h"

#define LINE_MAX_SIZE 256

#define FAULT_NAME(name) #name,
static const char *const point_names[] = {FAULT_POINTS(FAULT_NAME)};

struct order {
	char kind[8], action[16], name[128];
	unsigned count;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static char current[LINE_MAX_SIZE]; /* the order that is counted for */
static unsigned passed;

/* False when nothing is ordered. */
static bool read_order(const char *path, char line[LINE_MAX_SIZE], struct order *ret)
{
	cleanup_close int fd = open(path, O_RDONLY | O_CLOEXEC);
	unsigned serial;
	ssize_t n;

	if (fd < 0)
		return false;
	n = read(fd, line, LINE_MAX_SIZE - 1);
	if (n <= 0 || line[n - 1] != '\n')
		return false;
	line[n - 1] = '\0';
	return sscanf(line, "%7s %u %15s %u %127[^\n]", ret->kind, &ret->count, ret->action,
		      &serial, ret->name) == 5;
}

/* Whether this passing is the one that was ordered. */
static bool is_due(const char *path, const char *kind, const char *name, struct order *o)
{
	char line[LINE_MAX_SIZE];

	if (!read_order(path, line, o) || strcmp(o->kind, kind) || strcmp(o->name, name))
		return false;
	if (strcmp(current, line)) {
		memcpy(current, line, sizeof(current));
		passed = 0;
	}
	passed++;
	if (!strcmp(o->action, "failing"))
		return passed >= o->count;
	return passed == o->count && unlink(path) == 0;
}

static enum fault_action act(const struct order *o)
{
	log_warning("fault: %s at %s %s, passing %u", o->action, o->kind, o->name, o->count);
	if (!strcmp(o->action, "kill"))
		kill(getpid(), SIGKILL);
	if (!strcmp(o->action, "term"))
		kill(getpid(), SIGTERM);
	if (!strncmp(o->action, "fail", 4))
		return FAULT_FAIL;
	if (!strcmp(o->action, "deadline"))
		return FAULT_DEADLINE;
	return strcmp(o->action, "cancel") ? FAULT_NONE : FAULT_CANCEL;
}

enum fault_action fault_of_task(const char *kind, const char *name)
{
	const char *path = getenv("CRISP_FAULT");
	struct order o;
	bool is_now;

	if (!path)
		return FAULT_NONE;
	pthread_mutex_lock(&lock);
	is_now = is_due(path, kind, name, &o);
	pthread_mutex_unlock(&lock);
	return is_now ? act(&o) : FAULT_NONE;
}

void fault_at(enum fault_point point)
{
	fault_of_task("at", point_names[point]);
}

#endif
