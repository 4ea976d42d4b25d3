/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cgroup v1's own: cpusets that begin empty, limits that depend on each other while they change,
 * and killing where no kernel helps: list, kill by pidfd, list again, with the freezer when the
 * processes fork faster than that.
 */
#include "sandbox/linux/cgroup_priv.h"

#include <errno.h>
#include <signal.h>
#include <string.h>
#include <sys/syscall.h>

#include "io/base/alloc.h"
#include "io/base/cleanup.h"

/* So often the plain way is tried before the freezer. */
#define KILL_ROUNDS 4
#define KILL_ROUNDS_FROZEN 64
#define PIDFD_BATCH 64

static int fill_file(int parent, int dir, const char *file)
{
	char value[2048];
	ssize_t n = cgroup_read(dir, file, value, sizeof(value));

	if (n != 0)
		return n < 0 ? (int)n : 0;
	n = cgroup_read(parent, file, value, sizeof(value));
	return n < 0 ? (int)n : cgroup_write(dir, file, value);
}

int cgroup_v1_fill_cpuset(const struct hierarchy *h, const char *path, struct error *err)
{
	cleanup_free char *name = xstrdup(path + 1);
	cleanup_close int parent = cgroup_open(h, ".");

	if (parent < 0)
		return error_errno(err, -parent, "open the cpuset hierarchy");
	for (char *end = name; end;) {
		int dir, r;

		end = strchr(end + 1, '/');
		if (end)
			*end = '\0';
		dir = cgroup_open(h, name);
		r = dir < 0 ? dir : fill_file(parent, dir, "cpuset.cpus");
		if (r == 0)
			r = fill_file(parent, dir, "cpuset.mems");
		close_fd(parent);
		parent = dir;
		if (r < 0)
			return error_errno(err, -r, "cpuset of cgroup /%s", name);
		if (end)
			*end = '/';
	}
	return 0;
}

static struct setting *find(struct setting_list *list, enum setting_kind kind)
{
	for (size_t i = 0; i < list->count; i++)
		if (list->items[i].kind == kind)
			return &list->items[i];
	return NULL;
}

static void swap_settings(struct setting *a, struct setting *b)
{
	struct setting t = *a;

	*a = *b;
	*b = t;
}

/* "-1" is the largest. */
static uint64_t to_number(const char *text)
{
	return *text == '-' ? UINT64_MAX : strtoull(text, NULL, 10);
}

static uint64_t read_number(int dir, const char *file)
{
	char text[64];

	return cgroup_read(dir, file, text, sizeof(text)) < 0 ? UINT64_MAX : to_number(text);
}

/*
 * Memory must stay at or below memory-and-swap: when it grows past what that is now, that goes
 * first. A raised memory limit alone takes it along, for there is no other way to have it.
 */
static void order_memory(int dir, struct setting_list *list)
{
	struct setting *memory = find(list, SETTING_MEMORY), *swap = find(list, SETTING_SWAP);
	uint64_t now;

	if (!memory)
		return;
	now = read_number(dir, "memory.memsw.limit_in_bytes");
	if (to_number(memory->value) <= now)
		return;
	if (!swap) {
		size_t at = (size_t)(memory - list->items);

		list->items = xrealloc(list->items, (list->count + 1) * sizeof(*list->items));
		memory = &list->items[at];
		swap = &list->items[list->count++];
		*swap = (struct setting){.kind = SETTING_SWAP,
					 .controller = CONTROLLER_MEMORY,
					 .file = xstrdup("memory.memsw.limit_in_bytes"),
					 .value = xstrdup(memory->value),
					 .is_optional = true};
	}
	swap_settings(memory, swap);
}

/*
 * A group's quota / period may not be above its parent's at any moment. The one order whose
 * intermediate ratio is the smaller is always allowed: the product of both intermediate ratios is
 * the product of the old and the new one.
 */
static void order_bandwidth(int dir, struct setting_list *list)
{
	struct setting *quota = find(list, SETTING_QUOTA), *period = find(list, SETTING_PERIOD);
	uint64_t old_quota, old_period, new_quota, new_period;

	if (!quota || !period)
		return;
	old_quota = read_number(dir, "cpu.cfs_quota_us");
	old_period = read_number(dir, "cpu.cfs_period_us");
	new_quota = to_number(quota->value);
	new_period = to_number(period->value);
	if (new_quota == UINT64_MAX || !old_period || !new_period)
		return;
	if (old_quota == UINT64_MAX ||
	    (double)old_quota / (double)new_period < (double)new_quota / (double)old_period)
		swap_settings(quota, period);
}

void cgroup_v1_order(const struct cgroups *cg, const int *dirs, struct setting_list *list)
{
	int memory = cg->of[CONTROLLER_MEMORY], cpu = cg->of[CONTROLLER_CPU];

	if (memory >= 0 && dirs[memory] >= 0)
		order_memory(dirs[memory], list);
	if (cpu >= 0 && dirs[cpu] >= 0)
		order_bandwidth(dirs[cpu], list);
}

struct kill_pass {
	struct pid_list killed; /* of all passes so far */
	bool has_new;
};

/*
 * A pid read from cgroup.procs may be another process by the time it is opened. It is the right one
 * if it is listed once more after the opening and the opened process is still there then.
 */
static int kill_batch(int dir, const pid_t *pids, size_t count)
{
	struct pid_list again = {0};
	int fds[PIDFD_BATCH], r;

	for (size_t i = 0; i < count; i++)
		fds[i] = (int)syscall(SYS_pidfd_open, pids[i], 0);
	r = pid_list_read(dir, &again);
	for (size_t i = 0; i < count; i++) {
		if (r == 0 && fds[i] >= 0 && pid_list_has(&again, pids[i]))
			(void)syscall(SYS_pidfd_send_signal, fds[i], SIGKILL, NULL, 0);
		close_fd(fds[i]);
	}
	pid_list_done(&again);
	return r;
}

static int kill_in(int dir, void *arg)
{
	struct kill_pass *pass = arg;
	struct pid_list found = {0}, fresh = {0};
	int r = pid_list_read(dir, &found);

	for (size_t i = 0; i < found.count; i++)
		if (found.items[i] > 0 && !pid_list_has(&pass->killed, found.items[i]))
			pid_list_add(&fresh, found.items[i]);
	for (size_t at = 0; r == 0 && at < fresh.count; at += PIDFD_BATCH) {
		size_t n = fresh.count - at < PIDFD_BATCH ? fresh.count - at : PIDFD_BATCH;

		r = kill_batch(dir, fresh.items + at, n);
	}
	for (size_t i = 0; i < fresh.count; i++)
		pid_list_add(&pass->killed, fresh.items[i]);
	pass->has_new |= fresh.count > 0;
	pid_list_done(&found);
	pid_list_done(&fresh);
	return r;
}

/* Kills until nothing new appears. */
static int kill_passes(const struct hierarchy *h, const char *path, int rounds,
		       bool *ret_is_settled, struct error *err)
{
	struct kill_pass pass = {.has_new = true};
	int r = 0;

	for (int i = 0; i < rounds && pass.has_new && r == 0; i++) {
		int dir = cgroup_open(h, path);

		pass.has_new = false;
		if (dir == -ENOENT)
			break;
		r = dir < 0 ? dir : cgroup_walk(dir, kill_in, &pass);
	}
	pid_list_done(&pass.killed);
	*ret_is_settled = !pass.has_new;
	return r < 0 ? error_errno(err, -r, "kill the processes of cgroup %s", path) : 0;
}

/* Forks of frozen processes stay in the group and frozen; what is killed dies when thawed. */
static void stop_forks(const struct cgroups *cg, int dir)
{
	if (cg->tracker == cg->of[CONTROLLER_FREEZER])
		(void)cgroup_write(dir, "freezer.state", "FROZEN");
	else if (cg->tracker == cg->of[CONTROLLER_PIDS])
		(void)cgroup_write(dir, "pids.max", "0");
}

int cgroup_v1_kill(const struct cgroups *cg, const char *path, struct error *err)
{
	const struct hierarchy *h = &cg->hierarchies[cg->tracker];
	cleanup_close int dir = cgroup_open(h, path);
	bool is_settled = false;
	int r;

	if (dir < 0)
		return dir == -ENOENT ? 0 : error_errno(err, -dir, "open cgroup %s", path);
	r = kill_passes(h, path, KILL_ROUNDS, &is_settled, err);
	if (r == 0 && !is_settled) {
		stop_forks(cg, dir);
		r = kill_passes(h, path, KILL_ROUNDS_FROZEN, &is_settled, err);
	}
	if (cg->tracker == cg->of[CONTROLLER_FREEZER])
		(void)cgroup_write(dir, "freezer.state", "THAWED");
	return r;
}
