/* SPDX-License-Identifier: Apache-2.0 */
/*
 * From a profile to BPF, and the cache. Peculiar: libseccomp answers every number that it does not
 * know by the default action, so a head of our own stands before its program. It gives ENOSYS for
 * numbers newer than NEWEST (libc's fallbacks then work where EPERM would break them), and knows
 * the system calls that were added after the installed libseccomp. All of it stays within what the
 * kernel's own cache of constant answers understands (seccomp_is_const_allow).
 */
#include "sandbox/linux/seccomp.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/audit.h>
#include <seccomp.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "io/base/alloc.h"
#include "io/base/cleanup.h"
#include "io/offload.h"
#include "sandbox/linux/seccomp_priv.h"

/* Since number 424 all architectures count alike. */
#define NEWEST 469
#define CACHE_MAX 64
/* x32 lies above the rest: this bit, and numbers of its own up to 547. */
#define X32_FIRST 0x40000000u
#define X32_LAST (X32_FIRST + 547)
/* arm's private calls (cacheflush, set_tls…). */
#define ARM_FIRST 0x0f0000u
#define ARM_LAST 0x0f0fffu

/* Newer than libseccomp 2.5.4, the oldest one that is used. */
static const struct {
	const char *name;
	uint32_t number;
} recent[] = {
	{"cachestat", 451},	    {"fchmodat2", 452},	       {"map_shadow_stack", 453},
	{"futex_wake", 454},	    {"futex_wait", 455},       {"futex_requeue", 456},
	{"statmount", 457},	    {"listmount", 458},	       {"lsm_get_self_attr", 459},
	{"lsm_set_self_attr", 460}, {"lsm_list_modules", 461}, {"mseal", 462},
	{"setxattrat", 463},	    {"getxattrat", 464},       {"listxattrat", 465},
	{"removexattrat", 466},	    {"open_tree_attr", 467},   {"file_getattr", 468},
	{"file_setattr", 469},
};

#define RECENT_COUNT (sizeof(recent) / sizeof(recent[0]))

/* Rules for recent calls, which libseccomp can't take. */
struct head {
	uint32_t actions[RECENT_COUNT]; /* valid where has is set */
	bool has[RECENT_COUNT];
};

static int find_recent(const char *name)
{
	for (size_t i = 0; i < RECENT_COUNT; i++)
		if (strcmp(recent[i].name, name) == 0)
			return (int)i;
	return -1;
}

static const char *compile_failed(int r)
{
	return r == -EEXIST ? "another rule says otherwise" : strerrordesc_np(-r);
}

static int add_recent(const struct seccomp_rule *rule, int at, struct head *head, struct error *err)
{
	if (rule->arg_count)
		return error_set(
			err, ERR_UNIMPLEMENTED,
			"seccomp profile: rule for %s: the installed libseccomp is too old for "
			"conditions on its arguments; update it",
			rule->name);
	head->has[at] = true;
	head->actions[at] = rule->action;
	return 0;
}

static int add_rule(scmp_filter_ctx ctx, const struct seccomp_profile *p,
		    const struct seccomp_rule *rule, struct head *head, struct error *err)
{
	static const enum scmp_compare compares[] = {
		[COMPARE_NE] = SCMP_CMP_NE,
		[COMPARE_LT] = SCMP_CMP_LT,
		[COMPARE_LE] = SCMP_CMP_LE,
		[COMPARE_EQ] = SCMP_CMP_EQ,
		[COMPARE_GE] = SCMP_CMP_GE,
		[COMPARE_GT] = SCMP_CMP_GT,
		[COMPARE_MASKED_EQ] = SCMP_CMP_MASKED_EQ,
	};
	struct scmp_arg_cmp args[SECCOMP_ARGS_MAX];
	int number, r;

	if (rule->action == p->default_action)
		return 0;
	number = seccomp_syscall_resolve_name(rule->name);
	if (number == __NR_SCMP_ERROR) {
		int at = find_recent(rule->name);

		return at < 0 ? 0 : add_recent(rule, at, head, err);
	}
	for (unsigned i = 0; i < rule->arg_count; i++)
		args[i] = (struct scmp_arg_cmp){.arg = rule->args[i].index,
						.op = compares[rule->args[i].compare],
						.datum_a = rule->args[i].value,
						.datum_b = rule->args[i].value2};
	r = seccomp_rule_add_array(ctx, rule->action, number, rule->arg_count, args);
	if (r < 0)
		return error_set(err, ERR_INVALID, "seccomp profile: rule for %s: %s", rule->name,
				 compile_failed(r));
	return 0;
}

static int add_arches(scmp_filter_ctx ctx, const struct seccomp_profile *p, struct error *err)
{
	for (size_t i = 0; i < p->arch_count; i++) {
		int r = seccomp_arch_add(ctx, seccomp_arch_resolve_name(p->arches[i]));

		if (r < 0 && r != -EEXIST)
			return error_set(
				err, ERR_INVALID,
				"seccomp profile: architecture %s: it can't be combined with "
				"this machine's",
				p->arches[i]);
	}
	return 0;
}

struct program {
	struct sock_filter code[BPF_MAXINSNS];
	size_t count;
};

static void emit(struct program *b, uint16_t code, uint8_t jt, uint8_t jf, uint32_t k)
{
	b->code[b->count++] = (struct sock_filter)BPF_JUMP(code, k, jt, jf);
}

#define LOAD (BPF_LD | BPF_W | BPF_ABS)
#define JUMP(op) (BPF_JMP | (op) | BPF_K)
#define RETURN (BPF_RET | BPF_K)

/* To what comes after the head; patched by emit_head(). */
static void emit_leave(struct program *b)
{
	emit(b, BPF_JMP | BPF_JA, 0, 0, UINT32_MAX);
}

/* Numbers above NEWEST, but for the ranges that are numbered otherwise. */
static void emit_enosys(struct program *b)
{
	static const uint32_t ranges[][2] = {{X32_FIRST, X32_LAST}, {ARM_FIRST, ARM_LAST}};
	const size_t count = sizeof(ranges) / sizeof(ranges[0]);

	emit(b, JUMP(BPF_JGT), 0, (uint8_t)(3 * count + 1), NEWEST);
	for (size_t i = 0; i < count; i++) {
		emit(b, JUMP(BPF_JGE), 0, 2, ranges[i][0]);
		emit(b, JUMP(BPF_JGT), 1, 0, ranges[i][1]);
		emit_leave(b);
	}
	emit(b, RETURN, 0, 0, SECCOMP_RET_ERRNO | ENOSYS);
}

/* Kinds of "no": where everything is let through, a newer number is too. */
static bool denies(uint32_t action)
{
	switch (action & SECCOMP_RET_ACTION_FULL) {
	case SECCOMP_RET_KILL_PROCESS:
	case SECCOMP_RET_KILL_THREAD:
	case SECCOMP_RET_TRAP:
		return true;
	case SECCOMP_RET_ERRNO:
		return (action & SECCOMP_RET_DATA) != ENOSYS;
	default:
		return false;
	}
}

static void emit_head(struct program *b, const struct seccomp_profile *p, const struct head *head)
{
	uint32_t arches[SECCOMP_ARCHES_MAX + 1] = {seccomp_arch_native()};
	size_t count = 1;

	for (size_t i = 0; i < p->arch_count; i++)
		arches[count++] = seccomp_arch_resolve_name(p->arches[i]);
	emit(b, LOAD, 0, 0, offsetof(struct seccomp_data, arch));
	for (size_t i = 0; i < count; i++)
		emit(b, JUMP(BPF_JEQ), (uint8_t)(count - i), 0, arches[i]);
	emit_leave(b);
	emit(b, LOAD, 0, 0, offsetof(struct seccomp_data, nr));
	if (denies(p->default_action))
		emit_enosys(b);
	for (size_t i = 0; i < RECENT_COUNT; i++) {
		if (!head->has[i])
			continue;
		emit(b, JUMP(BPF_JEQ), 0, 1, recent[i].number);
		emit(b, RETURN, 0, 0, head->actions[i]);
	}
	for (size_t i = 0; i < b->count; i++)
		if (b->code[i].code == (BPF_JMP | BPF_JA))
			b->code[i].k = (uint32_t)(b->count - i - 1);
}

/* The library writes to a descriptor only. */
static int append_library(struct program *b, scmp_filter_ctx ctx, struct error *err)
{
	cleanup_close int fd = memfd_create("seccomp", MFD_CLOEXEC);
	size_t room = (BPF_MAXINSNS - b->count) * sizeof(b->code[0]);
	off_t size;
	int r;

	if (fd < 0)
		return error_errno(err, errno, "memfd for a seccomp filter");
	r = seccomp_export_bpf(ctx, fd);
	if (r < 0)
		return error_errno(err, -r, "compile a seccomp filter");
	size = lseek(fd, 0, SEEK_CUR);
	if (size < 0 || (size_t)size > room)
		return error_set(
			err, ERR_INVALID,
			"seccomp profile: it compiles to more than %d instructions; give it "
			"fewer rules or architectures",
			BPF_MAXINSNS);
	if (pread(fd, b->code + b->count, (size_t)size, 0) != size)
		return error_errno(err, errno, "read a seccomp filter");
	b->count += (size_t)size / sizeof(b->code[0]);
	return 0;
}

static struct seccomp_filter *make_filter(const struct program *b, unsigned flags)
{
	size_t size = b->count * sizeof(b->code[0]);
	struct seccomp_filter *f = xnew(struct seccomp_filter);

	f->code = xmalloc(size);
	memcpy(f->code, b->code, size);
	f->count = b->count;
	f->flags = flags;
	f->refs = 1;
	return f;
}

static int compile_in(scmp_filter_ctx ctx, const struct seccomp_profile *p, struct program *b,
		      struct error *err)
{
	struct head head = {0};

	TRY(add_arches(ctx, p, err));
	for (size_t i = 0; i < p->rule_count; i++)
		TRY(add_rule(ctx, p, &p->rules[i], &head, err));
	/* a binary tree over the numbers instead of a chain */
	(void)seccomp_attr_set(ctx, SCMP_FLTATR_CTL_OPTIMIZE, 2);
	emit_head(b, p, &head);
	return append_library(b, ctx, err);
}

static int compile_profile(const struct seccomp_profile *p, struct seccomp_filter **ret,
			   struct error *err)
{
	cleanup_free struct program *b = xnew(struct program);
	scmp_filter_ctx ctx = seccomp_init(p->default_action);
	int r;

	if (!ctx)
		return error_set(err, ERR_INTERNAL, "libseccomp can't start");
	r = compile_in(ctx, p, b, err);
	seccomp_release(ctx);
	if (r == 0)
		*ret = make_filter(b, p->flags);
	return r;
}

int seccomp_compile(enum seccomp_kind kind, const char *profile, uint64_t capabilities,
		    struct seccomp_filter **ret, struct error *err)
{
	struct seccomp_profile p = {0};
	int r;

	if (kind == SECCOMP_UNCONFINED) {
		*ret = NULL;
		return 0;
	}
	if (kind == SECCOMP_LOCALHOST)
		TRY(seccomp_json_profile(profile, capabilities, &p, err));
	else
		seccomp_default_profile(capabilities, &p);
	r = compile_profile(&p, ret, err);
	seccomp_profile_done(&p);
	return r;
}

struct seccomp_filter *seccomp_filter_ref(struct seccomp_filter *f)
{
	if (f)
		f->refs++;
	return f;
}

void seccomp_filter_unref(struct seccomp_filter *f)
{
	if (!f || --f->refs)
		return;
	free(f->code);
	free(f);
}

/*
 * A cache entry is the job that compiles it, so that those who come meanwhile wait for the same
 * one. The cache holds a reference of its own; the newest use stands first.
 */
struct entry {
	struct job job;
	struct list node;
	bool is_cached;
	enum seccomp_kind kind;
	char *profile;
	size_t length;
	uint64_t capabilities;
	struct seccomp_filter *filter;
};

static struct list cache = {&cache, &cache};
static size_t cache_count;

static int run_entry(struct job *job, struct error *err)
{
	struct entry *e = container_of(job, struct entry, job);

	return seccomp_compile(e->kind, e->profile, e->capabilities, &e->filter, err);
}

static void free_entry(struct job *job)
{
	struct entry *e = container_of(job, struct entry, job);

	seccomp_filter_unref(e->filter);
	free(e->profile);
	free(e);
}

static void uncache(struct entry *e)
{
	if (!e->is_cached)
		return;
	e->is_cached = false;
	list_remove(&e->node);
	cache_count--;
	job_unref(&e->job);
}

void seccomp_cache_done(void)
{
	while (!list_is_empty(&cache))
		uncache(container_of(cache.next, struct entry, node));
}

static struct entry *find_entry(enum seccomp_kind kind, const char *profile, size_t length,
				uint64_t capabilities)
{
	list_for_each(e, &cache, struct entry, node) {
		if (e->kind != kind || e->length != length || e->capabilities != capabilities ||
		    (length && memcmp(e->profile, profile, length) != 0))
			continue;
		list_remove(&e->node);
		list_prepend(&cache, &e->node);
		return e;
	}
	return NULL;
}

static struct entry *start_entry(struct loop *l, enum seccomp_kind kind, const char *profile,
				 size_t length, uint64_t capabilities)
{
	struct entry *e = xnew(struct entry);

	job_init(&e->job, run_entry, free_entry);
	e->kind = kind;
	e->profile = xstrdup_null(profile);
	e->length = length;
	e->capabilities = capabilities;
	e->is_cached = true;
	list_prepend(&cache, &e->node);
	if (++cache_count > CACHE_MAX)
		uncache(container_of(cache.prev, struct entry, node));
	/* the first reference is the cache's, this one is given away */
	atomic_fetch_add(&e->job.refs, 1);
	offload_detached(l, NULL, &e->job);
	return e;
}

static int wait_entry(struct task *t, struct entry *e, struct seccomp_filter **ret)
{
	int r;

	atomic_fetch_add(&e->job.refs, 1);
	r = task_event_wait(t, &e->job.done);
	if (r == 0 && e->job.result < 0) {
		r = error_copy(&t->err, &e->job.err);
		/* not kept: memory may have been short, or a descriptor */
		uncache(e);
	}
	if (r == 0)
		*ret = seccomp_filter_ref(e->filter);
	job_unref(&e->job);
	return r;
}

int seccomp_filter_get(struct task *t, enum seccomp_kind kind, const char *profile,
		       uint64_t capabilities, struct seccomp_filter **ret)
{
	struct entry *e;
	size_t length;

	if (kind == SECCOMP_UNCONFINED) {
		*ret = NULL;
		return 0;
	}
	if (kind == SECCOMP_RUNTIME_DEFAULT) {
		profile = NULL;
		capabilities &= seccomp_default_caps;
	}
	length = profile ? strlen(profile) : 0;
	if (length > SECCOMP_PROFILE_MAX)
		return error_set(&t->err, ERR_INVALID, "seccomp profile: it is larger than 1 MiB");
	e = find_entry(kind, profile, length, capabilities);
	if (e && e->job.done.is_set && e->job.result == 0) {
		*ret = seccomp_filter_ref(e->filter);
		return 0;
	}
	if (e && e->job.done.is_set) {
		/* it failed when nobody waited any more */
		uncache(e);
		e = NULL;
	}
	if (!e)
		e = start_entry(t->loop, kind, profile, length, capabilities);
	return wait_entry(t, e, ret);
}
