/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Anonymous volumes: what an image declares as VOLUME gets a directory of the container's own, with
 * what the image has there. The image is hostile: its path is resolved beneath its root, links are
 * copied and never followed, and all goes by descriptor (CVE-2022-23648).
 */
#pragma once

#include <stdatomic.h>

#include "io/base/error.h"

/*
 * Makes the absolute path dir, with what is above it, and copies into it what path is beneath the
 * directory image: owners, modes, times, extended attributes, holes, hard links and device nodes
 * stay as they are. What was in dir before goes. Nothing at path: an empty directory; something
 * else than a directory: ERR_INVALID. ERR_CANCELLED soon after *is_given_up is set. Blocks as long
 * as copying takes: for offload.
 */
int volume_make(int image, const char *path, const char *dir, const atomic_bool *is_given_up,
		struct error *err);
