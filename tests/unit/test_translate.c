/* SPDX-License-Identifier: Apache-2.0 */
/* CRI configurations into specs: what an image gives, what the configuration overrides, what is
 * refused. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <stdio.h>
#include <string.h>
#include <signal.h>
#include <cmocka.h>

#include "cri/canonical.h"
#include "cri/translate.h"
#include "sandbox/linux/caps.h"

static const char *env_items[] = {"PATH=/bin", "A=image", "no equals sign"};
static const char *entry_items[] = {"/entry"};
static const char *cmd_items[] = {"one", "two"};
static const char *layer_items[] = {"/layer"};

/* A pod and a container of an image that has everything, as a test's ground. */
struct ground {
	struct arena *arena;
	struct error err;
	struct image image;
	struct sandbox sb;
	struct container c;
	struct sandbox_spec pod;
	struct container_spec spec;
	Runtime__V1__PodSandboxMetadata pod_name;
	Runtime__V1__PodSandboxConfig pod_config;
	Runtime__V1__ContainerMetadata name;
	Runtime__V1__ImageSpec image_spec;
	Runtime__V1__ContainerConfig config;
	Runtime__V1__LinuxContainerConfig linux_config;
	Runtime__V1__LinuxContainerSecurityContext security;
};

static int setup(void **state)
{
	struct ground *g = calloc(1, sizeof(*g));

	g->arena = arena_new(1 << 20);
	g->image.config.env = (struct string_list){env_items, 3};
	g->image.config.entrypoint = (struct string_list){entry_items, 1};
	g->image.config.cmd = (struct string_list){cmd_items, 2};
	g->image.config.user = "www:staff";
	g->image.config.stop_signal = "SIGQUIT";
	g->image.layers = (struct string_list){layer_items, 1};
	g->pod_name = (Runtime__V1__PodSandboxMetadata)RUNTIME__V1__POD_SANDBOX_METADATA__INIT;
	g->pod_name.name = (char *)"pod";
	g->pod_config = (Runtime__V1__PodSandboxConfig)RUNTIME__V1__POD_SANDBOX_CONFIG__INIT;
	g->pod_config.metadata = &g->pod_name;
	g->name = (Runtime__V1__ContainerMetadata)RUNTIME__V1__CONTAINER_METADATA__INIT;
	g->name.name = (char *)"c";
	g->image_spec = (Runtime__V1__ImageSpec)RUNTIME__V1__IMAGE_SPEC__INIT;
	g->image_spec.image = (char *)"busybox";
	g->config = (Runtime__V1__ContainerConfig)RUNTIME__V1__CONTAINER_CONFIG__INIT;
	g->config.metadata = &g->name;
	g->config.image = &g->image_spec;
	g->linux_config =
		(Runtime__V1__LinuxContainerConfig)RUNTIME__V1__LINUX_CONTAINER_CONFIG__INIT;
	g->security = (Runtime__V1__LinuxContainerSecurityContext)
		RUNTIME__V1__LINUX_CONTAINER_SECURITY_CONTEXT__INIT;
	g->linux_config.security_context = &g->security;
	strcpy(g->sb.id, "ab");
	g->sb.dir = (char *)"/state/sandboxes/ab";
	g->c.sandbox = &g->sb;
	*state = g;
	return 0;
}

static int teardown(void **state)
{
	struct ground *g = *state;

	arena_free(g->arena);
	buf_done(&g->sb.config);
	buf_done(&g->c.config);
	buf_done(&g->c.limits.bytes);
	free(g);
	return 0;
}

/* The objects have the configurations as they are now. */
static void keep(struct ground *g)
{
	buf_done(&g->sb.config);
	canonical_pack(&g->pod_config.base, &g->sb.config);
	buf_done(&g->c.config);
	canonical_pack(&g->config.base, &g->c.config);
}

static int translate(struct ground *g)
{
	int r = translate_check_container(&g->config, &g->err);

	keep(g);
	memset(&g->spec, 0, sizeof(g->spec));
	if (r < 0)
		return r;
	return cri_front_end.container_spec(g->arena, &g->c, &g->image, &g->spec, &g->err);
}

static bool has_env(const struct ground *g, const char *wanted)
{
	for (size_t i = 0; i < g->spec.envp.count; i++)
		if (!strcmp(g->spec.envp.items[i], wanted))
			return true;
	return false;
}

static void nothing_given_means_the_image_and_defaults(void **state)
{
	struct ground *g = *state;

	assert_int_equal(translate(g), 0);
	assert_int_equal(g->spec.argv.count, 3);
	assert_string_equal(g->spec.argv.items[0], "/entry");
	assert_string_equal(g->spec.argv.items[2], "two");
	assert_true(has_env(g, "PATH=/bin"));
	/* its own two and HOSTNAME */
	assert_int_equal(g->spec.envp.count, 3);
	assert_string_equal(g->spec.user.user, "www");
	assert_string_equal(g->spec.user.group, "staff");
	assert_int_equal(g->spec.stop_signal, SIGQUIT);
	assert_int_equal(g->spec.seccomp, SECCOMP_RUNTIME_DEFAULT);
	assert_int_equal(g->spec.capabilities, caps_default);
	assert_true(g->spec.masked_paths.count > 5);
	assert_int_equal(g->spec.mount_count, 3);
	assert_string_equal(g->spec.mounts[2].source, "/state/sandboxes/ab/resolv.conf");
}

static void command_replaces_entrypoint_and_cmd(void **state)
{
	struct ground *g = *state;
	char *command[] = {(char *)"sh"}, *args[] = {(char *)"-c"};

	g->config.command = command;
	g->config.n_command = 1;
	assert_int_equal(translate(g), 0);
	assert_int_equal(g->spec.argv.count, 1);
	g->config.n_command = 0;
	g->config.args = args;
	g->config.n_args = 1;
	assert_int_equal(translate(g), 0);
	assert_int_equal(g->spec.argv.count, 2);
	assert_string_equal(g->spec.argv.items[0], "/entry");
	assert_string_equal(g->spec.argv.items[1], "-c");
	g->image.config.entrypoint.count = 0;
	g->config.n_args = 0;
	g->image.config.cmd.count = 0;
	assert_int_equal(translate(g), -ERR_INVALID);
}

static void envs_override_and_are_checked(void **state)
{
	struct ground *g = *state;
	Runtime__V1__KeyValue e = RUNTIME__V1__KEY_VALUE__INIT, *list = &e;

	e.key = (char *)"A";
	e.value.data = (uint8_t *)"mine";
	e.value.len = 4;
	g->config.envs = &list;
	g->config.n_envs = 1;
	g->pod_config.hostname = (char *)"host";
	assert_int_equal(translate(g), 0);
	assert_true(has_env(g, "A=mine"));
	assert_false(has_env(g, "A=image"));
	assert_true(has_env(g, "HOSTNAME=host"));
	e.value.data = (uint8_t *)"a\0b";
	e.value.len = 3;
	assert_int_equal(translate(g), -ERR_INVALID);
	e.value.len = 1;
	e.key = (char *)"A=B";
	assert_int_equal(translate(g), -ERR_INVALID);
}

static void an_empty_context_is_taken_at_its_word(void **state)
{
	struct ground *g = *state;

	g->config.linux = &g->linux_config;
	assert_int_equal(translate(g), 0);
	assert_int_equal(g->spec.masked_paths.count, 0);
	assert_int_equal(g->spec.readonly_paths.count, 0);
	assert_int_equal(g->spec.seccomp, SECCOMP_UNCONFINED);
	assert_int_equal(g->spec.capabilities, caps_default);
}

static void run_as_wins_over_the_image(void **state)
{
	struct ground *g = *state;
	Runtime__V1__Int64Value uid = RUNTIME__V1__INT64_VALUE__INIT;
	Runtime__V1__Int64Value gid = RUNTIME__V1__INT64_VALUE__INIT;
	int64_t groups[] = {7, -1};

	uid.value = 1000;
	gid.value = 2000;
	g->config.linux = &g->linux_config;
	g->security.run_as_group = &gid;
	assert_int_equal(translate(g), -ERR_INVALID);
	g->security.run_as_user = &uid;
	assert_int_equal(translate(g), 0);
	assert_string_equal(g->spec.user.user, "1000");
	assert_string_equal(g->spec.user.group, "2000");
	g->security.run_as_group = NULL;
	assert_int_equal(translate(g), 0);
	assert_null(g->spec.user.group);
	g->security.supplemental_groups = groups;
	g->security.n_supplemental_groups = 1;
	assert_int_equal(translate(g), 0);
	assert_int_equal(g->spec.user.supplemental.items[0], 7);
	g->security.n_supplemental_groups = 2;
	assert_int_equal(translate(g), -ERR_INVALID);
	g->security.n_supplemental_groups = 0;
	g->security.run_as_username = (char *)"bob";
	assert_int_equal(translate(g), -ERR_INVALID);
}

static void privileged_means_everything(void **state)
{
	struct ground *g = *state;

	g->config.linux = &g->linux_config;
	g->security.privileged = true;
	assert_int_equal(translate(g), 0);
	assert_int_equal(g->spec.capabilities, caps_all());
	assert_int_equal(g->spec.seccomp, SECCOMP_UNCONFINED);
	assert_true(g->spec.is_privileged);
}

static void mounts_are_checked_and_hide_the_pods_files(void **state)
{
	struct ground *g = *state;
	Runtime__V1__Mount m = RUNTIME__V1__MOUNT__INIT, *list = &m;

	m.host_path = (char *)"/pods/hosts";
	m.container_path = (char *)"/etc/hosts";
	g->config.mounts = &list;
	g->config.n_mounts = 1;
	assert_int_equal(translate(g), 0);
	assert_int_equal(g->spec.mount_count, 3);
	assert_string_equal(g->spec.mounts[2].source, "/pods/hosts");
	m.recursive_read_only = true;
	assert_int_equal(translate(g), -ERR_INVALID);
	m.readonly = true;
	assert_int_equal(translate(g), 0);
	m.propagation = RUNTIME__V1__MOUNT_PROPAGATION__PROPAGATION_BIDIRECTIONAL;
	assert_int_equal(translate(g), -ERR_INVALID);
	m.recursive_read_only = false;
	assert_int_equal(translate(g), 0);
	assert_int_equal(g->spec.mounts[2].propagation, PROPAGATION_SHARED);
	m.container_path = (char *)"relative";
	assert_int_equal(translate(g), -ERR_INVALID);
}

static void what_cant_be_done_is_refused_by_name(void **state)
{
	struct ground *g = *state;
	Runtime__V1__SecurityProfile p = RUNTIME__V1__SECURITY_PROFILE__INIT;

	p.profile_type = RUNTIME__V1__SECURITY_PROFILE__PROFILE_TYPE__Localhost;
	g->config.linux = &g->linux_config;
	g->security.apparmor = &p;
	assert_int_equal(translate(g), -ERR_INVALID);
	assert_non_null(strstr(g->err.text, "apparmor"));
	g->security.apparmor = NULL;
	p.localhost_ref = (char *)"relative";
	g->security.seccomp = &p;
	assert_int_equal(translate(g), -ERR_INVALID);
	assert_non_null(strstr(g->err.text, "seccomp.localhost_ref"));
}

static void labels_are_passed_on(void **state)
{
	struct ground *g = *state;
	Runtime__V1__SELinuxOption o = RUNTIME__V1__SELINUX_OPTION__INIT;
	Runtime__V1__LinuxPodSandboxConfig pod = RUNTIME__V1__LINUX_POD_SANDBOX_CONFIG__INIT;
	Runtime__V1__LinuxSandboxSecurityContext security =
		RUNTIME__V1__LINUX_SANDBOX_SECURITY_CONTEXT__INIT;
	Runtime__V1__Mount m = RUNTIME__V1__MOUNT__INIT, *mounts[] = {&m};

	g->config.linux = &g->linux_config;
	g->config.mounts = mounts;
	g->config.n_mounts = 1;
	m.container_path = m.host_path = (char *)"/data";
	assert_int_equal(translate(g), 0);
	assert_null(g->spec.selinux.type);
	/* what is the pod's own, and not what its volumes are */
	assert_true(g->spec.mounts[0].is_relabelled);
	assert_false(g->spec.mounts[3].is_relabelled);
	g->security.selinux_options = &o;
	o.type = (char *)"mine_t";
	o.level = (char *)"s0:c1,c2";
	m.selinux_relabel = true;
	assert_int_equal(translate(g), 0);
	assert_null(g->spec.selinux.user);
	assert_null(g->spec.selinux.role);
	assert_string_equal(g->spec.selinux.type, "mine_t");
	assert_string_equal(g->spec.selinux.level, "s0:c1,c2");
	assert_true(g->spec.mounts[3].is_relabelled);
	g->pod_config.linux = &pod;
	pod.security_context = &security;
	security.selinux_options = &o;
	keep(g);
	assert_int_equal(cri_front_end.sandbox_spec(g->arena, &g->sb, &g->pod, &g->err), 0);
	assert_string_equal(g->pod.selinux.type, "mine_t");
	assert_string_equal(g->pod.selinux.level, "s0:c1,c2");
}

static void a_pod_without_anything_shares_its_pid_namespace(void **state)
{
	struct ground *g = *state;

	assert_int_equal(translate_check_sandbox(&g->pod_config, &g->err), 0);
	keep(g);
	assert_int_equal(cri_front_end.sandbox_spec(g->arena, &g->sb, &g->pod, &g->err), 0);
	assert_int_equal(g->pod.pid, NS_POD);
	assert_null(g->pod.cgroup_parent);
	assert_false(g->pod.has_userns);
	g->pod_name.name = (char *)"";
	assert_int_equal(translate_check_sandbox(&g->pod_config, &g->err), -ERR_INVALID);
	g->pod_config.metadata = NULL;
	assert_int_equal(translate_check_sandbox(&g->pod_config, &g->err), -ERR_INVALID);
}

static void a_parent_called_after_the_pod_is_its_own(void **state)
{
	static const struct {
		const char *parent, *uid;
		bool is_own;
	} all[] = {{"/kubepods/burstable/pod1-2-3", "1-2-3", true},
		   {"/kubepods/burstable/pod1-2-3", "1-2", false},
		   {"/kubepods/1-2-3/pod", "1-2-3", false},
		   {"/kubepods/burstable", "", false},
		   {"", "1-2-3", false},
		   {"/a", "/longer/a", false}};
	struct ground *g = *state;
	Runtime__V1__LinuxPodSandboxConfig l = RUNTIME__V1__LINUX_POD_SANDBOX_CONFIG__INIT;

	g->pod_config.linux = &l;
	for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++) {
		l.cgroup_parent = (char *)all[i].parent;
		g->pod_name.uid = (char *)all[i].uid;
		keep(g);
		assert_int_equal(cri_front_end.sandbox_spec(g->arena, &g->sb, &g->pod, &g->err), 0);
		assert_int_equal(g->pod.has_own_parent, all[i].is_own);
	}
	g->pod_config.linux = NULL;
}

typedef Runtime__V1__LinuxContainerResources Resources;

static void limits_that_no_kernel_takes_are_refused_by_name(void **state)
{
	static const struct {
		Resources r;
		const char *field; /* NULL: it is taken */
	} cases[] = {
#define CASE(field, value, name) {{.field = (value)}, name}
		CASE(cpu_period, -1, "linux.cpu_period"),
		CASE(cpu_period, 999, "linux.cpu_period"),
		CASE(cpu_period, 1000, NULL),
		CASE(cpu_period, 1000000, NULL),
		CASE(cpu_period, 1000001, "linux.cpu_period"),
		CASE(cpu_quota, -2, "linux.cpu_quota"),
		CASE(cpu_quota, -1, NULL),
		CASE(cpu_quota, 999, "linux.cpu_quota"),
		CASE(cpu_quota, 1000, NULL),
		CASE(cpu_shares, -1, "linux.cpu_shares"),
		CASE(cpu_shares, 2, NULL),
		CASE(memory_limit_in_bytes, -2, "linux.memory_limit_in_bytes"),
		CASE(memory_limit_in_bytes, -1, NULL),
		CASE(memory_swap_limit_in_bytes, -2, "linux.memory_swap_limit_in_bytes"),
		CASE(oom_score_adj, -1001, "linux.oom_score_adj"),
		CASE(oom_score_adj, -1000, NULL),
		CASE(oom_score_adj, 1000, NULL),
		CASE(oom_score_adj, 1001, "linux.oom_score_adj"),
#undef CASE
	};

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct error err = {0};
		int r = translate_check_resources("linux", &cases[i].r, &err);

		assert_int_equal(r, cases[i].field ? -ERR_INVALID : 0);
		if (cases[i].field)
			assert_memory_equal(err.text, cases[i].field, strlen(cases[i].field));
	}
}

/* The container's limits as an update leaves them. */
static const Resources *update(struct ground *g, const Resources *change, int *ret)
{
	struct buf bytes = {0};

	keep(g);
	*ret = cri_front_end.container_limits->merge(g->arena, &g->c, change, &bytes, &g->err);
	if (*ret == 0)
		assert_int_equal(cri_front_end.container_limits->check(g->arena, &bytes, &g->err),
				 0);
	buf_done(&g->c.limits.bytes);
	g->c.limits.bytes = bytes;
	return *ret == 0 ? translate_resources_of(g->arena, &g->c) : NULL;
}

static void what_an_update_does_not_say_stays(void **state)
{
	struct ground *g = *state;
	Resources held = RUNTIME__V1__LINUX_CONTAINER_RESOURCES__INIT, change = held;
	const Resources *r;
	Runtime__V1__LinuxContainerResources__UnifiedEntry a =
		RUNTIME__V1__LINUX_CONTAINER_RESOURCES__UNIFIED_ENTRY__INIT;
	Runtime__V1__LinuxContainerResources__UnifiedEntry b = a, c = a;
	Runtime__V1__LinuxContainerResources__UnifiedEntry *had[] = {&a, &b}, *given[] = {&c};
	int result;

	a.key = (char *)"io.weight";
	b.key = c.key = (char *)"memory.high";
	a.value = b.value = (char *)"100";
	c.value = (char *)"200";
	held.cpu_shares = 512;
	held.cpu_quota = 50000;
	held.cpuset_cpus = (char *)"0";
	held.unified = had;
	held.n_unified = 2;
	change.cpu_quota = -1;
	change.memory_limit_in_bytes = 1 << 25;
	change.unified = given;
	change.n_unified = 1;
	g->linux_config.resources = &held;
	g->config.linux = &g->linux_config;
	r = update(g, &change, &result);
	assert_int_equal(result, 0);
	assert_int_equal(r->cpu_shares, 512);
	assert_int_equal(r->cpu_quota, -1);
	assert_int_equal(r->memory_limit_in_bytes, 1 << 25);
	assert_string_equal(r->cpuset_cpus, "0");
	assert_int_equal(r->n_unified, 2);
	assert_string_equal(r->unified[0]->value, "100");
	assert_string_equal(r->unified[1]->key, "memory.high");
	assert_string_equal(r->unified[1]->value, "200");
}

static void later_limits_win_over_the_configuration(void **state)
{
	struct ground *g = *state;
	Resources held = RUNTIME__V1__LINUX_CONTAINER_RESOURCES__INIT, change = held;
	int result;

	held.cpu_shares = 512;
	g->linux_config.resources = &held;
	g->config.linux = &g->linux_config;
	change.cpu_shares = 1024;
	assert_int_equal(update(g, &change, &result)->cpu_shares, 1024);
	assert_int_equal(translate(g), 0);
	assert_int_equal(g->spec.resources.cpu_shares, 1024);
}

static void swap_below_memory_is_refused(void **state)
{
	struct ground *g = *state;
	Resources held = RUNTIME__V1__LINUX_CONTAINER_RESOURCES__INIT, change = held;
	const Resources *r;
	int result;

	held.memory_limit_in_bytes = held.memory_swap_limit_in_bytes = 1 << 20;
	g->linux_config.resources = &held;
	g->config.linux = &g->linux_config;
	change.memory_limit_in_bytes = 1 << 21;
	assert_null(update(g, &change, &result));
	assert_int_equal(result, -ERR_INVALID);
	assert_non_null(strstr(g->err.text, "linux.memory_swap_limit_in_bytes"));
	change.memory_swap_limit_in_bytes = 1 << 21;
	r = update(g, &change, &result);
	assert_int_equal(r->memory_swap_limit_in_bytes, 1 << 21);
	change.memory_limit_in_bytes = -1;
	assert_null(update(g, &change, &result));
	assert_int_equal(result, -ERR_INVALID);
}

static void map_order_does_not_make_another_configuration(void **state)
{
	struct ground *g = *state;
	Runtime__V1__PodSandboxConfig__LabelsEntry a =
		RUNTIME__V1__POD_SANDBOX_CONFIG__LABELS_ENTRY__INIT;
	Runtime__V1__PodSandboxConfig__LabelsEntry b = a;
	Runtime__V1__PodSandboxConfig__LabelsEntry *one[] = {&a, &b}, *other[] = {&b, &a};
	struct buf x = {0}, y = {0};

	a.key = (char *)"a";
	b.key = (char *)"b";
	g->pod_config.n_labels = 2;
	g->pod_config.labels = one;
	canonical_pack(&g->pod_config.base, &x);
	g->pod_config.labels = other;
	canonical_pack(&g->pod_config.base, &y);
	assert_int_equal(x.length, y.length);
	assert_memory_equal(x.data, y.data, x.length);
	buf_done(&x);
	buf_done(&y);
}

static void signals_by_every_name(void **state)
{
	assert_int_equal(translate_signal_name("SIGTERM"), SIGTERM);
	assert_int_equal(translate_signal_name("term"), SIGTERM);
	assert_int_equal(translate_signal_name("9"), SIGKILL);
	assert_int_equal(translate_signal_name("SIGRTMIN+3"), 37);
	assert_int_equal(translate_signal_name("RTMAX-1"), 63);
	assert_int_equal(translate_signal_name("SIGNONE"), 0);
	assert_int_equal(translate_signal_name("65"), 0);
	assert_int_equal(translate_signal_name("-1"), 0);
	assert_int_equal(translate_signal(RUNTIME__V1__SIGNAL__SIGNAL_SIGRTMAX), 64);
	for (int n = 1; n <= 31; n++)
		assert_int_equal(translate_signal(translate_signal_back(n)), n);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(nothing_given_means_the_image_and_defaults),
		TEST(command_replaces_entrypoint_and_cmd),
		TEST(envs_override_and_are_checked),
		TEST(an_empty_context_is_taken_at_its_word),
		TEST(run_as_wins_over_the_image),
		TEST(privileged_means_everything),
		TEST(mounts_are_checked_and_hide_the_pods_files),
		TEST(what_cant_be_done_is_refused_by_name),
		TEST(labels_are_passed_on),
		TEST(a_pod_without_anything_shares_its_pid_namespace),
		TEST(a_parent_called_after_the_pod_is_its_own),
		TEST(limits_that_no_kernel_takes_are_refused_by_name),
		TEST(what_an_update_does_not_say_stays),
		TEST(later_limits_win_over_the_configuration),
		TEST(swap_below_memory_is_refused),
		TEST(map_order_does_not_make_another_configuration),
		TEST(signals_by_every_name),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
