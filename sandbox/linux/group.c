/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The cgroups of pods and containers, by the driver of the node. With cgroupfs we make them. With
 * systemd a container is a transient scope, crisp-<id>.scope, and a pod that has limits and no
 * parent a slice, crisp-<id>.slice; systemd makes those groups, whose insides are left to us
 * (Delegate=). It is told the limits that it knows, since it writes its own anew whenever it
 * reloads, and all of them are written by us, since it rounds some and knows few.
 *
 * Peculiar: a scope is there only as long as it has a process. So it is made when the container
 * starts, with a helper that waits in it until the container's first process is born there, and
 * systemd takes it away as soon as the last process is gone. Before and after that, there is no
 * group.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "io/base/alloc.h"
#include "io/base/cleanup.h"
#include "io/base/log.h"
#include "sandbox/linux/cgroup_priv.h"
#include "sandbox/linux/kind.h"
#include "sandbox/linux/units.h"

/* Where systemd that is PID 1 has its run-time data (sd_booted(3)). */
#define SYSTEMD_BOOTED "/run/systemd/system"

static const char *address(void)
{
	return kind.env.systemd_address ? kind.env.systemd_address : SYSTEMD_ADDRESS;
}

static bool has_booted(void)
{
	struct stat st;

	return lstat(SYSTEMD_BOOTED, &st) == 0 && S_ISDIR(st.st_mode);
}

static int use_systemd(struct error *err)
{
	struct error why = {0};

	if (!cgroups_has_v2(kind.cgroups))
		return error_set(err, ERR_PRECONDITION,
				 "cgroup_driver systemd: no cgroup v2 hierarchy is mounted, by "
				 "which systemd tells what is in a unit; boot the node with v2, or "
				 "set cgroup_driver: cgroupfs");
	kind.has_systemd = true;
	/* it may be about to execute itself anew */
	if (systemd_probe(address(), &why) < 0)
		log_warning("no container can start before systemd answers: %s", why.text);
	return why.code == ERR_INVALID ? error_copy(err, &why) : 0;
}

int group_driver_init(struct error *err)
{
	const char *driver = kind.env.cgroup_driver ? kind.env.cgroup_driver : "cgroupfs";

	if (!strcmp(driver, "systemd"))
		return use_systemd(err);
	if (!strcmp(driver, "auto") && cgroups_has_v2(kind.cgroups) && has_booted())
		kind.has_systemd = systemd_probe(address(), NULL) == 0;
	return 0;
}

const char *group_default_parent(void)
{
	return kind.has_systemd ? "/" UNIT_DEFAULT_SLICE : DEFAULT_PARENT;
}

const char *group_of_pod(struct arena *arena, const char *id)
{
	return kind.has_systemd
		       ? arena_printf(arena, "/" UNIT_DEFAULT_SLICE "/" UNIT_PREFIX "%s.slice", id)
		       : arena_printf(arena, DEFAULT_PARENT "/%s", id);
}

char *group_of_container(const char *parent, const char *id)
{
	return unit_of(parent) ? xasprintf("%s/" UNIT_PREFIX "%s.scope", parent, id)
			       : xasprintf("%s/%s", parent, id);
}

static void add_text(struct unit_properties *p, const char *name, const char *value)
{
	unit_property_add(p, name, PROPERTY_STRING)->string = value;
}

static void add_flag(struct unit_properties *p, const char *name, bool value)
{
	unit_property_add(p, name, PROPERTY_BOOL)->number = value;
}

/* What r asks for and undone does not have any more, in systemd's words. */
static int plan_limits(const struct resources *r, const struct resources *undone,
		       struct unit_properties *ret, struct error *err)
{
	struct setting_list settings = {0};

	if (undone)
		TRY(limits_plan_without(kind.cgroups, r, undone, &settings, err));
	unit_add_limits(kind.cgroups, &settings, ret);
	setting_list_done(&settings);
	TRY(limits_plan(kind.cgroups, r, &settings, err));
	unit_add_limits(kind.cgroups, &settings, ret);
	setting_list_done(&settings);
	return 0;
}

static void cleanup_properties(struct unit_properties *p)
{
	unit_properties_done(p);
}

#define CLEANUP_PROPERTIES __attribute__((cleanup(cleanup_properties)))

static int start_scope(struct task *t, const struct linux_container *c, pid_t pid)
{
	CLEANUP_PROPERTIES struct unit_properties p = {0};
	cleanup_free char *slice = unit_slice_of(c->cgroup);
	cleanup_free char *description = xasprintf("crisp container %s", c->spec.id);

	add_text(&p, "Description", description);
	add_text(&p, "Slice", slice);
	add_text(&p, "CollectMode", "inactive-or-failed");
	add_flag(&p, "Delegate", true);
	/* it ends when it is told to, not with the targets that end at a shutdown */
	add_flag(&p, "DefaultDependencies", false);
	TRY(plan_limits(&c->spec.resources, NULL, &p, &t->err));
	return systemd_start(t, address(), unit_of(c->cgroup), &p, pid);
}

static int start_slice(struct task *t, const char *path, const struct resources *r)
{
	CLEANUP_PROPERTIES struct unit_properties p = {0};

	add_text(&p, "Description", "crisp pod");
	add_flag(&p, "DefaultDependencies", false);
	/* what counts has to be there before there is a limit */
	add_flag(&p, "CPUAccounting", true);
	add_flag(&p, "MemoryAccounting", true);
	add_flag(&p, "TasksAccounting", true);
	add_flag(&p, "IOAccounting", true);
	if (r)
		TRY(plan_limits(r, NULL, &p, &t->err));
	return systemd_start(t, address(), unit_of(path), &p, 0);
}

int group_create(struct task *t, const char *path, const struct resources *r)
{
	if (unit_of(path))
		TRY(start_slice(t, path, r));
	return cgroup_create(t, kind.cgroups, path, r);
}

int group_update(struct task *t, const char *path, const struct resources *r,
		 const struct resources *undone)
{
	CLEANUP_PROPERTIES struct unit_properties p = {0};

	/* first, since the kernel is who refuses, and then nothing was changed */
	TRY(cgroup_update(t, kind.cgroups, path, r, undone));
	if (!unit_of(path))
		return 0;
	TRY(plan_limits(r, undone, &p, &t->err));
	if (!p.count)
		return 0;
	TRY(systemd_change(t, address(), unit_of(path), &p));
	/* what it has rounded */
	return cgroup_update(t, kind.cgroups, path, r, NULL);
}

int group_remove(struct task *t, struct cgroups *cg, const char *path)
{
	TRY(cgroup_remove(t, cg, path));
	return unit_of(path) ? systemd_stop(t, address(), unit_of(path)) : 0;
}

int group_check_limits(const struct resources *r, struct error *err)
{
	struct setting_list settings = {0};

	TRY(limits_plan(kind.cgroups, r, &settings, err));
	setting_list_done(&settings);
	return 0;
}

static int start_holder(struct task *t, struct group_hold *hold, pid_t *ret_pid)
{
	static const int no_stdio[3] = {-1, -1, -1};
	struct birth birth = {.user_fd = -1, .pid_fd = -1, .clone_fd = -1};
	int r;

	plan_init(&birth.plan, INIT_HOLD, no_stdio);
	r = plan_seal(&birth.plan, &hold->control, &t->err);
	if (r == 0)
		r = spawner_start(t, kind.spawner, &birth, &hold->pidfd, ret_pid);
	plan_done(&birth.plan);
	return r;
}

int group_enter(struct task *t, struct linux_container *c, struct group_hold *hold)
{
	pid_t pid;

	if (!unit_of(c->cgroup))
		return 0;
	task_stage(t, "making its scope");
	TRY(start_holder(t, hold, &pid));
	TRY(start_scope(t, c, pid));
	return linux_container_make_group(t, c);
}

void group_leave(struct task *t, struct group_hold *hold)
{
	struct process_exit exit;

	/* its end of file */
	close_fd(hold->control);
	if (hold->pidfd >= 0) {
		task_shield(t, +1);
		process_signal(hold->pidfd, SIGKILL, NULL);
		process_wait(t, hold->pidfd, &exit);
		task_shield(t, -1);
	}
	close_fd(hold->pidfd);
	*hold = GROUP_HOLD_NONE;
}
