/* SPDX-License-Identifier: Apache-2.0 */
/* PodSandboxStats, ListPodSandboxStats, StreamPodSandboxStats. Peculiar: as with containers, what a
 * reply tells of is held until it is sent. Lists have the pods that are ready. */
#include "cri/gather.h"
#include "cri/methods.h"
#include "cri/packed.h"
#include "cri/reply.h"
#include "cri/translate.h"

#include <string.h>

#include "io/base/cleanup.h"

static Runtime__V1__NetworkInterfaceUsage *interface_of(struct arena *arena,
							const struct net_usage *net)
{
	Runtime__V1__NetworkInterfaceUsage *i = REPLY(arena, Runtime__V1__NetworkInterfaceUsage,
						      RUNTIME__V1__NETWORK_INTERFACE_USAGE__INIT);

	i->name = arena_strdup(arena, net->name);
	i->rx_bytes = reply_value(arena, net->received.bytes);
	i->rx_errors = reply_value(arena, net->received.errors);
	i->tx_bytes = reply_value(arena, net->sent.bytes);
	i->tx_errors = reply_value(arena, net->sent.errors);
	return i;
}

/* eth0, else the first one that is not loopback, else that: the kubelet relies on there being one.
 */
static size_t default_interface(const struct net_list *net)
{
	size_t found = 0;

	for (size_t i = net->count; i-- > 0;)
		if (strcmp(net->items[i].name, "lo") != 0)
			found = i;
	for (size_t i = 0; i < net->count; i++)
		if (!strcmp(net->items[i].name, "eth0"))
			found = i;
	return found;
}

static Runtime__V1__NetworkUsage *network_of(struct arena *arena, const struct net_list *net)
{
	size_t main = default_interface(net);
	Runtime__V1__NetworkUsage *n;

	if (!net->count)
		return NULL;
	n = REPLY(arena, Runtime__V1__NetworkUsage, RUNTIME__V1__NETWORK_USAGE__INIT);
	n->timestamp = net->at;
	n->interfaces = arena_new_array(arena, Runtime__V1__NetworkInterfaceUsage *, net->count);
	for (size_t i = 0; i < net->count; i++) {
		Runtime__V1__NetworkInterfaceUsage *usage = interface_of(arena, &net->items[i]);

		if (i == main)
			n->default_interface = usage;
		else
			n->interfaces[n->n_interfaces++] = usage;
	}
	return n;
}

static Runtime__V1__ProcessUsage *process_of(struct arena *arena, const struct usage *u)
{
	Runtime__V1__ProcessUsage *p =
		REPLY(arena, Runtime__V1__ProcessUsage, RUNTIME__V1__PROCESS_USAGE__INIT);

	p->timestamp = u->at;
	p->process_count = reply_value(arena, u->figures[USAGE_PROCESSES]);
	return p;
}

static Runtime__V1__PodSandboxAttributes *attributes_of(struct arena *arena,
							const struct sandbox *sb)
{
	static const char *const as_is[] = {"metadata", "labels", "annotations", NULL};
	Runtime__V1__PodSandboxAttributes *a = REPLY(arena, Runtime__V1__PodSandboxAttributes,
						     RUNTIME__V1__POD_SANDBOX_ATTRIBUTES__INIT);

	a->id = (char *)sb->id;
	packed_lend(arena, &runtime__v1__pod_sandbox_config__descriptor, &sb->config, as_is,
		    &a->base);
	return a;
}

static Runtime__V1__PodSandboxStats *stats_of(struct arena *arena, const struct sandbox *sb,
					      const struct sandbox_stats *stats)
{
	Runtime__V1__PodSandboxStats *s =
		REPLY(arena, Runtime__V1__PodSandboxStats, RUNTIME__V1__POD_SANDBOX_STATS__INIT);
	Runtime__V1__LinuxPodSandboxStats *l = REPLY(arena, Runtime__V1__LinuxPodSandboxStats,
						     RUNTIME__V1__LINUX_POD_SANDBOX_STATS__INIT);
	const struct usage *u = &stats->all.usage;

	s->attributes = attributes_of(arena, sb);
	s->linux = l;
	l->network = network_of(arena, &stats->all.net);
	l->containers = arena_new_array(arena, Runtime__V1__ContainerStats *, stats->count);
	for (size_t i = 0; i < stats->count; i++)
		if (!stats->containers[i]->is_removed)
			l->containers[l->n_containers++] = reply_container_stats(
				arena, stats->containers[i], &stats->stats[i]);
	if (!u->at)
		return s;
	l->cpu = reply_cpu_usage(arena, u, stats->nano_cores);
	l->memory = reply_memory_usage(arena, u);
	l->io = reply_io_usage(arena, u);
	l->process = process_of(arena, u);
	return s;
}

static void drop(struct sandbox_gather *g, size_t i)
{
	if (g->stats)
		sandbox_stats_done(&g->stats[i]);
	sandbox_unref(g->sandboxes[i]);
}

void sandbox_gather_done(struct sandbox_gather *g)
{
	for (size_t i = 0; i < g->count; i++)
		drop(g, i);
}

static bool matches(const struct sandbox *sb, const Runtime__V1__PodSandboxStatsFilter *f)
{
	if (sb->state != SANDBOX_READY)
		return false;
	return !f || (reply_id_matches(sb->id, f->id) &&
		      packed_has_labels(&runtime__v1__pod_sandbox_config__descriptor, &sb->config,
					f->label_selector, f->n_label_selector));
}

int sandbox_gather(struct task *t, struct node *n, const Runtime__V1__PodSandboxStatsFilter *filter,
		   bool has_details, struct sandbox_gather *g)
{
	size_t count = 0;

	g->sandboxes = arena_new_array(t->arena, struct sandbox *, n->sandboxes.count);
	map_for_each(slot, &n->sandboxes) {
		if (matches(slot->value, filter))
			g->sandboxes[g->count++] = sandbox_ref(slot->value);
	}
	g->stats = arena_new_array(t->arena, struct sandbox_stats, g->count);
	TRY(sandboxes_stats(t, g->sandboxes, g->count, has_details, g->stats));
	for (size_t i = 0; i < g->count; i++) {
		if (g->sandboxes[i]->is_removed || g->sandboxes[i]->state != SANDBOX_READY) {
			drop(g, i);
			continue;
		}
		g->sandboxes[count] = g->sandboxes[i];
		g->stats[count++] = g->stats[i];
	}
	g->count = count;
	return 0;
}

static int list_stats(struct task *t, struct node *n,
		      const Runtime__V1__PodSandboxStatsFilter *filter, struct sandbox_gather *g,
		      Runtime__V1__PodSandboxStats ***ret)
{
	TRY(sandbox_gather(t, n, filter, false, g));
	*ret = arena_new_array(t->arena, Runtime__V1__PodSandboxStats *, g->count);
	for (size_t i = 0; i < g->count; i++)
		(*ret)[i] = stats_of(t->arena, g->sandboxes[i], &g->stats[i]);
	return 0;
}

int cri_list_pod_sandbox_stats(struct task *t, struct call *call, const void *message)
{
	const Runtime__V1__ListPodSandboxStatsRequest *request = message;
	Runtime__V1__ListPodSandboxStatsResponse reply =
		RUNTIME__V1__LIST_POD_SANDBOX_STATS_RESPONSE__INIT;
	struct sandbox_gather g CLEANUP(sandbox_gather_done) = {0};

	TRY(list_stats(t, call_data(call), request->filter, &g, &reply.stats));
	reply.n_stats = g.count;
	return call_reply(t, call, &reply.base);
}

int cri_stream_pod_sandbox_stats(struct task *t, struct call *call, const void *message)
{
	const Runtime__V1__StreamPodSandboxStatsRequest *request = message;
	struct sandbox_gather g CLEANUP(sandbox_gather_done) = {0};
	Runtime__V1__PodSandboxStats **list;

	TRY(list_stats(t, call_data(call), request->filter, &g, &list));
	return reply_stream_items(t, call, (ProtobufCMessage **)list, g.count);
}

int cri_pod_sandbox_stats(struct task *t, struct call *call, const void *message)
{
	const Runtime__V1__PodSandboxStatsRequest *request = message;
	Runtime__V1__PodSandboxStatsResponse reply = RUNTIME__V1__POD_SANDBOX_STATS_RESPONSE__INIT;
	struct sandbox *sb = sandbox_find(call_data(call), request->pod_sandbox_id);
	struct sandbox_stats stats = {0};
	struct sandbox_gather g CLEANUP(sandbox_gather_done) = {&sb, &stats, 0};

	if (sb && sb->state != SANDBOX_CREATING) {
		sandbox_ref(sb);
		g.count = 1;
		TRY(sandbox_look(t, sb));
		TRY(sandboxes_stats(t, &sb, 1, false, &stats));
	}
	if (!g.count || sb->is_removed)
		return error_set(&t->err, ERR_NOT_FOUND,
				 "sandbox %.80s: there is none with this id",
				 request->pod_sandbox_id);
	reply.stats = stats_of(t->arena, sb, &stats);
	return call_reply(t, call, &reply.base);
}
