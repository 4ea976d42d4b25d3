/* SPDX-License-Identifier: Apache-2.0 */
/* A list as a stream of parts. Peculiar: all messages of that kind have one layout. */
#include "cri/grpc.h"
#include "cri/reply.h"

/* What goes into one message: a fraction of what clients take, 4 MiB if they say nothing. */
#define PART_ITEMS 1000
#define PART_BYTES (1u << 20)

/* What protobuf-c makes of a message that is nothing but one list of messages. */
struct list_message {
	ProtobufCMessage base;
	size_t count;
	ProtobufCMessage **items;
};

static bool is_full(size_t count, size_t bytes)
{
	return count >= PART_ITEMS || bytes >= PART_BYTES;
}

/* Adds items from the at-th id on until the part is full; returns how many ids that were. */
static size_t fill(struct arena *arena, struct call *call, const struct string_list *ids, size_t at,
		   reply_item_fn item_of, struct list_message *part)
{
	size_t begin = at, bytes = 0;

	part->items = arena_new_array(arena, ProtobufCMessage *, PART_ITEMS);
	for (; at < ids->count && !is_full(part->count, bytes); at++) {
		ProtobufCMessage *item = item_of(arena, call_data(call), ids->items[at]);

		if (!item)
			continue;
		part->items[part->count++] = item;
		bytes += protobuf_c_message_get_packed_size(item);
	}
	return at - begin;
}

static int send_part(struct task *t, struct call *call, const struct string_list *ids,
		     reply_item_fn item_of, size_t *at)
{
	struct arena *arena = arena_new(TASK_ARENA_CAP);
	struct list_message part;
	int r = 0;

	protobuf_c_message_init(call_method(call)->response, &part);
	*at += fill(arena, call, ids, *at, item_of, &part);
	if (part.count)
		r = call_send(t, call, &part.base);
	arena_free(arena);
	return r;
}

int reply_stream(struct task *t, struct call *call, const struct string_list *ids,
		 reply_item_fn item_of)
{
	size_t at = 0;

	while (at < ids->count)
		TRY(send_part(t, call, ids, item_of, &at));
	return 0;
}

int reply_stream_items(struct task *t, struct call *call, ProtobufCMessage **items, size_t count)
{
	size_t at = 0;

	while (at < count) {
		struct list_message part;
		size_t bytes = 0;

		protobuf_c_message_init(call_method(call)->response, &part);
		part.items = items + at;
		for (; at < count && !is_full(part.count, bytes); at++, part.count++)
			bytes += protobuf_c_message_get_packed_size(items[at]);
		TRY(call_send(t, call, &part.base));
	}
	return 0;
}
