/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Root file systems: overlays that are made detached, so nothing appears in the host's mount
 * namespace. Blocks: for offload, on a thread in the host's mount namespace.
 */
#pragma once

#include <stdbool.h>

#include "io/base/error.h"
#include "io/base/strings.h"

struct overlay_spec {
	struct string_list layers; /* directories, lowest first, at least one */
	const char *upper, *work;  /* NULL: read-only */
	/* User namespace whose ids the layers shall show, or -1. Only the layers are id-mapped,
	 * since with both the overlay would be read-only without a word; the upper directory's own
	 * owner must be mapped by the caller. */
	int user_fd;
	bool has_devices;  /* device nodes in it work */
	const char *label; /* SELinux: of all that is in it; NULL: what the layers have */
};

/* The detached mount. */
int overlay_mount(const struct overlay_spec *spec, int *ret_mount, struct error *err);
/* A directory that shows the layers alone, to read in: the layer itself when there is one. */
int overlay_open_layers(const struct string_list *layers, int *ret_dir, struct error *err);
