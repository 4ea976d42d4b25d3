/* SPDX-License-Identifier: Apache-2.0 */
/* The list of sysctls that a namespace of the pod's own confines. */
#include "sandbox/linux/sysctl.h"

#include <string.h>

#include "io/base/alloc.h"

#define NAME_MAX_LENGTH 255
#define VALUE_MAX_LENGTH 4096

enum scope { SCOPE_NODE, SCOPE_IPC, SCOPE_NET };

static const struct {
	const char *name;
	bool is_prefix;
	enum scope scope;
} known[] = {
	{"kernel.shmmax", false, SCOPE_IPC},
	{"kernel.shmall", false, SCOPE_IPC},
	{"kernel.shmmni", false, SCOPE_IPC},
	{"kernel.shm_rmid_forced", false, SCOPE_IPC},
	{"kernel.shm_next_id", false, SCOPE_IPC},
	{"kernel.msgmax", false, SCOPE_IPC},
	{"kernel.msgmnb", false, SCOPE_IPC},
	{"kernel.msgmni", false, SCOPE_IPC},
	{"kernel.msg_next_id", false, SCOPE_IPC},
	{"kernel.sem", false, SCOPE_IPC},
	{"kernel.sem_next_id", false, SCOPE_IPC},
	{"fs.mqueue.", true, SCOPE_IPC},
	{"net.", true, SCOPE_NET},
};

static enum scope scope_of(const char *name)
{
	for (size_t i = 0; i < sizeof(known) / sizeof(known[0]); i++) {
		size_t n = strlen(known[i].name);

		if (known[i].is_prefix ? strncmp(name, known[i].name, n) == 0
				       : strcmp(name, known[i].name) == 0)
			return known[i].scope;
	}
	return SCOPE_NODE;
}

static bool is_name_char(char c)
{
	return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
	       c == '_' || c == '-' || c == '.';
}

static bool is_name(const char *name)
{
	size_t n = strlen(name);

	if (!n || n > NAME_MAX_LENGTH || name[0] == '.' || name[n - 1] == '.')
		return false;
	for (size_t i = 0; i < n; i++)
		if (!is_name_char(name[i]) || (name[i] == '.' && name[i + 1] == '.'))
			return false;
	return true;
}

/* Numbers, ranges, lists, names, addresses; the tab is what the kernel itself prints between
 * numbers. It may pass over what else stands behind a number. */
static bool is_value_char(char c)
{
	return is_name_char(c) || (c && strchr(" \t,:/", c));
}

static bool is_value(const char *value)
{
	size_t n = strlen(value);

	if (!n || n > VALUE_MAX_LENGTH)
		return false;
	for (size_t i = 0; i < n; i++)
		if (!is_value_char(value[i]))
			return false;
	return true;
}

static int check_one(const struct sandbox_spec *spec, const struct key_value *kv, struct error *err)
{
	enum scope scope;

	if (!is_name(kv->key))
		return error_set(
			err, ERR_INVALID,
			"sysctl \"%.64s\": not a name; use letters, digits and single dots",
			kv->key);
	if (!kv->value || !is_value(kv->value))
		return error_set(
			err, ERR_INVALID,
			"sysctl %s: its value is empty, too long or has characters that none has",
			kv->key);
	scope = scope_of(kv->key);
	if (scope == SCOPE_NODE)
		return error_set(
			err, ERR_INVALID,
			"sysctl %s: no namespace confines it, so it would change the node; "
			"set it on the node itself",
			kv->key);
	if (scope == SCOPE_IPC && spec->ipc == NS_NODE)
		return error_set(
			err, ERR_INVALID,
			"sysctl %s: the pod uses the node's IPC namespace; do without hostIPC",
			kv->key);
	if (scope == SCOPE_NET && spec->net == NS_NODE)
		return error_set(
			err, ERR_INVALID,
			"sysctl %s: the pod uses the node's network; do without hostNetwork",
			kv->key);
	return 0;
}

int sysctl_check(const struct sandbox_spec *spec, struct error *err)
{
	for (size_t i = 0; i < spec->sysctls.count; i++)
		TRY(check_one(spec, &spec->sysctls.items[i], err));
	return 0;
}

char *sysctl_path(const char *name)
{
	char *path = xasprintf("sys/%s", name);

	for (char *p = path; *p; p++)
		if (*p == '.')
			*p = '/';
	return path;
}
