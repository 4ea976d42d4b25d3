/* SPDX-License-Identifier: Apache-2.0 */
/*
 * PID 1 of a pod's shared pid namespace. Its SIGCHLD is ignored already, so the kernel reaps what
 * is reparented to it; it has nothing to do but exist. Peculiar: no C library, so that it is a page
 * or two. No signal from inside can end it; the server kills it.
 */
#include <sys/syscall.h>

void _start(void) __attribute__((noreturn, visibility("default")));

#if defined(__x86_64__)
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

void _start(void)
{
	call4(SYS_prctl, PR_SET_DUMPABLE, 0, 0, 0);
	call4(SYS_prctl, PR_SET_NAME, (long)"crisp-pid1", 0, 0);
	for (;;)
		call4(SYS_ppoll, 0, 0, 0, 0);
}
