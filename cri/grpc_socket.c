/* SPDX-License-Identifier: Apache-2.0 */
/* Unix sockets: making one, and accepting on it. */
#include "cri/grpc.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "cri/grpc_priv.h"
#include "io/base/alloc.h"
#include "io/base/cleanup.h"
#include "io/base/log.h"

#define BACKLOG 512
/* How long nothing is accepted after descriptors ran out. */
#define PAUSE_NS (100 * 1000000ull)
/* Connections that are taken at once before others get their turn. */
#define BATCH 64

struct listener {
	struct loop *loop;
	struct loop_watch *watch;
	int fd;
	int spare_fd; /* -1 while there is none to be had */
	struct loop_timer pause;
	bool is_short; /* of descriptors, since the last connection that could be kept */
	void (*fn)(void *data, int fd);
	void *data;
};

static int make_parents(const char *path, struct error *err)
{
	char *copy cleanup_free = xstrdup(path);

	for (char *slash = strchr(copy + 1, '/'); slash; slash = strchr(slash + 1, '/')) {
		*slash = '\0';
		if (mkdir(copy, 0700) < 0 && errno != EEXIST)
			return error_errno(err, errno, "make directory %s", copy);
		*slash = '/';
	}
	return 0;
}

/* Removes what is left at the address of a server that is no more. */
static int remove_stale(const struct sockaddr_un *address, struct error *err)
{
	const char *path = address->sun_path;
	struct stat st;
	int fd cleanup_close = -1;

	if (lstat(path, &st) < 0)
		return errno == ENOENT ? 0 : error_errno(err, errno, "look at %s", path);
	if (!S_ISSOCK(st.st_mode))
		return error_set(err, ERR_INVALID,
				 "%s is not a socket; remove it or choose another path", path);
	fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (fd < 0)
		return error_errno(err, errno, "socket");
	/* EAGAIN is a full backlog, and that has somebody behind it */
	if (!connect(fd, (const struct sockaddr *)address, sizeof(*address)) || errno == EAGAIN)
		return error_set(err, ERR_EXISTS,
				 "another server listens on %s; stop it or choose another path",
				 path);
	if (errno != ECONNREFUSED)
		return error_errno(err, errno, "try %s", path);
	if (unlink(path) < 0 && errno != ENOENT)
		return error_errno(err, errno, "remove the stale socket %s", path);
	return 0;
}

int grpc_listen_unix(const char *path, struct error *err)
{
	struct sockaddr_un address = {.sun_family = AF_UNIX};
	int fd cleanup_close = -1;
	mode_t old;
	int r;

	if (!*path || strlen(path) >= sizeof(address.sun_path))
		return error_set(err, ERR_INVALID, "socket path '%s' has to have 1 to %zu bytes",
				 path, sizeof(address.sun_path) - 1);
	memcpy(address.sun_path, path, strlen(path));
	TRY(make_parents(path, err));
	TRY(remove_stale(&address, err));
	fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (fd < 0)
		return error_errno(err, errno, "socket");
	/* a chmod afterwards would leave a moment for others to connect */
	old = umask(0177);
	r = bind(fd, (struct sockaddr *)&address, sizeof(address));
	umask(old);
	if (r < 0)
		return error_errno(err, errno, "bind %s", path);
	if (listen(fd, BACKLOG) < 0)
		return error_errno(err, errno, "listen on %s", path);
	return take_fd(&fd);
}

static bool is_allowed(int fd)
{
	struct ucred peer;
	socklen_t size = sizeof(peer);

	if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &size) < 0)
		return false;
	if (peer.uid == 0 || peer.uid == geteuid())
		return true;
	log_warning(
		"refused a connection of process %d with uid %u: only root and uid %u may connect",
		(int)peer.pid, peer.uid, geteuid());
	return false;
}

static void on_pause_over(void *data)
{
	struct listener *li = data;

	if (li->spare_fd < 0)
		li->spare_fd = eventfd(0, EFD_CLOEXEC);
	loop_watch_set(li->watch, LOOP_READ);
}

/* Uses the spare descriptor to take one connection and hang up. */
static void refuse_one(struct listener *li, int sys)
{
	if (!li->is_short)
		log_error("connections are being refused: %s; raise the limit of descriptors",
			  strerror(sys));
	li->is_short = true;
	if (li->spare_fd >= 0) {
		close(take_fd(&li->spare_fd));
		close_fd(accept4(li->fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK));
		li->spare_fd = eventfd(0, EFD_CLOEXEC);
	}
}

static void pause_accepting(struct listener *li)
{
	loop_watch_set(li->watch, 0);
	loop_timer_start(li->loop, &li->pause, loop_now(li->loop) + PAUSE_NS);
}

static void on_connection(void *data, int events)
{
	struct listener *li = data;

	for (int i = 0; i < BATCH; i++) {
		int fd = accept4(li->fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);

		if (fd >= 0) {
			li->is_short = false;
			if (is_allowed(fd))
				li->fn(li->data, fd);
			else
				close(fd);
			continue;
		}
		if (errno == EAGAIN)
			return;
		if (errno == EMFILE || errno == ENFILE) {
			refuse_one(li, errno);
			if (li->spare_fd >= 0)
				continue;
		}
		if (errno == EINTR || errno == ECONNABORTED)
			continue;
		/* also after ENOMEM and its like: trying again at once would spin */
		pause_accepting(li);
		return;
	}
}

struct listener *listener_new(struct loop *l, int fd, void (*fn)(void *data, int fd), void *data,
			      struct error *err)
{
	struct listener *li;
	int spare = eventfd(0, EFD_CLOEXEC);

	if (spare < 0) {
		error_errno(err, errno, "eventfd for a listening socket");
		close(fd);
		return NULL;
	}
	li = xnew(struct listener);
	li->loop = l;
	li->fd = fd;
	li->spare_fd = spare;
	li->fn = fn;
	li->data = data;
	loop_timer_init(&li->pause, "grpc accept pause", on_pause_over, li);
	li->watch = loop_watch_fd(l, fd, LOOP_READ, "grpc accept", on_connection, li);
	return li;
}

void listener_free(struct listener *li)
{
	if (!li)
		return;
	loop_timer_stop(li->loop, &li->pause);
	loop_watch_free(li->watch);
	close(li->fd);
	close_fd(li->spare_fd);
	free(li);
}
