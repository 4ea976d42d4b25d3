/* SPDX-License-Identifier: Apache-2.0 */
/* ListPodSandbox, StreamPodSandboxes, PodSandboxStatus. Peculiar: entries of string maps have one
 * layout for all messages, so a configuration's labels go into replies as they are. */
#include "cri/methods.h"
#include "cri/packed.h"
#include "cri/reply.h"
#include "cri/translate.h"

#include <string.h>

#include "io/base/clock.h"

Runtime__V1__PodSandboxState reply_sandbox_state(const struct sandbox *sb)
{
	return sb->state == SANDBOX_READY ? RUNTIME__V1__POD_SANDBOX_STATE__SANDBOX_READY
					  : RUNTIME__V1__POD_SANDBOX_STATE__SANDBOX_NOTREADY;
}

bool reply_id_matches(const char *id, const char *wanted)
{
	return !strncmp(id, wanted, strlen(wanted));
}

/* A sandbox that is being made is nobody's business but its caller's. */
static bool is_visible(const struct sandbox *sb)
{
	return sb->state != SANDBOX_CREATING;
}

static bool matches(const struct sandbox *sb, const Runtime__V1__PodSandboxFilter *f)
{
	if (!is_visible(sb))
		return false;
	if (!f)
		return true;
	return reply_id_matches(sb->id, f->id) &&
	       (!f->state || f->state->state == reply_sandbox_state(sb)) &&
	       packed_has_labels(&runtime__v1__pod_sandbox_config__descriptor, &sb->config,
				 f->label_selector, f->n_label_selector);
}

static Runtime__V1__PodSandbox *item_of(struct arena *arena, const struct sandbox *sb)
{
	static const char *const as_is[] = {"metadata", "labels", "annotations", NULL};
	Runtime__V1__PodSandbox *item =
		REPLY(arena, Runtime__V1__PodSandbox, RUNTIME__V1__POD_SANDBOX__INIT);

	item->id = (char *)sb->id;
	item->state = reply_sandbox_state(sb);
	item->created_at = sb->created_at;
	item->runtime_handler = sb->handler;
	packed_lend(arena, &runtime__v1__pod_sandbox_config__descriptor, &sb->config, as_is,
		    &item->base);
	return item;
}

int cri_list_pod_sandbox(struct task *t, struct call *c, const void *message)
{
	const Runtime__V1__ListPodSandboxRequest *request = message;
	Runtime__V1__ListPodSandboxResponse reply = RUNTIME__V1__LIST_POD_SANDBOX_RESPONSE__INIT;
	struct node *n = call_data(c);

	reply.items = arena_new_array(t->arena, Runtime__V1__PodSandbox *, n->sandboxes.count);
	map_for_each(slot, &n->sandboxes) {
		if (matches(slot->value, request->filter))
			reply.items[reply.n_items++] = item_of(t->arena, slot->value);
	}
	return call_reply(t, c, &reply.base);
}

static ProtobufCMessage *streamed_item(struct arena *arena, struct node *n, const char *id)
{
	const struct sandbox *sb = map_get(&n->sandboxes, id);

	return sb ? &item_of(arena, sb)->base : NULL;
}

int cri_stream_pod_sandboxes(struct task *t, struct call *c, const void *message)
{
	const Runtime__V1__StreamPodSandboxesRequest *request = message;
	struct node *n = call_data(c);
	struct string_list ids = {arena_new_array(t->arena, const char *, n->sandboxes.count), 0};

	map_for_each(slot, &n->sandboxes) {
		if (matches(slot->value, request->filter))
			ids.items[ids.count++] = arena_strdup(t->arena, slot->key);
	}
	return reply_stream(t, c, &ids, streamed_item);
}

static Runtime__V1__LinuxPodSandboxStatus *linux_of(struct arena *arena,
						    const Runtime__V1__PodSandboxConfig *config)
{
	Runtime__V1__LinuxPodSandboxStatus *l = REPLY(arena, Runtime__V1__LinuxPodSandboxStatus,
						      RUNTIME__V1__LINUX_POD_SANDBOX_STATUS__INIT);

	l->namespaces = REPLY(arena, Runtime__V1__Namespace, RUNTIME__V1__NAMESPACE__INIT);
	if (config->linux && config->linux->security_context &&
	    config->linux->security_context->namespace_options)
		l->namespaces->options = config->linux->security_context->namespace_options;
	else
		l->namespaces->options = REPLY(arena, Runtime__V1__NamespaceOption,
					       RUNTIME__V1__NAMESPACE_OPTION__INIT);
	return l;
}

Runtime__V1__PodSandboxStatus *reply_sandbox_status(struct arena *arena, const struct sandbox *sb)
{
	const Runtime__V1__PodSandboxConfig *config = sandbox_config(arena, sb);
	Runtime__V1__PodSandboxStatus *s =
		REPLY(arena, Runtime__V1__PodSandboxStatus, RUNTIME__V1__POD_SANDBOX_STATUS__INIT);

	s->id = (char *)sb->id;
	s->metadata = config->metadata;
	s->state = reply_sandbox_state(sb);
	s->created_at = sb->created_at;
	s->labels = (Runtime__V1__PodSandboxStatus__LabelsEntry **)config->labels;
	s->n_labels = config->n_labels;
	s->annotations = (Runtime__V1__PodSandboxStatus__AnnotationsEntry **)config->annotations;
	s->n_annotations = config->n_annotations;
	s->runtime_handler = sb->handler;
	s->network = REPLY(arena, Runtime__V1__PodSandboxNetworkStatus,
			   RUNTIME__V1__POD_SANDBOX_NETWORK_STATUS__INIT);
	s->linux = linux_of(arena, config);
	return s;
}

Runtime__V1__ContainerStatus **reply_container_statuses(struct arena *arena,
							const struct sandbox *sb, size_t *ret_count)
{
	Runtime__V1__ContainerStatus **all;
	size_t count = 0;

	list_for_each(c, &sb->containers, struct container, node_in_sandbox)
		count++;
	all = arena_new_array(arena, Runtime__V1__ContainerStatus *, count);
	*ret_count = 0;
	list_for_each(c, &sb->containers, struct container, node_in_sandbox)
		if (c->state != CONTAINER_CREATING)
			all[(*ret_count)++] = reply_container_status(arena, c);
	return all;
}

static const char *info_json(struct task *t, const struct sandbox *sb)
{
	struct sandbox_info info = {0};
	const Runtime__V1__PodSandboxConfig *config = sandbox_config(t->arena, sb);
	struct pod_limits limits = translate_pod_limits_of(t->arena, sb);
	bool has_parent = config->linux && *config->linux->cgroup_parent;

	if (sb->handle)
		sb->kind->sandbox_info(sb->handle, &info);
	return arena_printf(
		t->arena,
		"{\"sandboxer\":\"%s\",\"pid\":%d,\"cgroup\":\"%s\",\"dir\":\"%s\",\"limits\":{"
		"\"resources\":%s,\"overhead\":%s,\"enforcedBy\":\"%s\"}}",
		sb->kind->name, (int)info.pid, info.cgroup ?: "", sb->dir,
		reply_limits_json(t->arena, limits.resources),
		reply_limits_json(t->arena, limits.overhead),
		has_parent ? "the owner of linux.cgroup_parent" : "crisp");
}

int cri_pod_sandbox_status(struct task *t, struct call *c, const void *message)
{
	const Runtime__V1__PodSandboxStatusRequest *request = message;
	Runtime__V1__PodSandboxStatusResponse reply =
		RUNTIME__V1__POD_SANDBOX_STATUS_RESPONSE__INIT;
	Runtime__V1__PodSandboxStatusResponse__InfoEntry entry =
		RUNTIME__V1__POD_SANDBOX_STATUS_RESPONSE__INFO_ENTRY__INIT;
	Runtime__V1__PodSandboxStatusResponse__InfoEntry *entries = &entry;
	struct sandbox *sb = sandbox_find(call_data(c), request->pod_sandbox_id);
	int r;

	/* no queue is taken: a status must not wait for a slow stop */
	if (!sb || !is_visible(sb))
		return error_set(&t->err, ERR_NOT_FOUND,
				 "sandbox %.80s: there is none with this id",
				 request->pod_sandbox_id);
	sandbox_ref(sb);
	if (sandbox_look(t, sb) < 0) {
		sandbox_unref(sb);
		return -(int)t->err.code;
	}
	reply.status = reply_sandbox_status(t->arena, sb);
	reply.timestamp = realtime_ns();
	reply.containers_statuses =
		reply_container_statuses(t->arena, sb, &reply.n_containers_statuses);
	if (request->verbose) {
		entry.key = text("info");
		entry.value = text(info_json(t, sb));
		reply.n_info = 1;
		reply.info = &entries;
	}
	r = call_reply(t, c, &reply.base);
	sandbox_unref(sb);
	return r;
}
