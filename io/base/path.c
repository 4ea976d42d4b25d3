/* SPDX-License-Identifier: Apache-2.0 */
/* Paths as text. */
#include "io/base/path.h"

#include <string.h>

#include "io/base/alloc.h"

char *path_clean(const char *path)
{
	char *clean = xmalloc(strlen(path) + 2), *end = clean;

	while (*path) {
		size_t n = strcspn(path, "/");

		if (n == 2 && path[0] == '.' && path[1] == '.') {
			while (end > clean && *--end != '/')
				;
		} else if (n && !(n == 1 && path[0] == '.')) {
			*end++ = '/';
			memcpy(end, path, n);
			end += n;
		}
		path += n + strspn(path + n, "/");
	}
	if (end == clean)
		*end++ = '/';
	*end = 0;
	return clean;
}
