/* SPDX-License-Identifier: Apache-2.0 */
/* Which devices a container gets, and what the program that guards them decides: run here by a
 * small interpreter of the few instructions that it has. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>
#include <cmocka.h>
#include <linux/bpf.h>

#include "io/base/alloc.h"
#include "sandbox/linux/cgroup_priv.h"
#include "sandbox/linux/devices.h"

/* What it returns for a context; it has to end, and may touch nothing else. */
static uint64_t run(const struct bpf_insn *code, size_t count, const struct bpf_cgroup_dev_ctx *ctx)
{
	uint64_t r[11] = {0};

	for (size_t at = 0; at < count; at++) {
		const struct bpf_insn *i = &code[at];

		switch (i->code) {
		case BPF_LDX | BPF_MEM | BPF_W:
			assert_int_equal(i->src_reg, BPF_REG_1);
			assert_in_range(i->off, 0, sizeof(*ctx) - 4);
			r[i->dst_reg] =
				*(const uint32_t *)(const void *)((const char *)ctx + i->off);
			break;
		case BPF_ALU64 | BPF_MOV | BPF_X:
			r[i->dst_reg] = r[i->src_reg];
			break;
		case BPF_ALU64 | BPF_MOV | BPF_K:
			r[i->dst_reg] = (uint64_t)(int64_t)i->imm;
			break;
		case BPF_ALU64 | BPF_AND | BPF_K:
			r[i->dst_reg] &= (uint64_t)(int64_t)i->imm;
			break;
		case BPF_ALU64 | BPF_RSH | BPF_K:
			r[i->dst_reg] >>= i->imm;
			break;
		case BPF_JMP | BPF_JNE | BPF_K:
			assert_true(i->off >= 0);
			if (r[i->dst_reg] != (uint64_t)(int64_t)i->imm)
				at += (size_t)i->off;
			break;
		case BPF_JMP | BPF_EXIT:
			return r[0];
		default:
			fail_msg("instruction %02x at %zu", i->code, at);
		}
	}
	fail_msg("it does not end");
	return 0;
}

#define R BPF_DEVCG_ACC_READ
#define W BPF_DEVCG_ACC_WRITE
#define M BPF_DEVCG_ACC_MKNOD

static void the_program_decides_as_it_was_told(void **state)
{
	static const struct cgroup_device extra[] = {{'c', 10, 229, "rw"},
						     {'b', 8, -1, "r"},
						     {'c', 1, 11, "w"},
						     {'c', 511, 1048575, "rm"}};
	static const struct {
		char type;
		unsigned major, minor;
		unsigned access;
		bool plain, with_extra; /* whether it may */
	} cases[] = {
		{'c', 1, 3, R | W, true, true},	      {'c', 1, 3, R | W | M, true, true},
		{'b', 1, 3, R, false, false},	      {'c', 1, 4, R, false, false},
		{'c', 5, 0, R | W, true, true},	      {'c', 136, 77, R | W, true, true},
		{'c', 137, 77, R, false, false},      {'c', 77, 1, M, true, true},
		{'b', 8, 0, M, true, true},	      {'c', 10, 229, R, false, true},
		{'c', 10, 229, R | W, false, true},   {'c', 10, 229, R | M, false, false},
		{'c', 10, 228, R, false, false},      {'b', 10, 229, R, false, false},
		{'b', 8, 0, R, false, true},	      {'b', 8, 17, R, false, true},
		{'b', 8, 17, R | W, false, false},    {'b', 9, 0, R, false, false},
		{'c', 8, 0, R, false, false},	      {'c', 1, 11, W, false, true},
		{'c', 1, 11, R, false, false},	      {'c', 511, 1048575, R | M, false, true},
		{'c', 511, 1048574, R, false, false},
	};
	size_t counts[2];
	struct bpf_insn *codes[] = {cgroup_devices_program(NULL, 0, &counts[0]),
				    cgroup_devices_program(extra, 4, &counts[1])};

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct bpf_cgroup_dev_ctx ctx = {
			.access_type =
				cases[i].access << 16 |
				(cases[i].type == 'b' ? BPF_DEVCG_DEV_BLOCK : BPF_DEVCG_DEV_CHAR),
			.major = cases[i].major,
			.minor = cases[i].minor,
		};
		bool wanted[] = {cases[i].plain, cases[i].with_extra};

		for (size_t k = 0; k < 2; k++)
			if (run(codes[k], counts[k], &ctx) != wanted[k])
				fail_msg("%c %u:%u access %u: program %zu is wrong", cases[i].type,
					 ctx.major, ctx.minor, cases[i].access, k);
	}
	free(codes[0]);
	free(codes[1]);
}

/* The list of up to two devices; NULL paths mean no second one. */
static int make(const struct device_spec *devices, size_t count, struct device_list *ret,
		struct error *err)
{
	struct container_spec spec = {.devices = (struct device_spec *)devices,
				      .device_count = count};

	*ret = (struct device_list){0};
	return device_list_make(&spec, false, ret, err);
}

static void expect_refusal(const struct device_spec *devices, size_t count, const char *what,
			   const char *why)
{
	struct device_list list;
	struct error err = {0};

	assert_int_equal(make(devices, count, &list, &err), -ERR_INVALID);
	if (!strstr(err.text, what) || !strstr(err.text, why))
		fail_msg("\"%s\" and \"%s\" are not in: %s", what, why, err.text);
	assert_null(list.items);
}

static void what_cant_be_given_is_refused_by_its_path(void **state)
{
	static const struct {
		struct device_spec devices[2];
		size_t count;
		const char *what, *why;
	} cases[] = {
		{{{"/dev/none-such", NULL, "rw"}}, 1, "/dev/none-such", "No such file"},
		{{{"/dev/null", "/dev/x", "rx"}}, 1, "/dev/null", "\"rx\""},
		{{{"dev/null", "/dev/x", "r"}}, 1, "dev/null", "absolute"},
		{{{"/dev/null", "x", "r"}}, 1, "/dev/null", "absolute"},
		{{{"/etc/passwd", "/dev/x", "r"}}, 1, "/etc/passwd", "no device"},
		{{{"/proc/sys", "/dev/x", "r"}}, 1, "/proc/sys", "no device in this directory"},
		{{{"/dev/zero", "/dev/null", "rwm"}}, 1, "/dev/zero", "/dev/null is taken"},
		{{{"/dev/zero", "/dev/pts", "rwm"}}, 1, "/dev/pts", "own"},
		{{{"/dev/zero", "/dev/x", "r"}, {"/dev/full", "/dev/x", "r"}},
		 2,
		 "/dev/full",
		 "/dev/x is taken by /dev/zero"},
		{{{"/dev/zero", "/dev/x", "r"}, {"/dev/zero", "/dev/x", "w"}},
		 2,
		 "/dev/zero",
		 "taken"},
	};

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++)
		expect_refusal(cases[i].devices, cases[i].count, cases[i].what, cases[i].why);
}

static void the_same_twice_is_one(void **state)
{
	static const struct device_spec devices[] = {{"/dev/zero", "/dev/x", "r"},
						     {"/dev/zero", "/dev/x", "r"},
						     {"/dev/null", "/dev/null", "r"}};
	struct device_list list;
	struct error err = {0};

	assert_int_equal(make(devices, 3, &list, &err), 0);
	assert_int_equal(list.count, DEVICES_STANDARD + 1);
	device_list_done(&list);
}

static void links_are_followed_and_ownership_can_be_told(void **state)
{
	char dir[] = "/tmp/crisp-devices-XXXXXX", path[64];
	struct device_spec d = {.path = "/dev/mine",
				.permissions = "rw",
				.has_mode = true,
				.mode = 0640,
				.has_gid = true,
				.gid = 44};
	struct device_list list;
	struct error err = {0};

	assert_non_null(mkdtemp(dir));
	snprintf(path, sizeof(path), "%s/link", dir);
	assert_int_equal(symlink("/dev/full", path), 0);
	d.host_path = path;
	assert_int_equal(make(&d, 1, &list, &err), 0);
	assert_int_equal(list.count, DEVICES_STANDARD + 1);
	assert_string_equal(list.items[DEVICES_STANDARD].path, "/dev/mine");
	assert_int_equal(list.items[DEVICES_STANDARD].number, makedev(1, 7));
	assert_int_equal(list.items[DEVICES_STANDARD].mode, S_IFCHR | 0640);
	assert_int_equal(list.items[DEVICES_STANDARD].gid, 44);
	device_list_done(&list);
	unlink(path);
	rmdir(dir);
}

static void a_directory_gives_all_that_is_in_it(void **state)
{
	static const struct device_spec devices[] = {{"/dev/zero", "/host/zero", "r"},
						     {"/dev", "/host", "rw"}};
	struct device_list list;
	struct error err = {0};
	bool has_full = false;

	assert_int_equal(make(devices, 2, &list, &err), 0);
	assert_string_equal(list.items[DEVICES_STANDARD].access, "r");
	for (size_t i = DEVICES_STANDARD + 1; i < list.count; i++) {
		assert_string_not_equal(list.items[i].path, "/host/zero");
		assert_memory_equal(list.items[i].path, "/host/", 6);
		assert_string_equal(list.items[i].access, "rw");
		has_full |= !strcmp(list.items[i].path, "/host/full");
	}
	assert_true(has_full);
	device_list_done(&list);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(the_program_decides_as_it_was_told),
		cmocka_unit_test(what_cant_be_given_is_refused_by_its_path),
		cmocka_unit_test(the_same_twice_is_one),
		cmocka_unit_test(links_are_followed_and_ownership_can_be_told),
		cmocka_unit_test(a_directory_gives_all_that_is_in_it),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
