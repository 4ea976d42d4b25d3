/* SPDX-License-Identifier: Apache-2.0 */
/*
 * From a container's spec to the plan of its first process: opens everything that comes from the
 * host. Runs on a pool thread, so it only reads what never changes in the container and its
 * sandbox.
 */
#include <errno.h>
#include <fcntl.h>
#include <linux/filter.h>
#include <linux/magic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#include "io/base/alloc.h"
#include "io/base/cleanup.h"
#include "io/base/path.h"
#include "sandbox/linux/apparmor.h"
#include "sandbox/linux/caps.h"
#include "sandbox/linux/cgroup_priv.h"
#include "sandbox/linux/devices.h"
#include "sandbox/linux/kind.h"
#include "sandbox/linux/mounts.h"
#include "sandbox/linux/ns.h"
#include "sandbox/linux/overlay.h"

void pod_fds_done(struct pod_fds *fds)
{
	close_fd(fds->user);
	close_fd(fds->net);
	close_fd(fds->ipc);
	close_fd(fds->pid);
	close_fd(fds->shm);
	*fds = POD_FDS_NONE;
}

void plan_add_cgroups(struct plan_builder *b, const struct cgroup_join *join)
{
	int32_t files[CGROUP_JOIN_MAX];
	struct plan_list list;

	for (size_t i = 0; i < join->file_count; i++)
		files[i] = plan_lend_fd(b, join->files[i]);
	list = plan_add_list(b, files, join->file_count, sizeof(*files));
	plan_get(b)->cgroup_fds = list;
}

static void add_rlimits(struct plan_builder *b, const struct container_spec *spec)
{
	struct plan_rlimit *limits = xcalloc(spec->rlimit_count + 1, sizeof(*limits));
	struct plan_list list;

	for (size_t i = 0; i < spec->rlimit_count; i++) {
		limits[i].resource = spec->rlimits[i].resource;
		limits[i].soft = spec->rlimits[i].soft;
		limits[i].hard = spec->rlimits[i].hard;
	}
	list = plan_add_list(b, limits, spec->rlimit_count, sizeof(*limits));
	plan_get(b)->rlimits = list;
	free(limits);
}

/* With a home, which shells and tools rely on, unless the image or the request says another. */
static struct plan_list add_environment(struct plan_builder *b, const struct linux_container *c)
{
	const struct string_list *given = &c->spec.envp;
	struct string_list all = {.items = xcalloc(given->count + 1, sizeof(*all.items))};
	cleanup_free char *home = xasprintf("HOME=%s", c->user.home ?: "/");
	bool has_home = false;
	struct plan_list list;

	for (size_t i = 0; i < given->count; i++) {
		all.items[all.count++] = given->items[i];
		has_home = has_home || strncmp(given->items[i], "HOME=", 5) == 0;
	}
	if (!has_home)
		all.items[all.count++] = home;
	list = plan_add_vector(b, &all);
	free(all.items);
	return list;
}

void plan_add_process(struct plan_builder *b, const struct linux_container *c,
		      const struct string_list *argv)
{
	const struct container_spec *spec = &c->spec;
	struct plan_list args = plan_add_vector(b, argv), env = add_environment(b, c);
	struct plan_list groups =
		plan_add_list(b, c->user.groups, c->user.group_count, sizeof(*c->user.groups));
	struct plan_list filter = {0};
	plan_string cwd = plan_add_string(b, spec->cwd && *spec->cwd ? spec->cwd : "/");
	plan_string apparmor = plan_add_string(
		b, apparmor_name(spec->apparmor, spec->apparmor_profile, kind.has_apparmor));
	plan_string label = plan_add_string(b, c->labels.process);
	struct plan *plan;

	if (c->filter)
		filter = plan_add_list(b, c->filter->code, c->filter->count,
				       sizeof(*c->filter->code));
	add_rlimits(b, spec);
	plan = plan_get(b);
	plan->argv = args;
	plan->envp = env;
	plan->groups = groups;
	plan->filter = filter;
	plan->filter_flags = c->filter ? c->filter->flags : 0;
	plan->cwd = cwd;
	plan->apparmor = apparmor;
	plan->process_label = label;
	plan->uid = c->user.uid;
	plan->gid = c->user.gid;
	plan->capabilities = spec->capabilities & caps_all();
	plan->ambient = spec->ambient_capabilities & caps_all();
	plan->oom_score_adj = (int32_t)spec->resources.oom_score_adj;
	if (spec->no_new_privs)
		plan->flags |= PLAN_NO_NEW_PRIVS;
	if (spec->has_tty)
		plan->flags |= PLAN_TTY;
	if (c->sandbox->spec.has_userns)
		plan->flags |= PLAN_USERNS;
}

static int add_root(struct plan_builder *b, const struct linux_container *c,
		    const struct pod_fds *pod, struct error *err)
{
	const struct sandbox_spec *sandbox = &c->sandbox->spec;
	struct overlay_spec overlay = {
		.layers = skeleton_beneath(kind.skeleton, &c->spec.layers),
		.upper = c->spec.upper,
		.work = c->spec.work,
		.user_fd = pod->user,
		.has_devices = true,
		.label = c->labels.file,
	};
	int mount = -1, r = 0;

	/* the upper directory's owner is that of the container's "/" */
	if (sandbox->has_userns && chown(c->spec.upper, (uid_t)id_map_outside(&sandbox->uids, 0),
					 (gid_t)id_map_outside(&sandbox->gids, 0)) < 0)
		r = error_errno(err, errno, "give %s to the container's root", c->spec.upper);
	if (r == 0)
		r = overlay_mount(&overlay, &mount, err);
	if (r == 0)
		plan_get(b)->root_fd = plan_give_fd(b, mount);
	free(overlay.layers.items);
	return r;
}

static int depth_of(const char *path)
{
	int depth = 0;

	for (; *path; path++)
		depth += path[0] == '/' && path[1];
	return depth;
}

static int user_fd_of(const struct linux_container *c, const struct mount_spec *m,
		      const struct pod_fds *pod, int *ret_fd, struct error *err)
{
	const struct sandbox_spec *sandbox = &c->sandbox->spec;

	*ret_fd = -1;
	if (!m->uids.count && !m->gids.count)
		return 0;
	if (sandbox->has_userns && id_map_equal(&m->uids, &sandbox->uids) &&
	    id_map_equal(&m->gids, &sandbox->gids)) {
		*ret_fd = fcntl(pod->user, F_DUPFD_CLOEXEC, 3);
		return *ret_fd < 0 ? error_errno(err, errno, "user namespace of a mount") : 0;
	}
	return ns_make_user(&m->uids, &m->gids, ret_fd, err);
}

static int open_mount(const struct linux_container *c, const struct mount_spec *m, int user,
		      struct mount_source *ret, struct error *err)
{
	struct mount_spec two = *m;
	cleanup_free char *empty = NULL;
	int r;

	if (m->kind != MOUNT_IMAGE || m->layers.count != 1 || !c->labels.file)
		return mount_source_open(m, user, c->labels.file, c->prunes_mounts, ret, err);
	/* only an overlay can have a label of its own, and that takes two layers */
	empty = xasprintf("%s/" SKELETON_EMPTY, kind.skeleton);
	two.layers = skeleton_beneath(empty, &m->layers);
	r = mount_source_open(&two, user, c->labels.file, false, ret, err);
	free(two.layers.items);
	return r;
}

static int add_mount(struct plan_builder *b, const struct linux_container *c,
		     const struct mount_spec *m, const struct pod_fds *pod, struct plan_mount *ret,
		     struct error *err)
{
	struct mount_source source;
	cleanup_close int user = -1;
	cleanup_free char *target = NULL;

	if (!m->target || m->target[0] != '/')
		return error_set(err, ERR_INVALID, "mount target %s: it must be an absolute path",
				 m->target ?: "(none)");
	target = path_clean(m->target);
	if (strcmp(target, "/") == 0)
		return error_set(err, ERR_INVALID, "mount target %s: it is the root", m->target);
	TRY(user_fd_of(c, m, pod, &user, err));
	TRY(open_mount(c, m, user, &source, err));
	*ret = (struct plan_mount){
		.fd = plan_give_fd(b, source.fd),
		.is_directory = source.is_directory,
		.is_readonly = m->is_readonly,
		.target = plan_add_string(b, target),
		.options = plan_add_string(b, m->options),
		.sub_path = plan_add_string(b, source.sub_path),
	};
	return 0;
}

/* Parents before what lies in them, else in the order that was given. */
static size_t *mount_order(const struct container_spec *spec)
{
	size_t *order = xcalloc(spec->mount_count + 1, sizeof(*order));
	int *depths = xcalloc(spec->mount_count + 1, sizeof(*depths));

	for (size_t i = 0; i < spec->mount_count; i++) {
		cleanup_free char *target = path_clean(spec->mounts[i].target ?: "");
		size_t at = i;

		depths[i] = depth_of(target);
		for (; at > 0 && depths[order[at - 1]] > depths[i]; at--)
			order[at] = order[at - 1];
		order[at] = i;
	}
	free(depths);
	return order;
}

static int add_mounts(struct plan_builder *b, const struct linux_container *c,
		      const struct pod_fds *pod, struct error *err)
{
	size_t count = c->spec.mount_count;
	struct plan_mount *mounts = xcalloc(count + 1, sizeof(*mounts));
	size_t *order = mount_order(&c->spec);
	struct plan_list list;
	int r = 0;

	for (size_t i = 0; i < count && r == 0; i++)
		r = add_mount(b, c, &c->spec.mounts[order[i]], pod, &mounts[i], err);
	list = plan_add_list(b, mounts, count, sizeof(*mounts));
	plan_get(b)->mounts = list;
	free(mounts);
	free(order);
	return r;
}

static int add_device(struct plan_builder *b, const struct device *d, bool is_userns,
		      struct plan_device *ret, struct error *err)
{
	int fd = -1;

	if (is_userns)
		TRY(mount_clone(d->host_path, false, false, &fd, err));
	*ret = (struct plan_device){
		.path = plan_add_string(b, d->path),
		.fd = plan_give_fd(b, fd),
		.mode = d->mode,
		.uid = d->uid,
		.gid = d->gid,
		.number = d->number,
	};
	return 0;
}

static int add_devices(struct plan_builder *b, const struct linux_container *c, struct error *err)
{
	struct device_list devices = {0};
	struct plan_device *items;
	struct plan_list list;
	int r = 0;

	TRY(device_list_make(&c->spec, c->spec.is_privileged, &devices, err));
	items = xcalloc(devices.count + 1, sizeof(*items));
	for (size_t i = 0; i < devices.count && r == 0; i++)
		r = add_device(b, &devices.items[i], c->sandbox->spec.has_userns, &items[i], err);
	list = plan_add_list(b, items, devices.count, sizeof(*items));
	plan_get(b)->devices = list;
	free(items);
	device_list_done(&devices);
	return r;
}

/* "cpu,cpuacct", as the hierarchy is known. */
static void hierarchy_name(const struct hierarchy *h, char *ret, size_t size)
{
	size_t n = 0;

	ret[0] = 0;
	if (h->is_v2)
		snprintf(ret, size, "unified");
	for (int i = 0; i < CONTROLLER_COUNT && !h->is_v2; i++)
		if (h->controllers & 1u << i)
			n += (size_t)snprintf(ret + n, size - n, "%s%s", n ? "," : "",
					      controller_names[i]);
}

static int add_hierarchy(struct plan_builder *b, const struct linux_container *c,
			 const struct hierarchy *h, struct plan_cgroup *ret, struct error *err)
{
	cleanup_close int dir = cgroup_open(h, c->cgroup);
	char name[128];
	int mount;

	if (dir < 0)
		return error_errno(err, -dir, "open the cgroup %s", c->cgroup);
	mount = open_tree(dir, "", AT_EMPTY_PATH | OPEN_TREE_CLONE | OPEN_TREE_CLOEXEC);
	if (mount < 0)
		return error_errno(err, errno, "clone the mount of the cgroup %s", c->cgroup);
	hierarchy_name(h, name, sizeof(name));
	*ret = (struct plan_cgroup){
		.name = kind.cgroups->is_pure_v2 ? 0 : plan_add_string(b, name),
		.fd = plan_give_fd(b, mount),
	};
	return 0;
}

/* Who manages the node wants its cgroups, under the names that the node's processes have for them.
 */
static int add_node_cgroups(struct plan_builder *b, struct error *err)
{
	struct plan_cgroup all = {0};
	struct plan_list list;
	int mounts = open_tree(kind.root, "sys/fs/cgroup",
			       AT_RECURSIVE | OPEN_TREE_CLONE | OPEN_TREE_CLOEXEC);

	if (mounts < 0)
		return error_errno(err, errno, "clone the mounts of /sys/fs/cgroup");
	all.fd = plan_give_fd(b, mounts);
	list = plan_add_list(b, &all, 1, sizeof(all));
	plan_get(b)->cgroups = list;
	plan_get(b)->flags |= PLAN_NODE_CGROUPS;
	return 0;
}

static int add_cgroups(struct plan_builder *b, const struct linux_container *c, struct error *err)
{
	struct plan_cgroup groups[CGROUP_JOIN_MAX];
	struct plan_list list;

	if (c->spec.is_privileged && !c->sandbox->spec.has_userns)
		return add_node_cgroups(b, err);
	for (size_t i = 0; i < kind.cgroups->count; i++)
		TRY(add_hierarchy(b, c, &kind.cgroups->hierarchies[i], &groups[i], err));
	list = plan_add_list(b, groups, kind.cgroups->count, sizeof(*groups));
	plan_get(b)->cgroups = list;
	return 0;
}

/* What the node's namespaces make different. */
static int add_node_mounts(struct plan_builder *b, const struct linux_container *c,
			   const struct pod_fds *pod, struct error *err)
{
	const struct sandbox_spec *sandbox = &c->sandbox->spec;
	int shm = -1, sys = -1;

	if (sandbox->ipc == NS_NODE)
		TRY(mount_clone("/dev/shm", false, false, &shm, err));
	plan_get(b)->shm_fd = shm >= 0 ? plan_give_fd(b, shm) : plan_lend_fd(b, pod->shm);
	/* a user namespace may not make a sysfs of a network namespace that is not its own */
	if (sandbox->has_userns && sandbox->net == NS_NODE)
		TRY(mount_clone("/sys", true, !c->spec.is_privileged, &sys, err));
	plan_get(b)->sys_fd = plan_give_fd(b, sys);
	return 0;
}

/* A pipe without a name has the label of who made it. */
static bool is_nameless(int pipe)
{
	struct statfs st;

	return fstatfs(pipe, &st) == 0 && st.f_type == PIPEFS_MAGIC;
}

int plan_give_stdio(const struct linux_container *c, const int stdio[3], struct error *err)
{
	const struct sandbox_spec *sandbox = &c->sandbox->spec;
	int64_t uid = c->user.uid, gid = c->user.gid;

	if (sandbox->has_userns) {
		uid = id_map_outside(&sandbox->uids, c->user.uid);
		gid = id_map_outside(&sandbox->gids, c->user.gid);
		if (uid < 0 || gid < 0)
			return error_set(err, ERR_INVALID,
					 "run as %u:%u: the pod's user namespace does not have it",
					 c->user.uid, c->user.gid);
	}
	for (int i = 0; i < 3; i++) {
		struct stat st;

		if (stdio[i] < 0 || fstat(stdio[i], &st) < 0 || !S_ISFIFO(st.st_mode))
			continue;
		if (fchown(stdio[i], (uid_t)uid, (gid_t)gid) < 0)
			return error_errno(err, errno, "give the container its stream %d", i);
		/* or the kernel would take it away at the program's start */
		if (c->labels.file && !is_nameless(stdio[i]))
			TRY(selinux_label_fd(stdio[i], c->labels.file, err));
	}
	return 0;
}

static void add_paths(struct plan_builder *b, const struct container_spec *spec)
{
	struct plan_list masked, readonly;

	if (spec->is_privileged)
		return;
	masked = plan_add_strings(b, &spec->masked_paths);
	readonly = plan_add_strings(b, &spec->readonly_paths);
	plan_get(b)->masked = masked;
	plan_get(b)->readonly = readonly;
}

int container_plan_build(const struct linux_container *c, const struct pod_fds *pod,
			 const struct cgroup_join *join, const int stdio[3],
			 struct plan_builder *ret, struct error *err)
{
	const struct sandbox_spec *sandbox = &c->sandbox->spec;
	plan_string hostname, label;
	int r;

	plan_init(ret, INIT_CONTAINER, stdio);
	plan_get(ret)->net_fd = plan_lend_fd(ret, pod->net);
	plan_get(ret)->ipc_fd = plan_lend_fd(ret, pod->ipc);
	plan_add_cgroups(ret, join);
	plan_add_process(ret, c, &c->spec.argv);
	add_paths(ret, &c->spec);
	label = plan_add_string(ret, c->labels.file);
	plan_get(ret)->file_label = label;
	hostname = plan_add_string(ret, sandbox->hostname && *sandbox->hostname ? sandbox->hostname
										: NULL);
	plan_get(ret)->hostname = hostname;
	if (c->spec.is_readonly_root)
		plan_get(ret)->flags |= PLAN_READONLY_ROOT;
	if (c->spec.is_privileged)
		plan_get(ret)->flags |= PLAN_PRIVILEGED;
	if (sandbox->ipc == NS_CONTAINER)
		plan_get(ret)->flags |= PLAN_OWN_IPC;
	r = add_root(ret, c, pod, err);
	if (r == 0)
		r = add_mounts(ret, c, pod, err);
	if (r == 0)
		r = add_devices(ret, c, err);
	if (r == 0)
		r = add_cgroups(ret, c, err);
	if (r == 0)
		r = add_node_mounts(ret, c, pod, err);
	if (r == 0)
		r = plan_give_stdio(c, stdio, err);
	if (r < 0)
		plan_done(ret);
	return r;
}
