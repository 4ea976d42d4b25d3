/* SPDX-License-Identifier: Apache-2.0 */
/* What of ours runs in a container's root loads nothing from there (CVE-2019-14271). */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <elf.h>
#include <string.h>

#include "tests/lib/group.h"

extern const char init_program[], init_program_end[];
extern const char pid1_program[], pid1_program_end[];

static void is_alone(const char *begin, const char *end)
{
	Elf64_Ehdr file;
	Elf64_Phdr part;

	assert_true(end - begin > (ptrdiff_t)sizeof(file));
	memcpy(&file, begin, sizeof(file));
	assert_memory_equal(file.e_ident, ELFMAG, SELFMAG);
	assert_true(file.e_phnum > 0);
	for (size_t i = 0; i < file.e_phnum; i++) {
		memcpy(&part, begin + file.e_phoff + i * file.e_phentsize, sizeof(part));
		assert_int_not_equal(part.p_type, PT_INTERP);
		assert_int_not_equal(part.p_type, PT_DYNAMIC);
	}
}

static void the_init_helper_is_alone(void **state)
{
	is_alone(init_program, init_program_end);
}

static void pid1_is_alone(void **state)
{
	is_alone(pid1_program, pid1_program_end);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(the_init_helper_is_alone),
		cmocka_unit_test(pid1_is_alone),
	};

	return RUN_GROUP(tests, NULL, NULL);
}
