/* SPDX-License-Identifier: Apache-2.0 */
/* Paths in archives, as text. Pure. */
#pragma once

#include <limits.h>

/*
 * Cleans name into ret: no leading slash, no empty, "." or ".." component; "" is the root itself.
 * Returns NULL, or why it is refused.
 */
const char *path_clean(const char *name, char ret[PATH_MAX]);
/* Splits at the last slash: the last component; parent gets what is before it ("" for the root). */
const char *path_split(const char *path, char parent[PATH_MAX]);
