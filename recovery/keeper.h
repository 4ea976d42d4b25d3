/* SPDX-License-Identifier: Apache-2.0 */
/*
 * `crispd --keep`: the parent of the server, which keeps what must not die with it. It
 *
 *   - keeps descriptors that the server sends (fdstore.h has the protocol) and passes all of them
 * to every server that it starts;
 *   - is the subreaper (PR_SET_CHILD_SUBREAPER): containers of a server that died become its
 *     children, and it records how they end (exit_records.h);
 *   - starts the server again when it dies.
 *
 * It allocates nothing after its start and has fixed tables, so that nothing on the node can make
 * it fail. Understood messages: FDSTORE=1 and FDSTOREREMOVE=1 with FDNAME= (FDPOLL= has no meaning
 * here: nothing is dropped by itself), READY=1 (passed on to $NOTIFY_SOCKET once), BARRIER=1, and
 * STOPPING=1. Only the server's own pid is listened to. A put beyond the limit of descriptors
 * (RLIMIT_NOFILE, at most KEEPER_FD_MAX) is dropped and logged.
 *
 * If the keeper itself is killed, the server and all containers go on without it.
 */
#pragma once

/* Descriptor numbers in the keeper stay below it. */
#define KEEPER_FD_MAX 20480
/* restart_delay_ms: at once when the server had lived a second, else 10 ms, doubling up to 1 s. */
#define KEEPER_DELAY_AUTO (-1)

/*
 * Runs the server: this program (its path, so that a new binary is used; the running one when that
 * can't be executed) with argv, NULL-terminated, without --keep. SIGHUP, SIGTERM and SIGINT go to
 * the server; after the latter two the keeper ends with it. A server that exits (not: is killed)
 * before any was ever ready isn't started again, since its configuration is wrong. Never returns
 * before the end; returns the status to exit with (128 + signal if the server was killed).
 */
int keeper_main(char **argv, int restart_delay_ms);
