/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Pidfds that must outlive this server. Peculiar: kernels before 6.15 can't pin one, so its pin
 * only tells where to find the process as long as it is not reaped; then the keeper holds it, too.
 */
#include "io/base/cleanup.h"
#include "recovery/exit_status.h"
#include "recovery/fdstore.h"
#include "sandbox/linux/kind.h"

static bool is_kept(void)
{
	return kind.env.fdstore && !pins_can_hold_pidfds(kind.env.pins);
}

int held_put(struct task *t, const char *name, int pidfd, pid_t pid, uint64_t *ret_started)
{
	TRY(exit_status_started(pidfd, pid, ret_started, &t->err));
	TRY(pins_put(t, kind.env.pins, name, pidfd));
	return is_kept() ? fdstore_put(t, kind.env.fdstore, name, pidfd) : 0;
}

int held_get(struct task *t, const char *name, int *ret_pidfd)
{
	int fd = is_kept() ? fdstore_take(kind.env.fdstore, name) : -1;

	if (fd < 0)
		return pins_get(t, kind.env.pins, name, ret_pidfd);
	*ret_pidfd = fd;
	return 0;
}

int held_drop(struct task *t, const char *name)
{
	if (is_kept())
		TRY(fdstore_drop(t, kind.env.fdstore, name));
	return pins_drop(t, kind.env.pins, name);
}
