/* SPDX-License-Identifier: Apache-2.0 */
/* The probes. Peculiar: where it can be, a thing is tried on a detached mount that nobody else ever
 * sees; numbers of versions say little about distributions' kernels. */
#include "sandbox/linux/doctor_probes.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/capability.h>
#include <linux/openat2.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/utsname.h>
#include <unistd.h>

#include "io/base/cleanup.h"
#include "io/fs.h"
#include "recovery/exit_status.h"
#include "sandbox/linux/cgroup_priv.h"
#include "sandbox/linux/ns.h"
#include "sandbox/linux/selinux.h"

#define DETAIL_SIZE sizeof(((struct finding *)NULL)->detail)
/* Of the kernel that everything else counts on. */
#define KERNEL_MAJOR 5
#define KERNEL_MINOR 15
/* Some 5,000 containers. */
#define DESCRIPTORS_FEW 16384
#define INOTIFY_FEW 512
#define PIPE_SIZE (1 << 20)

#define SAY(p, ...) ((void)snprintf((p)->detail, DETAIL_SIZE, __VA_ARGS__))

static enum finding_state failed(struct probe *p, const char *what)
{
	SAY(p, "%s: %s", what, strerrordesc_np(errno));
	return FINDING_MISSING;
}

void probe_begin(struct probe *p)
{
	p->cg = cgroups_probe(&p->cg_why);
	p->tree = open_tree(AT_FDCWD, "/", OPEN_TREE_CLONE | OPEN_TREE_CLOEXEC);
}

void probe_end(struct probe *p)
{
	cgroups_free(p->cg);
	close_fd(p->tree);
}

/* The file's text without the last newline; NULL when there is none. The caller frees. */
static char *read_text(struct probe *p, const char *path)
{
	struct buf text CLEANUP(buf_done) = {0};
	char *s;

	if (fs_read_at(p->root, path, 1 << 16, &text, NULL) < 0)
		return NULL;
	s = buf_take(&text);
	s[strcspn(s, "\n")] = '\0';
	return s;
}

static long long read_number(struct probe *p, const char *path)
{
	char *text cleanup_free = read_text(p, path);

	return text ? strtoll(text, NULL, 10) : -1;
}

enum finding_state probe_kernel(struct probe *p)
{
	unsigned major = 0, minor = 0;
	struct utsname u;

	if (uname(&u) < 0)
		return failed(p, "uname");
	SAY(p, "Linux %.64s", u.release);
	if (sscanf(u.release, "%u.%u", &major, &minor) != 2)
		return FINDING_MISSING;
	return major > KERNEL_MAJOR || (major == KERNEL_MAJOR && minor >= KERNEL_MINOR)
		       ? FINDING_OK
		       : FINDING_MISSING;
}

enum finding_state probe_openat2(struct probe *p)
{
	cleanup_close int fd = fs_openat2(p->root, ".", O_PATH, 0, RESOLVE_IN_ROOT);

	if (fd < 0) {
		errno = -fd;
		return failed(p, "openat2");
	}
	SAY(p, "paths are resolved beneath a container's root");
	return FINDING_OK;
}

enum finding_state probe_cgroups(struct probe *p)
{
	SAY(p, "%.150s", p->cg ? cgroups_describe(p->cg) : p->cg_why.text);
	return p->cg ? FINDING_OK : FINDING_MISSING;
}

static enum finding_state no_cgroups(struct probe *p)
{
	SAY(p, "there are no cgroups");
	return FINDING_MISSING;
}

enum finding_state probe_tracker(struct probe *p)
{
	if (!p->cg)
		return no_cgroups(p);
	if (p->cg->hierarchies[p->cg->tracker].is_v2) {
		SAY(p, "v2, killed by cgroup.kill");
		return FINDING_OK;
	}
	SAY(p, "v1, killed one by one");
	return FINDING_FALLBACK;
}

enum finding_state probe_clone(struct probe *p)
{
	if (!p->cg)
		return no_cgroups(p);
	SAY(p, "CLONE_INTO_CGROUP %s", p->cg->can_clone ? "works" : "does not work here");
	return p->cg->can_clone ? FINDING_OK : FINDING_FALLBACK;
}

enum finding_state probe_devices(struct probe *p)
{
	if (!p->cg)
		return no_cgroups(p);
	if (p->cg->v2 >= 0) {
		int r = cgroup_devices_try();

		if (r == 0) {
			SAY(p, "by BPF on cgroup v2");
			return FINDING_OK;
		}
		errno = -r;
		return failed(p, "load the BPF program");
	}
	if (p->cg->of[CONTROLLER_DEVICES] < 0) {
		SAY(p, "neither cgroup v2 nor the devices controller is there");
		return FINDING_MISSING;
	}
	SAY(p, "by v1's devices controller");
	return FINDING_OK;
}

/* Of v2 the root itself has no such file, but every group below it. */
static bool has_swap_v2(int dir)
{
	struct buf names CLEANUP(buf_done) = {0};
	char path[320];

	if (cgroup_child_names(dir, &names) < 0)
		return false;
	for (size_t at = 0; at < names.length; at += strlen(names.data + at) + 1) {
		snprintf(path, sizeof(path), "%.255s/memory.swap.max", names.data + at);
		if (faccessat(dir, path, F_OK, 0) == 0)
			return true;
	}
	return false;
}

enum finding_state probe_swap(struct probe *p)
{
	int index = p->cg ? p->cg->of[CONTROLLER_MEMORY] : -1;
	const struct hierarchy *h;
	bool has_it;

	if (index < 0) {
		SAY(p, "there is no memory controller");
		return FINDING_MISSING;
	}
	h = &p->cg->hierarchies[index];
	has_it = h->is_v2 ? has_swap_v2(h->fd)
			  : faccessat(h->fd, "memory.memsw.limit_in_bytes", F_OK, 0) == 0;
	SAY(p, "the kernel %s", has_it ? "counts it" : "doesn't count it");
	return has_it ? FINDING_OK : FINDING_MISSING;
}

enum finding_state probe_exit_status(struct probe *p)
{
	bool has_it = exit_status_has_pidfd_info();

	SAY(p, "the kernel %s how a process ended", has_it ? "keeps" : "doesn't keep");
	return has_it ? FINDING_OK : FINDING_FALLBACK;
}

enum finding_state probe_idmap(struct probe *p)
{
	struct id_map map = {0, 1 << 20, 1 << 16};
	struct id_map_list maps = {&map, 1};
	struct mount_attr attr = {.attr_set = MOUNT_ATTR_IDMAP};
	struct error err = {0};
	cleanup_close int user = -1;

	if (ns_make_user(&maps, &maps, &user, &err) < 0) {
		SAY(p, "%.150s", err.text);
		return FINDING_MISSING;
	}
	attr.userns_fd = (uint64_t)user;
	if (mount_setattr(p->tree, "", AT_EMPTY_PATH, &attr, sizeof(attr)) < 0)
		return failed(p, "map the ids of the root file system");
	SAY(p, "the root file system has them");
	return FINDING_OK;
}

enum finding_state probe_recursive(struct probe *p)
{
	struct mount_attr attr = {.attr_set = MOUNT_ATTR_RDONLY};

	if (mount_setattr(p->tree, "", AT_EMPTY_PATH | AT_RECURSIVE, &attr, sizeof(attr)) < 0)
		return failed(p, "mount_setattr");
	SAY(p, "by mount_setattr");
	return FINDING_OK;
}

enum finding_state probe_overlay(struct probe *p)
{
	cleanup_close int fs = fsopen("overlay", FSOPEN_CLOEXEC);
	cleanup_close int layer = open("/", O_PATH | O_DIRECTORY | O_CLOEXEC);

	if (fs < 0)
		return failed(p, "open the overlay file system");
	if (fsconfig(fs, FSCONFIG_SET_FD, "lowerdir+", NULL, layer) < 0) {
		SAY(p, "not in this kernel");
		return FINDING_FALLBACK;
	}
	SAY(p, "layers are given by descriptor");
	return FINDING_OK;
}

enum finding_state probe_userns(struct probe *p)
{
	long long max = read_number(p, "proc/sys/user/max_user_namespaces");

	SAY(p, "at most %lld", max < 0 ? 0 : max);
	return max > 0 ? FINDING_OK : FINDING_MISSING;
}

enum finding_state probe_seccomp(struct probe *p)
{
	char *actions cleanup_free = read_text(p, "proc/sys/kernel/seccomp/actions_avail");

	SAY(p, "%.150s", actions ? actions : "not in this kernel");
	return actions ? FINDING_OK : FINDING_MISSING;
}

enum finding_state probe_apparmor(struct probe *p)
{
	char *enabled cleanup_free = read_text(p, "sys/module/apparmor/parameters/enabled");
	bool is_on = enabled && *enabled == 'Y';

	SAY(p, "%s", is_on ? "on" : enabled ? "off" : "not in this kernel");
	return is_on ? FINDING_OK : FINDING_MISSING;
}

enum finding_state probe_selinux(struct probe *p)
{
	struct selinux s CLEANUP(selinux_done) = selinux_open(p->root);
	const char *mode;

	if (s.fs < 0) {
		SAY(p, "off, or not in this kernel");
		return FINDING_MISSING;
	}
	mode = selinux_is_enforcing(s.fs) ? "enforcing" : "permissive";
	if (!s.process) {
		SAY(p, "%s; the policy has no label for containers", mode);
		return FINDING_FALLBACK;
	}
	SAY(p, "%s; containers run as %.80s, which was never tried on such a kernel", mode,
	    s.process);
	return FINDING_OK;
}

enum finding_state probe_resource(struct probe *p)
{
	char *status cleanup_free = NULL, *line;
	struct buf text CLEANUP(buf_done) = {0};
	uint64_t caps = 0;

	if (fs_read_at(p->root, "proc/self/status", 1 << 16, &text, NULL) < 0)
		return failed(p, "/proc/self/status");
	status = buf_take(&text);
	line = strstr(status, "\nCapEff:");
	if (line)
		caps = strtoull(line + strlen("\nCapEff:"), NULL, 16);
	if (caps & 1ull << CAP_SYS_RESOURCE) {
		SAY(p, "there");
		return FINDING_OK;
	}
	SAY(p, "not there");
	return FINDING_FALLBACK;
}

enum finding_state probe_descriptors(struct probe *p)
{
	struct rlimit limit;

	if (getrlimit(RLIMIT_NOFILE, &limit) < 0)
		return failed(p, "getrlimit");
	SAY(p, "at most %llu", (unsigned long long)limit.rlim_max);
	return limit.rlim_max >= DESCRIPTORS_FEW ? FINDING_OK : FINDING_FALLBACK;
}

enum finding_state probe_inotify(struct probe *p)
{
	long long instances = read_number(p, "proc/sys/fs/inotify/max_user_instances");
	long long watches = read_number(p, "proc/sys/fs/inotify/max_user_watches");

	if (instances < 0) {
		SAY(p, "not in this kernel");
		return FINDING_MISSING;
	}
	SAY(p, "%lld instances and %lld watches a user", instances, watches);
	return instances >= INOTIFY_FEW ? FINDING_OK : FINDING_FALLBACK;
}

enum finding_state probe_pipes(struct probe *p)
{
	long long size = read_number(p, "proc/sys/fs/pipe-max-size");
	long long soft = read_number(p, "proc/sys/fs/pipe-user-pages-soft");

	SAY(p, "%lld bytes each, %lld pages a user", size, soft);
	return size >= PIPE_SIZE ? FINDING_OK : FINDING_FALLBACK;
}
