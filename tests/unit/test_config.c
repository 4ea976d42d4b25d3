/* SPDX-License-Identifier: Apache-2.0 */
/* Command line and configuration file. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>

#include "cri/config.h"
#include "recovery/keeper.h"

static int load(struct config *c, struct error *err, int argc, const char **argv)
{
	*c = (struct config){0};
	*err = (struct error){0};
	return config_load(argc, (char **)argv, c, err);
}

#define LOAD(c, err, ...)                                                                          \
	({                                                                                         \
		const char *argv_[] = {"crispd", __VA_ARGS__, NULL};                               \
		load(c, err, (int)(sizeof(argv_) / sizeof(argv_[0])) - 1, argv_);                  \
	})

static void write_file(char *path, const char *content)
{
	int fd = mkstemp(path);

	assert_true(fd >= 0);
	assert_int_equal(write(fd, content, strlen(content)), strlen(content));
	close(fd);
}

static void defaults_are_complete(void **state)
{
	struct config c;
	struct error err;

	assert_int_equal(LOAD(&c, &err, "--log-level", "debug"), 0);
	assert_string_equal(c.root, "/var/lib/crisp");
	assert_string_equal(c.listen, "/run/crisp/crisp.sock");
	assert_int_equal(c.pipe_size, 256 * 1024);
	assert_string_equal(c.log_full, "drop");
	assert_int_equal(c.restart_delay_ms, KEEPER_DELAY_AUTO);
	assert_false(c.is_kept);
	config_done(&c);
}

static void command_line_wins_over_file(void **state)
{
	char path[] = "/tmp/crisp-config-XXXXXX";
	struct config c;
	struct error err;

	write_file(path, "root: /from/file\nstate: /state\npipe_size: 65536\nlog_full: block\n");
	assert_int_equal(LOAD(&c, &err, "--config", path, "--root", "/from/line"), 0);
	assert_string_equal(c.root, "/from/line");
	assert_string_equal(c.state, "/state");
	assert_string_equal(c.listen, "/state/crisp.sock");
	assert_int_equal(c.pipe_size, 65536);
	assert_string_equal(c.log_full, "block");
	config_done(&c);
	assert_int_equal(LOAD(&c, &err, "--config", path, "--log-full", "drop"), 0);
	assert_string_equal(c.log_full, "drop");
	config_done(&c);
	unlink(path);
}

static void unknown_key_is_an_error_that_names_it(void **state)
{
	char path[] = "/tmp/crisp-config-XXXXXX";
	struct config c;
	struct error err;

	write_file(path, "root: /r\nlog_levle: debug\n");
	assert_int_equal(LOAD(&c, &err, "--config", path), -ERR_INVALID);
	assert_non_null(strstr(err.text, path));
	assert_non_null(strstr(err.text, "log_levle"));
	assert_non_null(strstr(err.text, "line 2"));
	config_done(&c);
	unlink(path);
}

static void bad_values_are_refused(void **state)
{
	struct config c;
	struct error err;

	assert_int_equal(LOAD(&c, &err, "--pipe-size", "12x"), -ERR_INVALID);
	config_done(&c);
	assert_int_equal(LOAD(&c, &err, "--pipe-size", "100"), -ERR_INVALID);
	config_done(&c);
	assert_int_equal(LOAD(&c, &err, "--log-full", "wait"), -ERR_INVALID);
	assert_non_null(strstr(err.text, "drop or block"));
	config_done(&c);
	assert_int_equal(LOAD(&c, &err, "--log-level", "loud"), -ERR_INVALID);
	config_done(&c);
	assert_int_equal(LOAD(&c, &err, "--nonsense"), -ERR_INVALID);
	assert_non_null(strstr(err.text, "--nonsense"));
	config_done(&c);
	assert_int_equal(LOAD(&c, &err, "word"), -ERR_INVALID);
	config_done(&c);
	assert_int_equal(LOAD(&c, &err, "--config", "/nonexistent/crisp.yaml"), -ERR_INVALID);
	config_done(&c);
}

static void relative_directories_become_absolute(void **state)
{
	struct config c;
	struct error err;

	assert_int_equal(LOAD(&c, &err, "--root", "here", "--keep", "--restart-delay", "5"), 0);
	assert_int_equal(c.root[0], '/');
	assert_non_null(strstr(c.root, "/here"));
	assert_true(c.is_kept);
	assert_int_equal(c.restart_delay_ms, 5);
	config_done(&c);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(defaults_are_complete),
		cmocka_unit_test(command_line_wins_over_file),
		cmocka_unit_test(unknown_key_is_an_error_that_names_it),
		cmocka_unit_test(bad_values_are_refused),
		cmocka_unit_test(relative_directories_become_absolute),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
