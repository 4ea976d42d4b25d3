/* SPDX-License-Identifier: Apache-2.0 */
/* Names and limits in systemd's terms. Peculiar: limits are taken from what would be written to
 * files, so that a limit of the `unified` map and one of its own field are the same here. */
#include "sandbox/linux/units.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "io/base/alloc.h"
#include "io/base/buf.h"
#include "io/base/cleanup.h"

#define SLICE ".slice"
#define SCOPE ".scope"
#define UNIT_NAME_MAX 255

/* systemd rounds to whole percents of a processor, and must not give less than was asked for. */
#define QUOTA_STEP_US 10000
#define PERIOD_DEFAULT_US 100000
#define SECOND_US 1000000

static bool ends_with(const char *s, const char *end)
{
	size_t n = strlen(s), m = strlen(end);

	return n > m && strcmp(s + n - m, end) == 0;
}

bool unit_is_slice(const char *path)
{
	return ends_with(path, SLICE) || strstr(path, SLICE ":") || strstr(path, SLICE "/");
}

const char *unit_of(const char *path)
{
	const char *last = strrchr(path, '/');

	last = last ? last + 1 : path;
	return ends_with(last, SCOPE) || ends_with(last, SLICE) ? last : NULL;
}

char *unit_slice_of(const char *path)
{
	const char *last = strrchr(path, '/'), *from = last;

	if (!last || last == path)
		return NULL;
	while (from > path && from[-1] != '/')
		from--;
	return xasprintf("%.*s", (int)(last - from), from);
}

bool unit_id(const char *name, char *ret_id, size_t length)
{
	size_t n = strlen(name), prefix = strlen(UNIT_PREFIX);

	if (n == length) {
		memcpy(ret_id, name, length + 1);
		return true;
	}
	if (n != prefix + length + strlen(SCOPE) || strncmp(name, UNIT_PREFIX, prefix) != 0 ||
	    (!ends_with(name, SCOPE) && !ends_with(name, SLICE)))
		return false;
	memcpy(ret_id, name + prefix, length);
	ret_id[length] = '\0';
	return true;
}

/* systemd.unit(5); a dash separates a slice from those that hold it, so none is empty. */
static bool is_slice_name(const char *name)
{
	size_t n = strlen(name) - strlen(SLICE);

	if (strlen(name) > UNIT_NAME_MAX || name[0] == '-' || name[n - 1] == '-')
		return false;
	for (size_t i = 0; i < n; i++)
		if (!strchr("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789:_.\\@-",
			    name[i]) ||
		    (name[i] == '-' && name[i + 1] == '-'))
			return false;
	return true;
}

static char *expand(const char *name)
{
	size_t n = strlen(name) - strlen(SLICE);
	struct buf path = {0};

	for (size_t i = 1; i <= n; i++)
		if (i == n || name[i] == '-')
			buf_printf(&path, "/%.*s" SLICE, (int)i, name);
	return buf_take(&path);
}

int unit_parent_path(const char *parent, char **ret, struct error *err)
{
	const char *name = unit_of(parent);
	cleanup_free char *path = NULL;

	if (!unit_is_slice(parent)) {
		TRY(cgroup_path_check(parent, err));
		*ret = xstrdup(parent);
		return 0;
	}
	if (!name || !ends_with(name, SLICE) || !is_slice_name(name))
		return error_set(err, ERR_INVALID,
				 "config.linux.cgroup_parent \"%.200s\": not a slice such as "
				 "kubepods-podX.slice",
				 parent);
	path = expand(name);
	if (name != parent && strcmp(parent, path) != 0 && strcmp(parent, path + 1) != 0)
		return error_set(err, ERR_INVALID,
				 "config.linux.cgroup_parent \"%.200s\": the place of slice %s is "
				 "%s; name the slice alone",
				 parent, name, path);
	TRY(cgroup_path_check(path, err));
	*ret = take_ptr(path);
	return 0;
}

int unit_check_style(const char *parent, bool is_systemd, struct error *err)
{
	if (unit_is_slice(parent) && !is_systemd)
		return error_set(
			err, ERR_INVALID,
			"config.linux.cgroup_parent \"%.200s\": this is systemd's notation, but "
			"the cgroup driver here is cgroupfs; set cgroupDriver: cgroupfs in the "
			"kubelet's configuration, or cgroup_driver: systemd in crispd's",
			parent);
	if (!unit_is_slice(parent) && is_systemd)
		return error_set(
			err, ERR_INVALID,
			"config.linux.cgroup_parent \"%.200s\": this is not a slice, but the "
			"cgroup driver here is systemd; set cgroupDriver: systemd in the kubelet's "
			"configuration, or cgroup_driver: cgroupfs in crispd's",
			parent);
	return 0;
}

/* Files whose value is a number or a word for "no limit". */
static const struct {
	const char *file, *property;
	uint64_t least;
} plain[] = {
	{"cpu.weight", "CPUWeight", 1},	  {"cpu.shares", "CPUShares", 2},
	{"memory.max", "MemoryMax", 1},	  {"memory.limit_in_bytes", "MemoryMax", 1},
	{"memory.high", "MemoryHigh", 1}, {"memory.low", "MemoryLow", 0},
	{"memory.min", "MemoryMin", 0},	  {"memory.swap.max", "MemorySwapMax", 0},
	{"pids.max", "TasksMax", 1},
};

/* "max" and "-1" are UINT64_MAX. False for what is no number: the kernel will say so. */
static bool parse(const char *text, uint64_t *ret)
{
	char *end;

	if (!strcmp(text, "max") || !strcmp(text, "-1")) {
		*ret = UINT64_MAX;
		return true;
	}
	*ret = strtoull(text, &end, 10);
	return end != text && !*end && *text != '-';
}

static void add_number(struct unit_properties *ret, const char *name, uint64_t value)
{
	unit_property_add(ret, name, PROPERTY_NUMBER)->number = value;
}

static void add_plain(const struct setting *s, struct unit_properties *ret)
{
	uint64_t value;

	for (size_t i = 0; i < sizeof(plain) / sizeof(plain[0]); i++)
		if (!strcmp(plain[i].file, s->file) && parse(s->value, &value) &&
		    value >= plain[i].least)
			add_number(ret, plain[i].property, value);
}

static const struct setting *find(const struct setting_list *list, const char *file)
{
	for (size_t i = 0; i < list->count; i++)
		if (!strcmp(list->items[i].file, file))
			return &list->items[i];
	return NULL;
}

/* Quota and period as cpu.max has them, "Q", "Q P", or with v1's two files; 0: not given. */
static void read_bandwidth(const struct setting_list *list, uint64_t *quota, uint64_t *period)
{
	const struct setting *both = find(list, "cpu.max");
	const struct setting *q = find(list, "cpu.cfs_quota_us");
	const struct setting *p = find(list, "cpu.cfs_period_us");
	char first[32] = "", second[32] = "";

	if (both && both->kind == SETTING_MAX_PERIOD)
		snprintf(second, sizeof(second), "%s", both->value);
	else if (both && sscanf(both->value, "%31s %31s", first, second) < 1)
		return;
	if (q)
		snprintf(first, sizeof(first), "%s", q->value);
	if (p)
		snprintf(second, sizeof(second), "%s", p->value);
	if (!parse(first, quota))
		*quota = 0;
	if (!parse(second, period) || *period == UINT64_MAX)
		*period = 0;
}

static void add_bandwidth(const struct setting_list *list, struct unit_properties *ret)
{
	uint64_t quota = 0, period = 0, per_second;

	read_bandwidth(list, &quota, &period);
	if (period)
		add_number(ret, "CPUQuotaPeriodUSec", period);
	if (quota == UINT64_MAX)
		add_number(ret, "CPUQuotaPerSecUSec", UINT64_MAX);
	else if (quota && quota < UINT64_MAX / SECOND_US - 1) {
		per_second = quota * SECOND_US / (period ?: PERIOD_DEFAULT_US);
		per_second = (per_second + QUOTA_STEP_US - 1) / QUOTA_STEP_US * QUOTA_STEP_US;
		add_number(ret, "CPUQuotaPerSecUSec", per_second);
	}
}

/* "0-3,8" as bits, the lowest byte first. False for what is not such a list. */
static bool set_bits(const char *list, unsigned char *bits, size_t *ret_size)
{
	for (const char *at = list;; at++) {
		char *end;
		unsigned long from = strtoul(at, &end, 10), to = from;

		if (end == at)
			return false;
		if (*end == '-') {
			at = end + 1;
			to = strtoul(at, &end, 10);
			if (end == at)
				return false;
		}
		if (from > to || to >= PROPERTY_BYTES_MAX * CHAR_BIT || (*end && *end != ','))
			return false;
		for (unsigned long bit = from; bit <= to; bit++)
			bits[bit / CHAR_BIT] |= (unsigned char)(1u << bit % CHAR_BIT);
		if (to / CHAR_BIT + 1 > *ret_size)
			*ret_size = to / CHAR_BIT + 1;
		if (!*end)
			return true;
		at = end;
	}
}

/* systemd has it for v2 only. An empty one is that of the group above. */
static void add_cpuset(const struct cgroups *cg, const struct setting *s, const char *name,
		       struct unit_properties *ret)
{
	unsigned char *bits;
	size_t size = 0;

	if (!s || cg->of[CONTROLLER_CPUSET] < 0 ||
	    !cg->hierarchies[cg->of[CONTROLLER_CPUSET]].is_v2)
		return;
	bits = xcalloc(PROPERTY_BYTES_MAX, 1);
	if (s->kind == SETTING_INHERIT || set_bits(s->value, bits, &size)) {
		struct unit_property *p = unit_property_add(ret, name, PROPERTY_BYTES);

		p->bytes = bits;
		p->size = size;
	} else {
		free(bits);
	}
}

void unit_add_limits(const struct cgroups *cg, const struct setting_list *settings,
		     struct unit_properties *ret)
{
	for (size_t i = 0; i < settings->count; i++)
		add_plain(&settings->items[i], ret);
	add_bandwidth(settings, ret);
	add_cpuset(cg, find(settings, "cpuset.cpus"), "AllowedCPUs", ret);
	add_cpuset(cg, find(settings, "cpuset.mems"), "AllowedMemoryNodes", ret);
}
