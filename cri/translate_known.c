/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Values of enums that this version of the API does not have. Peculiar: it goes by the descriptors,
 * so that no message and no later field can be forgotten; elsewhere such a value would have to mean
 * something.
 */
#include "cri/translate_priv.h"

#include <stdio.h>
#include <string.h>

/* The longest that names and indices of the API make. */
#define PATH_SIZE 256

static int check_value(const ProtobufCFieldDescriptor *f, const void *member, const char *path,
		       struct error *err)
{
	int value;

	memcpy(&value, member, sizeof(value));
	if (protobuf_c_enum_descriptor_get_value(f->descriptor, value))
		return 0;
	return error_set(err, ERR_INVALID, "%s %d: the API knows no such value; leave it out", path,
			 value);
}

static int check_field(const ProtobufCMessage *m, const ProtobufCFieldDescriptor *f,
		       const char *path, struct error *err)
{
	const char *member = (const char *)m + f->offset;
	const ProtobufCMessage *const *items;
	char inner[PATH_SIZE];
	size_t count;

	snprintf(inner, sizeof(inner), "%s.%s", path, f->name);
	if (f->type == PROTOBUF_C_TYPE_ENUM && f->label != PROTOBUF_C_LABEL_REPEATED)
		return check_value(f, member, inner, err);
	if (f->type != PROTOBUF_C_TYPE_MESSAGE)
		return 0;
	if (f->label != PROTOBUF_C_LABEL_REPEATED) {
		items = (const void *)member;
		return *items ? translate_check_known(*items, inner, err) : 0;
	}
	items = *(const ProtobufCMessage *const *const *)(const void *)member;
	memcpy(&count, (const char *)m + f->quantifier_offset, sizeof(count));
	for (size_t i = 0; i < count; i++) {
		snprintf(inner, sizeof(inner), "%s.%s[%zu]", path, f->name, i);
		TRY(translate_check_known(items[i], inner, err));
	}
	return 0;
}

int translate_check_known(const ProtobufCMessage *m, const char *path, struct error *err)
{
	for (unsigned i = 0; i < m->descriptor->n_fields; i++)
		TRY(check_field(m, &m->descriptor->fields[i], path, err));
	return 0;
}
