/* SPDX-License-Identifier: Apache-2.0 */
/* Runtime handlers. */
#include "sandbox/handler.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>

#include "io/base/buf.h"

#define NO_NEW_PRIVS "no_new_privs"

static const struct {
	const char *name;
	int resource;
} limits[] = {
	{"as", RLIMIT_AS},
	{"core", RLIMIT_CORE},
	{"cpu", RLIMIT_CPU},
	{"data", RLIMIT_DATA},
	{"fsize", RLIMIT_FSIZE},
	{"locks", RLIMIT_LOCKS},
	{"memlock", RLIMIT_MEMLOCK},
	{"msgqueue", RLIMIT_MSGQUEUE},
	{"nice", RLIMIT_NICE},
	{"nofile", RLIMIT_NOFILE},
	{"nproc", RLIMIT_NPROC},
	{"rss", RLIMIT_RSS},
	{"rtprio", RLIMIT_RTPRIO},
	{"rttime", RLIMIT_RTTIME},
	{"sigpending", RLIMIT_SIGPENDING},
	{"stack", RLIMIT_STACK},
};

#define LIMITS (sizeof(limits) / sizeof(limits[0]))

int rlimit_find(const char *name)
{
	for (size_t i = 0; i < LIMITS; i++)
		if (!strcmp(limits[i].name, name))
			return limits[i].resource;
	return -1;
}

static const char *rlimit_name(int resource)
{
	for (size_t i = 0; i < LIMITS; i++)
		if (limits[i].resource == resource)
			return limits[i].name;
	return "";
}

char *handler_text(const struct handler *h)
{
	struct buf text = {0};

	if (!h)
		return NULL;
	if (h->no_new_privs)
		buf_puts(&text, NO_NEW_PRIVS "\n");
	for (size_t i = 0; i < h->rlimit_count; i++)
		buf_printf(&text, "rlimit %s %" PRIu64 " %" PRIu64 "\n",
			   rlimit_name(h->rlimits[i].resource), h->rlimits[i].soft,
			   h->rlimits[i].hard);
	return buf_take(&text);
}

static bool read_rlimit(const char *line, struct rlimit_spec *ret)
{
	char name[16];
	int end = 0;

	if (sscanf(line, "rlimit %15s %" SCNu64 " %" SCNu64 "%n", name, &ret->soft, &ret->hard,
		   &end) != 3 ||
	    line[end])
		return false;
	ret->resource = rlimit_find(name);
	return ret->resource >= 0;
}

int handler_apply(struct arena *arena, const char *options, struct container_spec *spec,
		  struct error *err)
{
	char *rest = arena_strdup(arena, options), *line;
	size_t count = 0;

	for (const char *p = options; *p; p++)
		count += *p == '\n';
	spec->rlimits = arena_new_array(arena, struct rlimit_spec, count);
	spec->rlimit_count = 0;
	while ((line = strsep(&rest, "\n")) && *line) {
		if (!strcmp(line, NO_NEW_PRIVS))
			spec->no_new_privs = true;
		else if (spec->rlimit_count < count &&
			 read_rlimit(line, &spec->rlimits[spec->rlimit_count]))
			spec->rlimit_count++;
		else
			return error_set(err, ERR_PRECONDITION,
					 "the record of the options that its pod's runtime handler "
					 "had can't be read at \"%.40s\"; make the pod anew",
					 line);
	}
	return 0;
}
