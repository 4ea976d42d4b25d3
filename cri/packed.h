/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Messages that are kept packed, as they came (protobuf's wire form): decoded in an arena where all
 * of them is needed; else read where they lie, so that a list costs no more than what it tells.
 * Bytes are those of one whole message that could be decoded once.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>

#include <protobuf-c/protobuf-c.h>

#include "io/base/arena.h"
#include "io/base/buf.h"

/* NULL when the bytes are damaged. The arena's cap doesn't count: they were limited as a request.
 */
void *packed_decode(struct arena *arena, const ProtobufCMessageDescriptor *d,
		    const struct buf *bytes);
/* Whether the message's map "labels" has all these entries (of any map<string, string>). */
bool packed_has_labels(const ProtobufCMessageDescriptor *d, const struct buf *bytes,
		       const void *selectors, size_t count);
/* Adds the fields of these names (the last is NULL) to another message that has them, too, of the
 * same types; they stay where they are, so bytes must until it is packed. */
void packed_lend(struct arena *arena, const ProtobufCMessageDescriptor *d, const struct buf *bytes,
		 const char *const *names, ProtobufCMessage *to);
