/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The container's mounts. Peculiar: every file system is made detached and placed by descriptor, so
 * that procfs is procfs whatever the image has at /proc; all of it happens while the pristine proc
 * and sysfs of the tiny mount namespace are still there, which a user namespace needs to make its
 * own.
 */
#include "sandbox/linux/init/helper.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/magic.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <sys/vfs.h>
#include <unistd.h>

/* The kernel's own limit for the options of mount(2). */
#define OPTIONS_MAX 4096
#define MASK_ATTRIBUTES                                                                            \
	(MOUNT_ATTR_RDONLY | MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV | MOUNT_ATTR_NOEXEC)

/* Mount options that are attributes of the mount, not of the file system. */
static const struct {
	const char *name;
	unsigned set;
} attribute_options[] = {
	{"ro", MOUNT_ATTR_RDONLY},
	{"rw", 0},
	{"nosuid", MOUNT_ATTR_NOSUID},
	{"nodev", MOUNT_ATTR_NODEV},
	{"noexec", MOUNT_ATTR_NOEXEC},
	{"noatime", MOUNT_ATTR_NOATIME},
	{"strictatime", MOUNT_ATTR_STRICTATIME},
	{"relatime", 0},
	{"exec", 0},
	{"suid", 0},
	{"dev", 0},
};

static bool is_attribute(const char *name, unsigned *attributes)
{
	for (size_t i = 0; i < sizeof(attribute_options) / sizeof(attribute_options[0]); i++) {
		if (strcmp(name, attribute_options[i].name) == 0) {
			*attributes |= attribute_options[i].set;
			return true;
		}
	}
	return false;
}

static int set_option(int fs, char *option, unsigned *attributes)
{
	char *value = strchr(option, '=');

	if (!*option || is_attribute(option, attributes))
		return 0;
	if (!value)
		return fsconfig(fs, FSCONFIG_SET_FLAG, option, NULL, 0);
	*value = 0;
	return fsconfig(fs, FSCONFIG_SET_STRING, option, value + 1, 0);
}

const char *file_label(const struct helper *h)
{
	return plan_text(h->plan, h->plan->file_label);
}

int mount_new(const char *type, const char *options, const char *label, unsigned attributes)
{
	char copy[OPTIONS_MAX], *rest = copy, *option;
	int fs, mount = -1, saved, r;

	if (options && strlen(options) >= sizeof(copy)) {
		errno = E2BIG;
		return -1;
	}
	memcpy(copy, options ? options : "", options ? strlen(options) + 1 : 1);
	fs = fsopen(type, FSOPEN_CLOEXEC);
	r = fs < 0 ? -1 : fsconfig(fs, FSCONFIG_SET_STRING, "source", type, 0);
	if (r == 0 && label)
		r = fsconfig(fs, FSCONFIG_SET_STRING, "context", label, 0);
	while (r == 0 && (option = strsep(&rest, ",")))
		r = set_option(fs, option, &attributes);
	if (r == 0)
		r = fsconfig(fs, FSCONFIG_CMD_CREATE, NULL, NULL, 0);
	if (r == 0)
		mount = fsmount(fs, FSMOUNT_CLOEXEC, attributes);
	saved = errno;
	close(fs);
	errno = saved;
	return mount;
}

int mount_place(int mount, int target)
{
	return move_mount(mount, "", target, "", MOVE_MOUNT_F_EMPTY_PATH | MOVE_MOUNT_T_EMPTY_PATH);
}

int mount_clone(int fd, bool is_recursive)
{
	return open_tree(fd, "",
			 AT_EMPTY_PATH | OPEN_TREE_CLONE | OPEN_TREE_CLOEXEC |
				 (unsigned)(is_recursive ? AT_RECURSIVE : 0));
}

int mount_aside(int mount)
{
	int place = open("/aside", O_PATH | O_DIRECTORY | O_CLOEXEC);
	int r = place < 0 ? -1 : mount_place(mount, place);

	close(place);
	return r;
}

static void mount_proc(struct helper *h)
{
	/* a link here would let the image say what we take for procfs (CVE-2019-19921) */
	int target = open_plain_directory(h->root, "proc");
	int proc = mount_new("proc", NULL, NULL,
			     MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV | MOUNT_ATTR_NOEXEC);

	if (target < 0 || proc < 0 || mount_place(proc, target) < 0)
		fail(STEP_PROC, "/proc");
	close(target);
	close(proc);
}

static void mount_pts(struct helper *h)
{
	int target = openat(h->dev, "pts", O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);

	h->pts = mount_new("devpts", "ptmxmode=0666,mode=0620,gid=5", file_label(h),
			   MOUNT_ATTR_NOSUID | MOUNT_ATTR_NOEXEC);
	if (h->pts < 0 && h->plan->flags & PLAN_USERNS)
		h->pts = mount_new("devpts", "ptmxmode=0666,mode=0620", file_label(h),
				   MOUNT_ATTR_NOSUID | MOUNT_ATTR_NOEXEC);
	if (target < 0 || h->pts < 0 || mount_place(h->pts, target) < 0)
		fail(STEP_PTS, "/dev/pts");
	close(target);
}

static void mount_in_dev(struct helper *h, const char *name, int mount, enum init_step step)
{
	int target = openat(h->dev, name, O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);

	if (mount < 0 || target < 0 || mount_place(mount, target) < 0)
		fail(step, name);
	close(target);
	close(mount);
}

/* Its file system is the ipc namespace's and is there already, so its label can't be an option any
 * more; the node's own keeps the label that it has. */
static int mount_mqueue(const struct helper *h, unsigned attributes)
{
	const char *label = file_label(h);
	bool is_node = h->plan->ipc_fd < 0 && !(h->plan->flags & PLAN_OWN_IPC);
	int mount = mount_new("mqueue", NULL, NULL, attributes), top;
	long r;

	if (mount < 0 || !label || is_node)
		return mount;
	top = openat(mount, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	r = top < 0 ? -1
		    : syscall(SYS_fsetxattr, top, "security.selinux", label, strlen(label) + 1, 0);
	/* one that takes no labels has none that could be wrong */
	if (r < 0 && errno != EOPNOTSUPP)
		fail(STEP_MQUEUE, "/dev/mqueue");
	close(top);
	return mount;
}

static void mount_dev(struct helper *h)
{
	int target = open_plain_directory(h->root, "dev");
	unsigned no = MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV | MOUNT_ATTR_NOEXEC;

	h->dev = mount_new("tmpfs", "mode=755,size=65536k", file_label(h),
			   MOUNT_ATTR_NOSUID | MOUNT_ATTR_STRICTATIME);
	if (target < 0 || h->dev < 0)
		fail(STEP_DEV, "/dev");
	make_devices(h, h->dev);
	if (mount_place(h->dev, target) < 0)
		fail(STEP_DEV, "/dev");
	close(target);
	bind_devices(h);
	mount_pts(h);
	mount_in_dev(h, "mqueue", mount_mqueue(h, no), STEP_MQUEUE);
	mount_in_dev(h, "shm",
		     h->plan->shm_fd >= 0
			     ? h->plan->shm_fd
			     : mount_new("tmpfs", "mode=1777,size=65536k", file_label(h), no),
		     STEP_SHM);
}

static void mount_sys(struct helper *h)
{
	unsigned attributes = MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV | MOUNT_ATTR_NOEXEC;
	int target = open_plain_directory(h->root, "sys"), sys = h->plan->sys_fd;

	if (!(h->plan->flags & PLAN_PRIVILEGED))
		attributes |= MOUNT_ATTR_RDONLY;
	if (sys < 0)
		sys = mount_new("sysfs", NULL, NULL, attributes);
	if (target < 0 || sys < 0 || mount_place(sys, target) < 0)
		fail(STEP_SYS, "/sys");
	mount_cgroup_view(h, sys);
	close(target);
	close(sys);
}

void mount_base(struct helper *h)
{
	mount_proc(h);
	mount_dev(h);
	mount_sys(h);
}

/* A volume over procfs would let whoever made the image answer for the kernel (CVE-2019-16884).
 * What lxcfs gives is data about resources only. */
static bool may_cover_proc(const char *target)
{
	static const char *const allowed[] = {"/proc/cpuinfo", "/proc/diskstats", "/proc/meminfo",
					      "/proc/stat",    "/proc/swaps",	  "/proc/uptime",
					      "/proc/loadavg", "/proc/slabinfo"};

	for (size_t i = 0; i < sizeof(allowed) / sizeof(allowed[0]); i++)
		if (strcmp(target, allowed[i]) == 0)
			return true;
	return false;
}

/* A mount of a part of mount. Only what is attached can be cloned before Linux 6.15. */
static int mount_part(int mount, const char *sub_path)
{
	int part, clone = -1;

	if (mount_aside(mount) < 0)
		return -1;
	part = open_beneath(mount, sub_path, 0);
	if (part >= 0)
		clone = mount_clone(part, true);
	close(part);
	close(mount);
	return clone;
}

static void mount_volume(struct helper *h, const struct plan_mount *m)
{
	const char *path = plan_text(h->plan, m->target);
	int mount = m->fd, target = make_beneath(h->root, path, m->is_directory);
	struct statfs fs;
	struct stat st;

	if (target < 0 || fstatfs(target, &fs) < 0 || fstat(target, &st) < 0)
		fail(STEP_TARGET, path);
	if (S_ISDIR(st.st_mode) != m->is_directory) {
		errno = m->is_directory ? ENOTDIR : EISDIR;
		fail(m->is_directory ? STEP_MOUNT_ON_FILE : STEP_MOUNT_ON_DIRECTORY, path);
	}
	if (fs.f_type == PROC_SUPER_MAGIC && !may_cover_proc(path)) {
		errno = EPERM;
		fail(STEP_MOUNT_PROC, path);
	}
	if (mount < 0)
		mount = mount_new("tmpfs", plan_text(h->plan, m->options), file_label(h),
				  MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV |
					  (m->is_readonly ? MOUNT_ATTR_RDONLY : 0));
	else if (m->sub_path)
		mount = mount_part(mount, plan_text(h->plan, m->sub_path));
	if (mount < 0 || mount_place(mount, target) < 0)
		fail(STEP_MOUNT, path);
	close(target);
	close(mount);
}

void mount_volumes(struct helper *h)
{
	const struct plan_mount *mounts = plan_items(h->plan, h->plan->mounts);

	for (uint32_t i = 0; i < h->plan->mounts.count; i++)
		mount_volume(h, &mounts[i]);
}

/* A path that may be missing in this kernel or image: −1 then. */
static int open_restricted(const struct helper *h, const char *path, enum init_step step)
{
	int fd = open_beneath(h->root, path, 0);

	if (fd < 0 && errno != ENOENT && errno != ENOTDIR)
		fail(step, path);
	return fd;
}

/* All masked directories share one empty tmpfs. */
static void mask_path(const struct helper *h, const char *path, int *empty)
{
	int target = open_restricted(h, path, STEP_MASK), mount;
	struct stat st;

	if (target < 0)
		return;
	if (fstat(target, &st) < 0)
		fail(STEP_MASK, path);
	if (!S_ISDIR(st.st_mode))
		mount = mount_clone(h->null, false);
	else if (*empty >= 0)
		mount = mount_clone(*empty, false);
	else
		mount = *empty = mount_new("tmpfs", "nr_blocks=1,nr_inodes=1,mode=755",
					   file_label(h), MASK_ATTRIBUTES);
	if (mount < 0 || mount_place(mount, target) < 0)
		fail(STEP_MASK, path);
	close(target);
	if (mount != *empty)
		close(mount);
}

static void protect_path(const struct helper *h, const char *path)
{
	struct mount_attr readonly = {.attr_set = MOUNT_ATTR_RDONLY};
	int target = open_restricted(h, path, STEP_READONLY), mount;

	if (target < 0)
		return;
	mount = mount_clone(target, true);
	if (mount < 0 ||
	    mount_setattr(mount, "", AT_EMPTY_PATH | AT_RECURSIVE, &readonly, sizeof(readonly)) <
		    0 ||
	    mount_place(mount, target) < 0)
		fail(STEP_READONLY, path);
	close(target);
	close(mount);
}

void mount_restrictions(struct helper *h)
{
	struct mount_attr readonly = {.attr_set = MOUNT_ATTR_RDONLY};
	const plan_string *paths = plan_items(h->plan, h->plan->readonly);
	int empty = -1;

	for (uint32_t i = 0; i < h->plan->readonly.count; i++)
		protect_path(h, plan_text(h->plan, paths[i]));
	paths = plan_items(h->plan, h->plan->masked);
	for (uint32_t i = 0; i < h->plan->masked.count; i++)
		mask_path(h, plan_text(h->plan, paths[i]), &empty);
	if (h->plan->flags & PLAN_READONLY_ROOT &&
	    mount_setattr(h->root, "", AT_EMPTY_PATH, &readonly, sizeof(readonly)) < 0)
		fail(STEP_READONLY, "/");
}
