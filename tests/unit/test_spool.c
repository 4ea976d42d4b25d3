/* SPDX-License-Identifier: Apache-2.0 */
/* Spools: offsets stay over holes and restarts, holes give room back, nothing but files. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "io/spool.h"

static char dir[] = "/dev/shm/crisp-spool-XXXXXX";
static char path[64];

static int setup(void **state)
{
	strcpy(dir + strlen(dir) - 6, "XXXXXX");
	if (!mkdtemp(dir))
		return -1;
	snprintf(path, sizeof(path), "%s/1.spool", dir);
	return 0;
}

static int teardown(void **state)
{
	unlink(path);
	return rmdir(dir);
}

static void bytes_go_from_pipe_to_file(void **state)
{
	struct spool s = {.fd = -1};
	char data[16] = "";
	int p[2];

	assert_int_equal(pipe(p), 0);
	assert_int_equal(spool_open(&s, path, false, NULL), 0);
	assert_int_equal(s.fd, -1);
	assert_int_equal(s.end, 0);
	assert_int_equal(spool_open(&s, path, true, NULL), 0);
	assert_int_equal(spool_take(&s, p[0], 100), -EAGAIN);
	assert_int_equal(write(p[1], "hello world", 11), 11);
	assert_int_equal(spool_take(&s, p[0], 5), 5);
	assert_int_equal(spool_take(&s, p[0], 100), 6);
	assert_int_equal(spool_read(&s, 3, data, sizeof(data)), 8);
	assert_string_equal(data, "lo world");
	spool_close(&s);
	assert_int_equal(spool_open(&s, path, true, NULL), 0);
	assert_int_equal(s.end, 11);
	assert_int_equal(write(p[1], "!", 1), 1);
	assert_int_equal(spool_take(&s, p[0], 100), 1);
	assert_int_equal(spool_read(&s, 10, data, sizeof(data)), 2);
	assert_memory_equal(data, "d!", 2);
	close(p[1]);
	assert_int_equal(spool_take(&s, p[0], 100), 0);
	close(p[0]);
	spool_close(&s);
}

static void holes_give_room_back_and_keep_offsets(void **state)
{
	struct spool s = {.fd = -1};
	static char block[65536], back[65536];
	struct stat st;
	int p[2];

	assert_int_equal(pipe(p), 0);
	assert_int_equal(spool_open(&s, path, true, NULL), 0);
	for (int i = 0; i < 64; i++) {
		memset(block, i + 1, sizeof(block));
		assert_int_equal(write(p[1], block, sizeof(block)), sizeof(block));
		assert_int_equal(spool_take(&s, p[0], sizeof(block)), sizeof(block));
		assert_int_equal(spool_punch(&s, s.end - 5000), 0);
	}
	assert_int_equal(s.end, 64 * 65536);
	assert_int_equal(fstat(s.fd, &st), 0);
	assert_int_equal(st.st_size, s.end);
	assert_true(st.st_blocks * 512 <= 3 * 4096);
	assert_int_equal(spool_read(&s, s.end - 5000, back, sizeof(back)), 5000);
	assert_memory_equal(back, block, 5000);
	close(p[0]);
	close(p[1]);
	spool_close(&s);
}

static void only_a_file_is_a_spool(void **state)
{
	struct spool s = {.fd = -1};
	struct error err = {0};

	assert_int_equal(mkfifo(path, 0600), 0);
	assert_int_equal(spool_open(&s, path, true, &err), -ERR_PRECONDITION);
	unlink(path);
	assert_int_equal(symlink("/etc/hostname", path), 0);
	assert_true(spool_open(&s, path, false, &err) < 0);
	unlink(path);
	assert_int_equal(s.fd, -1);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(bytes_go_from_pipe_to_file, setup, teardown),
		cmocka_unit_test_setup_teardown(holes_give_room_back_and_keep_offsets, setup,
						teardown),
		cmocka_unit_test_setup_teardown(only_a_file_is_a_spool, setup, teardown),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
