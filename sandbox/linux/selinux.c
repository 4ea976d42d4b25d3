/* SPDX-License-Identifier: Apache-2.0 */
/* SELinux by its file system and the policy's files; no library of its is needed for that. */
#include "sandbox/linux/selinux.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/magic.h>
#include <linux/xattr.h>
#include <stdlib.h>
#include <string.h>
#include <sys/statvfs.h>
#include <sys/vfs.h>
#include <sys/xattr.h>
#include <unistd.h>

#include "io/base/alloc.h"
#include "io/base/buf.h"
#include "io/base/cleanup.h"
#include "io/fs.h"

#define FS "sys/fs/selinux"
#define CONTEXTS "usr/share/containers/selinux/contexts"
#define CONFIG "etc/selinux/config"
#define FILE_MAX (64 * 1024)
/* What fsconfig(2) takes as one string, and so the label of a mount. */
#define LABEL_MAX 255
#define OPTIONS "config.linux.security_context.selinux_options"

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

void selinux_labels_done(struct selinux_labels *labels)
{
	free(labels->process);
	free(labels->file);
	*labels = (struct selinux_labels){0};
}

bool selinux_is_asked(const struct selinux_spec *asked)
{
	return asked->user || asked->role || asked->type || asked->level;
}

static int refuse_all(const struct selinux_spec *asked, struct error *err)
{
	const char *field = asked->user	   ? "user"
			    : asked->role  ? "role"
			    : asked->type  ? "type"
			    : asked->level ? "level"
					   : NULL;

	if (!field)
		return 0;
	return error_set(err, ERR_INVALID,
			 OPTIONS ".%s: this node's kernel has no SELinux, or it is off; leave it "
				 "out, or run the pod on another node",
			 field);
}

/* Where the label's part of that number begins, or NULL. */
static const char *find_part(const char *label, int index)
{
	for (; index > 0 && label; index--) {
		label = strchr(label, ':');
		label += !!label;
	}
	return label;
}

/* It has colons of its own. */
const char *selinux_level(const char *label)
{
	return find_part(label, 3);
}

static char *copy_part(const char *label, int index)
{
	const char *at = find_part(label, index);

	return at ? xasprintf("%.*s", (int)strcspn(at, ":"), at) : NULL;
}

/* base with parts of its own; level NULL: none. */
static char *join(const char *base, const char *user, const char *role, const char *type,
		  const char *level)
{
	cleanup_free char *base_user = copy_part(base, 0), *base_role = copy_part(base, 1);
	cleanup_free char *base_type = copy_part(base, 2);

	return xasprintf("%s:%s:%s%s%s", user ?: base_user ?: "", role ?: base_role ?: "",
			 type ?: base_type ?: "", level ? ":" : "", level ?: "");
}

/* Asks the kernel, and has its own way to write it. */
static int confirm(int fs, bool is_asked, char **label, struct error *err)
{
	cleanup_close int fd = openat(fs, "context", O_RDWR | O_CLOEXEC);
	char text[LABEL_MAX + 2];
	ssize_t n;

	if (fd < 0)
		return error_errno(err, errno, "ask the kernel for the label %.300s", *label);
	if (write(fd, *label, strlen(*label) + 1) < 0)
		return errno != EINVAL ? error_errno(err, errno,
						     "ask the kernel for the label %.300s", *label)
				       : error_set(err, is_asked ? ERR_INVALID : ERR_PRECONDITION,
						   "%s: the node's policy has no label %.300s; %s",
						   is_asked ? OPTIONS : "selinux", *label,
						   is_asked ? "ask for one that it has"
							    : "install container-selinux");
	n = pread(fd, text, sizeof(text) - 1, 0);
	if (n < 0)
		return error_errno(err, errno, "ask the kernel for the label %.300s", *label);
	text[n] = 0;
	if (strlen(text) > LABEL_MAX)
		return error_set(err, ERR_INVALID,
				 OPTIONS ": a label has at most %d bytes, not as many as %.100s…",
				 LABEL_MAX, text);
	free(*label);
	*label = xstrdup(text);
	return 0;
}

int selinux_compose(const struct selinux *s, const struct selinux_spec *asked, const char *level,
		    struct selinux_labels *ret, struct error *err)
{
	struct selinux_labels labels CLEANUP(selinux_labels_done) = {0};
	const char *own = selinux_level(s->process);
	bool is_asked = selinux_is_asked(asked);

	*ret = labels;
	if (s->fs < 0)
		return refuse_all(asked, err);
	if (!s->process && !is_asked)
		return 0;
	if (!s->process && (!asked->user || !asked->role || !asked->type))
		return error_set(err, ERR_INVALID,
				 OPTIONS ": the node's policy has no label for containers that "
					 "could complete it; give user, role and type, or install "
					 "container-selinux");
	level = asked->level ?: own && level ? level : own;
	labels.process = join(s->process, asked->user, asked->role, asked->type, level);
	TRY(confirm(s->fs, is_asked, &labels.process, err));
	if (s->file) {
		labels.file = join(s->file, asked->user, NULL, NULL, level);
		TRY(confirm(s->fs, is_asked, &labels.file, err));
	}
	*ret = labels;
	labels = (struct selinux_labels){0};
	return 0;
}

int selinux_label_fd(int fd, const char *label, struct error *err)
{
	if (fsetxattr(fd, XATTR_NAME_SELINUX, label, strlen(label) + 1, 0) == 0 ||
	    errno == EOPNOTSUPP)
		return 0;
	return error_errno(err, errno, "give a file the label %.300s", label);
}
