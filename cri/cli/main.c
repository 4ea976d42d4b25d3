/* SPDX-License-Identifier: Apache-2.0 */
/* crisp: the command line of crispd. A table of commands; each asks the server over its socket. */
#include <getopt.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "cri/cli/client.h"
#include "cri/cli/doctor.h"
#include "cri/cli/fsck.h"
#include "cri/proto/cri.pb-c.h"
#include "cri/proto/crisp.pb-c.h"
#include "io/base/alloc.h"
#include "io/base/cleanup.h"

#define ID_SHORT 13
#define ID_BUFFER 80
/* where logs of pods go that nobody's kubelet looks after */
#define LOG_DIRECTORY "/var/log/crisp"

struct command {
	const char *name, *arguments, *help;
	int (*run)(struct client *c, int argc, char **argv, struct error *err);
	/* instead of run, for what works without a server; returns the exit status */
	int (*run_alone)(int argc, char **argv);
};

static void ignore(const ProtobufCMessage *message, void *data)
{
}

static void on_version(const ProtobufCMessage *message, void *data)
{
	const Runtime__V1__VersionResponse *v = (const void *)message;

	printf("server: %s %s, CRI %s\n", v->runtime_name, v->runtime_version,
	       v->runtime_api_version);
}

static int run_version(struct client *c, int argc, char **argv, struct error *err)
{
	Runtime__V1__VersionRequest request = RUNTIME__V1__VERSION_REQUEST__INIT;

	printf("crisp %s\n", CRISP_VERSION);
	return client_call(c, "/runtime.v1.RuntimeService/Version", &request.base,
			   &runtime__v1__version_response__descriptor, on_version, NULL, err);
}

static void on_progress(const ProtobufCMessage *message, void *data)
{
	const Crisp__V1__ImportProgress *p = (const void *)message;

	if (*p->image_id) {
		printf("%s\n", p->image_id);
		for (size_t i = 0; i < p->n_references; i++)
			printf("  %s\n", p->references[i]);
	} else if (*p->step) {
		fprintf(stderr, "%s (%u of %u layers)\n", p->step, p->layers_done, p->layers_total);
	}
}

static int run_import(struct client *c, int argc, char **argv, struct error *err)
{
	Crisp__V1__ImportRequest request = CRISP__V1__IMPORT_REQUEST__INIT;
	char *path cleanup_free = NULL;

	if (argc < 2)
		return error_set(err, ERR_INVALID, "import: name an archive or a directory");
	/* the server has its own working directory */
	path = realpath(argv[1], NULL);
	if (!path)
		return error_set(err, ERR_NOT_FOUND, "import %s: there is no such file", argv[1]);
	request.path = path;
	request.names = argv + 2;
	request.n_names = (size_t)argc - 2;
	return client_call(c, "/crisp.v1.Crisp/Import", &request.base,
			   &crisp__v1__import_progress__descriptor, on_progress, NULL, err);
}

static void print_age(int64_t created_at)
{
	long long seconds = (long long)time(NULL) - created_at / 1000000000;

	if (seconds < 120)
		printf("%llds\n", seconds);
	else if (seconds < 7200)
		printf("%lldm\n", seconds / 60);
	else
		printf("%lldh\n", seconds / 3600);
}

static void on_sandboxes(const ProtobufCMessage *message, void *data)
{
	const Runtime__V1__ListPodSandboxResponse *r = (const void *)message;

	printf("%-*s  %-9s  %-20s  %-24s  AGE\n", ID_SHORT, "SANDBOX", "STATE", "NAMESPACE",
	       "NAME");
	for (size_t i = 0; i < r->n_items; i++) {
		const Runtime__V1__PodSandbox *s = r->items[i];
		bool is_ready = s->state == RUNTIME__V1__POD_SANDBOX_STATE__SANDBOX_READY;

		printf("%.*s  %-9s  %-20s  %-24s  ", ID_SHORT, s->id,
		       is_ready ? "ready" : "not ready", s->metadata->namespace_,
		       s->metadata->name);
		print_age(s->created_at);
	}
}

static int run_sandboxes(struct client *c, int argc, char **argv, struct error *err)
{
	Runtime__V1__ListPodSandboxRequest request = RUNTIME__V1__LIST_POD_SANDBOX_REQUEST__INIT;

	return client_call(c, "/runtime.v1.RuntimeService/ListPodSandbox", &request.base,
			   &runtime__v1__list_pod_sandbox_response__descriptor, on_sandboxes, NULL,
			   err);
}

static void on_containers(const ProtobufCMessage *message, void *data)
{
	static const char *const states[] = {"created", "running", "exited", "unknown"};
	const Runtime__V1__ListContainersResponse *r = (const void *)message;

	printf("%-*s  %-7s  %-*s  %-24s  %-40s  AGE\n", ID_SHORT, "CONTAINER", "STATE", ID_SHORT,
	       "SANDBOX", "NAME", "IMAGE");
	for (size_t i = 0; i < r->n_containers; i++) {
		const Runtime__V1__Container *k = r->containers[i];

		printf("%.*s  %-7s  %.*s  %-24s  %-40s  ", ID_SHORT, k->id,
		       states[k->state <= 3 ? k->state : 3], ID_SHORT, k->pod_sandbox_id,
		       k->metadata->name, k->image ? k->image->image : "");
		print_age(k->created_at);
	}
}

static int run_containers(struct client *c, int argc, char **argv, struct error *err)
{
	Runtime__V1__ListContainersRequest request = RUNTIME__V1__LIST_CONTAINERS_REQUEST__INIT;

	return client_call(c, "/runtime.v1.RuntimeService/ListContainers", &request.base,
			   &runtime__v1__list_containers_response__descriptor, on_containers, NULL,
			   err);
}

static void on_images(const ProtobufCMessage *message, void *data)
{
	const Runtime__V1__ListImagesResponse *r = (const void *)message;

	printf("%-*s  %10s  REFERENCES\n", ID_SHORT, "IMAGE", "KIB");
	for (size_t i = 0; i < r->n_images; i++) {
		const Runtime__V1__Image *m = r->images[i];
		const char *hex = strchr(m->id, ':');

		printf("%.*s  %10llu ", ID_SHORT, hex ? hex + 1 : m->id,
		       (unsigned long long)m->size / 1024);
		for (size_t k = 0; k < m->n_repo_tags; k++)
			printf(" %s", m->repo_tags[k]);
		putchar('\n');
	}
}

static int run_images(struct client *c, int argc, char **argv, struct error *err)
{
	Runtime__V1__ListImagesRequest request = RUNTIME__V1__LIST_IMAGES_REQUEST__INIT;

	return client_call(c, "/runtime.v1.ImageService/ListImages", &request.base,
			   &runtime__v1__list_images_response__descriptor, on_images, NULL, err);
}

static void keep_id(const ProtobufCMessage *message, void *data)
{
	/* both replies have the id as their only field */
	const Runtime__V1__RunPodSandboxResponse *r = (const void *)message;

	snprintf(data, ID_BUFFER, "%s", r->pod_sandbox_id);
}

static int start(struct client *c, char *id, struct error *err)
{
	Runtime__V1__StartContainerRequest request = RUNTIME__V1__START_CONTAINER_REQUEST__INIT;

	request.container_id = id;
	return client_call(c, "/runtime.v1.RuntimeService/StartContainer", &request.base,
			   &runtime__v1__start_container_response__descriptor, ignore, NULL, err);
}

/* A pod on the host's network with one container of the same name. */
static int run_run(struct client *c, int argc, char **argv, struct error *err)
{
	Runtime__V1__RunPodSandboxRequest pod = RUNTIME__V1__RUN_POD_SANDBOX_REQUEST__INIT;
	Runtime__V1__PodSandboxConfig config = RUNTIME__V1__POD_SANDBOX_CONFIG__INIT;
	Runtime__V1__PodSandboxMetadata who = RUNTIME__V1__POD_SANDBOX_METADATA__INIT;
	Runtime__V1__LinuxPodSandboxConfig on_linux = RUNTIME__V1__LINUX_POD_SANDBOX_CONFIG__INIT;
	Runtime__V1__LinuxSandboxSecurityContext security =
		RUNTIME__V1__LINUX_SANDBOX_SECURITY_CONTEXT__INIT;
	Runtime__V1__NamespaceOption namespaces = RUNTIME__V1__NAMESPACE_OPTION__INIT;
	Runtime__V1__CreateContainerRequest create = RUNTIME__V1__CREATE_CONTAINER_REQUEST__INIT;
	Runtime__V1__ContainerConfig container = RUNTIME__V1__CONTAINER_CONFIG__INIT;
	Runtime__V1__ContainerMetadata name = RUNTIME__V1__CONTAINER_METADATA__INIT;
	Runtime__V1__ImageSpec image = RUNTIME__V1__IMAGE_SPEC__INIT;
	char pod_id[ID_BUFFER], id[ID_BUFFER], log[64];

	if (argc < 3)
		return error_set(err, ERR_INVALID, "run: needs a name and an image");
	who.name = who.uid = name.name = argv[1];
	who.namespace_ = (char *)"crisp";
	namespaces.network = RUNTIME__V1__NAMESPACE_MODE__NODE;
	namespaces.pid = RUNTIME__V1__NAMESPACE_MODE__CONTAINER;
	security.namespace_options = &namespaces;
	on_linux.security_context = &security;
	config.metadata = &who;
	config.linux = &on_linux;
	config.log_directory = (char *)LOG_DIRECTORY;
	pod.config = &config;
	TRY(client_call(c, "/runtime.v1.RuntimeService/RunPodSandbox", &pod.base,
			&runtime__v1__run_pod_sandbox_response__descriptor, keep_id, pod_id, err));
	snprintf(log, sizeof(log), "%.48s.log", argv[1]);
	image.image = argv[2];
	container.metadata = &name;
	container.image = &image;
	container.log_path = log;
	container.command = argv + 3;
	container.n_command = (size_t)argc - 3;
	create.pod_sandbox_id = pod_id;
	create.config = &container;
	create.sandbox_config = &config;
	TRY(client_call(c, "/runtime.v1.RuntimeService/CreateContainer", &create.base,
			&runtime__v1__create_container_response__descriptor, keep_id, id, err));
	TRY(start(c, id, err));
	printf("%s\n", id);
	return 0;
}

static void on_status(const ProtobufCMessage *message, void *data)
{
	const Runtime__V1__ContainerStatusResponse *r = (const void *)message;

	*(char **)data = xstrdup(r->status->log_path);
}

/* What a CRI log line holds before its payload: time, stream and tag. */
static const char *payload_of(const char *line)
{
	for (int i = 0; i < 3 && line; i++) {
		line = strchr(line, ' ');
		line = line ? line + 1 : NULL;
	}
	return line;
}

static int run_logs(struct client *c, int argc, char **argv, struct error *err)
{
	Runtime__V1__ContainerStatusRequest request = RUNTIME__V1__CONTAINER_STATUS_REQUEST__INIT;
	FILE *file cleanup_fclose = NULL;
	char *path cleanup_free = NULL, *line cleanup_free = NULL;
	size_t capacity = 0;

	if (argc != 2)
		return error_set(err, ERR_INVALID, "logs: name a container by its id");
	request.container_id = argv[1];
	TRY(client_call(c, "/runtime.v1.RuntimeService/ContainerStatus", &request.base,
			&runtime__v1__container_status_response__descriptor, on_status, &path,
			err));
	file = fopen(path, "re");
	if (!file)
		return error_set(err, ERR_NOT_FOUND, "logs %s: can't open \"%s\"", argv[1], path);
	while (getline(&line, &capacity, file) > 0) {
		const char *payload = payload_of(line);

		if (payload)
			fputs(payload, stdout);
	}
	return 0;
}

/* Stops and removes the pod with all that is in it. */
static int run_remove(struct client *c, int argc, char **argv, struct error *err)
{
	Runtime__V1__RemovePodSandboxRequest request =
		RUNTIME__V1__REMOVE_POD_SANDBOX_REQUEST__INIT;

	for (int i = 1; i < argc; i++) {
		request.pod_sandbox_id = argv[i];
		TRY(client_call(c, "/runtime.v1.RuntimeService/RemovePodSandbox", &request.base,
				&runtime__v1__remove_pod_sandbox_response__descriptor, ignore, NULL,
				err));
	}
	return 0;
}

static const struct command commands[] = {
	{"import", "FILE [NAME…]", "load an OCI layout or docker archive (file or directory)",
	 run_import},
	{"images", "", "list images", run_images},
	{"run", "NAME IMAGE [CMD…]", "run a pod of one container on the host's network", run_run},
	{"logs", "CONTAINER", "print what a container wrote", run_logs},
	{"remove", "SANDBOX…", "stop and remove pods", run_remove},
	{"sandboxes", "", "list pod sandboxes", run_sandboxes},
	{"containers", "", "list containers", run_containers},
	{"fsck", "[--fix] …", "look for damage while no server runs; see fsck --help", NULL,
	 fsck_main},
	{"doctor", "[-o json]", "say what this node can do, and what helps", NULL, doctor_main},
	{"version", "", "versions of this program and of the server", run_version},
};

#define COUNT (sizeof(commands) / sizeof(commands[0]))

static int usage(FILE *to)
{
	fputs("usage: crisp [--address SOCKET] COMMAND …\n\n", to);
	for (size_t i = 0; i < COUNT; i++)
		fprintf(to, "  %-12s %-18s %s\n", commands[i].name, commands[i].arguments,
			commands[i].help);
	fputs("\nSOCKET is crispd's, /run/crisp/crisp.sock unless given.\n", to);
	return to == stderr;
}

static int run_command(const struct command *command, const char *address, int argc, char **argv)
{
	struct client *c;
	struct error err = {0};
	int r;

	if (command->run_alone)
		return command->run_alone(argc, argv);
	c = client_new(address);
	r = command->run(c, argc, argv, &err);
	client_free(c);
	if (r < 0)
		fprintf(stderr, "crisp: %s\n", err.text);
	return r < 0;
}

int main(int argc, char **argv)
{
	static const struct option options[] = {
		{"address", required_argument, NULL, 'a'}, {"help", no_argument, NULL, 'h'}, {0}};
	const char *address = "/run/crisp/crisp.sock";
	int id;

	/* '+': options behind the command are the command's */
	while ((id = getopt_long(argc, argv, "+a:h", options, NULL)) >= 0) {
		if (id == 'h')
			return usage(stdout);
		if (id != 'a')
			return usage(stderr);
		address = optarg;
	}
	for (size_t i = 0; optind < argc && i < COUNT; i++)
		if (!strcmp(argv[optind], commands[i].name))
			return run_command(&commands[i], address, argc - optind, argv + optind);
	return usage(stderr);
}
