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
 * SIGUSR2 has it execute the program at its path in its own place, so that a new version's keeper
 * goes on with all of it: descriptors, exit records, signals, and the server, which stays its child
 * and notices nothing. A child executes the same program first; if that can't take over (it is of a
 * version that doesn't understand, or it is broken), the old keeper goes on and logs that. For a
 * new server only, kill the server.
 *
 * It allocates nothing after its start and has fixed tables, so that nothing on the node can make
 * it fail. Understood messages: FDSTORE=1 and FDSTOREREMOVE=1 with FDNAME= (FDPOLL= has no meaning
 * here: nothing is dropped by itself), READY=1 (passed on to $NOTIFY_SOCKET once), BARRIER=1, and
 * STOPPING=1. Only the server's own pid is listened to. A put beyond the limit of descriptors
 * (RLIMIT_NOFILE, at most KEEPER_FD_MAX, less a few) is dropped and logged.
 *
 * Under systemd that keeps descriptors ($FDSTORE), all that is kept is given to it at the keeper's
 * end and taken back at the next one's start, so that a restart of the unit loses nothing of it.
 *
 * If the keeper itself is killed, the server and all containers go on without it; but the server
 * ends where somebody ($NOTIFY_SOCKET) starts another keeper.
 */
#pragma once

/* Descriptor numbers in the keeper stay below it. */
#define KEEPER_FD_MAX 20480
/* At once if the server had lived for a second, else after 0, 10, 20, 40 … 1000 ms. */
#define KEEPER_DELAY_AUTO (-1)

/*
 * Becomes the keeper of a server: this program (its path, so that a new binary is used; the running
 * one when that can't be executed) with argv, NULL-terminated, without --keep. restart_delay_ms:
 * before each new start. Executes the keeper, a small program within this one, which closes every
 * descriptor above 2; so it returns only if that failed, with 1, the reason logged.
 *
 * SIGTERM and SIGINT are passed on, and the keeper ends with the server; SIGHUP and SIGUSR1 are
 * passed on. A server that exits (not: is killed) before any was ever ready isn't
 * started again, since something is wrong with its configuration. The keeper exits with the status
 * of the server, 128 + signal if it was killed.
 */
int keeper_main(char **argv, int restart_delay_ms);

/* Between keeper.c and the program: its orders in the environment ("delay path"), and where it
 * inherits the server's program. */
#define KEEPER_VARIABLE "CRISP_KEEPER"
#define KEEPER_PROGRAM_FD 8
/* And the first of as many descriptors as systemd passed at 3, 4, … ($LISTEN_FDS). */
#define KEEPER_PASSED_FD(count) (16 + (count))

/* From one keeper to the next, through keeper_main(): set in the environment when what it hands
 * over (recovery/keeper/handover.h) is at the descriptor, for a trial or in earnest; and how a
 * trial exits that could. */
#define KEEPER_STATE_VARIABLE "CRISP_KEEPER_STATE"
#define KEEPER_STATE_CHECK "check"
#define KEEPER_STATE_TAKE "take"
#define KEEPER_STATE_FD 9
#define KEEPER_CAN_TAKE_OVER 117
