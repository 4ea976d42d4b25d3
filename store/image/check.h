/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Whether images' rows and layers' directories agree, for repair while no server runs: rows without
 * a whole layer, directories without a row. A layer counts as whole when it has as many inodes as
 * when it was unpacked.
 */
#pragma once

#include "store/db.h"

struct image_check {
	bool is_fix; /* removes what is damaged or nobody's; needs a writable store */
	/* Whether something may be running on the image: then what is left of it stays. */
	bool (*is_used)(void *data, const char *image_id);
	/* Is told of each fault, and whether it is no more. */
	void (*found)(void *data, const char *fault, bool is_fixed);
	void *data;
};

/* Blocks, reads every directory of every layer. Errors are those of reading and removing. */
int image_store_check(struct store *s, const char *root_dir, const struct image_check *check,
		      struct error *err);
