/* SPDX-License-Identifier: Apache-2.0 */
/* Filters: loaded into children of ours that try system calls, and read by a small interpreter. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <errno.h>
#include <linux/audit.h>
#include <linux/capability.h>
#include <linux/sched.h>
#include <linux/seccomp.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "io/base/buf.h"
#include "io/offload.h"
#include "sandbox/linux/seccomp.h"

#define BIT(cap) (1ull << (cap))

static struct error err;

static struct seccomp_filter *compile(enum seccomp_kind kind, const char *profile, uint64_t caps)
{
	struct seccomp_filter *f = NULL;

	if (seccomp_compile(kind, profile, caps, &f, &err) < 0)
		fail_msg("%s", err.text);
	return f;
}

/* Loads the filter and returns the wait status of a child that exits with the errno of the call. */
static int try(const struct seccomp_filter *f, long nr, unsigned long a, unsigned long b)
{
	struct sock_fprog program = {(unsigned short)f->count, f->code};
	int status;
	pid_t pid = fork();

	if (pid == 0) {
		/* cmocka catches it, and would go on with the tests in here */
		signal(SIGSYS, SIG_DFL);
		alarm(10);
		prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
		if (syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, f->flags, &program) < 0)
			_exit(255);
		errno = 0;
		_exit(syscall(nr, a, b, 0, 0, 0, 0) < 0 ? errno : 0);
	}
	assert_int_equal(waitpid(pid, &status, 0), pid);
	return status;
}

#define assert_gives(f, code, nr, a, b) assert_int_equal(WEXITSTATUS(try(f, nr, a, b)), code)

/* What the program says to a call; as the kernel runs it. */
static uint32_t judge(const struct seccomp_filter *f, uint32_t arch, uint32_t nr, uint64_t arg,
		      uint64_t arg2)
{
	struct seccomp_data data = {.nr = (int)nr, .arch = arch, .args = {arg, arg2}};
	uint32_t a = 0;

	for (size_t pc = 0; pc < f->count;) {
		struct sock_filter i = f->code[pc++];

		switch (i.code) {
		case BPF_LD | BPF_W | BPF_ABS:
			memcpy(&a, (const char *)&data + i.k, 4);
			break;
		case BPF_RET | BPF_K:
			return i.k;
		case BPF_JMP | BPF_JA:
			pc += i.k;
			break;
		case BPF_JMP | BPF_JEQ | BPF_K:
			pc += a == i.k ? i.jt : i.jf;
			break;
		case BPF_JMP | BPF_JGT | BPF_K:
			pc += a > i.k ? i.jt : i.jf;
			break;
		case BPF_JMP | BPF_JGE | BPF_K:
			pc += a >= i.k ? i.jt : i.jf;
			break;
		case BPF_ALU | BPF_AND | BPF_K:
			a &= i.k;
			break;
		default:
			fail_msg("unexpected instruction %#x", i.code);
		}
	}
	fail_msg("the program has no end");
	return 0;
}

static uint32_t run(const struct seccomp_filter *f, uint32_t arch, uint32_t nr, uint64_t arg)
{
	return judge(f, arch, nr, arg, 0);
}

static void the_default_lets_programs_run(void **state)
{
	struct seccomp_filter *f = compile(SECCOMP_RUNTIME_DEFAULT, NULL, 0);

	assert_gives(f, 0, SYS_getpid, 0, 0);
	assert_gives(f, 0, SYS_socket, AF_UNIX, SOCK_STREAM);
	assert_gives(f, 0, SYS_personality, 0xffffffff, 0);
	assert_gives(f, EBADF, SYS_close, 12345, 0);
	/* recent ones reach the kernel, old or new */
	assert_int_not_equal(WEXITSTATUS(try(f, 452, (unsigned long)-1, 0)), EPERM);
	seccomp_filter_unref(f);
}

static void the_default_refuses(void **state)
{
	struct seccomp_filter *f = compile(SECCOMP_RUNTIME_DEFAULT, NULL, 0);

	assert_gives(f, EPERM, SYS_mount, 0, 0);
	assert_gives(f, EPERM, SYS_unshare, CLONE_NEWUSER, 0);
	assert_gives(f, EPERM, SYS_setns, 0, 0);
	assert_gives(f, EPERM, SYS_clone, CLONE_NEWUSER | SIGCHLD, 0);
	assert_gives(f, EPERM, SYS_bpf, 0, 0);
	assert_gives(f, EPERM, SYS_keyctl, 0, 0);
	assert_gives(f, EPERM, SYS_add_key, 0, 0);
	assert_gives(f, EPERM, SYS_userfaultfd, 0, 0);
	assert_gives(f, EPERM, SYS_io_uring_setup, 1, 0);
	assert_gives(f, EPERM, SYS_kexec_load, 0, 0);
	assert_gives(f, EPERM, SYS_chroot, 0, 0);
	assert_gives(f, EPERM, SYS_open_by_handle_at, 0, 0);
	assert_gives(f, EPERM, SYS_personality, 0x40000, 0);
	assert_gives(f, EPERM, SYS_socket, AF_VSOCK, SOCK_STREAM);
	assert_gives(f, EPERM, SYS_socket, AF_ALG, SOCK_SEQPACKET);
	/* the kernel would look at the lower half only */
	assert_gives(f, EPERM, SYS_socket, 1ul << 32 | AF_VSOCK, SOCK_STREAM);
	assert_gives(f, ENOSYS, SYS_clone3, 0, 0);
	assert_gives(f, ENOSYS, 4000, 0, 0);
	assert_gives(f, ENOSYS, 470, 0, 0);
	seccomp_filter_unref(f);
}

static void capabilities_widen_it(void **state)
{
	static const struct {
		int cap;
		long nr;
	} cases[] = {
		{CAP_SYS_ADMIN, SYS_mount},	    {CAP_SYS_ADMIN, SYS_unshare},
		{CAP_SYS_ADMIN, SYS_setns},	    {CAP_SYS_ADMIN, SYS_clone3},
		{CAP_SYS_ADMIN, SYS_bpf},	    {CAP_BPF, SYS_bpf},
		{CAP_PERFMON, SYS_perf_event_open}, {CAP_SYSLOG, SYS_syslog},
		{CAP_SYS_CHROOT, SYS_chroot},	    {CAP_SYS_BOOT, SYS_reboot},
		{CAP_SYS_MODULE, SYS_init_module},  {CAP_SYS_NICE, SYS_mbind},
		{CAP_SYS_PACCT, SYS_acct},	    {CAP_SYS_TIME, SYS_settimeofday},
		{CAP_SYS_PTRACE, SYS_kcmp},	    {CAP_DAC_READ_SEARCH, SYS_open_by_handle_at},
	};
	struct seccomp_filter *none = compile(SECCOMP_RUNTIME_DEFAULT, NULL, 0);

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct seccomp_filter *f =
			compile(SECCOMP_RUNTIME_DEFAULT, NULL, BIT(cases[i].cap));

		assert_int_equal(run(f, AUDIT_ARCH_X86_64, (uint32_t)cases[i].nr, 0),
				 SECCOMP_RET_ALLOW);
		assert_int_not_equal(run(none, AUDIT_ARCH_X86_64, (uint32_t)cases[i].nr, 0),
				     SECCOMP_RET_ALLOW);
		seccomp_filter_unref(f);
	}
	seccomp_filter_unref(none);
}

static void every_architecture_is_judged(void **state)
{
	struct seccomp_filter *f = compile(SECCOMP_RUNTIME_DEFAULT, NULL, 0);

	assert_int_equal(run(f, AUDIT_ARCH_I386, 3, 0), SECCOMP_RET_ALLOW);	     /* read */
	assert_int_equal(run(f, AUDIT_ARCH_I386, 21, 0), SECCOMP_RET_ERRNO | EPERM); /* mount */
	assert_int_equal(run(f, AUDIT_ARCH_I386, 4000, 0), SECCOMP_RET_ERRNO | ENOSYS);
	assert_int_equal(run(f, AUDIT_ARCH_X86_64, 0x40000000, 0), SECCOMP_RET_ALLOW);
	assert_int_equal(run(f, AUDIT_ARCH_X86_64, 0x40000000 + 165, 0), SECCOMP_RET_ERRNO | EPERM);
	assert_int_equal(run(f, AUDIT_ARCH_X86_64, 0x40000000 + 512, 0), SECCOMP_RET_ALLOW);
	assert_int_equal(run(f, AUDIT_ARCH_X86_64, 0x40000000 + 900, 0),
			 SECCOMP_RET_ERRNO | ENOSYS);
	assert_int_equal(run(f, AUDIT_ARCH_X86_64, 0xffffffff, 0), SECCOMP_RET_ERRNO | ENOSYS);
	assert_int_equal(run(f, AUDIT_ARCH_AARCH64, 63, 0), SECCOMP_RET_KILL_THREAD);
	seccomp_filter_unref(f);
}

static void json_rules_work(void **state)
{
	struct seccomp_filter *f = compile(
		SECCOMP_LOCALHOST,
		"{\"defaultAction\": \"SCMP_ACT_ALLOW\","
		" \"architectures\": [\"SCMP_ARCH_X86_64\", \"SCMP_ARCH_X86\", \"SCMP_ARCH_X32\"],"
		" \"flags\": [\"SECCOMP_FILTER_FLAG_LOG\", "
		"\"SECCOMP_FILTER_FLAG_WAIT_KILLABLE_RECV\"],"
		" \"unknownKey\": {},"
		" \"syscalls\": ["
		"  {\"names\": [\"getppid\", \"no_such_call\"], \"action\": \"SCMP_ACT_ERRNO\"},"
		"  {\"names\": [\"getpgrp\"], \"action\": \"SCMP_ACT_ERRNO\", \"errnoRet\": 77},"
		"  {\"name\": \"getuid\", \"action\": \"SCMP_ACT_ERRNO\", \"errnoRet\": 78},"
		"  {\"names\": [\"mseal\"], \"action\": \"SCMP_ACT_ERRNO\", \"errnoRet\": 79},"
		"  {\"names\": [\"close\"], \"action\": \"SCMP_ACT_ERRNO\", \"errnoRet\": 80, "
		"\"args\":"
		"   [{\"index\": 0, \"value\": 100, \"op\": \"SCMP_CMP_GE\"}]},"
		"  {\"names\": [\"dup\"], \"action\": \"SCMP_ACT_ERRNO\", \"errnoRet\": 81, "
		"\"args\":"
		"   [{\"index\": 0, \"value\": 7, \"op\": \"SCMP_CMP_EQ\"},"
		"    {\"index\": 0, \"value\": 9, \"op\": \"SCMP_CMP_EQ\"}]},"
		"  {\"names\": [\"umask\"], \"action\": \"SCMP_ACT_ERRNO\", \"errnoRet\": 82, "
		"\"args\":"
		"   [{\"index\": 0, \"value\": 15, \"valueTwo\": 3, \"op\": "
		"\"SCMP_CMP_MASKED_EQ\"}]},"
		"  {\"names\": [\"sync\"], \"action\": \"SCMP_ACT_KILL_PROCESS\"},"
		"  {\"names\": [\"getgid\"], \"action\": \"SCMP_ACT_TRAP\"},"
		"  {\"names\": [\"getsid\"], \"action\": \"SCMP_ACT_LOG\"},"
		"  {\"names\": [\"getegid\"], \"action\": \"SCMP_ACT_ERRNO\","
		"   \"includes\": {\"caps\": [\"CAP_SYS_TIME\"]}},"
		"  {\"names\": [\"geteuid\"], \"action\": \"SCMP_ACT_ERRNO\","
		"   \"excludes\": {\"caps\": [\"CAP_SYS_TIME\"]}},"
		"  {\"names\": [\"times\"], \"action\": \"SCMP_ACT_ERRNO\","
		"   \"includes\": {\"arches\": [\"s390x\"]}},"
		"  {\"names\": [\"gettid\"], \"action\": \"SCMP_ACT_ERRNO\","
		"   \"includes\": {\"minKernel\": \"99.1\"}}"
		"]}",
		BIT(CAP_SYS_TIME));

	assert_int_equal(f->flags, SECCOMP_FILTER_FLAG_LOG);
	assert_gives(f, EPERM, SYS_getppid, 0, 0);
	assert_gives(f, 77, SYS_getpgrp, 0, 0);
	assert_gives(f, 78, SYS_getuid, 0, 0);
	assert_gives(f, 79, 462, 0, 0);
	assert_gives(f, 80, SYS_close, 100, 0);
	assert_gives(f, EBADF, SYS_close, 99, 0);
	assert_gives(f, 81, SYS_dup, 7, 0);
	assert_gives(f, 81, SYS_dup, 9, 0);
	assert_gives(f, EBADF, SYS_dup, 88, 0);
	assert_gives(f, 82, SYS_umask, 0x13, 0);
	assert_gives(f, 0, SYS_umask, 0x14, 0);
	assert_int_equal(WTERMSIG(try(f, SYS_sync, 0, 0)), SIGSYS);
	assert_int_equal(WTERMSIG(try(f, SYS_getgid, 0, 0)), SIGSYS);
	assert_gives(f, 0, SYS_getsid, 0, 0);
	assert_gives(f, EPERM, SYS_getegid, 0, 0);
	assert_gives(f, 0, SYS_geteuid, 0, 0);
	assert_gives(f, 0, SYS_times, 0, 0);
	assert_gives(f, 0, SYS_gettid, 0, 0);
	/* everything is allowed, so a newer number is the kernel's affair */
	assert_int_equal(run(f, AUDIT_ARCH_X86_64, 4000, 0), SECCOMP_RET_ALLOW);
	seccomp_filter_unref(f);
}

/* All of them, on both halves of an argument, and conditions that must hold together. */
static void each_comparison_works(void **state)
{
	static const struct {
		const char *op;
		uint64_t value, value2;
		uint64_t yes, no;
	} cases[] = {
		{"SCMP_CMP_NE", 7, 0, 8, 7},
		{"SCMP_CMP_LT", 7, 0, 6, 7},
		{"SCMP_CMP_LE", 7, 0, 7, 8},
		{"SCMP_CMP_EQ", 7, 0, 7, 6},
		{"SCMP_CMP_GE", 7, 0, 7, 6},
		{"SCMP_CMP_GT", 7, 0, 8, 7},
		{"SCMP_CMP_MASKED_EQ", 6, 4, 5, 2},
		{"SCMP_CMP_NE", 1ull << 32, 0, 0, 1ull << 32},
		{"SCMP_CMP_LT", 1ull << 32, 0, 0xffffffff, 1ull << 32},
		{"SCMP_CMP_EQ", 1ull << 32, 0, 1ull << 32, 0},
		{"SCMP_CMP_GT", 1ull << 32, 0, 1ull << 33, 0xffffffff},
		{"SCMP_CMP_MASKED_EQ", 3ull << 32, 1ull << 32, 1ull << 32, 3ull << 32},
	};

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct seccomp_filter *f;
		struct buf text = {0};

		buf_printf(&text,
			   "{\"defaultAction\": \"SCMP_ACT_ALLOW\", \"syscalls\": [{\"names\": "
			   "[\"dup\"], \"action\": \"SCMP_ACT_TRACE\", \"errnoRet\": 9, \"args\": "
			   "[{\"index\": 0, \"op\": \"%s\", \"value\": %llu, \"valueTwo\": %llu}, "
			   "{\"index\": 1, \"op\": \"SCMP_CMP_EQ\", \"value\": 3}]}]}",
			   cases[i].op, (unsigned long long)cases[i].value,
			   (unsigned long long)cases[i].value2);
		f = compile(SECCOMP_LOCALHOST, text.data, 0);
		if (judge(f, AUDIT_ARCH_X86_64, SYS_dup, cases[i].yes, 3) !=
			    (SECCOMP_RET_TRACE | 9) ||
		    judge(f, AUDIT_ARCH_X86_64, SYS_dup, cases[i].yes, 4) != SECCOMP_RET_ALLOW ||
		    judge(f, AUDIT_ARCH_X86_64, SYS_dup, cases[i].no, 3) != SECCOMP_RET_ALLOW)
			fail_msg("%s %llx", cases[i].op, (unsigned long long)cases[i].value);
		seccomp_filter_unref(f);
		buf_done(&text);
	}
}

static void a_denying_json_profile_gives_enosys_for_the_future(void **state)
{
	struct seccomp_filter *f = compile(
		SECCOMP_LOCALHOST,
		"{\"defaultAction\": \"SCMP_ACT_ERRNO\", \"defaultErrnoRet\": 5, \"archMap\":"
		" [{\"architecture\": \"SCMP_ARCH_X86_64\", \"subArchitectures\":"
		" [\"SCMP_ARCH_X86\"]}, {\"architecture\": \"SCMP_ARCH_S390X\","
		" \"subArchitectures\": [\"SCMP_ARCH_S390\"]}], \"syscalls\":"
		" [{\"names\": [\"exit_group\", \"fchmodat2\"], \"action\": \"SCMP_ACT_ALLOW\"}]}",
		0);

	/* interpreted, since a sanitizer's child does more than what this allows */
	assert_int_equal(run(f, AUDIT_ARCH_X86_64, SYS_getpid, 0), SECCOMP_RET_ERRNO | 5);
	assert_int_equal(run(f, AUDIT_ARCH_X86_64, 4000, 0), SECCOMP_RET_ERRNO | ENOSYS);
	assert_int_equal(run(f, AUDIT_ARCH_X86_64, 452, 0), SECCOMP_RET_ALLOW);
	assert_int_equal(run(f, AUDIT_ARCH_X86_64, 453, 0), SECCOMP_RET_ERRNO | 5);
	assert_int_equal(run(f, AUDIT_ARCH_I386, 1, 0), SECCOMP_RET_ERRNO | 5);
	seccomp_filter_unref(f);
}

static void bad_json_is_refused_with_its_place(void **state)
{
	static const struct {
		const char *text, *place;
	} cases[] = {
		{"", "empty"},
		{"{", "line 1"},
		{"[]", "no object"},
		{"{}", "defaultAction"},
		{"{\"defaultAction\": \"ALLOW\"}", "defaultAction: unknown"},
		{"{\"defaultAction\": \"SCMP_ACT_NOTIFY\"}", "agent"},
		{"{\"defaultAction\": \"SCMP_ACT_ALLOW\", \"listenerPath\": \"/x\"}",
		 "listenerPath"},
		{"{\"defaultAction\": \"SCMP_ACT_ALLOW\", \"flags\": [\"X\"]}", "flags"},
		{"{\"defaultAction\": \"SCMP_ACT_ALLOW\", \"architectures\": [\"X\"]}",
		 "architectures"},
		{"{\"defaultAction\": \"SCMP_ACT_ALLOW\", \"syscalls\": {}}", "syscalls"},
		{"{\"defaultAction\": \"SCMP_ACT_ALLOW\", \"syscalls\": [{}]}",
		 "syscalls[0].action"},
		{"{\"defaultAction\": \"SCMP_ACT_ALLOW\", \"syscalls\": [{\"action\":"
		 " \"SCMP_ACT_ERRNO\"}]}",
		 "syscalls[0].names"},
		{"{\"defaultAction\": \"SCMP_ACT_ALLOW\", \"syscalls\": [{\"action\":"
		 " \"SCMP_ACT_ERRNO\", \"names\": [5]}]}",
		 "syscalls[0].names"},
		{"{\"defaultAction\": \"SCMP_ACT_ALLOW\", \"syscalls\": [{\"action\":"
		 " \"SCMP_ACT_ERRNO\", \"errnoRet\": 70000, \"names\": [\"dup\"]}]}",
		 "syscalls[0].action"},
		{"{\"defaultAction\": \"SCMP_ACT_ALLOW\", \"syscalls\": [{\"action\":"
		 " \"SCMP_ACT_ERRNO\", \"names\": [\"dup\"], \"args\": [{\"index\": 6, \"value\": "
		 "1,"
		 " \"op\": \"SCMP_CMP_EQ\"}]}]}",
		 "syscalls[0].args[0]"},
		{"{\"defaultAction\": \"SCMP_ACT_ALLOW\", \"syscalls\": [{\"action\":"
		 " \"SCMP_ACT_ERRNO\", \"names\": [\"dup\"], \"args\": [{\"index\": 0, \"value\": "
		 "1,"
		 " \"op\": \"==\"}]}]}",
		 "syscalls[0].args[0]"},
	};
	struct seccomp_filter *f = NULL;
	struct buf deep = {0};

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		assert_int_equal(seccomp_compile(SECCOMP_LOCALHOST, cases[i].text, 0, &f, &err),
				 -ERR_INVALID);
		if (!strstr(err.text, cases[i].place))
			fail_msg("\"%s\" lacks \"%s\"", err.text, cases[i].place);
	}
	assert_int_equal(seccomp_compile(SECCOMP_LOCALHOST, NULL, 0, &f, &err), -ERR_INVALID);
	for (int i = 0; i < 100000; i++)
		buf_puts(&deep, "[");
	assert_int_equal(seccomp_compile(SECCOMP_LOCALHOST, deep.data, 0, &f, &err), -ERR_INVALID);
	buf_done(&deep);
	assert_null(f);
}

static struct loop *l;
static int finished;

struct asker {
	struct seccomp_filter *filter;
	const char *profile;
	int result;
	bool is_cancelled;
};

static void ask(struct task *t, void *arg)
{
	struct asker *a = arg;

	if (a->is_cancelled)
		task_cancel(t);
	a->result = seccomp_filter_get(t, a->profile ? SECCOMP_LOCALHOST : SECCOMP_RUNTIME_DEFAULT,
				       a->profile, BIT(CAP_CHOWN), &a->filter);
	if (--finished == 0)
		loop_stop(l);
}

static void ask_all(struct asker *askers, size_t n)
{
	finished = (int)n;
	for (size_t i = 0; i < n; i++)
		task_start(l, "ask", ask, &askers[i]);
	loop_run(l);
}

static void the_cache_compiles_once(void **state)
{
	struct asker first[4] = {[0] = {.is_cancelled = true}}, second[1] = {0};
	struct asker bad[2] = {{.profile = "{"}, {.profile = "{"}};

	l = loop_new(&err);
	ask_all(first, 4);
	assert_int_equal(first[0].result, -ERR_CANCELLED);
	for (int i = 1; i < 4; i++) {
		assert_int_equal(first[i].result, 0);
		assert_ptr_equal(first[i].filter, first[1].filter);
	}
	ask_all(second, 1);
	assert_ptr_equal(second[0].filter, first[1].filter);
	assert_int_equal(first[1].filter->refs, 5);
	ask_all(bad, 2);
	assert_int_equal(bad[0].result, -ERR_INVALID);
	assert_int_equal(bad[1].result, -ERR_INVALID);
	for (int i = 1; i < 4; i++)
		seccomp_filter_unref(first[i].filter);
	seccomp_cache_done();
	assert_int_equal(second[0].filter->refs, 1);
	seccomp_filter_unref(second[0].filter);
	offload_shutdown();
	loop_free(l);
	task_pool_trim();
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(the_default_lets_programs_run),
		cmocka_unit_test(the_default_refuses),
		cmocka_unit_test(capabilities_widen_it),
		cmocka_unit_test(every_architecture_is_judged),
		cmocka_unit_test(json_rules_work),
		cmocka_unit_test(each_comparison_works),
		cmocka_unit_test(a_denying_json_profile_gives_enosys_for_the_future),
		cmocka_unit_test(bad_json_is_refused_with_its_place),
		cmocka_unit_test(the_cache_compiles_once),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
