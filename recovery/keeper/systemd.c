/* SPDX-License-Identifier: Apache-2.0 */
/* The keeper as a unit's main process. Peculiar: the descriptors were moved by keeper_main(), as
 * systemd passes them at numbers that are the keeper's own. */
#include "recovery/keeper/systemd.h"

#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/un.h>
#include <unistd.h>

#include "io/base/log.h"
#include "recovery/fd_message.h"
#include "recovery/fdstore.h"
#include "recovery/keeper/table.h"

/* What systemd may take to read what it is sent. */
#define SEND_SECONDS 2

/* Connected, or -1. */
static int open_notify(void)
{
	const char *path = getenv("NOTIFY_SOCKET");
	struct sockaddr_un address = {.sun_family = AF_UNIX};
	struct timeval limit = {.tv_sec = SEND_SECONDS};
	int fd;

	if (!path || strlen(path) >= sizeof(address.sun_path))
		return -1;
	memcpy(address.sun_path, path, strlen(path) + 1);
	if (*path == '@')
		address.sun_path[0] = '\0';
	fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	if (fd < 0)
		return -1;
	setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof(limit));
	if (connect(fd, (struct sockaddr *)&address,
		    (socklen_t)(offsetof(struct sockaddr_un, sun_path) + strlen(path))) == 0)
		return fd;
	close(fd);
	return -1;
}

void systemd_notify_ready(void)
{
	int notify = open_notify();

	if (notify < 0)
		return;
	fd_message_send(notify, "READY=1", -1, 0);
	close(notify);
}

static bool is_passed(int *ret_count)
{
	const char *pid = getenv("LISTEN_PID"), *count = getenv("LISTEN_FDS");

	*ret_count = count ? atoi(count) : 0;
	return pid && atoi(pid) == getpid() && *ret_count > 0;
}

void systemd_take(void)
{
	char *names = getenv("LISTEN_FDNAMES"), *name, text[64 + FDSTORE_NAME_MAX];
	int count, notify;

	if (!is_passed(&count) || !names)
		return;
	notify = open_notify();
	for (int i = 0; i < count && (name = strsep(&names, ":")); i++) {
		if (!*name || strlen(name) > FDSTORE_NAME_MAX)
			continue;
		table_keep(name, KEEPER_PASSED_FD(count) + i);
		snprintf(text, sizeof(text), "FDSTOREREMOVE=1\nFDNAME=%s", name);
		if (notify >= 0)
			fd_message_send(notify, text, -1, 0);
	}
	if (notify >= 0)
		close(notify);
}

static bool give_one(int notify, const char *name, int fd, size_t *used)
{
	char text[64 + FDSTORE_NAME_MAX];
	int r;

	*used += strlen(name) + 1;
	if (*used > FDSTORE_SYSTEMD_NAMES) {
		log_warning("keeper: systemd can't keep all of its descriptors: terminals may be "
			    "lost");
		return false;
	}
	snprintf(text, sizeof(text), "FDSTORE=1\nFDNAME=%s\nFDPOLL=0", name);
	r = fd_message_send(notify, text, fd, 0);
	if (r < 0)
		log_error("keeper: give a descriptor to systemd: %s", strerror(-r));
	return r == 0;
}

void systemd_give(int exits_fd)
{
	const char *max = getenv("FDSTORE");
	int notify = max && atoi(max) > 0 ? open_notify() : -1;
	size_t used = 0;

	if (notify < 0)
		return;
	if (give_one(notify, SYSTEMD_EXITS_NAME, exits_fd, &used))
		for (int fd = table_next(TABLE_FIRST); fd >= 0; fd = table_next(fd + 1))
			if (!give_one(notify, table_name(fd), fd, &used))
				break;
	close(notify);
}
