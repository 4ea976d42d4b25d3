/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a keeper tells the one that is executed in its place, in a memfd that both have at
 * KEEPER_STATE_FD. Everything else goes on by itself, since the process stays the same one:
 * children and signals, and the descriptors at the numbers that this version gives them: 3 names, 4
 * exit records, 5 and 6 the socket's ends, 7 signals, 8 the server's program, 9 this.
 *
 * A header, then an entry for each kept descriptor. Fields may be added to the end of both, since
 * their sizes are in the header and a reader takes what both know, zero for the rest; what changes
 * the meaning of a field or a number changes HANDOVER_VERSION, and another version is refused.
 */
#pragma once

#include <stdint.h>

#include "io/base/error.h"
#include "recovery/fdstore.h"

#define HANDOVER_MAGIC "crisp-k"
#define HANDOVER_VERSION 1

struct handover {
	char magic[8];
	uint32_t version;
	uint32_t header_size, entry_size, entry_count;
	int32_t server;	      /* its pid, 0: none runs */
	int32_t delay_ms;     /* of the next young death */
	uint32_t was_ready;   /* a server was, once */
	uint32_t reserved;    /* 0 */
	uint64_t started_at;  /* the server; CLOCK_MONOTONIC ns */
	uint64_t start_at;    /* the next one, if none runs */
	uint64_t old_signals; /* blocked ones of a server, bit 0 is signal 1 */
};

struct handover_entry {
	int32_t fd;
	char name[FDSTORE_NAME_MAX + 1];
};

/* The caller sets what follows the sizes. Writes the table as it is, too. */
int handover_write(const struct handover *state, struct error *err);
/* Checks all of it, descriptors included; ERR_INVALID says what is wrong. After table_init(). */
int handover_check(struct handover *ret, struct error *err);
/* Puts the descriptors into the empty table and closes those from TABLE_FIRST on that aren't in it.
 * After a check. */
void handover_take(const struct handover *state);
