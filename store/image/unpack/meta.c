/* SPDX-License-Identifier: Apache-2.0 */
/* Owners, modes, attributes, times. Peculiar: a file system without user.* attributes does no harm;
 * one without security.capability does. */
#include "store/image/unpack/meta.h"

#include <archive_entry.h>
#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/xattr.h>
#include <unistd.h>

struct timespec meta_mtime(struct archive_entry *e)
{
	struct timespec ts = {.tv_sec = archive_entry_mtime(e),
			      .tv_nsec = archive_entry_mtime_nsec(e)};

	if (ts.tv_nsec < 0 || ts.tv_nsec > 999999999)
		ts.tv_nsec = 0;
	return ts;
}

/* −1 would mean: leave as it is. */
static int get_owner(struct archive_entry *e, uid_t *ret_uid, gid_t *ret_gid, struct error *err)
{
	int64_t uid = archive_entry_uid(e), gid = archive_entry_gid(e);

	if (uid < 0 || uid >= UINT32_MAX || gid < 0 || gid >= UINT32_MAX)
		return error_set(err, ERR_INVALID, "owner %lld:%lld is out of range",
				 (long long)uid, (long long)gid);
	*ret_uid = (uid_t)uid;
	*ret_gid = (gid_t)gid;
	return 0;
}

static int set_xattrs(int fd, struct archive_entry *e, struct error *err)
{
	const char *name;
	const void *value;
	size_t n;

	archive_entry_xattr_reset(e);
	while (archive_entry_xattr_next(e, &name, &value, &n) == 0) {
		bool is_capability = name && !strcmp(name, "security.capability");

		if (!name || (!is_capability && (strncmp(name, "user.", 5) != 0 ||
						 !strncmp(name, "user.overlay.", 13))))
			continue;
		if (fsetxattr(fd, name, value, n, 0) < 0 && is_capability)
			return error_errno(err, errno, "set its file capabilities");
	}
	return 0;
}

int meta_set(int fd, struct archive_entry *e, struct error *err)
{
	struct timespec mtime = meta_mtime(e), times[2] = {mtime, mtime};
	uid_t uid;
	gid_t gid;

	TRY(get_owner(e, &uid, &gid, err));
	if (fchown(fd, uid, gid) < 0)
		return error_errno(err, errno, "set its owner");
	if (fchmod(fd, archive_entry_perm(e) & 07777) < 0)
		return error_errno(err, errno, "set its mode");
	TRY(set_xattrs(fd, e, err));
	if (futimens(fd, times) < 0)
		return error_errno(err, errno, "set its times");
	return 0;
}

int meta_set_at(int dir, const char *name, struct archive_entry *e, struct error *err)
{
	struct timespec mtime = meta_mtime(e), times[2] = {mtime, mtime};
	uid_t uid;
	gid_t gid;

	TRY(get_owner(e, &uid, &gid, err));
	if (fchownat(dir, name, uid, gid, AT_SYMLINK_NOFOLLOW) < 0)
		return error_errno(err, errno, "set its owner");
	/* the node is ours and new, so it is no link that could be followed */
	if (archive_entry_filetype(e) != S_IFLNK &&
	    fchmodat(dir, name, archive_entry_perm(e) & 07777, 0) < 0)
		return error_errno(err, errno, "set its mode");
	if (utimensat(dir, name, times, AT_SYMLINK_NOFOLLOW) < 0)
		return error_errno(err, errno, "set its times");
	return 0;
}
