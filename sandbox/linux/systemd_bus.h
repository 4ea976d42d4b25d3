/* SPDX-License-Identifier: Apache-2.0 */
/*
 * systemd's manager, asked to make, change and stop units (org.freedesktop.systemd1(5)).
 *
 * Each call has a connection of its own, to the manager's private socket, which needs no message
 * bus and tells every peer of the ends of jobs. It is made and driven by the task that waits, so
 * nothing is shared, and nothing is left over when the manager executes itself anew: a connection
 * that is lost or refused is made again, and the call, which can be repeated, with it.
 *
 * A call ends at the task's deadline or after UNIT_TIMEOUT_MS. A manager that isn't there, or does
 * not answer, is ERR_UNAVAILABLE; what it refuses is ERR_INVALID or ERR_DENIED with its own words.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "io/task.h"

/* Where systemd listens as PID 1, as a D-Bus address. */
#define SYSTEMD_ADDRESS "unix:path=/run/systemd/private"
#define UNIT_TIMEOUT_MS 30000

enum property_type { PROPERTY_BOOL, PROPERTY_STRING, PROPERTY_NUMBER, PROPERTY_BYTES };

/* The most bytes that a property has: a mask of processors or memory nodes. */
#define PROPERTY_BYTES_MAX 1024

/* What systemd.resource-control(5) and others call a setting, by its name on the bus. */
struct unit_property {
	const char *name; /* static */
	enum property_type type;
	const char *string;   /* lent */
	uint64_t number;      /* or 0 and 1 */
	unsigned char *bytes; /* malloc'ed */
	size_t size;
};

struct unit_properties {
	struct unit_property *items;
	size_t count;
};

void unit_properties_done(struct unit_properties *p);
/* Zeroed but for name and type; valid until the next one. */
struct unit_property *unit_property_add(struct unit_properties *p, const char *name,
					enum property_type type);

/* Whether somebody takes connections there. Does not wait. */
int systemd_probe(const char *address, struct error *err);

/*
 * Starts a transient unit and waits until it is. Scopes need a process, which is in its cgroup
 * then; others have pid 0. One that is there already succeeds, and has the properties; a scope
 * that is there without that process is stopped first.
 */
int systemd_start(struct task *t, const char *address, const char *unit,
		  const struct unit_properties *properties, pid_t pid);
/* Until the next boot. A unit that isn't there is ERR_PRECONDITION. */
int systemd_change(struct task *t, const char *address, const char *unit,
		   const struct unit_properties *properties);
/* Ends what is in it and waits until it is no more; 0 when there is no such unit. */
int systemd_stop(struct task *t, const char *address, const char *unit);
