/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The image configuration (OCI image-spec, config.md; docker's is the same but for its media type):
 * parsed once, when an image is imported or loaded.
 */
#pragma once

#include "io/base/arena.h"
#include "io/base/error.h"
#include "store/image/image.h"

/* overlayfs takes 500 lower layers; no builder makes more than 127. */
#define IMAGE_LAYERS_MAX 256

/* Go's name of the processor that this is built for, "amd64". */
extern const char *const image_architecture;

/* ret and ret_diff_ids point into the arena. ERR_INVALID with what is wrong. */
int image_config_parse(const char *json, size_t n, struct arena *arena, struct image_config *ret,
		       struct string_list *ret_diff_ids, struct error *err);
