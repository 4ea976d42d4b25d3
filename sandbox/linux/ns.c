/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Namespaces. Peculiar: the child only exists, sharing our memory and descriptors, until its
 * namespaces are open; what has to be done inside (loopback, sysctls) is done by this thread, which
 * enters and leaves them. A thread that can't leave would poison the pool, so that ends the server.
 */
#include "sandbox/linux/ns.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/netlink.h>
#include <linux/rtnetlink.h>
#include <net/if.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "io/base/alloc.h"
#include "io/base/buf.h"
#include "io/base/cleanup.h"
#include "io/fs.h"
#include "io/procfs.h"
#include "sandbox/linux/sysctl.h"

#define HOLDER_STACK (16 * 1024)
/* user_namespaces(7) */
#define MAP_LINES_MAX 340
#define SHM_DEFAULT (64ull * 1024 * 1024)
#define LOOPBACK_INDEX 1

struct holder {
	char *stack;
	pid_t pid, parent;
};

/* It shares our memory and descriptors, and so the lock of the root directory: it ends with the
 * thread that made it even when that one is killed, also before it could say so. */
static int holder_main(void *arg)
{
	const struct holder *h = arg;

	prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0);
	if (getppid() != h->parent)
		return 1;
	for (;;)
		syscall(SYS_ppoll, NULL, 0, NULL, NULL, 0);
	return 0;
}

static int holder_start(struct holder *h, int flags, struct error *err)
{
	h->stack = mmap(NULL, HOLDER_STACK, PROT_READ | PROT_WRITE,
			MAP_PRIVATE | MAP_ANONYMOUS | MAP_STACK, -1, 0);
	if (h->stack == MAP_FAILED)
		return error_errno(err, errno, "stack to make namespaces");
	h->parent = getpid();
	h->pid = clone(holder_main, h->stack + HOLDER_STACK,
		       CLONE_VM | CLONE_FILES | SIGCHLD | flags, h);
	if (h->pid < 0) {
		error_errno(err, errno, "make namespaces");
		munmap(h->stack, HOLDER_STACK);
		return -(int)err->code;
	}
	return 0;
}

static void holder_stop(struct holder *h)
{
	kill(h->pid, SIGKILL);
	while (waitpid(h->pid, NULL, 0) < 0 && errno == EINTR)
		;
	munmap(h->stack, HOLDER_STACK);
}

static int open_ns(pid_t pid, const char *name, int *ret_fd, struct error *err)
{
	char path[64];
	int fd;

	snprintf(path, sizeof(path), "/proc/%d/ns/%s", pid, name);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return error_errno(err, errno, "open %s", path);
	*ret_fd = fd;
	return 0;
}

static int write_map(pid_t pid, const char *name, const struct id_map_list *map, struct error *err)
{
	struct buf text = {0};
	char path[64];
	int r;

	if (!map->count || map->count > MAP_LINES_MAX)
		return error_set(err, ERR_INVALID,
				 "%s of a user namespace: %zu entries, not 1 to %d", name,
				 map->count, MAP_LINES_MAX);
	for (size_t i = 0; i < map->count; i++)
		buf_printf(&text, "%u %u %u\n", map->items[i].inside, map->items[i].outside,
			   map->items[i].length);
	snprintf(path, sizeof(path), "%d/%s", pid, name);
	r = procfs_write(path, text.data);
	if (r < 0)
		r = error_set(err, ERR_INVALID,
			      "write the %s of a user namespace: %s; its text: %s", name,
			      strerrordesc_np(-r), text.data);
	buf_done(&text);
	return r;
}

static int write_maps(pid_t pid, const struct id_map_list *uids, const struct id_map_list *gids,
		      struct error *err)
{
	TRY(write_map(pid, "uid_map", uids, err));
	return write_map(pid, "gid_map", gids, err);
}

static int loopback_up(struct error *err)
{
	struct {
		struct nlmsghdr header;
		struct ifinfomsg link;
	} request = {
		.header = {.nlmsg_len = sizeof(request),
			   .nlmsg_type = RTM_NEWLINK,
			   .nlmsg_flags = NLM_F_REQUEST | NLM_F_ACK},
		.link = {.ifi_index = LOOPBACK_INDEX, .ifi_flags = IFF_UP, .ifi_change = IFF_UP},
	};
	struct {
		struct nlmsghdr header;
		struct nlmsgerr error;
	} reply;
	cleanup_close int fd = socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_ROUTE);

	if (fd < 0 || send(fd, &request, sizeof(request), 0) < 0 ||
	    recv(fd, &reply, sizeof(reply), MSG_TRUNC) < (ssize_t)sizeof(reply))
		return error_errno(err, errno, "bring loopback up");
	if (reply.header.nlmsg_type != NLMSG_ERROR || reply.error.error)
		return error_errno(err, -reply.error.error, "bring loopback up");
	return 0;
}

/* The effective ids of this thread alone. */
static void set_thread_ids(int64_t uid, int64_t gid)
{
	if (syscall(SYS_setresgid, -1, (gid_t)gid, -1) < 0 ||
	    syscall(SYS_setresuid, -1, (uid_t)uid, -1) < 0)
		abort();
}

static void reset_thread_ids(void)
{
	/* uid first: it brings the capabilities back */
	if (syscall(SYS_setresuid, -1, 0, -1) < 0 || syscall(SYS_setresgid, -1, 0, -1) < 0)
		abort();
}

static int write_sysctl(const struct sandbox_spec *spec, int proc, const struct key_value *sysctl,
			struct error *err)
{
	cleanup_free char *path = sysctl_path(sysctl->key);
	int r = procfs_write_at(proc, path, sysctl->value);

	/* those of ipc obey only the root of the namespace's own users */
	if (r == -EACCES && spec->has_userns) {
		set_thread_ids(id_map_outside(&spec->uids, 0), id_map_outside(&spec->gids, 0));
		r = procfs_write_at(proc, path, sysctl->value);
		reset_thread_ids();
	}
	if (r < 0)
		return error_set(err, ERR_INVALID, "sysctl %s=%s: %s", sysctl->key, sysctl->value,
				 strerrordesc_np(-r));
	return 0;
}

static int write_sysctls(const struct sandbox_spec *spec, struct error *err)
{
	cleanup_close int proc = -1;

	if (!spec->sysctls.count)
		return 0;
	proc = procfs_own();
	if (proc < 0)
		return error_errno(err, -proc, "open procfs to write sysctls");
	for (size_t i = 0; i < spec->sysctls.count; i++)
		TRY(write_sysctl(spec, proc, &spec->sysctls.items[i], err));
	return 0;
}

/* The directory of message queues belongs to who made the namespace, and should to its root. */
static int give_queues(const struct sandbox_spec *spec, struct error *err)
{
	cleanup_close int fs = fsopen("mqueue", FSOPEN_CLOEXEC);
	cleanup_close int mount = -1;

	if (fs >= 0 && fsconfig(fs, FSCONFIG_CMD_CREATE, NULL, NULL, 0) == 0)
		mount = fsmount(fs, FSMOUNT_CLOEXEC, 0);
	if (mount < 0 || fchownat(mount, "", (uid_t)id_map_outside(&spec->uids, 0),
				  (gid_t)id_map_outside(&spec->gids, 0), AT_EMPTY_PATH) < 0)
		return error_errno(err, errno, "give the pod's root its message queues");
	return 0;
}

/* Enters what there is of the set, sets it up, and comes back. */
static int set_up_inside(const struct sandbox_spec *spec, const struct ns_set *set,
			 struct error *err)
{
	cleanup_close int net = open("/proc/thread-self/ns/net", O_RDONLY | O_CLOEXEC);
	cleanup_close int ipc = open("/proc/thread-self/ns/ipc", O_RDONLY | O_CLOEXEC);
	int r = 0;

	if (net < 0 || ipc < 0)
		return error_errno(err, errno, "open the server's own namespaces");
	if (set->net >= 0 && setns(set->net, CLONE_NEWNET) < 0)
		return error_errno(err, errno, "enter a new network namespace");
	if (set->ipc >= 0 && setns(set->ipc, CLONE_NEWIPC) < 0)
		r = error_errno(err, errno, "enter a new ipc namespace");
	if (r == 0 && set->net >= 0)
		r = loopback_up(err);
	if (r == 0 && set->ipc >= 0 && spec->has_userns)
		r = give_queues(spec, err);
	if (r == 0)
		r = write_sysctls(spec, err);
	if (setns(net, CLONE_NEWNET) < 0 || setns(ipc, CLONE_NEWIPC) < 0)
		abort();
	return r;
}

int ns_read_inside(int net, const char *path, size_t max, struct buf *ret, struct error *err)
{
	cleanup_close int own = open("/proc/thread-self/ns/net", O_RDONLY | O_CLOEXEC);
	int r;

	if (own < 0)
		return error_errno(err, errno, "open the server's own network namespace");
	if (setns(net, CLONE_NEWNET) < 0)
		return error_errno(err, errno, "enter a network namespace");
	r = fs_read_file(path, max, ret, err);
	if (setns(own, CLONE_NEWNET) < 0)
		abort();
	return r;
}

static int open_set(const struct holder *h, int flags, struct ns_set *set, struct error *err)
{
	if (flags & CLONE_NEWUSER)
		TRY(open_ns(h->pid, "user", &set->user, err));
	if (flags & CLONE_NEWNET)
		TRY(open_ns(h->pid, "net", &set->net, err));
	if (flags & CLONE_NEWIPC)
		TRY(open_ns(h->pid, "ipc", &set->ipc, err));
	return 0;
}

void ns_set_done(struct ns_set *set)
{
	close_fd(set->user);
	close_fd(set->net);
	close_fd(set->ipc);
	*set = NS_SET_NONE;
}

int ns_make(const struct sandbox_spec *spec, struct ns_set *ret, struct error *err)
{
	int flags = (spec->has_userns ? CLONE_NEWUSER : 0) |
		    (spec->net != NS_NODE ? CLONE_NEWNET : 0) |
		    (spec->ipc != NS_NODE ? CLONE_NEWIPC : 0);
	struct ns_set set = NS_SET_NONE;
	struct holder h;
	int r = 0;

	if (!flags) {
		*ret = set;
		return 0;
	}
	TRY(holder_start(&h, flags, err));
	if (spec->has_userns)
		r = write_maps(h.pid, &spec->uids, &spec->gids, err);
	if (r == 0)
		r = open_set(&h, flags, &set, err);
	holder_stop(&h);
	if (r == 0)
		r = set_up_inside(spec, &set, err);
	if (r < 0)
		ns_set_done(&set);
	else
		*ret = set;
	return r;
}

int ns_make_user(const struct id_map_list *uids, const struct id_map_list *gids, int *ret_fd,
		 struct error *err)
{
	struct holder h;
	int r;

	TRY(holder_start(&h, CLONE_NEWUSER, err));
	r = write_maps(h.pid, uids, gids, err);
	if (r == 0)
		r = open_ns(h.pid, "user", ret_fd, err);
	holder_stop(&h);
	return r;
}

int64_t id_map_outside(const struct id_map_list *map, uint32_t inside)
{
	for (size_t i = 0; i < map->count; i++)
		if (inside >= map->items[i].inside &&
		    inside - map->items[i].inside < map->items[i].length)
			return (int64_t)map->items[i].outside + (inside - map->items[i].inside);
	return -1;
}

bool id_map_equal(const struct id_map_list *a, const struct id_map_list *b)
{
	return a->count == b->count &&
	       (!a->count || memcmp(a->items, b->items, a->count * sizeof(*a->items)) == 0);
}

int ns_make_shm(uint64_t size, uid_t uid, gid_t gid, const char *label, int *ret_mount,
		struct error *err)
{
	cleanup_close int fs = fsopen("tmpfs", FSOPEN_CLOEXEC);
	char text[3][24];
	int mount;

	snprintf(text[0], sizeof(text[0]), "%llu", (unsigned long long)(size ?: SHM_DEFAULT));
	snprintf(text[1], sizeof(text[1]), "%u", uid);
	snprintf(text[2], sizeof(text[2]), "%u", gid);
	if (fs < 0 || fsconfig(fs, FSCONFIG_SET_STRING, "source", "shm", 0) < 0 ||
	    fsconfig(fs, FSCONFIG_SET_STRING, "mode", "1777", 0) < 0 ||
	    fsconfig(fs, FSCONFIG_SET_STRING, "size", text[0], 0) < 0 ||
	    fsconfig(fs, FSCONFIG_SET_STRING, "uid", text[1], 0) < 0 ||
	    fsconfig(fs, FSCONFIG_SET_STRING, "gid", text[2], 0) < 0 ||
	    (label && fsconfig(fs, FSCONFIG_SET_STRING, "context", label, 0) < 0) ||
	    fsconfig(fs, FSCONFIG_CMD_CREATE, NULL, NULL, 0) < 0)
		return error_errno(err, errno, "make the shared memory of a pod, %s bytes",
				   text[0]);
	mount = fsmount(fs, FSMOUNT_CLOEXEC,
			MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV | MOUNT_ATTR_NOEXEC);
	if (mount < 0)
		return error_errno(err, errno, "mount the shared memory of a pod");
	*ret_mount = mount;
	return 0;
}
