/* SPDX-License-Identifier: Apache-2.0 */
/* The lowest layer of all containers. */
#include "sandbox/linux/skeleton.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>

#include "io/base/alloc.h"
#include "io/base/cleanup.h"
#include "io/fs.h"

static const char *const dirs[] = {"proc", "sys", "dev", "etc"};
static const char *const files[] = {"etc/hostname", "etc/hosts", "etc/resolv.conf"};

int skeleton_make(const char *root_dir, char **ret_path, struct error *err)
{
	char *path cleanup_free = xasprintf("%s/skeleton", root_dir);
	const struct buf empty = {0};
	cleanup_close int top = -1;

	for (size_t i = 0; i < sizeof(dirs) / sizeof(dirs[0]); i++) {
		char *dir cleanup_free = xasprintf("%s/%s", path, dirs[i]);

		TRY(fs_make_dirs(dir, 0755, err));
	}
	top = open(path, O_PATH | O_DIRECTORY | O_CLOEXEC);
	if (top < 0)
		return error_errno(err, errno, "open %s", path);
	for (size_t i = 0; i < sizeof(files) / sizeof(files[0]); i++)
		TRY(fs_write_at(top, files[i], &empty, 0644, err));
	*ret_path = take_ptr(path);
	return 0;
}

struct string_list skeleton_beneath(const char *skeleton, const struct string_list *layers)
{
	struct string_list list = {.count = layers->count + 1};

	list.items = xmalloc(list.count * sizeof(*list.items));
	list.items[0] = skeleton;
	memcpy(list.items + 1, layers->items, layers->count * sizeof(*list.items));
	return list;
}
