/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The layer beneath every image: empty proc, sys, dev and etc with the files that a pod's are
 * mounted on. Without it each start would make them in the container's own layer, 0.3 ms apiece on
 * a disk. An image's own hide them.
 */
#pragma once

#include "io/base/error.h"
#include "io/base/strings.h"

/* A directory in it that is empty for ever. */
#define SKELETON_EMPTY "proc"

/* Makes ROOT/skeleton, or completes it. Blocks; at start. ret_path: malloc'ed. */
int skeleton_make(const char *root_dir, char **ret_path, struct error *err);
/* The layers with the skeleton as the lowest one; the list is malloc'ed, its strings are borrowed.
 */
struct string_list skeleton_beneath(const char *skeleton, const struct string_list *layers);
