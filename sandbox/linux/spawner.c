/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Births. Peculiar: the child shares our memory until it executes (CLONE_VM, CLONE_VFORK: the
 * thread stands still), so it uses only system calls and a stack of the thread. Only a process of
 * its own can join a user namespace, so there a middle child does, and bears the process as ours
 * (CLONE_PARENT).
 */
#include "sandbox/linux/spawner.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/sched.h>
#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "io/base/alloc.h"
#include "io/base/cleanup.h"
#include "io/base/fault.h"
#include "io/embed.h"
#include "io/process.h"

#define CHILD_STACK (64 * 1024)

extern const char init_program[], init_program_end[];

struct spawner {
	struct worker *worker;
	struct loop *loop;
	char *stacks;	/* of the middle child and the process, one behind the other */
	int process_fd; /* our own pidfd, to fetch descriptors of the other threads; in the thread
			 */
	int program_fd; /* the init helper; in the thread's table */
	int pid_ns_fd;	/* the server's pid namespace; in the thread's table */
};

struct birth_job {
	struct job job;
	struct spawner *spawner;
	struct birth birth;
	int *fds;	     /* in the thread's table; the helper's 0, 1, 2 … */
	int user_fd, pid_fd; /* likewise */
	int program;	     /* likewise, above the range of fds */
	int error;
	pid_t pid; /* 0 when none, or taken over by the caller */
};

/* clone3(2) with a stack and vfork semantics, for which libc has no wrapper. */
static long clone3_call(struct clone_args *args, int (*fn)(void *), void *arg)
{
#if defined(__x86_64__)
	register int (*r8)(void *) __asm__("r8") = fn;
	register void *r9 __asm__("r9") = arg;
	long result;

	__asm__ volatile("syscall\n\t"
			 "test %%rax, %%rax\n\t"
			 "jnz 1f\n\t"
			 "xor %%ebp, %%ebp\n\t"
			 "mov %%r9, %%rdi\n\t"
			 "call *%%r8\n\t"
			 "mov %%eax, %%edi\n\t"
			 "mov %[exit], %%eax\n\t"
			 "syscall\n"
			 "1:"
			 : "=a"(result)
			 : "a"(SYS_clone3), "D"(args), "S"(sizeof(*args)), "r"(r8),
			   "r"(r9), [exit] "i"(SYS_exit)
			 : "rcx", "r11", "memory", "cc");
	return result;
#elif defined(__aarch64__)
	register long x8 __asm__("x8") = SYS_clone3;
	register long x0 __asm__("x0") = (long)args;
	register long x1 __asm__("x1") = sizeof(*args);
	register int (*x2)(void *) __asm__("x2") = fn;
	register void *x3 __asm__("x3") = arg;

	__asm__ volatile("svc 0\n\t"
			 "cbnz x0, 1f\n\t"
			 "mov x29, 0\n\t"
			 "mov x0, x3\n\t"
			 "blr x2\n\t"
			 "mov x8, %[exit]\n\t"
			 "svc 0\n"
			 "1:"
			 : "+r"(x0)
			 : "r"(x8), "r"(x1), "r"(x2), "r"(x3), [exit] "i"(SYS_exit)
			 : "memory", "cc");
	return x0;
#else
#error "no clone3 call for this processor"
#endif
}

static int child_main(void *arg)
{
	static char *const argv[] = {(char *)"crisp-init", NULL}, *const envp[] = {NULL};
	struct birth_job *j = arg;
	size_t count = j->birth.plan.fd_count;

	for (size_t i = 0; i < count; i++)
		if (dup2(j->fds[i], (int)i) < 0)
			goto fail;
	syscall(SYS_close_range, (unsigned)count, ~0u, CLOSE_RANGE_CLOEXEC);
	syscall(SYS_execveat, j->program, "", argv, envp, AT_EMPTY_PATH);
fail:
	j->error = errno;
	return 127;
}

/* Raw system calls: libc would change the ids of all threads. */
static int become_user_root(int user_fd)
{
	if (setns(user_fd, CLONE_NEWUSER) < 0 || syscall(SYS_setgroups, 0, NULL) < 0 ||
	    syscall(SYS_setresgid, 0, 0, 0) < 0 || syscall(SYS_setresuid, 0, 0, 0) < 0)
		return -1;
	return 0;
}

static int middle_main(void *arg)
{
	struct birth_job *j = arg;
	int flags = CLONE_PARENT | CLONE_VM | CLONE_VFORK | SIGCHLD | (int)j->birth.flags;

	/* the pid namespace first, while we still are the host's root */
	if ((j->pid_fd >= 0 && setns(j->pid_fd, CLONE_NEWPID) < 0) ||
	    (j->user_fd >= 0 && become_user_root(j->user_fd) < 0)) {
		j->error = errno;
		return 1;
	}
	j->pid = clone(child_main, j->spawner->stacks + 2 * CHILD_STACK, flags, j);
	if (j->pid < 0) {
		j->error = errno;
		j->pid = 0;
	}
	return 0;
}

/* A descriptor of the server in the thread's table, at floor or above. */
static int fetch_fd(struct spawner *s, int fd, int floor)
{
	int local = (int)syscall(SYS_pidfd_getfd, s->process_fd, fd, 0), lifted;

	if (local < 0 || local >= floor)
		return local;
	lifted = fcntl(local, F_DUPFD_CLOEXEC, floor);
	close_fd(local);
	return lifted;
}

static int fetch_fds(struct birth_job *j)
{
	struct plan_builder *plan = &j->birth.plan;
	int floor = (int)plan->fd_count;

	for (size_t i = 0; i < plan->fd_count; i++) {
		if (plan->fds[i].fd >= 0)
			j->fds[i] = fetch_fd(j->spawner, plan->fds[i].fd, floor);
		else
			j->fds[i] = open("/null", O_RDONLY | O_CLOEXEC);
		if (j->fds[i] < 0)
			return -1;
	}
	j->program = fcntl(j->spawner->program_fd, F_DUPFD_CLOEXEC, floor);
	if (j->program < 0)
		return -1;
	if (j->birth.user_fd >= 0)
		j->user_fd = fetch_fd(j->spawner, j->birth.user_fd, floor);
	if (j->birth.pid_fd >= 0)
		j->pid_fd = fetch_fd(j->spawner, j->birth.pid_fd, floor);
	if ((j->birth.user_fd >= 0 && j->user_fd < 0) || (j->birth.pid_fd >= 0 && j->pid_fd < 0))
		return -1;
	return 0;
}

/* clone3 of fn with args' flags, in the cgroup of the birth. The child's pid, or -1 with errno. */
static pid_t clone_in_cgroup(struct birth_job *j, uint64_t flags, int (*fn)(void *))
{
	cleanup_close int cgroup = -1;
	struct clone_args args = {
		.flags = CLONE_VM | CLONE_VFORK | flags,
		.exit_signal = SIGCHLD,
		.stack = (uintptr_t)j->spawner->stacks,
		.stack_size = CHILD_STACK,
	};
	long pid;

	if (j->birth.clone_fd >= 0) {
		cgroup = fetch_fd(j->spawner, j->birth.clone_fd, (int)j->birth.plan.fd_count);
		if (cgroup < 0)
			return -1;
		args.flags |= CLONE_INTO_CGROUP;
		args.cgroup = (uint64_t)cgroup;
	}
	pid = clone3_call(&args, fn, j);
	if (pid < 0)
		errno = (int)-pid;
	return pid < 0 ? -1 : (pid_t)pid;
}

static int bear_by_middle(struct birth_job *j)
{
	pid_t pid = clone_in_cgroup(j, CLONE_FILES, middle_main);

	if (pid < 0)
		return -1;
	while (waitpid(pid, NULL, 0) < 0 && errno == EINTR)
		;
	return 0;
}

/* Children of this thread are born in the pid namespace that it names for them; its own stays. */
static int bear_directly(struct birth_job *j)
{
	pid_t pid;

	if (j->pid_fd >= 0 && setns(j->pid_fd, CLONE_NEWPID) < 0)
		return -1;
	pid = clone_in_cgroup(j, j->birth.flags, child_main);
	if (j->pid_fd >= 0) {
		int saved = errno;

		/* else the next container would be born in this one */
		if (setns(j->spawner->pid_ns_fd, CLONE_NEWPID) < 0)
			abort();
		errno = saved;
	}
	if (pid < 0)
		return -1;
	j->pid = pid;
	return 0;
}

static void reap(struct birth_job *j)
{
	/* never a group, never everything */
	if (j->pid <= 0)
		return;
	kill(j->pid, SIGKILL);
	while (waitpid(j->pid, NULL, 0) < 0 && errno == EINTR)
		;
	j->pid = 0;
}

static int run_birth(struct job *job, struct error *err)
{
	struct birth_job *j = container_of(job, struct birth_job, job);
	int error = 0;

	for (size_t i = 0; i < j->birth.plan.fd_count; i++)
		j->fds[i] = -1;
	if (fetch_fds(j) < 0 || (j->user_fd >= 0 ? bear_by_middle(j) : bear_directly(j)) < 0)
		error = errno;
	else if (j->error)
		error = j->error;
	for (size_t i = 0; i < j->birth.plan.fd_count; i++)
		close_fd(j->fds[i]);
	close_fd(j->user_fd);
	close_fd(j->pid_fd);
	close_fd(j->program);
	if (!error)
		return 0;
	reap(j);
	if (error == ESRCH && j->birth.pid_fd >= 0)
		return error_set(
			err, ERR_PRECONDITION,
			"start a process: the one whose namespaces it should join has ended");
	return error_errno(err, error, "start a process");
}

static void free_birth(struct job *job)
{
	struct birth_job *j = container_of(job, struct birth_job, job);

	reap(j);
	plan_done(&j->birth.plan);
	close_fd(j->birth.user_fd);
	close_fd(j->birth.pid_fd);
	close_fd(j->birth.clone_fd);
	free(j->fds);
	free(j);
}

/* The job may outlive its caller's wait, so it has descriptors of its own. */
static int own_fd(int *fd)
{
	if (*fd < 0)
		return 0;
	*fd = fcntl(*fd, F_DUPFD_CLOEXEC, 3);
	return *fd < 0 ? -1 : 0;
}

static int own_fds(struct birth *b)
{
	int r = own_fd(&b->user_fd) | own_fd(&b->pid_fd) | own_fd(&b->clone_fd);

	for (size_t i = 0; i < b->plan.fd_count; i++) {
		if (b->plan.fds[i].is_owned)
			continue;
		r |= own_fd(&b->plan.fds[i].fd);
		b->plan.fds[i].is_owned = true;
	}
	return r;
}

int spawner_start(struct task *t, struct spawner *s, struct birth *birth, int *ret_pidfd,
		  pid_t *ret_pid)
{
	struct birth_job *j = xnew(struct birth_job);
	int r;

	job_init(&j->job, run_birth, free_birth);
	j->spawner = s;
	j->birth = *birth;
	j->user_fd = j->pid_fd = j->program = -1;
	birth->plan = (struct plan_builder){0};
	j->fds = xcalloc(j->birth.plan.fd_count, sizeof(*j->fds));
	if (own_fds(&j->birth) < 0)
		r = error_errno(&t->err, errno, "start a process");
	else
		r = offload(t, s->worker, &j->job);
	FAULT(process_born);
	/* our child, not yet reaped: the number is still its own */
	if (r == 0)
		r = process_open(j->pid, ret_pidfd, &t->err);
	if (r == 0) {
		*ret_pid = j->pid;
		j->pid = 0;
	}
	job_unref(&j->job);
	return r;
}

/* A new file system of that type on name in the directory dir. */
static int mount_pristine(int dir, const char *type, const char *name)
{
	cleanup_close int fs = fsopen(type, FSOPEN_CLOEXEC);
	cleanup_close int mount = -1;

	if (fs < 0 || fsconfig(fs, FSCONFIG_SET_STRING, "source", type, 0) < 0 ||
	    fsconfig(fs, FSCONFIG_CMD_CREATE, NULL, NULL, 0) < 0)
		return -1;
	mount = fsmount(fs, FSMOUNT_CLOEXEC, 0);
	if (mount < 0)
		return -1;
	return move_mount(mount, "", dir, name, MOVE_MOUNT_F_EMPTY_PATH);
}

/* The tiny mount namespace. Only this thread sees it, and what is born here begins with it. */
static int make_tiny_namespace(struct error *err)
{
	cleanup_close int null = -1;
	cleanup_close int dir = -1;

	if (unshare(CLONE_NEWNS) < 0 || mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) < 0)
		return error_errno(err, errno, "make a mount namespace for the spawner");
	null = open_tree(AT_FDCWD, "/dev/null", OPEN_TREE_CLONE | OPEN_TREE_CLOEXEC);
	if (mount("crisp", "/proc", "tmpfs", 0, "size=64k,mode=755") < 0)
		return error_errno(err, errno, "mount a tmpfs for the spawner");
	dir = open("/proc", O_PATH | O_DIRECTORY | O_CLOEXEC);
	if (dir < 0 || null < 0 || mkdirat(dir, "root", 0755) < 0 ||
	    mkdirat(dir, "aside", 0755) < 0 || mkdirat(dir, "proc", 0755) < 0 ||
	    mkdirat(dir, "sys", 0755) < 0 || mknodat(dir, "null", S_IFREG | 0600, 0) < 0)
		return error_errno(err, errno, "prepare the spawner's root");
	if (move_mount(null, "", dir, "null", MOVE_MOUNT_F_EMPTY_PATH) < 0 ||
	    mount_pristine(dir, "proc", "proc") < 0 || mount_pristine(dir, "sysfs", "sys") < 0)
		return error_errno(err, errno, "mount proc and sysfs for the spawner");
	if (fchdir(dir) < 0 || syscall(SYS_pivot_root, ".", ".") < 0 ||
	    umount2(".", MNT_DETACH) < 0 || chdir("/") < 0)
		return error_errno(err, errno, "enter the spawner's root");
	return 0;
}

/* Leaves the server's descriptors to the server, so that none is kept open here, and keeps what the
 * thread itself needs. */
static int make_own_table(struct spawner *s, struct error *err)
{
	int keep[] = {loop_remote_fd(s->loop), s->process_fd, s->program_fd, s->pid_ns_fd};
	const int count = sizeof(keep) / sizeof(keep[0]);
	unsigned from = 3;

	if (unshare(CLONE_FILES) < 0)
		return error_errno(err, errno, "make a descriptor table for the spawner");
	for (int done = 0; done < count; done++) {
		int least = -1;

		for (int i = 0; i < count; i++)
			if (keep[i] >= (int)from && (least < 0 || keep[i] < least))
				least = keep[i];
		if (least > (int)from)
			syscall(SYS_close_range, from, (unsigned)least - 1, 0);
		from = (unsigned)least + 1;
	}
	syscall(SYS_close_range, from, ~0u, 0);
	return 0;
}

static int set_up(void *arg, struct error *err)
{
	struct spawner *s = arg;

	s->process_fd = (int)syscall(SYS_pidfd_open, getpid(), 0);
	if (s->process_fd < 0)
		return error_errno(err, errno, "pidfd of the server");
	s->pid_ns_fd = open("/proc/thread-self/ns/pid", O_RDONLY | O_CLOEXEC);
	if (s->pid_ns_fd < 0)
		return error_errno(err, errno, "pid namespace of the server");
	TRY(make_own_table(s, err));
	return make_tiny_namespace(err);
}

struct spawner *spawner_new(struct loop *l, struct error *err)
{
	struct spawner *s = xnew(struct spawner);
	cleanup_close int program = -1;

	s->loop = l;
	s->stacks = mmap(NULL, 2 * CHILD_STACK, PROT_READ | PROT_WRITE,
			 MAP_PRIVATE | MAP_ANONYMOUS | MAP_STACK, -1, 0);
	if (s->stacks == MAP_FAILED) {
		error_errno(err, errno, "stacks for the spawner");
		free(s);
		return NULL;
	}
	if (embed_memfd("crisp-init", init_program, init_program_end, &program, err) == 0) {
		s->program_fd = program;
		s->process_fd = s->pid_ns_fd = -1;
		s->worker = worker_new("spawner", set_up, s, err);
		/* they were opened before the thread had a table of its own */
		close_fd(s->process_fd);
		close_fd(s->pid_ns_fd);
	}
	if (!s->worker) {
		munmap(s->stacks, 2 * CHILD_STACK);
		free(s);
		return NULL;
	}
	return s;
}

void spawner_free(struct spawner *s)
{
	if (!s)
		return;
	worker_free(s->worker);
	munmap(s->stacks, 2 * CHILD_STACK);
	free(s);
}
