/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The helper's beginning and its system calls, under the names that the C library's headers give
 * them. Peculiar: nothing of the C library itself is linked. What that does before main() costs
 * more than all that an exec needs, most of it for asking the processor what it is, which is slow
 * in a virtual machine; and a program of a few pages has few page faults.
 */
#undef _FORTIFY_SOURCE
#include <elf.h>
#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <sched.h>
#include <signal.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/vfs.h>
#include <unistd.h>

#include "sandbox/linux/init/helper.h"

int main(void);

/* What the compiler puts on the stack before what could overrun it, random for each run. */
uintptr_t __stack_chk_guard;
void __stack_chk_fail(void) __attribute__((noreturn));
void start(const uintptr_t *stack) __attribute__((noreturn, used, no_stack_protector));
/* Bounds that the compiler has seen (_FORTIFY_SOURCE). */
void *__memcpy_chk(void *to, const void *from, size_t n, size_t size);
int __snprintf_chk(char *to, size_t n, int flag, size_t size, const char *format, ...)
	__attribute__((format(printf, 5, 6)));

#if defined(__x86_64__)
__asm__(".globl _start\n"
	"_start:\n\t"
	"xor %ebp, %ebp\n\t"
	"mov %rsp, %rdi\n\t"
	"and $-16, %rsp\n\t"
	"call start\n");

static long raw(long number, long a, long b, long c, long d, long e, long f)
{
	register long r10 __asm__("r10") = d, r8 __asm__("r8") = e, r9 __asm__("r9") = f;
	long result;

	__asm__ volatile("syscall"
			 : "=a"(result)
			 : "a"(number), "D"(a), "S"(b), "d"(c), "r"(r10), "r"(r8), "r"(r9)
			 : "rcx", "r11", "memory");
	return result;
}
#elif defined(__aarch64__)
__asm__(".globl _start\n"
	"_start:\n\t"
	"mov x29, #0\n\t"
	"mov x30, #0\n\t"
	"mov x0, sp\n\t"
	"b start\n");

static long raw(long number, long a, long b, long c, long d, long e, long f)
{
	register long x8 __asm__("x8") = number, x0 __asm__("x0") = a, x1 __asm__("x1") = b;
	register long x2 __asm__("x2") = c, x3 __asm__("x3") = d, x4 __asm__("x4") = e;
	register long x5 __asm__("x5") = f;

	__asm__ volatile("svc 0"
			 : "+r"(x0)
			 : "r"(x8), "r"(x1), "r"(x2), "r"(x3), "r"(x4), "r"(x5)
			 : "memory");
	return x0;
}
#else
#error "the init helper has no system call for this processor"
#endif

int *__errno_location(void)
{
	static int error;

	return &error;
}

static long result_of(long result)
{
	if (result >= 0 || result < -4095)
		return result;
	errno = (int)-result;
	return -1;
}

#define CALL6(name, a, b, c, d, e, f)                                                              \
	result_of(raw(SYS_##name, (long)(a), (long)(b), (long)(c), (long)(d), (long)(e), (long)(f)))
#define CALL5(name, a, b, c, d, e) CALL6(name, a, b, c, d, e, 0)
#define CALL4(name, a, b, c, d) CALL6(name, a, b, c, d, 0, 0)
#define CALL3(name, a, b, c) CALL6(name, a, b, c, 0, 0, 0)
#define CALL2(name, a, b) CALL6(name, a, b, 0, 0, 0, 0)
#define CALL1(name, a) CALL6(name, a, 0, 0, 0, 0, 0)

void _exit(int status)
{
	for (;;)
		CALL1(exit_group, status);
}

void start(const uintptr_t *stack)
{
	const uintptr_t *at = stack + 1 + stack[0] + 1;

	while (*at++)
		;
	for (; at[0] != AT_NULL; at += 2)
		if (at[0] == AT_RANDOM)
			memcpy(&__stack_chk_guard, (const void *)at[1], sizeof(__stack_chk_guard));
	/* so that no string can be the whole of it */
	__stack_chk_guard &= ~(uintptr_t)0xff;
	_exit(main());
}

static void die(void)
{
	raw(SYS_kill, raw(SYS_getpid, 0, 0, 0, 0, 0, 0), SIGKILL, 0, 0, 0, 0);
	_exit(INIT_EXIT_NEVER_RAN);
}

void __stack_chk_fail(void)
{
	die();
	__builtin_unreachable();
}

void *__memcpy_chk(void *to, const void *from, size_t n, size_t size)
{
	if (n > size)
		die();
	return memcpy(to, from, n);
}

int __snprintf_chk(char *to, size_t n, int flag, size_t size, const char *format, ...)
{
	va_list args;
	int length;

	if (n > size)
		die();
	va_start(args, format);
	length = vsnprintf(to, n, format, args);
	va_end(args);
	return length;
}

long syscall(long number, ...)
{
	va_list args;
	long arg[6];

	va_start(args, number);
	for (int i = 0; i < 6; i++)
		arg[i] = va_arg(args, long);
	va_end(args);
	return result_of(raw(number, arg[0], arg[1], arg[2], arg[3], arg[4], arg[5]));
}

int openat(int dir, const char *path, int flags, ...)
{
	va_list args;
	unsigned mode;

	va_start(args, flags);
	mode = flags & (O_CREAT | O_TMPFILE) ? va_arg(args, unsigned) : 0;
	va_end(args);
	return (int)CALL4(openat, dir, path, flags, mode);
}

/* Never with O_CREAT: the helper makes files in directories that it has. */
int open(const char *path, int flags, ...)
{
	return openat(AT_FDCWD, path, flags & ~O_CREAT);
}

int close(int fd)
{
	return (int)CALL1(close, fd);
}

ssize_t write(int fd, const void *data, size_t size)
{
	return CALL3(write, fd, data, size);
}

int dup2(int from, int to)
{
	return from == to ? to : (int)CALL3(dup3, from, to, 0);
}

int fcntl(int fd, int command, ...)
{
	va_list args;
	long arg;

	va_start(args, command);
	arg = va_arg(args, long);
	va_end(args);
	return (int)CALL3(fcntl, fd, command, arg);
}

int ioctl(int fd, unsigned long request, ...)
{
	va_list args;
	long arg;

	va_start(args, request);
	arg = va_arg(args, long);
	va_end(args);
	return (int)CALL3(ioctl, fd, request, arg);
}

/* The C library's structures are the kernel's on these processors. */
int fstat(int fd, struct stat *st)
{
	return (int)CALL2(fstat, fd, st);
}

int fstatat(int dir, const char *restrict path, struct stat *restrict st, int flags)
{
	return (int)CALL4(newfstatat, dir, path, st, flags);
}

int fstatfs(int fd, struct statfs *fs)
{
	return (int)CALL2(fstatfs, fd, fs);
}

int fchown(int fd, uid_t uid, gid_t gid)
{
	return (int)CALL3(fchown, fd, uid, gid);
}

int fchownat(int dir, const char *path, uid_t uid, gid_t gid, int flags)
{
	return (int)CALL5(fchownat, dir, path, uid, gid, flags);
}

int mkdirat(int dir, const char *path, mode_t mode)
{
	return (int)CALL3(mkdirat, dir, path, mode);
}

int mknodat(int dir, const char *path, mode_t mode, dev_t device)
{
	return (int)CALL4(mknodat, dir, path, mode, device);
}

int symlinkat(const char *text, int dir, const char *path)
{
	return (int)CALL3(symlinkat, text, dir, path);
}

ssize_t readlinkat(int dir, const char *restrict path, char *restrict text, size_t size)
{
	return CALL4(readlinkat, dir, path, text, size);
}

mode_t umask(mode_t mask)
{
	return (mode_t)CALL1(umask, mask);
}

int chdir(const char *path)
{
	return (int)CALL1(chdir, path);
}

int fchdir(int fd)
{
	return (int)CALL1(fchdir, fd);
}

int execve(const char *path, char *const argv[], char *const envp[])
{
	return (int)CALL3(execve, path, argv, envp);
}

void *mmap(void *address, size_t size, int protection, int flags, int fd, off_t offset)
{
	/* NOLINTNEXTLINE(performance-no-int-to-ptr) */
	return (void *)CALL6(mmap, address, size, protection, flags, fd, offset);
}

int umount2(const char *path, int flags)
{
	return (int)CALL2(umount2, path, flags);
}

int open_tree(int dir, const char *path, unsigned flags)
{
	return (int)CALL3(open_tree, dir, path, flags);
}

int move_mount(int from, const char *from_path, int to, const char *to_path, unsigned flags)
{
	return (int)CALL5(move_mount, from, from_path, to, to_path, flags);
}

int mount_setattr(int dir, const char *path, unsigned flags, struct mount_attr *attr, size_t size)
{
	return (int)CALL5(mount_setattr, dir, path, flags, attr, size);
}

int fsopen(const char *type, unsigned flags)
{
	return (int)CALL2(fsopen, type, flags);
}

int fsconfig(int fd, unsigned command, const char *key, const void *value, int extra)
{
	return (int)CALL5(fsconfig, fd, command, key, value, extra);
}

int fsmount(int fd, unsigned flags, unsigned attributes)
{
	return (int)CALL3(fsmount, fd, flags, attributes);
}

ssize_t send(int fd, const void *data, size_t size, int flags)
{
	return CALL6(sendto, fd, data, size, flags, NULL, 0);
}

ssize_t sendmsg(int fd, const struct msghdr *message, int flags)
{
	return CALL3(sendmsg, fd, message, flags);
}

ssize_t recv(int fd, void *data, size_t size, int flags)
{
	return CALL6(recvfrom, fd, data, size, flags, NULL, NULL);
}

int setns(int fd, int type)
{
	return (int)CALL2(setns, fd, type);
}

int unshare(int flags)
{
	return (int)CALL1(unshare, flags);
}

int sethostname(const char *name, size_t length)
{
	return (int)CALL2(sethostname, name, length);
}

pid_t setsid(void)
{
	return (pid_t)CALL1(setsid, 0);
}

int setgroups(size_t count, const gid_t *groups)
{
	return (int)CALL2(setgroups, count, groups);
}

int setresuid(uid_t real, uid_t effective, uid_t saved)
{
	return (int)CALL3(setresuid, real, effective, saved);
}

int setresgid(gid_t real, gid_t effective, gid_t saved)
{
	return (int)CALL3(setresgid, real, effective, saved);
}

int prctl(int option, ...)
{
	va_list args;
	long arg[4];

	va_start(args, option);
	for (int i = 0; i < 4; i++)
		arg[i] = va_arg(args, long);
	va_end(args);
	return (int)CALL5(prctl, option, arg[0], arg[1], arg[2], arg[3]);
}

int getrlimit(__rlimit_resource_t resource, struct rlimit *limit)
{
	return (int)CALL4(prlimit64, 0, resource, NULL, limit);
}

int setrlimit(__rlimit_resource_t resource, const struct rlimit *limit)
{
	return (int)CALL4(prlimit64, 0, resource, limit, NULL);
}

/* Only to ignore and to let be: a handler would need a way back. */
int sigaction(int sig, const struct sigaction *restrict new, struct sigaction *restrict old)
{
	struct {
		void (*handler)(int);
		unsigned long flags;
		void (*restorer)(void);
		uint64_t mask;
	} action = {.handler = new->sa_handler};

	return (int)CALL4(rt_sigaction, sig, &action, NULL, sizeof(action.mask));
}

int sigemptyset(sigset_t *set)
{
	memset(set, 0, sizeof(*set));
	return 0;
}

int sigprocmask(int how, const sigset_t *restrict set, sigset_t *restrict old)
{
	/* the kernel's set is the beginning of the C library's */
	return (int)CALL4(rt_sigprocmask, how, set, old, sizeof(uint64_t));
}
