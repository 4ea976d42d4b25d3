/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The descriptors that the keeper keeps, by name. The table is indexed by the descriptor's number,
 * so it needs no places of its own, and nothing is allocated. Some numbers below the process's
 * limit are left free, so that messages can be taken and programs be executed however much is kept.
 */
#pragma once

#include <stdint.h>

#include "recovery/keeper.h"

/* Numbers below it are the keeper's own. */
#define TABLE_FIRST (KEEPER_STATE_FD + 1)
/* A program that is executed opens its libraries, a message brings a descriptor. */
#define TABLE_SPARE 32

/* After the limit of descriptors (RLIMIT_NOFILE) was set. */
void table_init(void);
/* Numbers from this on are refused. */
int table_limit(void);
/* Takes fd, which is closed when there is no place for it; logs that. name: 1 to FDSTORE_NAME_MAX
 * characters. A name may have several. */
void table_keep(const char *name, int fd);
/* Closes all that have the name. */
void table_forget(const char *name);
/* One that has the name, or -1. */
int table_find(const char *name);
/* Closes every descriptor from TABLE_FIRST on that isn't kept. */
void table_close_others(void);
/* All kept numbers are below. */
int table_end(void);
/* The lowest kept number from fd on, or -1. */
int table_next(int fd);
/* Of a number that table_next() gave. */
const char *table_name(int fd);
