/* SPDX-License-Identifier: Apache-2.0 */
/*
 * PID 1 of a pod's shared pid namespace. Its SIGCHLD is ignored already, so the kernel reaps what
 * is reparented to it; it has nothing to do but exist. Peculiar: no C library, so that it is a page
 * or two. No signal from inside can end it; the server kills it. Who may trace it from inside would
 * get rid of its own seccomp filter there, so it has one that lets it wait and nothing else.
 */
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <sys/syscall.h>

void _start(void) __attribute__((noreturn, visibility("default")));

#if defined(__x86_64__)
#define ARCH AUDIT_ARCH_X86_64
static long call4(long number, long a, long b, long c, long d)
{
	register long r10 __asm__("r10") = d;
	long result;

	__asm__ volatile("syscall"
			 : "=a"(result)
			 : "a"(number), "D"(a), "S"(b), "d"(c), "r"(r10)
			 : "rcx", "r11", "memory");
	return result;
}
#elif defined(__aarch64__)
#define ARCH AUDIT_ARCH_AARCH64
static long call4(long number, long a, long b, long c, long d)
{
	register long x8 __asm__("x8") = number, x0 __asm__("x0") = a, x1 __asm__("x1") = b;
	register long x2 __asm__("x2") = c, x3 __asm__("x3") = d;

	__asm__ volatile("svc 0" : "+r"(x0) : "r"(x8), "r"(x1), "r"(x2), "r"(x3) : "memory");
	return x0;
}
#else
#error "PID 1 has no system call for this processor"
#endif

#define PR_SET_DUMPABLE 4
#define PR_SET_NAME 15
#define PR_SET_SECCOMP 22
#define EPERM 1

static const struct sock_filter filter[] = {
	BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, arch)),
	BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, ARCH, 0, 3),
	BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
	BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_ppoll, 0, 1),
	BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
	BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
};

void _start(void)
{
	struct sock_fprog program = {sizeof(filter) / sizeof(filter[0]),
				     (struct sock_filter *)filter};

	call4(SYS_prctl, PR_SET_DUMPABLE, 0, 0, 0);
	call4(SYS_prctl, PR_SET_NAME, (long)"crisp-pid1", 0, 0);
	call4(SYS_prctl, PR_SET_SECCOMP, SECCOMP_MODE_FILTER, (long)&program, 0);
	for (;;)
		call4(SYS_ppoll, 0, 0, 0, 0);
}
