/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The calls of cgroup.h. Peculiar: each does all its file work in one offload job that owns copies
 * of what it uses; waiting for killed processes is done on the loop, by pidfds.
 */
#include "sandbox/linux/cgroup.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>

#include "io/base/alloc.h"
#include "io/base/buf.h"
#include "io/base/cleanup.h"
#include "io/base/fault.h"
#include "io/offload.h"
#include "sandbox/linux/cgroup_priv.h"

/* So many processes are waited for at a time. */
#define WAIT_BATCH 64
#define DEVICES_MAX 400
/* Controllers that a pure v2 passes on unasked, since they count even without a limit. */
#define V2_ALWAYS                                                                                  \
	(1u << CONTROLLER_CPU | 1u << CONTROLLER_CPUSET | 1u << CONTROLLER_MEMORY |                \
	 1u << CONTROLLER_PIDS | 1u << CONTROLLER_HUGETLB | 1u << CONTROLLER_IO)

struct cgroup_job {
	struct job job;
	struct cgroups *cg;
	char *path;
	int (*fn)(struct cgroup_job *j, struct error *err);
	struct setting_list settings, undone;
	struct cgroup_join join;
	struct pid_list pids;
	struct buf names; /* of children, each ended by NUL */
	struct cgroup_device *devices;
	size_t device_count;
	int fds[WAIT_BATCH]; /* processes to wait for */
	size_t fd_count;
};

static int run(struct job *job, struct error *err)
{
	struct cgroup_job *j = container_of(job, struct cgroup_job, job);

	return j->fn(j, err);
}

static void free_job(struct job *job)
{
	struct cgroup_job *j = container_of(job, struct cgroup_job, job);

	for (size_t i = 0; i < j->device_count; i++)
		free((char *)j->devices[i].access);
	free(j->devices);
	free(j->path);
	setting_list_done(&j->settings);
	setting_list_done(&j->undone);
	cgroup_join_done(&j->join);
	pid_list_done(&j->pids);
	buf_done(&j->names);
	for (size_t i = 0; i < j->fd_count; i++)
		close_fd(j->fds[i]);
	free(j);
}

static struct cgroup_job *new_job(struct cgroups *cg, const char *path,
				  int (*fn)(struct cgroup_job *j, struct error *err))
{
	struct cgroup_job *j = xnew(struct cgroup_job);

	job_init(&j->job, run, free_job);
	j->cg = cg;
	j->path = xstrdup(path);
	j->fn = fn;
	j->join = CGROUP_JOIN_NONE;
	return j;
}

static void unref_job(struct cgroup_job **j)
{
	if (*j)
		job_unref(&(*j)->job);
}

#define CLEANUP_JOB __attribute__((cleanup(unref_job)))

/* For what makes something: it ends before this returns, or it would make again what a teardown
 * removes meanwhile. */
static int run_to_end(struct task *t, struct cgroup_job *j)
{
	TRY(task_check(t));
	offload_start(t, NULL, &j->job);
	return offload_finish(t, &j->job);
}

static int run_simple(struct task *t, struct cgroups *cg, const char *path,
		      int (*fn)(struct cgroup_job *j, struct error *err))
{
	CLEANUP_JOB struct cgroup_job *j = NULL;

	TRY(cgroup_path_check(path, &t->err));
	j = new_job(cg, path, fn);
	return offload(t, NULL, &j->job);
}

static int check_component(const char *path, const char *name, size_t n, struct error *err)
{
	if (!n || (n == 1 && name[0] == '.') || (n == 2 && name[0] == '.' && name[1] == '.'))
		return error_set(
			err, ERR_INVALID,
			"cgroup path \"%.200s\": it has an empty, \".\" or \"..\" component", path);
	if (n > NAME_MAX)
		return error_set(err, ERR_INVALID,
				 "cgroup path \"%.64s…\": a component is too long", path);
	for (size_t i = 0; i < n; i++)
		if ((unsigned char)name[i] < ' ' || name[i] == 127)
			return error_set(err, ERR_INVALID,
					 "cgroup path: it has a control character");
	return 0;
}

int cgroup_path_check(const char *path, struct error *err)
{
	size_t n;

	if (!path || strlen(path) > PATH_MAX - 512)
		return error_set(err, ERR_INVALID, "cgroup path: %s",
				 path ? "it is too long" : "none given");
	if (*path != '/')
		return error_set(err, ERR_INVALID, "cgroup path \"%.200s\": it must begin with /",
				 path);
	for (const char *at = path + 1;; at += n + 1) {
		n = strcspn(at, "/");
		TRY(check_component(path, at, n, err));
		if (!at[n])
			return 0;
	}
}

/* An empty group that is there may have been killed once, and then nothing can be born in it. */
static int make_leaf(const struct hierarchy *h, const char *name)
{
	if (mkdirat(h->fd, name, 0755) == 0)
		return 0;
	if (errno == EEXIST && h->is_v2 && unlinkat(h->fd, name, AT_REMOVEDIR) == 0 &&
	    mkdirat(h->fd, name, 0755) == 0)
		return 0;
	return errno == EEXIST || errno == EBUSY || errno == ENOTEMPTY ? 0 : -errno;
}

static int make_parents(const struct hierarchy *h, const char *path)
{
	char *name cleanup_free = xstrdup(path + 1);

	for (char *end = name; (end = strchr(end + 1, '/'));) {
		*end = '\0';
		if (mkdirat(h->fd, name, 0755) < 0 && errno != EEXIST)
			return -errno;
		*end = '/';
	}
	return 0;
}

/* mkdir -p; the parents are there mostly. The end of another sandbox may take an unused one away
 * between two steps, so they are made again then. */
static int make_group(const struct hierarchy *h, const char *path)
{
	int r = make_leaf(h, path + 1);

	for (int tries = 0; r == -ENOENT && tries < 100; tries++) {
		r = make_parents(h, path);
		if (r == 0)
			r = make_leaf(h, path + 1);
	}
	return r;
}

static int make_in(const struct hierarchy *h, const char *path, struct error *err)
{
	int r = make_group(h, path);

	if (r < 0)
		return error_errno(err, -r, "make cgroup %s", path);
	FAULT(cgroup_made);
	if (!h->is_v2 && h->controllers & 1u << CONTROLLER_CPUSET)
		return cgroup_v1_fill_cpuset(h, path, err);
	return 0;
}

static unsigned asked_controllers(const struct setting_list *list)
{
	unsigned mask = 0;

	for (size_t i = 0; i < list->count; i++)
		mask |= 1u << list->items[i].controller;
	return mask;
}

static int enable_controllers(const struct cgroup_job *j, struct error *err)
{
	const struct hierarchy *h = &j->cg->hierarchies[j->cg->v2];
	unsigned asked = asked_controllers(&j->settings);

	if (j->cg->is_pure_v2)
		(void)cgroup_v2_enable(h, j->path, V2_ALWAYS & ~asked, NULL);
	return cgroup_v2_enable(h, j->path, asked, err);
}

static int run_create(struct cgroup_job *j, struct error *err)
{
	for (size_t i = 0; i < j->cg->count; i++)
		TRY(make_in(&j->cg->hierarchies[i], j->path, err));
	if (j->cg->v2 >= 0)
		TRY(enable_controllers(j, err));
	return limits_apply(j->cg, j->path, &j->settings, false, err);
}

static int run_update(struct cgroup_job *j, struct error *err)
{
	if (j->cg->v2 >= 0)
		TRY(enable_controllers(j, err));
	/* by itself, since it is best done whatever becomes of the others */
	TRY(limits_apply(j->cg, j->path, &j->undone, true, err));
	return limits_apply(j->cg, j->path, &j->settings, true, err);
}

static int run_with_limits(struct task *t, struct cgroups *cg, const char *path,
			   const struct resources *r, const struct resources *undone,
			   int (*fn)(struct cgroup_job *j, struct error *err))
{
	CLEANUP_JOB struct cgroup_job *j = NULL;

	TRY(cgroup_path_check(path, &t->err));
	j = new_job(cg, path, fn);
	TRY(limits_plan(cg, r, &j->settings, &t->err));
	if (undone)
		TRY(limits_plan_without(cg, r, undone, &j->undone, &t->err));
	return run_to_end(t, j);
}

int cgroup_create(struct task *t, struct cgroups *cg, const char *path, const struct resources *r)
{
	return run_with_limits(t, cg, path, r, NULL, run_create);
}

int cgroup_update(struct task *t, struct cgroups *cg, const char *path, const struct resources *r,
		  const struct resources *undone)
{
	return run_with_limits(t, cg, path, r, undone, run_update);
}

static int run_devices(struct cgroup_job *j, struct error *err)
{
	return cgroup_apply_devices(j->cg, j->path, j->devices, j->device_count, err);
}

int cgroup_restrict_devices(struct task *t, struct cgroups *cg, const char *path,
			    const struct cgroup_device *devices, size_t count)
{
	CLEANUP_JOB struct cgroup_job *j = NULL;

	TRY(cgroup_path_check(path, &t->err));
	if (count > DEVICES_MAX)
		return error_set(&t->err, ERR_INVALID, "devices of cgroup %s: more than %d", path,
				 DEVICES_MAX);
	j = new_job(cg, path, run_devices);
	j->devices = xcalloc(count, sizeof(*devices));
	for (size_t i = 0; i < count; i++) {
		if ((devices[i].type != 'b' && devices[i].type != 'c') || !*devices[i].access ||
		    devices[i].access[strspn(devices[i].access, "rwm")])
			return error_set(
				&t->err, ERR_INVALID,
				"device %d:%d: its type must be b or c, its permissions of rwm",
				devices[i].major, devices[i].minor);
		j->devices[i] = devices[i];
		j->devices[i].access = xstrdup(devices[i].access);
		j->device_count++;
	}
	return offload(t, NULL, &j->job);
}

static int join_failed(int sys, const char *path, struct error *err)
{
	if (sys == ENOENT || sys == ENODEV)
		return error_set(err, ERR_PRECONDITION,
				 "join cgroup %s: it is gone, as after the container's end", path);
	return error_errno(err, sys, "join cgroup %s", path);
}

static int open_file_of(const struct hierarchy *h, const char *path)
{
	cleanup_free char *file = xasprintf("%s/%s", path + 1, h->is_v2 ? "cgroup.procs" : "tasks");
	int fd = openat(h->fd, file, O_WRONLY | O_NOFOLLOW | O_CLOEXEC);

	return fd < 0 ? -errno : fd;
}

/* tracked: the path in the tracker. */
static int open_join(struct cgroups *cg, const char *path, const char *tracked,
		     struct cgroup_join *ret, struct error *err)
{
	struct cgroup_join join = CGROUP_JOIN_NONE;

	for (size_t i = 0; i < cg->count; i++) {
		const struct hierarchy *h = &cg->hierarchies[i];
		const char *where = (int)i == cg->tracker ? tracked : path;
		bool is_birth = h->is_v2 && cg->can_clone;
		int fd = is_birth ? cgroup_open(h, where) : open_file_of(h, where);

		if (fd < 0) {
			cgroup_join_done(&join);
			return join_failed(-fd, where, err);
		}
		if (is_birth)
			join.clone_fd = fd;
		else
			join.files[join.file_count++] = fd;
	}
	*ret = join;
	return 0;
}

int cgroup_join_open(struct cgroups *cg, const char *path, struct cgroup_join *ret,
		     struct error *err)
{
	TRY(cgroup_path_check(path, err));
	return open_join(cg, path, path, ret, err);
}

void cgroup_join_done(struct cgroup_join *join)
{
	close_fd(join->clone_fd);
	for (size_t i = 0; i < join->file_count; i++)
		close_fd(join->files[i]);
	*join = CGROUP_JOIN_NONE;
}

static int exec_path(const char *path, const char *exec_id, char **ret, struct error *err)
{
	size_t n = strlen(exec_id);

	if (!n || n > 128 ||
	    exec_id[strspn(exec_id, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
				    "0123456789-_")])
		return error_set(err, ERR_INVALID,
				 "exec id \"%.64s\": letters, digits, - and _ only", exec_id);
	TRY(cgroup_path_check(path, err));
	*ret = xasprintf("%s/" CGROUP_EXEC_PREFIX "%s", path, exec_id);
	return 0;
}

static int run_exec_open(struct cgroup_job *j, struct error *err)
{
	const struct hierarchy *h = &j->cg->hierarchies[j->cg->tracker];
	cleanup_free char *parent =
		xasprintf("%.*s", (int)(strrchr(j->path, '/') - j->path), j->path);

	int r = make_leaf(h, j->path + 1);

	if (r < 0)
		return join_failed(-r, j->path, err);
	if (!h->is_v2 && h->controllers & 1u << CONTROLLER_CPUSET)
		TRY(cgroup_v1_fill_cpuset(h, j->path, err));
	return open_join(j->cg, parent, j->path, &j->join, err);
}

int cgroup_exec_open(struct task *t, struct cgroups *cg, const char *path, const char *exec_id,
		     struct cgroup_join *ret)
{
	CLEANUP_JOB struct cgroup_job *j = NULL;
	cleanup_free char *whole = NULL;

	TRY(exec_path(path, exec_id, &whole, &t->err));
	j = new_job(cg, whole, run_exec_open);
	TRY(run_to_end(t, j));
	*ret = j->join;
	j->join = CGROUP_JOIN_NONE;
	return 0;
}

int cgroup_exec_kill(struct task *t, struct cgroups *cg, const char *path, const char *exec_id)
{
	cleanup_free char *whole = NULL;

	TRY(exec_path(path, exec_id, &whole, &t->err));
	return cgroup_kill(t, cg, whole);
}

static int run_exec_remove(struct cgroup_job *j, struct error *err)
{
	int r = cgroup_remove_tree(&j->cg->hierarchies[j->cg->tracker], j->path);

	return r < 0 && r != -EBUSY ? error_errno(err, -r, "remove cgroup %s", j->path) : 0;
}

int cgroup_exec_remove(struct task *t, struct cgroups *cg, const char *path, const char *exec_id)
{
	cleanup_free char *whole = NULL;

	TRY(exec_path(path, exec_id, &whole, &t->err));
	return run_simple(t, cg, whole, run_exec_remove);
}

static int open_pidfds(struct cgroup_job *j, pid_t *pids, struct error *err)
{
	for (size_t i = 0; i < j->pids.count && j->fd_count < WAIT_BATCH; i++) {
		int fd;

		if (j->pids.items[i] <= 0)
			return error_set(
				err, ERR_PRECONDITION,
				"kill cgroup %s: it holds a process that this pid namespace "
				"does not show",
				j->path);
		fd = (int)syscall(SYS_pidfd_open, j->pids.items[i], 0);
		if (fd < 0 && errno != ESRCH)
			return error_errno(err, errno, "pidfd of process %d", j->pids.items[i]);
		if (fd < 0)
			continue;
		pids[j->fd_count] = j->pids.items[i];
		j->fds[j->fd_count++] = fd;
	}
	return 0;
}

/*
 * Collects pidfds of what is still there, at most WAIT_BATCH. A pid may have become another
 * process's between listing and opening, which would be waited for in vain; so only those that are
 * listed once more afterwards stay (if theirs was reaped even then, the opened one is readable at
 * once).
 */
static int collect(struct cgroup_job *j, const struct hierarchy *h, struct error *err)
{
	struct pid_list again = {0};
	pid_t pids[WAIT_BATCH];
	int dir = cgroup_open(h, j->path), r;
	size_t kept = 0;

	if (dir < 0)
		return dir == -ENOENT ? 0 : error_errno(err, -dir, "open cgroup %s", j->path);
	r = pid_list_walk(dir, &j->pids);
	if (r < 0)
		return error_errno(err, -r, "list the processes of cgroup %s", j->path);
	TRY(open_pidfds(j, pids, err));
	dir = cgroup_open(h, j->path);
	r = dir < 0 ? dir : pid_list_walk(dir, &again);
	for (size_t i = 0; i < j->fd_count; i++) {
		if (pid_list_has(&again, pids[i]))
			j->fds[kept++] = j->fds[i];
		else
			close_fd(j->fds[i]);
	}
	j->fd_count = kept;
	pid_list_done(&again);
	if (r < 0 && r != -ENOENT)
		return error_errno(err, -r, "list the processes of cgroup %s", j->path);
	return 0;
}

static int run_kill(struct cgroup_job *j, struct error *err)
{
	const struct hierarchy *h = &j->cg->hierarchies[j->cg->tracker];

	if (h->is_v2) {
		cleanup_close int dir = cgroup_open(h, j->path);
		int r = dir < 0 ? dir : cgroup_write(dir, "cgroup.kill", "1");

		if (r == -ENOENT || r == -ENODEV)
			return 0;
		if (r < 0)
			return error_errno(err, -r, "write cgroup.kill of cgroup %s", j->path);
		if (cgroup_read_key(dir, "cgroup.events", "populated") == 0)
			return 0;
	} else {
		TRY(cgroup_v1_kill(j->cg, j->path, err));
	}
	return collect(j, h, err);
}

/* 1 when there was something left to wait for and it is gone, 0 when the group is empty. */
static int kill_round(struct task *t, struct cgroups *cg, const char *path)
{
	CLEANUP_JOB struct cgroup_job *j = new_job(cg, path, run_kill);

	TRY(offload(t, NULL, &j->job));
	for (size_t i = 0; i < j->fd_count; i++)
		TRY(task_wait_fd(t, j->fds[i], LOOP_READ));
	return j->pids.count > 0;
}

/* The state letter of /proc/PID/stat; it follows the last ')'. */
static char state_of(pid_t pid)
{
	cleanup_free char *path = xasprintf("/proc/%d/stat", pid);
	cleanup_close int fd = open(path, O_RDONLY | O_CLOEXEC);
	char text[512] = "";
	const char *at;

	if (fd < 0 || read(fd, text, sizeof(text) - 1) <= 0)
		return '?';
	at = strrchr(text, ')');
	return at && at[1] ? at[2] : '?';
}

static int run_explain(struct cgroup_job *j, struct error *err)
{
	int dir = cgroup_open(&j->cg->hierarchies[j->cg->tracker], j->path);
	pid_t pid;

	if (dir < 0 || pid_list_walk(dir, &j->pids) < 0 || !j->pids.count)
		return error_set(err, ERR_DEADLINE,
				 "kill cgroup %s: the deadline passed; try again", j->path);
	pid = j->pids.items[0];
	return error_set(
		err, ERR_DEADLINE,
		"kill cgroup %s: process %d (state %c) and %zu more are still there; state D "
		"waits for a device or a file system",
		j->path, pid, state_of(pid), j->pids.count - 1);
}

static int explain(struct task *t, struct cgroups *cg, const char *path)
{
	CLEANUP_JOB struct cgroup_job *j = new_job(cg, path, run_explain);
	int r;

	task_shield(t, 1);
	r = offload(t, NULL, &j->job);
	task_shield(t, -1);
	return r;
}

int cgroup_kill(struct task *t, struct cgroups *cg, const char *path)
{
	uint64_t deadline;
	int r;

	TRY(cgroup_path_check(path, &t->err));
	deadline = task_limit_ms(t, CGROUP_KILL_TIMEOUT_MS);
	do
		r = kill_round(t, cg, path);
	while (r > 0);
	task_restore_deadline(t, deadline);
	return r == -ERR_DEADLINE ? explain(t, cg, path) : r;
}

static int busy(const struct cgroup_job *j, const struct hierarchy *h, struct error *err)
{
	struct pid_list pids = {0};
	int dir = cgroup_open(h, j->path);
	pid_t pid = 0;

	if (dir >= 0 && pid_list_walk(dir, &pids) == 0 && pids.count)
		pid = pids.items[0];
	pid_list_done(&pids);
	if (pid)
		return error_set(err, ERR_PRECONDITION,
				 "remove cgroup %s: process %d (state %c) is in it", j->path, pid,
				 state_of(pid));
	return error_errno(err, EBUSY, "remove cgroup %s", j->path);
}

static int run_remove(struct cgroup_job *j, struct error *err)
{
	int result = 0;

	for (size_t i = 0; i < j->cg->count; i++) {
		const struct hierarchy *h = &j->cg->hierarchies[i];
		int r = cgroup_remove_tree(h, j->path);

		if (r == -EBUSY)
			result = busy(j, h, err);
		else if (r < 0)
			result = error_errno(err, -r, "remove cgroup %s", j->path);
		FAULT(cgroup_removed);
	}
	return result;
}

int cgroup_remove(struct task *t, struct cgroups *cg, const char *path)
{
	return run_simple(t, cg, path, run_remove);
}

static int run_remove_unused(struct cgroup_job *j, struct error *err)
{
	for (size_t i = 0; i < j->cg->count; i++) {
		if (unlinkat(j->cg->hierarchies[i].fd, j->path + 1, AT_REMOVEDIR) < 0 &&
		    errno != ENOENT && errno != EBUSY && errno != ENOTEMPTY)
			return error_errno(err, errno, "remove cgroup %s", j->path);
	}
	return 0;
}

int cgroup_remove_unused(struct task *t, struct cgroups *cg, const char *path)
{
	return run_simple(t, cg, path, run_remove_unused);
}

static int run_children(struct cgroup_job *j, struct error *err)
{
	for (size_t i = 0; i < j->cg->count; i++) {
		cleanup_close int dir = cgroup_open(&j->cg->hierarchies[i], j->path);
		int r = dir < 0 ? dir : cgroup_child_names(dir, &j->names);

		if (r < 0 && r != -ENOENT && r != -ENODEV)
			return error_errno(err, -r, "list cgroup %s", j->path);
	}
	return 0;
}

int cgroup_children(struct task *t, struct cgroups *cg, const char *path,
		    void (*fn)(void *data, const char *name), void *data)
{
	CLEANUP_JOB struct cgroup_job *j = NULL;

	TRY(cgroup_path_check(path, &t->err));
	j = new_job(cg, path, run_children);
	TRY(offload(t, NULL, &j->job));
	for (size_t at = 0; at < j->names.length; at += strlen(j->names.data + at) + 1)
		fn(data, j->names.data + at);
	return 0;
}

static int run_procs(struct cgroup_job *j, struct error *err)
{
	int dir = cgroup_open(&j->cg->hierarchies[j->cg->tracker], j->path), r;

	if (dir == -ENOENT)
		return 0;
	r = dir < 0 ? dir : pid_list_walk(dir, &j->pids);
	return r < 0 ? error_errno(err, -r, "list the processes of cgroup %s", j->path) : 0;
}

int cgroup_procs(struct task *t, struct cgroups *cg, const char *path, pid_t **ret_pids,
		 size_t *ret_count)
{
	CLEANUP_JOB struct cgroup_job *j = NULL;

	TRY(cgroup_path_check(path, &t->err));
	j = new_job(cg, path, run_procs);
	TRY(offload(t, NULL, &j->job));
	*ret_count = j->pids.count;
	*ret_pids = take_ptr(j->pids.items);
	return 0;
}
