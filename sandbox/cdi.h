/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The Container Device Interface: vendors describe in files what a container needs to use a device
 * of theirs, and a container asks for it by a name such as "vendor.com/gpu=0".
 *
 * What names mean is found once, when a container is created, and is kept as *edits* (a JSON text
 * of the specification's containerEdits, merged), so that a container stays what it was created as
 * while files come and go. Edits change the neutral spec; what they ask for that no kind can do
 * (hooks, intelRdt, netDevices) is refused.
 */
#pragma once

#include "io/base/arena.h"
#include "io/base/buf.h"
#include "io/base/error.h"
#include "sandbox/spec.h"

/* Where the files are when nothing else is configured. */
#define CDI_DIRS "/etc/cdi", "/var/run/cdi"
/* Of one file. */
#define CDI_FILE_MAX (2u << 20)
/* In one directory. */
#define CDI_FILES_MAX 1024
/* What the edits of one container may be. */
#define CDI_EDITS_MAX (1u << 20)

/* ERR_INVALID when it is not "vendor/class=device"; what names the field that has it. */
int cdi_check_name(const char *what, const char *name, struct error *err);

/*
 * Appends the edits for the devices, each once, in their order. Of two files that have a device the
 * one in the later directory counts; two in the same directory are a conflict: ERR_INVALID, as a
 * device that no file has. A file that can't be used is told to report (which may be NULL) and
 * left out. Reads directories: not for the loop's thread.
 */
int cdi_resolve(const struct string_list *dirs, const struct string_list *names,
		void (*report)(void *data, const char *problem), void *data, struct buf *ret,
		struct error *err);

/* Changes spec by edits, which are no longer needed then. ERR_INTERNAL when they are damaged. */
int cdi_apply(struct arena *arena, const void *edits, size_t size, struct container_spec *spec,
	      struct error *err);
