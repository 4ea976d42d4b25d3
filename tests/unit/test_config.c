/* SPDX-License-Identifier: Apache-2.0 */
/* Command line and configuration file. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>
#include <cmocka.h>

#include "cri/config.h"
#include "recovery/keeper.h"
#include "sandbox/handler.h"
#include "sandbox/sandboxer.h"

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
	assert_string_equal(c.cgroup_driver, "auto");
	assert_int_equal(c.restart_delay_ms, KEEPER_DELAY_AUTO);
	assert_false(c.is_kept);
	config_done(&c);
}

static void command_line_wins_over_file(void **state)
{
	char path[] = "/tmp/crisp-config-XXXXXX";
	struct config c;
	struct error err;

	write_file(path, "root: /from/file\nstate: /state\npipe_size: 65536\nlog_full: block\n"
			 "cgroup_driver: systemd\nsystemd_address: unix:path=/x\n");
	assert_int_equal(LOAD(&c, &err, "--config", path, "--root", "/from/line"), 0);
	assert_string_equal(c.root, "/from/line");
	assert_string_equal(c.state, "/state");
	assert_string_equal(c.listen, "/state/crisp.sock");
	assert_int_equal(c.pipe_size, 65536);
	assert_string_equal(c.log_full, "block");
	assert_string_equal(c.cgroup_driver, "systemd");
	assert_string_equal(c.systemd_address, "unix:path=/x");
	config_done(&c);
	assert_int_equal(LOAD(&c, &err, "--cgroup-driver", "none"), -ERR_INVALID);
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

/* What a file means, which is gone then. */
static int load_text(struct config *c, struct error *err, const char *text)
{
	char path[] = "/tmp/crisp-config-XXXXXX";
	int r;

	write_file(path, text);
	r = LOAD(c, err, "--config", path);
	unlink(path);
	return r;
}

static const struct rlimit_spec *find_limit(const struct handler *h, int resource)
{
	for (size_t i = 0; i < h->rlimit_count; i++)
		if (h->rlimits[i].resource == resource)
			return &h->rlimits[i];
	return NULL;
}

static void handlers_have_their_own_limits_and_the_general_ones(void **state)
{
	struct config c;
	struct error err;
	struct handler *all;
	size_t count;

	if (load_text(&c, &err,
		      "cdi_dirs: [ /a, /b ]\n"
		      "rlimits:\n- {name: core, soft: 0, hard: -1}\n- {name: nofile, soft: 10, "
		      "hard: 20}\n"
		      "handlers:\n- name: hard.ened\n  no_new_privs: true\n  rlimits:\n  - {name: "
		      "nofile, soft: 5, hard: 6}\n- {name: plain, kind: linux}\n") < 0)
		fail_msg("%s", err.text);
	assert_int_equal(c.cdi_dirs_count, 2);
	assert_string_equal(c.cdi_dirs[1], "/b");
	count = config_handlers(&c, &all);
	assert_int_equal(count, 4);
	assert_string_equal(all[0].name, "");
	assert_string_equal(all[1].name, "linux");
	assert_string_equal(all[2].name, "hard.ened");
	assert_true(all[2].no_new_privs);
	assert_false(all[0].no_new_privs || all[3].no_new_privs);
	for (size_t i = 0; i < count; i++) {
		assert_ptr_equal(all[i].kind, sandboxer_find("linux"));
		assert_int_equal(all[i].rlimit_count, 2);
		assert_int_equal(find_limit(&all[i], RLIMIT_NOFILE)->soft, i == 2 ? 5 : 10);
		assert_int_equal(find_limit(&all[i], RLIMIT_NOFILE)->hard, i == 2 ? 6 : 20);
		assert_int_equal(find_limit(&all[i], RLIMIT_CORE)->hard, RLIM_INFINITY);
	}
	config_handlers_free(all, count);
	config_done(&c);
}

static void without_any_there_are_two_handlers_and_one_limit(void **state)
{
	struct config c = {0};
	struct handler *all;
	size_t count = config_handlers(&c, &all);

	assert_int_equal(count, 2);
	assert_int_equal(all[0].rlimit_count, 1);
	assert_int_equal(find_limit(&all[0], RLIMIT_NOFILE)->hard, 1 << 20);
	config_handlers_free(all, count);
}

static void bad_lists_are_refused_by_name(void **state)
{
	static const struct {
		const char *text, *fault;
	} cases[] = {
		{"cdi_dirs: [ a ]\n", "cdi_dirs: a is not absolute"},
		{"rlimits:\n- {name: files, soft: 1, hard: 2}\n", "there is no files"},
		{"rlimits:\n- {name: core, soft: 3, hard: 2}\n", "core is 3, above"},
		{"rlimits:\n- {name: core, soft: -1, hard: 2}\n", "core is -1, above"},
		{"rlimits:\n- {name: core, soft: -2, hard: -1}\n", "core is -2"},
		{"rlimits:\n- {name: core, soft: 1, hard: 1}\n- {name: core, soft: 1, hard: 1}\n",
		 "core is there twice"},
		{"handlers:\n- {name: A}\n", "A: a name has"},
		{"handlers:\n- {name: -a}\n", "-a: a name has"},
		{"handlers:\n- {name: a, kind: moon}\n", "a: this build has no kind moon"},
		{"handlers:\n- {name: a}\n- {name: a}\n", "a: it is there twice"},
		{"handlers:\n- name: a\n  rlimits:\n  - {name: x, soft: 1, hard: 1}\n",
		 "handlers: a rlimits: there is no x"},
		{"handlers:\n- {name: a, colour: red}\n", "colour"},
		{"handlers:\n- {kind: linux}\n", "name"},
	};

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct config c;
		struct error err;

		assert_int_equal(load_text(&c, &err, cases[i].text), -ERR_INVALID);
		if (!strstr(err.text, cases[i].fault))
			fail_msg("\"%s\" is not in: %s", cases[i].fault, err.text);
		config_done(&c);
	}
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
		cmocka_unit_test(handlers_have_their_own_limits_and_the_general_ones),
		cmocka_unit_test(without_any_there_are_two_handlers_and_one_limit),
		cmocka_unit_test(bad_lists_are_refused_by_name),
		cmocka_unit_test(relative_directories_become_absolute),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
