/* SPDX-License-Identifier: Apache-2.0 */
/* CreateContainer, StartContainer, StopContainer, RemoveContainer, UpdateContainerResources,
 * ReopenContainerLog, ExecSync. */
#include "cri/canonical.h"
#include "cri/methods.h"
#include "cri/reply.h"
#include "cri/translate.h"

#include <limits.h>
#include <string.h>

static bool has_dot_dot(const char *path)
{
	for (const char *p = path; (p = strstr(p, "..")); p += 2)
		if ((p == path || p[-1] == '/') && (!p[2] || p[2] == '/'))
			return true;
	return false;
}

/* What no file system has room for would be found out by the container's start. */
static bool is_too_long(const char *path)
{
	for (const char *p = path; *p; p += strspn(p, "/")) {
		size_t part = strcspn(p, "/");

		if (part > NAME_MAX)
			return true;
		p += part;
	}
	return strlen(path) >= PATH_MAX;
}

static bool names_file(const char *path)
{
	const char *slash = strrchr(path, '/');
	const char *name = slash ? slash + 1 : path;

	return *name && strcmp(name, ".") != 0;
}

/* NULL without error when the pod or the container wants no log. */
static int log_path_of(struct task *t, const struct sandbox *sb,
		       const Runtime__V1__ContainerConfig *config, const char **ret)
{
	const char *dir = sandbox_config(t->arena, sb)->log_directory;

	*ret = NULL;
	if (!*dir || !*config->log_path)
		return 0;
	if (dir[0] != '/' || has_dot_dot(config->log_path))
		return error_set(&t->err, ERR_INVALID,
				 "config.log_path %.200s beneath %.200s: must stay in an absolute "
				 "log_directory",
				 config->log_path, dir);
	if (!names_file(config->log_path))
		return error_set(&t->err, ERR_INVALID, "config.log_path %.200s: must name a file",
				 config->log_path);
	*ret = arena_printf(t->arena, "%s/%s", dir, config->log_path);
	if (is_too_long(*ret))
		return error_set(
			&t->err, ERR_INVALID,
			"config.log_path %.200s: too long, with the pod's log_directory at "
			"most %d bytes, and %d between two slashes",
			config->log_path, PATH_MAX - 1, NAME_MAX);
	return 0;
}

/* Which images are mounted is decided now, whatever their names mean later. The ids are kept as
 * image_ref, which is not the caller's to set. */
static int resolve_images(struct task *t, struct node *n, Runtime__V1__ContainerConfig *config)
{
	for (size_t i = 0; i < config->n_mounts; i++) {
		Runtime__V1__ImageSpec *spec = config->mounts[i]->image;
		const struct image *image;

		if (!translate_has_image(config->mounts[i]))
			continue;
		image = image_find(n->images, spec->image);
		if (!image)
			return error_set(&t->err, ERR_NOT_FOUND,
					 "mounts.image %.200s at %.200s: not on this node; pull or "
					 "import it first",
					 spec->image, config->mounts[i]->container_path);
		spec->image_ref = arena_strdup(t->arena, image->id);
	}
	return 0;
}

int cri_create_container(struct task *t, struct call *c, const void *message)
{
	const Runtime__V1__CreateContainerRequest *request = message;
	Runtime__V1__CreateContainerResponse reply = RUNTIME__V1__CREATE_CONTAINER_RESPONSE__INIT;
	struct node *n = call_data(c);
	struct container_request r = {.sandbox_id = request->pod_sandbox_id};
	const struct sandbox *sb;
	char *name cleanup_free = NULL;
	struct buf bytes CLEANUP(buf_done) = {0};
	char id[ID_SIZE];

	TRY(translate_check_container(request->config, &t->err));
	sb = sandbox_find(n, request->pod_sandbox_id);
	if (!sb)
		return error_set(&t->err, ERR_NOT_FOUND,
				 "sandbox %.80s: there is none with this id",
				 request->pod_sandbox_id);
	TRY(translate_check_in_pod(sandbox_config(t->arena, sb), request->config, &t->err));
	TRY(log_path_of(t, sb, request->config, &r.log_path));
	TRY(resolve_images(t, n, request->config));
	name = n->front->container_name(request->config);
	canonical_pack(&request->config->base, &bytes);
	TRY(translate_cdi_devices(t->arena, request->config, &r.cdi_devices, &t->err));
	r.name = name;
	r.image = request->config->image->image;
	r.config = bytes.data;
	r.config_size = bytes.length;
	TRY(container_create(t, n, &r, id));
	reply.container_id = id;
	return call_reply(t, c, &reply.base);
}

int cri_start_container(struct task *t, struct call *c, const void *message)
{
	const Runtime__V1__StartContainerRequest *request = message;
	Runtime__V1__StartContainerResponse reply = RUNTIME__V1__START_CONTAINER_RESPONSE__INIT;

	TRY(container_start(t, call_data(c), request->container_id));
	return call_reply(t, c, &reply.base);
}

int cri_stop_container(struct task *t, struct call *c, const void *message)
{
	const Runtime__V1__StopContainerRequest *request = message;
	Runtime__V1__StopContainerResponse reply = RUNTIME__V1__STOP_CONTAINER_RESPONSE__INIT;

	TRY(container_stop(t, call_data(c), request->container_id,
			   (uint64_t)positive(request->timeout) * 1000));
	return call_reply(t, c, &reply.base);
}

int cri_remove_container(struct task *t, struct call *c, const void *message)
{
	const Runtime__V1__RemoveContainerRequest *request = message;
	Runtime__V1__RemoveContainerResponse reply = RUNTIME__V1__REMOVE_CONTAINER_RESPONSE__INIT;

	TRY(container_remove(t, call_data(c), request->container_id));
	return call_reply(t, c, &reply.base);
}

int cri_update_container_resources(struct task *t, struct call *c, const void *message)
{
	const Runtime__V1__UpdateContainerResourcesRequest *request = message;
	Runtime__V1__UpdateContainerResourcesResponse reply =
		RUNTIME__V1__UPDATE_CONTAINER_RESOURCES_RESPONSE__INIT;

	if (request->windows)
		return error_set(&t->err, ERR_INVALID, "windows: this node runs Linux");
	if (!request->linux)
		return error_set(&t->err, ERR_INVALID, "linux: missing, so nothing is to change");
	TRY(translate_check_resources("linux", request->linux, &t->err));
	TRY(container_update(t, call_data(c), request->container_id, request->linux));
	return call_reply(t, c, &reply.base);
}

int cri_reopen_container_log(struct task *t, struct call *c, const void *message)
{
	const Runtime__V1__ReopenContainerLogRequest *request = message;
	Runtime__V1__ReopenContainerLogResponse reply =
		RUNTIME__V1__REOPEN_CONTAINER_LOG_RESPONSE__INIT;

	TRY(container_reopen_log(t, call_data(c), request->container_id));
	return call_reply(t, c, &reply.base);
}

static void exec_result_done(struct exec_result *r)
{
	buf_done(&r->out);
	buf_done(&r->err);
}

int cri_exec_sync(struct task *t, struct call *c, const void *message)
{
	const Runtime__V1__ExecSyncRequest *request = message;
	Runtime__V1__ExecSyncResponse reply = RUNTIME__V1__EXEC_SYNC_RESPONSE__INIT;
	struct string_list argv = {(const char **)request->cmd, request->n_cmd};
	struct exec_result result CLEANUP(exec_result_done) = {0};

	if (!argv.count)
		return error_set(&t->err, ERR_INVALID, "cmd: missing");
	TRY(container_exec_sync(t, call_data(c), request->container_id, &argv,
				(uint64_t)positive(request->timeout) * 1000, &result));
	reply.stdout.data = (uint8_t *)result.out.data;
	reply.stdout.len = result.out.length;
	reply.stderr.data = (uint8_t *)result.err.data;
	reply.stderr.len = result.err.length;
	reply.exit_code = result.exit_code;
	return call_reply(t, c, &reply.base);
}
