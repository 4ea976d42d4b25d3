/* SPDX-License-Identifier: Apache-2.0 */
/* The linux kind: containers by namespaces and cgroups, in our own code. */
#include <errno.h>
#include <fcntl.h>

#include "io/base/cleanup.h"
#include "io/base/log.h"
#include "io/embed.h"
#include "sandbox/linux/apparmor.h"
#include "sandbox/linux/caps.h"
#include "sandbox/linux/kind.h"
#include "sandbox/linux/linux.h"

struct linux_kind kind = {.pid1_program = -1, .root = -1, .selinux = SELINUX_NONE};

extern const char pid1_program[], pid1_program_end[];

static void linux_shutdown(void)
{
	if (kind.spawner)
		linux_oom_shutdown();
	spawner_free(kind.spawner);
	cgroups_free(kind.cgroups);
	close_fd(kind.pid1_program);
	close_fd(kind.root);
	selinux_done(&kind.selinux);
	map_done(&kind.levels);
	free(kind.skeleton);
	seccomp_cache_done();
	kind = (struct linux_kind){.pid1_program = -1, .root = -1, .selinux = SELINUX_NONE};
}

/* What the first container would wait for; the default filter takes 30 ms to compile. */
static void warm_up(struct task *t, void *arg)
{
	struct seccomp_filter *filter = NULL;

	if (group_create(t, group_default_parent(), NULL) < 0)
		log_warning("the cgroup %s can't be made: %s", group_default_parent(), t->err.text);
	if (seccomp_filter_get(t, SECCOMP_RUNTIME_DEFAULT, NULL, caps_default, &filter) < 0)
		log_warning("the default seccomp filter can't be made: %s", t->err.text);
	seccomp_filter_unref(filter);
}

/* A slice goes with its last unit, or stays for the next server: others may be in it. */
static int linux_give_up(struct task *t)
{
	if (kind.has_systemd)
		return 0;
	return cgroup_remove_unused(t, kind.cgroups, DEFAULT_PARENT);
}

static int linux_init(const struct sandboxer_env *env, struct error *err)
{
	int r;

	kind.env = *env;
	kind.root = open("/", O_PATH | O_DIRECTORY | O_CLOEXEC);
	kind.has_apparmor = apparmor_is_enabled(kind.root);
	kind.selinux = selinux_open(kind.root);
	r = boot_id(kind.boot, err);
	if (r == 0)
		r = embed_memfd("crisp-pid1", pid1_program, pid1_program_end, &kind.pid1_program,
				err);
	if (r == 0)
		r = skeleton_make(env->root_dir, &kind.skeleton, err);
	if (r == 0 && !(kind.cgroups = cgroups_probe(err)))
		r = -(int)err->code;
	if (r == 0)
		r = group_driver_init(err);
	if (r == 0 && !(kind.spawner = spawner_new(env->loop, err)))
		r = -(int)err->code;
	if (r < 0) {
		linux_shutdown();
		return r;
	}
	linux_oom_init();
	task_start(env->loop, "first container", warm_up, NULL);
	return 0;
}

static bool linux_has_systemd(void)
{
	return kind.has_systemd;
}

const struct sandboxer linux_sandboxer = {
	.name = "linux",
	.features = {.recursive_readonly_mounts = true,
		     .user_namespaces = true,
		     .supplemental_groups_policy = true,
		     .mount_options = true},
	.init = linux_init,
	.has_systemd_cgroups = linux_has_systemd,
	.give_up = linux_give_up,
	.sweep = linux_sweep,
	.shutdown = linux_shutdown,
	.sandbox_create = linux_sandbox_create,
	.sandbox_recover = linux_sandbox_recover,
	.sandbox_record = linux_sandbox_record,
	.sandbox_is_up = linux_sandbox_is_up,
	.sandbox_stop = linux_sandbox_stop,
	.sandbox_update = linux_sandbox_update,
	.sandbox_remove = linux_sandbox_remove,
	.sandbox_usage = linux_sandbox_usage,
	.sandbox_info = linux_sandbox_info,
	.sandbox_forget = linux_sandbox_forget,
	.container_create = linux_container_create,
	.container_recover = linux_container_recover,
	.container_record = linux_container_record,
	.container_start = linux_container_start,
	.container_life = linux_container_life,
	.container_info = linux_container_info,
	.container_recorded_user = linux_container_recorded_user,
	.container_kill = linux_container_kill,
	.container_kill_all = linux_container_kill_all,
	.container_wait = linux_container_wait,
	.container_exec = linux_container_exec,
	.container_exec_kill = linux_container_exec_kill,
	.container_exec_done = linux_container_exec_done,
	.container_usage = linux_container_usage,
	.container_update = linux_container_update,
	.container_limits = linux_container_limits,
	.container_remove = linux_container_remove,
	.container_forget = linux_container_forget,
};
