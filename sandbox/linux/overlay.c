/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Overlays. Peculiar: layers are given by descriptor where the kernel can (6.13), else as one
 * string of /proc/self/fd paths, which keeps it short enough for fsconfig(2).
 */
#include "sandbox/linux/overlay.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <unistd.h>

#include "io/base/alloc.h"
#include "io/base/buf.h"
#include "io/base/cleanup.h"

/* What fsconfig(2) takes as one string. */
#define STRING_MAX 255
#define LAYERS_MAX 500

/* What the kernel says about the file system in the making, instead of a bare EINVAL. */
static int explain(int fs, int sys, const char *what, struct error *err)
{
	char text[256];
	ssize_t n = read(fs, text, sizeof(text) - 1);

	if (n <= 2)
		return error_errno(err, sys, "%s", what);
	while (n > 0 && text[n - 1] == '\n')
		n--;
	text[n] = 0;
	error_errno(err, sys, "%s: %s", what, text + 2);
	return -(int)err->code;
}

static int open_layer(const char *path, int user_fd, int *ret_fd, struct error *err)
{
	struct mount_attr map = {.attr_set = MOUNT_ATTR_IDMAP, .userns_fd = (uint64_t)user_fd};
	int fd = user_fd < 0 ? open(path, O_PATH | O_DIRECTORY | O_CLOEXEC)
			     : open_tree(AT_FDCWD, path, OPEN_TREE_CLONE | OPEN_TREE_CLOEXEC);

	if (fd < 0)
		return error_errno(err, errno, "open the layer %s", path);
	if (user_fd >= 0 && mount_setattr(fd, "", AT_EMPTY_PATH, &map, sizeof(map)) < 0) {
		error_errno(err, errno, "map the ids of the layer %s", path);
		close(fd);
		return -(int)err->code;
	}
	*ret_fd = fd;
	return 0;
}

static int set_layers_string(int fs, const int *layers, size_t count, struct error *err)
{
	struct buf text = {0};
	int r = 0;

	for (size_t i = count; i-- > 0;)
		buf_printf(&text, "%s/proc/self/fd/%d", text.length ? ":" : "", layers[i]);
	if (text.length > STRING_MAX)
		r = error_set(err, ERR_UNIMPLEMENTED,
			      "mount %zu layers: this kernel takes fewer; Linux 6.13 has no limit",
			      count);
	else if (fsconfig(fs, FSCONFIG_SET_STRING, "lowerdir", text.data, 0) < 0)
		r = explain(fs, errno, "give an overlay its layers", err);
	buf_done(&text);
	return r;
}

static int set_layers(int fs, const int *layers, size_t count, struct error *err)
{
	for (size_t i = count; i-- > 0;) {
		if (fsconfig(fs, FSCONFIG_SET_FD, "lowerdir+", NULL, layers[i]) == 0)
			continue;
		if (i == count - 1 && errno == EINVAL)
			return set_layers_string(fs, layers, count, err);
		return explain(fs, errno, "give an overlay a layer", err);
	}
	return 0;
}

static int set_directory(int fs, const char *key, const char *path, struct error *err)
{
	cleanup_close int fd = open(path, O_PATH | O_DIRECTORY | O_CLOEXEC);
	char link[32];

	if (fd < 0)
		return error_errno(err, errno, "open %s", path);
	if (fsconfig(fs, FSCONFIG_SET_FD, key, NULL, fd) == 0)
		return 0;
	snprintf(link, sizeof(link), "/proc/self/fd/%d", fd);
	if (fsconfig(fs, FSCONFIG_SET_STRING, key, link, 0) < 0)
		return explain(fs, errno, path, err);
	return 0;
}

static int make_overlay(const struct overlay_spec *spec, const int *layers, int *ret_mount,
			struct error *err)
{
	cleanup_close int fs = fsopen("overlay", FSOPEN_CLOEXEC);
	int mount;

	if (fs < 0)
		return error_errno(err, errno, "open the overlay file system");
	if (fsconfig(fs, FSCONFIG_SET_STRING, "source", "overlay", 0) < 0)
		return error_errno(err, errno, "name an overlay");
	if (spec->label && fsconfig(fs, FSCONFIG_SET_STRING, "context", spec->label, 0) < 0)
		return explain(fs, errno, "give an overlay its label", err);
	TRY(set_layers(fs, layers, spec->layers.count, err));
	if (spec->upper) {
		TRY(set_directory(fs, "upperdir", spec->upper, err));
		TRY(set_directory(fs, "workdir", spec->work, err));
	}
	if (fsconfig(fs, FSCONFIG_CMD_CREATE, NULL, NULL, 0) < 0)
		return explain(fs, errno, "make an overlay", err);
	mount = fsmount(fs, FSMOUNT_CLOEXEC,
			(spec->upper ? 0 : MOUNT_ATTR_RDONLY) |
				(spec->has_devices ? 0 : MOUNT_ATTR_NODEV));
	if (mount < 0)
		return error_errno(err, errno, "mount an overlay");
	*ret_mount = mount;
	return 0;
}

int overlay_mount(const struct overlay_spec *spec, int *ret_mount, struct error *err)
{
	size_t count = spec->layers.count;
	int *fds, r = 0;

	if (!count || count > LAYERS_MAX)
		return error_set(err, ERR_INVALID, "mount an overlay of %zu layers: 1 to %d can be",
				 count, LAYERS_MAX);
	fds = xmalloc(count * sizeof(*fds));
	for (size_t i = 0; i < count; i++)
		fds[i] = -1;
	for (size_t i = 0; i < count && r == 0; i++)
		r = open_layer(spec->layers.items[i], spec->user_fd, &fds[i], err);
	if (r == 0)
		r = make_overlay(spec, fds, ret_mount, err);
	for (size_t i = 0; i < count; i++)
		close_fd(fds[i]);
	free(fds);
	return r;
}

int overlay_open_layers(const struct string_list *layers, int *ret_dir, struct error *err)
{
	struct overlay_spec spec = {.layers = *layers, .user_fd = -1};

	if (layers->count == 1)
		return open_layer(layers->items[0], -1, ret_dir, err);
	return overlay_mount(&spec, ret_dir, err);
}
