/* SPDX-License-Identifier: Apache-2.0 */
/* ListContainers, StreamContainers, ContainerStatus. */
#include "cri/methods.h"
#include "cri/packed.h"
#include "cri/reply.h"
#include "cri/translate.h"

#include <string.h>

Runtime__V1__ContainerState reply_container_state(const struct container *c)
{
	switch (c->state) {
	case CONTAINER_CREATING:
	case CONTAINER_CREATED:
		return RUNTIME__V1__CONTAINER_STATE__CONTAINER_CREATED;
	case CONTAINER_RUNNING:
		return RUNTIME__V1__CONTAINER_STATE__CONTAINER_RUNNING;
	case CONTAINER_EXITED:
	case CONTAINER_REMOVING:
		break;
	}
	return RUNTIME__V1__CONTAINER_STATE__CONTAINER_EXITED;
}

static bool matches(const struct container *c, const Runtime__V1__ContainerFilter *f)
{
	if (c->state == CONTAINER_CREATING)
		return false;
	if (!f)
		return true;
	return reply_id_matches(c->id, f->id) &&
	       reply_id_matches(c->sandbox->id, f->pod_sandbox_id) &&
	       (!f->state || f->state->state == reply_container_state(c)) &&
	       packed_has_labels(&runtime__v1__container_config__descriptor, &c->config,
				 f->label_selector, f->n_label_selector);
}

static Runtime__V1__Container *item_of(struct arena *arena, const struct container *c)
{
	static const char *const as_is[] = {"metadata", "image", "labels", "annotations", NULL};
	Runtime__V1__Container *item =
		REPLY(arena, Runtime__V1__Container, RUNTIME__V1__CONTAINER__INIT);

	item->id = (char *)c->id;
	item->pod_sandbox_id = c->sandbox->id;
	item->image_ref = c->image_ref;
	item->image_id = c->image_id;
	item->state = reply_container_state(c);
	item->created_at = c->created_at;
	packed_lend(arena, &runtime__v1__container_config__descriptor, &c->config, as_is,
		    &item->base);
	return item;
}

int cri_list_containers(struct task *t, struct call *call, const void *message)
{
	const Runtime__V1__ListContainersRequest *request = message;
	Runtime__V1__ListContainersResponse reply = RUNTIME__V1__LIST_CONTAINERS_RESPONSE__INIT;
	struct node *n = call_data(call);

	reply.containers = arena_new_array(t->arena, Runtime__V1__Container *, n->containers.count);
	map_for_each(slot, &n->containers) {
		if (matches(slot->value, request->filter))
			reply.containers[reply.n_containers++] = item_of(t->arena, slot->value);
	}
	return call_reply(t, call, &reply.base);
}

static ProtobufCMessage *streamed_item(struct arena *arena, struct node *n, const char *id)
{
	const struct container *c = map_get(&n->containers, id);

	return c ? &item_of(arena, c)->base : NULL;
}

int cri_stream_containers(struct task *t, struct call *call, const void *message)
{
	const Runtime__V1__StreamContainersRequest *request = message;
	struct node *n = call_data(call);
	struct string_list ids = {arena_new_array(t->arena, const char *, n->containers.count), 0};

	map_for_each(slot, &n->containers) {
		if (matches(slot->value, request->filter))
			ids.items[ids.count++] = arena_strdup(t->arena, slot->key);
	}
	return reply_stream(t, call, &ids, streamed_item);
}

/* The user that the process was started as; NULL before that. */
static Runtime__V1__ContainerUser *user_of(struct arena *arena, const struct container *c)
{
	struct container_info info = {0};
	Runtime__V1__ContainerUser *user;

	if (c->record.length)
		c->sandbox->kind->container_recorded_user(arena, c->record.data, c->record.length,
							  &info.user);
	else if (!c->handle || c->sandbox->kind->container_info(c->handle, &info) < 0)
		return NULL;
	user = REPLY(arena, Runtime__V1__ContainerUser, RUNTIME__V1__CONTAINER_USER__INIT);
	user->linux = REPLY(arena, Runtime__V1__LinuxContainerUser,
			    RUNTIME__V1__LINUX_CONTAINER_USER__INIT);
	user->linux->uid = info.user.uid;
	user->linux->gid = info.user.gid;
	user->linux->supplemental_groups = arena_new_array(arena, int64_t, info.user.group_count);
	for (size_t i = 0; i < info.user.group_count; i++)
		user->linux->supplemental_groups[user->linux->n_supplemental_groups++] =
			info.user.groups[i];
	return user;
}

static Runtime__V1__ContainerResources *
resources_of(struct arena *arena, const Runtime__V1__LinuxContainerResources *limits)
{
	Runtime__V1__ContainerResources *r;

	if (!limits)
		return NULL;
	r = REPLY(arena, Runtime__V1__ContainerResources, RUNTIME__V1__CONTAINER_RESOURCES__INIT);
	r->linux = (Runtime__V1__LinuxContainerResources *)limits;
	return r;
}

/* With the digest that it would be told by if it were the container's own image. */
static Runtime__V1__Mount *image_mount_of(struct arena *arena, const struct container *c,
					  const Runtime__V1__Mount *from)
{
	const struct image *image = image_by_id(c->node->images, from->image->image_ref);
	Runtime__V1__Mount *m = REPLY(arena, Runtime__V1__Mount, RUNTIME__V1__MOUNT__INIT);

	*m = *from;
	m->image = REPLY(arena, Runtime__V1__ImageSpec, RUNTIME__V1__IMAGE_SPEC__INIT);
	*m->image = *from->image;
	if (image)
		m->image->image_ref = arena_strdup(arena, image_reference(image));
	return m;
}

static Runtime__V1__Mount **mounts_of(struct arena *arena, const struct container *c,
				      const Runtime__V1__ContainerConfig *config)
{
	Runtime__V1__Mount **mounts =
		arena_new_array(arena, Runtime__V1__Mount *, config->n_mounts);

	for (size_t i = 0; i < config->n_mounts; i++)
		mounts[i] = translate_has_image(config->mounts[i])
				    ? image_mount_of(arena, c, config->mounts[i])
				    : config->mounts[i];
	return mounts;
}

Runtime__V1__ContainerStatus *reply_container_status(struct arena *arena, const struct container *c)
{
	const Runtime__V1__ContainerConfig *config = container_config(arena, c);
	Runtime__V1__ContainerStatus *s =
		REPLY(arena, Runtime__V1__ContainerStatus, RUNTIME__V1__CONTAINER_STATUS__INIT);

	s->id = (char *)c->id;
	s->metadata = config->metadata;
	s->state = reply_container_state(c);
	s->created_at = c->created_at;
	s->started_at = c->started_at;
	s->finished_at = c->finished_at;
	s->exit_code = c->exit_code;
	s->image = config->image;
	s->image_ref = c->image_ref;
	s->image_id = c->image_id;
	s->reason = text(c->reason);
	s->message = text(c->message);
	s->labels = (Runtime__V1__ContainerStatus__LabelsEntry **)config->labels;
	s->n_labels = config->n_labels;
	s->annotations = (Runtime__V1__ContainerStatus__AnnotationsEntry **)config->annotations;
	s->n_annotations = config->n_annotations;
	s->mounts = mounts_of(arena, c, config);
	s->n_mounts = config->n_mounts;
	s->log_path = text(c->log_path);
	s->resources = resources_of(arena, translate_resources_of(arena, c));
	s->user = user_of(arena, c);
	s->stop_signal = translate_signal_back(
		translate_stop_signal(config, image_by_id(c->node->images, c->image_id)));
	return s;
}

/* Bytes of one stream. */
static const char *stream_json(struct task *t, const struct container_output *o, int i)
{
	return arena_printf(t->arena, "{\"taken\":%llu,\"logged\":%llu,\"dropped\":%llu}",
			    (unsigned long long)o->taken[i], (unsigned long long)o->logged[i],
			    (unsigned long long)o->dropped[i]);
}

static const char *info_json(struct task *t, const struct container *c,
			     const Runtime__V1__LinuxContainerResources *limits)
{
	const struct container_output output = container_output(c);
	struct container_info info = {0};

	if (c->handle && c->sandbox->kind->container_info(c->handle, &info) < 0)
		info.pid = 0;
	return arena_printf(
		t->arena,
		"{\"sandboxID\":\"%s\",\"pid\":%d,\"cgroup\":\"%s\",\"stateDir\":\"%s\","
		"\"rootDir\":\"%s\","
		"\"limits\":%s,\"output\":{\"stdout\":%s,\"stderr\":%s,\"logFailing\":%s}}",
		c->sandbox->id, (int)info.pid, info.cgroup ?: "", c->state_dir, c->root_dir,
		reply_limits_json(t->arena, limits), stream_json(t, &output, 0),
		stream_json(t, &output, 1), output.is_log_failing ? "true" : "false");
}

/* Those that hold, as far as the kernel tells. */
static const Runtime__V1__LinuxContainerResources *limits_of(struct task *t, struct container *c)
{
	struct limits_now now = {0};

	if (container_limits(t, c, &now) < 0)
		return translate_resources_of(t->arena, c);
	return translate_limits_now(t->arena, translate_resources_of(t->arena, c), &now);
}

int cri_container_status(struct task *t, struct call *call, const void *message)
{
	const Runtime__V1__ContainerStatusRequest *request = message;
	Runtime__V1__ContainerStatusResponse reply = RUNTIME__V1__CONTAINER_STATUS_RESPONSE__INIT;
	Runtime__V1__ContainerStatusResponse__InfoEntry entry =
		RUNTIME__V1__CONTAINER_STATUS_RESPONSE__INFO_ENTRY__INIT;
	Runtime__V1__ContainerStatusResponse__InfoEntry *entries = &entry;
	struct container *c = container_find(call_data(call), request->container_id);
	const Runtime__V1__LinuxContainerResources *limits = NULL;
	int r;

	if (!c || c->state == CONTAINER_CREATING)
		return error_set(&t->err, ERR_NOT_FOUND,
				 "container %.80s: there is none with this id",
				 request->container_id);
	container_ref(c);
	r = container_look(t, c);
	if (r == 0) {
		/* it takes time, so all else is looked at later */
		limits = limits_of(t, c);
		r = task_check(t);
	}
	if (r == 0) {
		reply.status = reply_container_status(t->arena, c);
		reply.status->resources = resources_of(t->arena, limits);
		if (request->verbose) {
			entry.key = text("info");
			entry.value = text(info_json(t, c, limits));
			reply.n_info = 1;
			reply.info = &entries;
		}
		r = call_reply(t, call, &reply.base);
	}
	container_unref(c);
	return r;
}
