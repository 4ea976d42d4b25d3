/* SPDX-License-Identifier: Apache-2.0 */
/* The kinds that this build has. */
#include <string.h>

#include "sandbox/linux/linux.h"
#include "sandbox/sandboxer.h"

static const struct sandboxer *const kinds[] = {&linux_sandboxer};

const struct sandboxer *sandboxer_find(const char *name)
{
	for (size_t i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++)
		if (strcmp(kinds[i]->name, name) == 0)
			return kinds[i];
	return NULL;
}
