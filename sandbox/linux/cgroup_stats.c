/* SPDX-License-Identifier: Apache-2.0 */
/* What a group used, read at once. */
#include "sandbox/linux/cgroup_priv.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "io/base/alloc.h"
#include "io/base/cleanup.h"
#include "io/base/clock.h"

/* Where the value of a "key value" line goes, and by what it is multiplied. */
struct key {
	const char *name;
	enum usage_figure figure;
	unsigned scale;
};

static const struct key cpu_v2[] = {
	{"usage_usec", USAGE_CPU, 1000},
	{"user_usec", USAGE_CPU_USER, 1000},
	{"system_usec", USAGE_CPU_SYSTEM, 1000},
	{"nr_periods", USAGE_CPU_PERIODS, 1},
	{"nr_throttled", USAGE_CPU_THROTTLED_PERIODS, 1},
	{"throttled_usec", USAGE_CPU_THROTTLED, 1000},
	{"nr_bursts", USAGE_CPU_BURSTS, 1},
	{"burst_usec", USAGE_CPU_BURST, 1000},
	{0},
};

static const struct key cpu_v1[] = {
	{"nr_periods", USAGE_CPU_PERIODS, 1},
	{"nr_throttled", USAGE_CPU_THROTTLED_PERIODS, 1},
	{"throttled_time", USAGE_CPU_THROTTLED, 1},
	{"nr_bursts", USAGE_CPU_BURSTS, 1},
	{"burst_time", USAGE_CPU_BURST, 1},
	{0},
};

static const struct key memory_v2[] = {
	{"anon", USAGE_MEMORY_RSS, 1},
	{"file", USAGE_MEMORY_CACHE, 1},
	{"file_mapped", USAGE_MEMORY_MAPPED, 1},
	{"kernel", USAGE_MEMORY_KERNEL, 1},
	{"active_file", USAGE_MEMORY_ACTIVE_FILE, 1},
	{"inactive_file", USAGE_MEMORY_INACTIVE_FILE, 1},
	{"file_dirty", USAGE_MEMORY_DIRTY, 1},
	{"file_writeback", USAGE_MEMORY_WRITEBACK, 1},
	{"workingset_refault_file", USAGE_FILE_REFAULTS, 1},
	{"workingset_refault_anon", USAGE_ANON_REFAULTS, 1},
	{"pgfault", USAGE_PAGE_FAULTS, 1},
	{"pgmajfault", USAGE_MAJOR_PAGE_FAULTS, 1},
	{0},
};

static const struct key memory_v1[] = {
	{"total_rss", USAGE_MEMORY_RSS, 1},
	{"total_cache", USAGE_MEMORY_CACHE, 1},
	{"total_mapped_file", USAGE_MEMORY_MAPPED, 1},
	{"total_active_file", USAGE_MEMORY_ACTIVE_FILE, 1},
	{"total_inactive_file", USAGE_MEMORY_INACTIVE_FILE, 1},
	{"total_dirty", USAGE_MEMORY_DIRTY, 1},
	{"total_writeback", USAGE_MEMORY_WRITEBACK, 1},
	{"total_workingset_refault_file", USAGE_FILE_REFAULTS, 1},
	{"total_workingset_refault_anon", USAGE_ANON_REFAULTS, 1},
	{"total_pgfault", USAGE_PAGE_FAULTS, 1},
	{"total_pgmajfault", USAGE_MAJOR_PAGE_FAULTS, 1},
	{"total_swap", USAGE_SWAP, 1},
	{0},
};

/* A file that is one number, or "max". */
struct file {
	const char *name;
	enum usage_figure figure;
};

static const struct file cpuacct_files[] = {
	{"cpuacct.usage", USAGE_CPU},
	{"cpuacct.usage_user", USAGE_CPU_USER},
	{"cpuacct.usage_sys", USAGE_CPU_SYSTEM},
	{0},
};

static const struct file memory_files_v2[] = {
	{"memory.current", USAGE_MEMORY},      {"memory.max", USAGE_MEMORY_LIMIT},
	{"memory.peak", USAGE_MEMORY_PEAK},    {"memory.swap.current", USAGE_SWAP},
	{"memory.swap.max", USAGE_SWAP_LIMIT}, {0},
};

static const struct file memory_files_v1[] = {
	{"memory.usage_in_bytes", USAGE_MEMORY},
	{"memory.limit_in_bytes", USAGE_MEMORY_LIMIT},
	{"memory.max_usage_in_bytes", USAGE_MEMORY_PEAK},
	{"memory.failcnt", USAGE_MEMORY_FAILURES},
	{"memory.kmem.usage_in_bytes", USAGE_MEMORY_KERNEL},
	/* together with memory, until fix_swap_limit() */
	{"memory.memsw.limit_in_bytes", USAGE_SWAP_LIMIT},
	{0},
};

static const struct file pids_files[] = {
	{"pids.current", USAGE_TASKS},
	{"pids.max", USAGE_TASKS_LIMIT},
	{0},
};

static void read_files(int dir, const struct file *files, struct usage *u)
{
	char text[64];

	for (; files->name; files++)
		if (cgroup_read(dir, files->name, text, sizeof(text)) > 0 && text[0] >= '0' &&
		    text[0] <= '9')
			u->figures[files->figure] = strtoull(text, NULL, 10);
}

static void take_line(const char *line, const struct key *keys, struct usage *u)
{
	const char *blank = strchr(line, ' ');
	size_t length = blank ? (size_t)(blank - line) : 0;

	for (; length && keys->name; keys++)
		if (strlen(keys->name) == length && !memcmp(line, keys->name, length))
			u->figures[keys->figure] = strtoull(blank + 1, NULL, 10) * keys->scale;
}

static void read_keys(int dir, const char *file, const struct key *keys, struct usage *u)
{
	__attribute__((cleanup(buf_done))) struct buf text = {0};
	char *rest = NULL;

	if (cgroup_read_all(dir, file, &text) < 0)
		return;
	for (char *line = strtok_r(text.data, "\n", &rest); line;
	     line = strtok_r(NULL, "\n", &rest))
		take_line(line, keys, u);
}

/* "some avg10=0.00 avg60=0.00 avg300=0.00 total=0", in percent and µs. Two digits
 * follow the point. */
static bool parse_pressure(const char *line, struct pressure *ret)
{
	static const char *const keys[] = {"avg10=", "avg60=", "avg300="};
	const char *at = strstr(line, "total=");

	if (!at)
		return false;
	ret->total = strtoull(at + strlen("total="), NULL, 10) * 1000;
	for (int i = 0; i < 3; i++) {
		char *end;

		at = strstr(line, keys[i]);
		if (!at)
			return false;
		ret->average[i] = (double)strtoul(at + strlen(keys[i]), &end, 10);
		if (*end == '.')
			ret->average[i] += (double)strtoul(end + 1, NULL, 10) / 100;
	}
	return true;
}

static void read_pressures(int dir, const char *file, struct pressures *ret)
{
	char text[512];
	char *full;

	if (cgroup_read(dir, file, text, sizeof(text)) <= 0)
		return;
	full = strstr(text, "\nfull ");
	if (full)
		*full++ = 0;
	ret->is_known = parse_pressure(text, &ret->some);
	/* older kernels don't have it for the processor */
	if (full)
		parse_pressure(full, &ret->full);
}

/* v1 has no word for "unlimited" but a number that no machine reaches. */
static void drop_unlimited(struct usage *u, enum usage_figure figure)
{
	if (u->figures[figure] != USAGE_NONE && u->figures[figure] > INT64_MAX - (1 << 20))
		u->figures[figure] = USAGE_NONE;
}

static void fix_swap_limit(struct usage *u)
{
	uint64_t memory = u->figures[USAGE_MEMORY_LIMIT];

	drop_unlimited(u, USAGE_SWAP_LIMIT);
	if (memory != USAGE_NONE)
		u->figures[USAGE_SWAP_LIMIT] = usage_left(u->figures[USAGE_SWAP_LIMIT], memory);
	else
		u->figures[USAGE_SWAP_LIMIT] = USAGE_NONE;
}

static void read_memory(int dir, bool is_v2, struct usage *u)
{
	if (is_v2) {
		read_files(dir, memory_files_v2, u);
		read_keys(dir, "memory.stat", memory_v2, u);
		u->figures[USAGE_MEMORY_FAILURES] = cgroup_read_key(dir, "memory.events", "max");
		u->figures[USAGE_OOM_KILLS] = cgroup_read_key(dir, "memory.events", "oom_kill");
		return;
	}
	read_files(dir, memory_files_v1, u);
	read_keys(dir, "memory.stat", memory_v1, u);
	u->figures[USAGE_OOM_KILLS] = cgroup_read_key(dir, "memory.oom_control", "oom_kill");
	drop_unlimited(u, USAGE_MEMORY_LIMIT);
	fix_swap_limit(u);
}

static void read_processor(const struct cgroups *cg, const char *path, int v2, struct usage *u)
{
	cleanup_close int account = cgroup_open_in(cg, CONTROLLER_CPUACCT, path);
	cleanup_close int quota = cgroup_open_in(cg, CONTROLLER_CPU, path);

	/* v2 counts time without its controller, too */
	if (v2 >= 0)
		read_keys(v2, "cpu.stat", cpu_v2, u);
	if (account >= 0)
		read_files(account, cpuacct_files, u);
	if (quota >= 0 && !cg->hierarchies[cg->of[CONTROLLER_CPU]].is_v2)
		read_keys(quota, "cpu.stat", cpu_v1, u);
}

static void count_descriptors(pid_t pid, struct usage *u)
{
	cleanup_free char *path = xasprintf("/proc/%d/fd", pid);
	cleanup_closedir DIR *list = opendir(path);
	struct dirent *e;
	char link[16];

	while (list && (e = readdir(list))) {
		ssize_t n = readlinkat(dirfd(list), e->d_name, link, sizeof(link));

		/* "." and ".." are no links, and what was closed meanwhile isn't either */
		if (n < 0)
			continue;
		u->figures[USAGE_DESCRIPTORS]++;
		u->figures[USAGE_SOCKETS] += n > 8 && !memcmp(link, "socket:[", 8);
	}
}

static void count_processes(int tracker, bool has_details, struct usage *u)
{
	struct pid_list pids = {0};

	/* the walk consumes it */
	if (pid_list_walk(tracker, &pids) == 0)
		u->figures[USAGE_PROCESSES] = pids.count;
	if (has_details)
		u->figures[USAGE_DESCRIPTORS] = u->figures[USAGE_SOCKETS] = 0;
	for (size_t i = 0; i < pids.count && has_details; i++)
		count_descriptors(pids.items[i], u);
	pid_list_done(&pids);
}

/* "8:0 rbytes=1 wbytes=2 rios=3 wios=4 …" for each device. */
static void read_disks(int dir, struct usage *u)
{
	static const struct file keys[] = {
		{" rbytes=", USAGE_READ_BYTES},
		{" wbytes=", USAGE_WRITE_BYTES},
		{" rios=", USAGE_READS},
		{" wios=", USAGE_WRITES},
	};
	__attribute__((cleanup(buf_done))) struct buf text = {0};

	if (cgroup_read_all(dir, "io.stat", &text) < 0)
		return;
	for (size_t i = 0; i < sizeof(keys) / sizeof(keys[0]); i++) {
		const char *at = text.data;

		u->figures[keys[i].figure] = 0;
		while ((at = strstr(at, keys[i].name))) {
			at += strlen(keys[i].name);
			u->figures[keys[i].figure] += strtoull(at, NULL, 10);
		}
	}
}

static uint64_t value_in(const char *line, const char *key)
{
	const char *at = strstr(line, key);

	return at ? strtoull(at + strlen(key), NULL, 10) : 0;
}

/* "/sys/dev/block/8:0" leads to ".../sda". */
static void name_device(struct device_usage *d)
{
	char path[64], link[256];
	const char *slash;
	ssize_t n;

	snprintf(path, sizeof(path), "/sys/dev/block/%u:%u", d->major, d->minor);
	n = readlink(path, link, sizeof(link) - 1);
	if (n < 0)
		return;
	link[n] = '\0';
	slash = strrchr(link, '/');
	snprintf(d->name, sizeof(d->name), "%.31s", slash ? slash + 1 : link);
}

static void read_devices(int dir, struct usage *u)
{
	__attribute__((cleanup(buf_done))) struct buf text = {0};
	char *rest = NULL;

	if (cgroup_read_all(dir, "io.stat", &text) < 0)
		return;
	for (char *line = strtok_r(text.data, "\n", &rest); line && u->device_count < USAGE_DEVICES;
	     line = strtok_r(NULL, "\n", &rest)) {
		struct device_usage d = {.read_bytes = value_in(line, " rbytes="),
					 .write_bytes = value_in(line, " wbytes=")};
		char *colon;

		d.major = (unsigned)strtoul(line, &colon, 10);
		if (*colon != ':')
			continue;
		d.minor = (unsigned)strtoul(colon + 1, NULL, 10);
		name_device(&d);
		u->devices[u->device_count++] = d;
	}
}

/* "hugetlb.2MB.current", and in v1 "hugetlb.2MB.usage_in_bytes": a file for each size. */
static void read_hugepages(int dir, bool is_v2, struct usage *u)
{
	const char *end = is_v2 ? ".current" : ".usage_in_bytes";
	cleanup_close int copy = openat(dir, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	cleanup_closedir DIR *list = copy < 0 ? NULL : fdopendir(copy);
	const struct dirent *e;

	if (list)
		copy = -1;
	while (list && (e = readdir(list)) && u->hugepage_count < USAGE_PAGE_SIZES) {
		struct hugepage_usage *h = &u->hugepages[u->hugepage_count];
		const char *size = e->d_name + strlen("hugetlb.");
		size_t length;
		char file[64], text[32];

		if (strncmp(e->d_name, "hugetlb.", strlen("hugetlb.")) != 0)
			continue;
		length = strcspn(size, ".");
		if (strcmp(size + length, end) != 0 || length >= sizeof(h->size) ||
		    cgroup_read(dir, e->d_name, text, sizeof(text)) <= 0)
			continue;
		snprintf(h->size, sizeof(h->size), "%.*s", (int)length, size);
		h->bytes = strtoull(text, NULL, 10);
		snprintf(file, sizeof(file), "hugetlb.%s.max_usage_in_bytes", h->size);
		h->peak = cgroup_read(dir, file, text, sizeof(text)) > 0 ? strtoull(text, NULL, 10)
									 : USAGE_NONE;
		u->hugepage_count++;
	}
}

int cgroup_usage(struct cgroups *cg, const char *path, bool has_details, struct usage *ret,
		 struct error *err)
{
	cleanup_close int memory = -1, pids = -1, v2 = -1, hugetlb = -1;
	int tracker;

	TRY(cgroup_path_check(path, err));
	tracker = cgroup_open(&cg->hierarchies[cg->tracker], path);
	if (tracker == -ENOENT)
		return error_set(err, ERR_NOT_FOUND, "cgroup %s is gone", path);
	if (tracker < 0)
		return error_errno(err, -tracker, "open cgroup %s", path);
	usage_init(ret);
	ret->at = realtime_ns();
	memory = cgroup_open_in(cg, CONTROLLER_MEMORY, path);
	pids = cgroup_open_in(cg, CONTROLLER_PIDS, path);
	v2 = cg->v2 >= 0 ? cgroup_open(&cg->hierarchies[cg->v2], path) : -1;
	read_processor(cg, path, v2, ret);
	if (memory >= 0)
		read_memory(memory, cg->hierarchies[cg->of[CONTROLLER_MEMORY]].is_v2, ret);
	if (pids >= 0)
		read_files(pids, pids_files, ret);
	count_processes(tracker, has_details, ret);
	hugetlb = has_details ? cgroup_open_in(cg, CONTROLLER_HUGETLB, path) : -1;
	if (hugetlb >= 0)
		read_hugepages(hugetlb, cg->hierarchies[cg->of[CONTROLLER_HUGETLB]].is_v2, ret);
	if (v2 < 0)
		return 0;
	read_disks(v2, ret);
	if (has_details)
		read_devices(v2, ret);
	read_pressures(v2, "cpu.pressure", &ret->cpu);
	read_pressures(v2, "memory.pressure", &ret->memory);
	read_pressures(v2, "io.pressure", &ret->io);
	return 0;
}
