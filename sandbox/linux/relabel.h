/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Labels of files that a container gets from the host, where the kernel has SELinux. Blocks: for
 * offload.
 */
#pragma once

#include "io/base/error.h"

/*
 * Gives label to what source (O_PATH) is, and to all beneath it, itself last. Links are labelled
 * and not followed, other file systems not entered, and what has the label already is left alone,
 * so that one that was interrupted goes on. A file system without labels is left as it is.
 *
 * ERR_INVALID: it is a directory or file that the host itself lives by, whatever it is called
 * here; root is the host's root directory. path is for messages.
 */
int relabel(int root, int source, const char *path, const char *label, struct error *err);
