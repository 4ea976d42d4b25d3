/* SPDX-License-Identifier: Apache-2.0 */
/*
 * SELinux labels of pods and containers, on a kernel without SELinux: a directory stands for
 * selinuxfs and takes every label. Peculiar: what such a kernel does with a label that reaches it
 * is to refuse it, so that is what shows that it was given; what one with SELinux does is not
 * shown. Needs root.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <fcntl.h>
#include <linux/xattr.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/xattr.h>
#include <unistd.h>

#include "io/base/alloc.h"
#include "io/base/cleanup.h"
#include "sandbox/linux/kind.h"
#include "sandbox/linux/overlay.h"
#include "sandbox/linux/selinux.h"
#include "tests/lib/linux_pod.h"

#define PROCESS "system_u:system_r:container_t:s0"
#define FILE_LABEL "system_u:object_r:container_file_t:s0"

static bool has_selinux(void)
{
	int root = open("/", O_PATH | O_DIRECTORY | O_CLOEXEC), fs = selinux_open_fs(root);

	close(root);
	close_fd(fs);
	return fs >= 0;
}

/* The kind as if the kernel had it; of_file NULL: the policy has no label of files. */
static void pretend(const char *of_file)
{
	cleanup_free char *dir = xasprintf("%s/selinuxfs", node.dir);
	cleanup_free char *context = xasprintf("%s/context", dir);

	mkdir(dir, 0755);
	close(open(context, O_WRONLY | O_CREAT | O_CLOEXEC, 0644));
	selinux_done(&kind.selinux);
	kind.selinux = (struct selinux){.fs = open(dir, O_PATH | O_DIRECTORY | O_CLOEXEC),
					.process = xstrdup(PROCESS),
					.file = xstrdup_null(of_file)};
}

static int end_pretence(void **state)
{
	selinux_done(&kind.selinux);
	return 0;
}

static const struct selinux_labels *labels_of_pod(const struct linux_pod *p)
{
	return &((struct linux_sandbox *)p->sandbox_handle)->labels;
}

static const struct selinux_labels *labels_of(const struct linux_pod *p)
{
	return &((struct linux_container *)p->container_handle)->labels;
}

static void assert_drawn(const char *label)
{
	unsigned a, b;
	int end = 0;

	assert_non_null(label);
	assert_int_equal(strncmp(label, PROCESS ":", strlen(PROCESS) + 1), 0);
	assert_int_equal(sscanf(selinux_level(label), "s0:c%u,c%u%n", &a, &b, &end), 2);
	assert_int_equal(selinux_level(label)[end], 0);
	assert_true(a < b && b < 1024);
}

static void create(struct linux_pod *p)
{
	if (on_task((int (*)(struct task *, void *))pod_create, p) < 0)
		fail_msg("%s", node.last.text);
}

static int remove_container(struct task *t, void *arg)
{
	struct linux_pod *p = arg;

	TRY(node.kind->container_remove(t, p->container_handle));
	node.kind->container_forget(p->container_handle);
	p->container_handle = NULL;
	return 0;
}

static void end(struct linux_pod *p)
{
	assert_int_equal(on_task((int (*)(struct task *, void *))pod_remove, p), 0);
	pod_done(p);
}

static void a_pod_has_a_level_and_its_containers_share_it(void **state)
{
	struct linux_pod a, b, second;

	pretend(NULL);
	pod_init(&a, "true");
	pod_init(&b, "true");
	create(&a);
	create(&b);
	pod_init_second(&second, &a, "true");
	create(&second);
	assert_drawn(labels_of_pod(&a)->process);
	assert_drawn(labels_of_pod(&b)->process);
	assert_string_not_equal(labels_of_pod(&a)->process, labels_of_pod(&b)->process);
	assert_string_equal(labels_of(&a)->process, labels_of_pod(&a)->process);
	assert_string_equal(labels_of(&second)->process, labels_of_pod(&a)->process);
	assert_null(labels_of(&a)->file);
	assert_int_equal(kind.levels.count, 2);
	assert_int_equal(on_task(remove_container, &second), 0);
	second.sandbox_handle = NULL;
	pod_done(&second);
	end(&a);
	end(&b);
	assert_int_equal(kind.levels.count, 0);
}

static void what_is_asked_for_wins(void **state)
{
	struct linux_pod a, b;

	pretend(NULL);
	pod_init(&a, "true");
	a.sandbox.selinux.level = "s0:c1,c2";
	a.container.selinux.type = "mine_t";
	create(&a);
	assert_string_equal(labels_of_pod(&a)->process, PROCESS ":c1,c2");
	assert_string_equal(labels_of(&a)->process, "system_u:system_r:mine_t:s0:c1,c2");
	pod_init(&b, "true");
	b.sandbox.selinux.level = "s0:c1,c2";
	b.container.is_privileged = true;
	create(&b);
	assert_string_equal(labels_of_pod(&b)->process, PROCESS ":c1,c2");
	assert_null(labels_of(&b)->process);
	/* held until the last that has it is gone */
	end(&a);
	assert_non_null(map_get(&kind.levels, "s0:c1,c2"));
	end(&b);
	assert_null(map_get(&kind.levels, "s0:c1,c2"));
}

static void a_taken_level_is_not_drawn(void **state)
{
	struct linux_pod p;
	char level[32];

	pretend(NULL);
	for (unsigned a = 0; a < 1024; a++)
		for (unsigned b = a + 1; b < 1024; b++) {
			snprintf(level, sizeof(level), "s0:c%u,c%u", a, b);
			map_put(&kind.levels, level, (void *)1);
		}
	pod_init(&p, "true");
	assert_int_equal(on_task((int (*)(struct task *, void *))pod_create, &p), -ERR_EXHAUSTED);
	assert_non_null(strstr(node.last.text, "no free SELinux level"));
	pod_done(&p);
	map_done(&kind.levels);
}

static int recover(struct task *t, void *arg)
{
	struct linux_pod *p = arg;
	struct buf pod = {0}, container = {0};
	int r;

	node.kind->sandbox_record(p->sandbox_handle, &pod);
	node.kind->container_record(p->container_handle, &container);
	node.kind->container_forget(p->container_handle);
	node.kind->sandbox_forget(p->sandbox_handle);
	assert_int_equal(kind.levels.count, 0);
	r = node.kind->sandbox_recover(t, &p->sandbox, pod.data, pod.length, &p->sandbox_handle);
	if (r == 0)
		r = node.kind->container_recover(t, p->sandbox_handle, &p->container,
						 container.data, container.length, false,
						 &p->container_handle);
	buf_done(&pod);
	buf_done(&container);
	return r;
}

static void the_next_server_knows_the_labels(void **state)
{
	cleanup_free char *was = NULL;
	struct linux_pod p;

	pretend(NULL);
	pod_init(&p, "true");
	p.container.selinux.type = "mine_t";
	create(&p);
	was = xstrdup(labels_of(&p)->process);
	assert_int_equal(on_task(recover, &p), 0);
	assert_string_equal(labels_of(&p)->process, was);
	assert_drawn(labels_of_pod(&p)->process);
	assert_non_null(map_get(&kind.levels, selinux_level(was)));
	end(&p);
	assert_int_equal(kind.levels.count, 0);
}

static void expect_refusal(struct linux_pod *p, int code, const char *says)
{
	assert_int_equal(pod_run(p), code);
	if (!strstr(node.last.text, says))
		fail_msg("\"%s\" is not in: %s", says, node.last.text);
	pod_done(p);
}

static void without_selinux_what_is_asked_for_is_refused(void **state)
{
	struct linux_pod p;

	pod_init(&p, "true");
	p.sandbox.selinux.level = "s0";
	expect_refusal(&p, -ERR_INVALID, "selinux_options.level: this node's kernel has no");
	pod_init(&p, "true");
	p.container.selinux.user = "u";
	expect_refusal(&p, -ERR_INVALID, "selinux_options.user: this node's kernel has no");
	pod_init(&p, "true");
	p.container.is_privileged = true;
	p.container.selinux.role = "r";
	expect_refusal(&p, -ERR_INVALID, "selinux_options.role: this node's kernel has no");
}

static void memory_of_a_pod_is_given_its_label(void **state)
{
	struct linux_pod p;

	pretend(FILE_LABEL);
	pod_init(&p, "true");
	expect_refusal(&p, -ERR_INTERNAL, "make the shared memory of a pod");
}

static int run_with_file_label(struct task *t, void *arg)
{
	struct linux_pod *p = arg;

	TRY(node.kind->sandbox_create(t, &p->sandbox, &p->sandbox_handle));
	kind.selinux.file = xstrdup(FILE_LABEL);
	p->container.selinux.type = "mine_t";
	TRY(pod_create(t, p));
	return pod_start(t, p);
}

static void root_file_system_is_given_its_label(void **state)
{
	struct linux_pod p;

	pretend(NULL);
	pod_init(&p, "true");
	assert_int_equal(on_task(run_with_file_label, &p), -ERR_INTERNAL);
	if (!strstr(node.last.text, "give an overlay its label") ||
	    !strstr(node.last.text, "'context'"))
		fail_msg("%s", node.last.text);
	end(&p);
}

/* Starts the helper with a label that the root file system, which is before it, did not get. */
static int start_helper(struct task *t, void *arg)
{
	struct birth birth = {.user_fd = -1, .pid_fd = -1, .flags = CLONE_NEWNS | CLONE_NEWUTS};
	const struct pod_fds none = POD_FDS_NONE;
	struct cgroup_join join = CGROUP_JOIN_NONE;
	struct linux_pod *p = arg;
	struct linux_container *c;
	enum control_event event;
	struct process_exit exit;
	plan_string label;
	int control, pidfd, r;
	pid_t pid;

	TRY(pod_create(t, p));
	c = p->container_handle;
	TRY(cgroup_join_open(kind.cgroups, c->cgroup, &join, &t->err));
	TRY(container_plan_build(c, &none, &join, (int[3]){-1, -1, -1}, &birth.plan, &t->err));
	label = plan_add_string(&birth.plan, FILE_LABEL);
	plan_get(&birth.plan)->file_label = label;
	TRY(plan_seal(&birth.plan, &control, &t->err));
	birth.clone_fd = join.clone_fd;
	TRY(spawner_start(t, kind.spawner, &birth, &pidfd, &pid));
	plan_done(&birth.plan);
	cgroup_join_done(&join);
	r = control_wait(t, control, "helper", &event, NULL);
	close(control);
	process_wait(t, pidfd, &exit);
	close(pidfd);
	return r;
}

static void file_systems_of_the_helper_are_given_their_label(void **state)
{
	struct linux_pod p;

	pod_init(&p, "true");
	assert_true(on_task(start_helper, &p) < 0);
	if (!strstr(node.last.text, "make the device directory"))
		fail_msg("%s", node.last.text);
	end(&p);
}

static void assert_label(int fd, const char *wanted)
{
	char label[256] = "";

	assert_int_equal(fgetxattr(fd, XATTR_NAME_SELINUX, label, sizeof(label)) > 0, !!wanted);
	if (wanted)
		assert_string_equal(label, wanted);
}

/* What stands in a directory can be labelled by any kernel that is not asked what it means. */
static void streams_are_given_their_label(void **state)
{
	cleanup_free char *path = xasprintf("%s/stream", node.dir);
	cleanup_close int fifo = -1;
	struct error err = {0};
	struct linux_pod p;
	int nameless[2];

	pretend(NULL);
	pod_init(&p, "true");
	create(&p);
	((struct linux_container *)p.container_handle)->labels.file = xstrdup(FILE_LABEL);
	assert_int_equal(mkfifo(path, 0600), 0);
	fifo = open(path, O_RDWR | O_CLOEXEC);
	assert_int_equal(pipe2(nameless, O_CLOEXEC), 0);
	assert_int_equal(plan_give_stdio(p.container_handle, (int[3]){-1, fifo, nameless[1]}, &err),
			 0);
	assert_label(fifo, FILE_LABEL);
	assert_label(nameless[1], NULL);
	close(nameless[0]);
	close(nameless[1]);
	end(&p);
}

static int run_labelled(struct task *t, void *arg)
{
	struct linux_pod *p = arg;
	int r;

	TRY(pod_create(t, p));
	r = pod_start(t, p);
	return r < 0 ? r : pod_wait(t, p);
}

/* The program does not run without the label that it was to have. */
static void processes_are_given_their_label(void **state)
{
	struct linux_pod p;

	pretend(NULL);
	pod_init(&p, "echo ran");
	p.container.selinux.type = "mine_t";
	assert_true(on_task(run_labelled, &p) < 0);
	if (!strstr(node.last.text, "ask for the SELinux label system_u:system_r:mine_t:s0:c"))
		fail_msg("%s", node.last.text);
	assert_null(p.output.data);
	end(&p);
	pod_init(&p, "echo ran");
	p.container.is_privileged = true;
	if (on_task(run_labelled, &p) < 0)
		fail_msg("%s", node.last.text);
	assert_string_equal(p.output.data, "ran\n");
	end(&p);
}

static int exec_labelled(struct task *t, void *arg)
{
	struct linux_pod *p = arg;
	struct buf output = {0};
	int r;

	TRY(pod_create(t, p));
	TRY(pod_start(t, p));
	((struct linux_container *)p->container_handle)->labels.process = xstrdup(PROCESS ":c5");
	r = pod_exec(t, p, "e", "echo ran", &output);
	assert_null(output.data);
	buf_done(&output);
	return r;
}

static void added_processes_are_given_it_too(void **state)
{
	struct linux_pod p;

	pod_init(&p, "sleep 1000");
	assert_true(on_task(exec_labelled, &p) < 0);
	if (!strstr(node.last.text, "ask for the SELinux label " PROCESS ":c5"))
		fail_msg("%s", node.last.text);
	end(&p);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_teardown(a_pod_has_a_level_and_its_containers_share_it,
					  end_pretence),
		cmocka_unit_test_teardown(what_is_asked_for_wins, end_pretence),
		cmocka_unit_test_teardown(a_taken_level_is_not_drawn, end_pretence),
		cmocka_unit_test_teardown(the_next_server_knows_the_labels, end_pretence),
		cmocka_unit_test(without_selinux_what_is_asked_for_is_refused),
		cmocka_unit_test_teardown(memory_of_a_pod_is_given_its_label, end_pretence),
		cmocka_unit_test_teardown(root_file_system_is_given_its_label, end_pretence),
		cmocka_unit_test(file_systems_of_the_helper_are_given_their_label),
		cmocka_unit_test_teardown(streams_are_given_their_label, end_pretence),
		cmocka_unit_test_teardown(processes_are_given_their_label, end_pretence),
		cmocka_unit_test(added_processes_are_given_it_too),
	};

	if (has_selinux()) {
		fprintf(stderr, "skipped: the kernel has SELinux\n");
		return 77;
	}
	return cmocka_run_group_tests(tests, linux_node_setup, linux_node_teardown);
}
