/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Between the server and its unpacker, a short-lived child (crisp-unpack, carried within crispd):
 *
 *     crisp-unpack layer|archive MAX_BYTES MAX_INODES
 *
 * Its descriptors are the stream, the empty target directory, the reports' pipe and, for a layer,
 * the directories of the layers below it, lowest first. It writes one report, then the
 * NUL-terminated paths of the directories that are opaque: it may not set the trusted attribute
 * that says so. The server believes nothing in there but what harms only this layer.
 *
 * "layer": the tree as a container shall see it, whiteouts in overlayfs's form.
 * "archive": plain files, directories and links with our owner, to look into; nothing else, not
 * synced and not measured.
 */
#pragma once

#include <stdint.h>

#include "store/image/digest.h"

enum unpack_fd { UNPACK_STREAM = 3, UNPACK_TARGET, UNPACK_REPORT, UNPACK_LOWER };

#define UNPACK_OPAQUE_MAX (16 * 1024 * 1024)

struct unpack_report {
	uint32_t size;		   /* sizeof(struct unpack_report) */
	int32_t code;		   /* enum err */
	char text[768];		   /* of the error */
	char digest[DIGEST_SIZE];  /* of the stream as it came */
	char diff_id[DIGEST_SIZE]; /* of the tar in it */
	uint64_t bytes, inodes;	   /* that the tree takes */
	uint64_t opaque_bytes;	   /* how much follows */
};
