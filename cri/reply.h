/* SPDX-License-Identifier: Apache-2.0 */
/* Replies in a task's arena; strings in them are borrowed from the objects, so a reply is packed
 * before its task suspends again. */
#pragma once

#include "cri/grpc.h"
#include "cri/proto/cri.pb-c.h"
#include "sandbox/node.h"

/* A message in the arena: REPLY(t->arena, Runtime__V1__Image, RUNTIME__V1__IMAGE__INIT). */
#define REPLY(arena, type, INIT)                                                                   \
	({                                                                                         \
		type *reply_ = arena_alloc(arena, sizeof(type));                                   \
		*reply_ = (type)INIT;                                                              \
		reply_;                                                                            \
	})

/* What a NULL string is in protobuf-c. */
static inline char *text(const char *s)
{
	return (char *)(s ? s : "");
}

static inline int64_t positive(int64_t value)
{
	return value > 0 ? value : 0;
}

Runtime__V1__PodSandboxState reply_sandbox_state(const struct sandbox *sb);
Runtime__V1__ContainerState reply_container_state(const struct container *c);
/* In full; what reads it may show a container whose recovery goes on. Its limits are those that
 * were asked for: to look at the kernel's takes time, which ContainerStatus has and events have
 * not. */
Runtime__V1__ContainerStatus *reply_container_status(struct arena *arena,
						     const struct container *c);
Runtime__V1__PodSandboxStatus *reply_sandbox_status(struct arena *arena, const struct sandbox *sb);
/* Those of all its containers. */
Runtime__V1__ContainerStatus **
reply_container_statuses(struct arena *arena, const struct sandbox *sb, size_t *ret_count);

/* Of limits, which may be NULL, a JSON object. */
const char *reply_limits_json(struct arena *arena, const Runtime__V1__LinuxContainerResources *r);

/* Figures; what isn't known isn't there. */
Runtime__V1__UInt64Value *reply_value(struct arena *arena, uint64_t figure);
Runtime__V1__CpuUsage *reply_cpu_usage(struct arena *arena, const struct usage *u,
				       uint64_t nano_cores);
Runtime__V1__MemoryUsage *reply_memory_usage(struct arena *arena, const struct usage *u);
/* What is used of the file system that dir lies on, as measured at that time. */
Runtime__V1__FilesystemUsage *reply_disk(struct arena *arena, char *dir, int64_t at, uint64_t bytes,
					 uint64_t inodes);
/* A directory on the file system of the writable layers; the images' where it is the same. */
char *reply_layer_dir(struct arena *arena, const struct node *n);
Runtime__V1__IoUsage *reply_io_usage(struct arena *arena, const struct usage *u);
Runtime__V1__ContainerStats *reply_container_stats(struct arena *arena, const struct container *c,
						   const struct container_stats *stats);

/* What protobuf-c makes of an entry of any map<string, string>. */
struct reply_map_entry {
	ProtobufCMessage base;
	char *key, *value;
};

/* The item of a list, or NULL when there is no such object any more. */
typedef ProtobufCMessage *(*reply_item_fn)(struct arena *arena, struct node *n, const char *id);
/* Sends the items of ids as a stream of lists, which takes the client's time: what goes meanwhile
 * is left out. ids is the task's. The method's response is nothing but a list of such items. */
int reply_stream(struct task *t, struct call *call, const struct string_list *ids,
		 reply_item_fn item_of);
/* The same of items that are there already, and stay until it returns. */
int reply_stream_items(struct task *t, struct call *call, ProtobufCMessage **items, size_t count);

/* Filters: the id begins with what is wanted. */
bool reply_id_matches(const char *id, const char *wanted);
