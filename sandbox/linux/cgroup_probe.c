/* SPDX-License-Identifier: Apache-2.0 */
/* Finds the hierarchies that are mounted, from mountinfo (proc_pid_mountinfo(5)). */
#include "sandbox/linux/cgroup_priv.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>

#include "io/base/alloc.h"
#include "io/base/buf.h"
#include "io/base/cleanup.h"
#include "io/fs.h"

#define V1_USED                                                                                    \
	(1u << CONTROLLER_CPU | 1u << CONTROLLER_CPUACCT | 1u << CONTROLLER_CPUSET |               \
	 1u << CONTROLLER_MEMORY | 1u << CONTROLLER_PIDS | 1u << CONTROLLER_HUGETLB)

/* v2 does their work better where it is mounted. */
#define V1_WITHOUT_V2 (1u << CONTROLLER_FREEZER | 1u << CONTROLLER_DEVICES)

static unsigned parse_words(char *text, const char *separators)
{
	unsigned mask = 0;
	char *rest = NULL;

	for (char *word = strtok_r(text, separators, &rest); word;
	     word = strtok_r(NULL, separators, &rest)) {
		enum controller c = controller_find(word, strlen(word));

		if (c != CONTROLLER_COUNT)
			mask |= 1u << c;
	}
	return mask;
}

static int add_hierarchy(struct cgroups *cg, const char *mount, bool is_v2, unsigned controllers,
			 struct error *err)
{
	struct hierarchy *h = &cg->hierarchies[cg->count];
	char text[1024];

	for (size_t i = 0; i < cg->count; i++)
		if (is_v2 ? cg->hierarchies[i].is_v2 : cg->hierarchies[i].controllers & controllers)
			return 0;
	if (cg->count == CGROUP_JOIN_MAX)
		return 0;
	h->fd = open(mount, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (h->fd < 0)
		return error_errno(err, errno, "open cgroup hierarchy %s", mount);
	if (is_v2 && cgroup_read(h->fd, "cgroup.controllers", text, sizeof(text)) >= 0)
		controllers = parse_words(text, " ");
	h->is_v2 = is_v2;
	h->controllers = controllers;
	cg->count++;
	return 0;
}

/* One line: id parent dev root mount-point options … - type source super-options. */
static int parse_line(struct cgroups *cg, char *line, bool want_v2, struct error *err)
{
	char *fields[6], *rest = NULL, *dash = strstr(line, " - "), *type, *super;
	unsigned controllers;

	if (!dash)
		return 0;
	*dash = '\0';
	type = strtok_r(dash + 3, " ", &rest);
	if (!type || !strtok_r(NULL, " ", &rest))
		return 0;
	super = strtok_r(NULL, " ", &rest);
	if (strcmp(type, want_v2 ? "cgroup2" : "cgroup") != 0 || !super)
		return 0;
	rest = NULL;
	for (int i = 0; i < 6; i++)
		if (!(fields[i] = strtok_r(i ? NULL : line, " ", &rest)))
			return 0;
	fs_unescape_mount(fields[4]);
	controllers = parse_words(super, ",") & (V1_USED | V1_WITHOUT_V2);
	return want_v2 || controllers ? add_hierarchy(cg, fields[4], want_v2, controllers, err) : 0;
}

static int parse(struct cgroups *cg, const char *mountinfo, bool want_v2, struct error *err)
{
	cleanup_free char *text = xstrdup(mountinfo);
	char *rest = NULL;

	for (char *line = strtok_r(text, "\n", &rest); line; line = strtok_r(NULL, "\n", &rest))
		TRY(parse_line(cg, line, want_v2, err));
	return 0;
}

static void drop_needless(struct cgroups *cg)
{
	size_t kept = 0;

	for (size_t i = 0; i < cg->count; i++) {
		if (cg->hierarchies[i].is_v2 || cg->hierarchies[i].controllers & V1_USED)
			cg->hierarchies[kept++] = cg->hierarchies[i];
		else
			close_fd(cg->hierarchies[i].fd);
	}
	cg->count = kept;
}

static void index_controllers(struct cgroups *cg)
{
	cg->v2 = -1;
	cg->is_pure_v2 = cg->count == 1 && cg->hierarchies[0].is_v2;
	for (int c = 0; c < CONTROLLER_COUNT; c++) {
		cg->of[c] = -1;
		for (size_t i = 0; i < cg->count; i++)
			if (cg->hierarchies[i].controllers & 1u << c)
				cg->of[c] = (int)i;
	}
	for (size_t i = 0; i < cg->count; i++)
		if (cg->hierarchies[i].is_v2)
			cg->v2 = (int)i;
	cg->tracker = cg->v2;
	if (cg->tracker < 0)
		cg->tracker = cg->of[CONTROLLER_FREEZER];
	if (cg->tracker < 0)
		cg->tracker = cg->of[CONTROLLER_PIDS];
	if (cg->tracker < 0)
		cg->tracker = 0;
}

static char *describe(const struct cgroups *cg)
{
	struct buf text = {0};
	bool has_v1 = !cg->is_pure_v2;

	for (int version = has_v1 ? 1 : 2; version <= (cg->v2 >= 0 ? 2 : 1); version++) {
		buf_printf(&text, "%sv%d (", text.length ? " " : "", version);
		for (int c = 0, n = 0; c < CONTROLLER_COUNT; c++)
			if (cg->of[c] >= 0 && cg->hierarchies[cg->of[c]].is_v2 == (version == 2))
				buf_printf(&text, "%s%s", n++ ? " " : "", controller_names[c]);
		buf_puts(&text, ")");
	}
	buf_printf(&text, ", tracked by %s",
		   cg->tracker == cg->v2		       ? "v2"
		   : cg->tracker == cg->of[CONTROLLER_FREEZER] ? "the freezer of v1"
							       : "v1");
	return buf_take(&text);
}

struct cgroups *cgroups_probe_text(const char *mountinfo, struct error *err)
{
	struct cgroups *cg = xnew(struct cgroups);

	cg->devices_program = -1;
	pthread_mutex_init(&cg->devices_lock, NULL);
	if (parse(cg, mountinfo, true, err) < 0 || parse(cg, mountinfo, false, err) < 0) {
		cgroups_free(cg);
		return NULL;
	}
	if (!cg->count) {
		error_set(err, ERR_PRECONDITION,
			  "cgroups: no hierarchy is mounted; mount cgroup2 on /sys/fs/cgroup");
		cgroups_free(cg);
		return NULL;
	}
	if (cg->hierarchies[0].is_v2)
		drop_needless(cg);
	index_controllers(cg);
	cg->can_clone = cg->v2 >= 0 && cgroup_v2_can_clone(&cg->hierarchies[cg->v2]);
	cg->description = describe(cg);
	return cg;
}

struct cgroups *cgroups_probe(struct error *err)
{
	__attribute__((cleanup(buf_done))) struct buf text = {0};
	cleanup_close int fd = open("/proc/self/mountinfo", O_RDONLY | O_CLOEXEC);
	ssize_t n = fd < 0 ? -1 : 1;

	while (n > 0) {
		n = read(fd, buf_reserve(&text, 65536), 65536);
		if (n > 0)
			text.length += (size_t)n;
	}
	if (n < 0) {
		error_errno(err, errno, "read /proc/self/mountinfo");
		return NULL;
	}
	buf_append(&text, "", 1);
	return cgroups_probe_text(text.data, err);
}

void cgroups_free(struct cgroups *cg)
{
	if (!cg)
		return;
	for (size_t i = 0; i < cg->count; i++)
		close_fd(cg->hierarchies[i].fd);
	close_fd(cg->devices_program);
	pthread_mutex_destroy(&cg->devices_lock);
	free(cg->description);
	free(cg);
}

bool cgroups_has_v2(const struct cgroups *cg)
{
	return cg->v2 >= 0;
}

bool cgroups_is_v2(const struct cgroups *cg)
{
	return cg->is_pure_v2;
}

const char *cgroups_describe(const struct cgroups *cg)
{
	return cg->description;
}
