/* SPDX-License-Identifier: Apache-2.0 */
/*
 * passwd(5) and group(5) of an image. Peculiar: both files are read whole once and walked line by
 * line with string views; lines that make no sense are passed over as libc does.
 */
#include "sandbox/linux/users.h"

#include <fcntl.h>
#include <linux/openat2.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "io/base/alloc.h"
#include "io/base/buf.h"
#include "io/base/cleanup.h"

#define NAME_LENGTH_MAX 256
#define FIELDS_MAX 7

struct view {
	const char *start;
	size_t length;
};

/* What a user or group was asked as. */
struct asked {
	struct view name; /* empty when it is a number */
	uint32_t id;
};

static int open_in_root(int root_fd, const char *path)
{
	struct open_how how = {
		/* a FIFO would block */
		.flags = O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY,
		.resolve = RESOLVE_IN_ROOT | RESOLVE_NO_MAGICLINKS,
	};

	return (int)syscall(SYS_openat2, root_fd, path, &how, sizeof(how));
}

/* A missing file is an empty one. */
static int read_file(int root_fd, const char *path, struct buf *ret, struct error *err)
{
	cleanup_close int fd = open_in_root(root_fd, path);
	struct stat st;
	ssize_t n;

	if (fd < 0 && (errno == ENOENT || errno == ENOTDIR))
		return 0;
	if (fd < 0)
		return error_errno(err, errno, "open /%s of the image", path);
	if (fstat(fd, &st) < 0)
		return error_errno(err, errno, "stat /%s of the image", path);
	if (!S_ISREG(st.st_mode))
		return error_set(err, ERR_INVALID, "/%s of the image is no regular file", path);
	do {
		n = read(fd, buf_reserve(ret, 65536), 65536);
		if (n < 0)
			return error_errno(err, errno, "read /%s of the image", path);
		ret->length += (size_t)n;
		if (ret->length > USERS_FILE_MAX)
			return error_set(err, ERR_INVALID,
					 "/%s of the image is larger than %d bytes", path,
					 USERS_FILE_MAX);
	} while (n > 0);
	return 0;
}

static bool next_line(struct view *rest, struct view *ret_line)
{
	const char *end;

	if (!rest->length)
		return false;
	end = memchr(rest->start, '\n', rest->length);
	ret_line->start = rest->start;
	ret_line->length = end ? (size_t)(end - rest->start) : rest->length;
	rest->start += ret_line->length + !!end;
	rest->length -= ret_line->length + !!end;
	return true;
}

/* Splits at ':'; the last field takes what is left. Returns how many there are. */
static size_t split(struct view line, struct view *fields, size_t max)
{
	size_t count = 0;

	for (;;) {
		const char *end = count + 1 < max ? memchr(line.start, ':', line.length) : NULL;

		fields[count].start = line.start;
		fields[count].length = end ? (size_t)(end - line.start) : line.length;
		if (!end)
			return count + 1;
		line.length -= fields[count].length + 1;
		line.start = end + 1;
		count++;
	}
}

static bool is_equal(struct view a, struct view b)
{
	return a.length == b.length && memcmp(a.start, b.start, a.length) == 0;
}

static bool is_digits(struct view v)
{
	for (size_t i = 0; i < v.length; i++)
		if (v.start[i] < '0' || v.start[i] > '9')
			return false;
	return v.length > 0;
}

/* False when it is none or does not fit. */
static bool parse_id(struct view v, uint32_t *ret)
{
	uint64_t value = 0;

	if (!is_digits(v))
		return false;
	for (size_t i = 0; i < v.length; i++) {
		value = value * 10 + (uint64_t)(v.start[i] - '0');
		if (value > USERS_ID_MAX)
			return false;
	}
	*ret = (uint32_t)value;
	return true;
}

/*
 * A number or a name. What begins as a number ("-1", "+5", "4294967296") is never a name, for
 * somebody else reading it as a number would get another user.
 */
static int parse_asked(const char *what, struct view v, struct asked *ret, struct error *err)
{
	*ret = (struct asked){0};
	if (v.length > NAME_LENGTH_MAX)
		return error_set(err, ERR_INVALID, "%s: its name is longer than %d bytes", what,
				 NAME_LENGTH_MAX);
	if (is_digits(v)) {
		if (!parse_id(v, &ret->id))
			return error_set(err, ERR_INVALID, "%s %.*s: ids end at %u", what,
					 (int)v.length, v.start, USERS_ID_MAX);
		return 0;
	}
	for (size_t i = 0; i < v.length; i++)
		if ((unsigned char)v.start[i] <= ' ' || v.start[i] == 127 || v.start[i] == ':')
			return error_set(err, ERR_INVALID,
					 "%s: its name has a space, a colon or a control character",
					 what);
	if (v.length && (v.start[0] == '-' || v.start[0] == '+'))
		return error_set(err, ERR_INVALID, "%s \"%.*s\": neither a name nor an id", what,
				 (int)v.length, v.start);
	ret->name = v;
	return 0;
}

struct passwd_entry {
	struct view name, home;
	uint32_t uid, gid;
};

/* The first entry of that name, or of that id. */
static bool find_user(const struct buf *passwd, const struct asked *user, struct passwd_entry *ret)
{
	struct view rest = {passwd->data, passwd->length}, line;

	while (next_line(&rest, &line)) {
		struct view fields[FIELDS_MAX];
		struct passwd_entry e;

		if (split(line, fields, FIELDS_MAX) < 6 || !fields[0].length)
			continue;
		if (user->name.length && !is_equal(fields[0], user->name))
			continue;
		if (!parse_id(fields[2], &e.uid) || !parse_id(fields[3], &e.gid))
			continue;
		if (!user->name.length && e.uid != user->id)
			continue;
		e.name = fields[0];
		e.home = fields[5];
		*ret = e;
		return true;
	}
	return false;
}

static bool find_group(const struct buf *group, struct view name, uint32_t *ret)
{
	struct view rest = {group->data, group->length}, line;

	while (next_line(&rest, &line)) {
		struct view fields[4];

		if (split(line, fields, 4) >= 3 && is_equal(fields[0], name) &&
		    parse_id(fields[2], ret))
			return true;
	}
	return false;
}

static bool has_member(struct view members, struct view name)
{
	while (members.length) {
		const char *end = memchr(members.start, ',', members.length);
		struct view one = {members.start,
				   end ? (size_t)(end - members.start) : members.length};

		if (is_equal(one, name))
			return true;
		members.start += one.length + !!end;
		members.length -= one.length + !!end;
	}
	return false;
}

static int add_group(struct user_ids *ids, gid_t gid, struct error *err)
{
	for (size_t i = 0; i < ids->group_count; i++)
		if (ids->groups[i] == gid)
			return 0;
	if (ids->group_count == USERS_GROUPS_MAX)
		return error_set(err, ERR_INVALID, "groups of the user: more than %d",
				 USERS_GROUPS_MAX);
	if ((ids->group_count & (ids->group_count - 1)) == 0)
		ids->groups = xrealloc(ids->groups, (ids->group_count ? ids->group_count * 2 : 1) *
							    sizeof(gid_t));
	ids->groups[ids->group_count++] = gid;
	return 0;
}

static int add_memberships(struct user_ids *ids, const struct buf *group, struct view name,
			   struct error *err)
{
	struct view rest = {group->data, group->length}, line;

	while (next_line(&rest, &line)) {
		struct view fields[4];
		uint32_t gid;

		if (split(line, fields, 4) == 4 && parse_id(fields[2], &gid) &&
		    has_member(fields[3], name))
			TRY(add_group(ids, gid, err));
	}
	return 0;
}

static int set_groups(struct user_ids *ids, const struct user_spec *spec, const struct buf *group,
		      struct view name, struct error *err)
{
	TRY(add_group(ids, ids->gid, err));
	for (size_t i = 0; i < spec->supplemental.count; i++) {
		if (spec->supplemental.items[i] > USERS_ID_MAX)
			return error_set(err, ERR_INVALID, "supplemental group %u: ids end at %u",
					 spec->supplemental.items[i], USERS_ID_MAX);
		TRY(add_group(ids, spec->supplemental.items[i], err));
	}
	if (spec->policy == GROUPS_MERGE && name.length)
		TRY(add_memberships(ids, group, name, err));
	return 0;
}

/* passwd's home counts only when it can be one. */
static char *home_of(const struct passwd_entry *e)
{
	if (!e->home.length || e->home.start[0] != '/' ||
	    memchr(e->home.start, '\0', e->home.length))
		return xstrdup("/");
	return xasprintf("%.*s", (int)e->home.length, e->home.start);
}

static int look_up(const struct user_spec *spec, const struct asked *user,
		   const struct asked *group, bool has_group, const struct buf *passwd,
		   const struct buf *groups, struct user_ids *ids, struct error *err)
{
	struct passwd_entry entry = {0};
	bool is_found = find_user(passwd, user, &entry);

	if (user->name.length && !is_found)
		return error_set(err, ERR_INVALID, "user %.*s is not in the image's /etc/passwd",
				 (int)user->name.length, user->name.start);
	ids->uid = user->name.length ? entry.uid : user->id;
	ids->gid = has_group ? group->id : entry.gid;
	if (has_group && group->name.length && !find_group(groups, group->name, &ids->gid))
		return error_set(err, ERR_INVALID, "group %.*s is not in the image's /etc/group",
				 (int)group->name.length, group->name.start);
	ids->home = home_of(&entry);
	return set_groups(ids, spec, groups, is_found ? entry.name : (struct view){0}, err);
}

int user_lookup(int root_fd, const struct user_spec *spec, struct user_ids *ret, struct error *err)
{
	__attribute__((cleanup(buf_done))) struct buf passwd = {0}, groups = {0};
	struct view whole = {spec->user ?: "", strlen(spec->user ?: "")};
	struct view user_text = whole, group_text = {0};
	struct asked user, group = {0};
	struct user_ids ids = {0};
	bool has_group = spec->group && *spec->group;
	int r;

	if (has_group) {
		group_text = (struct view){spec->group, strlen(spec->group)};
	} else {
		const char *colon = memchr(whole.start, ':', whole.length);

		if (colon) {
			user_text.length = (size_t)(colon - whole.start);
			group_text = (struct view){colon + 1, whole.length - user_text.length - 1};
			has_group = group_text.length > 0;
		}
	}
	TRY(parse_asked("user", user_text, &user, err));
	if (has_group)
		TRY(parse_asked("group", group_text, &group, err));
	TRY(read_file(root_fd, "etc/passwd", &passwd, err));
	if ((has_group && group.name.length) || spec->policy == GROUPS_MERGE)
		TRY(read_file(root_fd, "etc/group", &groups, err));
	r = look_up(spec, &user, &group, has_group, &passwd, &groups, &ids, err);
	if (r < 0) {
		user_ids_done(&ids);
		return r;
	}
	*ret = ids;
	return 0;
}

void user_ids_done(struct user_ids *ids)
{
	free(ids->groups);
	free(ids->home);
	*ids = (struct user_ids){0};
}
