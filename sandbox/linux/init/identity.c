/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Who the process becomes, and the last step. Peculiar: without no_new_privs the filter needs
 * CAP_SYS_ADMIN and is loaded before the capabilities go; with it the filter is loaded last. Limits
 * and the OOM score are clamped to what the kernel allows us, since a node may lack
 * CAP_SYS_RESOURCE.
 */
#include "sandbox/linux/init/helper.h"

#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <linux/capability.h>
#include <linux/filter.h>
#include <linux/keyctl.h>
#include <linux/seccomp.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "io/procfs.h"

#define DEFAULT_PATH "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

void set_oom_score(int value)
{
	char text[16];
	int r;

	snprintf(text, sizeof(text), "%d", value);
	r = procfs_write("self/oom_score_adj", text);
	/* refused: below the present value, which then is the nearest that is allowed */
	if (r < 0 && r != -EACCES) {
		errno = -r;
		fail(STEP_OOM_SCORE, NULL);
	}
}

void open_apparmor(struct helper *h)
{
	if (!h->plan->apparmor)
		return;
	h->apparmor = procfs_open("thread-self/attr/apparmor/exec", O_WRONLY);
	if (h->apparmor == -ENOENT)
		h->apparmor = procfs_open("thread-self/attr/exec", O_WRONLY);
	if (h->apparmor < 0) {
		errno = -h->apparmor;
		fail(STEP_APPARMOR, plan_text(h->plan, h->plan->apparmor));
	}
}

/* From the next execve on. */
static void set_apparmor(const struct helper *h)
{
	const char *profile = plan_text(h->plan, h->plan->apparmor);
	char text[300];
	int n;

	if (!profile)
		return;
	n = snprintf(text, sizeof(text), "exec %s", profile);
	if (write(h->apparmor, text, (size_t)n) != n)
		fail(STEP_APPARMOR, profile);
}

static int open_attribute(const struct helper *h, const char *path, enum init_step step)
{
	int fd = procfs_open(path, O_WRONLY);

	if (fd < 0) {
		errno = -fd;
		fail(step, plan_text(h->plan, h->plan->process_label));
	}
	return fd;
}

void open_labels(struct helper *h)
{
	if (!h->plan->process_label)
		return;
	h->label = open_attribute(h, "thread-self/attr/exec", STEP_LABEL);
	h->key_label = open_attribute(h, "thread-self/attr/keycreate", STEP_KEY_LABEL);
}

/* From the next execve on; of keys until then, so the session's has it too. */
static void set_labels(const struct helper *h)
{
	const char *label = plan_text(h->plan, h->plan->process_label);

	if (!label)
		return;
	if (write(h->label, label, strlen(label)) < 0)
		fail(STEP_LABEL, label);
	if (write(h->key_label, label, strlen(label)) < 0)
		fail(STEP_KEY_LABEL, label);
}

static void set_rlimit(const struct plan_rlimit *wanted)
{
	struct rlimit now, limit = {.rlim_cur = wanted->soft, .rlim_max = wanted->hard};

	if (setrlimit((unsigned)wanted->resource, &limit) == 0)
		return;
	if (errno != EPERM || getrlimit((unsigned)wanted->resource, &now) < 0)
		fail(STEP_RLIMIT, NULL);
	if (limit.rlim_max > now.rlim_max)
		limit.rlim_max = now.rlim_max;
	if (limit.rlim_cur > limit.rlim_max)
		limit.rlim_cur = limit.rlim_max;
	if (setrlimit((unsigned)wanted->resource, &limit) < 0)
		fail(STEP_RLIMIT, NULL);
}

void set_rlimits(struct helper *h)
{
	const struct plan_rlimit *limits = plan_items(h->plan, h->plan->rlimits);

	for (uint32_t i = 0; i < h->plan->rlimits.count; i++)
		set_rlimit(&limits[i]);
}

static void load_filter(struct helper *h)
{
	struct sock_fprog program = {.len = (unsigned short)h->plan->filter.count,
				     .filter = plan_items(h->plan, h->plan->filter)};

	if (program.len &&
	    syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, h->plan->filter_flags, &program) < 0)
		fail(STEP_SECCOMP, NULL);
}

static void drop_bounding(uint64_t keep)
{
	for (int cap = 0; cap < 64; cap++)
		if (!(keep >> cap & 1) && prctl(PR_CAPBSET_DROP, cap, 0, 0, 0) < 0) {
			/* past the last one that this kernel knows */
			if (errno == EINVAL)
				return;
			fail(STEP_CAPABILITIES, NULL);
		}
}

static void set_ids(struct helper *h)
{
	const struct plan *plan = h->plan;
	const uint32_t *groups = plan_items(h->plan, plan->groups);

	if (prctl(PR_SET_KEEPCAPS, 1, 0, 0, 0) < 0 || setgroups(plan->groups.count, groups) < 0 ||
	    setresgid(plan->gid, plan->gid, plan->gid) < 0 ||
	    setresuid(plan->uid, plan->uid, plan->uid) < 0)
		fail(STEP_IDS, NULL);
}

static void set_capabilities(const struct plan *plan)
{
	struct __user_cap_header_struct header = {.version = _LINUX_CAPABILITY_VERSION_3};
	struct __user_cap_data_struct data[2];
	uint64_t have;

	if (syscall(SYS_capget, &header, data) < 0)
		fail(STEP_CAPABILITIES, NULL);
	/* a server without a capability can't grant it */
	have = data[0].permitted | (uint64_t)data[1].permitted << 32;
	for (int i = 0; i < 2; i++) {
		uint32_t bits = (uint32_t)((plan->capabilities & have) >> (32 * i));

		data[i].permitted = bits;
		/* a user other than root has its capabilities only through exec */
		data[i].effective = bits;
		data[i].inheritable = (uint32_t)(plan->ambient >> (32 * i)) & bits;
	}
	if (syscall(SYS_capset, &header, data) < 0)
		fail(STEP_CAPABILITIES, NULL);
	for (int cap = 0; cap < 64; cap++)
		if (plan->ambient & plan->capabilities & have & 1ull << cap &&
		    prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_RAISE, cap, 0, 0) < 0)
			fail(STEP_CAPABILITIES, NULL);
}

void give_up_privileges(struct helper *h)
{
	drop_bounding(h->plan->capabilities);
	set_capabilities(h->plan);
	if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0)
		fail(STEP_IDS, "no_new_privs");
}

/* Turns offsets into pointers, in place. */
static char **relocate(struct plan *plan, struct plan_list list)
{
	uint64_t *items = plan_items(plan, list);

	for (uint32_t i = 0; i < list.count; i++)
		items[i] += (uint64_t)(uintptr_t)plan;
	return (char **)items;
}

static const char *path_of(char **envp)
{
	for (; *envp; envp++)
		if (strncmp(*envp, "PATH=", 5) == 0)
			return *envp + 5;
	return DEFAULT_PATH;
}

static void exec_search(char **argv, char **envp)
{
	const char *path = path_of(envp);
	char full[4096];
	int error = ENOENT;

	while (path) {
		const char *end = strchr(path, ':');
		int size = (int)(end ? end - path : (long)strlen(path));
		int n = snprintf(full, sizeof(full), "%.*s/%s", size, size ? path : ".", argv[0]);

		if (n > 0 && n < (int)sizeof(full))
			execve(full, argv, envp);
		if (errno == EACCES)
			error = EACCES;
		else if (errno != ENOENT && errno != ENOTDIR)
			return;
		path = end ? end + 1 : NULL;
	}
	errno = error;
}

static void reset_signals(void)
{
	struct sigaction dfl = {.sa_handler = SIG_DFL};
	sigset_t none;

	for (int sig = 1; sig < NSIG; sig++)
		sigaction(sig, &dfl, NULL);
	sigemptyset(&none);
	sigprocmask(SIG_SETMASK, &none, NULL);
}

void become(struct helper *h)
{
	struct plan *plan = h->plan;
	char **argv = relocate(plan, plan->argv), **envp = relocate(plan, plan->envp);
	bool is_filter_last = plan->flags & PLAN_NO_NEW_PRIVS;

	set_labels(h);
	/* or it would share the server's keys */
	syscall(SYS_keyctl, KEYCTL_JOIN_SESSION_KEYRING, NULL);
	reset_signals();
	umask(022);
	if (!is_filter_last)
		load_filter(h);
	drop_bounding(plan->capabilities);
	set_ids(h);
	set_capabilities(plan);
	set_apparmor(h);
	if (is_filter_last) {
		if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0)
			fail(STEP_IDS, "no_new_privs");
		load_filter(h);
	}
	if (strchr(argv[0], '/'))
		execve(argv[0], argv, envp);
	else
		exec_search(argv, envp);
	fail(STEP_EXEC, argv[0]);
}
