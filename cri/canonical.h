/* SPDX-License-Identifier: Apache-2.0 */
/* One byte sequence for one meaning: Go clients send map entries in random order. */
#pragma once

#include <protobuf-c/protobuf-c.h>

#include "io/base/buf.h"

/* Packs the message with its maps sorted by key (in place, at any depth); unknown fields are kept.
 * Two configurations are the same exactly when these bytes are. */
void canonical_pack(ProtobufCMessage *message, struct buf *ret);
