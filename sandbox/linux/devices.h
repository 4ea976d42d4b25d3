/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The device nodes that a container gets. Blocks, as all that looks at paths of the host: for
 * offload, on a thread in the host's mount namespace.
 */
#pragma once

#include <stdbool.h>
#include <sys/stat.h>

#include "io/base/error.h"
#include "sandbox/spec.h"

bool is_device(const struct stat *st);

/* A device for a container's /dev. */
struct device {
	char *path;	 /* in the container */
	char *host_path; /* where it comes from */
	mode_t mode;
	uid_t uid;
	gid_t gid;
	dev_t number;
	const char *access; /* out of "rwm"; the spec's */
};

struct device_list {
	struct device *items;
	size_t count;
};

/* How many of a list are the ones that every container has; they come first. */
#define DEVICES_STANDARD 6

/* Those that every container has, those asked for (a directory: all nodes beneath it), and for
 * with_host all of the host's /dev. */
int device_list_make(const struct container_spec *spec, bool with_host, struct device_list *ret,
		     struct error *err);
void device_list_done(struct device_list *list);
