/* SPDX-License-Identifier: Apache-2.0 */
/* Version, Status, RuntimeConfig, UpdateRuntimeConfig: what the kubelet asks of the node itself. */
#include "cri/doctor.h"
#include "cri/methods.h"
#include "cri/reply.h"

#include <arpa/inet.h>
#include <stdlib.h>
#include <string.h>

#include "recovery/fdstore.h"

int cri_version(struct task *t, struct call *c, const void *message)
{
	Runtime__V1__VersionResponse reply = RUNTIME__V1__VERSION_RESPONSE__INIT;

	/* the kubelet accepts no other value here, whatever its own version */
	reply.version = text("0.1.0");
	reply.runtime_name = text("crisp");
	reply.runtime_version = text(CRISP_VERSION);
	reply.runtime_api_version = text("v1");
	return call_reply(t, c, &reply.base);
}

int cri_runtime_config(struct task *t, struct call *c, const void *message)
{
	Runtime__V1__RuntimeConfigResponse reply = RUNTIME__V1__RUNTIME_CONFIG_RESPONSE__INIT;
	Runtime__V1__LinuxRuntimeConfiguration l = RUNTIME__V1__LINUX_RUNTIME_CONFIGURATION__INIT;

	l.cgroup_driver = sandboxer_find("linux")->has_systemd_cgroups()
				  ? RUNTIME__V1__CGROUP_DRIVER__SYSTEMD
				  : RUNTIME__V1__CGROUP_DRIVER__CGROUPFS;
	reply.linux = &l;
	return call_reply(t, c, &reply.base);
}

/* "10.1.0.0/24" or "fd00::/64". */
static bool is_cidr(char *text)
{
	char *slash = strchr(text, '/'), *end;
	unsigned char address[16];
	unsigned long bits;
	int family = strchr(text, ':') ? AF_INET6 : AF_INET;

	if (!slash || slash[1] < '0' || slash[1] > '9')
		return false;
	*slash = '\0';
	bits = strtoul(slash + 1, &end, 10);
	return !*end && bits <= (family == AF_INET6 ? 128 : 32) &&
	       inet_pton(family, text, address) == 1;
}

/* One, or one of each family with a comma between them. */
static int check_cidrs(struct task *t, const char *cidrs)
{
	char *next = arena_strdup(t->arena, cidrs);

	while (next) {
		char *text = strsep(&next, ",");

		if (!is_cidr(text))
			return error_set(&t->err, ERR_INVALID,
					 "runtime_config.network_config.pod_cidr \"%.100s\": not "
					 "addresses such as 10.1.0.0/24",
					 cidrs);
	}
	return 0;
}

int cri_update_runtime_config(struct task *t, struct call *c, const void *message)
{
	const Runtime__V1__UpdateRuntimeConfigRequest *request = message;
	Runtime__V1__UpdateRuntimeConfigResponse reply =
		RUNTIME__V1__UPDATE_RUNTIME_CONFIG_RESPONSE__INIT;
	const Runtime__V1__NetworkConfig *network =
		request->runtime_config ? request->runtime_config->network_config : NULL;

	/* an empty one is to be left out */
	if (network && *network->pod_cidr) {
		TRY(check_cidrs(t, network->pod_cidr));
		TRY(node_set_pod_cidr(t, call_data(c), network->pod_cidr));
	}
	return call_reply(t, c, &reply.base);
}

static Runtime__V1__RuntimeCondition *condition(struct arena *arena, const char *type)
{
	Runtime__V1__RuntimeCondition *c =
		REPLY(arena, Runtime__V1__RuntimeCondition, RUNTIME__V1__RUNTIME_CONDITION__INIT);

	c->type = text(type);
	c->status = true;
	return c;
}

/* Those that RunPodSandbox accepts. */
static void add_handlers(struct arena *arena, const struct node *n,
			 Runtime__V1__StatusResponse *reply)
{
	reply->runtime_handlers =
		arena_new_array(arena, Runtime__V1__RuntimeHandler *, n->handler_count);
	for (size_t i = 0; i < n->handler_count; i++) {
		const struct sandboxer *kind = n->handlers[i].kind;
		Runtime__V1__RuntimeHandler *h = REPLY(arena, Runtime__V1__RuntimeHandler,
						       RUNTIME__V1__RUNTIME_HANDLER__INIT);

		h->name = text(n->handlers[i].name);
		h->features = REPLY(arena, Runtime__V1__RuntimeHandlerFeatures,
				    RUNTIME__V1__RUNTIME_HANDLER_FEATURES__INIT);
		h->features->recursive_read_only_mounts = kind->features.recursive_readonly_mounts;
		h->features->user_namespaces = kind->features.user_namespaces;
		reply->runtime_handlers[reply->n_runtime_handlers++] = h;
	}
}

/* Sums over the containers that are there, whether they run or not. */
static const char *output_json(struct task *t, const struct node *n)
{
	uint64_t taken = 0, logged = 0, dropped = 0;
	size_t failing = 0;

	map_for_each(slot, &n->containers) {
		const struct container_output o = container_output(slot->value);

		taken += o.taken[0] + o.taken[1];
		logged += o.logged[0] + o.logged[1];
		dropped += o.dropped[0] + o.dropped[1];
		failing += o.is_log_failing;
	}
	return arena_printf(t->arena,
			    "{\"taken\":%llu,\"logged\":%llu,\"dropped\":%llu,\"failingLogs\":%zu}",
			    (unsigned long long)taken, (unsigned long long)logged,
			    (unsigned long long)dropped, failing);
}

static const char *config_json(struct task *t, const struct node *n)
{
	return arena_printf(
		t->arena,
		"{\"root\":\"%s\",\"state\":\"%s\",\"pipeSize\":%zu,\"logFull\":\"%s\","
		"\"sandboxes\":%zu,\"containers\":%zu,\"recovering\":%zu,\"keeper\":%s,"
		"\"podCIDR\":\"%s\"}",
		n->root_dir, n->state_dir, n->pipe_size, n->log_blocks ? "block" : "drop",
		n->sandboxes.count, n->containers.count, n->unsettled,
		fdstore_has_keeper(n->fdstore) ? "true" : "false", n->pod_cidr ? n->pod_cidr : "");
}

static void add_info(struct arena *arena, Runtime__V1__StatusResponse *reply, const char *key,
		     const char *value)
{
	Runtime__V1__StatusResponse__InfoEntry *e =
		REPLY(arena, Runtime__V1__StatusResponse__InfoEntry,
		      RUNTIME__V1__STATUS_RESPONSE__INFO_ENTRY__INIT);

	e->key = text(key);
	e->value = text(value);
	reply->info[reply->n_info++] = e;
}

int cri_status(struct task *t, struct call *c, const void *message)
{
	const Runtime__V1__StatusRequest *request = message;
	Runtime__V1__StatusResponse reply = RUNTIME__V1__STATUS_RESPONSE__INIT;
	Runtime__V1__RuntimeStatus status = RUNTIME__V1__RUNTIME_STATUS__INIT;
	Runtime__V1__RuntimeFeatures features = RUNTIME__V1__RUNTIME_FEATURES__INIT;
	Runtime__V1__RuntimeCondition *conditions[2];
	const struct node_findings *found;

	TRY(cri_doctor(t, &found));
	conditions[0] = condition(t->arena, "RuntimeReady");
	if (*found->unfit) {
		conditions[0]->status = false;
		conditions[0]->reason = text("NodeUnfit");
		conditions[0]->message = found->unfit;
	}
	/* pods on the host's network and those with nothing but loopback need no set-up */
	conditions[1] = condition(t->arena, "NetworkReady");
	status.conditions = conditions;
	status.n_conditions = 2;
	reply.status = &status;
	features.supplemental_groups_policy =
		sandboxer_find("linux")->features.supplemental_groups_policy;
	features.mount_options = sandboxer_find("linux")->features.mount_options;
	reply.features = &features;
	add_handlers(t->arena, call_data(c), &reply);
	if (request->verbose) {
		reply.info = arena_new_array(t->arena, Runtime__V1__StatusResponse__InfoEntry *, 3);
		add_info(t->arena, &reply, "config", config_json(t, call_data(c)));
		add_info(t->arena, &reply, "output", output_json(t, call_data(c)));
		add_info(t->arena, &reply, "doctor", found->json);
	}
	return call_reply(t, c, &reply.base);
}
