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
/* At once if the server had lived for a second, else after 0, 10, 20, 40 … 1000 ms. */
#define KEEPER_DELAY_AUTO (-1)

/*
 * Runs the server: this program (its path, so that a new binary is used; the running one when that
 * can't be executed) with argv, NULL-terminated, without --keep; argv must live on. Before threads
 * are made; every descriptor above 2 is closed. restart_delay_ms: before each new start.
 *
 * SIGTERM and SIGINT are passed on, and the keeper ends with the server; SIGHUP, SIGUSR1 and
 * SIGUSR2 are passed on. A server that exits (not: is killed) before any was ever ready isn't
 * started again, since something is wrong with its configuration. Returns the status to exit with:
 * the server's, 128 + signal if it was killed.
 */
int keeper_main(char **argv, int restart_delay_ms);
