/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Whether the node was rebooted since the store was written: the kernel's boot id (random(4))
 * against the one in the store. Checked and noted apart, since a crash in between must leave the
 * reboot to be noticed again by the next start.
 */
#pragma once

#include <stdbool.h>

#include "store/db.h"

/* At start, before the loop runs. False for a new store. CRISP_BOOT_ID in the environment replaces
 * the kernel's (tests). */
int boot_check(struct store *s, bool *ret_is_rebooted, struct error *err);
/* Notes the present boot, once everything of the earlier one is marked as ended in the store. */
int boot_commit(struct task *t, struct store *s);
