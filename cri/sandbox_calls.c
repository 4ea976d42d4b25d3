/* SPDX-License-Identifier: Apache-2.0 */
/* RunPodSandbox, StopPodSandbox, RemovePodSandbox, UpdatePodSandboxResources. */
#include "cri/canonical.h"
#include "cri/methods.h"
#include "cri/reply.h"
#include "cri/translate.h"

int cri_run_pod_sandbox(struct task *t, struct call *c, const void *message)
{
	const Runtime__V1__RunPodSandboxRequest *request = message;
	Runtime__V1__RunPodSandboxResponse reply = RUNTIME__V1__RUN_POD_SANDBOX_RESPONSE__INIT;
	struct sandbox_request r = {.handler = request->runtime_handler};
	char *name cleanup_free = NULL;
	struct buf bytes CLEANUP(buf_done) = {0};
	char id[ID_SIZE];

	TRY(translate_check_sandbox(request->config, &t->err));
	name = translate_sandbox_name(request->config->metadata);
	canonical_pack(&request->config->base, &bytes);
	r.name = name;
	r.config = bytes.data;
	r.config_size = bytes.length;
	TRY(sandbox_run(t, call_data(c), &r, id));
	reply.pod_sandbox_id = id;
	return call_reply(t, c, &reply.base);
}

int cri_stop_pod_sandbox(struct task *t, struct call *c, const void *message)
{
	const Runtime__V1__StopPodSandboxRequest *request = message;
	Runtime__V1__StopPodSandboxResponse reply = RUNTIME__V1__STOP_POD_SANDBOX_RESPONSE__INIT;

	TRY(sandbox_stop(t, call_data(c), request->pod_sandbox_id));
	return call_reply(t, c, &reply.base);
}

int cri_remove_pod_sandbox(struct task *t, struct call *c, const void *message)
{
	const Runtime__V1__RemovePodSandboxRequest *request = message;
	Runtime__V1__RemovePodSandboxResponse reply =
		RUNTIME__V1__REMOVE_POD_SANDBOX_RESPONSE__INIT;

	TRY(sandbox_remove(t, call_data(c), request->pod_sandbox_id));
	return call_reply(t, c, &reply.base);
}

int cri_update_pod_sandbox_resources(struct task *t, struct call *c, const void *message)
{
	const Runtime__V1__UpdatePodSandboxResourcesRequest *request = message;
	Runtime__V1__UpdatePodSandboxResourcesResponse reply =
		RUNTIME__V1__UPDATE_POD_SANDBOX_RESOURCES_RESPONSE__INIT;

	if (!request->overhead && !request->resources)
		return error_set(&t->err, ERR_INVALID,
				 "resources: missing, as overhead is, so nothing is to change");
	TRY(sandbox_update(t, call_data(c), request->pod_sandbox_id, request));
	return call_reply(t, c, &reply.base);
}
