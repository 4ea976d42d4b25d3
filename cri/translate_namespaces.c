/* SPDX-License-Identifier: Apache-2.0 */
/* Which namespaces a pod may ask for, and what of its pod's a container may have. */
#include "cri/translate_priv.h"

#define OPTIONS SECURITY_CONTEXT ".namespace_options"

/* The zero value, which of a container means what nobody asked for. */
static bool is_unset(const Runtime__V1__UserNamespace *u)
{
	return u->mode == NS_NAME(POD) && !u->n_uids && !u->n_gids;
}

/* One that maps id 0, as the API has it; the kernel could do more. */
static int check_map(const char *field, Runtime__V1__IDMapping *const *maps, size_t count,
		     struct error *err)
{
	const Runtime__V1__IDMapping *m = count ? maps[0] : NULL;

	if (count != 1)
		return error_set(err, ERR_INVALID,
				 OPTIONS ".userns_options.%s: %zu mappings, and mode POD has one",
				 field, count);
	if (!m->length || m->container_id)
		return error_set(err, ERR_INVALID,
				 OPTIONS ".userns_options.%s: maps %u ids from %u on; id 0 must be "
					 "among them",
				 field, m->length, m->container_id);
	if (m->length > UINT32_MAX - m->host_id)
		return error_set(err, ERR_INVALID,
				 OPTIONS
				 ".userns_options.%s: %u ids from %u on are more than there "
				 "are",
				 field, m->length, m->host_id);
	return 0;
}

/* What neither the API nor the kernel lets go together. */
static int check_userns(const NamespaceOption *o, struct error *err)
{
	const Runtime__V1__UserNamespace *u = o->userns_options;

	if (u->mode == NS_NAME(NODE) && (u->n_uids || u->n_gids))
		return error_set(err, ERR_INVALID,
				 OPTIONS ".userns_options: mode NODE has no mappings");
	if (u->mode != NS_NAME(POD))
		return 0;
	TRY(check_map("uids", u->uids, u->n_uids, err));
	TRY(check_map("gids", u->gids, u->n_gids, err));
	if (o->pid == NS_NAME(NODE) || o->ipc == NS_NAME(NODE))
		return error_set(err, ERR_INVALID,
				 OPTIONS ".userns_options: mode POD can't go with %s NODE",
				 o->pid == NS_NAME(NODE) ? "pid" : "ipc");
	return 0;
}

int translate_check_namespaces(const NamespaceOption *o, bool is_pod, struct error *err)
{
	if (!o)
		return 0;
	if (o->network != NS_NAME(POD) && o->network != NS_NAME(NODE))
		return error_set(err, ERR_INVALID, OPTIONS ".network: must be POD or NODE");
	if (o->ipc != NS_NAME(POD) && o->ipc != NS_NAME(NODE))
		return error_set(err, ERR_INVALID, OPTIONS ".ipc: must be POD or NODE");
	if (o->userns_options && o->userns_options->mode != NS_NAME(POD) &&
	    o->userns_options->mode != NS_NAME(NODE))
		return error_set(err, ERR_INVALID,
				 OPTIONS ".userns_options.mode: must be POD or NODE");
	if ((o->pid == NS_NAME(TARGET)) != is_set(o->target_id))
		return error_set(err, ERR_INVALID,
				 OPTIONS ".target_id: needed for pid TARGET, and only there");
	if (!o->userns_options || (!is_pod && is_unset(o->userns_options)))
		return 0;
	return check_userns(o, err);
}

static bool is_same_map(Runtime__V1__IDMapping **a, size_t a_count, Runtime__V1__IDMapping **b,
			size_t b_count)
{
	for (size_t i = 0; i < a_count && i < b_count; i++)
		if (a[i]->host_id != b[i]->host_id || a[i]->container_id != b[i]->container_id ||
		    a[i]->length != b[i]->length)
			return false;
	return a_count == b_count;
}

static int check_user_namespace(const Runtime__V1__UserNamespace *mine,
				const Runtime__V1__UserNamespace *pod, struct error *err)
{
	bool has_own = pod && pod->mode == NS_NAME(POD);

	if (!mine || is_unset(mine))
		return 0;
	if (mine->mode == NS_NAME(NODE) && !has_own)
		return 0;
	if (has_own && mine->mode == NS_NAME(POD) &&
	    is_same_map(mine->uids, mine->n_uids, pod->uids, pod->n_uids) &&
	    is_same_map(mine->gids, mine->n_gids, pod->gids, pod->n_gids))
		return 0;
	return error_set(err, ERR_INVALID,
			 OPTIONS ".userns_options: a container has its pod's user "
				 "namespace; give both the same one");
}

int translate_check_in_pod(const SandboxConfig *pod, const ContainerConfig *config,
			   struct error *err)
{
	const ContainerSecurity *s = security_of(config);
	const Runtime__V1__LinuxSandboxSecurityContext *p =
		pod->linux ? pod->linux->security_context : NULL;
	const NamespaceOption *mine = s ? s->namespace_options : NULL;
	const NamespaceOption *of_pod = sandbox_namespaces(pod);

	if (s && s->privileged && (!p || !p->privileged))
		return error_set(err, ERR_INVALID,
				 "config.linux.security_context.privileged: the pod does not allow "
				 "it; run the pod with linux.security_context.privileged");
	if (!mine)
		return 0;
	if (mine->network == NS_NAME(NODE) && (!of_pod || of_pod->network != NS_NAME(NODE)))
		return error_set(err, ERR_INVALID,
				 OPTIONS ".network: a container has its pod's, and that "
					 "is not NODE");
	if (mine->ipc == NS_NAME(NODE) && (!of_pod || of_pod->ipc != NS_NAME(NODE)))
		return error_set(err, ERR_INVALID,
				 OPTIONS ".ipc: a container has its pod's, and that is "
					 "not NODE");
	if (mine->pid == NS_NAME(NODE) && (!of_pod || of_pod->pid != NS_NAME(NODE)))
		return error_set(err, ERR_INVALID,
				 OPTIONS ".pid: only a container of a pod with NODE may have it");
	return check_user_namespace(mine->userns_options, of_pod ? of_pod->userns_options : NULL,
				    err);
}
