/* SPDX-License-Identifier: Apache-2.0 */
/* crisp doctor. */
#include "cri/cli/doctor.h"

#include <fcntl.h>
#include <getopt.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "io/base/cleanup.h"
#include "sandbox/linux/doctor.h"

static int usage(FILE *to)
{
	fputs("usage: crisp doctor [-o json]\n\n"
	      "Tells what this node's kernel and limits can do for containers, which fallback is "
	      "used\n"
	      "where they can't, and what to do about it. Exits with 1 when containers can't "
	      "run.\n",
	      to);
	return to == stderr;
}

static void print(const struct doctor_report *report)
{
	for (size_t i = 0; i < report->count; i++) {
		const struct finding *f = &report->items[i];

		printf("%-8s  %-26s  %s\n", finding_word(f->state), f->name, f->detail);
		if (f->advice)
			printf("%-8s  %-26s  → %s\n", "", "", f->advice);
	}
}

int doctor_main(int argc, char **argv)
{
	static const struct option options[] = {
		{"output", required_argument, NULL, 'o'}, {"help", no_argument, NULL, 'h'}, {0}};
	struct doctor_report report CLEANUP(doctor_report_done) = {0};
	struct buf json CLEANUP(buf_done) = {0};
	cleanup_close int root = -1;
	bool is_json = false;
	int id;

	optind = 1;
	while ((id = getopt_long(argc, argv, "o:h", options, NULL)) >= 0) {
		if (id == 'h')
			return usage(stdout);
		if (id != 'o' || strcmp(optarg, "json"))
			return usage(stderr);
		is_json = true;
	}
	if (optind < argc)
		return usage(stderr);
	root = open("/", O_PATH | O_DIRECTORY | O_CLOEXEC);
	doctor_run(root, &report);
	if (is_json) {
		doctor_json(&report, &json);
		buf_append(&json, "\n", 2);
		fputs(json.data, stdout);
	} else {
		print(&report);
	}
	return !report.is_fit;
}
