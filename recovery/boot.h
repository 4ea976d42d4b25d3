/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Whether the node was rebooted since the store was written: the kernel's boot id (random(4))
 * against the one in the store. Noting it is part of the batch that marks everything of the earlier
 * boot as ended, so that a crash leaves both or neither.
 */
#pragma once

#include <stdbool.h>

#include "store/db.h"

#define BOOT_ID_SIZE 64

/* The present boot's. CRISP_BOOT_ID in the environment replaces the kernel's (tests). */
int boot_id(char id[BOOT_ID_SIZE], struct error *err);

enum boot {
	BOOT_SAME,
	BOOT_FIRST, /* none was noted: a new store */
	BOOT_OTHER,
};

/* At start, before the loop runs. */
int boot_check(struct store *s, enum boot *ret_boot, struct error *err);
/* Adds the present boot's id to what is written. */
int boot_note(struct store_batch *batch, struct error *err);
