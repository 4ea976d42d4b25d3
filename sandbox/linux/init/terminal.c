/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Terminal and standard descriptors. Peculiar: the terminal is made in the container's own devpts,
 * so that its name means the same inside, and the other end is found by TIOCGPTPEER, never by path.
 */
#include "sandbox/linux/init/helper.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/magic.h>
#include <stdio.h>
#include <sys/ioctl.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/vfs.h>
#include <termios.h>
#include <unistd.h>

/* /dev/console is the terminal itself. */
static void place_console(struct helper *h)
{
	char name[16];
	unsigned number;
	int mount, target;

	if (ioctl(h->master, TIOCGPTN, &number) < 0)
		fail(STEP_TERMINAL, NULL);
	snprintf(name, sizeof(name), "%u", number);
	mount = open_tree(h->pts, name, OPEN_TREE_CLONE | OPEN_TREE_CLOEXEC | AT_SYMLINK_NOFOLLOW);
	if (mknodat(h->dev, "console", S_IFREG | 0600, 0) < 0 && errno != EEXIST)
		fail(STEP_DEVICE, "/dev/console");
	target = openat(h->dev, "console", O_PATH | O_NOFOLLOW | O_CLOEXEC);
	if (mount < 0 || target < 0 || mount_place(mount, target) < 0)
		fail(STEP_DEVICE, "/dev/console");
	close(mount);
	close(target);
}

void open_terminal(struct helper *h, int pts)
{
	struct statfs fs;
	int unlock = 0;

	if (pts >= 0)
		h->master = openat(pts, "ptmx", O_RDWR | O_NOCTTY | O_CLOEXEC | O_NOFOLLOW);
	else
		h->master = open("/dev/pts/ptmx", O_RDWR | O_NOCTTY | O_CLOEXEC | O_NOFOLLOW);
	if (h->master < 0 || fstatfs(h->master, &fs) < 0)
		fail(STEP_TERMINAL, NULL);
	/* in a running container the path may lead to anything */
	if (fs.f_type != DEVPTS_SUPER_MAGIC) {
		errno = EINVAL;
		fail(STEP_TERMINAL, "/dev/pts/ptmx");
	}
	if (ioctl(h->master, TIOCSPTLCK, &unlock) < 0)
		fail(STEP_TERMINAL, NULL);
	h->slave = ioctl(h->master, TIOCGPTPEER, O_RDWR | O_NOCTTY | O_CLOEXEC);
	if (h->slave < 0)
		fail(STEP_TERMINAL, NULL);
	if (pts >= 0)
		place_console(h);
}

static void use_null(const struct helper *h, int fd)
{
	int null = open("/dev/null", O_RDWR | O_CLOEXEC | O_NOFOLLOW | O_NOCTTY | O_NONBLOCK);
	struct stat st;

	if (null < 0 || fstat(null, &st) < 0)
		fail(STEP_STDIO, "/dev/null");
	/* in a running container it may be anything by now */
	if (!S_ISCHR(st.st_mode) || st.st_rdev != makedev(1, 3)) {
		errno = EINVAL;
		fail(STEP_STDIO, "/dev/null");
	}
	if (fcntl(null, F_SETFL, 0) < 0 || dup2(null, fd) < 0)
		fail(STEP_STDIO, "/dev/null");
	close(null);
}

void set_stdio(struct helper *h)
{
	setsid();
	if (h->slave >= 0) {
		if (fchown(h->slave, h->plan->uid, (gid_t)-1) < 0 ||
		    ioctl(h->slave, TIOCSCTTY, 0) < 0)
			fail(STEP_TERMINAL, NULL);
		for (int fd = 0; fd < 3; fd++)
			if (dup2(h->slave, fd) < 0)
				fail(STEP_TERMINAL, NULL);
		return;
	}
	if (h->plan->flags & PLAN_NULL_STDIN)
		use_null(h, 0);
	if (h->plan->flags & PLAN_NULL_STDOUT)
		use_null(h, 1);
	if (h->plan->flags & PLAN_NULL_STDERR)
		use_null(h, 2);
}
