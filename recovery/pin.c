/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The pin namespace and the thread that lives in it. Peculiar: the namespace is made by that
 * thread, which leaves the copies of all the host's mounts behind by pivot_root, so that none of
 * them is kept busy; it is mounted in the host's namespace by the thread that opened the pins.
 * Within it the root directory is also the working directory, so plain names are paths there.
 */
#include "recovery/pin.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/magic.h>
#include <linux/nsfs.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/vfs.h>
#include <unistd.h>

#include "io/base/alloc.h"
#include "io/base/cleanup.h"
#include "io/base/fault.h"
#include "io/offload.h"
#include "recovery/exit_status.h"

#define PIDFS_MAGIC 0x50494446
/* Of a process that can't be pinned: pid and start, as what a symbolic link points at. */
#define NOTE_SIZE 48

struct pins {
	struct worker *worker;
	char *dir, *mnt; /* STATE/pins and STATE/pins/mnt */
	int namespace;	 /* between opening and joining or mounting it, else -1 */
	int cpu;	 /* to make the namespace on, -1: any */
	bool is_foreign; /* what was joined is no namespace of pins */
	bool can_hold_pidfds;
};

/* ---- within the namespace, on the worker ---- */

struct pin_job {
	struct job job;
	struct pins *pins;
	int (*op)(struct pin_job *j, struct error *err);
	char name[PIN_NAME_MAX + 1];
	int fd;	 /* what to pin: the job's own copy */
	int out; /* what get returns */
	char note[NOTE_SIZE];
	char **names;
	size_t name_count;
};

static int run_job(struct job *job, struct error *err)
{
	struct pin_job *j = container_of(job, struct pin_job, job);

	return j->op(j, err);
}

static void free_job(struct job *job)
{
	struct pin_job *j = container_of(job, struct pin_job, job);

	close_fd(j->fd);
	close_fd(j->out);
	for (size_t i = 0; i < j->name_count; i++)
		free(j->names[i]);
	free(j->names);
	free(j);
}

/* Whatever is mounted there, however often. The name itself stays. */
static int detach(const char *name, struct error *err)
{
	while (umount2(name, MNT_DETACH | UMOUNT_NOFOLLOW) == 0)
		;
	if (errno != EINVAL && errno != ENOENT)
		return error_errno(err, errno, "unmount the pin %s", name);
	return 0;
}

static int remove_name(const char *name, struct error *err)
{
	if (unlink(name) < 0 && errno == EISDIR)
		rmdir(name);
	if (faccessat(AT_FDCWD, name, F_OK, AT_SYMLINK_NOFOLLOW) == 0)
		return error_set(err, ERR_INTERNAL, "remove the pin %s: it is still there", name);
	return 0;
}

/* An empty file or directory that nothing is mounted on. */
static int make_name(const char *name, bool is_dir, struct error *err)
{
	struct stat st;
	int r;

	TRY(detach(name, err));
	if (lstat(name, &st) == 0 && (S_ISLNK(st.st_mode) || S_ISDIR(st.st_mode) != is_dir))
		TRY(remove_name(name, err));
	r = is_dir ? mkdir(name, 0700) : mknod(name, S_IFREG | 0600, 0);
	if (r < 0 && errno != EEXIST)
		return error_errno(err, errno, "make the pin %s", name);
	return 0;
}

static int attach(int tree, const char *name, struct error *err)
{
	if (syscall(SYS_move_mount, tree, "", AT_FDCWD, name, MOVE_MOUNT_F_EMPTY_PATH) == 0)
		return 0;
	if (errno == ENOSPC)
		return error_set(err, ERR_EXHAUSTED,
				 "pin %s: too many mounts in one namespace; raise the sysctl "
				 "fs.mount-max",
				 name);
	return error_errno(err, errno, "pin %s", name);
}

static int clone_mount(int dir, const char *path, unsigned flags)
{
	return (int)syscall(SYS_open_tree, dir, path, OPEN_TREE_CLONE | OPEN_TREE_CLOEXEC | flags);
}

static int op_put(struct pin_job *j, struct error *err)
{
	cleanup_close int tree = clone_mount(j->fd, "", AT_EMPTY_PATH);

	if (tree < 0)
		return error_errno(err, errno, "clone the mount of what to pin as %s", j->name);
	TRY(make_name(j->name, false, err));
	return attach(tree, j->name, err);
}

static int op_put_mount(struct pin_job *j, struct error *err)
{
	TRY(make_name(j->name, true, err));
	return attach(j->fd, j->name, err);
}

static int not_pinned(const char *name, struct error *err)
{
	return error_set(err, ERR_NOT_FOUND, "pin %s: there is none", name);
}

static bool has_magic(int fd, unsigned long magic)
{
	struct statfs fs;

	return fstatfs(fd, &fs) == 0 && (unsigned long)fs.f_type == magic;
}

static int op_put_note(struct pin_job *j, struct error *err)
{
	TRY(detach(j->name, err));
	TRY(remove_name(j->name, err));
	return symlink(j->note, j->name) < 0
		       ? error_errno(err, errno, "note the process of the pin %s", j->name)
		       : 0;
}

static int op_get(struct pin_job *j, struct error *err)
{
	cleanup_close int fd =
		open(j->name, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY);

	if (fd < 0 && errno == ENOENT)
		return not_pinned(j->name, err);
	if (fd < 0 && errno == ELOOP && readlink(j->name, j->note, NOTE_SIZE - 1) > 0)
		return 0;
	if (fd < 0)
		return error_errno(err, errno, "open the pin %s", j->name);
	/* else it is the empty file that a crash left */
	if (!has_magic(fd, NSFS_MAGIC) && !has_magic(fd, PIDFS_MAGIC))
		return not_pinned(j->name, err);
	j->out = take_fd(&fd);
	return 0;
}

static int op_get_mount(struct pin_job *j, struct error *err)
{
	struct statx st;

	if (statx(AT_FDCWD, j->name, AT_SYMLINK_NOFOLLOW, STATX_TYPE, &st) < 0)
		return errno == ENOENT ? not_pinned(j->name, err)
				       : error_errno(err, errno, "stat the pin %s", j->name);
	if (!S_ISDIR(st.stx_mode) || !(st.stx_attributes & STATX_ATTR_MOUNT_ROOT))
		return not_pinned(j->name, err);
	j->out = clone_mount(AT_FDCWD, j->name, AT_SYMLINK_NOFOLLOW);
	return j->out < 0 ? error_errno(err, errno, "clone the pin %s", j->name) : 0;
}

static int op_drop(struct pin_job *j, struct error *err)
{
	TRY(detach(j->name, err));
	return remove_name(j->name, err);
}

static int list_names(char ***names, size_t *count, struct error *err)
{
	cleanup_closedir DIR *dir = opendir("/");
	size_t capacity = 0;
	struct dirent *entry;

	if (!dir)
		return error_errno(err, errno, "list the pins");
	while ((errno = 0, entry = readdir(dir))) {
		if (entry->d_name[0] == '.')
			continue;
		if (*count == capacity) {
			capacity = capacity ? 2 * capacity : 64;
			*names = xrealloc(*names, capacity * sizeof(**names));
		}
		(*names)[(*count)++] = xstrdup(entry->d_name);
	}
	return errno ? error_errno(err, errno, "list the pins") : 0;
}

static int op_list(struct pin_job *j, struct error *err)
{
	return list_names(&j->names, &j->name_count, err);
}

/* ---- the calls, on the loop ---- */

static int check_name(const char *name, struct error *err)
{
	size_t length = strspn(name, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
				     "0123456789._-");

	if (length < 1 || length > PIN_NAME_MAX || name[length] || name[0] == '.')
		return error_set(err, ERR_INVALID, "pin: %.64s can't be a name", name);
	return 0;
}

static struct pin_job *new_job(struct pins *p, const char *name,
			       int (*op)(struct pin_job *j, struct error *err))
{
	struct pin_job *j = xnew(struct pin_job);

	job_init(&j->job, run_job, free_job);
	j->pins = p;
	j->op = op;
	j->fd = j->out = -1;
	memcpy(j->name, name, strlen(name));
	return j;
}

/* Runs op on the worker with a copy of fd, if it is one; what it opened goes to *ret_fd. */
static int call(struct task *t, struct pins *p, const char *name,
		int (*op)(struct pin_job *j, struct error *err), int fd, int *ret_fd)
{
	struct pin_job *j;
	int r;

	TRY(check_name(name, &t->err));
	j = new_job(p, name, op);
	if (fd >= 0) {
		j->fd = fcntl(fd, F_DUPFD_CLOEXEC, 3);
		if (j->fd < 0) {
			r = error_errno(&t->err, errno, "descriptor to pin as %s", name);
			job_unref(&j->job);
			return r;
		}
	}
	r = offload(t, p->worker, &j->job);
	if (r == 0 && ret_fd)
		*ret_fd = take_fd(&j->out);
	job_unref(&j->job);
	return r;
}

/* -1 when it is gone. */
static pid_t pid_of(int pidfd)
{
	char path[48], line[128];
	cleanup_fclose FILE *file = NULL;
	int pid = -1;

	snprintf(path, sizeof(path), "/proc/self/fdinfo/%d", pidfd);
	file = fopen(path, "re");
	while (file && fgets(line, sizeof(line), file))
		sscanf(line, "Pid: %d", &pid);
	return pid;
}

static int put_note(struct task *t, struct pins *p, const char *name, int pidfd)
{
	pid_t pid = pid_of(pidfd);
	uint64_t started;
	struct pin_job *j;
	int r;

	TRY(exit_status_started(pidfd, pid, &started, &t->err));
	j = new_job(p, name, op_put_note);
	snprintf(j->note, sizeof(j->note), "%d %llu", pid, (unsigned long long)started);
	r = offload(t, p->worker, &j->job);
	job_unref(&j->job);
	return r;
}

int pins_put(struct task *t, struct pins *p, const char *name, int fd)
{
	bool is_pidfd = has_magic(fd, PIDFS_MAGIC) || has_magic(fd, ANON_INODE_FS_MAGIC);

	TRY(check_name(name, &t->err));
	if (!is_pidfd && !has_magic(fd, NSFS_MAGIC))
		return error_set(&t->err, ERR_INVALID,
				 "pin %s: the descriptor is no namespace and no process", name);
	if (is_pidfd && !p->can_hold_pidfds)
		return put_note(t, p, name, fd);
	TRY(call(t, p, name, op_put, fd, NULL));
	FAULT(pin_put);
	return 0;
}

static int take_noted(const struct pin_job *j, int *ret_fd, struct error *err)
{
	unsigned long long started;
	int pid;

	if (sscanf(j->note, "%d %llu", &pid, &started) != 2)
		return not_pinned(j->name, err);
	return exit_status_reopen(pid, started, ret_fd, err);
}

int pins_get(struct task *t, struct pins *p, const char *name, int *ret_fd)
{
	struct pin_job *j;
	int r;

	TRY(check_name(name, &t->err));
	j = new_job(p, name, op_get);
	r = offload(t, p->worker, &j->job);
	if (r == 0 && j->out >= 0)
		*ret_fd = take_fd(&j->out);
	else if (r == 0)
		r = take_noted(j, ret_fd, &t->err);
	job_unref(&j->job);
	return r;
}

int pins_put_mount(struct task *t, struct pins *p, const char *name, int mount_fd)
{
	TRY(call(t, p, name, op_put_mount, mount_fd, NULL));
	FAULT(pin_put);
	return 0;
}

int pins_get_mount(struct task *t, struct pins *p, const char *name, int *ret_tree_fd)
{
	return call(t, p, name, op_get_mount, -1, ret_tree_fd);
}

int pins_drop(struct task *t, struct pins *p, const char *name)
{
	TRY(call(t, p, name, op_drop, -1, NULL));
	FAULT(pin_dropped);
	return 0;
}

int pins_each(struct task *t, struct pins *p, void (*fn)(void *data, const char *name), void *data)
{
	struct pin_job *j = new_job(p, "", op_list);
	int r = offload(t, p->worker, &j->job);

	for (size_t i = 0; r == 0 && i < j->name_count; i++)
		fn(data, j->names[i]);
	job_unref(&j->job);
	return r;
}

bool pins_can_hold_pidfds(const struct pins *p)
{
	return p->can_hold_pidfds;
}

/* ---- making, joining, removing ---- */

/* Takes the directory as root where nothing but a tmpfs is. Host mounts are made private first, or
 * leaving them would unmount them on the host. */
static int enter_tmpfs(const char *dir, struct error *err)
{
	if (mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) < 0)
		return error_errno(err, errno, "make the mounts of the pin namespace private");
	if (mount("crisp-pins", dir, "tmpfs", MS_NOSUID | MS_NODEV | MS_NOEXEC,
		  "mode=0700,size=1m,nr_inodes=0") < 0)
		return error_errno(err, errno, "mount a tmpfs on %s", dir);
	if (chdir(dir) < 0)
		return error_errno(err, errno, "enter %s", dir);
	if (syscall(SYS_pivot_root, ".", ".") < 0)
		return error_errno(err, errno, "make %s the root of the pin namespace", dir);
	if (umount2(".", MNT_DETACH) < 0)
		return error_errno(err, errno, "leave the host's mounts");
	return chdir("/") < 0 ? error_errno(err, errno, "enter the pin namespace") : 0;
}

/* A mount namespace can be mounted only in an older one, that is one with a smaller number, and
 * kernel 6.18 hands the numbers out in lots a CPU. */
static int unshare_mounts(int cpu)
{
	cpu_set_t all, one;
	int r;

	if (cpu >= 0) {
		CPU_ZERO(&one);
		CPU_SET((size_t)cpu, &one);
		if (sched_getaffinity(0, sizeof(all), &all) < 0 ||
		    sched_setaffinity(0, sizeof(one), &one) < 0)
			return -1;
	}
	r = unshare(CLONE_NEWNS);
	if (cpu >= 0)
		sched_setaffinity(0, sizeof(all), &all);
	return r;
}

static int make_namespace(void *arg, struct error *err)
{
	struct pins *p = arg;

	if (unshare_mounts(p->cpu) < 0)
		return error_errno(err, errno, "make the pin namespace (CAP_SYS_ADMIN is needed)");
	p->namespace = open("/proc/thread-self/ns/mnt", O_RDONLY | O_CLOEXEC);
	if (p->namespace < 0)
		return error_errno(err, errno, "open the pin namespace");
	return enter_tmpfs(p->dir, err);
}

static int join_namespace(void *arg, struct error *err)
{
	struct pins *p = arg;
	struct statfs fs;

	if (unshare(CLONE_FS) < 0)
		return error_errno(err, errno, "give the pins' thread a root of its own");
	if (setns(p->namespace, CLONE_NEWNS) < 0)
		return error_errno(err, errno, "join the pin namespace of %s", p->mnt);
	if (statfs("/", &fs) < 0)
		return error_errno(err, errno, "stat the pin namespace's root");
	p->is_foreign = fs.f_type != TMPFS_MAGIC;
	return 0;
}

static bool is_mount_namespace(int fd)
{
	return has_magic(fd, NSFS_MAGIC) && ioctl(fd, NS_GET_NSTYPE) == CLONE_NEWNS;
}

/* The namespace that an earlier life mounted into p->namespace, or -1 there. A plain file is what
 * is left after a reboot; anything else that is mounted there goes. */
static int find_namespace(struct pins *p, struct error *err)
{
	int fd = open(p->mnt, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);

	if (fd < 0 && errno != ENOENT)
		return error_errno(err, errno, "open %s", p->mnt);
	if (fd >= 0 && !is_mount_namespace(fd)) {
		close(fd);
		fd = -1;
		umount2(p->mnt, MNT_DETACH | UMOUNT_NOFOLLOW);
	}
	p->namespace = fd;
	return 0;
}

/* Private, so that the namespace may be mounted in it, and left out of all copies that are bound
 * elsewhere: a tree with an older mount namespace in it can't be moved into a container (ELOOP),
 * and containers have the node's / or /run mounted. */
static int make_unbindable(struct pins *p, struct error *err)
{
	if (mount(NULL, p->dir, NULL, MS_UNBINDABLE, NULL) < 0)
		return error_errno(err, errno, "make the mount %s unbindable", p->dir);
	return 0;
}

/* A mount of its own. */
static int prepare_dir(struct pins *p, struct error *err)
{
	cleanup_close int file = -1;
	struct statx st;

	if (mkdir(p->dir, 0700) < 0 && errno != EEXIST)
		return error_errno(err, errno, "make %s", p->dir);
	if (statx(AT_FDCWD, p->dir, AT_SYMLINK_NOFOLLOW, STATX_TYPE, &st) < 0)
		return error_errno(err, errno, "stat %s", p->dir);
	if (!S_ISDIR(st.stx_mode))
		return error_set(err, ERR_PRECONDITION, "pins in %s: it is no directory", p->dir);
	if (!(st.stx_attributes & STATX_ATTR_MOUNT_ROOT) &&
	    mount(p->dir, p->dir, NULL, MS_BIND, NULL) < 0)
		return error_errno(err, errno, "bind %s (CAP_SYS_ADMIN is needed)", p->dir);
	TRY(make_unbindable(p, err));
	file = open(p->mnt, O_CREAT | O_RDONLY | O_CLOEXEC | O_NOFOLLOW, 0600);
	return file < 0 ? error_errno(err, errno, "make %s", p->mnt) : 0;
}

static int mount_namespace(struct pins *p, struct error *err)
{
	cleanup_close int tree = clone_mount(p->namespace, "", AT_EMPTY_PATH);

	if (tree < 0 ||
	    syscall(SYS_move_mount, tree, "", AT_FDCWD, p->mnt, MOVE_MOUNT_F_EMPTY_PATH) < 0)
		return error_errno(err, errno, "mount the pin namespace on %s", p->mnt);
	return 0;
}

/* A namespace that somebody else put there is replaced; one that can't be joined for any other
 * reason is not, since pins hang on it. */
static int join(struct pins *p, struct error *err)
{
	p->worker = worker_new("crisp-pins", join_namespace, p, err);
	if (!p->worker)
		return -(int)err->code;
	if (!p->is_foreign)
		return 0;
	worker_free(take_ptr(p->worker));
	if (umount2(p->mnt, MNT_DETACH | UMOUNT_NOFOLLOW) < 0)
		return error_errno(err, errno, "unmount the foreign namespace %s", p->mnt);
	return -ERR_NOT_FOUND;
}

static int make_on_cpu(struct pins *p, int cpu, struct error *err)
{
	int r;

	p->cpu = cpu;
	p->worker = worker_new("crisp-pins", make_namespace, p, err);
	r = p->worker ? mount_namespace(p, err) : -(int)err->code;
	if (r < 0) {
		worker_free(take_ptr(p->worker));
		close_fd(take_fd(&p->namespace));
	}
	return r;
}

static int make(struct pins *p, struct error *err)
{
	cpu_set_t cpus;
	int r;

	TRY(prepare_dir(p, err));
	r = make_on_cpu(p, -1, err);
	if (sched_getaffinity(0, sizeof(cpus), &cpus) < 0)
		return r;
	for (int cpu = 0; r < 0 && err->sys == ELOOP && cpu < CPU_SETSIZE; cpu++)
		if (CPU_ISSET((size_t)cpu, &cpus))
			r = make_on_cpu(p, cpu, err);
	return r;
}

static int open_pins(struct pins *p, struct error *err)
{
	int r;

	TRY(find_namespace(p, err));
	r = p->namespace >= 0 ? join(p, err) : -ERR_NOT_FOUND;
	if (r == -ERR_NOT_FOUND) {
		close_fd(take_fd(&p->namespace));
		r = make(p, err);
	} else if (r == 0) {
		/* servers before it made it private only */
		r = make_unbindable(p, err);
	}
	close_fd(take_fd(&p->namespace));
	return r;
}

bool pins_exist(const char *state_dir)
{
	cleanup_free char *path = xasprintf("%s/pins/mnt", state_dir);
	cleanup_close int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);

	return fd >= 0 && is_mount_namespace(fd);
}

static bool probe_pidfds(void)
{
	cleanup_close int pidfd = (int)syscall(SYS_pidfd_open, getpid(), 0);
	cleanup_close int tree = pidfd < 0 ? -1 : clone_mount(pidfd, "", AT_EMPTY_PATH);

	return tree >= 0 && exit_status_has_pidfd_info();
}

struct pins *pins_open(struct loop *l, const char *state_dir, struct error *err)
{
	struct error own = {0};
	struct pins *p = xnew(struct pins);

	p->dir = xasprintf("%s/pins", state_dir);
	p->mnt = xasprintf("%s/pins/mnt", state_dir);
	p->namespace = -1;
	if (open_pins(p, &own) < 0) {
		error_copy(err, &own);
		pins_close(p);
		return NULL;
	}
	p->can_hold_pidfds = probe_pidfds();
	return p;
}

void pins_close(struct pins *p)
{
	if (!p)
		return;
	worker_free(p->worker);
	close_fd(p->namespace);
	free(p->dir);
	free(p->mnt);
	free(p);
}

/* On a thread of its own, whose setup this is: there is no loop to wait on. */
static int check_empty(void *arg, struct error *err)
{
	struct pins own = *(struct pins *)arg;
	char **names = NULL;
	size_t count = 0;
	int r = join_namespace(&own, err);

	if (r == 0)
		r = list_names(&names, &count, err);
	if (r == 0 && count)
		r = error_set(err, ERR_PRECONDITION, "remove %s: %zu pins are left, %s for one",
			      own.dir, count, names[0]);
	for (size_t i = 0; i < count; i++)
		free(names[i]);
	free(names);
	return r;
}

static int unmount_all(const struct pins *p, struct error *err)
{
	if (umount2(p->mnt, MNT_DETACH | UMOUNT_NOFOLLOW) < 0 && errno != EINVAL && errno != ENOENT)
		return error_errno(err, errno, "unmount %s", p->mnt);
	if (umount2(p->dir, MNT_DETACH | UMOUNT_NOFOLLOW) < 0 && errno != EINVAL)
		return error_errno(err, errno, "unmount %s", p->dir);
	if (unlink(p->mnt) < 0 && errno != ENOENT)
		return error_errno(err, errno, "remove %s", p->mnt);
	return rmdir(p->dir) < 0 ? error_errno(err, errno, "remove %s", p->dir) : 0;
}

int pins_destroy(struct pins *p, struct error *err)
{
	struct error own = {0};
	struct worker *checker;
	int r;

	TRY(find_namespace(p, err));
	if (p->namespace >= 0) {
		checker = worker_new("crisp-pins", check_empty, p, &own);
		close_fd(take_fd(&p->namespace));
		if (!checker)
			return error_copy(err, &own);
		worker_free(checker);
	}
	r = unmount_all(p, err);
	pins_close(p);
	return r;
}
