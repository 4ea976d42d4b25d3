/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What becomes of each field of a configuration. Peculiar: the fields come from the descriptors, so
 * one that is new in the API has no row here and fails the test until somebody says what it does;
 * and a row that says where must be right about it.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "cri/translate.h"
#include "io/fs.h"

enum fate {
	EFFECT,	 /* in the file, which reads the member of that name */
	KEPT,	 /* told back: the same */
	REFUSED, /* refusals[] has a case for it */
	NOTHING, /* there is nothing that it could change, for the reason given */
};

struct row {
	const char *message, *field;
	enum fate fate;
	const char *where;
};

#define SANDBOX_FILE "cri/translate_sandbox.c"
#define CONTAINER_FILE "cri/translate_container.c"
#define SECURITY_FILE "cri/translate_security.c"
#define CHECK_FILE "cri/translate_check.c"
#define NAMESPACES_FILE "cri/translate_namespaces.c"
#define SELINUX_FILE "cri/translate_selinux.c"
#define PROFILES_FILE "cri/translate_profiles.c"
#define RESOURCES_FILE "cri/resources.c"
#define POD_RESOURCES_FILE "cri/pod_resources.c"
#define NO_POD_PROCESS "no process of an image runs in a pod beside those of its containers"
#define ONLY_HOST_PORTS "says more of a host_port, which is refused"

static const struct row rows[] = {
	{"RunPodSandboxRequest", "config", EFFECT, "cri/sandbox_calls.c"},
	{"RunPodSandboxRequest", "runtime_handler", EFFECT, "cri/sandbox_calls.c"},
	{"CreateContainerRequest", "pod_sandbox_id", EFFECT, "cri/container_calls.c"},
	{"CreateContainerRequest", "config", EFFECT, "cri/container_calls.c"},
	{"CreateContainerRequest", "sandbox_config", NOTHING, "the pod was run with it"},
	{"UpdateContainerResourcesRequest", "container_id", EFFECT, "cri/container_calls.c"},
	{"UpdateContainerResourcesRequest", "linux", EFFECT, "cri/container_calls.c"},
	{"UpdateContainerResourcesRequest", "windows", EFFECT, "cri/container_calls.c"},
	{"UpdateContainerResourcesRequest", "annotations", NOTHING, "they must not change us"},
	{"UpdatePodSandboxResourcesRequest", "pod_sandbox_id", EFFECT, "cri/sandbox_calls.c"},
	{"UpdatePodSandboxResourcesRequest", "overhead", EFFECT, POD_RESOURCES_FILE},
	{"UpdatePodSandboxResourcesRequest", "resources", EFFECT, POD_RESOURCES_FILE},

	{"PodSandboxConfig", "metadata", EFFECT, SANDBOX_FILE},
	{"PodSandboxConfig", "hostname", EFFECT, SANDBOX_FILE},
	{"PodSandboxConfig", "log_directory", EFFECT, "cri/container_calls.c"},
	{"PodSandboxConfig", "dns_config", EFFECT, SANDBOX_FILE},
	{"PodSandboxConfig", "port_mappings", REFUSED, NULL},
	{"PodSandboxConfig", "labels", KEPT, "cri/sandbox_list.c"},
	{"PodSandboxConfig", "annotations", KEPT, "cri/sandbox_list.c"},
	{"PodSandboxConfig", "linux", EFFECT, SANDBOX_FILE},
	{"PodSandboxConfig", "windows", REFUSED, NULL},
	{"PodSandboxMetadata", "name", EFFECT, SANDBOX_FILE},
	{"PodSandboxMetadata", "uid", EFFECT, SANDBOX_FILE},
	{"PodSandboxMetadata", "namespace", EFFECT, SANDBOX_FILE},
	{"PodSandboxMetadata", "attempt", EFFECT, SANDBOX_FILE},
	{"DNSConfig", "servers", EFFECT, SANDBOX_FILE},
	{"DNSConfig", "searches", EFFECT, SANDBOX_FILE},
	{"DNSConfig", "options", EFFECT, SANDBOX_FILE},
	{"PortMapping", "protocol", NOTHING, ONLY_HOST_PORTS},
	{"PortMapping", "container_port", NOTHING, ONLY_HOST_PORTS},
	{"PortMapping", "host_port", REFUSED, NULL},
	{"PortMapping", "host_ip", NOTHING, ONLY_HOST_PORTS},
	{"LinuxPodSandboxConfig", "cgroup_parent", EFFECT, SANDBOX_FILE},
	{"LinuxPodSandboxConfig", "security_context", EFFECT, "cri/translate_priv.h"},
	{"LinuxPodSandboxConfig", "sysctls", EFFECT, SANDBOX_FILE},
	{"LinuxPodSandboxConfig", "overhead", EFFECT, POD_RESOURCES_FILE},
	{"LinuxPodSandboxConfig", "resources", EFFECT, POD_RESOURCES_FILE},
	{"LinuxSandboxSecurityContext", "namespace_options", EFFECT, "cri/translate_priv.h"},
	{"LinuxSandboxSecurityContext", "selinux_options", EFFECT, SANDBOX_FILE},
	{"LinuxSandboxSecurityContext", "run_as_user", NOTHING, NO_POD_PROCESS},
	{"LinuxSandboxSecurityContext", "run_as_group", NOTHING, NO_POD_PROCESS},
	{"LinuxSandboxSecurityContext", "readonly_rootfs", NOTHING, NO_POD_PROCESS},
	{"LinuxSandboxSecurityContext", "supplemental_groups", NOTHING, NO_POD_PROCESS},
	{"LinuxSandboxSecurityContext", "supplemental_groups_policy", NOTHING, NO_POD_PROCESS},
	{"LinuxSandboxSecurityContext", "privileged", EFFECT, NAMESPACES_FILE},
	{"LinuxSandboxSecurityContext", "seccomp", NOTHING, NO_POD_PROCESS},
	{"LinuxSandboxSecurityContext", "apparmor", NOTHING, NO_POD_PROCESS},
	{"LinuxSandboxSecurityContext", "seccomp_profile_path", NOTHING, NO_POD_PROCESS},

	{"NamespaceOption", "network", EFFECT, SANDBOX_FILE},
	{"NamespaceOption", "pid", EFFECT, SANDBOX_FILE},
	{"NamespaceOption", "ipc", EFFECT, SANDBOX_FILE},
	{"NamespaceOption", "target_id", EFFECT, SECURITY_FILE},
	{"NamespaceOption", "userns_options", EFFECT, SANDBOX_FILE},
	{"UserNamespace", "mode", EFFECT, SANDBOX_FILE},
	{"UserNamespace", "uids", EFFECT, SANDBOX_FILE},
	{"UserNamespace", "gids", EFFECT, SANDBOX_FILE},
	{"IDMapping", "host_id", EFFECT, "cri/translate.c"},
	{"IDMapping", "container_id", EFFECT, "cri/translate.c"},
	{"IDMapping", "length", EFFECT, "cri/translate.c"},
	{"SELinuxOption", "user", EFFECT, SELINUX_FILE},
	{"SELinuxOption", "role", EFFECT, SELINUX_FILE},
	{"SELinuxOption", "type", EFFECT, SELINUX_FILE},
	{"SELinuxOption", "level", EFFECT, SELINUX_FILE},
	{"SecurityProfile", "profile_type", EFFECT, PROFILES_FILE},
	{"SecurityProfile", "localhost_ref", EFFECT, PROFILES_FILE},
	{"Int64Value", "value", EFFECT, SECURITY_FILE},
	{"KeyValue", "key", EFFECT, CONTAINER_FILE},
	{"KeyValue", "value", EFFECT, CONTAINER_FILE},

	{"ContainerConfig", "metadata", EFFECT, "cri/translate.c"},
	{"ContainerConfig", "image", EFFECT, "cri/container_calls.c"},
	{"ContainerConfig", "command", EFFECT, CONTAINER_FILE},
	{"ContainerConfig", "args", EFFECT, CONTAINER_FILE},
	{"ContainerConfig", "working_dir", EFFECT, CONTAINER_FILE},
	{"ContainerConfig", "envs", EFFECT, CONTAINER_FILE},
	{"ContainerConfig", "mounts", EFFECT, CONTAINER_FILE},
	{"ContainerConfig", "devices", EFFECT, CONTAINER_FILE},
	{"ContainerConfig", "labels", KEPT, "cri/container_list.c"},
	{"ContainerConfig", "annotations", EFFECT, "cri/translate_cdi.c"},
	{"ContainerConfig", "log_path", EFFECT, "cri/container_calls.c"},
	{"ContainerConfig", "stdin", EFFECT, CONTAINER_FILE},
	{"ContainerConfig", "stdin_once", NOTHING, "nobody can attach to be the first client"},
	{"ContainerConfig", "tty", EFFECT, CONTAINER_FILE},
	{"ContainerConfig", "linux", EFFECT, "cri/translate_priv.h"},
	{"ContainerConfig", "windows", REFUSED, NULL},
	{"ContainerConfig", "CDI_devices", EFFECT, "cri/translate_cdi.c"},
	{"ContainerConfig", "stop_signal", EFFECT, CONTAINER_FILE},
	{"ContainerMetadata", "name", EFFECT, "cri/translate.c"},
	{"ContainerMetadata", "attempt", EFFECT, "cri/translate.c"},
	{"ImageSpec", "image", EFFECT, "cri/container_calls.c"},
	{"ImageSpec", "annotations", NOTHING, "they must not change us"},
	{"ImageSpec", "user_specified_image", NOTHING, "for people who read the request"},
	{"ImageSpec", "runtime_handler", NOTHING, "all handlers share the images"},
	{"ImageSpec", "image_ref", NOTHING, "ours to tell"},
	{"Mount", "container_path", EFFECT, CONTAINER_FILE},
	{"Mount", "host_path", EFFECT, CONTAINER_FILE},
	{"Mount", "readonly", EFFECT, CONTAINER_FILE},
	{"Mount", "selinux_relabel", EFFECT, CONTAINER_FILE},
	{"Mount", "propagation", EFFECT, CONTAINER_FILE},
	{"Mount", "uidMappings", EFFECT, CONTAINER_FILE},
	{"Mount", "gidMappings", EFFECT, CONTAINER_FILE},
	{"Mount", "recursive_read_only", EFFECT, CONTAINER_FILE},
	{"Mount", "image", EFFECT, CONTAINER_FILE},
	{"Mount", "image_sub_path", EFFECT, CONTAINER_FILE},
	{"Mount", "mount_options", EFFECT, CONTAINER_FILE},
	{"Device", "container_path", EFFECT, CONTAINER_FILE},
	{"Device", "host_path", EFFECT, CONTAINER_FILE},
	{"Device", "permissions", EFFECT, CONTAINER_FILE},
	{"CDIDevice", "name", EFFECT, "cri/translate_cdi.c"},
	{"LinuxContainerConfig", "resources", EFFECT, RESOURCES_FILE},
	{"LinuxContainerConfig", "security_context", EFFECT, "cri/translate_priv.h"},

	{"LinuxContainerSecurityContext", "capabilities", EFFECT, SECURITY_FILE},
	{"LinuxContainerSecurityContext", "privileged", EFFECT, SECURITY_FILE},
	{"LinuxContainerSecurityContext", "namespace_options", EFFECT, SECURITY_FILE},
	{"LinuxContainerSecurityContext", "selinux_options", EFFECT, SECURITY_FILE},
	{"LinuxContainerSecurityContext", "run_as_user", EFFECT, SECURITY_FILE},
	{"LinuxContainerSecurityContext", "run_as_group", EFFECT, SECURITY_FILE},
	{"LinuxContainerSecurityContext", "run_as_username", EFFECT, SECURITY_FILE},
	{"LinuxContainerSecurityContext", "readonly_rootfs", EFFECT, SECURITY_FILE},
	{"LinuxContainerSecurityContext", "supplemental_groups", EFFECT, SECURITY_FILE},
	{"LinuxContainerSecurityContext", "supplemental_groups_policy", EFFECT, SECURITY_FILE},
	{"LinuxContainerSecurityContext", "no_new_privs", EFFECT, SECURITY_FILE},
	{"LinuxContainerSecurityContext", "masked_paths", EFFECT, SECURITY_FILE},
	{"LinuxContainerSecurityContext", "readonly_paths", EFFECT, SECURITY_FILE},
	{"LinuxContainerSecurityContext", "seccomp", EFFECT, PROFILES_FILE},
	{"LinuxContainerSecurityContext", "apparmor", EFFECT, PROFILES_FILE},
	{"LinuxContainerSecurityContext", "apparmor_profile", EFFECT, PROFILES_FILE},
	{"LinuxContainerSecurityContext", "seccomp_profile_path", EFFECT, PROFILES_FILE},
	{"Capability", "add_capabilities", EFFECT, SECURITY_FILE},
	{"Capability", "drop_capabilities", EFFECT, SECURITY_FILE},
	{"Capability", "add_ambient_capabilities", EFFECT, SECURITY_FILE},
	{"LinuxContainerResources", "cpu_period", EFFECT, RESOURCES_FILE},
	{"LinuxContainerResources", "cpu_quota", EFFECT, RESOURCES_FILE},
	{"LinuxContainerResources", "cpu_shares", EFFECT, RESOURCES_FILE},
	{"LinuxContainerResources", "memory_limit_in_bytes", EFFECT, RESOURCES_FILE},
	{"LinuxContainerResources", "oom_score_adj", EFFECT, RESOURCES_FILE},
	{"LinuxContainerResources", "cpuset_cpus", EFFECT, RESOURCES_FILE},
	{"LinuxContainerResources", "cpuset_mems", EFFECT, RESOURCES_FILE},
	{"LinuxContainerResources", "hugepage_limits", EFFECT, RESOURCES_FILE},
	{"LinuxContainerResources", "unified", EFFECT, RESOURCES_FILE},
	{"LinuxContainerResources", "memory_swap_limit_in_bytes", EFFECT, RESOURCES_FILE},
	{"HugepageLimit", "page_size", EFFECT, RESOURCES_FILE},
	{"HugepageLimit", "limit", EFFECT, RESOURCES_FILE},
};

#define ROW_COUNT (sizeof(rows) / sizeof(rows[0]))

enum root { POD, CONTAINER };

/* What is refused: fields and their values, of which the last is the one that matters. A field of a
 * list is that of its first item; "*" makes a message that is empty. */
struct refusal {
	enum root root;
	const char *fields;
	enum err code;
	const char *names; /* what the text must have */
};

#define SECURITY "linux.security_context."
#define IMAGE_MOUNT "mounts.container_path=/a mounts.image.image=i"
#define MOUNT "mounts.container_path=/a mounts.host_path=/b mounts."

#define USERNS SECURITY "namespace_options.userns_options."
#define USERNS_POD USERNS "uids.length=5 " USERNS "gids.length=5 "
static const struct refusal refusals[] = {
	{POD, "port_mappings.host_port=80", ERR_UNIMPLEMENTED, "config.port_mappings"},
	{POD, "windows=*", ERR_INVALID, "config.windows"},
	{POD, SECURITY "selinux_options.user=u:r", ERR_INVALID, SECURITY "selinux_options.user"},
	{POD, SECURITY "selinux_options.role=r/", ERR_INVALID, SECURITY "selinux_options.role"},
	{POD, SECURITY "selinux_options.type=t:s0", ERR_INVALID, SECURITY "selinux_options.type"},
	{POD, SECURITY "selinux_options.level=s0;c1", ERR_INVALID,
	 SECURITY "selinux_options.level"},
	{POD, SECURITY "namespace_options.network=1", ERR_INVALID,
	 SECURITY "namespace_options.network"},
	{POD, SECURITY "namespace_options.ipc=1", ERR_INVALID, SECURITY "namespace_options.ipc"},
	{POD, SECURITY "namespace_options.target_id=c " SECURITY "namespace_options.pid=3",
	 ERR_INVALID, SECURITY "namespace_options.pid"},
	{POD, SECURITY "namespace_options.userns_options.mode=1", ERR_INVALID,
	 SECURITY "namespace_options.userns_options.mode"},
	{POD, "linux.resources.cpu_period=3", ERR_INVALID, "config.linux.resources.cpu_period"},
	{POD, "linux.resources.oom_score_adj=3", ERR_INVALID,
	 "config.linux.resources.oom_score_adj"},
	{POD, "linux.overhead.oom_score_adj=3", ERR_INVALID, "config.linux.overhead.oom_score_adj"},
	{POD, "linux.overhead.cpuset_cpus=0", ERR_INVALID, "config.linux.overhead.cpuset_cpus"},
	{POD, "linux.overhead.cpuset_mems=0", ERR_INVALID, "config.linux.overhead.cpuset_mems"},
	{POD, "linux.resources.memory_swap_limit_in_bytes=9", ERR_INVALID,
	 "config.linux.resources.memory_swap_limit_in_bytes"},
	{CONTAINER, "linux.resources.memory_swap_limit_in_bytes=9", ERR_INVALID,
	 "config.linux.resources.memory_swap_limit_in_bytes"},
	{POD, USERNS "mode=0", ERR_INVALID, USERNS "uids"},
	{POD, USERNS "uids.length=5 " USERNS "gids=*", ERR_INVALID, USERNS "gids"},
	{POD, USERNS "uids.container_id=1 " USERNS "uids.length=5", ERR_INVALID, USERNS "uids"},
	{POD, USERNS "uids.host_id=4294967295 " USERNS "uids.length=2", ERR_INVALID, USERNS "uids"},
	{POD, USERNS "uids.length=5 " USERNS "mode=2", ERR_INVALID, "mode NODE"},
	{POD, USERNS_POD SECURITY "namespace_options.pid=2", ERR_INVALID, "pid NODE"},
	{POD, USERNS_POD SECURITY "namespace_options.ipc=2", ERR_INVALID, "ipc NODE"},
	{POD, SECURITY "run_as_user.value=-1", ERR_INVALID, SECURITY "run_as_user"},
	{POD, SECURITY "run_as_user.value=2147483648", ERR_INVALID, SECURITY "run_as_user"},
	{POD, SECURITY "run_as_group.value=1", ERR_INVALID, SECURITY "run_as_group"},
	{POD, SECURITY "supplemental_groups=2147483648", ERR_INVALID,
	 SECURITY "supplemental_groups"},
	{POD, SECURITY "seccomp.profile_type=2", ERR_INVALID, SECURITY "seccomp"},
	{POD, SECURITY "seccomp_profile_path=x", ERR_INVALID, SECURITY "seccomp_profile_path"},
	{POD, SECURITY "apparmor.profile_type=2", ERR_INVALID, SECURITY "apparmor"},
	{CONTAINER, SECURITY "run_as_user.value=2147483648", ERR_INVALID, SECURITY "run_as_user"},
	{CONTAINER, SECURITY "run_as_user.value=4294967296", ERR_INVALID, SECURITY "run_as_user"},
	{CONTAINER, SECURITY "run_as_user.value=0 " SECURITY "run_as_group.value=-1", ERR_INVALID,
	 SECURITY "run_as_group"},
	{CONTAINER, SECURITY "supplemental_groups=-1", ERR_INVALID, SECURITY "supplemental_groups"},
	{CONTAINER, USERNS "uids.length=5", ERR_INVALID, USERNS "gids"},
	{CONTAINER, "windows=*", ERR_INVALID, "config.windows"},
	{CONTAINER, SECURITY "selinux_options.type=t:s0", ERR_INVALID,
	 SECURITY "selinux_options.type"},
	{CONTAINER, SECURITY "seccomp.profile_type=2 " SECURITY "seccomp.localhost_ref=p.json",
	 ERR_INVALID, SECURITY "seccomp.localhost_ref"},
	{CONTAINER, SECURITY "seccomp.profile_type=2", ERR_INVALID,
	 SECURITY "seccomp.localhost_ref"},
	{CONTAINER, SECURITY "seccomp.localhost_ref=/p", ERR_INVALID,
	 SECURITY "seccomp.localhost_ref"},
	{CONTAINER, SECURITY "seccomp_profile_path=localhost/p", ERR_INVALID,
	 SECURITY "seccomp_profile_path"},
	{CONTAINER, SECURITY "seccomp_profile_path=nothing", ERR_INVALID,
	 SECURITY "seccomp_profile_path"},
	{CONTAINER, SECURITY "apparmor.profile_type=2", ERR_INVALID, SECURITY "apparmor"},
	{CONTAINER,
	 SECURITY "apparmor.profile_type=2 " SECURITY "apparmor.localhost_ref=localhost/",
	 ERR_INVALID, SECURITY "apparmor"},
	{CONTAINER, SECURITY "apparmor_profile=localhost/", ERR_INVALID,
	 SECURITY "apparmor_profile"},
	{CONTAINER, SECURITY "namespace_options.network=1", ERR_INVALID,
	 SECURITY "namespace_options.network"},
	{CONTAINER, SECURITY "namespace_options.ipc=3", ERR_INVALID,
	 SECURITY "namespace_options.ipc"},
	{CONTAINER, SECURITY "namespace_options.pid=3", ERR_INVALID,
	 SECURITY "namespace_options.target_id"},
	{CONTAINER, SECURITY "namespace_options.target_id=c", ERR_INVALID,
	 SECURITY "namespace_options.target_id"},
	{CONTAINER, SECURITY "run_as_group.value=1", ERR_INVALID, SECURITY "run_as_group"},
	{CONTAINER, MOUNT "image.image=i", ERR_INVALID, "mounts.host_path"},
	{CONTAINER, IMAGE_MOUNT, ERR_INVALID, "mounts.readonly"},
	{CONTAINER, IMAGE_MOUNT " mounts.readonly=1 mounts.propagation=1", ERR_INVALID,
	 "mounts.propagation"},
	{CONTAINER, MOUNT "image_sub_path=p", ERR_INVALID, "image_sub_path"},
	{CONTAINER, MOUNT "mount_options=ro", ERR_INVALID, "mounts.mount_options"},
	{CONTAINER, "mounts.container_path=/a mounts.host_path=b", ERR_INVALID, "mounts.host_path"},
	{CONTAINER, MOUNT "recursive_read_only=1", ERR_INVALID, "recursive_read_only"},
};

#define REFUSAL_COUNT (sizeof(refusals) / sizeof(refusals[0]))

static const struct row *find_row(const char *message, const char *field)
{
	for (size_t i = 0; i < ROW_COUNT; i++)
		if (!strcmp(rows[i].message, message) && !strcmp(rows[i].field, field))
			return &rows[i];
	return NULL;
}

/* What a visitor is told of a field; path is from the root message on. */
typedef void visit_fn(const ProtobufCMessageDescriptor *m, const ProtobufCFieldDescriptor *f,
		      const char *path, void *data);

static bool is_map_entry(const ProtobufCMessageDescriptor *d)
{
	size_t n = strlen(d->short_name);

	return n > 5 && !strcmp(d->short_name + n - 5, "Entry");
}

/* Windows' messages have no meaning here and are refused as a whole. */
static void visit(const ProtobufCMessageDescriptor *m, const char *path, visit_fn *fn, void *data)
{
	for (unsigned i = 0; i < m->n_fields; i++) {
		const ProtobufCFieldDescriptor *f = &m->fields[i];
		char inner[512];

		snprintf(inner, sizeof(inner), "%s%s%s", path, *path ? "." : "", f->name);
		fn(m, f, inner, data);
		if (f->type == PROTOBUF_C_TYPE_MESSAGE && !is_map_entry(f->descriptor) &&
		    strcmp(f->name, "windows"))
			visit(f->descriptor, inner, fn, data);
	}
}

static const ProtobufCMessageDescriptor *const all_roots[] = {
	&runtime__v1__run_pod_sandbox_request__descriptor,
	&runtime__v1__create_container_request__descriptor,
	&runtime__v1__update_container_resources_request__descriptor,
	&runtime__v1__update_pod_sandbox_resources_request__descriptor,
};

static void want_row(const ProtobufCMessageDescriptor *m, const ProtobufCFieldDescriptor *f,
		     const char *path, void *data)
{
	bool *seen = data;
	const struct row *row = find_row(m->short_name, f->name);

	if (!row)
		fail_msg("%s.%s (%s): nothing is said of it", m->short_name, f->name, path);
	seen[row - rows] = true;
}

static void each_field_has_its_row(void **state)
{
	bool seen[ROW_COUNT] = {0};

	for (size_t i = 0; i < sizeof(all_roots) / sizeof(all_roots[0]); i++)
		visit(all_roots[i], "", want_row, seen);
	for (size_t i = 0; i < ROW_COUNT; i++)
		if (!seen[i])
			fail_msg("%s.%s: the API has no such field", rows[i].message,
				 rows[i].field);
}

/* Whether the text has name as the end of a word, behind "." or ">" or alone. */
static bool has_member(const char *text, const char *name)
{
	size_t n = strlen(name);

	for (const char *p = text; (p = strcasestr(p, name)); p++)
		if (p > text && (p[-1] == '>' || p[-1] == '.') &&
		    !strspn(p + n, "abcdefghijklmnopqrstuvwxyz0123456789"))
			return true;
	return false;
}

static void what_is_said_of_a_place_is_true(void **state)
{
	for (size_t i = 0; i < ROW_COUNT; i++) {
		struct buf text = {0};
		struct error err = {0};
		char path[512];

		if (rows[i].fate != EFFECT && rows[i].fate != KEPT)
			continue;
		snprintf(path, sizeof(path), "%s/%s", SOURCE_DIR, rows[i].where);
		if (fs_read_file(path, 1 << 20, &text, &err) < 0)
			fail_msg("%s", err.text);
		buf_append(&text, "", 1);
		if (!has_member(text.data, rows[i].field))
			fail_msg("%s.%s: %s does not read it", rows[i].message, rows[i].field,
				 rows[i].where);
		buf_done(&text);
	}
}

/* The message that member f of m is or has first, made if it is not there. */
static ProtobufCMessage *enter(struct arena *arena, ProtobufCMessage *m,
			       const ProtobufCFieldDescriptor *f)
{
	const ProtobufCMessageDescriptor *d = f->descriptor;
	char *member = (char *)m + f->offset;
	bool is_list = f->label == PROTOBUF_C_LABEL_REPEATED;
	ProtobufCMessage **at = is_list ? *(ProtobufCMessage ***)(void *)member
					: (ProtobufCMessage **)(void *)member;

	if (is_list && !at) {
		at = arena_new_array(arena, ProtobufCMessage *, 1);
		*(ProtobufCMessage ***)(void *)member = at;
		*(size_t *)(void *)((char *)m + f->quantifier_offset) = 1;
	}
	if (!*at) {
		*at = arena_alloc(arena, d->sizeof_message);
		protobuf_c_message_init(d, *at);
	}
	return *at;
}

static void put(struct arena *arena, ProtobufCMessage *m, const ProtobufCFieldDescriptor *f,
		const char *value)
{
	char *member = (char *)m + f->offset;
	char *text = arena_strdup(arena, value);

	switch (f->type) {
	case PROTOBUF_C_TYPE_STRING:
		if (f->label == PROTOBUF_C_LABEL_REPEATED) {
			char **list = arena_new_array(arena, char *, 1);

			list[0] = text;
			*(char ***)(void *)member = list;
			*(size_t *)(void *)((char *)m + f->quantifier_offset) = 1;
		} else {
			*(char **)(void *)member = text;
		}
		return;
	case PROTOBUF_C_TYPE_MESSAGE:
		enter(arena, m, f);
		return;
	case PROTOBUF_C_TYPE_INT64:
		if (f->label == PROTOBUF_C_LABEL_REPEATED) {
			int64_t *list = arena_new_array(arena, int64_t, 1);

			list[0] = atoll(value);
			*(int64_t **)(void *)member = list;
			*(size_t *)(void *)((char *)m + f->quantifier_offset) = 1;
		} else {
			*(int64_t *)(void *)member = atoll(value);
		}
		return;
	case PROTOBUF_C_TYPE_UINT32:
		*(uint32_t *)(void *)member = (uint32_t)strtoul(value, NULL, 10);
		return;
	case PROTOBUF_C_TYPE_ENUM:
	case PROTOBUF_C_TYPE_INT32:
	case PROTOBUF_C_TYPE_BOOL:
		*(int *)(void *)member = atoi(value);
		return;
	default:
		fail_msg("%s: no value can be set", f->name);
	}
}

/* Sets "a.b.c" of m, and tells which field that is. */
static const ProtobufCFieldDescriptor *set(struct arena *arena, ProtobufCMessage *m, char *path,
					   const char *value,
					   const ProtobufCMessageDescriptor **ret_message)
{
	const ProtobufCFieldDescriptor *f;
	char *name, *next = path;

	for (;;) {
		name = strsep(&next, ".");
		f = protobuf_c_message_descriptor_get_field_by_name(m->descriptor, name);
		if (!f)
			fail_msg("%s has no %s", m->descriptor->short_name, name);
		if (!next)
			break;
		m = enter(arena, m, f);
	}
	put(arena, m, f, value);
	*ret_message = m->descriptor;
	return f;
}

/* A configuration that is accepted. */
static ProtobufCMessage *make_root(struct arena *arena, enum root root)
{
	const ProtobufCMessageDescriptor *d = root == POD
						      ? &runtime__v1__pod_sandbox_config__descriptor
						      : &runtime__v1__container_config__descriptor;
	const ProtobufCMessageDescriptor *last;
	ProtobufCMessage *m = arena_alloc(arena, d->sizeof_message);
	char name[] = "metadata.name", image[] = "image.image";

	protobuf_c_message_init(d, m);
	set(arena, m, name, "n", &last);
	if (root == CONTAINER)
		set(arena, m, image, "i", &last);
	return m;
}

static int check(enum root root, const ProtobufCMessage *m, struct error *err)
{
	return root == POD ? translate_check_sandbox((const void *)m, err)
			   : translate_check_container((const void *)m, err);
}

static void what_is_refused_is_named(void **state)
{
	bool has_case[ROW_COUNT] = {0};

	for (size_t i = 0; i < REFUSAL_COUNT; i++) {
		const struct refusal *c = &refusals[i];
		struct arena *arena = arena_new(1 << 20);
		struct error err = {0};
		ProtobufCMessage *m = make_root(arena, c->root);
		char *next = arena_strdup(arena, c->fields), *word;

		assert_int_equal(check(c->root, m, &err), 0);
		while ((word = strsep(&next, " "))) {
			const ProtobufCMessageDescriptor *message;
			const ProtobufCFieldDescriptor *f;
			char *value = strchr(word, '=');

			*value++ = '\0';
			/* those that lead to it count as well */
			for (const char *p = word; (p = strchr(p, '.')); p++) {
				char *prefix = arena_printf(arena, "%.*s", (int)(p - word), word);

				f = set(arena, m, prefix, "*", &message);
				if (find_row(message->short_name, f->name))
					has_case[find_row(message->short_name, f->name) - rows] =
						true;
			}
			f = set(arena, m, word, value, &message);
			if (find_row(message->short_name, f->name))
				has_case[find_row(message->short_name, f->name) - rows] = true;
		}
		if (check(c->root, m, &err) != -(int)c->code)
			fail_msg("%s: %d (%s)", c->fields, (int)err.code, err.text);
		if (!strstr(err.text, c->names))
			fail_msg("%s: it is not named by: %s", c->fields, err.text);
		arena_free(arena);
	}
	for (size_t i = 0; i < ROW_COUNT; i++)
		if (rows[i].fate == REFUSED && !has_case[i])
			fail_msg("%s.%s: no case shows that it is refused", rows[i].message,
				 rows[i].field);
}

static void try_unknown(const ProtobufCMessageDescriptor *m, const ProtobufCFieldDescriptor *f,
			const char *path, void *data)
{
	enum root root = *(enum root *)data;
	struct arena *arena = arena_new(1 << 20);
	ProtobufCMessage *whole = make_root(arena, root);
	struct error err = {0};

	if (f->type == PROTOBUF_C_TYPE_ENUM) {
		set(arena, whole, arena_strdup(arena, path), "77", &m);
		assert_int_equal(check(root, whole, &err), -ERR_INVALID);
		if (!strstr(err.text, f->name) || !strstr(err.text, "77"))
			fail_msg("%s: it is not named by: %s", path, err.text);
	}
	arena_free(arena);
}

static void values_that_the_api_does_not_have_are_refused(void **state)
{
	enum root pod = POD, container = CONTAINER;

	visit(&runtime__v1__pod_sandbox_config__descriptor, "", try_unknown, &pod);
	visit(&runtime__v1__container_config__descriptor, "", try_unknown, &container);
}

/* The place of a value in a list is told. */
static void the_path_of_a_value_is_whole(void **state)
{
	struct arena *arena = arena_new(1 << 20);
	ProtobufCMessage *m = make_root(arena, CONTAINER);
	const ProtobufCMessageDescriptor *last;
	char path[] = "mounts.propagation";
	struct error err = {0};

	set(arena, m, path, "77", &last);
	assert_int_equal(check(CONTAINER, m, &err), -ERR_INVALID);
	assert_non_null(strstr(err.text, "config.mounts[0].propagation 77:"));
	arena_free(arena);
}

static void a_container_asks_for_what_its_pod_has(void **state)
{
	static const struct {
		const char *pod, *container;
		const char *names; /* NULL: it may */
	} cases[] = {
		{NULL, SECURITY "privileged=1", SECURITY "privileged"},
		{SECURITY "privileged=1", SECURITY "privileged=1", NULL},
		{NULL, SECURITY "namespace_options.network=2",
		 SECURITY "namespace_options.network"},
		{SECURITY "namespace_options.network=2", SECURITY "namespace_options.network=2",
		 NULL},
		{SECURITY "namespace_options.network=2", SECURITY "namespace_options.network=0",
		 NULL},
		{NULL, SECURITY "namespace_options.ipc=2", SECURITY "namespace_options.ipc"},
		{SECURITY "namespace_options.ipc=2", SECURITY "namespace_options.ipc=2", NULL},
		{NULL, SECURITY "namespace_options.pid=2", SECURITY "namespace_options.pid"},
		{SECURITY "namespace_options.pid=2", SECURITY "namespace_options.pid=2", NULL},
		{SECURITY "namespace_options.userns_options.uids=*",
		 SECURITY "namespace_options.userns_options.mode=2",
		 SECURITY "namespace_options.userns_options"},
		{NULL, SECURITY "namespace_options.userns_options.mode=2", NULL},
		{NULL, SECURITY "namespace_options.userns_options.mode=0", NULL},
		{NULL, SECURITY "namespace_options.userns_options.uids=*",
		 SECURITY "namespace_options.userns_options"},
		{SECURITY "namespace_options.userns_options.uids=*",
		 SECURITY "namespace_options.userns_options.uids=*", NULL},
		{SECURITY "namespace_options.userns_options.uids=*",
		 SECURITY "namespace_options.userns_options.gids=*",
		 SECURITY "namespace_options.userns_options"},
	};

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct arena *arena = arena_new(1 << 20);
		ProtobufCMessage *both[] = {make_root(arena, POD), make_root(arena, CONTAINER)};
		const char *fields[] = {cases[i].pod, cases[i].container};
		const ProtobufCMessageDescriptor *last;
		struct error err = {0};

		for (size_t k = 0; k < 2; k++) {
			char *word = fields[k] ? arena_strdup(arena, fields[k]) : NULL;
			char *value = word ? strchr(word, '=') : NULL;

			if (!word)
				continue;
			*value++ = '\0';
			set(arena, both[k], word, value, &last);
		}
		assert_int_equal(translate_check_in_pod((void *)both[0], (void *)both[1], &err),
				 cases[i].names ? -ERR_INVALID : 0);
		if (cases[i].names && !strstr(err.text, cases[i].names))
			fail_msg("%s: it is not named by: %s", cases[i].container, err.text);
		arena_free(arena);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(each_field_has_its_row),
		cmocka_unit_test(what_is_said_of_a_place_is_true),
		cmocka_unit_test(what_is_refused_is_named),
		cmocka_unit_test(values_that_the_api_does_not_have_are_refused),
		cmocka_unit_test(the_path_of_a_value_is_whole),
		cmocka_unit_test(a_container_asks_for_what_its_pod_has),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
