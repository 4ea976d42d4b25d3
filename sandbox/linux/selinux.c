/* SPDX-License-Identifier: Apache-2.0 */
/* SELinux by its file system and the policy's files; no library of its is needed for that. */
#include "sandbox/linux/selinux.h"

#include <fcntl.h>
#include <linux/magic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/statvfs.h>
#include <sys/vfs.h>

#include "io/base/alloc.h"
#include "io/base/buf.h"
#include "io/base/cleanup.h"
#include "io/fs.h"

#define FS "sys/fs/selinux"
#define CONTEXTS "usr/share/containers/selinux/contexts"
#define CONFIG "etc/selinux/config"
#define FILE_MAX (64 * 1024)

int selinux_open_fs(int root)
{
	int fd = fs_openat2(root, FS, O_RDONLY | O_DIRECTORY, 0, 0);
	struct statfs st;

	if (fd < 0)
		return -1;
	/* a read-only one, as containers are shown, takes no questions */
	if (fstatfs(fd, &st) == 0 && (unsigned)st.f_type == SELINUX_MAGIC &&
	    !(st.f_flags & ST_RDONLY))
		return fd;
	close_fd(fd);
	return -1;
}

bool selinux_is_enforcing(int fs)
{
	struct buf text CLEANUP(buf_done) = {0};

	return fs_read_at(fs, "enforce", 16, &text, NULL) == 0 && text.length &&
	       text.data[0] == '1';
}

static char *trim(char *s)
{
	size_t n;

	s += strspn(s, " \t\"");
	n = strlen(s);
	while (n && strchr(" \t\r\"", s[n - 1]))
		n--;
	s[n] = 0;
	return s;
}

/* The last "key = value" of the text, in new memory; NULL: none. */
static char *find_value(const char *text, const char *key)
{
	cleanup_free char *copy = xstrdup(text);
	char *rest = copy, *line, *found = NULL;

	while ((line = strsep(&rest, "\n"))) {
		char *value = strchr(line, '=');

		if (!value)
			continue;
		*value++ = 0;
		if (strcmp(trim(line), key) != 0)
			continue;
		free(found);
		value = trim(value);
		found = *value ? xstrdup(value) : NULL;
	}
	return found;
}

static int read_lxc_contexts(int root, struct buf *ret)
{
	struct buf config CLEANUP(buf_done) = {0};
	cleanup_free char *type = NULL, *path = NULL;

	TRY(fs_read_at(root, CONFIG, FILE_MAX, &config, NULL));
	type = find_value(config.data ?: "", "SELINUXTYPE");
	if (!type || strchr(type, '/'))
		return -ERR_NOT_FOUND;
	path = xasprintf("etc/selinux/%s/contexts/lxc_contexts", type);
	return fs_read_at(root, path, FILE_MAX, ret, NULL);
}

void selinux_read_policy(int root, struct selinux *s)
{
	struct buf text CLEANUP(buf_done) = {0};

	if (fs_read_at(root, CONTEXTS, FILE_MAX, &text, NULL) < 0 &&
	    read_lxc_contexts(root, &text) < 0)
		return;
	s->process = find_value(text.data ?: "", "process");
	s->file = find_value(text.data ?: "", "file");
}

struct selinux selinux_open(int root)
{
	struct selinux s = {.fs = selinux_open_fs(root)};

	if (s.fs >= 0)
		selinux_read_policy(root, &s);
	return s;
}

void selinux_done(struct selinux *s)
{
	close_fd(s->fs);
	free(s->process);
	free(s->file);
	*s = SELINUX_NONE;
}
