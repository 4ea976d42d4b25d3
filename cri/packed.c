/* SPDX-License-Identifier: Apache-2.0 */
/* Peculiar: what is lent goes along as fields that protobuf-c takes for unknown ones, which it
 * packs as they are. */
#include "cri/packed.h"

#include <stdint.h>
#include <string.h>

#include "cri/reply.h"

#define TAG_BITS 3
#define VARINT_MAX 10

static void *allocate(void *data, size_t size)
{
	return arena_alloc(data, size);
}

static void leave(void *data, void *p)
{
	/* the arena goes as a whole */
}

void *packed_decode(struct arena *arena, const ProtobufCMessageDescriptor *d,
		    const struct buf *bytes)
{
	ProtobufCAllocator allocator = {allocate, leave, arena};

	return protobuf_c_message_unpack(d, &allocator, bytes->length, (uint8_t *)bytes->data);
}

struct reader {
	const uint8_t *p, *end;
};

struct field {
	unsigned number;
	ProtobufCWireType type;
	const uint8_t *data;  /* as packed, behind the tag */
	const uint8_t *value; /* of PROTOBUF_C_WIRE_TYPE_LENGTH_PREFIXED: behind the length, too */
	const uint8_t *end;
};

static struct reader reader_of(const struct buf *bytes)
{
	const uint8_t *p = (const uint8_t *)bytes->data;

	return (struct reader){p, p + bytes->length};
}

static bool read_varint(struct reader *r, uint64_t *ret)
{
	uint64_t value = 0;

	for (unsigned i = 0; i < VARINT_MAX && r->p < r->end; i++) {
		uint8_t byte = *r->p++;

		value |= (uint64_t)(byte & 127) << 7 * i;
		if (!(byte & 128)) {
			*ret = value;
			return true;
		}
	}
	return false;
}

/* False at the end, which is also what isn't valid. */
static bool read_field(struct reader *r, struct field *ret)
{
	uint64_t tag, n;

	if (!read_varint(r, &tag))
		return false;
	ret->number = (unsigned)(tag >> TAG_BITS);
	ret->type = (ProtobufCWireType)(tag & ((1u << TAG_BITS) - 1));
	ret->data = ret->value = r->p;
	switch (ret->type) {
	case PROTOBUF_C_WIRE_TYPE_VARINT:
		if (!read_varint(r, &n))
			return false;
		n = 0;
		break;
	case PROTOBUF_C_WIRE_TYPE_LENGTH_PREFIXED:
		if (!read_varint(r, &n))
			return false;
		ret->value = r->p;
		break;
	case PROTOBUF_C_WIRE_TYPE_64BIT:
		n = 8;
		break;
	case PROTOBUF_C_WIRE_TYPE_32BIT:
		n = 4;
		break;
	default:
		return false;
	}
	if (n > (uint64_t)(r->end - r->p))
		return false;
	r->p += n;
	ret->end = r->p;
	return true;
}

static bool is_text(const struct field *f, const char *text)
{
	size_t n = (size_t)(f->end - f->value);

	return f->type == PROTOBUF_C_WIRE_TYPE_LENGTH_PREFIXED && n == strlen(text) &&
	       !memcmp(f->value, text, n);
}

/* What is empty may be left out. */
static bool is_entry(const struct field *map, const struct reply_map_entry *wanted)
{
	struct reader r = {map->value, map->end};
	bool has_key = !*wanted->key, has_value = !*wanted->value;
	struct field f;

	while (read_field(&r, &f)) {
		if (f.number == 1)
			has_key = is_text(&f, wanted->key);
		else if (f.number == 2)
			has_value = is_text(&f, wanted->value);
	}
	return has_key && has_value;
}

static bool has_label(const struct buf *bytes, unsigned number,
		      const struct reply_map_entry *wanted)
{
	struct reader r = reader_of(bytes);
	struct field f;

	while (read_field(&r, &f))
		if (f.number == number && f.type == PROTOBUF_C_WIRE_TYPE_LENGTH_PREFIXED &&
		    is_entry(&f, wanted))
			return true;
	return false;
}

bool packed_has_labels(const ProtobufCMessageDescriptor *d, const struct buf *bytes,
		       const void *selectors, size_t count)
{
	const ProtobufCFieldDescriptor *labels =
		protobuf_c_message_descriptor_get_field_by_name(d, "labels");
	const struct reply_map_entry *const *wanted = selectors;

	for (size_t i = 0; i < count; i++)
		if (!has_label(bytes, labels->id, wanted[i]))
			return false;
	return true;
}

/* The number that the field has there; 0 when it is of none of the names. */
static unsigned number_for(const ProtobufCMessageDescriptor *d, const struct field *f,
			   const char *const *names, const ProtobufCMessage *to)
{
	const ProtobufCFieldDescriptor *from =
		protobuf_c_message_descriptor_get_field(d, f->number);

	if (!from)
		return 0;
	while (*names && strcmp(*names, from->name) != 0)
		names++;
	return *names ? protobuf_c_message_descriptor_get_field_by_name(to->descriptor, *names)->id
		      : 0;
}

void packed_lend(struct arena *arena, const ProtobufCMessageDescriptor *d, const struct buf *bytes,
		 const char *const *names, ProtobufCMessage *to)
{
	struct reader counted = reader_of(bytes), r = counted;
	size_t count = 0;
	struct field f;

	while (read_field(&counted, &f))
		count += number_for(d, &f, names, to) != 0;
	to->unknown_fields = arena_new_array(arena, ProtobufCMessageUnknownField, count);
	to->n_unknown_fields = 0;
	while (read_field(&r, &f)) {
		unsigned number = number_for(d, &f, names, to);

		if (number)
			to->unknown_fields[to->n_unknown_fields++] = (ProtobufCMessageUnknownField){
				.tag = number,
				.wire_type = f.type,
				.len = (size_t)(f.end - f.data),
				.data = (uint8_t *)f.data,
			};
	}
}
