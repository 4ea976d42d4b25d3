/* SPDX-License-Identifier: Apache-2.0 */
/* What the doctor finds on this machine, and by a file tree that stands for another's. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>

#include "io/base/alloc.h"
#include "io/base/json.h"
#include "io/fs.h"
#include "sandbox/linux/doctor.h"

static const struct finding *find(const struct doctor_report *r, const char *name)
{
	for (size_t i = 0; i < r->count; i++)
		if (!strcmp(r->items[i].name, name))
			return &r->items[i];
	fail_msg("%s: nothing was found", name);
	return NULL;
}

static size_t count_fds(void)
{
	DIR *dir = opendir("/proc/self/fd");
	size_t count = 0;

	while (readdir(dir))
		count++;
	closedir(dir);
	return count;
}

static void this_machine_is_fit(void **state)
{
	size_t before = count_fds();
	struct doctor_report report;
	int root = open("/", O_PATH | O_DIRECTORY | O_CLOEXEC);

	doctor_run(root, &report);
	for (size_t i = 0; i < report.count; i++) {
		const struct finding *f = &report.items[i];

		print_message("%-8s %s: %s\n", finding_word(f->state), f->name, f->detail);
		assert_true(f->detail[0]);
		assert_int_equal(f->advice == NULL, f->state == FINDING_OK);
	}
	assert_true(report.is_fit);
	assert_int_equal(find(&report, "kernel")->state, FINDING_OK);
	assert_int_equal(find(&report, "device filter")->state, FINDING_OK);
	assert_int_equal(find(&report, "recursive read-only mounts")->state, FINDING_OK);
	doctor_report_done(&report);
	close(root);
	assert_int_equal(count_fds(), before);
}

static void put_file(const char *dir, const char *path, const char *text)
{
	char *parent = xasprintf("%s/%s", dir, path), *file = xstrdup(parent);
	struct error err = {0};
	FILE *f;

	*strrchr(parent, '/') = '\0';
	assert_int_equal(fs_make_dirs(parent, 0755, &err), 0);
	f = fopen(file, "we");
	assert_non_null(f);
	fprintf(f, "%s\n", text);
	fclose(f);
	free(parent);
	free(file);
}

static void another_machines_files_are_understood(void **state)
{
	static const struct {
		const char *path, *text, *name;
		enum finding_state found;
		const char *detail;
	} cases[] = {
		{"sys/module/apparmor/parameters/enabled", "Y", "AppArmor", FINDING_OK, "on"},
		{"sys/module/apparmor/parameters/enabled", "N", "AppArmor", FINDING_MISSING, "off"},
		/* a directory is no selinuxfs */
		{"sys/fs/selinux/enforce", "1", "SELinux", FINDING_MISSING, "off"},
		{"proc/sys/user/max_user_namespaces", "0", "user namespaces", FINDING_MISSING,
		 "at most 0"},
		{"proc/sys/user/max_user_namespaces", "7", "user namespaces", FINDING_OK,
		 "at most 7"},
		{"proc/sys/fs/inotify/max_user_instances", "128", "inotify", FINDING_FALLBACK,
		 "128 instances"},
		{"proc/sys/fs/inotify/max_user_instances", "8192", "inotify", FINDING_OK,
		 "8192 instances"},
		{"proc/sys/fs/pipe-max-size", "65536", "pipes", FINDING_FALLBACK, "65536 bytes"},
		{"proc/self/status", "Name:\tx\nCapEff:\t0000000001000000", "CAP_SYS_RESOURCE",
		 FINDING_OK, "there"},
		{"proc/self/status", "Name:\tx\nCapEff:\tfffffffffeffffff", "CAP_SYS_RESOURCE",
		 FINDING_FALLBACK, "not there"},
		{"proc/sys/kernel/seccomp/actions_avail", "kill allow", "seccomp", FINDING_OK,
		 "kill allow"},
	};
	char dir[] = "/tmp/crisp-doctor-XXXXXX";
	struct error err = {0};
	int root;

	assert_non_null(mkdtemp(dir));
	root = open(dir, O_PATH | O_DIRECTORY | O_CLOEXEC);
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct doctor_report report;
		const struct finding *f;

		put_file(dir, cases[i].path, cases[i].text);
		doctor_run(root, &report);
		f = find(&report, cases[i].name);
		if (f->state != cases[i].found ||
		    strncmp(f->detail, cases[i].detail, strlen(cases[i].detail)) != 0)
			fail_msg("%s is %s: %s", f->name, finding_word(f->state), f->detail);
		doctor_report_done(&report);
	}
	close(root);
	root = open("/tmp", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	assert_int_equal(fs_remove_tree_blocking(root, strrchr(dir, '/') + 1, &err), 0);
	close(root);
}

static void a_machine_without_files_is_not_fit(void **state)
{
	char dir[] = "/tmp/crisp-doctor-XXXXXX";
	struct doctor_report report;
	struct buf text = {0};
	struct error err = {0};
	json_t *json = NULL;
	int root;

	assert_non_null(mkdtemp(dir));
	root = open(dir, O_PATH | O_DIRECTORY | O_CLOEXEC);
	doctor_run(root, &report);
	assert_false(report.is_fit);
	assert_int_equal(find(&report, "seccomp")->state, FINDING_MISSING);
	doctor_json(&report, &text);
	assert_int_equal(json_parse(text.data, text.length, &json, &err), 0);
	assert_int_equal(json_object_size(json), report.count);
	json_decref(json);
	buf_done(&text);
	doctor_unfit(&report, &text);
	assert_non_null(strstr(text.data, "seccomp: "));
	assert_non_null(strstr(text.data, "; give the kernel CONFIG_SECCOMP_FILTER"));
	buf_done(&text);
	doctor_report_done(&report);
	close(root);
	rmdir(dir);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(this_machine_is_fit),
		cmocka_unit_test(another_machines_files_are_understood),
		cmocka_unit_test(a_machine_without_files_is_not_fit),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
