/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Pidfds that must outlive this server. Peculiar: kernels before 6.15 can't pin one; then the
 * keeper holds it, and without a keeper the process is found again by pid and start time.
 */
#include "io/base/cleanup.h"
#include "recovery/exit_status.h"
#include "recovery/fdstore.h"
#include "sandbox/linux/kind.h"

int held_put(struct task *t, const char *name, int pidfd, pid_t pid, uint64_t *ret_started)
{
	TRY(exit_status_started(pidfd, pid, ret_started, &t->err));
	if (pins_can_hold_pidfds(kind.env.pins))
		return pins_put(t, kind.env.pins, name, pidfd);
	return kind.env.fdstore ? fdstore_put(t, kind.env.fdstore, name, pidfd) : 0;
}

int held_get(struct task *t, const char *name, pid_t pid, uint64_t started, int *ret_pidfd)
{
	int fd;

	if (pins_can_hold_pidfds(kind.env.pins))
		return pins_get(t, kind.env.pins, name, ret_pidfd);
	fd = kind.env.fdstore ? fdstore_take(kind.env.fdstore, name) : -1;
	if (fd < 0 && pid <= 0)
		return error_set(&t->err, ERR_NOT_FOUND, "process %s: nobody noted its pid", name);
	if (fd < 0)
		return exit_status_reopen(pid, started, ret_pidfd, &t->err);
	*ret_pidfd = fd;
	return 0;
}

int held_drop(struct task *t, const char *name)
{
	if (pins_can_hold_pidfds(kind.env.pins))
		return pins_drop(t, kind.env.pins, name);
	return kind.env.fdstore ? fdstore_drop(t, kind.env.fdstore, name) : 0;
}
