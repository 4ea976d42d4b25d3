/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Descriptors that somebody keeps for us while we are away: the server's side of systemd's protocol
 * (sd_notify(3), sd_pid_notify_with_fds(3), sd_listen_fds(3)), spoken to `crispd --keep` or to
 * systemd. Without either, puts do nothing.
 *
 * At start the kept descriptors come as 3, 4, … with LISTEN_PID, LISTEN_FDS and LISTEN_FDNAMES. One
 * string of the environment can't be longer than 128 KiB, so the keeper (not systemd) uses an
 * extension: LISTEN_FDNAMES names only the keeper's own three,
 *
 *     crisp-names    a memfd with the names of all further descriptors, each ended by NUL
 *     crisp-exits    the records of processes that it reaped (recovery/exit_records.h)
 *     crisp-keeper   the connected datagram socket that takes our messages
 *
 * and the kept ones follow. The socket is inherited and has no name that anybody else could
 * connect to (CVE-2020-15257); with systemd it is $NOTIFY_SOCKET, which counts if $FDSTORE, the
 * number of descriptors that systemd 254 says it keeps, isn't 0 (for an older systemd, the unit
 * file sets it). systemd passes all names in one string, and could not start us again if that were
 * too long: what is put beyond FDSTORE_SYSTEMD_NAMES is not kept, and logged once.
 *
 * A name holds one descriptor: a put replaces (systemd would collect several, so it is told to
 * remove first). A message that was sent is in the keeper's queue: kill -9 right after a put keeps
 * the descriptor. Names are 1 to FDSTORE_NAME_MAX printable ASCII characters without ':' or space.
 */
#pragma once

#include <stdbool.h>

#include "io/task.h"

#define FDSTORE_NAME_MAX 87
/* Bytes of all names with their separators; about 600 containers. */
#define FDSTORE_SYSTEMD_NAMES (120 * 1024)

struct fdstore;
struct exit_records;

/* Whether systemd keeps descriptors for us, by the environment; before fdstore_open(). */
bool fdstore_is_systemd(void);
/* Takes what the environment passes and clears it; every descriptor is close-on-exec then. Call it
 * first, before anything else opens descriptors or makes threads. NULL with err set: what was
 * passed makes no sense. */
struct fdstore *fdstore_open(struct loop *l, struct error *err);
/* Closes what was not taken; the keeper's copies stay. NULL is fine. */
void fdstore_close(struct fdstore *fs);
bool fdstore_has_keeper(const struct fdstore *fs);

/* The descriptor that was kept under the name, the caller's now, or -1. The keeper keeps its copy
 * until fdstore_drop(). */
int fdstore_take(struct fdstore *fs, const char *name);
/* Has fd kept; it stays the caller's. Waits while the keeper's queue is full. 0 without effect when
 * there is no keeper (any more). */
int fdstore_put(struct task *t, struct fdstore *fs, const char *name, int fd);
/* Ends the keeping, fine if there is none; what was not taken is closed. */
int fdstore_drop(struct task *t, struct fdstore *fs, const char *name);
/* Drops what was passed at start, not taken, and is nobody's by is_owned: once reconcile has seen
 * every object. */
int fdstore_sweep(struct task *t, struct fdstore *fs,
		  bool (*is_owned)(void *data, const char *name), void *data);

/* READY=1: the server answers. Never waits. */
void fdstore_notify_ready(struct fdstore *fs);
/* The keeper's records for exit_status.c; NULL without a keeper of ours. */
struct exit_records *fdstore_exit_records(struct fdstore *fs);
