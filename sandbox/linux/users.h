/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Who a container runs as: numbers and names, looked up in the image's own etc/passwd and etc/group
 * by our own parser. libc's lookups would read the host's files or load NSS modules.
 *
 * The files are the image's, so hostile: resolved beneath its root without magic links, regular
 * files only, at most USERS_FILE_MAX bytes. A number that does not fit an id (CVE-2024-40635,
 * CVE-2026-46680) is refused and never taken for a name.
 */
#pragma once

#include "io/base/error.h"
#include "sandbox/spec.h"

#define USERS_FILE_MAX (1024 * 1024)
/* Of setgroups(2). */
#define USERS_GROUPS_MAX 65536
/* (uid_t)-1 means "none" to the kernel, so ids end one below; user and group of a container end at
 * 2^31-1, as in Kubernetes' API. */
#define USERS_ID_MAX 2147483647u

/*
 * spec->user is "", "1000", "name", "1000:1000", "name:group" (a ':' only when spec->group is
 * NULL); root_fd is the image's root (O_PATH will do). The group is spec's, else the passwd
 * entry's, else 0. groups: primary, supplemental, and with GROUPS_MERGE those that /etc/group gives
 * to the user's name (CVE-2022-2995 was their absence or surplus); no duplicates. A name that is
 * not found is ERR_INVALID; a number needs no entry. Reads files: not on the loop's thread.
 */
int user_lookup(int root_fd, const struct user_spec *spec, struct user_ids *ret, struct error *err);
/* Frees what ids holds; harmless twice. */
void user_ids_done(struct user_ids *ids);
