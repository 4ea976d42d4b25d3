/* SPDX-License-Identifier: Apache-2.0 */
/* Command line and configuration file. Peculiar: both are tables, and the file is read by libcyaml
 * against a schema, whose log tells line and key of what it refuses. */
#include "cri/config.h"

#include <cyaml/cyaml.h>
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

struct file {
	char *root, *state, *listen, *log_level, *log_full;
	uint32_t *pipe_size;
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
	CYAML_FIELD_UINT_PTR("pipe_size", CYAML_FLAG_OPTIONAL | CYAML_FLAG_POINTER, struct file,
			     pipe_size),
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

static int read_file(const char *path, struct config *config, struct error *err)
{
	struct buf problem CLEANUP(buf_done) = {0};
	cyaml_config_t how = {
		.log_fn = keep_line,
		.log_ctx = &problem,
		.mem_fn = cyaml_mem,
		.log_level = CYAML_LOG_WARNING,
	};
	struct file *file = NULL;
	cyaml_err_t r = cyaml_load_file(path, &how, &file_schema, (cyaml_data_t **)&file, NULL);

	if (r != CYAML_OK)
		return refuse_file(path, r, &problem, err);
	take(&config->root, &file->root);
	take(&config->state, &file->state);
	take(&config->listen, &file->listen);
	take(&config->log_level, &file->log_level);
	take(&config->log_full, &file->log_full);
	if (!config->pipe_size && file->pipe_size)
		config->pipe_size = *file->pipe_size;
	cyaml_free(&how, &file_schema, file, 0);
	return 0;
}

enum option_id {
	OPTION_ROOT,
	OPTION_STATE,
	OPTION_LISTEN,
	OPTION_CONFIG,
	OPTION_LOG_LEVEL,
	OPTION_LOG_FULL,
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
	       "pipe_size\n"
	       "  --log-level LEVEL    debug, info (default), warning, error\n"
	       "  --log-full drop|block  what a container's output does when its log can't be "
	       "written:\n"
	       "                       the oldest is dropped and counted (default), or the "
	       "container waits\n"
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
	if (!config->pipe_size)
		config->pipe_size = 256 * 1024;
	if (config->pipe_size < 4096 || config->pipe_size > 1 << 20)
		return error_set(err, ERR_INVALID, "pipe size %u: must be 4096 to 1048576 bytes",
				 config->pipe_size);
	return 0;
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
	*config = (struct config){0};
}
