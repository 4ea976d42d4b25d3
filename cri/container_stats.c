/* SPDX-License-Identifier: Apache-2.0 */
/* ContainerStats, ListContainerStats, StreamContainerStats. Peculiar: the containers that a reply
 * tells of are held until it is sent, since looking at them takes time. */
#include "cri/methods.h"
#include "cri/packed.h"
#include "cri/reply.h"
#include "cri/translate.h"

#include "io/base/cleanup.h"

/* Containers that are looked at. */
struct gathered {
	struct container **containers;
	struct container_stats *stats;
	size_t count;
};

static void gathered_done(struct gathered *g)
{
	for (size_t i = 0; i < g->count; i++)
		container_unref(g->containers[i]);
}

static bool matches(const struct container *c, const Runtime__V1__ContainerStatsFilter *f)
{
	if (c->state == CONTAINER_CREATING)
		return false;
	if (!f)
		return true;
	return reply_id_matches(c->id, f->id) &&
	       reply_id_matches(c->sandbox->id, f->pod_sandbox_id) &&
	       packed_has_labels(&runtime__v1__container_config__descriptor, &c->config,
				 f->label_selector, f->n_label_selector);
}

/* Looks at all that match; those that were removed meanwhile are left out. */
static int gather(struct task *t, struct node *n, const Runtime__V1__ContainerStatsFilter *filter,
		  struct gathered *g, Runtime__V1__ContainerStats ***ret, size_t *ret_count)
{
	Runtime__V1__ContainerStats **list;
	size_t count = 0;

	g->containers = arena_new_array(t->arena, struct container *, n->containers.count);
	map_for_each(slot, &n->containers) {
		if (matches(slot->value, filter))
			g->containers[g->count++] = container_ref(slot->value);
	}
	g->stats = arena_new_array(t->arena, struct container_stats, g->count);
	TRY(containers_stats(t, g->containers, g->count, false, g->stats));
	list = arena_new_array(t->arena, Runtime__V1__ContainerStats *, g->count);
	for (size_t i = 0; i < g->count; i++) {
		if (g->containers[i]->is_removed)
			continue;
		list[count++] = reply_container_stats(t->arena, g->containers[i], &g->stats[i]);
	}
	*ret = list;
	*ret_count = count;
	return 0;
}

int cri_list_container_stats(struct task *t, struct call *call, const void *message)
{
	const Runtime__V1__ListContainerStatsRequest *request = message;
	Runtime__V1__ListContainerStatsResponse reply =
		RUNTIME__V1__LIST_CONTAINER_STATS_RESPONSE__INIT;
	struct gathered g CLEANUP(gathered_done) = {0};

	TRY(gather(t, call_data(call), request->filter, &g, &reply.stats, &reply.n_stats));
	return call_reply(t, call, &reply.base);
}

int cri_stream_container_stats(struct task *t, struct call *call, const void *message)
{
	const Runtime__V1__StreamContainerStatsRequest *request = message;
	struct gathered g CLEANUP(gathered_done) = {0};
	Runtime__V1__ContainerStats **list;
	size_t count;

	TRY(gather(t, call_data(call), request->filter, &g, &list, &count));
	return reply_stream_items(t, call, (ProtobufCMessage **)list, count);
}

int cri_container_stats(struct task *t, struct call *call, const void *message)
{
	const Runtime__V1__ContainerStatsRequest *request = message;
	Runtime__V1__ContainerStatsResponse reply = RUNTIME__V1__CONTAINER_STATS_RESPONSE__INIT;
	struct container *c = container_find(call_data(call), request->container_id);
	struct gathered g CLEANUP(gathered_done) = {&c, NULL, 0};
	struct container_stats stats = {0};

	if (c && c->state != CONTAINER_CREATING) {
		container_ref(c);
		g.count = 1;
		TRY(container_look(t, c));
		TRY(containers_stats(t, &c, 1, false, &stats));
	}
	if (!g.count || c->is_removed)
		return error_set(&t->err, ERR_NOT_FOUND,
				 "container %.80s: there is none with this id",
				 request->container_id);
	reply.stats = reply_container_stats(t->arena, c, &stats);
	return call_reply(t, call, &reply.base);
}
