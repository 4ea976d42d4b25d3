/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What crispd is told: command line over configuration file over defaults. The file is YAML; a key
 * that is not known is an error with its line, since a typo must not be a silent default.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "io/base/error.h"

/* A limit that containers get. */
struct config_rlimit {
	char *name;	    /* "nofile", as prlimit(1) calls it */
	int64_t soft, hard; /* −1: none */
};

/* What a RuntimeClass may name. */
struct config_handler {
	char *name;
	char *kind;	   /* NULL: linux */
	bool no_new_privs; /* for all containers, whatever they ask for */
	/* instead of the general one of that name */
	struct config_rlimit *rlimits;
	uint32_t rlimits_count;
};

struct config {
	char *root;	       /* durable data */
	char *state;	       /* run-time data */
	char *listen;	       /* path of the CRI socket */
	char *log_level;       /* debug, info, warning, error */
	char *log_full;	       /* drop, block: what happens to output that its log can't take */
	char *cgroup_driver;   /* cgroupfs, systemd, auto: systemd where it has booted the node */
	char *systemd_address; /* D-Bus address of its manager, unix:path=… */
	uint32_t pipe_size;    /* bytes of a container's stdout and stderr each */
	/* from the file only; file owns them */
	char **cdi_dirs;
	uint32_t cdi_dirs_count;
	struct config_rlimit *rlimits;
	uint32_t rlimits_count;
	struct config_handler *handlers;
	uint32_t handlers_count;
	struct file *file;
	/* from the command line only */
	bool is_kept;	      /* run under the keeper */
	int restart_delay_ms; /* of the keeper, or KEEPER_DELAY_AUTO */
	bool wants_help, wants_version;
};

/* Fills config (zeroed) from argv and the file it names. The strings are config_done()'s. */
int config_load(int argc, char **argv, struct config *config, struct error *err);
void config_done(struct config *config);
struct handler;
/* What all of it means for pods, the default handler first; names are the configuration's. The
 * caller gives it up by config_handlers_free. */
size_t config_handlers(const struct config *config, struct handler **ret);
void config_handlers_free(struct handler *handlers, size_t count);
/* One line an option. */
const char *config_usage(void);
