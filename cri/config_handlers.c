/* SPDX-License-Identifier: Apache-2.0 */
/* Configured limits and handlers as the node knows them: limits by number, and for each handler all
 * that hold for it. */
#include "cri/config.h"

#include <stdlib.h>
#include <string.h>

#include "io/base/alloc.h"
#include "sandbox/handler.h"
#include "sandbox/sandboxer.h"

/* What programs may count on that want many, and what those can bear that close all up to the limit
 * one by one: without it a container had the server's own. */
static const struct config_rlimit default_nofile = {(char *)"nofile", 1 << 20, 1 << 20};

/* A later one of a name replaces the former. */
static void put(struct handler *h, const struct config_rlimit *l)
{
	int resource = rlimit_find(l->name);
	size_t at = 0;

	while (at < h->rlimit_count && h->rlimits[at].resource != resource)
		at++;
	h->rlimit_count += at == h->rlimit_count;
	h->rlimits[at] = (struct rlimit_spec){resource, (uint64_t)l->soft, (uint64_t)l->hard};
}

static void fill(struct handler *h, const struct config *config, const struct config_handler *own)
{
	size_t count = 1 + config->rlimits_count + (own ? own->rlimits_count : 0);

	h->kind = sandboxer_find(own && own->kind ? own->kind : "linux");
	h->no_new_privs = own && own->no_new_privs;
	h->rlimits = xcalloc(count, sizeof(*h->rlimits));
	put(h, &default_nofile);
	for (uint32_t i = 0; i < config->rlimits_count; i++)
		put(h, &config->rlimits[i]);
	for (uint32_t i = 0; own && i < own->rlimits_count; i++)
		put(h, &own->rlimits[i]);
}

static bool has_linux(const struct config *config)
{
	for (uint32_t i = 0; i < config->handlers_count; i++)
		if (!strcmp(config->handlers[i].name, "linux"))
			return true;
	return false;
}

size_t config_handlers(const struct config *config, struct handler **ret)
{
	struct handler *all = xcalloc(config->handlers_count + 2, sizeof(*all));
	size_t count = 0;

	all[count].name = "";
	fill(&all[count++], config, NULL);
	/* the kind by its own name */
	if (!has_linux(config)) {
		all[count].name = "linux";
		fill(&all[count++], config, NULL);
	}
	for (uint32_t i = 0; i < config->handlers_count; i++) {
		all[count].name = config->handlers[i].name;
		fill(&all[count++], config, &config->handlers[i]);
	}
	*ret = all;
	return count;
}

void config_handlers_free(struct handler *handlers, size_t count)
{
	for (size_t i = 0; i < count; i++)
		free(handlers[i].rlimits);
	free(handlers);
}
