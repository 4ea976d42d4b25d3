/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The helper's main: reads the plan, runs its stage. Peculiar: until the mounts are made it stands
 * in the spawner's tiny mount namespace, whose pristine proc serves for what must be written there.
 */
#include "sandbox/linux/init/helper.h"

#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <sched.h>
#include <signal.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

void fail(enum init_step step, const char *path)
{
	struct init_report report = {.message = INIT_FAILED, .step = step, .error = errno};

	if (path)
		strncpy(report.path, path, sizeof(report.path) - 1);
	send(INIT_FD_CONTROL, &report, sizeof(report), MSG_NOSIGNAL);
	_exit(INIT_EXIT_NEVER_RAN);
}

void send_ready(int fd)
{
	struct init_report report = {.message = INIT_READY};
	struct iovec iov = {.iov_base = &report, .iov_len = sizeof(report)};
	union {
		struct cmsghdr header;
		char space[CMSG_SPACE(sizeof(int))];
	} control = {0};
	struct msghdr message = {.msg_iov = &iov, .msg_iovlen = 1};

	if (fd >= 0) {
		control.header.cmsg_len = CMSG_LEN(sizeof(int));
		control.header.cmsg_level = SOL_SOCKET;
		control.header.cmsg_type = SCM_RIGHTS;
		memcpy(CMSG_DATA(&control.header), &fd, sizeof(fd));
		message.msg_control = &control;
		message.msg_controllen = sizeof(control.space);
	}
	if (sendmsg(INIT_FD_CONTROL, &message, MSG_NOSIGNAL) < 0)
		_exit(INIT_EXIT_NEVER_RAN);
}

void wait_go(void)
{
	struct init_report report;
	ssize_t n;

	do
		n = recv(INIT_FD_CONTROL, &report, sizeof(report), 0);
	while (n < 0 && errno == EINTR);
	if (n != sizeof(report) || report.message != INIT_GO)
		_exit(INIT_EXIT_NEVER_RAN);
}

const char *plan_text(const struct plan *plan, plan_string offset)
{
	return offset ? (const char *)plan + offset : NULL;
}

void *plan_items(struct plan *plan, struct plan_list list)
{
	return (char *)plan + list.offset;
}

static struct plan *map_plan(void)
{
	struct stat st;
	struct plan *plan;

	if (fstat(INIT_FD_PLAN, &st) < 0 || st.st_size < (off_t)sizeof(*plan))
		fail(STEP_PLAN, NULL);
	plan = mmap(NULL, (size_t)st.st_size, PROT_READ | PROT_WRITE, MAP_PRIVATE, INIT_FD_PLAN, 0);
	if (plan == MAP_FAILED || plan->magic != PLAN_MAGIC || plan->size != st.st_size)
		fail(STEP_PLAN, NULL);
	close(INIT_FD_PLAN);
	return plan;
}

static void join_cgroups(struct plan *plan)
{
	const int32_t *fds = plan_items(plan, plan->cgroup_fds);

	for (uint32_t i = 0; i < plan->cgroup_fds.count; i++)
		if (write(fds[i], "0", 1) < 0)
			fail(STEP_CGROUP, NULL);
}

static void join_namespaces(const struct plan *plan)
{
	if (plan->net_fd >= 0 && setns(plan->net_fd, CLONE_NEWNET) < 0)
		fail(STEP_NAMESPACE, "net");
	if (plan->ipc_fd >= 0 && setns(plan->ipc_fd, CLONE_NEWIPC) < 0)
		fail(STEP_NAMESPACE, "ipc");
	/* after the cgroups, so that the container's own is the root of what it sees */
	if (!(plan->flags & PLAN_NODE_CGROUPS) && unshare(CLONE_NEWCGROUP) < 0)
		fail(STEP_NAMESPACE, "cgroup");
	if (plan->flags & PLAN_OWN_IPC && unshare(CLONE_NEWIPC) < 0)
		fail(STEP_NAMESPACE, "ipc");
}

static void place_root(struct helper *h)
{
	int target = open("/root", O_PATH | O_DIRECTORY | O_CLOEXEC);

	if (target < 0 || mount_place(h->plan->root_fd, target) < 0)
		fail(STEP_ROOT, NULL);
	h->root = open("/root", O_PATH | O_DIRECTORY | O_CLOEXEC);
	if (h->root < 0)
		fail(STEP_ROOT, NULL);
}

/* Afterwards nothing of the tiny mount namespace is left. */
static void pivot(const struct helper *h)
{
	if (fchdir(h->root) < 0 || syscall(SYS_pivot_root, ".", ".") < 0 ||
	    umount2(".", MNT_DETACH) < 0 || chdir("/") < 0)
		fail(STEP_PIVOT, NULL);
}

static void enter_cwd(const struct helper *h)
{
	const char *path = plan_text(h->plan, h->plan->cwd);
	char real[4096];

	if (fchdir(h->cwd) < 0)
		fail(STEP_CWD, path);
	/* the kernel marks what no root of ours reaches with "(unreachable)" (CVE-2024-21626) */
	if (syscall(SYS_getcwd, real, sizeof(real)) < 0 || real[0] != '/') {
		errno = EPERM;
		fail(STEP_CWD_OUTSIDE, path);
	}
}

static void set_hostname(const struct plan *plan)
{
	const char *name = plan_text(plan, plan->hostname);

	if (name && sethostname(name, strlen(name)) < 0)
		fail(STEP_HOSTNAME, name);
}

static void run_container(struct helper *h)
{
	join_cgroups(h->plan);
	join_namespaces(h->plan);
	place_root(h);
	mount_base(h);
	if (h->plan->flags & PLAN_TTY)
		open_terminal(h, h->pts);
	mount_volumes(h);
	h->cwd = make_beneath(h->root, plan_text(h->plan, h->plan->cwd), true);
	if (h->cwd < 0)
		fail(STEP_CWD, plan_text(h->plan, h->plan->cwd));
	mount_restrictions(h);
	set_hostname(h->plan);
	pivot(h);
	enter_cwd(h);
	send_ready(h->master);
	wait_go();
	set_stdio(h);
	set_rlimits(h);
	become(h);
}

static void run_exec(struct helper *h)
{
	struct plan *plan = h->plan;
	const char *cwd = plan_text(plan, plan->cwd);

	join_cgroups(plan);
	if (setns(plan->exec_fd, (int)plan->setns) < 0)
		fail(STEP_NAMESPACE, NULL);
	/* joined, a user namespace does not know who we were */
	if (plan->setns & CLONE_NEWUSER &&
	    (setgroups(0, NULL) < 0 || setresgid(0, 0, 0) < 0 || setresuid(0, 0, 0) < 0))
		fail(STEP_IDS, NULL);
	/* setns(2) has moved the root directory into the container */
	h->root = open("/", O_PATH | O_DIRECTORY | O_CLOEXEC);
	if (h->root < 0)
		fail(STEP_ROOT, NULL);
	if (plan->flags & PLAN_TTY) {
		open_terminal(h, -1);
		send_ready(h->master);
	}
	h->cwd = open_beneath(h->root, cwd, O_DIRECTORY);
	if (h->cwd < 0)
		fail(STEP_CWD, cwd);
	enter_cwd(h);
	set_stdio(h);
	set_rlimits(h);
	become(h);
}

/* The pod's PID 1 keeps no way to the tiny mount namespace, whose proc is the host's. */
static void run_pid1(struct helper *h)
{
	static char *const argv[] = {(char *)"crisp-pid1", NULL}, *const envp[] = {NULL};
	struct sigaction ignore = {.sa_handler = SIG_IGN};

	/* not before the server knows it, or nobody would ever end it */
	wait_go();
	place_root(h);
	pivot(h);
	/* ignored, it is reaped for us */
	sigaction(SIGCHLD, &ignore, NULL);
	setsid();
	dup2(h->plan->exec_fd, 0);
	syscall(SYS_close_range, 1, ~0u, CLOSE_RANGE_CLOEXEC);
	fcntl(0, F_SETFD, FD_CLOEXEC);
	/* it needs none, and the plan has none */
	give_up_privileges(h);
	syscall(SYS_execveat, 0, "", argv, envp, AT_EMPTY_PATH);
	fail(STEP_EXEC, "pid 1");
}

int main(void)
{
	struct helper h = {.root = -1,
			   .dev = -1,
			   .null = -1,
			   .pts = -1,
			   .cwd = -1,
			   .master = -1,
			   .slave = -1,
			   .apparmor = -1,
			   .label = -1,
			   .key_label = -1};

	/* the spawner's child may have left it open over exec */
	syscall(SYS_close_range, 3, ~0u, CLOSE_RANGE_CLOEXEC);
	umask(0);
	h.plan = map_plan();
	set_oom_score(h.plan->oom_score_adj);
	open_apparmor(&h);
	open_labels(&h);
	/* from here on no process of the container may trace this one or read its descriptors */
	prctl(PR_SET_DUMPABLE, 0, 0, 0, 0);
	switch ((enum init_stage)h.plan->stage) {
	case INIT_CONTAINER:
		run_container(&h);
		break;
	case INIT_EXEC:
		run_exec(&h);
		break;
	case INIT_PID1:
		run_pid1(&h);
		break;
	case INIT_HOLD:
		wait_go();
		break;
	}
	return INIT_EXIT_NEVER_RAN;
}
