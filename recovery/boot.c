/* SPDX-License-Identifier: Apache-2.0 */
/* The boot id, as the kernel tells it and as the store remembers it. */
#include "recovery/boot.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "io/base/cleanup.h"

#define BOOT_ID_KEY "boot_id"

int boot_id(char id[BOOT_ID_SIZE], struct error *err)
{
	static const char path[] = "/proc/sys/kernel/random/boot_id";
	const char *replaced = getenv("CRISP_BOOT_ID");
	cleanup_close int fd = -1;
	ssize_t n;

	if (replaced) {
		n = (ssize_t)strnlen(replaced, BOOT_ID_SIZE - 1);
		memcpy(id, replaced, (size_t)n);
	} else {
		fd = open(path, O_RDONLY | O_CLOEXEC);
		n = fd < 0 ? -1 : read(fd, id, BOOT_ID_SIZE - 1);
		if (n < 0)
			return error_errno(err, errno, "read %s", path);
	}
	id[n] = '\0';
	id[strcspn(id, "\n")] = '\0';
	return 0;
}

int boot_check(struct store *s, enum boot *ret_boot, struct error *err)
{
	cleanup_free char *noted = NULL;
	char id[BOOT_ID_SIZE];

	TRY(boot_id(id, err));
	TRY(store_meta_get(s, BOOT_ID_KEY, &noted, err));
	if (!noted)
		*ret_boot = BOOT_FIRST;
	else
		*ret_boot = strcmp(noted, id) ? BOOT_OTHER : BOOT_SAME;
	return 0;
}

int boot_note(struct store_batch *batch, struct error *err)
{
	char id[BOOT_ID_SIZE];

	TRY(boot_id(id, err));
	batch_meta_put(batch, BOOT_ID_KEY, id);
	return 0;
}
