/* SPDX-License-Identifier: Apache-2.0 */
/* Paths in archives. Peculiar: "a/../b" is b whatever a is, as text. */
#include "store/image/unpack/path.h"

#include <string.h>

const char *path_clean(const char *name, char ret[PATH_MAX])
{
	size_t n = 0;

	while (*name) {
		size_t length = strcspn(name, "/");

		if (length == 2 && !strncmp(name, "..", 2)) {
			if (n == 0)
				return "it leads out of the root";
			while (n && ret[--n] != '/')
				;
		} else if (length && !(length == 1 && *name == '.')) {
			if (length > NAME_MAX)
				return "a name is longer than 255 bytes";
			if (n + 1 + length + 1 > PATH_MAX)
				return "the path is longer than 4095 bytes";
			if (n)
				ret[n++] = '/';
			memcpy(ret + n, name, length);
			n += length;
		}
		name += length;
		name += strspn(name, "/");
	}
	ret[n] = 0;
	return NULL;
}

const char *path_split(const char *path, char parent[PATH_MAX])
{
	const char *slash = strrchr(path, '/');
	size_t n = slash ? (size_t)(slash - path) : 0;

	memcpy(parent, path, n);
	parent[n] = 0;
	return slash ? slash + 1 : path;
}
