/* SPDX-License-Identifier: Apache-2.0 */
/* Runtime handlers. */
#include "sandbox/handler.h"

#include <string.h>
#include <sys/resource.h>

int rlimit_find(const char *name)
{
	static const struct {
		const char *name;
		int resource;
	} all[] = {
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

	for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++)
		if (!strcmp(all[i].name, name))
			return all[i].resource;
	return -1;
}

void handler_apply(const struct handler *h, struct container_spec *spec)
{
	spec->no_new_privs |= h->no_new_privs;
	spec->rlimits = h->rlimits;
	spec->rlimit_count = h->rlimit_count;
}
