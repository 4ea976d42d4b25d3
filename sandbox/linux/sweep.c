/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What is nobody's in the linux kind's places. Peculiar: another server on the node may use the
 * same cgroup parents, and its containers look like ours. So a cgroup counts as ours only if its id
 * is also that of a pin or of a directory, which no other server shares; removing a container takes
 * the cgroup first and those last, so none is missed.
 */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "io/base/alloc.h"
#include "io/base/buf.h"
#include "io/base/cleanup.h"
#include "io/base/log.h"
#include "io/fs.h"
#include "sandbox/linux/kind.h"
#include "sandbox/linux/units.h"

#define ID_LENGTH 64

struct linux_sweep {
	struct sweep *sweep;
	struct pins *pins;
	struct cgroups *cgroups;
	struct map pin_names, parents, groups; /* sets of strings */
	const char *parent;		       /* whose children are being looked at */
};

static void found(const struct linux_sweep *s, const char *what, const char *name)
{
	cleanup_free char *thing = xasprintf("%s %s", what, name);

	s->sweep->found(s->sweep->data, thing);
}

static void look_at_pin(void *data, const char *name)
{
	static const char *const suffixes[] = {".net", ".ipc", ".user", ".shm", ".init", ".pid"};
	struct linux_sweep *s = data;
	char id[ID_LENGTH + 1] = "";
	bool is_ours = false;

	if (strlen(name) <= ID_LENGTH)
		return;
	memcpy(id, name, ID_LENGTH);
	for (size_t i = 0; i < sizeof(suffixes) / sizeof(suffixes[0]); i++)
		is_ours |= !strcmp(name + ID_LENGTH, suffixes[i]);
	if (!is_ours || s->sweep->is_known(s->sweep->data, id))
		return;
	map_put(&s->pin_names, name, s);
	map_put(&s->sweep->ids, id, s);
}

static void add_parent(void *data, const char *parent)
{
	cleanup_free char *path = NULL;

	if (unit_parent_path(parent, &path, NULL) == 0)
		map_put(&((struct linux_sweep *)data)->parents, path, data);
}

/* Of a process, by its descriptor; 0 when it is gone. */
static pid_t pid_of(int pidfd)
{
	char path[48];
	struct buf text CLEANUP(buf_done) = {0};
	const char *at;

	snprintf(path, sizeof(path), "/proc/self/fdinfo/%d", pidfd);
	if (fs_read_file(path, 4096, &text, NULL) < 0 || !text.data)
		return 0;
	at = strstr(text.data, "Pid:");
	return at ? (pid_t)strtol(at + 4, NULL, 10) : 0;
}

/* Where a container runs whose pod, which has a parent of its own, nobody knows: lines of
 * "number:controllers:path" (cgroups(7)). */
static int add_parent_of(struct task *t, struct linux_sweep *s, const char *pin)
{
	struct buf text CLEANUP(buf_done) = {0};
	cleanup_close int fd = -1;
	char path[48], id[ID_LENGTH + 1], *line, *rest;
	int r = pins_get(t, s->pins, pin, &fd);

	if (r < 0)
		return r == -ERR_NOT_FOUND ? 0 : r;
	snprintf(path, sizeof(path), "/proc/%d/cgroup", pid_of(fd));
	if (fs_read_file(path, 65536, &text, NULL) < 0)
		return 0;
	for (rest = text.data; (line = strsep(&rest, "\n"));) {
		char *last = strrchr(line, '/'), *first = strchr(line, '/');

		if (!last || last == first || !unit_id(last + 1, id, ID_LENGTH) ||
		    strncmp(id, pin, ID_LENGTH))
			continue;
		*last = 0;
		add_parent(s, first);
	}
	return 0;
}

static bool is_pid(const char *pin)
{
	return !strcmp(pin + ID_LENGTH, ".pid");
}

/* A pod that has limits has its containers in a group of its own. */
static void add_pod(void *data, const char *name)
{
	const struct linux_sweep *s = data;
	cleanup_free char *path = xasprintf("%s/%s", s->parent, name);
	char id[ID_LENGTH + 1];

	if (unit_id(name, id, ID_LENGTH))
		add_parent(data, path);
}

/* Those of the other driver, too: it may have been changed. */
static int add_pods(struct task *t, struct linux_sweep *s, const char *parent)
{
	add_parent(s, parent);
	s->parent = parent;
	return cgroup_children(t, s->cgroups, parent, add_pod, s);
}

static int find_parents(struct task *t, struct linux_sweep *s)
{
	TRY(add_pods(t, s, DEFAULT_PARENT));
	TRY(add_pods(t, s, "/" UNIT_DEFAULT_SLICE));
	s->sweep->each_parent(s->sweep->data, add_parent, s);
	map_for_each(slot, &s->pin_names) {
		if (is_pid(slot->key))
			TRY(add_parent_of(t, s, slot->key));
	}
	return 0;
}

static void look_at_group(void *data, const char *name)
{
	struct linux_sweep *s = data;
	cleanup_free char *path = NULL;
	char id[ID_LENGTH + 1];

	if (!unit_id(name, id, ID_LENGTH) || !map_get(&s->sweep->ids, id))
		return;
	path = xasprintf("%s/%s", s->parent, name);
	map_put(&s->groups, path, s);
}

/* What can't be removed doesn't keep the rest. */
static int note(struct task *t, const char *what, const char *name, int r)
{
	if (r < 0)
		log_error("%s %s is nobody's, but stays: %s", what, name, t->err.text);
	return r;
}

static int sweep_group(struct task *t, const struct linux_sweep *s, const char *path)
{
	found(s, "cgroup", path);
	if (s->sweep->is_dry)
		return 0;
	TRY(cgroup_kill(t, s->cgroups, path));
	return group_remove(t, s->cgroups, path);
}

static int sweep_groups(struct task *t, struct linux_sweep *s)
{
	int result = 0;

	map_for_each(slot, &s->parents) {
		s->parent = slot->key;
		TRY(cgroup_children(t, s->cgroups, slot->key, look_at_group, s));
	}
	map_for_each(slot, &s->groups) {
		int r = note(t, "cgroup", slot->key, sweep_group(t, s, slot->key));

		result = r < 0 ? r : result;
	}
	return result;
}

/* A PID 1 is in no cgroup of ours, nor is a container in one whose pod nobody knows. Its end is not
 * waited for: it needs others to reap what is in the same pid namespace. */
static int end_process(struct task *t, const struct linux_sweep *s, const char *name)
{
	cleanup_close int fd = -1;
	int r = pins_get(t, s->pins, name, &fd);

	if (r < 0)
		return r == -ERR_NOT_FOUND ? 0 : r;
	return process_signal(fd, SIGKILL, &t->err);
}

static int sweep_pin(struct task *t, const struct linux_sweep *s, const char *name)
{
	found(s, "pin", name);
	if (s->sweep->is_dry)
		return 0;
	if (is_pid(name) || !strcmp(name + ID_LENGTH, ".init"))
		TRY(end_process(t, s, name));
	return pins_drop(t, s->pins, name);
}

static int sweep_pins(struct task *t, const struct linux_sweep *s)
{
	int result = 0;

	map_for_each(slot, &s->pin_names) {
		int r = note(t, "pin", slot->key, sweep_pin(t, s, slot->key));

		result = r < 0 ? r : result;
	}
	return result;
}

static int sweep_all(struct task *t, struct linux_sweep *s)
{
	int r = 0;

	if (s->pins)
		TRY(pins_each(t, s->pins, look_at_pin, s));
	if (s->sweep->ids.count) {
		TRY(find_parents(t, s));
		r = sweep_groups(t, s);
	}
	/* a pin tells that its cgroup is ours */
	return r < 0 ? r : sweep_pins(t, s);
}

int linux_sweep(struct task *t, const struct sandboxer_env *env, struct sweep *sweep)
{
	struct linux_sweep s = {.sweep = sweep, .pins = env->pins, .cgroups = kind.cgroups};
	int r;

	if (!s.cgroups && !(s.cgroups = cgroups_probe(&t->err)))
		return -(int)t->err.code;
	r = sweep_all(t, &s);
	if (s.cgroups != kind.cgroups)
		cgroups_free(s.cgroups);
	map_done(&s.pin_names);
	map_done(&s.parents);
	map_done(&s.groups);
	return r;
}
