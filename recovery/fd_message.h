/* SPDX-License-Identifier: Apache-2.0 */
/* One datagram of systemd's protocol (sd_pid_notify_with_fds(3)), as both the server and its keeper
 * send it. */
#pragma once

/* fd: -1 for none; flags as of sendmsg(2), whose errno comes back negative. Allocates nothing. */
int fd_message_send(int socket, const char *text, int fd, int flags);
