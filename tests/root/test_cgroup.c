/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cgroups for real, under /crisp-test-PID. Every case runs with the hierarchies that are mounted
 * and with v1's alone, since both kill in different ways. Needs root.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/sched.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <sys/wait.h>

#include "io/base/alloc.h"
#include "io/base/buf.h"
#include "io/base/cleanup.h"
#include "io/offload.h"
#include "sandbox/linux/cgroup_priv.h"

#define MIB (1024 * 1024ll)

static struct loop *l;
static struct cgroups *cg;
static char *base;	/* "/crisp-test-PID" */
static char *mountinfo; /* v1's lines alone, or NULL for all */
static bool no_clone;	/* as where CLONE_INTO_CGROUP does not work */
static struct error last;

/* Runs one body on a task. */
struct body {
	int (*fn)(struct task *t, void *arg);
	void *arg;
	int result;
};

static void run_body(struct task *t, void *arg)
{
	struct body *b = arg;

	b->result = b->fn(t, b->arg);
	last = t->err;
	loop_stop(l);
}

static int on_task(int (*fn)(struct task *t, void *arg), void *arg)
{
	struct body b = {.fn = fn, .arg = arg};

	last = (struct error){0};
	task_start(l, "test", run_body, &b);
	loop_run(l);
	return b.result;
}

struct call {
	const char *path, *exec_id;
	const struct resources *r, *undone;
	struct cgroup_join join;
	pid_t *pids;
	size_t count;
	const struct cgroup_device *devices;
	uint64_t timeout_ms;
};

static int do_create(struct task *t, void *arg)
{
	struct call *c = arg;

	return cgroup_create(t, cg, c->path, c->r);
}

static int do_update(struct task *t, void *arg)
{
	struct call *c = arg;

	return cgroup_update(t, cg, c->path, c->r, c->undone);
}

static int do_kill(struct task *t, void *arg)
{
	struct call *c = arg;

	if (c->timeout_ms)
		task_limit_ms(t, c->timeout_ms);
	return cgroup_kill(t, cg, c->path);
}

static int do_remove(struct task *t, void *arg)
{
	return cgroup_remove(t, cg, ((struct call *)arg)->path);
}

static int do_remove_unused(struct task *t, void *arg)
{
	return cgroup_remove_unused(t, cg, ((struct call *)arg)->path);
}

static int do_procs(struct task *t, void *arg)
{
	struct call *c = arg;

	return cgroup_procs(t, cg, c->path, &c->pids, &c->count);
}

static int do_exec_open(struct task *t, void *arg)
{
	struct call *c = arg;

	return cgroup_exec_open(t, cg, c->path, c->exec_id, &c->join);
}

static int do_devices(struct task *t, void *arg)
{
	struct call *c = arg;

	return cgroup_restrict_devices(t, cg, c->path, c->devices, c->count);
}

static int do_exec_kill(struct task *t, void *arg)
{
	struct call *c = arg;

	return cgroup_exec_kill(t, cg, c->path, c->exec_id);
}

static int do_exec_remove(struct task *t, void *arg)
{
	struct call *c = arg;

	return cgroup_exec_remove(t, cg, c->path, c->exec_id);
}

#define RUN(fn, ...) on_task(fn, &(struct call){__VA_ARGS__})
#define assert_ok(call)                                                                            \
	do {                                                                                       \
		if ((call) != 0)                                                                   \
			fail_msg("%s: %s", #call, last.text);                                      \
	} while (0)

static size_t procs(const char *path)
{
	struct call c = {.path = path};

	assert_ok(on_task(do_procs, &c));
	free(c.pids);
	return c.count;
}

/* The file's value in the hierarchy of the controller. */
static void read_value(enum controller c, const char *path, const char *file, char *ret,
		       size_t size)
{
	int dir = cgroup_open(&cg->hierarchies[cg->of[c]], path);

	assert_true(dir >= 0);
	assert_true(cgroup_read(dir, file, ret, size) >= 0);
	close(dir);
}

static void assert_value(enum controller c, const char *path, const char *file,
			 const char *expected)
{
	char value[1024];

	read_value(c, path, file, value, sizeof(value));
	assert_string_equal(value, expected);
}

static bool has(enum controller c)
{
	return cg->of[c] >= 0;
}

static void tell(int ready)
{
	(void)!write(ready, "x", 1);
}

/* 1: null can't be used, 2: a node can't be made, 4: it can be opened, 8: kmsg can be read. */
static void try_devices(int ready)
{
	char node[] = "/tmp/crisp-test-node-XXXXXX";
	int result = 0, fd = mkstemp(node);

	close(fd);
	unlink(node);
	tell(ready);
	fd = open("/dev/null", O_RDWR | O_CLOEXEC);
	result |= fd < 0 ? 1 : 0;
	if (mknod(node, S_IFCHR | 0600, makedev(1, 11)) < 0)
		result |= 2;
	fd = open(node, O_RDONLY | O_NONBLOCK | O_CLOEXEC);
	result |= fd < 0 ? 0 : 4;
	unlink(node);
	fd = open("/dev/kmsg", O_RDONLY | O_NONBLOCK | O_CLOEXEC);
	result |= fd < 0 ? 0 : 8;
	_exit(result);
}

static int reap(pid_t pid)
{
	int status = 0;

	assert_int_equal(waitpid(pid, &status, 0), pid);
	return status;
}

/* Starts fn in the group as its container's process would be, and returns its pid. */
static pid_t start(struct cgroup_join *join, void (*fn)(int ready))
{
	struct clone_args args = {.exit_signal = SIGCHLD};
	int ready[2];
	char byte;
	pid_t pid;

	assert_int_equal(pipe2(ready, O_CLOEXEC), 0);
	if (join->clone_fd >= 0) {
		args.flags = CLONE_INTO_CGROUP;
		args.cgroup = (uint64_t)join->clone_fd;
	}
	pid = (pid_t)syscall(SYS_clone3, &args, sizeof(args));
	if (pid == 0) {
		for (size_t i = 0; i < join->file_count; i++)
			if (write(join->files[i], "0", 1) != 1)
				_exit(99);
		fn(ready[1]);
		_exit(0);
	}
	assert_true(pid > 0);
	close(ready[1]);
	if (read(ready[0], &byte, 1) != 1)
		fail_msg("the process ended early: status %#x", reap(pid));
	close(ready[0]);
	return pid;
}

static pid_t start_in(const char *path, void (*fn)(int ready))
{
	struct cgroup_join join = CGROUP_JOIN_NONE;
	struct error err = {0};
	pid_t pid;

	if (cgroup_join_open(cg, path, &join, &err) < 0)
		fail_msg("%s", err.text);
	pid = start(&join, fn);
	cgroup_join_done(&join);
	cgroup_join_done(&join);
	return pid;
}

static void sleep_forever(int ready)
{
	tell(ready);
	for (;;)
		pause();
}

/* Each one forks as fast as it can, ignores what can be ignored, and leaves its session. */
static void bomb(int ready)
{
	for (int s = 1; s < 32; s++)
		signal(s, SIG_IGN);
	signal(SIGCHLD, SIG_DFL);
	tell(ready);
	for (;;) {
		if (fork() == 0)
			setsid();
		while (waitpid(-1, NULL, WNOHANG) > 0)
			;
	}
}

/* The first process ends, the grandchild has left its session. */
static void double_fork(int ready)
{
	if (fork() == 0) {
		setsid();
		if (fork() == 0)
			sleep_forever(ready);
		_exit(0);
	}
	wait(NULL);
	_exit(0);
}

static void eat_memory(int ready)
{
	char *p = mmap(NULL, 64 * MIB, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	tell(ready);
	memset(p, 1, 64 * MIB);
	_exit(7);
}

/* Everything that was killed is ours to reap, since the test is a subreaper. */
static void reap_all(void)
{
	while (wait(NULL) > 0)
		;
	assert_int_equal(errno, ECHILD);
}

static char *sub(const char *name)
{
	static char paths[8][256];
	static size_t next;
	char *path = paths[next++ % 8];

	snprintf(path, 256, "%s/%s", base, name);
	return path;
}

static size_t count_fds(void)
{
	DIR *dir = opendir("/proc/self/fd");
	size_t n = 0;

	while (readdir(dir))
		n++;
	closedir(dir);
	return n;
}

static size_t fds_before;

static int begin(void **state)
{
	struct error err = {0};

	l = loop_new(&err);
	cg = mountinfo ? cgroups_probe_text(mountinfo, &err) : cgroups_probe(&err);
	if (!l || !cg)
		fail_msg("%s", err.text);
	if (no_clone)
		cg->can_clone = false;
	else
		assert_int_equal(cg->can_clone, cg->v2 >= 0);
	on_task(do_procs, &(struct call){.path = base});
	fds_before = count_fds();
	return 0;
}

static int end(void **state)
{
	assert_ok(RUN(do_kill, base));
	reap_all();
	assert_ok(RUN(do_remove, base));
	assert_int_equal(count_fds(), fds_before + (size_t)(cg->devices_program >= 0));
	for (size_t i = 0; i < cg->count; i++)
		assert_int_equal(cgroup_open(&cg->hierarchies[i], base), -ENOENT);
	offload_shutdown();
	cgroups_free(cg);
	loop_free(l);
	task_pool_trim();
	return 0;
}

static void limits_are_written(void **state)
{
	struct key_value pages[] = {{"2MB", "0"}, {"1GB", "0"}};
	struct resources r = {.cpu_shares = 512,
			      .cpu_quota_us = 50000,
			      .cpu_period_us = 100000,
			      .cpuset_cpus = "0",
			      .memory_limit = 64 * MIB,
			      .memory_swap_limit = 64 * MIB,
			      .pids_limit = 32,
			      .hugepage_limits = {pages, 2}};

	if (!has(CONTROLLER_MEMORY) || !has(CONTROLLER_CPU) || cg->is_pure_v2)
		skip();
	assert_ok(RUN(do_create, sub("a/b/c"), .r = &r));
	assert_value(CONTROLLER_CPU, sub("a/b/c"), "cpu.shares", "512");
	assert_value(CONTROLLER_CPU, sub("a/b/c"), "cpu.cfs_quota_us", "50000");
	assert_value(CONTROLLER_CPU, sub("a/b/c"), "cpu.cfs_period_us", "100000");
	assert_value(CONTROLLER_CPUSET, sub("a/b/c"), "cpuset.cpus", "0");
	assert_value(CONTROLLER_MEMORY, sub("a/b/c"), "memory.limit_in_bytes", "67108864");
	assert_value(CONTROLLER_PIDS, sub("a/b/c"), "pids.max", "32");
	/* again, with nothing: stays */
	assert_ok(RUN(do_create, sub("a/b/c")));
	assert_value(CONTROLLER_PIDS, sub("a/b/c"), "pids.max", "32");
}

static void memory_and_swap_move_both_ways(void **state)
{
	static const int64_t steps[][2] = {{64, 64}, {128, 128}, {32, 48},
					   {40, 40}, {256, 512}, {16, 16}};
	struct resources only_memory = {.memory_limit = 512 * MIB};

	if (!has(CONTROLLER_MEMORY) || cg->is_pure_v2)
		skip();
	assert_ok(RUN(do_create, sub("m")));
	for (size_t i = 0; i < sizeof(steps) / sizeof(steps[0]); i++) {
		struct resources r = {.memory_limit = steps[i][0] * MIB,
				      .memory_swap_limit = steps[i][1] * MIB};
		char text[32];

		assert_ok(RUN(do_update, sub("m"), .r = &r));
		snprintf(text, sizeof(text), "%lld", (long long)r.memory_limit);
		assert_value(CONTROLLER_MEMORY, sub("m"), "memory.limit_in_bytes", text);
		snprintf(text, sizeof(text), "%lld", (long long)r.memory_swap_limit);
		assert_value(CONTROLLER_MEMORY, sub("m"), "memory.memsw.limit_in_bytes", text);
	}
	assert_ok(RUN(do_update, sub("m"), .r = &only_memory));
	assert_value(CONTROLLER_MEMORY, sub("m"), "memory.limit_in_bytes", "536870912");
}

static void bandwidth_moves_beneath_a_limited_parent(void **state)
{
	struct resources whole = {.cpu_quota_us = 100000, .cpu_period_us = 100000};
	static const int64_t steps[][2] = {{100000, 100000},  {20000, 20000}, {500000, 500000},
					   {250000, 1000000}, {-1, 50000},    {50000, 50000}};

	if (!has(CONTROLLER_CPU) || cg->is_pure_v2)
		skip();
	assert_ok(RUN(do_create, sub("q"), .r = &whole));
	assert_ok(RUN(do_create, sub("q/c")));
	for (size_t i = 0; i < sizeof(steps) / sizeof(steps[0]); i++) {
		struct resources r = {.cpu_quota_us = steps[i][0],
				      .cpu_period_us = (uint64_t)steps[i][1]};
		char text[32];

		assert_ok(RUN(do_update, sub("q/c"), .r = &r));
		snprintf(text, sizeof(text), "%lld", (long long)r.cpu_quota_us);
		assert_value(CONTROLLER_CPU, sub("q/c"), "cpu.cfs_quota_us", text);
	}
}

static void a_refused_update_changes_nothing(void **state)
{
	struct resources before = {.cpu_shares = 512, .pids_limit = 20, .memory_limit = 64 * MIB};
	struct resources bad = {.cpu_shares = 100, .cpuset_cpus = "999"};
	struct resources worse = {
		.cpu_shares = 100, .memory_limit = 32 * MIB, .pids_limit = INT64_MAX};

	if (!has(CONTROLLER_CPU) || cg->is_pure_v2)
		skip();
	assert_ok(RUN(do_create, sub("u"), .r = &before));
	assert_int_equal(RUN(do_update, sub("u"), .r = &bad), -ERR_INVALID);
	assert_non_null(strstr(last.text, "cpuset.cpus"));
	assert_value(CONTROLLER_CPU, sub("u"), "cpu.shares", "512");
	assert_int_equal(RUN(do_update, sub("u"), .r = &worse), -ERR_INVALID);
	assert_non_null(strstr(last.text, "pids.max"));
	assert_value(CONTROLLER_CPU, sub("u"), "cpu.shares", "512");
	assert_value(CONTROLLER_MEMORY, sub("u"), "memory.limit_in_bytes", "67108864");
	assert_value(CONTROLLER_PIDS, sub("u"), "pids.max", "20");
	assert_int_equal(RUN(do_update, sub("gone"), .r = &before), -ERR_PRECONDITION);
}

/* As after a server that died in the middle of a change which can't be finished. */
static void what_is_taken_back_is_as_if_never_given(void **state)
{
	struct resources before = {.cpu_shares = 512, .memory_limit = 64 * MIB};
	struct resources change = {.cpu_shares = 2048,
				   .cpu_quota_us = 50000,
				   .cpu_period_us = 50000,
				   .cpuset_cpus = "0",
				   .cpuset_mems = "0",
				   .memory_limit = 128 * MIB,
				   .memory_swap_limit = 256 * MIB,
				   .pids_limit = 20};
	char cpus[256];

	if (!has(CONTROLLER_CPU) || cg->is_pure_v2)
		skip();
	assert_ok(RUN(do_create, sub("back"), .r = &before));
	assert_ok(RUN(do_create, sub("other")));
	assert_ok(RUN(do_update, sub("back"), .r = &change));
	assert_value(CONTROLLER_CPUSET, sub("back"), "cpuset.cpus", "0");
	assert_ok(RUN(do_update, sub("back"), .r = &before, .undone = &change));
	assert_value(CONTROLLER_CPU, sub("back"), "cpu.shares", "512");
	assert_value(CONTROLLER_CPU, sub("back"), "cpu.cfs_quota_us", "-1");
	assert_value(CONTROLLER_CPU, sub("back"), "cpu.cfs_period_us", "100000");
	assert_value(CONTROLLER_MEMORY, sub("back"), "memory.limit_in_bytes", "67108864");
	assert_value(CONTROLLER_MEMORY, sub("back"), "memory.memsw.limit_in_bytes",
		     "9223372036854771712");
	assert_value(CONTROLLER_PIDS, sub("back"), "pids.max", "max");
	read_value(CONTROLLER_CPUSET, sub("other"), "cpuset.cpus", cpus, sizeof(cpus));
	assert_value(CONTROLLER_CPUSET, sub("back"), "cpuset.cpus", cpus);
}

static void what_cannot_be_had_is_refused(void **state)
{
	struct key_value high = {"memory.high", "1000000"}, kill = {"cgroup.kill", "1"};
	struct resources unified = {.unified = {&high, 1}}, evil = {.unified = {&kill, 1}};
	struct resources set = {.cpuset_cpus = "0\n1"};
	struct resources below = {.memory_limit = 64 * MIB, .memory_swap_limit = 32 * MIB};

	assert_true(RUN(do_create, sub("x"), .r = &unified) < 0);
	assert_int_equal(RUN(do_create, sub("x"), .r = &evil), -ERR_INVALID);
	if (has(CONTROLLER_CPUSET))
		assert_int_equal(RUN(do_create, sub("x"), .r = &set), -ERR_INVALID);
	else
		assert_int_equal(RUN(do_create, sub("x"), .r = &set), -ERR_PRECONDITION);
	assert_true(RUN(do_create, sub("x"), .r = &below) < 0);
}

static void a_process_is_born_in_all_groups(void **state)
{
	char name[64], line[512];
	size_t found = 0;
	pid_t pid;
	FILE *f;

	assert_ok(RUN(do_create, sub("j")));
	pid = start_in(sub("j"), sleep_forever);
	snprintf(name, sizeof(name), "/proc/%d/cgroup", pid);
	f = fopen(name, "re");
	while (fgets(line, sizeof(line), f))
		if (strstr(line, sub("j")))
			found++;
	fclose(f);
	assert_int_equal(found, cg->count);
	assert_int_equal(procs(sub("j")), 1);
	assert_int_equal(RUN(do_remove, sub("j")), -ERR_PRECONDITION);
	assert_non_null(strstr(last.text, "process"));
	assert_ok(RUN(do_remove_unused, sub("j")));
	assert_int_equal(procs(sub("j")), 1);
	assert_ok(RUN(do_kill, sub("j")));
	assert_int_equal(WTERMSIG(reap(pid)), SIGKILL);
	assert_ok(RUN(do_remove, sub("j")));
	assert_ok(RUN(do_remove, sub("j")));
}

static void a_fork_bomb_loses(void **state)
{
	struct resources r = {.pids_limit = 50};
	pid_t pid;

	if (!has(CONTROLLER_PIDS))
		skip();
	for (int i = 0; i < 2; i++) {
		/* anew each time: a group that was killed takes no births */
		assert_ok(RUN(do_create, sub("bomb"), .r = &r));
		pid = start_in(sub("bomb"), bomb);
		while (procs(sub("bomb")) < 40)
			;
		assert_ok(RUN(do_kill, sub("bomb")));
		assert_int_equal(procs(sub("bomb")), 0);
		assert_int_equal(WTERMSIG(reap(pid)), SIGKILL);
		reap_all();
	}
}

static void an_exec_is_killed_by_itself(void **state)
{
	struct call c = {.exec_id = "e1"};
	pid_t main_pid, exec_pid;

	assert_ok(RUN(do_create, sub("box")));
	main_pid = start_in(sub("box"), sleep_forever);
	c.path = sub("box");
	assert_ok(on_task(do_exec_open, &c));
	exec_pid = start(&c.join, double_fork);
	cgroup_join_done(&c.join);
	reap(exec_pid);
	assert_int_equal(procs(sub("box")), 2);
	assert_int_equal(procs(sub("box/crisp-exec-e1")), 1);
	/* in use: stays, and that is no error */
	assert_ok(RUN(do_exec_remove, sub("box"), "e1"));
	assert_int_equal(procs(sub("box/crisp-exec-e1")), 1);
	assert_ok(RUN(do_exec_kill, sub("box"), "e1"));
	assert_int_equal(procs(sub("box")), 1);
	assert_int_equal(kill(main_pid, 0), 0);
	assert_ok(RUN(do_exec_remove, sub("box"), "e1"));
	assert_ok(RUN(do_exec_remove, sub("box"), "e1"));
	assert_int_equal(RUN(do_exec_open, sub("box"), "../e"), -ERR_INVALID);
	assert_int_equal(RUN(do_exec_open, sub("none"), "e"), -ERR_PRECONDITION);
	assert_ok(RUN(do_kill, sub("box")));
	reap_all();
}

static void a_container_takes_its_execs_along(void **state)
{
	struct call c = {.exec_id = "e2"};

	assert_ok(RUN(do_create, sub("both")));
	start_in(sub("both"), sleep_forever);
	c.path = sub("both");
	assert_ok(on_task(do_exec_open, &c));
	start(&c.join, sleep_forever);
	cgroup_join_done(&c.join);
	assert_int_equal(procs(sub("both")), 2);
	assert_ok(RUN(do_kill, sub("both")));
	assert_int_equal(procs(sub("both")), 0);
	reap_all();
	assert_ok(RUN(do_remove, sub("both")));
}

static void devices_are_restricted(void **state)
{
	static const struct cgroup_device kmsg = {'c', 1, 11, "r"}, bad = {'x', 1, 1, "rwm"};
	struct call c = {.exec_id = "e3"};

	assert_ok(RUN(do_create, sub("dev")));
	if (cg->v2 < 0 && !has(CONTROLLER_DEVICES))
		skip();
	assert_int_equal(WEXITSTATUS(reap(start_in(sub("dev"), try_devices))), 12);
	assert_ok(RUN(do_devices, sub("dev")));
	assert_int_equal(WEXITSTATUS(reap(start_in(sub("dev"), try_devices))), 0);
	assert_ok(RUN(do_devices, sub("dev")));
	assert_int_equal(WEXITSTATUS(reap(start_in(sub("dev"), try_devices))), 0);
	assert_ok(RUN(do_devices, sub("dev"), .devices = &kmsg, .count = 1));
	assert_int_equal(WEXITSTATUS(reap(start_in(sub("dev"), try_devices))), 12);
	assert_ok(RUN(do_devices, sub("dev")));
	c.path = sub("dev");
	assert_ok(on_task(do_exec_open, &c));
	assert_int_equal(WEXITSTATUS(reap(start(&c.join, try_devices))), 0);
	cgroup_join_done(&c.join);
	assert_int_equal(RUN(do_devices, sub("dev"), .devices = &bad, .count = 1), -ERR_INVALID);
	assert_int_equal(RUN(do_devices, sub("none")), -ERR_PRECONDITION);
}

static void deep_groups_are_removed(void **state)
{
	struct hierarchy *h = &cg->hierarchies[cg->tracker];
	int at, next;

	assert_ok(RUN(do_create, sub("deep")));
	at = cgroup_open(h, sub("deep"));
	for (int i = 0; i < 300; i++) {
		assert_int_equal(mkdirat(at, "d", 0755), 0);
		assert_int_equal(mkdirat(at, "e", 0755), 0);
		next = openat(at, "d", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
		close(at);
		at = next;
	}
	close(at);
	assert_ok(RUN(do_remove, sub("deep")));
}

static void missing_groups_are_empty(void **state)
{
	struct cgroup_join join = CGROUP_JOIN_NONE;
	struct error err;

	assert_ok(RUN(do_kill, sub("never")));
	assert_ok(RUN(do_remove, sub("never")));
	assert_ok(RUN(do_remove_unused, sub("never")));
	assert_int_equal(procs(sub("never")), 0);
	assert_int_equal(cgroup_join_open(cg, sub("never"), &join, &err), -ERR_PRECONDITION);
}

static void an_oom_kill_is_counted(void **state)
{
	struct resources r = {.memory_limit = 16 * MIB, .memory_swap_limit = 16 * MIB};
	struct usage usage;
	struct error err = {0};
	struct cgroup_oom before, after;
	cleanup_free char *culprit = NULL;

	if (!has(CONTROLLER_MEMORY))
		skip();
	assert_ok(RUN(do_create, sub("oom"), .r = &r));
	assert_int_equal(cgroup_oom_read(cg, sub("oom"), NULL, &before, &err), 0);
	assert_int_equal(before.kills, 0);
	assert_int_equal(WTERMSIG(reap(start_in(sub("oom"), eat_memory))), SIGKILL);
	assert_int_equal(cgroup_oom_read(cg, sub("oom"), &before, &after, &err), 0);
	assert_int_equal(after.kills, 1);
	culprit = cgroup_oom_culprit(cg, sub("oom"), &before, &after);
	assert_string_equal(culprit, sub("oom"));
	assert_int_equal(cgroup_oom_read(cg, sub("none"), NULL, &after, &err), -ERR_NOT_FOUND);
	assert_int_equal(cgroup_usage(cg, sub("oom"), false, &usage, &err), 0);
	assert_true(usage.figures[USAGE_CPU] > 0 && usage.figures[USAGE_CPU] != USAGE_NONE);
	assert_true(usage_working_set(&usage) <= usage.figures[USAGE_MEMORY]);
	assert_int_equal(usage.figures[USAGE_MEMORY_LIMIT], 16 * MIB);
	assert_int_equal(usage.figures[USAGE_OOM_KILLS], 1);
	assert_int_equal(usage.figures[USAGE_PROCESSES], 0);
	assert_int_equal(cgroup_usage(cg, sub("none"), false, &usage, &err), -ERR_NOT_FOUND);
}

/* A frozen parent keeps what is killed from dying, like a hung device would. */
static void what_does_not_die_is_named(void **state)
{
	pid_t pid;
	int dir;

	if (!has(CONTROLLER_FREEZER))
		skip();
	assert_ok(RUN(do_create, sub("stuck/c")));
	pid = start_in(sub("stuck/c"), sleep_forever);
	dir = cgroup_open(&cg->hierarchies[cg->of[CONTROLLER_FREEZER]], sub("stuck"));
	assert_int_equal(cgroup_write(dir, "freezer.state", "FROZEN"), 0);
	assert_int_equal(RUN(do_kill, sub("stuck/c"), .timeout_ms = 100), -ERR_DEADLINE);
	assert_non_null(strstr(last.text, "(state D)"));
	assert_int_equal(cgroup_write(dir, "freezer.state", "THAWED"), 0);
	close(dir);
	assert_ok(RUN(do_kill, sub("stuck/c")));
	assert_int_equal(WTERMSIG(reap(pid)), SIGKILL);
}

static void paths_are_checked(void **state)
{
	static const char *const bad[] = {"",	  "/",	   "a",	    "/a/",   "//a", "/a//b",
					  "/./a", "/a/..", "/../a", "/a\nb", "/..", "/a/."};
	struct error err;

	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
		assert_int_equal(cgroup_path_check(bad[i], &err), -ERR_INVALID);
	assert_int_equal(cgroup_path_check(NULL, &err), -ERR_INVALID);
	assert_int_equal(cgroup_path_check("/kubepods/burstable/pod1-2_3/abc", &err), 0);
	assert_int_equal(RUN(do_kill, "/"), -ERR_INVALID);
	assert_int_equal(RUN(do_remove, "/.."), -ERR_INVALID);
}

static void weights_follow_shares(void **state)
{
	assert_int_equal(cgroup_weight_of_shares(0), 1);
	assert_int_equal(cgroup_weight_of_shares(2), 1);
	assert_int_equal(cgroup_weight_of_shares(1024), 100);
	assert_int_equal(cgroup_weight_of_shares(262144), 10000);
	assert_int_equal(cgroup_weight_of_shares(UINT64_MAX), 10000);
}

/* /proc/self/mountinfo with the lines of that file system type alone. */
static char *mounts_of_type(const char *type)
{
	cleanup_fclose FILE *f = fopen("/proc/self/mountinfo", "re");
	struct buf text = {0};
	char line[2048];

	while (f && fgets(line, sizeof(line), f))
		if (strstr(line, type))
			buf_puts(&text, line);
	return buf_take(&text);
}

#define CASE(name) cmocka_unit_test_setup_teardown(name, begin, end)

static const struct CMUnitTest cases[] = {
	CASE(limits_are_written),
	CASE(memory_and_swap_move_both_ways),
	CASE(bandwidth_moves_beneath_a_limited_parent),
	CASE(a_refused_update_changes_nothing),
	CASE(what_is_taken_back_is_as_if_never_given),
	CASE(what_cannot_be_had_is_refused),
	CASE(a_process_is_born_in_all_groups),
	CASE(a_fork_bomb_loses),
	CASE(an_exec_is_killed_by_itself),
	CASE(a_container_takes_its_execs_along),
	CASE(devices_are_restricted),
	CASE(deep_groups_are_removed),
	CASE(missing_groups_are_empty),
	CASE(an_oom_kill_is_counted),
	CASE(what_does_not_die_is_named),
	CASE(paths_are_checked),
	CASE(weights_follow_shares),
};

int main(void)
{
	cleanup_free char *v1 = mounts_of_type(" - cgroup "), *v2 = mounts_of_type(" - cgroup2 ");
	int failed;

	if (geteuid() != 0) {
		fprintf(stderr, "skipped: needs root\n");
		return 77;
	}
	base = xasprintf("/crisp-test-%d", getpid());
	prctl(PR_SET_CHILD_SUBREAPER, 1);
	failed = cmocka_run_group_tests_name("as mounted", cases, NULL, NULL);
	mountinfo = v1;
	if (*v1 && *v2)
		failed += cmocka_run_group_tests_name("v1 alone", cases, NULL, NULL);
	mountinfo = v2;
	if (*v1 && *v2)
		failed += cmocka_run_group_tests_name("v2 alone", cases, NULL, NULL);
	mountinfo = NULL;
	no_clone = true;
	if (*v2)
		failed +=
			cmocka_run_group_tests_name("v2 joined by cgroup.procs", cases, NULL, NULL);
	free(base);
	return failed;
}
