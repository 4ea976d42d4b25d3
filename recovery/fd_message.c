/* SPDX-License-Identifier: Apache-2.0 */
/* Linked into the keeper too, so it needs nothing but the C library. */
#include "recovery/fd_message.h"

#include <errno.h>
#include <string.h>
#include <sys/socket.h>

int fd_message_send(int socket, const char *text, int fd, int flags)
{
	union {
		struct cmsghdr header;
		char space[CMSG_SPACE(sizeof(int))];
	} control = {0};
	struct iovec iov = {.iov_base = (char *)text, .iov_len = strlen(text)};
	struct msghdr message = {.msg_iov = &iov, .msg_iovlen = 1};

	if (fd >= 0) {
		control.header.cmsg_level = SOL_SOCKET;
		control.header.cmsg_type = SCM_RIGHTS;
		control.header.cmsg_len = CMSG_LEN(sizeof(int));
		memcpy(CMSG_DATA(&control.header), &fd, sizeof(int));
		message.msg_control = &control;
		message.msg_controllen = sizeof(control.space);
	}
	return sendmsg(socket, &message, flags | MSG_NOSIGNAL) < 0 ? -errno : 0;
}
