/* SPDX-License-Identifier: Apache-2.0 */
/* Sandboxes of the linux kind for real: namespaces, PID 1, user namespaces, restart. Needs root. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "io/base/alloc.h"
#include "io/base/cleanup.h"
#include "tests/lib/linux_pod.h"
#include "tests/lib/group.h"

static struct id_map pod_map[] = {{0, 200000, 65536}};

static void run_ok(struct linux_pod *p, int code)
{
	if (pod_run(p) < 0)
		fail_msg("%s", node.last.text);
	if (p->exit.exit.code != code)
		fail_msg("exit code %d, output: %s", p->exit.exit.code, p->output.data ?: "");
}

static void ok(int r)
{
	if (r < 0)
		fail_msg("%s", node.last.text);
}

/* The inode that names a namespace of this process, as "net:[…]". */
static char *own_namespace(const char *name)
{
	cleanup_free char *path = xasprintf("/proc/self/ns/%s", name);
	char text[64];
	ssize_t n = readlink(path, text, sizeof(text) - 1);

	assert_true(n > 0);
	text[n] = 0;
	return xstrdup(text);
}

static void node_namespaces_are_the_hosts(void **state)
{
	cleanup_free char *net = own_namespace("net");
	cleanup_free char *ipc = own_namespace("ipc");
	cleanup_free char *pid = own_namespace("pid");
	cleanup_free char *mnt = own_namespace("mnt");
	struct linux_pod p;

	pod_init(&p, "for n in net ipc pid mnt; do readlink /proc/self/ns/$n; done; mount | grep "
		     "-c sysfs");
	p.sandbox.net = p.sandbox.ipc = p.sandbox.pid = p.container.pid = NS_NODE;
	run_ok(&p, 0);
	assert_line(p.output.data, net);
	assert_line(p.output.data, ipc);
	assert_line(p.output.data, pid);
	assert_null(strstr(p.output.data, mnt));
	pod_done(&p);
}

static void sysctls_belong_to_the_pod(void **state)
{
	struct key_value pairs[] = {{"net.ipv4.ip_unprivileged_port_start", "77"},
				    {"kernel.shmmax", "1234567"}};
	for (int userns = 0; userns < 2; userns++) {
		struct linux_pod p;

		pod_init(&p, "cat /proc/sys/net/ipv4/ip_unprivileged_port_start "
			     "/proc/sys/kernel/shmmax");
		p.sandbox.sysctls = (struct key_value_list){pairs, 2};
		p.sandbox.has_userns = userns;
		p.sandbox.uids = p.sandbox.gids = (struct id_map_list){pod_map, 1};
		run_ok(&p, 0);
		assert_string_equal(p.output.data, "77\n1234567\n");
		pod_done(&p);
	}
}

static void sysctls_of_the_node_are_refused(void **state)
{
	struct key_value pair = {"net.ipv4.ip_forward", "1"};
	struct linux_pod p;

	pod_init(&p, "true");
	p.sandbox.sysctls = (struct key_value_list){&pair, 1};
	p.sandbox.net = NS_NODE;
	assert_int_equal(pod_run(&p), -ERR_INVALID);
	p.sandbox.net = NS_POD;
	pair.key = "kernel.panic";
	assert_int_equal(pod_run(&p), -ERR_INVALID);
	pair.key = "net.ipv4.no_such_thing";
	assert_int_equal(pod_run(&p), -ERR_INVALID);
	pod_done(&p);
}

static int shared_pid(struct task *t, void *arg)
{
	struct linux_pod *p = arg, second;

	p->sandbox.pid = p->container.pid = NS_POD;
	TRY(pod_create(t, p));
	TRY(pod_start(t, p));
	assert_true(node.kind->sandbox_is_up(p->sandbox_handle));
	pod_init_second(&second, p,
			"ps; kill -9 1; sleep 1000 & cat /proc/1/status; ls /proc/1/root/");
	TRY(pod_create(t, &second));
	TRY(pod_start(t, &second));
	TRY(node.kind->container_wait(t, second.container_handle, &second.exit));
	TRY(pod_wait(t, &second));
	assert_line(second.output.data, "    1 root     crisp-pid1");
	assert_non_null(strstr(second.output.data, "sleep 999"));
	/* it has nothing, and lets nobody without more look into it */
	assert_non_null(strstr(second.output.data, "ls: /proc/1/root/: Permission denied"));
	assert_true(node.kind->sandbox_is_up(p->sandbox_handle));
	TRY(node.kind->container_remove(t, second.container_handle));
	node.kind->container_forget(second.container_handle);
	second.sandbox_handle = p->sandbox_handle;
	pod_done(&second);
	TRY(node.kind->container_kill_all(t, p->container_handle));
	return pod_remove(t, p);
}

static void shared_pid_namespace_has_a_pid1_of_ours(void **state)
{
	struct linux_pod p;

	pod_init(&p, "sleep 999");
	ok(on_task(shared_pid, &p));
	pod_done(&p);
}

/* By the pid that the kind recorded for this very pod; nothing else may ever be hit. */
static void end_pid1(struct linux_pod *p)
{
	struct buf record = {0};
	const char *at;
	long pid;
	int pidfd;

	node.kind->sandbox_record(p->sandbox_handle, &record);
	at = strstr(record.data, "pid1=");
	assert_non_null(at);
	pid = strtol(at + strlen("pid1="), NULL, 10);
	buf_done(&record);
	assert_true(pid > 1);
	assert_int_equal(process_open((pid_t)pid, &pidfd, NULL), 0);
	assert_int_equal(process_signal(pidfd, SIGKILL, NULL), 0);
	close(pidfd);
}

static int lose_pid1(struct task *t, void *arg)
{
	struct linux_pod *p = arg;
	unsigned before = node.sandbox_exits;

	p->sandbox.pid = p->container.pid = NS_POD;
	TRY(pod_create(t, p));
	TRY(pod_start(t, p));
	end_pid1(p);
	TRY(pod_wait(t, p));
	for (int i = 0; i < 100 && node.sandbox_exits == before; i++)
		TRY(task_sleep_ms(t, 10));
	assert_int_equal(node.sandbox_exits, before + 1);
	assert_false(node.kind->sandbox_is_up(p->sandbox_handle));
	assert_int_equal(p->exit.exit.code, 137);
	return pod_remove(t, p);
}

static void loss_of_pid1_is_reported(void **state)
{
	struct linux_pod p;

	pod_init(&p, "sleep 1000");
	ok(on_task(lose_pid1, &p));
	pod_done(&p);
}

static int target_pid(struct task *t, void *arg)
{
	struct linux_pod *p = arg, second;

	TRY(pod_create(t, p));
	TRY(pod_start(t, p));
	pod_init_second(&second, p, "cat /proc/1/cmdline | tr '\\0' ' '");
	second.container.pid = NS_TARGET;
	second.container.pid_target = p->container_id;
	TRY(pod_create(t, &second));
	TRY(pod_start(t, &second));
	TRY(pod_wait(t, &second));
	assert_non_null(strstr(second.output.data, "sleep 998"));
	TRY(node.kind->container_remove(t, second.container_handle));
	node.kind->container_forget(second.container_handle);
	second.sandbox_handle = p->sandbox_handle;
	pod_done(&second);
	return pod_remove(t, p);
}

static void target_pid_namespace_is_another_containers(void **state)
{
	struct linux_pod p;

	pod_init(&p, "");
	p.argv[0] = "sleep";
	p.argv[1] = "998";
	p.container.argv.count = 2;
	ok(on_task(target_pid, &p));
	pod_done(&p);
}

static int share_memory(struct task *t, void *arg)
{
	struct linux_pod *p = arg, second;

	TRY(pod_create(t, p));
	TRY(pod_start(t, p));
	TRY(pod_wait(t, p));
	pod_init_second(&second, p,
			"cat /dev/shm/note; readlink /proc/self/ns/net; stat -f -c %b /dev/shm");
	TRY(pod_create(t, &second));
	TRY(pod_start(t, &second));
	TRY(pod_wait(t, &second));
	assert_line(second.output.data, "left here");
	assert_line(second.output.data, "256");
	assert_line(second.output.data, p->output.data ? strtok(p->output.data, "\n") : "");
	TRY(node.kind->container_remove(t, second.container_handle));
	node.kind->container_forget(second.container_handle);
	second.sandbox_handle = p->sandbox_handle;
	pod_done(&second);
	return pod_remove(t, p);
}

static void containers_share_memory_and_network(void **state)
{
	struct linux_pod p;

	pod_init(&p, "echo left here >/dev/shm/note; readlink /proc/self/ns/net");
	p.sandbox.shm_size = 1 << 20;
	ok(on_task(share_memory, &p));
	pod_done(&p);
}

/* The whole: own ids, an overlay to write to, proc and sysfs of its own, devices, volumes. */
static void user_namespace_container_runs(void **state)
{
	cleanup_free char *volume = xasprintf("%s/uservolume", node.dir);
	cleanup_free char *inside = xasprintf("%s/mine", volume);
	cleanup_free char *written = NULL;
	struct linux_pod p;
	struct mount_spec m = {
		.source = volume, .target = "/volume", .uids = {pod_map, 1}, .gids = {pod_map, 1}};
	struct stat st;

	assert_int_equal(mkdir(volume, 0755), 0);
	pod_init(&p, "cat /proc/self/uid_map; id -u; stat -c 'image %u:%g' /bin/busybox; "
		     "echo x >/new && stat -c 'new %u:%g' /new; chown 33:33 /etc/passwd; "
		     "stat -c 'changed %u:%g' /etc/passwd; "
		     "grep -E ' /(proc|sys) ' /proc/mounts | cut -d' ' -f2,3; "
		     "echo n >/dev/null && echo null; stat -c '%t:%T' /dev/zero; "
		     "echo y >/volume/mine; echo s >/dev/shm/s && echo shm; "
		     "mount -t tmpfs t /home && echo mounted; ip link show lo; "
		     "grep CapEff /proc/self/status; echo again >/dev/stderr; hostname; "
		     "ls /sys/fs/cgroup; readlink /proc/self/ns/user");
	written = xasprintf("%s/new", p.upper);
	p.sandbox.has_userns = true;
	p.sandbox.uids = p.sandbox.gids = (struct id_map_list){pod_map, 1};
	p.container.capabilities |= 1ull << 21;
	p.container.mounts = &m;
	p.container.mount_count = 1;
	run_ok(&p, 0);
	assert_line(p.output.data, "         0     200000      65536");
	assert_line(p.output.data, "image 0:0");
	assert_line(p.output.data, "new 0:0");
	assert_line(p.output.data, "changed 33:33");
	assert_line(p.output.data, "/proc proc");
	assert_line(p.output.data, "/sys sysfs");
	assert_line(p.output.data, "null");
	assert_line(p.output.data, "1:5");
	assert_line(p.output.data, "shm");
	assert_line(p.output.data, "mounted");
	assert_line(p.output.data, "again");
	assert_line(p.output.data, "pod-name");
	assert_non_null(strstr(p.output.data, "LOOPBACK,UP"));
	/* on disk: the pod's ids in its own layer, the host's in the id-mapped volume */
	assert_int_equal(stat(written, &st), 0);
	assert_int_equal(st.st_uid, 200000);
	assert_int_equal(stat(inside, &st), 0);
	assert_int_equal(st.st_uid, 0);
	pod_done(&p);
}

static void user_namespace_with_shared_pid_and_user(void **state)
{
	struct linux_pod p;

	pod_init(&p,
		 "id -u; ps | grep -c crisp-pid1; tty; touch /x; stat -c %u /proc/self/fd/1 -L");
	p.sandbox.has_userns = true;
	p.sandbox.uids = p.sandbox.gids = (struct id_map_list){pod_map, 1};
	p.sandbox.pid = p.container.pid = NS_POD;
	p.container.user.user = "user";
	p.container.has_tty = true;
	run_ok(&p, 0);
	assert_line(p.output.data, "1000");
	assert_line(p.output.data, "/dev/pts/0");
	assert_non_null(strstr(p.output.data, "/x: Permission denied"));
	pod_done(&p);
}

static void userns_refusals_are_plain(void **state)
{
	struct linux_pod p;
	struct id_map no_root[] = {{5, 200000, 10}};

	pod_init(&p, "true");
	p.sandbox.has_userns = true;
	p.sandbox.uids = p.sandbox.gids = (struct id_map_list){no_root, 1};
	assert_int_equal(pod_run(&p), -ERR_INVALID);
	p.sandbox.uids = p.sandbox.gids = (struct id_map_list){pod_map, 1};
	p.sandbox.pid = NS_NODE;
	assert_int_equal(pod_run(&p), -ERR_UNIMPLEMENTED);
	p.sandbox.pid = NS_CONTAINER;
	p.container.user.user = "70000";
	assert_int_equal(pod_run(&p), -ERR_INVALID);
	pod_done(&p);
}

/* What the store would have kept. */
struct kept {
	struct linux_pod pod;
	struct buf sandbox_record, container_record;
};

static int begin(struct task *t, void *arg)
{
	struct kept *k = arg;

	TRY(pod_create(t, &k->pod));
	TRY(pod_start(t, &k->pod));
	node.kind->sandbox_record(k->pod.sandbox_handle, &k->sandbox_record);
	node.kind->container_record(k->pod.container_handle, &k->container_record);
	node.kind->container_forget(k->pod.container_handle);
	node.kind->sandbox_forget(k->pod.sandbox_handle);
	return 0;
}

static int recover(struct task *t, struct kept *k)
{
	TRY(node.kind->sandbox_recover(t, &k->pod.sandbox, k->sandbox_record.data,
				       k->sandbox_record.length, &k->pod.sandbox_handle));
	return node.kind->container_recover(t, k->pod.sandbox_handle, &k->pod.container,
					    k->container_record.data, k->container_record.length,
					    false, &k->pod.container_handle);
}

static int resume(struct task *t, void *arg)
{
	struct kept *k = arg;
	struct linux_pod *p = &k->pod;
	struct container_info info;
	struct buf out = {0};

	TRY(recover(t, k));
	assert_true(node.kind->sandbox_is_up(p->sandbox_handle));
	assert_int_equal(node.kind->container_life(p->container_handle), LIFE_RUNNING);
	TRY(node.kind->container_info(p->container_handle, &info));
	assert_int_equal(info.user.uid, 1000);
	assert_int_equal(info.user.group_count, 2);
	assert_int_equal(info.host_uid, 1000);
	assert_int_equal(pod_exec(t, p, "after", "id -u; echo $HELLO; echo 1 >/tmp/go", &out), 0);
	assert_line(out.data, "1000");
	assert_line(out.data, "world");
	buf_done(&out);
	TRY(pod_wait(t, p));
	return pod_remove(t, p);
}

static void running_container_is_found_again(void **state)
{
	struct kept k = {0};
	unsigned exits = node.exits;

	pod_init(&k.pod, "until test -e /tmp/go; do sleep 0.05; done; echo late; exit 9");
	k.pod.sandbox.pid = k.pod.container.pid = NS_POD;
	k.pod.container.user.user = "user";
	ok(on_task(begin, &k));
	linux_node_restart();
	ok(on_task(resume, &k));
	assert_string_equal(k.pod.output.data, "late\n");
	assert_int_equal(k.pod.exit.exit.code, 9);
	assert_true(k.pod.exit.is_known);
	assert_int_equal(node.exits, exits + 1);
	buf_done(&k.sandbox_record);
	buf_done(&k.container_record);
	pod_done(&k.pod);
}

static int find_ended(struct task *t, void *arg)
{
	struct kept *k = arg;

	TRY(recover(t, k));
	assert_int_equal(node.kind->container_life(k->pod.container_handle), LIFE_EXITED);
	TRY(pod_wait(t, &k->pod));
	return pod_remove(t, &k->pod);
}

static void ended_container_tells_its_code(void **state)
{
	struct kept k = {0};
	char byte;

	pod_init(&k.pod, "exit 42");
	ok(on_task(begin, &k));
	/* end of file: it is gone */
	fcntl(k.pod.out[0], F_SETFL, 0);
	assert_int_equal(read(k.pod.out[0], &byte, 1), 0);
	while (waitid(P_ALL, 0, &(siginfo_t){0}, WEXITED | WNOWAIT) < 0 && errno == EINTR)
		;
	linux_node_restart();
	ok(on_task(find_ended, &k));
	assert_int_equal(k.pod.exit.exit.code, 42);
	assert_true(k.pod.exit.is_known);
	buf_done(&k.sandbox_record);
	buf_done(&k.container_record);
	pod_done(&k.pod);
}

static void change_boot(struct buf *record)
{
	char *boot = strstr(record->data, "boot=");

	assert_non_null(boot);
	boot[strlen("boot=")] = 'X';
}

static int find_rebooted(struct task *t, void *arg)
{
	struct kept *k = arg;
	struct linux_pod *p = &k->pod;
	struct container_info info;

	TRY(recover(t, k));
	assert_false(node.kind->sandbox_is_up(p->sandbox_handle));
	assert_int_equal(node.kind->container_life(p->container_handle), LIFE_EXITED);
	TRY(node.kind->container_info(p->container_handle, &info));
	assert_int_equal(info.pid, 0);
	assert_int_equal(info.user.uid, 1000);
	TRY(node.kind->container_wait(t, p->container_handle, &p->exit));
	assert_false(p->exit.is_known);
	/* it was killed with its cgroup; here it is a child, too */
	assert_true(waitpid(-1, NULL, 0) > 0);
	return pod_remove(t, p);
}

/* The pids of an earlier boot may be anybody's in this one. */
static void pids_count_in_their_boot_only(void **state)
{
	struct kept k = {0};

	pod_init(&k.pod, "sleep 1000");
	k.pod.container.user.user = "user";
	ok(on_task(begin, &k));
	linux_node_restart();
	change_boot(&k.sandbox_record);
	change_boot(&k.container_record);
	ok(on_task(find_rebooted, &k));
	buf_done(&k.sandbox_record);
	buf_done(&k.container_record);
	pod_done(&k.pod);
}

static int remove_half_made(struct task *t, void *arg)
{
	struct linux_pod *p = arg;

	/* nothing was ever made */
	TRY(node.kind->sandbox_recover(t, &p->sandbox, NULL, 0, &p->sandbox_handle));
	TRY(node.kind->container_recover(t, p->sandbox_handle, &p->container, NULL, 0, false,
					 &p->container_handle));
	TRY(node.kind->container_remove(t, p->container_handle));
	TRY(node.kind->container_remove(t, p->container_handle));
	TRY(pod_remove(t, p));
	/* all was made, and nothing recorded */
	TRY(pod_create(t, p));
	node.kind->container_forget(p->container_handle);
	node.kind->sandbox_forget(p->sandbox_handle);
	TRY(node.kind->sandbox_recover(t, &p->sandbox, NULL, 0, &p->sandbox_handle));
	TRY(node.kind->container_recover(t, p->sandbox_handle, &p->container, NULL, 0, false,
					 &p->container_handle));
	TRY(pod_remove(t, p));
	/* and once more, as a repeated call */
	TRY(node.kind->sandbox_recover(t, &p->sandbox, NULL, 0, &p->sandbox_handle));
	return pod_remove(t, p);
}

static void half_made_things_can_be_removed(void **state)
{
	struct linux_pod p;

	pod_init(&p, "true");
	p.sandbox.pid = p.container.pid = NS_POD;
	ok(on_task(remove_half_made, &p));
	pod_done(&p);
}

static int stop_and_start(struct task *t, void *arg)
{
	struct linux_pod *p = arg;

	TRY(pod_create(t, p));
	TRY(node.kind->sandbox_stop(t, p->sandbox_handle));
	TRY(node.kind->sandbox_stop(t, p->sandbox_handle));
	assert_false(node.kind->sandbox_is_up(p->sandbox_handle));
	assert_int_equal(pod_start(t, p), -ERR_PRECONDITION);
	return pod_remove(t, p);
}

static void stopped_sandbox_starts_nothing(void **state)
{
	struct linux_pod p;

	pod_init(&p, "true");
	ok(on_task(stop_and_start, &p));
	pod_done(&p);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(node_namespaces_are_the_hosts),
		cmocka_unit_test(sysctls_belong_to_the_pod),
		cmocka_unit_test(sysctls_of_the_node_are_refused),
		cmocka_unit_test(shared_pid_namespace_has_a_pid1_of_ours),
		cmocka_unit_test(loss_of_pid1_is_reported),
		cmocka_unit_test(target_pid_namespace_is_another_containers),
		cmocka_unit_test(containers_share_memory_and_network),
		cmocka_unit_test(user_namespace_container_runs),
		cmocka_unit_test(user_namespace_with_shared_pid_and_user),
		cmocka_unit_test(userns_refusals_are_plain),
		cmocka_unit_test(running_container_is_found_again),
		cmocka_unit_test(pids_count_in_their_boot_only),
		cmocka_unit_test(ended_container_tells_its_code),
		cmocka_unit_test(half_made_things_can_be_removed),
		cmocka_unit_test(stopped_sandbox_starts_nothing),
	};

	return RUN_GROUP(tests, linux_node_setup, linux_node_teardown);
}
