/* SPDX-License-Identifier: Apache-2.0 */
/* Command line and configuration file. Peculiar: both are tables, and the file is read by libcyaml
 * against a schema, whose log tells line and key of what it refuses. */
#include "cri/config.h"

#include <cyaml/cyaml.h>
#include <ctype.h>
#include <getopt.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "io/base/alloc.h"
#include "io/base/buf.h"
#include "io/base/cleanup.h"
#include "io/base/log.h"
#include "io/fs.h"
#include "recovery/keeper.h"
#include "sandbox/handler.h"
#include "sandbox/sandboxer.h"

/* Of items in one list. */
#define LIST_MAX 256

struct file {
	char *root, *state, *listen, *log_level, *log_full, *cgroup_driver, *systemd_address;
	uint32_t *pipe_size;
	char **cdi_dirs;
	struct config_rlimit *rlimits;
	struct config_handler *handlers;
	uint32_t cdi_dirs_count, rlimits_count, handlers_count;
};

static const cyaml_schema_field_t rlimit_fields[] = {
	CYAML_FIELD_STRING_PTR("name", CYAML_FLAG_POINTER, struct config_rlimit, name, 1, 16),
	CYAML_FIELD_INT("soft", CYAML_FLAG_DEFAULT, struct config_rlimit, soft),
	CYAML_FIELD_INT("hard", CYAML_FLAG_DEFAULT, struct config_rlimit, hard),
	CYAML_FIELD_END,
};

static const cyaml_schema_value_t rlimit_schema = {
	CYAML_VALUE_MAPPING(CYAML_FLAG_DEFAULT, struct config_rlimit, rlimit_fields),
};

static const cyaml_schema_field_t handler_fields[] = {
	CYAML_FIELD_STRING_PTR("name", CYAML_FLAG_POINTER, struct config_handler, name, 1, 63),
	CYAML_FIELD_STRING_PTR("kind", CYAML_FLAG_OPTIONAL | CYAML_FLAG_POINTER,
			       struct config_handler, kind, 1, 16),
	CYAML_FIELD_BOOL("no_new_privs", CYAML_FLAG_OPTIONAL, struct config_handler, no_new_privs),
	CYAML_FIELD_SEQUENCE("rlimits", CYAML_FLAG_OPTIONAL | CYAML_FLAG_POINTER,
			     struct config_handler, rlimits, &rlimit_schema, 0, LIST_MAX),
	CYAML_FIELD_END,
};

static const cyaml_schema_value_t handler_schema = {
	CYAML_VALUE_MAPPING(CYAML_FLAG_DEFAULT, struct config_handler, handler_fields),
};

static const cyaml_schema_value_t dir_schema = {
	CYAML_VALUE_STRING(CYAML_FLAG_POINTER, char *, 1, 4095),
};

static const cyaml_schema_field_t file_fields[] = {
	CYAML_FIELD_STRING_PTR("root", CYAML_FLAG_OPTIONAL | CYAML_FLAG_POINTER, struct file, root,
			       1, 4095),
	CYAML_FIELD_STRING_PTR("state", CYAML_FLAG_OPTIONAL | CYAML_FLAG_POINTER, struct file,
			       state, 1, 4095),
	CYAML_FIELD_STRING_PTR("listen", CYAML_FLAG_OPTIONAL | CYAML_FLAG_POINTER, struct file,
			       listen, 1, 107),
	CYAML_FIELD_STRING_PTR("log_level", CYAML_FLAG_OPTIONAL | CYAML_FLAG_POINTER, struct file,
			       log_level, 1, 16),
	CYAML_FIELD_STRING_PTR("log_full", CYAML_FLAG_OPTIONAL | CYAML_FLAG_POINTER, struct file,
			       log_full, 1, 16),
	CYAML_FIELD_STRING_PTR("cgroup_driver", CYAML_FLAG_OPTIONAL | CYAML_FLAG_POINTER,
			       struct file, cgroup_driver, 1, 16),
	CYAML_FIELD_STRING_PTR("systemd_address", CYAML_FLAG_OPTIONAL | CYAML_FLAG_POINTER,
			       struct file, systemd_address, 1, 118),
	CYAML_FIELD_UINT_PTR("pipe_size", CYAML_FLAG_OPTIONAL | CYAML_FLAG_POINTER, struct file,
			     pipe_size),
	CYAML_FIELD_SEQUENCE("cdi_dirs", CYAML_FLAG_OPTIONAL | CYAML_FLAG_POINTER, struct file,
			     cdi_dirs, &dir_schema, 0, LIST_MAX),
	CYAML_FIELD_SEQUENCE("rlimits", CYAML_FLAG_OPTIONAL | CYAML_FLAG_POINTER, struct file,
			     rlimits, &rlimit_schema, 0, LIST_MAX),
	CYAML_FIELD_SEQUENCE("handlers", CYAML_FLAG_OPTIONAL | CYAML_FLAG_POINTER, struct file,
			     handlers, &handler_schema, 0, LIST_MAX),
	CYAML_FIELD_END,
};

static const cyaml_schema_value_t file_schema = {
	CYAML_VALUE_MAPPING(CYAML_FLAG_POINTER, struct file, file_fields),
};

/* libcyaml tells what is wrong through its log only; the first line names it. */
static void keep_line(cyaml_log_t level, void *context, const char *format, va_list args)
{
	char line[256];
	struct buf *text = context;

	if (text->length)
		return;
	vsnprintf(line, sizeof(line), format, args);
	buf_append(text, line, strcspn(line, "\n"));
}

/* The line of the key that the problem names, since libcyaml's own position is that of what came
 * before; 0 when it names none. */
static int line_of_key(const char *path, const char *problem)
{
	struct buf text CLEANUP(buf_done) = {0};
	const char *key = strstr(problem, "key: ");
	size_t n;
	int line = 1;

	if (!key || fs_read_file(path, 1 << 20, &text, NULL) < 0 || !text.data)
		return 0;
	key += strlen("key: ");
	n = strlen(key);
	for (const char *p = text.data; p; p = strchr(p, '\n'), line++) {
		p += *p == '\n';
		if (!strncmp(p + strspn(p, " \t\"'"), key, n))
			return line;
	}
	return 0;
}

static int refuse_file(const char *path, cyaml_err_t why, const struct buf *problem,
		       struct error *err)
{
	int line = problem->length ? line_of_key(path, problem->data) : 0;
	char where[32] = "";

	if (line)
		snprintf(where, sizeof(where), " line %d", line);
	return error_set(err, ERR_INVALID, "configuration %s%s: %s%s%s", path, where,
			 cyaml_strerror(why), problem->length ? ": " : "",
			 problem->length ? problem->data : "");
}

static void take(char **to, char **from)
{
	if (*to || !*from)
		return;
	*to = xstrdup(*from);
}

static const cyaml_config_t file_config = {
	.mem_fn = cyaml_mem,
	.log_level = CYAML_LOG_WARNING,
};

static int read_file(const char *path, struct config *config, struct error *err)
{
	struct buf problem CLEANUP(buf_done) = {0};
	cyaml_config_t how = file_config;
	struct file *file = NULL;
	cyaml_err_t r;

	how.log_fn = keep_line;
	how.log_ctx = &problem;
	r = cyaml_load_file(path, &how, &file_schema, (cyaml_data_t **)&file, NULL);
	if (r != CYAML_OK)
		return refuse_file(path, r, &problem, err);
	take(&config->root, &file->root);
	take(&config->state, &file->state);
	take(&config->listen, &file->listen);
	take(&config->log_level, &file->log_level);
	take(&config->log_full, &file->log_full);
	take(&config->cgroup_driver, &file->cgroup_driver);
	take(&config->systemd_address, &file->systemd_address);
	if (!config->pipe_size && file->pipe_size)
		config->pipe_size = *file->pipe_size;
	config->cdi_dirs = file->cdi_dirs;
	config->cdi_dirs_count = file->cdi_dirs_count;
	config->rlimits = file->rlimits;
	config->rlimits_count = file->rlimits_count;
	config->handlers = file->handlers;
	config->handlers_count = file->handlers_count;
	config->file = file;
	return 0;
}

enum option_id {
	OPTION_ROOT,
	OPTION_STATE,
	OPTION_LISTEN,
	OPTION_CONFIG,
	OPTION_LOG_LEVEL,
	OPTION_LOG_FULL,
	OPTION_CGROUP_DRIVER,
	OPTION_SYSTEMD_ADDRESS,
	OPTION_PIPE_SIZE,
	OPTION_KEEP,
	OPTION_RESTART_DELAY,
	OPTION_VERSION,
	OPTION_HELP,
};

static const struct option options[] = {
	{"root", required_argument, NULL, OPTION_ROOT},
	{"state", required_argument, NULL, OPTION_STATE},
	{"listen", required_argument, NULL, OPTION_LISTEN},
	{"config", required_argument, NULL, OPTION_CONFIG},
	{"log-level", required_argument, NULL, OPTION_LOG_LEVEL},
	{"log-full", required_argument, NULL, OPTION_LOG_FULL},
	{"cgroup-driver", required_argument, NULL, OPTION_CGROUP_DRIVER},
	{"systemd-address", required_argument, NULL, OPTION_SYSTEMD_ADDRESS},
	{"pipe-size", required_argument, NULL, OPTION_PIPE_SIZE},
	{"keep", no_argument, NULL, OPTION_KEEP},
	{"restart-delay", required_argument, NULL, OPTION_RESTART_DELAY},
	{"version", no_argument, NULL, OPTION_VERSION},
	{"help", no_argument, NULL, OPTION_HELP},
	{0},
};

const char *config_usage(void)
{
	return "usage: crispd [options]\n"
	       "  --root DIR           durable data (/var/lib/crisp)\n"
	       "  --state DIR          run-time data (/run/crisp)\n"
	       "  --listen SOCKET      CRI socket (STATE/crisp.sock)\n"
	       "  --config FILE        YAML with the keys root, state, listen, log_level, "
	       "log_full, "
	       "pipe_size,\n"
	       "                       cgroup_driver, systemd_address, cdi_dirs, rlimits, "
	       "handlers\n"
	       "  --log-level LEVEL    debug, info (default), warning, error\n"
	       "  --log-full drop|block  what a container's output does when its log can't be "
	       "written:\n"
	       "                       the oldest is dropped and counted (default), or the "
	       "container waits\n"
	       "  --cgroup-driver cgroupfs|systemd|auto  who makes the cgroups of pods: crispd, or "
	       "systemd;\n"
	       "                       auto (default): systemd where it has booted the node\n"
	       "  --systemd-address ADDRESS  where it listens (unix:path=/run/systemd/private)\n"
	       "  --pipe-size BYTES    what a container can write while the server is away "
	       "(262144)\n"
	       "  --keep               run under a keeper, which restarts the server and keeps "
	       "its\n"
	       "                       descriptors and the exit statuses of containers meanwhile;\n"
	       "                       systemd is that itself where it and the kernel can\n"
	       "  --restart-delay MS   of the keeper (at once, longer if the server dies young)\n"
	       "  --version, --help\n";
}

static int parse_number(const char *name, const char *s, uint32_t *ret, struct error *err)
{
	char *end;
	unsigned long value = strtoul(s, &end, 10);

	if (end == s || *end || *s == '-' || value > UINT32_MAX)
		return error_set(err, ERR_INVALID, "--%s %s: not a number of that range", name, s);
	*ret = (uint32_t)value;
	return 0;
}

static int parse_delay(const char *s, int *ret, struct error *err)
{
	uint32_t ms;

	TRY(parse_number("restart-delay", s, &ms, err));
	if (ms > 3600000)
		return error_set(err, ERR_INVALID, "--restart-delay %s: more than an hour", s);
	*ret = (int)ms;
	return 0;
}

static void set(char **field, const char *value)
{
	free(*field);
	*field = xstrdup(value);
}

static int apply(enum option_id id, struct config *config, const char **ret_file, struct error *err)
{
	switch (id) {
	case OPTION_ROOT:
		set(&config->root, optarg);
		break;
	case OPTION_STATE:
		set(&config->state, optarg);
		break;
	case OPTION_LISTEN:
		set(&config->listen, optarg);
		break;
	case OPTION_CONFIG:
		*ret_file = optarg;
		break;
	case OPTION_LOG_LEVEL:
		set(&config->log_level, optarg);
		break;
	case OPTION_LOG_FULL:
		set(&config->log_full, optarg);
		break;
	case OPTION_CGROUP_DRIVER:
		set(&config->cgroup_driver, optarg);
		break;
	case OPTION_SYSTEMD_ADDRESS:
		set(&config->systemd_address, optarg);
		break;
	case OPTION_PIPE_SIZE:
		return parse_number("pipe-size", optarg, &config->pipe_size, err);
	case OPTION_KEEP:
		config->is_kept = true;
		break;
	case OPTION_RESTART_DELAY:
		return parse_delay(optarg, &config->restart_delay_ms, err);
	case OPTION_VERSION:
		config->wants_version = true;
		break;
	case OPTION_HELP:
		config->wants_help = true;
		break;
	}
	return 0;
}

static int make_absolute(char **path, struct error *err)
{
	char *cwd, *absolute;

	if ((*path)[0] == '/')
		return 0;
	cwd = getcwd(NULL, 0);
	if (!cwd)
		return error_set(err, ERR_INVALID, "path %s: make it absolute", *path);
	absolute = xasprintf("%s/%s", cwd, *path);
	free(cwd);
	free(*path);
	*path = absolute;
	return 0;
}

static int check_rlimits(const char *where, const struct config_rlimit *limits, uint32_t count,
			 struct error *err)
{
	for (uint32_t i = 0; i < count; i++) {
		const struct config_rlimit *l = &limits[i];

		if (rlimit_find(l->name) < 0)
			return error_set(err, ERR_INVALID,
					 "%s rlimits: there is no %s; use a name such as nofile",
					 where, l->name);
		/* −1 is none, so more than any */
		if (l->soft < -1 || l->hard < -1 || (uint64_t)l->soft > (uint64_t)l->hard)
			return error_set(
				err, ERR_INVALID,
				"%s rlimits: %s is %lld, above its hard limit %lld; use -1 "
				"for none",
				where, l->name, (long long)l->soft, (long long)l->hard);
		for (uint32_t k = 0; k < i; k++)
			if (!strcmp(limits[k].name, l->name))
				return error_set(err, ERR_INVALID, "%s rlimits: %s is there twice",
						 where, l->name);
	}
	return 0;
}

/* As the names of the API's objects are. */
static bool is_handler_name(const char *name)
{
	for (const char *p = name; *p; p++)
		if (!islower((unsigned char)*p) && !isdigit((unsigned char)*p) &&
		    (!strchr("-.", *p) || p == name || !p[1]))
			return false;
	return true;
}

static int check_handlers(const struct config *config, struct error *err)
{
	for (uint32_t i = 0; i < config->handlers_count; i++) {
		const struct config_handler *h = &config->handlers[i];
		char where[128];

		snprintf(where, sizeof(where), "configuration handlers: %s", h->name);
		if (!is_handler_name(h->name))
			return error_set(err, ERR_INVALID,
					 "%s: a name has small letters, digits, - and . only",
					 where);
		if (!sandboxer_find(h->kind ? h->kind : "linux"))
			return error_set(err, ERR_INVALID, "%s: this build has no kind %s", where,
					 h->kind);
		for (uint32_t k = 0; k < i; k++)
			if (!strcmp(config->handlers[k].name, h->name))
				return error_set(err, ERR_INVALID, "%s: it is there twice", where);
		TRY(check_rlimits(where, h->rlimits, h->rlimits_count, err));
	}
	return 0;
}

static int complete(struct config *config, struct error *err)
{
	if (!config->root)
		config->root = xstrdup("/var/lib/crisp");
	if (!config->state)
		config->state = xstrdup("/run/crisp");
	TRY(make_absolute(&config->root, err));
	TRY(make_absolute(&config->state, err));
	if (!config->listen)
		config->listen = xasprintf("%s/crisp.sock", config->state);
	TRY(make_absolute(&config->listen, err));
	if (!config->log_level)
		config->log_level = xstrdup("info");
	if (log_level_parse(config->log_level) < 0)
		return error_set(err, ERR_INVALID,
				 "log level %s: must be debug, info, warning or error",
				 config->log_level);
	if (!config->log_full)
		config->log_full = xstrdup("drop");
	if (strcmp(config->log_full, "drop") && strcmp(config->log_full, "block"))
		return error_set(err, ERR_INVALID, "log full %s: must be drop or block",
				 config->log_full);
	if (!config->cgroup_driver)
		config->cgroup_driver = xstrdup("auto");
	if (strcmp(config->cgroup_driver, "cgroupfs") && strcmp(config->cgroup_driver, "systemd") &&
	    strcmp(config->cgroup_driver, "auto"))
		return error_set(err, ERR_INVALID,
				 "cgroup driver %s: must be cgroupfs, systemd or auto",
				 config->cgroup_driver);
	if (!config->pipe_size)
		config->pipe_size = 256 * 1024;
	if (config->pipe_size < 4096 || config->pipe_size > 1 << 20)
		return error_set(err, ERR_INVALID, "pipe size %u: must be 4096 to 1048576 bytes",
				 config->pipe_size);
	for (uint32_t i = 0; i < config->cdi_dirs_count; i++)
		if (config->cdi_dirs[i][0] != '/')
			return error_set(err, ERR_INVALID,
					 "configuration cdi_dirs: %s is not absolute",
					 config->cdi_dirs[i]);
	TRY(check_rlimits("configuration", config->rlimits, config->rlimits_count, err));
	return check_handlers(config, err);
}

int config_load(int argc, char **argv, struct config *config, struct error *err)
{
	const char *file = NULL;
	int id;

	config->restart_delay_ms = KEEPER_DELAY_AUTO;
	opterr = 0;
	optind = 1;
	while ((id = getopt_long(argc, argv, "", options, NULL)) >= 0) {
		if (id == '?')
			return error_set(err, ERR_INVALID,
					 "%s: unknown option or missing value; try --help",
					 argv[optind - 1]);
		TRY(apply((enum option_id)id, config, &file, err));
	}
	if (optind < argc)
		return error_set(err, ERR_INVALID, "%s: unexpected argument; try --help",
				 argv[optind]);
	if (file)
		TRY(read_file(file, config, err));
	return complete(config, err);
}

void config_done(struct config *config)
{
	free(config->root);
	free(config->state);
	free(config->listen);
	free(config->log_level);
	free(config->log_full);
	free(config->cgroup_driver);
	free(config->systemd_address);
	cyaml_free(&file_config, &file_schema, config->file, 0);
	*config = (struct config){0};
}
