/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The server's side of the fd store. Peculiar: nothing is awaited from the keeper, the queue of the
 * socket is what makes a put safe; so a keeper that is gone shows at the next message only, and
 * from then on there is none.
 */
#include "recovery/fdstore.h"

#include <errno.h>
#include <fcntl.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <unistd.h>

#include "io/base/alloc.h"
#include "io/base/cleanup.h"
#include "io/base/fault.h"
#include "io/base/log.h"
#include "io/base/map.h"
#include "recovery/exit_records.h"
#include "recovery/fd_message.h"

#define FIRST_FD 3
/* No more than a process can have descriptors. */
#define PASSED_MAX (1 << 20)
#define NAMES_MAX (64 << 20)

/* A descriptor that was passed and not taken. */
struct kept {
	int fd;
	struct kept *next; /* of the same name; only systemd makes such */
};

struct fdstore {
	struct map kept; /* name → struct kept */
	int socket;	 /* -1: no keeper */
	bool is_systemd;
	bool takes_fds;	  /* false: only for READY=1 */
	bool is_lost;	  /* the keeper died */
	struct map sent;  /* names that systemd keeps, as a set */
	size_t sent_size; /* of them in one string */
	bool is_full;	  /* said once */
	struct exit_records *exits;
};

/* systemd's list of names. */
static void note_sent(struct fdstore *fs, const char *name)
{
	if (fs->is_systemd && !map_get(&fs->sent, name)) {
		map_put(&fs->sent, name, fs);
		fs->sent_size += strlen(name) + 1;
	}
}

static void note_removed(struct fdstore *fs, const char *name)
{
	if (map_remove(&fs->sent, name))
		fs->sent_size -= strlen(name) + 1;
}

static bool has_place(struct fdstore *fs, const char *name)
{
	if (!fs->is_systemd || fs->sent_size + strlen(name) < FDSTORE_SYSTEMD_NAMES)
		return true;
	if (!fs->is_full)
		log_warning(
			"systemd can keep no more descriptors for this server: what a container "
			"wrote last is lost if both die; let crispd have its own keeper");
	fs->is_full = true;
	return false;
}

static void keep(struct fdstore *fs, const char *name, int fd)
{
	struct kept *k = xnew(struct kept);

	k->fd = fd;
	k->next = map_get(&fs->kept, name);
	map_put(&fs->kept, name, k);
}

int fdstore_take(struct fdstore *fs, const char *name)
{
	struct kept *k = map_get(&fs->kept, name);
	int fd;

	if (!k)
		return -1;
	fd = k->fd;
	if (k->next) {
		struct kept *second = k->next;

		*k = *second;
		free(second);
	} else {
		map_remove(&fs->kept, name);
		free(k);
	}
	return fd;
}

/* The whole memfd, NUL-terminated, malloc'ed. */
static char *read_names(int fd, size_t *ret_size, struct error *err)
{
	cleanup_free char *text = NULL;
	struct stat st;
	ssize_t n;

	if (fstat(fd, &st) < 0 || st.st_size > NAMES_MAX) {
		error_set(err, ERR_INVALID,
			  "descriptors from the keeper: their names can't be read");
		return NULL;
	}
	text = xcalloc((size_t)st.st_size + 1, 1);
	n = pread(fd, text, (size_t)st.st_size, 0);
	if (n != st.st_size) {
		error_errno(err, n < 0 ? errno : EIO, "names of the keeper's descriptors");
		return NULL;
	}
	*ret_size = (size_t)n;
	return take_ptr(text);
}

/* Descriptors from number fd to end, named by the strings in text. Each is owned once kept. */
static int keep_named(struct fdstore *fs, int fd, int end, const char *text, size_t size,
		      struct error *err)
{
	const char *name = text;

	for (; fd < end; fd++, name += strlen(name) + 1) {
		if (name >= text + size)
			return error_set(err, ERR_INVALID,
					 "descriptors from the keeper: %d have no name", end - fd);
		keep(fs, name, fd);
	}
	return 0;
}

static int take_records(struct fdstore *fs, struct error *err)
{
	cleanup_close int fd = fdstore_take(fs, "crisp-exits");

	if (fd < 0)
		return error_set(err, ERR_INVALID, "descriptors from the keeper: no exit records");
	fs->exits = exit_records_map(fd, err);
	return fs->exits ? 0 : -(int)err->code;
}

static int take_from_keeper(struct fdstore *fs, int first, int end, struct error *err)
{
	cleanup_close int names_fd = fdstore_take(fs, "crisp-names");
	cleanup_free char *text = NULL;
	size_t size = 0;

	fs->socket = fdstore_take(fs, "crisp-keeper");
	fs->takes_fds = true;
	TRY(take_records(fs, err));
	text = read_names(names_fd, &size, err);
	if (!text)
		return -(int)err->code;
	return keep_named(fs, first, end, text, size, err);
}

/* names: LISTEN_FDNAMES, may be NULL. */
static int take_passed(struct fdstore *fs, int count, const char *names, struct error *err)
{
	cleanup_free char *list = xstrdup(names ? names : "");
	int fd = FIRST_FD, end = FIRST_FD + count;
	char *rest = list, *name;

	for (; fd < end && (name = strsep(&rest, ":")) && *name; fd++)
		keep(fs, name, fd);
	if (map_get(&fs->kept, "crisp-names"))
		return take_from_keeper(fs, fd, end, err);
	for (; fd < end; fd++)
		keep(fs, "unknown", fd);
	return 0;
}

/* 0 when nothing was passed or it was meant for another process. */
static int count_passed(int *ret, struct error *err)
{
	const char *pid = getenv("LISTEN_PID"), *count = getenv("LISTEN_FDS");
	long n;
	char *end;

	*ret = 0;
	if (!pid || !count || atol(pid) != getpid())
		return 0;
	n = strtol(count, &end, 10);
	if (*end || n < 0 || n > PASSED_MAX)
		return error_set(err, ERR_INVALID, "LISTEN_FDS=%.32s: not a number of descriptors",
				 count);
	if (n && syscall(SYS_close_range, FIRST_FD, FIRST_FD + n - 1, CLOSE_RANGE_CLOEXEC) < 0)
		return error_errno(err, errno, "descriptors that were passed");
	for (int fd = FIRST_FD; fd < FIRST_FD + n; fd++)
		if (fcntl(fd, F_GETFD) < 0)
			return error_errno(err, errno, "LISTEN_FDS=%ld: descriptor %d", n, fd);
	*ret = (int)n;
	return 0;
}

bool fdstore_is_systemd(void)
{
	const char *max = getenv("FDSTORE");

	return getenv("NOTIFY_SOCKET") && max && atol(max) > 0;
}

static int connect_systemd(struct fdstore *fs, const char *path, struct error *err)
{
	struct sockaddr_un address = {.sun_family = AF_UNIX};
	socklen_t size = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + strlen(path));

	if (strlen(path) >= sizeof(address.sun_path) || (*path != '/' && *path != '@'))
		return error_set(err, ERR_INVALID, "NOTIFY_SOCKET=%.128s: not a socket's path",
				 path);
	memcpy(address.sun_path, path, strlen(path) + 1);
	if (*path == '@')
		address.sun_path[0] = '\0';
	fs->socket = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	if (fs->socket < 0 || connect(fs->socket, (struct sockaddr *)&address, size) < 0)
		return error_errno(err, errno, "connect to NOTIFY_SOCKET=%s", path);
	fs->is_systemd = true;
	fs->takes_fds = fdstore_is_systemd();
	map_for_each(slot, &fs->kept)
		note_sent(fs, slot->key);
	return 0;
}

static int open_fdstore(struct fdstore *fs, struct error *err)
{
	const char *notify = getenv("NOTIFY_SOCKET");
	int count;

	TRY(count_passed(&count, err));
	TRY(take_passed(fs, count, getenv("LISTEN_FDNAMES"), err));
	return fs->socket < 0 && notify ? connect_systemd(fs, notify, err) : 0;
}

struct fdstore *fdstore_open(struct loop *l, struct error *err)
{
	static const char *const variables[] = {"LISTEN_PID", "LISTEN_FDS", "LISTEN_FDNAMES",
						"NOTIFY_SOCKET", "FDSTORE"};
	struct fdstore *fs = xnew(struct fdstore);
	struct error own = {0};
	int r;

	fs->socket = -1;
	r = open_fdstore(fs, &own);
	/* nothing that we start shall believe that these are for it */
	for (size_t i = 0; i < sizeof(variables) / sizeof(*variables); i++)
		unsetenv(variables[i]);
	if (r == 0)
		return fs;
	error_copy(err, &own);
	fdstore_close(fs);
	return NULL;
}

/* name must not be the map's own copy, which goes with the last of its descriptors. */
static void close_kept(struct fdstore *fs, const char *name)
{
	for (int fd; (fd = fdstore_take(fs, name)) >= 0;)
		close(fd);
}

void fdstore_close(struct fdstore *fs)
{
	struct map_slot *slot;
	size_t index = 0;

	if (!fs)
		return;
	while ((slot = map_next(&fs->kept, &index))) {
		cleanup_free char *name = xstrdup(slot->key);

		close_kept(fs, name);
	}
	map_done(&fs->kept);
	map_done(&fs->sent);
	close_fd(fs->socket);
	exit_records_unmap(fs->exits);
	free(fs);
}

bool fdstore_has_keeper(const struct fdstore *fs)
{
	return fs->socket >= 0 && fs->takes_fds && !fs->is_lost;
}

struct exit_records *fdstore_exit_records(struct fdstore *fs)
{
	return fs->exits;
}

/* The socket stays open: other tasks may be waiting for it, and are woken by the hang-up. */
static void lose_keeper(struct fdstore *fs, int sys)
{
	if (fs->is_lost)
		return;
	fs->is_lost = true;
	log_error("the keeper is gone (%s): what it kept is lost if this server dies; restart "
		  "crispd --keep when it suits",
		  strerror(sys));
}

static int send_message(struct task *t, struct fdstore *fs, const char *text, int fd)
{
	while (fdstore_has_keeper(fs)) {
		int r = fd_message_send(fs->socket, text, fd, MSG_DONTWAIT);

		switch (r) {
		case 0:
			return 0;
		case -EINTR:
			break;
		case -EAGAIN:
			TRY(task_wait_fd(t, fs->socket, LOOP_WRITE));
			break;
		case -ETOOMANYREFS:
		case -ENOBUFS:
			/* too many descriptors under way; the keeper takes them within a moment,
			 * but nothing tells when */
			TRY(task_sleep_ms(t, 1));
			break;
		case -ECONNREFUSED:
		case -ECONNRESET:
		case -ENOTCONN:
		case -EPIPE:
			lose_keeper(fs, -r);
			break;
		default:
			return error_errno(&t->err, -r, "send a descriptor to the keeper");
		}
	}
	return 0;
}

static int check_name(const char *name, struct error *err)
{
	size_t length = 0;

	while (name[length] > ' ' && name[length] <= '~' && name[length] != ':')
		length++;
	if (!length || name[length] || length > FDSTORE_NAME_MAX)
		return error_set(err, ERR_INVALID, "keep a descriptor: %.64s can't be its name",
				 name);
	return 0;
}

static int send_remove(struct task *t, struct fdstore *fs, const char *name)
{
	char text[64 + FDSTORE_NAME_MAX];

	note_removed(fs, name);
	snprintf(text, sizeof(text), "FDSTOREREMOVE=1\nFDNAME=%s", name);
	return send_message(t, fs, text, -1);
}

int fdstore_put(struct task *t, struct fdstore *fs, const char *name, int fd)
{
	char text[64 + FDSTORE_NAME_MAX];

	TRY(check_name(name, &t->err));
	if (fs->is_systemd)
		TRY(send_remove(t, fs, name));
	if (!has_place(fs, name))
		return 0;
	note_sent(fs, name);
	snprintf(text, sizeof(text), "FDSTORE=1\nFDNAME=%s\nFDPOLL=0", name);
	TRY(send_message(t, fs, text, fd));
	FAULT(descriptor_kept);
	return 0;
}

int fdstore_drop(struct task *t, struct fdstore *fs, const char *name)
{
	TRY(check_name(name, &t->err));
	close_kept(fs, name);
	return send_remove(t, fs, name);
}

int fdstore_sweep(struct task *t, struct fdstore *fs,
		  bool (*is_owned)(void *data, const char *name), void *data)
{
	struct map_slot *slot;
	size_t index = 0;

	while ((slot = map_next(&fs->kept, &index))) {
		cleanup_free char *name = xstrdup(slot->key);

		if (is_owned(data, name))
			continue;
		close_kept(fs, name);
		TRY(send_remove(t, fs, name));
	}
	return 0;
}

void fdstore_notify_ready(struct fdstore *fs)
{
	if (fs->socket >= 0 && fd_message_send(fs->socket, "READY=1", -1, MSG_DONTWAIT) < 0)
		log_debug("the keeper was not told that the server is ready");
}
