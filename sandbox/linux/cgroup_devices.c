/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which devices a group may open: by a BPF program on the v2 group (it counts in hybrid mode too),
 * by the devices controller where v2 is not mounted. Peculiar: nearly all containers have the same
 * list, so its program is kept.
 */
#include "sandbox/linux/cgroup_priv.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/bpf.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>

#include "io/base/alloc.h"
#include "io/base/cleanup.h"

#define ATTACHED_MAX 64
#define RULE_INSNS 9

/* What every container has. Making nodes is harmless as long as they can't be opened. */
static const struct cgroup_device defaults[] = {
	{'c', -1, -1, "m"},    {'b', -1, -1, "m"}, {'c', 1, 3, "rwm"}, /* null */
	{'c', 1, 5, "rwm"},					       /* zero */
	{'c', 1, 7, "rwm"},					       /* full */
	{'c', 1, 8, "rwm"},					       /* random */
	{'c', 1, 9, "rwm"},					       /* urandom */
	{'c', 5, 0, "rwm"},					       /* tty */
	{'c', 5, 1, "rwm"},					       /* console */
	{'c', 5, 2, "rwm"},					       /* ptmx */
	{'c', 136, -1, "rwm"},					       /* pts */
};

#define DEFAULT_COUNT (sizeof(defaults) / sizeof(defaults[0]))

static int bpf(int command, union bpf_attr *attr)
{
	return (int)syscall(SYS_bpf, command, attr, sizeof(*attr));
}

static struct bpf_insn *op(struct bpf_insn *at, uint8_t code, uint8_t dst, uint8_t src, int16_t off,
			   int32_t imm)
{
	*at = (struct bpf_insn){
		.code = code, .dst_reg = dst & 0xf, .src_reg = src & 0xf, .off = off, .imm = imm};
	return at + 1;
}

static uint32_t access_bits(const char *access)
{
	return (strchr(access, 'r') ? BPF_DEVCG_ACC_READ : 0) |
	       (strchr(access, 'w') ? BPF_DEVCG_ACC_WRITE : 0) |
	       (strchr(access, 'm') ? BPF_DEVCG_ACC_MKNOD : 0);
}

#define JUMP_UNLESS_IMM (BPF_JMP | BPF_JNE | BPF_K)

/* r2 type, r3 access asked for, r4 major, r5 minor. Each test that fails goes to the next rule,
 * whose distance is known when the rule is complete. */
static struct bpf_insn *emit_rule(struct bpf_insn *at, const struct cgroup_device *d)
{
	struct bpf_insn *first = at;

	at = op(at, JUMP_UNLESS_IMM, BPF_REG_2, 0, 0,
		d->type == 'b' ? BPF_DEVCG_DEV_BLOCK : BPF_DEVCG_DEV_CHAR);
	at = op(at, BPF_ALU64 | BPF_MOV | BPF_X, BPF_REG_0, BPF_REG_3, 0, 0);
	at = op(at, BPF_ALU64 | BPF_AND | BPF_K, BPF_REG_0, 0, 0, (int32_t)~access_bits(d->access));
	at = op(at, JUMP_UNLESS_IMM, BPF_REG_0, 0, 0, 0);
	if (d->major >= 0)
		at = op(at, JUMP_UNLESS_IMM, BPF_REG_4, 0, 0, d->major);
	if (d->minor >= 0)
		at = op(at, JUMP_UNLESS_IMM, BPF_REG_5, 0, 0, d->minor);
	at = op(at, BPF_ALU64 | BPF_MOV | BPF_K, BPF_REG_0, 0, 0, 1);
	at = op(at, BPF_JMP | BPF_EXIT, 0, 0, 0, 0);
	for (struct bpf_insn *i = first; i < at; i++)
		if (i->code == JUMP_UNLESS_IMM)
			i->off = (int16_t)(at - i - 1);
	return at;
}

static struct bpf_insn *emit_load(struct bpf_insn *at, uint8_t reg, size_t offset)
{
	return op(at, BPF_LDX | BPF_MEM | BPF_W, reg, BPF_REG_1, (int16_t)offset, 0);
}

struct bpf_insn *cgroup_devices_program(const struct cgroup_device *extra, size_t count,
					size_t *ret_count)
{
	struct bpf_insn *code = xcalloc(RULE_INSNS * (DEFAULT_COUNT + count) + 16, sizeof(*code));
	struct bpf_insn *at = code;

	at = emit_load(at, BPF_REG_2, offsetof(struct bpf_cgroup_dev_ctx, access_type));
	at = emit_load(at, BPF_REG_4, offsetof(struct bpf_cgroup_dev_ctx, major));
	at = emit_load(at, BPF_REG_5, offsetof(struct bpf_cgroup_dev_ctx, minor));
	at = op(at, BPF_ALU64 | BPF_MOV | BPF_X, BPF_REG_3, BPF_REG_2, 0, 0);
	at = op(at, BPF_ALU64 | BPF_RSH | BPF_K, BPF_REG_3, 0, 0, 16);
	at = op(at, BPF_ALU64 | BPF_AND | BPF_K, BPF_REG_2, 0, 0, 0xffff);
	for (size_t i = 0; i < DEFAULT_COUNT; i++)
		at = emit_rule(at, &defaults[i]);
	for (size_t i = 0; i < count; i++)
		at = emit_rule(at, &extra[i]);
	at = op(at, BPF_ALU64 | BPF_MOV | BPF_K, BPF_REG_0, 0, 0, 0);
	at = op(at, BPF_JMP | BPF_EXIT, 0, 0, 0, 0);
	*ret_count = (size_t)(at - code);
	return code;
}

static int load_program(const struct cgroup_device *extra, size_t count)
{
	size_t length;
	cleanup_free struct bpf_insn *code = cgroup_devices_program(extra, count, &length);
	union bpf_attr attr = {.prog_type = BPF_PROG_TYPE_CGROUP_DEVICE};
	int fd;

	attr.insns = (uintptr_t)code;
	attr.insn_cnt = (uint32_t)length;
	attr.license = (uintptr_t) "Apache-2.0";
	snprintf(attr.prog_name, sizeof(attr.prog_name), "crisp_devices");
	fd = bpf(BPF_PROG_LOAD, &attr);
	return fd < 0 ? -errno : fd;
}

int cgroup_devices_try(void)
{
	cleanup_close int fd = load_program(NULL, 0);

	return fd < 0 ? fd : 0;
}

/* The program of the list without extras; a descriptor of its own, or a negative errno. */
static int default_program(struct cgroups *cg)
{
	int fd;

	pthread_mutex_lock(&cg->devices_lock);
	if (cg->devices_program < 0)
		cg->devices_program = load_program(NULL, 0);
	fd = cg->devices_program;
	if (fd >= 0) {
		fd = fcntl(fd, F_DUPFD_CLOEXEC, 0);
		fd = fd < 0 ? -errno : fd;
	}
	pthread_mutex_unlock(&cg->devices_lock);
	return fd;
}

/* What was attached before goes after the new one is there, so that there is no gap. */
static int attach(int dir, int program)
{
	uint32_t ids[ATTACHED_MAX];
	union bpf_attr query = {.query = {.target_fd = (uint32_t)dir,
					  .attach_type = BPF_CGROUP_DEVICE,
					  .prog_ids = (uintptr_t)ids,
					  .prog_cnt = ATTACHED_MAX}};
	union bpf_attr attr = {.target_fd = (uint32_t)dir,
			       .attach_bpf_fd = (uint32_t)program,
			       .attach_type = BPF_CGROUP_DEVICE,
			       .attach_flags = BPF_F_ALLOW_MULTI};

	if (bpf(BPF_PROG_QUERY, &query) < 0)
		return -errno;
	/* EINVAL: this very program is attached already */
	if (bpf(BPF_PROG_ATTACH, &attr) < 0)
		return errno == EINVAL && query.query.prog_cnt ? 0 : -errno;
	for (uint32_t i = 0; i < query.query.prog_cnt; i++) {
		union bpf_attr by_id = {.prog_id = ids[i]};
		cleanup_close int old = bpf(BPF_PROG_GET_FD_BY_ID, &by_id);
		union bpf_attr detach = {.target_fd = (uint32_t)dir,
					 .attach_bpf_fd = (uint32_t)old,
					 .attach_type = BPF_CGROUP_DEVICE};

		if (old >= 0)
			(void)bpf(BPF_PROG_DETACH, &detach);
	}
	return 0;
}

static int restrict_v2(struct cgroups *cg, const char *path, const struct cgroup_device *extra,
		       size_t count)
{
	cleanup_close int dir = cgroup_open(&cg->hierarchies[cg->v2], path);
	cleanup_close int program = -1;

	if (dir < 0)
		return dir;
	program = count ? load_program(extra, count) : default_program(cg);
	return program < 0 ? program : attach(dir, program);
}

static int number(char *text, size_t size, int value)
{
	return value < 0 ? snprintf(text, size, "*") : snprintf(text, size, "%d", value);
}

static int allow_v1(int dir, const struct cgroup_device *d)
{
	char major[16], minor[16], text[64];

	number(major, sizeof(major), d->major);
	number(minor, sizeof(minor), d->minor);
	snprintf(text, sizeof(text), "%c %s:%s %.3s", d->type, major, minor, d->access);
	return cgroup_write(dir, "devices.allow", text);
}

static int restrict_v1(struct cgroups *cg, const char *path, const struct cgroup_device *extra,
		       size_t count)
{
	cleanup_close int dir = cgroup_open(&cg->hierarchies[cg->of[CONTROLLER_DEVICES]], path);
	int r = dir < 0 ? dir : cgroup_write(dir, "devices.deny", "a");

	for (size_t i = 0; r == 0 && i < DEFAULT_COUNT; i++)
		r = allow_v1(dir, &defaults[i]);
	for (size_t i = 0; r == 0 && i < count; i++)
		r = allow_v1(dir, &extra[i]);
	return r;
}

int cgroup_apply_devices(struct cgroups *cg, const char *path, const struct cgroup_device *extra,
			 size_t count, struct error *err)
{
	int r;

	if (cg->v2 < 0 && cg->of[CONTROLLER_DEVICES] < 0)
		return error_set(
			err, ERR_PRECONDITION,
			"devices of cgroup %s: the node has neither cgroup v2 nor the devices "
			"controller",
			path);
	r = cg->v2 >= 0 ? restrict_v2(cg, path, extra, count) : restrict_v1(cg, path, extra, count);
	if (r == -ENOENT)
		return error_set(err, ERR_PRECONDITION, "devices of cgroup %s: it is gone", path);
	if (r == -ENOSYS || r == -EINVAL)
		return error_set(
			err, ERR_PRECONDITION,
			"devices of cgroup %s: the kernel refuses the BPF program; it needs "
			"CONFIG_CGROUP_BPF",
			path);
	return r < 0 ? error_errno(err, -r, "devices of cgroup %s", path) : 0;
}
