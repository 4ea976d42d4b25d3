/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What an entry says of a file besides its data: owner, mode, capabilities and times, set in this
 * order, since a change of owner takes setuid bits and capabilities away. Of extended attributes
 * only security.capability and user.* (not user.overlay.*) are taken: trusted.* and user.overlay.*
 * would steer overlayfs.
 */
#pragma once

#include <time.h>

#include "io/base/error.h"

struct archive_entry;

struct timespec meta_mtime(struct archive_entry *e);
int meta_set(int fd, struct archive_entry *e, struct error *err);
/* For what can't be opened: links and nodes. */
int meta_set_at(int dir, const char *name, struct archive_entry *e, struct error *err);
