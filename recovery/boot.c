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
#define BOOT_ID_SIZE 64

static int read_boot_id(char id[BOOT_ID_SIZE], struct error *err)
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

int boot_check(struct store *s, bool *ret_is_rebooted, struct error *err)
{
	cleanup_free char *noted = NULL;
	char id[BOOT_ID_SIZE];

	TRY(read_boot_id(id, err));
	TRY(store_meta_get(s, BOOT_ID_KEY, &noted, err));
	*ret_is_rebooted = noted && strcmp(noted, id) != 0;
	return 0;
}

int boot_commit(struct task *t, struct store *s)
{
	char id[BOOT_ID_SIZE];

	TRY(read_boot_id(id, &t->err));
	return store_meta_put(t, s, BOOT_ID_KEY, id);
}
