/* SPDX-License-Identifier: Apache-2.0 */
/* The meaning of a pod's configuration, and the files in /etc that its containers share. */
#include "cri/translate_priv.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

#include "io/base/alloc.h"
#include "io/fs.h"

/* What other runtimes give a pod. */
#define SHM_SIZE (64u << 20)

char *translate_sandbox_name(const Runtime__V1__PodSandboxMetadata *m)
{
	return xasprintf("%s_%s_%s_%u", m->name, m->namespace_, m->uid, m->attempt);
}

/* One that is called after the pod, as the kubelet's are, is that pod's alone. */
static bool is_own_parent(const char *parent, const char *uid)
{
	static const char slice[] = ".slice";
	size_t length = strlen(parent), n = strlen(uid), end = strlen(slice);
	const char *at;

	if (length > end && !strcmp(parent + length - end, slice))
		length -= end;
	if (!n || length <= n)
		return false;
	at = parent + length - n;
	/* a dash would make another slice of it */
	for (size_t i = 0; i < n; i++)
		if (at[i] != uid[i] && (at[i] != '_' || uid[i] != '-'))
			return false;
	return true;
}

static void sysctls_of(struct arena *arena, const Runtime__V1__LinuxPodSandboxConfig *linux_config,
		       struct sandbox_spec *ret)
{
	/* a pod's network is its own, so any of its users may listen on port 80 there, and ping */
	static const struct key_value usual[] = {
		{"net.ipv4.ip_unprivileged_port_start", "0"},
		{"net.ipv4.ping_group_range", "0 2147483647"},
	};
	size_t given = linux_config ? linux_config->n_sysctls : 0, count = 0;
	struct key_value *items = arena_new_array(arena, struct key_value, given + 2);

	for (; count < given; count++)
		items[count] = (struct key_value){linux_config->sysctls[count]->key,
						  linux_config->sysctls[count]->value};
	/* in a user namespace the kernel takes only groups that it has */
	for (size_t i = 0; i < (ret->has_userns ? 1 : 2) && ret->net == NS_POD; i++) {
		bool is_given = false;

		for (size_t k = 0; k < given; k++)
			is_given = is_given || !strcmp(items[k].key, usual[i].key);
		if (!is_given)
			items[count++] = usual[i];
	}
	ret->sysctls.items = items;
	ret->sysctls.count = count;
}

int translate_sandbox(struct arena *arena, const struct sandbox *sb, struct sandbox_spec *ret,
		      struct error *err)
{
	const SandboxConfig *config = sandbox_config(arena, sb);
	const NamespaceOption *ns = sandbox_namespaces(config);
	const Runtime__V1__UserNamespace *user = ns ? ns->userns_options : NULL;
	const char *parent = config->linux ? null_if_empty(config->linux->cgroup_parent) : NULL;

	ret->id = sb->id;
	ret->hostname = config->hostname;
	ret->net = ns ? translate_ns_mode(ns->network) : NS_POD;
	ret->ipc = ns ? translate_ns_mode(ns->ipc) : NS_POD;
	ret->pid = ns ? translate_ns_mode(ns->pid) : NS_POD;
	ret->shm_size = SHM_SIZE;
	ret->cgroup_parent = parent;
	ret->has_own_parent =
		parent && config->metadata && is_own_parent(parent, config->metadata->uid);
	if (user && user->mode == NS_NAME(POD)) {
		ret->has_userns = true;
		ret->uids = translate_id_maps(arena, user->uids, user->n_uids);
		ret->gids = translate_id_maps(arena, user->gids, user->n_gids);
	}
	sysctls_of(arena, config->linux, ret);
	if (config->linux && config->linux->security_context)
		ret->selinux = translate_selinux(config->linux->security_context->selinux_options);
	if (config->linux)
		translate_sandbox_limits.spec(arena, sb, &sb->limits.bytes, &ret->resources);
	return 0;
}

static void add_lines(struct buf *b, const char *word, char **items, size_t count)
{
	for (size_t i = 0; i < count; i++)
		buf_printf(b, "%s%s", i ? " " : word, items[i]);
	if (count)
		buf_puts(b, "\n");
}

static int resolv_conf(const SandboxConfig *config, struct buf *ret, struct error *err)
{
	const Runtime__V1__DNSConfig *dns = config->dns_config;

	if (!dns)
		return fs_read_file("/etc/resolv.conf", 1 << 20, ret, err);
	for (size_t i = 0; i < dns->n_servers; i++)
		buf_printf(ret, "nameserver %s\n", dns->servers[i]);
	add_lines(ret, "search ", dns->searches, dns->n_searches);
	add_lines(ret, "options ", dns->options, dns->n_options);
	return 0;
}

static int hosts(const SandboxConfig *config, struct buf *ret, struct error *err)
{
	const NamespaceOption *ns = sandbox_namespaces(config);

	if (ns && ns->network == NS_NAME(NODE))
		return fs_read_file("/etc/hosts", 1 << 20, ret, err);
	buf_puts(ret, "127.0.0.1\tlocalhost\n::1\tlocalhost ip6-localhost ip6-loopback\n");
	if (is_set(config->hostname))
		buf_printf(ret, "127.0.0.1\t%s\n", config->hostname);
	return 0;
}

/* By the pod's root, who may change them; check_map() knows that id 0 comes first. */
static int write_file(int dir, const char *name, const struct buf *content,
		      const Runtime__V1__UserNamespace *user, struct error *err)
{
	TRY(fs_write_at(dir, name, content, 0644, err));
	if (!user || user->mode != NS_NAME(POD))
		return 0;
	if (fchownat(dir, name, user->uids[0]->host_id, user->gids[0]->host_id,
		     AT_SYMLINK_NOFOLLOW) < 0)
		return error_errno(err, errno, "give the pod's root its %s", name);
	return 0;
}

int translate_sandbox_files(const struct sandbox *sb, struct error *err)
{
	struct arena *arena CLEANUP(cleanup_arena_fn) = arena_new(TASK_ARENA_CAP);
	const SandboxConfig *config = sandbox_config(arena, sb);
	const NamespaceOption *ns = sandbox_namespaces(config);
	const Runtime__V1__UserNamespace *user = ns ? ns->userns_options : NULL;
	struct buf dns CLEANUP(buf_done) = {0}, names CLEANUP(buf_done) = {0};
	struct buf host CLEANUP(buf_done) = {0};
	cleanup_close int dir = open(sb->dir, O_PATH | O_DIRECTORY | O_CLOEXEC);
	char name[65] = "";

	if (dir < 0)
		return error_errno(err, errno, "open %s", sb->dir);
	if (is_set(config->hostname))
		buf_printf(&host, "%s\n", config->hostname);
	else if (gethostname(name, sizeof(name) - 1) == 0)
		buf_printf(&host, "%s\n", name);
	TRY(resolv_conf(config, &dns, err));
	TRY(hosts(config, &names, err));
	TRY(write_file(dir, "hostname", &host, user, err));
	TRY(write_file(dir, "hosts", &names, user, err));
	return write_file(dir, "resolv.conf", &dns, user, err);
}
