/* SPDX-License-Identifier: Apache-2.0 */
/* Which CDI devices a container asks for. The annotations are those of device plugins that are
 * older than the field; kubelets may send both. */
#include "cri/translate_priv.h"

#include <string.h>

#include "sandbox/cdi.h"

#define ANNOTATION "cdi.k8s.io/"
#define DEVICES_MAX 1024

static bool is_ours(const char *key)
{
	return !strncmp(key, ANNOTATION, strlen(ANNOTATION));
}

static int add(struct string_list *list, const char *what, const char *name, struct error *err)
{
	TRY(cdi_check_name(what, name, err));
	if (list->count >= DEVICES_MAX)
		return error_set(err, ERR_INVALID, "%s: more than %d CDI devices", what,
				 DEVICES_MAX);
	list->items[list->count++] = name;
	return 0;
}

static int add_annotated(struct arena *arena, const char *value, struct string_list *list,
			 struct error *err)
{
	char *next = arena_strdup(arena, value), *name;

	while ((name = strsep(&next, ",")))
		TRY(add(list, "config.annotations " ANNOTATION, name, err));
	return 0;
}

int translate_cdi_devices(struct arena *arena, const ContainerConfig *config,
			  struct string_list *ret, struct error *err)
{
	bool has_any = config->n_cdi_devices;

	*ret = (struct string_list){0};
	for (size_t i = 0; i < config->n_annotations; i++)
		has_any |= is_ours(config->annotations[i]->key);
	if (!has_any)
		return 0;
	ret->items = arena_new_array(arena, const char *, DEVICES_MAX);
	for (size_t i = 0; i < config->n_cdi_devices; i++)
		TRY(add(ret, "config.CDI_devices", config->cdi_devices[i]->name, err));
	for (size_t i = 0; i < config->n_annotations; i++)
		if (is_ours(config->annotations[i]->key))
			TRY(add_annotated(arena, config->annotations[i]->value, ret, err));
	return 0;
}
