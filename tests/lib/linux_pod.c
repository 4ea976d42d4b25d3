/* SPDX-License-Identifier: Apache-2.0 */
/* Pods for tests. Peculiar: leftovers are counted against what was there before the first test. */
#include "tests/lib/linux_pod.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "io/base/alloc.h"
#include "io/base/cleanup.h"
#include "io/fs.h"
#include "io/offload.h"

#define BUSYBOX "/bin/busybox"

struct linux_node node;

static struct sandboxer_env env;
static unsigned next_id;
static size_t fds_before;

static const char *const applets[] = {
	"sh",	    "true",   "false",	"cat",	 "echo", "sleep",  "ls",     "id",     "grep",
	"mount",    "stat",   "touch",	"mkdir", "kill", "ps",	   "env",    "pwd",    "hostname",
	"readlink", "wc",     "chown",	"ip",	 "tty",	 "setsid", "head",   "umount", "test",
	"sort",	    "cut",    "mknod",	"sync",	 "tail", "dd",	   "printf", "find",   "tr",
	"seq",	    "sysctl", "ulimit", "trap",	 "ln",
};

static size_t count_entries(const char *path)
{
	cleanup_closedir DIR *d = opendir(path);
	size_t n = 0;

	assert_non_null(d);
	while (readdir(d))
		n++;
	return n;
}

/* Mounts on what belongs to the test; others on the machine come and go. */
static size_t count_mounts(void)
{
	cleanup_fclose FILE *f = fopen("/proc/self/mountinfo", "r");
	cleanup_free char *line = NULL;
	size_t n = 0, size = 0;

	assert_non_null(f);
	while (getline(&line, &size, f) > 0)
		n += strstr(line, node.dir) != NULL;
	return n;
}

/* A pod's cgroup goes with it, from every hierarchy. */
static void assert_no_cgroup(void)
{
	cleanup_closedir DIR *d = opendir("/sys/fs/cgroup");
	cleanup_free char *mine = xasprintf("crisp-test-%d-", getpid());
	struct dirent *e;

	while (d && (e = readdir(d))) {
		cleanup_free char *path = xasprintf("/sys/fs/cgroup/%s", e->d_name);
		cleanup_closedir DIR *hierarchy = opendir(path);
		struct dirent *group;

		assert_null(strstr(e->d_name, mine));
		/* the pods' parents are the tests' own, and empty if nothing was left */
		while (hierarchy && (group = readdir(hierarchy)))
			if (strstr(group->d_name, mine) &&
			    unlinkat(dirfd(hierarchy), group->d_name, AT_REMOVEDIR) < 0)
				fail_msg("a cgroup was left in %s/%s", path, group->d_name);
	}
}

/* Children that nobody reaped are leftovers too: the tests are a subreaper. */
static void assert_no_child(void)
{
	siginfo_t info = {0};

	if (waitid(P_ALL, 0, &info, WEXITED | WNOHANG | WNOWAIT) == 0)
		fail_msg("a child was left: pid %d, status %d", info.si_pid, info.si_status);
	assert_int_equal(errno, ECHILD);
}

static void on_container_exit(void *data, const char *id)
{
	node.exits++;
}

static void on_oom(void *data, const char *id, uint64_t kills, const char *group)
{
	node.oom_kills += kills;
	free(node.oom_group);
	node.oom_group = group ? xstrdup(group) : NULL;
}

static void on_sandbox_exit(void *data, const char *id)
{
	node.sandbox_exits++;
}

static void write_text(const char *path, const char *text)
{
	int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0644);

	assert_true(fd >= 0);
	assert_int_equal(write(fd, text, strlen(text)), strlen(text));
	close(fd);
}

static char *in_layer(const char *path)
{
	return xasprintf("%s/%s", node.layer, path);
}

static void copy_busybox(void)
{
	cleanup_free char *to = in_layer("bin/busybox");
	int in = open(BUSYBOX, O_RDONLY), out = open(to, O_WRONLY | O_CREAT, 0755);
	static char block[65536];
	ssize_t n;

	assert_true(in >= 0 && out >= 0);
	while ((n = read(in, block, sizeof(block))) > 0)
		assert_int_equal(write(out, block, (size_t)n), n);
	close(in);
	close(out);
}

static void make_layer(void)
{
	static const char *const dirs[] = {"bin", "etc", "tmp", "home", "proc", "sys", "dev"};
	cleanup_free char *passwd = in_layer("etc/passwd");
	cleanup_free char *group = in_layer("etc/group");

	node.layer = xasprintf("%s/layer", node.dir);
	free(passwd);
	free(group);
	passwd = in_layer("etc/passwd");
	group = in_layer("etc/group");
	assert_int_equal(mkdir(node.layer, 0755), 0);
	for (size_t i = 0; i < sizeof(dirs) / sizeof(dirs[0]); i++) {
		cleanup_free char *dir = in_layer(dirs[i]);

		assert_int_equal(mkdir(dir, strcmp(dirs[i], "tmp") ? 0755 : 01777), 0);
		chmod(dir, strcmp(dirs[i], "tmp") ? 0755 : 01777);
	}
	copy_busybox();
	for (size_t i = 0; i < sizeof(applets) / sizeof(applets[0]); i++) {
		cleanup_free char *link = xasprintf("%s/bin/%s", node.layer, applets[i]);

		assert_int_equal(symlink("busybox", link), 0);
	}
	write_text(passwd, "root:x:0:0:root:/root:/bin/sh\nuser:x:1000:1000::/home/user:/bin/sh\n");
	write_text(group, "root:x:0:\nuser:x:1000:\nextra:x:2000:user\n");
}

/* What init began in the background has come to its end. */
static int settle(struct task *t, void *arg)
{
	while (task_count() > 1)
		TRY(task_sleep_ms(t, 1));
	return 0;
}

static void init_kind(void)
{
	struct error err = {0};

	node.loop = loop_new(&err);
	assert_non_null(node.loop);
	node.pins = pins_open(node.loop, node.dir, &err);
	if (!node.pins)
		fail_msg("%s", err.text);
	env = (struct sandboxer_env){.loop = node.loop,
				     .root_dir = node.dir,
				     .state_dir = node.dir,
				     .pins = node.pins,
				     .container_exited = on_container_exit,
				     .sandbox_exited = on_sandbox_exit,
				     .container_oom = on_oom};
	node.kind = sandboxer_find("linux");
	assert_non_null(node.kind);
	if (node.kind->init(&env, &err) < 0)
		fail_msg("%s", err.text);
	assert_int_equal(on_task(settle, NULL), 0);
}

int linux_node_setup(void **state)
{
	char dir[] = "/tmp/crisp-linux-XXXXXX";

	umask(022);
	prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0);
	assert_non_null(mkdtemp(dir));
	node.dir = xstrdup(dir);
	chmod(dir, 0755);
	make_layer();
	fds_before = count_entries("/proc/self/fd");
	init_kind();
	return 0;
}

/* What jobs have to tell the loop is told. */
static int hear_jobs(struct task *t, void *arg)
{
	return task_sleep_ms(t, 1);
}

static void end_jobs(void)
{
	offload_shutdown();
	on_task(hear_jobs, NULL);
}

void linux_node_restart(void)
{
	end_jobs();
	node.kind->shutdown();
	pins_close(node.pins);
	loop_free(node.loop);
	init_kind();
}

int linux_node_teardown(void **state)
{
	struct error err = {0};
	int tmp;

	end_jobs();
	node.kind->shutdown();
	if (pins_destroy(node.pins, &err) < 0)
		fail_msg("%s", err.text);
	loop_free(node.loop);
	task_pool_trim();
	assert_no_child();
	assert_no_cgroup();
	assert_int_equal(count_entries("/proc/self/fd"), fds_before);
	assert_int_equal(count_mounts(), 0);
	tmp = open("/tmp", O_PATH | O_DIRECTORY | O_CLOEXEC);
	if (fs_remove_tree_blocking(tmp, node.dir + strlen("/tmp/"), &err) < 0)
		fail_msg("%s", err.text);
	close(tmp);
	free(node.layer);
	free(node.oom_group);
	free(node.dir);
	return 0;
}

struct body {
	int (*fn)(struct task *t, void *arg);
	void *arg;
	int result;
};

static void run_body(struct task *t, void *arg)
{
	struct body *b = arg;

	b->result = b->fn(t, b->arg);
	node.last = t->err;
	loop_stop(node.loop);
}

int on_task(int (*fn)(struct task *t, void *arg), void *arg)
{
	struct body b = {.fn = fn, .arg = arg};

	node.last = (struct error){0};
	task_start(node.loop, "test", run_body, &b);
	loop_run(node.loop);
	return b.result;
}

static void init_container(struct linux_pod *p, const char *script)
{
	cleanup_free char *dir = NULL;

	snprintf(p->container_id, sizeof(p->container_id), "c%08x%08x", getpid(), next_id++);
	dir = xasprintf("%s/%s", node.dir, p->container_id);
	p->upper = xasprintf("%s/upper", dir);
	p->work = xasprintf("%s/work", dir);
	assert_int_equal(mkdir(dir, 0755), 0);
	assert_int_equal(mkdir(p->upper, 0755), 0);
	assert_int_equal(mkdir(p->work, 0755), 0);
	p->layers[0] = node.layer;
	p->argv[0] = "sh";
	p->argv[1] = "-c";
	p->argv[2] = script;
	p->envp[0] = "PATH=/bin";
	p->envp[1] = "HELLO=world";
	p->container = (struct container_spec){
		.id = p->container_id,
		.sandbox_id = p->id,
		.argv = {p->argv, 3},
		.envp = {p->envp, 2},
		.layers = {p->layers, 1},
		.upper = p->upper,
		.work = p->work,
		.capabilities = 0xa80425fb,
		.no_new_privs = true,
		.pid = NS_CONTAINER,
	};
	p->out[0] = p->out[1] = p->master = -1;
}

void pod_init(struct linux_pod *p, const char *script)
{
	*p = (struct linux_pod){0};
	snprintf(p->id, sizeof(p->id), "s%08x%08x", getpid(), next_id++);
	snprintf(p->parent, sizeof(p->parent), "/crisp-test-%d-%u", getpid(), next_id);
	p->sandbox = (struct sandbox_spec){
		.id = p->id,
		.hostname = "pod-name",
		.pid = NS_CONTAINER,
		.cgroup_parent = p->parent,
	};
	init_container(p, script);
}

void pod_init_second(struct linux_pod *p, const struct linux_pod *first, const char *script)
{
	*p = (struct linux_pod){.sandbox = first->sandbox, .sandbox_handle = first->sandbox_handle};
	memcpy(p->id, first->id, sizeof(p->id));
	init_container(p, script);
	p->container.pid = first->container.pid;
}

void pod_done(struct linux_pod *p)
{
	if (!p->sandbox_handle)
		assert_no_child();
	free(p->upper);
	free(p->work);
	buf_done(&p->output);
	close_fd(p->out[0]);
	close_fd(p->out[1]);
	close_fd(p->master);
}

int pod_create(struct task *t, struct linux_pod *p)
{
	if (!p->sandbox_handle)
		TRY(node.kind->sandbox_create(t, &p->sandbox, &p->sandbox_handle));
	return node.kind->container_create(t, p->sandbox_handle, &p->container,
					   &p->container_handle);
}

static int no_commit(struct task *t, void *data)
{
	return 0;
}

int pod_start(struct task *t, struct linux_pod *p)
{
	struct container_stdio stdio = {-1, -1, -1};
	int r;

	assert_int_equal(pipe2(p->out, O_CLOEXEC), 0);
	fcntl(p->out[0], F_SETFL, O_NONBLOCK);
	if (!p->container.has_tty)
		stdio.out = stdio.err = p->out[1];
	r = node.kind->container_start(t, p->container_handle, &stdio, no_commit, NULL, &p->master);
	close(p->out[1]);
	p->out[1] = -1;
	return r;
}

static int read_all(struct task *t, int fd, struct buf *ret)
{
	for (;;) {
		char *to = buf_reserve(ret, 4096);
		ssize_t n = read(fd, to, 4096);

		if (n < 0 && errno == EAGAIN) {
			TRY(task_wait_fd(t, fd, LOOP_READ));
			continue;
		}
		/* a terminal ends with EIO */
		if (n <= 0)
			return 0;
		ret->length += (size_t)n;
		ret->data[ret->length] = 0;
	}
}

int pod_wait(struct task *t, struct linux_pod *p)
{
	if (p->master >= 0)
		fcntl(p->master, F_SETFL, O_NONBLOCK);
	TRY(read_all(t, p->master >= 0 ? p->master : p->out[0], &p->output));
	return node.kind->container_wait(t, p->container_handle, &p->exit);
}

int pod_remove(struct task *t, struct linux_pod *p)
{
	if (p->container_handle) {
		TRY(node.kind->container_remove(t, p->container_handle));
		node.kind->container_forget(p->container_handle);
		p->container_handle = NULL;
	}
	if (p->sandbox_handle) {
		TRY(node.kind->sandbox_stop(t, p->sandbox_handle));
		TRY(node.kind->sandbox_remove(t, p->sandbox_handle));
		node.kind->sandbox_forget(p->sandbox_handle);
		p->sandbox_handle = NULL;
	}
	return 0;
}

static int run_whole(struct task *t, void *arg)
{
	struct linux_pod *p = arg;
	struct error why;
	int r, removed;

	task_limit_ms(t, 20000);
	r = pod_create(t, p);
	if (r == 0)
		r = pod_start(t, p);
	if (r == 0)
		r = pod_wait(t, p);
	why = t->err;
	task_shield(t, 1);
	removed = pod_remove(t, p);
	task_shield(t, -1);
	if (removed < 0)
		return removed;
	t->err = why;
	return r;
}

int pod_run(struct linux_pod *p)
{
	return on_task(run_whole, p);
}

int pod_exec(struct task *t, struct linux_pod *p, const char *id, const char *script,
	     struct buf *ret)
{
	const char *argv[] = {"sh", "-c", script};
	struct exec_spec spec = {.id = id, .argv = {argv, 3}};
	struct exec_process process;
	struct process_exit exit;
	struct container_stdio stdio = {-1, -1, -1};
	int out[2], r;

	assert_int_equal(pipe2(out, O_CLOEXEC), 0);
	fcntl(out[0], F_SETFL, O_NONBLOCK);
	stdio.out = stdio.err = out[1];
	r = node.kind->container_exec(t, p->container_handle, &spec, &stdio, NULL, NULL, &process);
	close(out[1]);
	if (r == 0)
		r = read_all(t, out[0], ret);
	close(out[0]);
	TRY(r);
	TRY(process_wait(t, process.pidfd, &exit));
	close(process.pidfd);
	TRY(node.kind->container_exec_done(t, p->container_handle, id));
	return exit.code;
}

void assert_line(const char *text, const char *line)
{
	size_t n = strlen(line);

	for (const char *at = text ?: ""; *at; at += strcspn(at, "\n"), at += *at == '\n')
		if (strncmp(at, line, n) == 0 && (at[n] == '\n' || !at[n] || at[n] == '\r'))
			return;
	fail_msg("no line \"%s\" in:\n%s", line, text ?: "(nothing)");
}
