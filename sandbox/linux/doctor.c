/* SPDX-License-Identifier: Apache-2.0 */
/* The report: one row a probe. Peculiar: a probe only says what it found; which of its findings are
 * worse than others and what helps is in its row. */
#include "sandbox/linux/doctor.h"

#include <stdlib.h>

#include "io/base/alloc.h"
#include "io/base/cleanup.h"
#include "io/base/json.h"
#include "sandbox/linux/doctor_probes.h"

static const struct {
	const char *name;
	enum finding_state (*probe)(struct probe *p);
	const char *advice; /* when it is not ok */
	bool is_vital;
} probes[] = {
	{"kernel", probe_kernel, "run Linux 5.15 or newer", true},
	{"openat2", probe_openat2, "run Linux 5.6 or newer", true},
	{"cgroups", probe_cgroups, "mount cgroup v2, or v1's controllers, on /sys/fs/cgroup", true},
	{"cgroup tracker", probe_tracker,
	 "mount cgroup v2, by whose cgroup.kill a container ends at once"},
	{"birth in a cgroup", probe_clone,
	 "processes write themselves into their cgroups, which is slower; mount cgroup v2 alone"},
	{"device filter", probe_devices,
	 "give the kernel CONFIG_CGROUP_BPF, or mount v1's devices controller", true},
	{"swap accounting", probe_swap, "limits of swap have no effect; boot with swapaccount=1"},
	{"exit status by pidfd", probe_exit_status,
	 "run crispd with --keep, whose keeper records them, or Linux 6.15"},
	{"id-mapped mounts", probe_idmap,
	 "pods with a user namespace are refused volumes; use a file system that has them"},
	{"recursive read-only mounts", probe_recursive, "run Linux 5.12 or newer"},
	{"overlay by descriptor", probe_overlay,
	 "layers are given by path, which is limited in length; run Linux 6.13 or newer"},
	{"user namespaces", probe_userns, "raise the sysctl user.max_user_namespaces"},
	{"seccomp", probe_seccomp, "give the kernel CONFIG_SECCOMP_FILTER", true},
	{"AppArmor", probe_apparmor,
	 "profiles are refused; boot with apparmor=1 security=apparmor if you need them"},
	{"SELinux", probe_selinux,
	 "labels are refused, all or those given in part; enable SELinux and install "
	 "container-selinux if you need them"},
	{"CAP_SYS_RESOURCE", probe_resource,
	 "OOM scores below the server's own and limits above its own are lowered to those; give it "
	 "the capability"},
	{"descriptors", probe_descriptors,
	 "a container takes three; raise the server's hard limit of open files (LimitNOFILE=)"},
	{"inotify", probe_inotify,
	 "raise the sysctl fs.inotify.max_user_instances, which programs in containers share"},
	{"pipes", probe_pipes, "raise the sysctl fs.pipe-max-size to 1048576"},
};

#define PROBE_COUNT (sizeof(probes) / sizeof(probes[0]))

void doctor_run(int root, struct doctor_report *ret)
{
	struct probe p = {.root = root};

	*ret = (struct doctor_report){xcalloc(PROBE_COUNT, sizeof(*ret->items)), 0, true};
	probe_begin(&p);
	for (size_t i = 0; i < PROBE_COUNT; i++) {
		struct finding *f = &ret->items[ret->count++];

		f->name = probes[i].name;
		f->is_vital = probes[i].is_vital;
		p.detail = f->detail;
		f->state = probes[i].probe(&p);
		f->advice = f->state == FINDING_OK ? NULL : probes[i].advice;
		ret->is_fit &= f->state != FINDING_MISSING || !f->is_vital;
	}
	probe_end(&p);
}

void doctor_report_done(struct doctor_report *report)
{
	free(report->items);
	*report = (struct doctor_report){0};
}

const char *finding_word(enum finding_state state)
{
	static const char *const words[] = {"ok", "fallback", "missing"};

	return words[state];
}

void doctor_json(const struct doctor_report *report, struct buf *ret)
{
	json_t *all cleanup_json = json_object();
	char *text cleanup_free = NULL;

	for (size_t i = 0; i < report->count; i++) {
		const struct finding *f = &report->items[i];
		json_t *item = json_object();

		json_object_set_new(item, "state", json_string(finding_word(f->state)));
		json_object_set_new(item, "detail", json_string(f->detail));
		if (f->advice)
			json_object_set_new(item, "advice", json_string(f->advice));
		json_object_set_new(all, f->name, item);
	}
	text = json_dumps(all, JSON_COMPACT);
	buf_puts(ret, text ? text : "{}");
}

void doctor_unfit(const struct doctor_report *report, struct buf *ret)
{
	for (size_t i = 0; i < report->count; i++) {
		const struct finding *f = &report->items[i];

		if (f->is_vital && f->state == FINDING_MISSING)
			buf_printf(ret, "%s%s: %s; %s", ret->length ? ". " : "", f->name, f->detail,
				   f->advice);
	}
}
