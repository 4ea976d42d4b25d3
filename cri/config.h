/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What crispd is told: command line over configuration file over defaults. The file is YAML; a key
 * that is not known is an error with its line, since a typo must not be a silent default.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "io/base/error.h"

struct config {
	char *root;	    /* durable data */
	char *state;	    /* run-time data */
	char *listen;	    /* path of the CRI socket */
	char *log_level;    /* debug, info, warning, error */
	char *log_full;	    /* drop, block: what happens to output that its log can't take */
	uint32_t pipe_size; /* bytes of a container's stdout and stderr each */
	/* from the command line only */
	bool is_kept;	      /* run under the keeper */
	int restart_delay_ms; /* of the keeper, or KEEPER_DELAY_AUTO */
	bool wants_help, wants_version;
};

/* Fills config (zeroed) from argv and the file it names. The strings are config_done()'s. */
int config_load(int argc, char **argv, struct config *config, struct error *err);
void config_done(struct config *config);
/* One line an option. */
const char *config_usage(void);
