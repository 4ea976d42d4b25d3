/* SPDX-License-Identifier: Apache-2.0 */
/* Containers of the linux kind for real: what a process finds inside. Needs root. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "io/base/alloc.h"
#include "io/base/cleanup.h"
#include "tests/lib/linux_pod.h"
#include "tests/lib/group.h"

/* Runs the script, expects it to end with code. */
static void run_ok(struct linux_pod *p, int code)
{
	if (pod_run(p) < 0)
		fail_msg("%s", node.last.text);
	if (p->exit.exit.code != code)
		fail_msg("exit code %d, output: %s", p->exit.exit.code, p->output.data ?: "");
}

static void run_fails(struct linux_pod *p, enum err code, const char *text)
{
	assert_int_equal(pod_run(p), -(int)code);
	if (!strstr(node.last.text, text))
		fail_msg("\"%s\" is not in: %s", text, node.last.text);
	pod_done(p);
}

static char *in_dir(const char *name)
{
	return xasprintf("%s/%s", node.dir, name);
}

static void exit_code_and_output_arrive(void **state)
{
	struct linux_pod p;
	unsigned exits = node.exits;

	pod_init(&p, "echo out; echo err >&2; exit 42");
	run_ok(&p, 42);
	assert_string_equal(p.output.data, "out\nerr\n");
	assert_true(p.exit.is_known);
	assert_false(p.exit.is_oom_killed);
	assert_true(p.exit.finished_at > 0);
	assert_int_equal(p.exit.exit.signal, 0);
	assert_int_equal(node.exits, exits + 1);
	pod_done(&p);
}

/* As PID 1 of its namespace a process can't kill itself, so its child does. */
static void signal_of_child_is_seen(void **state)
{
	struct linux_pod p;

	pod_init(&p, "sh -c 'kill -9 $$'; echo $?");
	run_ok(&p, 0);
	assert_line(p.output.data, "137");
	pod_done(&p);
}

static int kill_it(struct task *t, void *arg)
{
	struct linux_pod *p = arg;

	TRY(pod_create(t, p));
	TRY(pod_start(t, p));
	assert_int_equal(node.kind->container_life(p->container_handle), LIFE_RUNNING);
	TRY(node.kind->container_kill(t, p->container_handle, SIGKILL));
	TRY(pod_wait(t, p));
	assert_int_equal(node.kind->container_life(p->container_handle), LIFE_EXITED);
	TRY(node.kind->container_kill(t, p->container_handle, SIGKILL));
	/* any number of times */
	TRY(pod_wait(t, p));
	return pod_remove(t, p);
}

static void killed_container_tells_its_signal(void **state)
{
	struct linux_pod p;

	pod_init(&p, "sleep 1000");
	if (on_task(kill_it, &p) < 0)
		fail_msg("%s", node.last.text);
	assert_int_equal(p.exit.exit.code, 137);
	assert_int_equal(p.exit.exit.signal, SIGKILL);
	pod_done(&p);
}

static void environment_and_directory_are_as_asked(void **state)
{
	struct linux_pod p;

	pod_init(&p, "env; pwd; stat -c '%u:%g %a' .");
	p.container.cwd = "/not/there/yet";
	run_ok(&p, 0);
	assert_line(p.output.data, "HELLO=world");
	assert_line(p.output.data, "PATH=/bin");
	assert_line(p.output.data, "/not/there/yet");
	assert_line(p.output.data, "0:0 755");
	pod_done(&p);
}

static void user_groups_and_capabilities_are_as_asked(void **state)
{
	struct linux_pod p;
	static gid_t extra[] = {3000};

	pod_init(&p,
		 "id; cat /proc/self/status; stat -L -c '%u' /proc/self/fd/1; echo x >/dev/stdout");
	p.container.user = (struct user_spec){.user = "user", .supplemental = {extra, 1}};
	p.container.capabilities = 1ull << 0 | 1ull << 7;
	run_ok(&p, 0);
	assert_non_null(strstr(p.output.data, "uid=1000(user) gid=1000(user)"));
	assert_line(p.output.data, "Groups:\t1000 2000 3000 ");
	assert_line(p.output.data, "CapInh:\t0000000000000000");
	assert_line(p.output.data, "CapPrm:\t0000000000000000");
	assert_line(p.output.data, "CapEff:\t0000000000000000");
	assert_line(p.output.data, "CapBnd:\t0000000000000081");
	assert_line(p.output.data, "CapAmb:\t0000000000000000");
	assert_line(p.output.data, "NoNewPrivs:\t1");
	assert_line(p.output.data, "1000");
	assert_line(p.output.data, "x");
	pod_done(&p);
}

static void ambient_capabilities_reach_a_user(void **state)
{
	struct linux_pod p;

	pod_init(&p, "cat /proc/self/status");
	p.container.user.user = "1000";
	p.container.capabilities = 1ull << 10 | 1ull << 7;
	p.container.ambient_capabilities = 1ull << 10;
	run_ok(&p, 0);
	assert_line(p.output.data, "CapInh:\t0000000000000400");
	assert_line(p.output.data, "CapEff:\t0000000000000400");
	assert_line(p.output.data, "CapAmb:\t0000000000000400");
	pod_done(&p);
}

static void root_has_what_was_granted(void **state)
{
	struct linux_pod p;

	pod_init(&p, "");
	p.argv[0] = "cat";
	p.argv[1] = "/proc/self/status";
	p.container.argv.count = 2;
	p.container.no_new_privs = false;
	run_ok(&p, 0);
	assert_line(p.output.data, "CapEff:\t00000000a80425fb");
	assert_line(p.output.data, "CapBnd:\t00000000a80425fb");
	assert_line(p.output.data, "CapInh:\t0000000000000000");
	assert_line(p.output.data, "NoNewPrivs:\t0");
	assert_line(p.output.data, "SigBlk:\t0000000000000000");
	assert_line(p.output.data, "SigIgn:\t0000000000000000");
	assert_line(p.output.data, "Umask:\t0022");
	pod_done(&p);
}

static void seccomp_is_loaded_either_way(void **state)
{
	for (int no_new_privs = 0; no_new_privs < 2; no_new_privs++) {
		struct linux_pod p;

		pod_init(&p, "cat /proc/self/status");
		p.container.seccomp = SECCOMP_RUNTIME_DEFAULT;
		p.container.no_new_privs = no_new_privs;
		p.container.user.user = "1000";
		run_ok(&p, 0);
		assert_line(p.output.data, "Seccomp:\t2");
		pod_done(&p);
	}
}

static void nothing_of_ours_is_open_inside(void **state)
{
	struct linux_pod p;

	/* the first process itself; it has 3 open on the directory */
	pod_init(&p, "");
	p.argv[0] = "ls";
	p.argv[1] = "/proc/self/fd";
	p.container.argv.count = 2;
	run_ok(&p, 0);
	assert_string_equal(p.output.data, "0\n1\n2\n3\n");
	pod_done(&p);
	pod_init(&p, "readlink /proc/1/exe; grep -c memfd /proc/1/maps");
	run_ok(&p, 1);
	assert_string_equal(p.output.data, "/bin/busybox\n0\n");
	pod_done(&p);
}

static void hostname_is_the_pods_own(void **state)
{
	struct linux_pod p;

	pod_init(&p, "hostname; readlink /proc/1/ns/net; cat /proc/net/dev | grep -c :; ip addr");
	run_ok(&p, 0);
	assert_line(p.output.data, "pod-name");
	/* loopback alone, and up */
	assert_non_null(strstr(p.output.data, "inet 127.0.0.1/8"));
	pod_done(&p);
}

static void device_directory_is_complete(void **state)
{
	struct linux_pod p;

	pod_init(&p, "ls /dev | tr '\\n' ' '; echo; stat -c '%n %F %t:%T %a' /dev/null /dev/tty; "
		     "echo x >/dev/null && head -c1 /dev/zero | wc -c; readlink /dev/fd; readlink "
		     "/dev/ptmx; "
		     "grep -E ' /dev/(pts|shm|mqueue) ' /proc/mounts | cut -d' ' -f2,3; "
		     "echo shm >/dev/shm/x && cat /dev/shm/x");
	run_ok(&p, 0);
	assert_line(
		p.output.data,
		"fd full mqueue null ptmx pts random shm stderr stdin stdout tty urandom zero ");
	assert_line(p.output.data, "/dev/null character special file 1:3 666");
	assert_line(p.output.data, "/dev/tty character special file 5:0 666");
	assert_line(p.output.data, "1");
	assert_line(p.output.data, "/proc/self/fd");
	assert_line(p.output.data, "/dev/pts devpts");
	assert_line(p.output.data, "/dev/shm tmpfs");
	assert_line(p.output.data, "/dev/mqueue mqueue");
	assert_line(p.output.data, "shm");
	pod_done(&p);
}

static const char *const masked[] = {"/proc/kcore", "/proc/keys", "/proc/timer_list",
				     "/proc/acpi",  "/no/such",	  "/sys/firmware",
				     "/secret/one", "/secret/two"};
static const char *const readonly[] = {"/proc/sys", "/proc/sysrq-trigger", "/no/such"};

static void masked_and_readonly_paths_hold(void **state)
{
	struct linux_pod p;

	pod_init(&p, "head -c1 /proc/kcore | wc -c; cat /proc/timer_list | wc -c; "
		     "ls /sys/firmware /secret/one | wc -l; "
		     "echo 1 >/proc/sys/net/ipv4/ip_forward; touch /sys/x; touch /secret/one/x; "
		     "echo devices $(stat -c %d /sys/firmware /secret/one /secret/two | sort -u | "
		     "wc -l)");
	p.container.capabilities = ~0ull;
	p.container.masked_paths = (struct string_list){(const char **)masked, 8};
	p.container.readonly_paths = (struct string_list){(const char **)readonly, 3};
	{
		cleanup_free char *one = xasprintf("%s/secret/one", p.upper);
		cleanup_free char *two = xasprintf("%s/secret/two", p.upper);
		cleanup_free char *dir = xasprintf("%s/secret", p.upper);

		mkdir(dir, 0755);
		mkdir(one, 0755);
		mkdir(two, 0755);
	}
	run_ok(&p, 0);
	assert_line(p.output.data, "0");
	assert_non_null(strstr(p.output.data, "ip_forward: Read-only file system"));
	assert_non_null(strstr(p.output.data, "/sys/x: Read-only file system"));
	assert_non_null(strstr(p.output.data, "/secret/one/x: Read-only file system"));
	/* all masked directories are one file system */
	assert_line(p.output.data, "devices 1");
	pod_done(&p);
}

static void readonly_root_is_readonly(void **state)
{
	struct linux_pod p;

	pod_init(&p, "touch /x; pwd; echo y >/dev/null; echo y >/dev/shm/y && echo fine");
	p.container.is_readonly_root = true;
	p.container.cwd = "/made/anyway";
	run_ok(&p, 0);
	assert_non_null(strstr(p.output.data, "/x: Read-only file system"));
	assert_line(p.output.data, "/made/anyway");
	assert_line(p.output.data, "fine");
	pod_done(&p);
}

static void binds_have_their_attributes(void **state)
{
	cleanup_free char *source = in_dir("volume");
	cleanup_free char *inner = in_dir("volume/inner");
	cleanup_free char *file = in_dir("volume/file");
	cleanup_free char *missing = in_dir("volume/not/yet");
	struct linux_pod p;
	struct mount_spec mounts[] = {
		{.source = source, .target = "/deep/er/inner/ro", .is_readonly = true},
		{.source = source,
		 .target = "/rro",
		 .is_readonly = true,
		 .is_recursive_readonly = true},
		{.source = source, .target = "/rw"},
		{.source = file, .target = "/dev/termination-log"},
		{.source = file, .target = "/etc/hosts"},
		{.source = missing, .target = "/made"},
		{.kind = MOUNT_TMPFS, .target = "/scratch", .options = "size=1m,mode=700"},
		/* before what lies in it, whatever the order */
		{.source = source, .target = "/deep/er"},
	};

	assert_int_equal(mkdir(source, 0755), 0);
	assert_int_equal(mkdir(inner, 0755), 0);
	close(open(file, O_CREAT | O_WRONLY, 0644));
	assert_int_equal(mount("inner", inner, "tmpfs", 0, NULL), 0);
	pod_init(&p, "touch /deep/er/inner/ro/x; touch /deep/er/inner/ro/inner/x && echo inner; "
		     "touch /rro/x; touch /rro/inner/y; touch /rw/z && echo rw; "
		     "echo bye >/dev/termination-log; cat /etc/hosts; "
		     "ls -d /made; stat -c '%a' /scratch; grep -c ' /scratch tmpfs' /proc/mounts");
	p.container.mounts = mounts;
	p.container.mount_count = 8;
	run_ok(&p, 0);
	umount2(inner, MNT_DETACH);
	assert_non_null(strstr(p.output.data, "/deep/er/inner/ro/x: Read-only file system"));
	assert_line(p.output.data, "inner");
	assert_non_null(strstr(p.output.data, "/rro/x: Read-only file system"));
	assert_non_null(strstr(p.output.data, "/rro/inner/y: Read-only file system"));
	assert_line(p.output.data, "rw");
	assert_line(p.output.data, "bye");
	assert_line(p.output.data, "/made");
	assert_line(p.output.data, "700");
	assert_int_equal(access(missing, F_OK), 0);
	pod_done(&p);
}

/* The container's mount shows on the host with shared, the host's in the container with slave. */
static void propagation_is_as_asked(void **state)
{
	cleanup_free char *source = in_dir("shared");
	cleanup_free char *inner = in_dir("shared/inner");
	struct linux_pod p;
	struct mount_spec mounts[] = {
		{.source = source, .target = "/private"},
		{.source = source, .target = "/slave", .propagation = PROPAGATION_SLAVE},
		{.source = source, .target = "/shared", .propagation = PROPAGATION_SHARED},
	};
	struct stat before, after;

	assert_int_equal(mkdir(source, 0755), 0);
	assert_int_equal(mount("shared", source, "tmpfs", 0, NULL), 0);
	assert_int_equal(mount(NULL, source, NULL, MS_SHARED, NULL), 0);
	assert_int_equal(mkdir(inner, 0755), 0);
	assert_int_equal(stat(inner, &before), 0);
	pod_init(&p, "grep -E ' /(private|slave|shared) ' /proc/self/mountinfo | "
		     "sed 's/.* \\(\\/[a-z]*\\) .*relatime *\\([a-z]*\\).*/\\1 \\2/'; "
		     "mount -t tmpfs t /shared/inner && echo mounted");
	p.argv[0] = "/bin/busybox";
	p.argv[1] = "sh";
	p.argv[3] = p.argv[2];
	p.argv[2] = "-c";
	p.container.argv.count = 4;
	p.container.capabilities |= 1ull << 21;
	p.container.mounts = mounts;
	p.container.mount_count = 3;
	run_ok(&p, 0);
	assert_int_equal(stat(inner, &after), 0);
	umount2(inner, MNT_DETACH);
	umount2(source, MNT_DETACH);
	assert_line(p.output.data, "mounted");
	assert_true(before.st_dev != after.st_dev);
	pod_done(&p);
}

/* It would have no effect, and nobody would know. */
static void propagation_needs_a_shared_mount(void **state)
{
	static const char *const words[] = {"from the host", "both ways"};
	cleanup_free char *source = in_dir("alone");

	assert_int_equal(mkdir(source, 0755), 0);
	assert_int_equal(mount("alone", source, "tmpfs", 0, NULL), 0);
	assert_int_equal(mount(NULL, source, NULL, MS_PRIVATE, NULL), 0);
	for (int i = 0; i < 2; i++) {
		struct mount_spec m = {.source = source,
				       .target = "/m",
				       .propagation = i ? PROPAGATION_SHARED : PROPAGATION_SLAVE};
		struct linux_pod p;

		pod_init(&p, "true");
		p.container.mounts = &m;
		p.container.mount_count = 1;
		run_fails(&p, ERR_PRECONDITION, words[i]);
	}
	umount2(source, MNT_DETACH);
}

static void missing_program_is_told(void **state)
{
	struct linux_pod p;

	pod_init(&p, "");
	p.argv[0] = "no-such-program";
	run_fails(&p, ERR_INVALID,
		  "exec \"no-such-program\": no such file or directory in the image's PATH");
	assert_int_equal(node.last.sys, ENOENT);
	pod_init(&p, "");
	p.argv[0] = "/etc/passwd";
	run_fails(&p, ERR_INVALID, "exec \"/etc/passwd\": Permission denied");
	assert_int_equal(node.last.sys, EACCES);
}

static void links_in_the_image_lead_nowhere(void **state)
{
	static const char *const names[] = {"proc", "dev", "sys"};
	cleanup_free char *outside = in_dir("outside");

	assert_int_equal(mkdir(outside, 0755), 0);
	for (int i = 0; i < 3; i++) {
		struct linux_pod p;
		cleanup_free char *link = NULL;

		pod_init(&p, "true");
		link = xasprintf("%s/%s", p.upper, names[i]);
		assert_int_equal(symlink(outside, link), 0);
		run_fails(&p, ERR_INVALID, names[i]);
	}
	/* the directory of the host was not touched */
	assert_int_equal(rmdir(outside), 0);
}

static void mount_targets_and_directories_stay_inside(void **state)
{
	cleanup_free char *outside = in_dir("canary");
	cleanup_free char *source = in_dir("source");
	cleanup_free char *link = NULL;
	cleanup_free char *dangling = NULL;
	struct linux_pod p;
	struct mount_spec mounts[] = {{.source = source, .target = "/link/inner"},
				      {.source = source, .target = "/../../up"},
				      {.source = source, .target = "/dangling"}};

	assert_int_equal(mkdir(outside, 0755), 0);
	assert_int_equal(mkdir(source, 0755), 0);
	pod_init(&p,
		 "grep -E ' /(up|link|dangling|a/b|tmp)' /proc/mounts | cut -d' ' -f2 | sort; pwd");
	link = xasprintf("%s/link", p.upper);
	dangling = xasprintf("%s/dangling", p.upper);
	assert_int_equal(symlink(outside, link), 0);
	assert_int_equal(symlink("../../../a/b", dangling), 0);
	p.container.mounts = mounts;
	p.container.mount_count = 3;
	p.container.cwd = "/link/../../../../../cwd";
	run_ok(&p, 0);
	assert_line(p.output.data, "/up");
	assert_line(p.output.data, "/a/b");
	assert_non_null(strstr(p.output.data, "canary/inner"));
	assert_int_equal(rmdir(outside), 0);
	pod_done(&p);
}

struct swapper {
	char *dir, *link; /* exchanged all the time */
	atomic_bool is_over;
};

static void *swap_all_the_time(void *arg)
{
	struct swapper *s = arg;

	while (!atomic_load(&s->is_over))
		syscall(SYS_renameat2, AT_FDCWD, s->dir, AT_FDCWD, s->link, RENAME_EXCHANGE);
	return NULL;
}

/* Somebody exchanges a directory of a shared volume and a link to the host while mount points are
 * made beneath it (CVE-2021-30465, CVE-2024-45310): nothing comes to be outside. */
static void swapped_directories_lead_nowhere(void **state)
{
	cleanup_free char *volume = in_dir("swapped");
	cleanup_free char *outside = in_dir("swap-canary");
	struct swapper s = {.dir = in_dir("swapped/a"), .link = in_dir("swapped/b")};
	pthread_t thread;
	int started = 0;

	assert_int_equal(mkdir(volume, 0755), 0);
	assert_int_equal(mkdir(outside, 0755), 0);
	assert_int_equal(mkdir(s.dir, 0755), 0);
	assert_int_equal(symlink(outside, s.link), 0);
	assert_int_equal(pthread_create(&thread, NULL, swap_all_the_time, &s), 0);
	for (int i = 0; i < 30; i++) {
		struct linux_pod p;
		char target[32];
		struct mount_spec mounts[] = {{.source = volume, .target = "/volume"},
					      {.source = volume, .target = target}};

		snprintf(target, sizeof(target), "/volume/a/new%d/er", i);
		pod_init(&p, "true");
		p.container.mounts = mounts;
		p.container.mount_count = 2;
		/* it may lose the race, then it says so */
		started += pod_run(&p) == 0;
		pod_done(&p);
	}
	atomic_store(&s.is_over, true);
	pthread_join(thread, NULL);
	assert_int_equal(rmdir(outside), 0);
	assert_true(started > 0);
	free(s.dir);
	free(s.link);
}

static void volume_over_proc_is_refused(void **state)
{
	static const char *const targets[] = {"/proc", "/proc/self", "/proc/sys/net"};
	cleanup_free char *source = in_dir("fakeproc");

	mkdir(source, 0755);
	for (int i = 0; i < 3; i++) {
		struct linux_pod p;
		struct mount_spec m = {.source = source, .target = targets[i]};

		pod_init(&p, "true");
		p.container.mounts = &m;
		p.container.mount_count = 1;
		run_fails(&p, ERR_INVALID, "procfs");
	}
}

static void cgroup_view_is_own_and_readonly(void **state)
{
	struct linux_pod p;

	pod_init(&p, "cat /proc/self/cgroup; mkdir /sys/fs/cgroup/memory/x; "
		     "cat /sys/fs/cgroup/pids/pids.max; ls /sys/fs/cgroup");
	p.container.capabilities = ~0ull;
	p.container.resources.pids_limit = 77;
	run_ok(&p, 0);
	if (strstr(p.output.data, ":pids:")) {
		assert_non_null(strstr(p.output.data, ":pids:/\n"));
		assert_line(p.output.data, "77");
		assert_non_null(strstr(p.output.data, "Read-only file system"));
	}
	pod_done(&p);
}

static void terminal_is_the_containers_own(void **state)
{
	struct linux_pod p;

	pod_init(&p, "tty; test -t 0 && test -t 2 && echo terminal; stat -c %u $(tty); "
		     "stat -c '%F' /dev/console; exec </dev/tty && echo controlling");
	p.container.has_tty = true;
	p.container.user.user = "1000";
	run_ok(&p, 0);
	assert_line(p.output.data, "/dev/pts/0");
	assert_line(p.output.data, "terminal");
	assert_line(p.output.data, "1000");
	assert_line(p.output.data, "character special file");
	assert_line(p.output.data, "controlling");
	pod_done(&p);
}

static void limits_are_set_and_clamped(void **state)
{
	struct linux_pod p;
	struct rlimit_spec limits[] = {{RLIMIT_NOFILE, 100, 200},
				       {RLIMIT_CORE, 0, 0},
				       {RLIMIT_STACK, 1ull << 40, UINT64_MAX}};

	pod_init(&p, "grep -E 'open files|core file' /proc/self/limits | tr -s ' '; "
		     "cat /proc/self/oom_score_adj");
	p.container.rlimits = limits;
	p.container.rlimit_count = 3;
	p.container.resources.oom_score_adj = 321;
	run_ok(&p, 0);
	assert_line(p.output.data, "Max open files 100 200 files ");
	assert_line(p.output.data, "Max core file size 0 0 bytes ");
	assert_line(p.output.data, "321");
	pod_done(&p);
	/* where the kernel does not let us go lower, it runs all the same */
	pod_init(&p, "true");
	p.container.resources.oom_score_adj = -998;
	run_ok(&p, 0);
	pod_done(&p);
}

static void privileged_sees_the_node(void **state)
{
	struct linux_pod p;

	pod_init(&p,
		 "ls /dev | wc -l; touch /sys/kernel/x; echo 0 >/proc/sys/net/ipv4/ip_forward && "
		 "echo writable; grep CapEff /proc/self/status; mount -t tmpfs t /home && echo ok");
	p.container.is_privileged = true;
	p.container.capabilities = ~0ull;
	p.container.no_new_privs = false;
	run_ok(&p, 0);
	assert_true(atoi(p.output.data) > 20);
	assert_null(strstr(p.output.data, "Read-only"));
	assert_line(p.output.data, "writable");
	assert_line(p.output.data, "ok");
	pod_done(&p);
}

static void device_is_given(void **state)
{
	struct linux_pod p;
	struct device_spec d[] = {{"/dev/kmsg", "/dev/mine/log", "rwm"},
				  {"/dev/full", "/elsewhere", "r"}};

	pod_init(&p, "stat -c '%n %t:%T' /dev/mine/log /elsewhere");
	p.container.devices = d;
	p.container.device_count = 2;
	run_ok(&p, 0);
	assert_line(p.output.data, "/dev/mine/log 1:b");
	assert_line(p.output.data, "/elsewhere 1:7");
	pod_done(&p);
	pod_init(&p, "true");
	d[0].host_path = "/dev/no-such";
	p.container.devices = d;
	p.container.device_count = 1;
	run_fails(&p, ERR_INVALID, "/dev/no-such");
}

/* Where the image has something else, that is not taken for the device: the nodes of a privileged
 * container are not mounted over it. */
static void an_images_file_is_no_device(void **state)
{
	struct linux_pod p;
	struct device_spec d = {"/dev/full", "/bin/sh", "r"};

	pod_init(&p, "true");
	p.container.is_privileged = true;
	p.container.devices = &d;
	p.container.device_count = 1;
	run_fails(&p, ERR_INTERNAL, "/bin/sh");
}

/* The default capabilities have CAP_MKNOD, which must not open the node's disks. */
static void device_permissions_hold(void **state)
{
	struct linux_pod p;
	struct device_spec d = {"/dev/loop-control", "/dev/given", "r"};

	pod_init(&p, "(exec 3</dev/given) && echo read; "
		     "(exec 3>/dev/given) || echo refused");
	p.container.devices = &d;
	p.container.device_count = 1;
	assert_int_equal(pod_run(&p), 0);
	assert_line(p.output.data, "read");
	assert_line(p.output.data, "refused");
	pod_done(&p);

	d.permissions = "rx";
	pod_init(&p, "true");
	p.container.devices = &d;
	p.container.device_count = 1;
	assert_int_equal(pod_run(&p), -ERR_INVALID);
	pod_done(&p);
}

/* The cgroup says which nodes can be opened, wherever they are. */
static void made_device_nodes_open_what_is_allowed(void **state)
{
	cleanup_free char *volume = in_dir("nodes");
	struct mount_spec m = {.source = volume, .target = "/volume"};
	struct linux_pod p;

	assert_int_equal(mkdir(volume, 0755), 0);
	pod_init(&p, "for d in / /dev /volume; do mknod $d/z c 1 5; head -c1 $d/z | wc -c; "
		     "mknod $d/m c 1 1; head -c1 $d/m; done; "
		     "mknod /dev/shm/z c 1 5; head -c1 /dev/shm/z");
	p.container.mounts = &m;
	p.container.mount_count = 1;
	assert_int_equal(pod_run(&p), 0);
	assert_line(p.output.data, "1");
	assert_non_null(strstr(p.output.data, "head: //m: Operation not permitted"));
	assert_non_null(strstr(p.output.data, "head: /dev/m: Operation not permitted"));
	assert_non_null(strstr(p.output.data, "head: /volume/m: Operation not permitted"));
	assert_non_null(strstr(p.output.data, "head: /dev/shm/z: Permission denied"));
	pod_done(&p);
}

static void image_mount_shows_layers(void **state)
{
	struct linux_pod p;
	cleanup_free char *second = in_dir("second");
	cleanup_free char *file = in_dir("second/only-here");
	const char *layers[2] = {node.layer, second};
	struct mount_spec m[] = {
		{.kind = MOUNT_IMAGE, .layers = {layers, 2}, .target = "/image"},
		{.kind = MOUNT_IMAGE, .layers = {layers, 2}, .sub_path = "etc", .target = "/sub"},
	};

	mkdir(second, 0755);
	close(open(file, O_CREAT | O_WRONLY, 0644));
	pod_init(&p, "ls /image/only-here /image/bin/busybox /sub/passwd; touch /image/x");
	p.container.mounts = m;
	p.container.mount_count = 2;
	run_ok(&p, 1);
	assert_line(p.output.data, "/image/only-here");
	assert_line(p.output.data, "/image/bin/busybox");
	assert_line(p.output.data, "/sub/passwd");
	assert_non_null(strstr(p.output.data, "/image/x: Read-only file system"));
	pod_done(&p);
}

static int leave_children(struct task *t, void *arg)
{
	struct linux_pod *p = arg;

	TRY(pod_create(t, p));
	TRY(pod_start(t, p));
	TRY(node.kind->container_wait(t, p->container_handle, &p->exit));
	return pod_remove(t, p);
}

/* In the node's pid namespace nothing but the cgroup holds a background process. */
static void background_process_ends_with_the_container(void **state)
{
	struct linux_pod p;
	int status;

	pod_init(&p, "sleep 1000 & exit 3");
	p.sandbox.pid = NS_NODE;
	p.container.pid = NS_NODE;
	if (on_task(leave_children, &p) < 0)
		fail_msg("%s", node.last.text);
	assert_int_equal(p.exit.exit.code, 3);
	/* it came to the subreaper, dead */
	assert_true(waitpid(-1, &status, WNOHANG) > 0);
	assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
	pod_done(&p);
}

static int refuse(struct task *t, void *data)
{
	return error_set(&t->err, ERR_UNAVAILABLE, "no commit");
}

static int start_refused(struct task *t, void *arg)
{
	struct linux_pod *p = arg;
	struct container_stdio stdio = {-1, -1, -1};

	TRY(pod_create(t, p));
	assert_int_equal(
		node.kind->container_start(t, p->container_handle, &stdio, refuse, NULL, NULL),
		-ERR_UNAVAILABLE);
	assert_int_equal(node.kind->container_life(p->container_handle), LIFE_CREATED);
	/* undone, so it can be tried again */
	TRY(pod_start(t, p));
	TRY(pod_wait(t, p));
	return pod_remove(t, p);
}

static void failed_commit_runs_nothing(void **state)
{
	struct linux_pod p;

	pod_init(&p, "echo ran");
	if (on_task(start_refused, &p) < 0)
		fail_msg("%s", node.last.text);
	assert_string_equal(p.output.data, "ran\n");
	pod_done(&p);
}

/* On a node without a memory controller nothing would stop it. */
static void out_of_memory_is_told(void **state)
{
	struct linux_pod p;

	pod_init(&p, "");
	p.argv[0] = "tail";
	p.argv[1] = "/dev/zero";
	p.container.argv.count = 2;
	p.container.resources.memory_limit = 16 << 20;
	p.container.resources.memory_swap_limit = 16 << 20;
	node.oom_kills = 0;
	run_ok(&p, 137);
	assert_true(p.exit.is_oom_killed);
	assert_int_equal(node.oom_kills, 1);
	assert_non_null(node.oom_group);
	assert_non_null(strstr(node.oom_group, p.container_id));
	pod_done(&p);
}

/* What we do within the container's cgroup is small. */
static void small_memory_limit_suffices(void **state)
{
	struct linux_pod p;

	pod_init(&p, "cat /sys/fs/cgroup/memory/memory.max_usage_in_bytes 2>/dev/null; true");
	p.container.resources.memory_limit = 3 << 20;
	run_ok(&p, 0);
	print_message("memory until the end of a small script: %s", p.output.data ?: "?\n");
	pod_done(&p);
}

/* Many at once, each with its own pod. */
#define CROWD 24

struct crowd {
	struct linux_pod pods[CROWD];
	size_t left;
	struct task_event done;
};

static void run_one(struct task *t, void *arg)
{
	struct crowd *c = ((void **)arg)[0];
	struct linux_pod *p = ((void **)arg)[1];

	if (pod_create(t, p) < 0 || pod_start(t, p) < 0 || pod_wait(t, p) < 0 ||
	    pod_remove(t, p) < 0)
		fail_msg("%s", t->err.text);
	if (--c->left == 0)
		task_event_set(&c->done);
}

static int run_crowd(struct task *t, void *arg)
{
	struct crowd *c = arg;
	void *args[CROWD][2];

	task_event_init(&c->done);
	c->left = CROWD;
	for (int i = 0; i < CROWD; i++) {
		args[i][0] = c;
		args[i][1] = &c->pods[i];
		task_start(t->loop, "one of many", run_one, args[i]);
	}
	return task_event_wait(t, &c->done);
}

static void many_start_at_once(void **state)
{
	struct crowd *c = xnew(struct crowd);
	char text[CROWD][32];

	for (int i = 0; i < CROWD; i++) {
		snprintf(text[i], sizeof(text[i]), "echo number %d; exit %d", i, i);
		pod_init(&c->pods[i], text[i]);
		if (i % 3 == 0)
			c->pods[i].sandbox.pid = c->pods[i].container.pid = NS_POD;
	}
	assert_int_equal(on_task(run_crowd, c), 0);
	for (int i = 0; i < CROWD; i++) {
		snprintf(text[i], sizeof(text[i]), "number %d\n", i);
		assert_string_equal(c->pods[i].output.data, text[i]);
		assert_int_equal(c->pods[i].exit.exit.code, i);
		pod_done(&c->pods[i]);
	}
	free(c);
}

struct timing {
	struct linux_pod pod;
	uint64_t start_to_exit;
};

static int time_one(struct task *t, void *arg)
{
	struct timing *x = arg;
	uint64_t began;

	TRY(pod_create(t, &x->pod));
	began = loop_now(t->loop);
	TRY(pod_start(t, &x->pod));
	TRY(node.kind->container_wait(t, x->pod.container_handle, &x->pod.exit));
	x->start_to_exit = loop_now(t->loop) - began;
	return pod_remove(t, &x->pod);
}

/* Prints what a start costs; how fast the machine is depends on who else uses it. */
static void start_is_quick(void **state)
{
	uint64_t best = UINT64_MAX;

	for (int i = 0; i < 20; i++) {
		struct timing x = {0};

		pod_init(&x.pod, "");
		x.pod.argv[0] = "true";
		x.pod.container.argv.count = 1;
		assert_int_equal(on_task(time_one, &x), 0);
		if (x.start_to_exit < best)
			best = x.start_to_exit;
		pod_done(&x.pod);
	}
	print_message("start to exit of `true`, best of 20: %.2f ms\n", (double)best / 1e6);
	assert_true(best < 100 * 1000000ull);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(exit_code_and_output_arrive),
		cmocka_unit_test(signal_of_child_is_seen),
		cmocka_unit_test(killed_container_tells_its_signal),
		cmocka_unit_test(environment_and_directory_are_as_asked),
		cmocka_unit_test(user_groups_and_capabilities_are_as_asked),
		cmocka_unit_test(ambient_capabilities_reach_a_user),
		cmocka_unit_test(root_has_what_was_granted),
		cmocka_unit_test(seccomp_is_loaded_either_way),
		cmocka_unit_test(nothing_of_ours_is_open_inside),
		cmocka_unit_test(hostname_is_the_pods_own),
		cmocka_unit_test(device_directory_is_complete),
		cmocka_unit_test(masked_and_readonly_paths_hold),
		cmocka_unit_test(readonly_root_is_readonly),
		cmocka_unit_test(binds_have_their_attributes),
		cmocka_unit_test(propagation_is_as_asked),
		cmocka_unit_test(propagation_needs_a_shared_mount),
		cmocka_unit_test(missing_program_is_told),
		cmocka_unit_test(links_in_the_image_lead_nowhere),
		cmocka_unit_test(mount_targets_and_directories_stay_inside),
		cmocka_unit_test(swapped_directories_lead_nowhere),
		cmocka_unit_test(volume_over_proc_is_refused),
		cmocka_unit_test(cgroup_view_is_own_and_readonly),
		cmocka_unit_test(terminal_is_the_containers_own),
		cmocka_unit_test(limits_are_set_and_clamped),
		cmocka_unit_test(privileged_sees_the_node),
		cmocka_unit_test(device_is_given),
		cmocka_unit_test(an_images_file_is_no_device),
		cmocka_unit_test(device_permissions_hold),
		cmocka_unit_test(made_device_nodes_open_what_is_allowed),
		cmocka_unit_test(image_mount_shows_layers),
		cmocka_unit_test(background_process_ends_with_the_container),
		cmocka_unit_test(failed_commit_runs_nothing),
		cmocka_unit_test(out_of_memory_is_told),
		cmocka_unit_test(small_memory_limit_suffices),
		cmocka_unit_test(many_start_at_once),
		cmocka_unit_test(start_is_quick),
	};

	return RUN_GROUP(tests, linux_node_setup, linux_node_teardown);
}
