/* SPDX-License-Identifier: Apache-2.0 */
/* Pins outlive their makers, cost the host two mounts, and can be given up without a trace. Runs in
 * a mount namespace of its own whose mounts are shared, as a host's are. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "io/base/cleanup.h"
#include "recovery/exit_status.h"
#include "recovery/pin.h"
#include "tests/lib/group.h"

static char dir[] = "/tmp/crisp-test-pin-XXXXXX";
static struct loop *l;

static int count_fds(void)
{
	DIR *fds = opendir("/proc/self/fd");
	int n = 0;

	while (readdir(fds))
		n++;
	closedir(fds);
	return n;
}

/* Lines of the mount table, and that nobody sees the tmpfs. */
static int count_mounts(void)
{
	cleanup_fclose FILE *file = fopen("/proc/self/mountinfo", "re");
	char line[2048];
	int n = 0;

	assert_non_null(file);
	while (fgets(line, sizeof(line), file)) {
		assert_null(strstr(line, "crisp-pins"));
		n++;
	}
	return n;
}

struct work {
	void (*fn)(struct task *t, struct pins *p);
	struct pins *p;
};

static void work_main(struct task *t, void *arg)
{
	struct work *w = arg;

	w->fn(t, w->p);
	loop_stop(t->loop);
}

static void run(struct pins *p, void (*fn)(struct task *t, struct pins *p))
{
	struct work w = {fn, p};

	task_start(l, "test", work_main, &w);
	loop_run(l);
}

static struct pins *open_pins(void)
{
	struct error err = {0};
	struct pins *p = pins_open(l, dir, &err);

	if (!p)
		fail_msg("%s", err.text);
	return p;
}

static void drop_one(void *data, const char *name)
{
	char(*names)[64] = data;

	for (int i = 0; i < 16; i++)
		if (!names[i][0]) {
			strcpy(names[i], name);
			return;
		}
	fail();
}

static void drop_all(struct task *t, struct pins *p)
{
	char names[16][64] = {0};

	assert_int_equal(pins_each(t, p, drop_one, names), 0);
	for (int i = 0; i < 16 && names[i][0]; i++)
		assert_int_equal(pins_drop(t, p, names[i]), 0);
}

static void destroy(struct pins *p)
{
	struct error err = {0};
	struct stat st;
	char path[64];

	run(p, drop_all);
	if (pins_destroy(p, &err) < 0)
		fail_msg("%s", err.text);
	snprintf(path, sizeof(path), "%s/pins", dir);
	assert_int_equal(lstat(path, &st), -1);
}

static uint64_t inode_of(int fd)
{
	struct stat st;

	assert_int_equal(fstat(fd, &st), 0);
	return st.st_ino;
}

/* ---- surviving ---- */

/* What server 1 tells before it dies. */
static struct told {
	pid_t pid;
	uint64_t netns, shm;
} * told;

static int new_netns(void)
{
	cleanup_close int old = open("/proc/thread-self/ns/net", O_RDONLY | O_CLOEXEC);
	int fd;

	assert_int_equal(unshare(CLONE_NEWNET), 0);
	fd = open("/proc/thread-self/ns/net", O_RDONLY | O_CLOEXEC);
	assert_int_equal(setns(old, CLONE_NEWNET), 0);
	return fd;
}

static int new_tmpfs(void)
{
	cleanup_close int fs = (int)syscall(SYS_fsopen, "tmpfs", 1);

	assert_int_equal(syscall(SYS_fsconfig, fs, 6, NULL, NULL, 0), 0);
	return (int)syscall(SYS_fsmount, fs, 1, 0);
}

/* Lives until a byte comes; its parent is gone then. */
static pid_t start_process(int until, int code)
{
	pid_t pid = fork();
	char c;

	if (pid == 0) {
		(void)!read(until, &c, 1);
		_exit(code);
	}
	return pid;
}

static int until[2];

static void server_1(struct task *t, struct pins *p)
{
	cleanup_close int net = new_netns();
	cleanup_close int shm = new_tmpfs();
	cleanup_close int file = -1, pidfd = -1;

	told->pid = start_process(until[0], 42);
	assert_int_equal(process_open(told->pid, &pidfd, &t->err), 0);
	assert_int_equal(pins_put(t, p, "c1.pidfd", pidfd), 0);
	assert_int_equal(pins_put(t, p, "s1.net", net), 0);
	assert_int_equal(pins_put_mount(t, p, "s1.shm", shm), 0);
	file = openat(shm, "file", O_CREAT | O_RDWR | O_CLOEXEC, 0600);
	assert_true(file >= 0);
	told->netns = inode_of(net);
	told->shm = inode_of(file);
	kill(getpid(), SIGKILL);
}

static void server_2(struct task *t, struct pins *p)
{
	cleanup_close int net = -1, shm = -1, file = -1, pidfd = -1;
	struct exit_status found;

	assert_int_equal(pins_get(t, p, "s1.net", &net), 0);
	assert_int_equal(inode_of(net), told->netns);
	assert_int_equal(fcntl(net, F_GETFD), FD_CLOEXEC);
	assert_int_equal(pins_get_mount(t, p, "s1.shm", &shm), 0);
	file = openat(shm, "file", O_RDONLY | O_CLOEXEC);
	assert_true(file >= 0);
	assert_int_equal(inode_of(file), told->shm);
	if (!pins_can_hold_pidfds(p)) {
		assert_int_equal(pins_get(t, p, "c1.pidfd", &pidfd), -ERR_NOT_FOUND);
		return;
	}
	assert_int_equal(pins_get(t, p, "c1.pidfd", &pidfd), 0);
	assert_int_equal(exit_status_find(NULL, pidfd, told->pid, 0, &found, &t->err), 0);
	assert_true(found.is_known);
	assert_int_equal(found.exit.code, 42);
}

static void pins_survive_their_maker(void **state)
{
	int mounts = count_mounts(), status;
	struct pins *p;
	pid_t server;

	assert_int_equal(pipe2(until, O_CLOEXEC), 0);
	server = fork();
	if (server == 0) {
		run(open_pins(), server_1);
		_exit(1);
	}
	assert_int_equal(waitpid(server, &status, 0), server);
	assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
	assert_int_equal(count_mounts(), mounts + 2);
	/* we are the reaper of what it left */
	assert_int_equal(write(until[1], "x", 1), 1);
	assert_int_equal(waitpid(told->pid, &status, 0), told->pid);
	close(until[0]);
	close(until[1]);
	p = open_pins();
	run(p, server_2);
	assert_int_equal(count_mounts(), mounts + 2);
	assert_int_equal(pins_destroy(p, NULL), -ERR_PRECONDITION);
	destroy(p);
	assert_int_equal(count_mounts(), mounts);
}

/* ---- the calls ---- */

static void use_calls(struct task *t, struct pins *p)
{
	cleanup_close int one = new_netns(), two = new_netns(), got = -1, again = -1;
	cleanup_close int plain = open("/dev/null", O_RDWR | O_CLOEXEC);
	char long_name[PIN_NAME_MAX + 2] = {0};
	int fd;

	memset(long_name, 'x', PIN_NAME_MAX + 1);
	assert_int_equal(pins_get(t, p, "a", &fd), -ERR_NOT_FOUND);
	assert_int_equal(pins_get_mount(t, p, "a", &fd), -ERR_NOT_FOUND);
	assert_int_equal(pins_drop(t, p, "a"), 0);
	assert_int_equal(pins_put(t, p, "a", plain), -ERR_INVALID);
	for (const char *const *bad =
		     (const char *const[]){"", ".", "..", "a/b", "ä", long_name, NULL};
	     *bad; bad++)
		assert_int_equal(pins_put(t, p, *bad, one), -ERR_INVALID);
	long_name[PIN_NAME_MAX] = '\0';
	assert_int_equal(pins_put(t, p, long_name, one), 0);
	assert_int_equal(pins_drop(t, p, long_name), 0);
	assert_int_equal(pins_put(t, p, "a", one), 0);
	assert_int_equal(pins_put(t, p, "a", two), 0);
	assert_int_equal(pins_get(t, p, "a", &got), 0);
	assert_int_equal(inode_of(got), inode_of(two));
	assert_int_equal(pins_drop(t, p, "a"), 0);
	assert_int_equal(pins_get(t, p, "a", &fd), -ERR_NOT_FOUND);
	/* one kind after the other under one name */
	again = new_tmpfs();
	assert_int_equal(pins_put(t, p, "a", one), 0);
	assert_int_equal(pins_get_mount(t, p, "a", &fd), -ERR_NOT_FOUND);
	assert_int_equal(pins_put_mount(t, p, "a", again), 0);
	assert_int_equal(pins_get(t, p, "a", &fd), -ERR_NOT_FOUND);
	assert_int_equal(pins_put(t, p, "a", one), 0);
	/* a cancelled call leaves nothing behind but what it may have done */
	task_cancel(t);
	assert_int_equal(pins_drop(t, p, "a"), -ERR_CANCELLED);
}

static void calls_do_what_they_say(void **state)
{
	struct pins *p = open_pins();

	run(p, use_calls);
	destroy(p);
}

static void put_net(struct task *t, struct pins *p)
{
	cleanup_close int net = new_netns();

	assert_int_equal(pins_put(t, p, "net", net), 0);
}

/* The mounts that the pins' thread sees. */
static int count_inside(void)
{
	DIR *tasks = opendir("/proc/self/task");
	struct dirent *entry;
	int n = -1;

	while ((entry = readdir(tasks))) {
		char path[300], text[512] = "";
		cleanup_close int comm = -1;
		cleanup_fclose FILE *mounts = NULL;

		snprintf(path, sizeof(path), "/proc/self/task/%s/comm", entry->d_name);
		comm = open(path, O_RDONLY | O_CLOEXEC);
		if (comm < 0 || read(comm, text, sizeof(text) - 1) < 0 ||
		    strcmp(text, "crisp-pins\n") != 0)
			continue;
		snprintf(path, sizeof(path), "/proc/self/task/%s/mountinfo", entry->d_name);
		mounts = fopen(path, "re");
		for (n = 0; fgets(text, sizeof(text), mounts);)
			n++;
	}
	closedir(tasks);
	return n;
}

/* Copies of the host's mounts would keep its file systems busy. */
static void nothing_of_the_host_is_kept(void **state)
{
	struct pins *p = open_pins();

	assert_int_equal(count_inside(), 1);
	run(p, put_net);
	assert_int_equal(count_inside(), 2);
	pins_close(p);
	p = open_pins();
	assert_int_equal(count_inside(), 2);
	destroy(p);
}

/* ---- what is found at start ---- */

static void has_no_net(struct task *t, struct pins *p)
{
	int fd;

	assert_int_equal(pins_get(t, p, "net", &fd), -ERR_NOT_FOUND);
}

/* A reboot leaves directories and a plain file, no mounts. */
static void reboot_is_recognised(void **state)
{
	int mounts = count_mounts();
	struct pins *p = open_pins();
	char path[64];

	run(p, put_net);
	pins_close(p);
	snprintf(path, sizeof(path), "%s/pins/mnt", dir);
	assert_int_equal(umount2(path, MNT_DETACH), 0);
	snprintf(path, sizeof(path), "%s/pins", dir);
	assert_int_equal(umount2(path, MNT_DETACH), 0);
	p = open_pins();
	run(p, has_no_net);
	assert_int_equal(count_mounts(), mounts + 2);
	pins_close(p);
	/* a crash between the two host mounts */
	snprintf(path, sizeof(path), "%s/pins/mnt", dir);
	assert_int_equal(umount2(path, MNT_DETACH), 0);
	p = open_pins();
	assert_int_equal(count_mounts(), mounts + 2);
	destroy(p);
	assert_int_equal(count_mounts(), mounts);
}

/* What name, below /proc/PID/ns, is mounted where the pin namespace should be. */
static void replaces_foreign(pid_t owner, const char *name)
{
	int mounts = count_mounts();
	struct pins *p = open_pins();
	char from[64], to[64];

	run(p, put_net);
	pins_close(p);
	snprintf(from, sizeof(from), "/proc/%d/ns/%s", owner, name);
	snprintf(to, sizeof(to), "%s/pins/mnt", dir);
	assert_int_equal(umount2(to, MNT_DETACH), 0);
	assert_int_equal(mount(from, to, NULL, MS_BIND, NULL), 0);
	p = open_pins();
	run(p, has_no_net);
	run(p, put_net);
	pins_close(p);
	p = open_pins();
	assert_int_equal(pins_destroy(p, NULL), -ERR_PRECONDITION);
	destroy(p);
	assert_int_equal(count_mounts(), mounts);
}

/* A mount namespace is mounted in an older one only, and kernel 6.18 numbers them by lots a CPU. */
static int unshare_mounts(void)
{
	cpu_set_t all, first;
	size_t cpu = 0;
	int r;

	if (sched_getaffinity(0, sizeof(all), &all) < 0)
		return -1;
	while (!CPU_ISSET(cpu, &all))
		cpu++;
	CPU_ZERO(&first);
	CPU_SET(cpu, &first);
	sched_setaffinity(0, sizeof(first), &first);
	r = unshare(CLONE_NEWNS);
	sched_setaffinity(0, sizeof(all), &all);
	return r;
}

static void foreign_namespaces_are_replaced(void **state)
{
	int ready[2];
	pid_t child;
	char c;

	assert_int_equal(pipe2(ready, O_CLOEXEC), 0);
	child = fork();
	if (child == 0) {
		(void)!write(ready[1], unshare_mounts() == 0 ? "y" : "n", 1);
		pause();
	}
	assert_int_equal(read(ready[0], &c, 1), 1);
	assert_int_equal(c, 'y');
	replaces_foreign(child, "net");
	replaces_foreign(child, "mnt");
	kill(child, SIGKILL);
	assert_int_equal(waitpid(child, NULL, 0), child);
	close(ready[0]);
	close(ready[1]);
}

static void put_child(struct task *t, struct pins *p)
{
	cleanup_close int pidfd = -1, found = -1, net = new_netns();
	struct process_exit ended;
	pid_t child = fork();
	int fd;

	if (child == 0)
		for (;;)
			pause();
	assert_int_equal(process_open(child, &pidfd, NULL), 0);
	assert_int_equal(pins_put(t, p, "pidfd", net), 0);
	assert_int_equal(pins_put(t, p, "pidfd", pidfd), 0);
	assert_int_equal(pins_get(t, p, "pidfd", &found), 0);
	assert_int_equal(process_signal(found, SIGKILL, NULL), 0);
	/* a zombie is there until it was reaped */
	assert_int_equal(task_wait_fd(t, pidfd, LOOP_READ), 0);
	close(found);
	assert_int_equal(pins_get(t, p, "pidfd", &found), 0);
	assert_int_equal(process_reap(found, &ended, NULL), 1);
	assert_int_equal(pins_get(t, p, "pidfd", &fd), -ERR_NOT_FOUND);
	assert_int_equal(pins_get_mount(t, p, "pidfd", &fd), -ERR_NOT_FOUND);
	assert_int_equal(pins_put(t, p, "pidfd", net), 0);
	assert_int_equal(pins_drop(t, p, "pidfd"), 0);
	put_net(t, p);
}

static void old_kernel_finds_processes_again(void **state)
{
	pid_t child = fork();
	int status;

	if (child == 0) {
		struct pins *p;

		exit_status_pretend_old_kernel();
		p = open_pins();
		if (pins_can_hold_pidfds(p))
			_exit(1);
		run(p, put_child);
		destroy(p);
		_exit(0);
	}
	assert_int_equal(waitpid(child, &status, 0), child);
	assert_int_equal(status, 0);
}

static void two_servers_do_not_meet(void **state)
{
	char other[] = "/tmp/crisp-test-pin-XXXXXX";
	struct pins *p = open_pins(), *q;

	assert_non_null(mkdtemp(other));
	q = pins_open(l, other, NULL);
	assert_non_null(q);
	run(p, put_net);
	run(q, has_no_net);
	assert_int_equal(pins_destroy(q, NULL), 0);
	assert_int_equal(rmdir(other), 0);
	destroy(p);
}

static void missing_rights_are_named(void **state)
{
	pid_t child = fork();
	int status;

	if (child == 0) {
		struct error err = {0};

		if (setresuid(65534, 65534, 65534) < 0 || pins_open(l, dir, &err))
			_exit(1);
		_exit(err.code == ERR_INTERNAL && err.text[0] ? 0 : 2);
	}
	assert_int_equal(waitpid(child, &status, 0), child);
	assert_int_equal(status, 0);
}

static int setup(void **state)
{
	*state = (void *)(intptr_t)count_fds();
	return 0;
}

static int teardown(void **state)
{
	char path[64];
	struct stat st;

	assert_int_equal(count_fds(), (intptr_t)*state);
	assert_int_equal(waitpid(-1, NULL, WNOHANG), -1);
	snprintf(path, sizeof(path), "%s/pins", dir);
	assert_int_equal(lstat(path, &st), -1);
	return 0;
}

static int group_setup(void **state)
{
	if (unshare_mounts() < 0 || mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) < 0 ||
	    mount(NULL, "/", NULL, MS_REC | MS_SHARED, NULL) < 0)
		return -1;
	prctl(PR_SET_CHILD_SUBREAPER, 1);
	told = mmap(NULL, sizeof(*told), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	l = loop_new(NULL);
	return l && mkdtemp(dir) ? 0 : -1;
}

static int group_teardown(void **state)
{
	loop_free(l);
	task_pool_trim();
	munmap(told, sizeof(*told));
	return rmdir(dir);
}

#define test(fn) cmocka_unit_test_setup_teardown(fn, setup, teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		test(pins_survive_their_maker),	       test(calls_do_what_they_say),
		test(nothing_of_the_host_is_kept),     test(reboot_is_recognised),
		test(foreign_namespaces_are_replaced), test(old_kernel_finds_processes_again),
		test(two_servers_do_not_meet),	       test(missing_rights_are_named),
	};

	if (geteuid() != 0)
		return 77;
	return RUN_GROUP(tests, group_setup, group_teardown);
}
