/* SPDX-License-Identifier: Apache-2.0 */
/*
 * systemd above a keeper, where the kernel is too old to do without one: it hears when the server
 * is ready, and keeps the keeper's descriptors while the unit is restarted. (A server whose keeper
 * is systemd itself speaks to it by recovery/fdstore.h.) Without $NOTIFY_SOCKET nothing happens.
 */
#pragma once

#include <stdbool.h>

/* What it is given besides the table: the exit records. */
#define SYSTEMD_EXITS_NAME "crisp-exits"

/* READY=1. */
void systemd_notify_ready(void);
/* Puts what the environment passes to us into the empty table, and has systemd forget it. */
void systemd_take(void);
/* Gives it the table and exits_fd, as far as names fit into one string of the environment. At the
 * keeper's end; waits for it a little. */
void systemd_give(int exits_fd);
