/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What this version of the API does not have: values of enums are refused, and fields, which a
 * newer client may send to any server, are told in the log. Peculiar: it goes by the descriptors,
 * so that no message and no later field can be forgotten; elsewhere such a value would have to mean
 * something.
 */
#include "cri/translate_priv.h"

#include "io/base/log.h"

#include <stdio.h>
#include <string.h>

/* The longest that names and indices of the API make. */
#define PATH_SIZE 256
/* Fields that are told; no client can fill the log. */
#define TOLD_MAX 64

/* Each field once, for whoever wonders why a pod lacks what it asked for. */
static void tell_unknown(const ProtobufCMessage *m, const char *path)
{
	static struct {
		const ProtobufCMessageDescriptor *message;
		uint32_t tag;
	} told[TOLD_MAX];
	static size_t count;

	for (unsigned i = 0; i < m->n_unknown_fields && count < TOLD_MAX; i++) {
		uint32_t tag = m->unknown_fields[i].tag;
		size_t k = 0;

		while (k < count && (told[k].message != m->descriptor || told[k].tag != tag))
			k++;
		if (k < count)
			continue;
		told[count].message = m->descriptor;
		told[count++].tag = tag;
		log_warning("%s: field %u of %s is newer than this server, and has no effect", path,
			    tag, m->descriptor->short_name);
	}
}

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
	tell_unknown(m, path);
	for (unsigned i = 0; i < m->descriptor->n_fields; i++)
		TRY(check_field(m, &m->descriptor->fields[i], path, err));
	return 0;
}
