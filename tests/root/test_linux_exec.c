/* SPDX-License-Identifier: Apache-2.0 */
/* Processes added to containers of the linux kind. Needs root. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "io/base/cleanup.h"
#include "tests/lib/linux_pod.h"
#include "tests/lib/group.h"

static struct id_map pod_map[] = {{0, 200000, 65536}};

/* A container that stays, and what is done in it. */
struct with {
	struct linux_pod pod;
	int (*fn)(struct task *t, struct linux_pod *p);
};

static int run_with(struct task *t, void *arg)
{
	struct with *w = arg;

	task_limit_ms(t, 20000);
	TRY(pod_create(t, &w->pod));
	TRY(pod_start(t, &w->pod));
	TRY(w->fn(t, &w->pod));
	TRY(node.kind->container_kill_all(t, w->pod.container_handle));
	TRY(pod_wait(t, &w->pod));
	return pod_remove(t, &w->pod);
}

static void with_init(struct with *w, int (*fn)(struct task *t, struct linux_pod *p))
{
	pod_init(&w->pod, "sleep 1000");
	w->fn = fn;
}

static void with_run(struct with *w)
{
	if (on_task(run_with, w) < 0)
		fail_msg("%s", node.last.text);
	while (waitpid(-1, NULL, WNOHANG) > 0)
		;
	pod_done(&w->pod);
}

static int check_identity(struct task *t, struct linux_pod *p)
{
	struct buf out = {0};
	int code = pod_exec(t, p, "one",
			    "id; pwd; echo $HELLO; cat /proc/self/status; hostname; ls /; "
			    "readlink /proc/self/ns/mnt; readlink /proc/1/ns/mnt; "
			    "echo again >/dev/stderr; exit 7",
			    &out);

	TRY(code);
	assert_int_equal(code, 7);
	assert_non_null(
		strstr(out.data, "uid=1000(user) gid=1000(user) groups=1000(user),2000(extra)"));
	assert_line(out.data, "/work");
	assert_line(out.data, "world");
	assert_line(out.data, "CapInh:\t0000000000000000");
	assert_line(out.data, "CapEff:\t0000000000000000");
	assert_line(out.data, "CapBnd:\t00000000a80425fb");
	assert_line(out.data, "NoNewPrivs:\t1");
	assert_line(out.data, "Seccomp:\t2");
	assert_line(out.data, "pod-name");
	assert_line(out.data, "again");
	buf_done(&out);
	return 0;
}

static void exec_is_like_the_container(void **state)
{
	struct with w;

	with_init(&w, check_identity);
	w.pod.container.user.user = "user";
	w.pod.container.cwd = "/work";
	w.pod.container.seccomp = SECCOMP_RUNTIME_DEFAULT;
	with_run(&w);
}

static int check_descriptors(struct task *t, struct linux_pod *p)
{
	struct buf out = {0};

	TRY(pod_exec(
		t, p, "fds",
		"ls /proc/self/fd | tr '\\n' ' '; readlink /proc/self/exe; cat /proc/self/cgroup",
		&out));
	assert_non_null(strstr(out.data, "0 1 2 3 /bin/busybox\n"));
	assert_null(strstr(out.data, ".."));
	buf_done(&out);
	return 0;
}

static void exec_has_no_descriptor_of_ours(void **state)
{
	struct with w;

	with_init(&w, check_descriptors);
	with_run(&w);
}

static int check_userns(struct task *t, struct linux_pod *p)
{
	const char *argv[] = {
		"sh", "-c",
		"tty; id -u; grep CapEff /proc/self/status; chown 5 /tmp && echo chowned"};
	struct exec_spec spec = {.id = "tty", .argv = {argv, 3}, .has_tty = true};
	struct container_stdio stdio = {-1, -1, -1};
	struct exec_process process;
	struct process_exit exit;
	char text[512];
	ssize_t n = 0, one;

	TRY(node.kind->container_exec(t, p->container_handle, &spec, &stdio, NULL, NULL, &process));
	assert_true(process.master >= 0);
	TRY(process_wait(t, process.pidfd, &exit));
	fcntl(process.master, F_SETFL, O_NONBLOCK);
	while (n < (ssize_t)sizeof(text) - 1 &&
	       (one = read(process.master, text + n, sizeof(text) - 1 - (size_t)n)) > 0)
		n += one;
	text[n] = 0;
	close(process.pidfd);
	close(process.master);
	assert_line(text, "/dev/pts/0");
	assert_line(text, "0");
	assert_line(text, "CapEff:\t00000000a80425fb");
	assert_line(text, "chowned");
	assert_int_equal(exit.code, 0);
	return node.kind->container_exec_done(t, p->container_handle, "tty");
}

static void exec_in_a_user_namespace_with_a_terminal(void **state)
{
	for (int shared = 0; shared < 2; shared++) {
		struct with w;

		with_init(&w, check_userns);
		w.pod.sandbox.has_userns = true;
		w.pod.sandbox.uids = w.pod.sandbox.gids = (struct id_map_list){pod_map, 1};
		if (shared)
			w.pod.sandbox.pid = w.pod.container.pid = NS_POD;
		with_run(&w);
	}
}

static int check_missing(struct task *t, struct linux_pod *p)
{
	const char *argv[] = {"no-such-program"};
	struct exec_spec spec = {.id = "missing", .argv = {argv, 1}};
	struct container_stdio stdio = {-1, -1, -1};
	struct exec_process process;

	assert_int_equal(node.kind->container_exec(t, p->container_handle, &spec, &stdio, NULL,
						   NULL, &process),
			 -ERR_INVALID);
	assert_int_equal(t->err.sys, ENOENT);
	assert_non_null(strstr(t->err.text, "exec \"no-such-program\": no such file"));
	return 0;
}

static void exec_of_a_missing_program_is_told(void **state)
{
	struct with w;

	with_init(&w, check_missing);
	with_run(&w);
}

static int check_kill(struct task *t, struct linux_pod *p)
{
	const char *argv[] = {"sh", "-c", "setsid sleep 997 & sleep 996"};
	struct exec_spec spec = {.id = "killme", .argv = {argv, 3}};
	struct container_stdio stdio = {-1, -1, -1};
	struct exec_process process;
	struct process_exit exit;
	struct buf out = {0};

	TRY(node.kind->container_exec(t, p->container_handle, &spec, &stdio, NULL, NULL, &process));
	for (int i = 0; i < 200 && !strstr(out.data ?: "", "sleep 997"); i++) {
		buf_done(&out);
		TRY(pod_exec(t, p, "look", "ps", &out));
	}
	TRY(node.kind->container_exec_kill(t, p->container_handle, "killme"));
	TRY(process_wait(t, process.pidfd, &exit));
	close(process.pidfd);
	assert_int_equal(exit.code, 137);
	TRY(node.kind->container_exec_done(t, p->container_handle, "killme"));
	buf_done(&out);
	TRY(pod_exec(t, p, "look", "ps", &out));
	assert_null(strstr(out.data, "sleep 99"));
	assert_non_null(strstr(out.data, "sleep 1000"));
	assert_int_equal(node.kind->container_life(p->container_handle), LIFE_RUNNING);
	buf_done(&out);
	return 0;
}

static void exec_kill_ends_all_it_started(void **state)
{
	struct with w;

	with_init(&w, check_kill);
	with_run(&w);
}

static int check_ended(struct task *t, struct linux_pod *p)
{
	const char *argv[] = {"true"};
	struct exec_spec spec = {.id = "late", .argv = {argv, 1}};
	struct container_stdio stdio = {-1, -1, -1};
	struct exec_process process;

	TRY(node.kind->container_kill_all(t, p->container_handle));
	assert_int_equal(node.kind->container_exec(t, p->container_handle, &spec, &stdio, NULL,
						   NULL, &process),
			 -ERR_PRECONDITION);
	return 0;
}

static void exec_in_an_ended_container_is_refused(void **state)
{
	struct with w;

	with_init(&w, check_ended);
	with_run(&w);
}

static int check_speed(struct task *t, struct linux_pod *p)
{
	const char *argv[] = {"true"};
	struct exec_spec spec = {.id = "fast", .argv = {argv, 1}};
	struct container_stdio stdio = {-1, -1, -1};
	uint64_t best = UINT64_MAX;

	for (int i = 0; i < 50; i++) {
		struct exec_process process;
		struct process_exit exit;
		uint64_t began = loop_now(t->loop), took;

		TRY(node.kind->container_exec(t, p->container_handle, &spec, &stdio, NULL, NULL,
					      &process));
		TRY(process_wait(t, process.pidfd, &exit));
		close(process.pidfd);
		TRY(node.kind->container_exec_done(t, p->container_handle, "fast"));
		assert_int_equal(exit.code, 0);
		took = loop_now(t->loop) - began;
		best = took < best ? took : best;
	}
	print_message("exec of `true` with its group, best of 50: %.2f ms\n", (double)best / 1e6);
	return 0;
}

static void exec_is_quick(void **state)
{
	struct with w;

	with_init(&w, check_speed);
	with_run(&w);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(exec_is_like_the_container),
		cmocka_unit_test(exec_has_no_descriptor_of_ours),
		cmocka_unit_test(exec_in_a_user_namespace_with_a_terminal),
		cmocka_unit_test(exec_of_a_missing_program_is_told),
		cmocka_unit_test(exec_kill_ends_all_it_started),
		cmocka_unit_test(exec_in_an_ended_container_is_refused),
		cmocka_unit_test(exec_is_quick),
	};

	return RUN_GROUP(tests, linux_node_setup, linux_node_teardown);
}
