/* SPDX-License-Identifier: Apache-2.0 */
/* Paths as text; what they lead to is the kernel's to say. */
#pragma once

/* Without ".", ".." and double slashes, as if nothing were a link; from "/" on. The caller's. */
char *path_clean(const char *path);
