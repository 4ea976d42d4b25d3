/* SPDX-License-Identifier: Apache-2.0 */
/* Sorting maps by the descriptor. A map is what protoc makes of one: repeated …Entry {key, value}.
 */
#include "cri/canonical.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

/* All entries of string maps have the same layout. */
struct map_entry {
	ProtobufCMessage base;
	char *key, *value;
};

static int by_key(const void *a, const void *b)
{
	const struct map_entry *const *x = a, *const *y = b;

	return strcmp((*x)->key, (*y)->key);
}

static bool is_string_map(const ProtobufCFieldDescriptor *f)
{
	const ProtobufCMessageDescriptor *d = f->descriptor;

	return f->label == PROTOBUF_C_LABEL_REPEATED && d->n_fields == 2 &&
	       d->fields[0].type == PROTOBUF_C_TYPE_STRING && !strcmp(d->fields[0].name, "key") &&
	       !strcmp(d->fields[1].name, "value") && d->fields[1].type == PROTOBUF_C_TYPE_STRING;
}

static void sort_field(ProtobufCMessage *message, const ProtobufCFieldDescriptor *f)
{
	char *member = (char *)message + f->offset;
	ProtobufCMessage **items;
	size_t count;

	if (f->label != PROTOBUF_C_LABEL_REPEATED) {
		ProtobufCMessage *sub = *(ProtobufCMessage **)(void *)member;

		if (sub)
			for (unsigned i = 0; i < sub->descriptor->n_fields; i++)
				if (sub->descriptor->fields[i].type == PROTOBUF_C_TYPE_MESSAGE)
					sort_field(sub, &sub->descriptor->fields[i]);
		return;
	}
	items = *(ProtobufCMessage ***)(void *)member;
	count = *(size_t *)(void *)((char *)message + f->quantifier_offset);
	if (is_string_map(f) && count)
		qsort(items, count, sizeof(*items), by_key);
}

void canonical_pack(ProtobufCMessage *message, struct buf *ret)
{
	size_t n;

	for (unsigned i = 0; i < message->descriptor->n_fields; i++)
		if (message->descriptor->fields[i].type == PROTOBUF_C_TYPE_MESSAGE)
			sort_field(message, &message->descriptor->fields[i]);
	n = protobuf_c_message_get_packed_size(message);
	protobuf_c_message_pack(message, (uint8_t *)buf_reserve(ret, n));
	ret->length += n;
}
