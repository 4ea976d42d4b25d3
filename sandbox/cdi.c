/* SPDX-License-Identifier: Apache-2.0 */
/* Which files there are, and what the names of devices mean by them. */
#include "sandbox/cdi_priv.h"

#include <dirent.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "io/base/alloc.h"
#include "io/base/cleanup.h"
#include "io/fs.h"

/* A file that can be used. */
struct cdi_file {
	char *path;
	json_t *document;
	bool is_used; /* its own edits are in */
};

struct directory {
	struct cdi_file *files;
	size_t count;
};

struct registry {
	struct directory *directories;
	size_t count, bad_count;
	char *first_problem;
	void (*report)(void *data, const char *problem);
	void *data;
};

static void registry_done(struct registry *r)
{
	for (size_t i = 0; i < r->count; i++) {
		for (size_t k = 0; k < r->directories[i].count; k++) {
			free(r->directories[i].files[k].path);
			json_decref(r->directories[i].files[k].document);
		}
		free(r->directories[i].files);
	}
	free(r->directories);
	free(r->first_problem);
}

static void note_problem(struct registry *r, const char *path, const struct error *err)
{
	char *text cleanup_free = xasprintf("CDI specification %s: %s", path, err->text);

	if (r->report)
		r->report(r->data, text);
	if (!r->bad_count++)
		r->first_problem = xstrdup(text);
}

static bool has_suffix(const char *name, const char *suffix)
{
	size_t n = strlen(name), m = strlen(suffix);

	return n > m && !strcmp(name + n - m, suffix);
}

static int parse_file(const char *path, json_t **ret, struct error *err)
{
	struct buf text CLEANUP(buf_done) = {0};
	json_t *document cleanup_json = NULL;

	TRY(fs_read_file(path, CDI_FILE_MAX, &text, err));
	if (has_suffix(path, ".json"))
		TRY(json_parse(text.data ?: "", text.length, &document, err));
	else
		TRY(cdi_yaml_parse(text.data ?: "", text.length, &document, err));
	TRY(cdi_check_document(document, err));
	*ret = json_incref(document);
	return 0;
}

static void load_file(struct registry *r, struct directory *d, const char *dir, const char *name)
{
	char *path = xasprintf("%s/%s", dir, name);
	struct error err = {0};
	json_t *document = NULL;

	if (d->count >= CDI_FILES_MAX)
		error_set(&err, ERR_EXHAUSTED, "more than %d files are in its directory",
			  CDI_FILES_MAX);
	else if (parse_file(path, &document, &err) == 0) {
		d->files = xrealloc(d->files, (d->count + 1) * sizeof(*d->files));
		d->files[d->count++] = (struct cdi_file){path, document, false};
		return;
	}
	note_problem(r, path, &err);
	free(path);
}

static void load_directory(struct registry *r, const char *dir)
{
	struct directory *d = &r->directories[r->count++];
	cleanup_closedir DIR *entries = opendir(dir);
	struct error err = {0};
	struct dirent *e;

	*d = (struct directory){0};
	if (!entries && errno != ENOENT) {
		error_set(&err, ERR_INTERNAL, "%s", strerrordesc_np(errno));
		note_problem(r, dir, &err);
	}
	while (entries && (e = readdir(entries)))
		if (has_suffix(e->d_name, ".json") || has_suffix(e->d_name, ".yaml"))
			load_file(r, d, dir, e->d_name);
}

static const json_t *find_in_file(const struct cdi_file *f, const char *name)
{
	const char *kind = json_string_value(json_object_get(f->document, "kind"));
	size_t n = strlen(kind), i;
	const json_t *device;

	if (strncmp(name, kind, n) != 0 || name[n] != '=')
		return NULL;
	json_array_foreach(json_object_get(f->document, "devices"), i,
			   device) if (!strcmp(json_string_value(json_object_get(device, "name")),
					       name + n + 1)) return device;
	return NULL;
}

static int find_device(const struct registry *r, const char *name, struct cdi_file **ret_file,
		       const json_t **ret_device, struct error *err)
{
	*ret_file = NULL;
	for (size_t i = r->count; i > 0 && !*ret_file; i--) {
		const struct directory *d = &r->directories[i - 1];

		for (size_t k = 0; k < d->count; k++) {
			const json_t *found = find_in_file(&d->files[k], name);

			if (found && *ret_file)
				return error_set(
					err, ERR_INVALID,
					"CDI device %.200s: both %s and %s have it; remove "
					"it from one",
					name, (*ret_file)->path, d->files[k].path);
			if (!found)
				continue;
			*ret_file = &d->files[k];
			*ret_device = found;
		}
	}
	if (*ret_file)
		return 0;
	if (r->bad_count)
		return error_set(err, ERR_INVALID,
				 "CDI device %.200s: no usable specification has it; %zu can't be "
				 "used, the first: %s",
				 name, r->bad_count, r->first_problem);
	return error_set(err, ERR_INVALID,
			 "CDI device %.200s: no specification on this node has it", name);
}

/* What no kind does. Leaving it out would give a container that is not what its device needs. */
static int check_can_do(const json_t *edits, const char *name, const struct cdi_file *f,
			struct error *err)
{
	static const char *const cant[] = {"hooks", "intelRdt", "netDevices"};
	const json_t *item;
	size_t i;

	for (i = 0; i < sizeof(cant) / sizeof(cant[0]); i++) {
		const json_t *value = json_object_get(edits, cant[i]);

		if (json_array_size(value) || json_object_size(value))
			return error_set(err, ERR_UNIMPLEMENTED,
					 "CDI device %.200s: %s asks for containerEdits.%s, which "
					 "crisp can't do; use a specification without it",
					 name, f->path, cant[i]);
	}
	json_array_foreach(json_object_get(edits, "deviceNodes"), i, item)
	{
		const char *type = json_string_value(json_object_get(item, "type"));

		if (type && *type == 'p')
			return error_set(
				err, ERR_UNIMPLEMENTED,
				"CDI device %.200s: %s asks for containerEdits.deviceNodes "
				"of type p, which crisp can't make",
				name, f->path);
	}
	return 0;
}

static int add_edits(json_t *all, const json_t *edits, const char *name, const struct cdi_file *f,
		     struct error *err)
{
	const char *key;
	json_t *value;

	TRY(check_can_do(edits, name, f, err));
	json_object_foreach((json_t *)edits, key, value)
	{
		json_t *list = json_object_get(all, key);

		if (!json_is_array(value))
			continue;
		if (!list) {
			list = json_array();
			json_object_set_new(all, key, list);
		}
		json_array_extend(list, value);
	}
	return 0;
}

static int add_device(const struct registry *r, const char *name, json_t *all, struct error *err)
{
	const json_t *device = NULL;
	struct cdi_file *f;

	TRY(find_device(r, name, &f, &device, err));
	if (!f->is_used)
		TRY(add_edits(all, json_object_get(f->document, "containerEdits"), name, f, err));
	f->is_used = true;
	return add_edits(all, json_object_get(device, "containerEdits"), name, f, err);
}

static bool is_repeated(const struct string_list *names, size_t at)
{
	for (size_t i = 0; i < at; i++)
		if (!strcmp(names->items[i], names->items[at]))
			return true;
	return false;
}

int cdi_resolve(const struct string_list *dirs, const struct string_list *names,
		void (*report)(void *data, const char *problem), void *data, struct buf *ret,
		struct error *err)
{
	struct registry r CLEANUP(registry_done) = {.report = report, .data = data};
	json_t *all cleanup_json = json_object();
	char *text cleanup_free = NULL;

	r.directories = xcalloc(dirs->count + 1, sizeof(*r.directories));
	for (size_t i = 0; i < dirs->count; i++)
		load_directory(&r, dirs->items[i]);
	for (size_t i = 0; i < names->count; i++)
		if (!is_repeated(names, i))
			TRY(add_device(&r, names->items[i], all, err));
	text = json_dumps(all, JSON_COMPACT | JSON_SORT_KEYS);
	if (!text || strlen(text) > CDI_EDITS_MAX)
		return error_set(err, ERR_EXHAUSTED,
				 "CDI devices: their edits are more than %u bytes", CDI_EDITS_MAX);
	buf_puts(ret, text);
	return 0;
}
