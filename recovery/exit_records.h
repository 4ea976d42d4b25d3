/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How processes ended that the keeper reaped: a table in a memfd, written by the keeper, read and
 * acknowledged by the server, which also writes its own children's ends before it reaps them. A
 * record is found by pid in constant time: column pid % COLUMNS, one of ROWS in it; rows are filled
 * from the top, so memory grows with what is unacknowledged only. A record is overwritten once it
 * is acknowledged, or, when its column has no other place, if it is the oldest there: that takes
 * EXIT_ROWS unacknowledged ones, tens of thousands in the table. What nobody asks for (daemons that
 * a container left) is never acknowledged and goes that way.
 */
#pragma once

#include <stdbool.h>
#include <signal.h>
#include <stdint.h>
#include <sys/types.h>

#include "io/base/error.h"

#define EXIT_COLUMNS 1024
#define EXIT_ROWS 64

struct exit_records;

struct exit_record {
	pid_t pid;
	int status;	  /* as of wait(2) */
	uint64_t started; /* clock ticks since boot; 0 when it could not be read */
	int64_t ended_at; /* realtime ns */
};

/* As of wait(2) from what waitid(2) tells. */
int exit_record_status(const siginfo_t *info);

/* Makes the memfd (close-on-exec) and maps it; NULL with err set. */
struct exit_records *exit_records_new(int *ret_fd, struct error *err);
/* Maps what exit_records_new() made. */
struct exit_records *exit_records_map(int fd, struct error *err);
void exit_records_unmap(struct exit_records *x);

/* Any process that mapped it. Allocates nothing. */
void exit_records_add(struct exit_records *x, const struct exit_record *record);
bool exit_records_find(struct exit_records *x, pid_t pid, uint64_t started,
		       struct exit_record *ret);
void exit_records_acknowledge(struct exit_records *x, pid_t pid, uint64_t started);
