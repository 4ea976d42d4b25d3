/* SPDX-License-Identifier: Apache-2.0 */
/*
 * crisp-unpack: see protocol.h. Peculiar: it locks itself in before it reads the first byte. The
 * layers below are cloned as detached read-only mounts first, so that ".." ends at their roots.
 */
#include <archive.h>
#include <errno.h>
#include <fcntl.h>
#include <iconv.h>
#include <langinfo.h>
#include <linux/capability.h>
#include <linux/mount.h>
#include <poll.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "io/base/alloc.h"
#include "io/confine.h"
#include "io/fs.h"
#include "store/image/unpack/protocol.h"
#include "store/image/unpack/stream.h"
#include "store/image/unpack/tree.h"

#define MEMORY_MAX (1024ull * 1024 * 1024)
#define CPU_SECONDS_MAX 3600

static const int syscalls[] = {
	SYS_read,      SYS_write,      SYS_pread64,    SYS_pwrite64,	    SYS_close,
	SYS_fstat,     SYS_newfstatat, SYS_statx,      SYS_lseek,	    SYS_openat,
	SYS_openat2,   SYS_mkdirat,    SYS_mknodat,    SYS_unlinkat,	    SYS_linkat,
	SYS_symlinkat, SYS_renameat2,  SYS_fchown,     SYS_fchownat,	    SYS_fchmod,
	SYS_fchmodat,  SYS_fsetxattr,  SYS_utimensat,  SYS_ftruncate,	    SYS_getdents64,
	SYS_fcntl,     SYS_mmap,       SYS_munmap,     SYS_mremap,	    SYS_mprotect,
	SYS_madvise,   SYS_brk,	       SYS_futex,      SYS_getrandom,	    SYS_clock_gettime,
	SYS_syncfs,    SYS_exit,       SYS_exit_group, SYS_rt_sigreturn,    SYS_rt_sigprocmask,
	SYS_getpid,    SYS_gettid,     SYS_tgkill,     SYS_restart_syscall,
};

struct unpack {
	struct tree tree;
	struct stream stream;
	struct unpack_report report;
	struct buf opaque;
	struct error err;
	int *lowers;
	bool is_begun;
};

/*
 * Read before the stream: a link. libarchive loses the target of the first link of an archive when
 * that stands in a PAX record only, as Go writes it when no character of it is ASCII.
 */
static const void *make_prelude(size_t *ret_size)
{
	static char h[512];
	unsigned sum = 0;

	memcpy(h, "prelude", 7);
	memcpy(h + 100, "0000644", 8);
	memcpy(h + 108, "0000000", 8);
	memcpy(h + 116, "0000000", 8);
	memcpy(h + 124, "00000000000", 12);
	memcpy(h + 136, "00000000000", 12);
	memset(h + 148, ' ', 8);
	h[156] = '2';
	h[157] = 'x';
	memcpy(h + 257, "ustar\00000", 8);
	for (size_t i = 0; i < sizeof(h); i++)
		sum += (unsigned char)h[i];
	snprintf(h + 148, 8, "%06o", sum);
	*ret_size = sizeof(h);
	return h;
}

static int clone_lowers(struct unpack *u)
{
	struct mount_attr attr = {.attr_set = MOUNT_ATTR_RDONLY | MOUNT_ATTR_NOSUID |
					      MOUNT_ATTR_NODEV | MOUNT_ATTR_NOEXEC};
	size_t n = 0;

	while (fcntl(UNPACK_LOWER + (int)n, F_GETFD) >= 0)
		n++;
	u->lowers = xcalloc(n + 1, sizeof(*u->lowers));
	for (size_t i = 0; i < n; i++) {
		int fd = (int)syscall(SYS_open_tree, UNPACK_LOWER + (int)i, "",
				      AT_EMPTY_PATH | OPEN_TREE_CLONE | OPEN_TREE_CLOEXEC);

		if (fd < 0 ||
		    syscall(SYS_mount_setattr, fd, "", AT_EMPTY_PATH, &attr, sizeof(attr)) < 0)
			return error_errno(&u->err, errno, "clone the layer below");
		u->lowers[i] = fd;
	}
	for (size_t i = 0; i < n; i++)
		close(UNPACK_LOWER + (int)i);
	u->tree.lowers = u->lowers;
	u->tree.lower_count = n;
	return 0;
}

/*
 * Libraries read their configuration at first use, and load more: libarchive converts names by
 * iconv, libcrypto has openssl.cnf. After chroot(2) those would be the layer's own (as in
 * CVE-2019-14271), so they are used before.
 */
static int load_libraries(struct unpack *u)
{
	iconv_t converter = iconv_open(nl_langinfo(CODESET), "UTF-8");
	char digest[DIGEST_SIZE];

	digest_of("", 0, digest);
	if (converter == (iconv_t)-1)
		return error_errno(&u->err, errno, "convert names from UTF-8");
	iconv_close(converter);
	return 0;
}

/* An orphan would write where the next server cleans up. */
static int die_with_parent(struct unpack *u)
{
	struct pollfd reader = {.fd = UNPACK_REPORT};

	if (prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0) < 0 || poll(&reader, 1, 0) < 0)
		return error_errno(&u->err, errno, "bind the unpacker to its parent");
	/* it may have gone before */
	if (reader.revents & POLLERR)
		_exit(4);
	return 0;
}

static int lock_in(struct unpack *u)
{
	const struct confine_limit limits[] = {
		{RLIMIT_AS, MEMORY_MAX},
		{RLIMIT_CPU, CPU_SECONDS_MAX},
		{RLIMIT_CORE, 0},
		{RLIMIT_FSIZE, u->tree.max_bytes},
		{RLIMIT_NOFILE, 64 + u->tree.lower_count},
		{RLIMIT_NPROC, 0},
	};
	const struct confine_spec spec = {
		.root = UNPACK_TARGET,
		.capabilities = 1ull << CAP_CHOWN | 1ull << CAP_DAC_OVERRIDE | 1ull << CAP_FOWNER |
				1ull << CAP_FSETID | 1ull << CAP_MKNOD | 1ull << CAP_SETFCAP,
		.limits = limits,
		.limit_count = sizeof(limits) / sizeof(*limits),
		.syscalls = syscalls,
		.syscall_count = sizeof(syscalls) / sizeof(*syscalls),
	};

	umask(0);
	signal(SIGXFSZ, SIG_IGN);
	return confine_self(&spec, &u->err);
}

static ssize_t read_stream(struct archive *a, void *data, const void **ret)
{
	struct unpack *u = data;
	size_t prelude;
	ssize_t n;

	if (!u->is_begun) {
		u->is_begun = true;
		*ret = make_prelude(&prelude);
		return (ssize_t)prelude;
	}
	n = stream_next(&u->stream, ret);
	if (n < 0)
		archive_set_error(a, EIO, "%s", u->err.text);
	return n < 0 ? ARCHIVE_FATAL : n;
}

static int read_entries(struct unpack *u, struct archive *a)
{
	struct archive_entry *e;
	int r = archive_read_next_header(a, &e);

	if (r != ARCHIVE_OK)
		return error_set(&u->err, ERR_INTERNAL, "libarchive can't read a tar");
	for (;;) {
		r = archive_read_next_header(a, &e);
		if (r == ARCHIVE_EOF)
			return 0;
		/* a warning is about a name that is no UTF-8 or an attribute unknown to libarchive
		 */
		if (r != ARCHIVE_OK && r != ARCHIVE_WARN) {
			const char *why = archive_error_string(a);

			return error_set(&u->err, ERR_INVALID, "tar: %s", why ? why : "unreadable");
		}
		TRY(tree_add(&u->tree, a, e));
	}
}

static int unpack(struct unpack *u)
{
	struct archive *a = archive_read_new();
	int r;

	TRY(stream_open(&u->stream, UNPACK_STREAM, u->tree.max_bytes, &u->err));
	if (!a || archive_read_support_format_tar(a) != ARCHIVE_OK)
		return error_set(&u->err, ERR_INTERNAL, "libarchive can't read tar");
	r = archive_read_open(a, u, NULL, read_stream, NULL) == ARCHIVE_OK
		    ? read_entries(u, a)
		    : error_set(&u->err, ERR_INVALID, "tar: %s",
				archive_error_string(a) ?: "unreadable");
	archive_read_free(a);
	TRY(r);
	TRY(stream_end(&u->stream, u->report.digest, u->report.diff_id));
	if (!u->tree.is_layer)
		return 0;
	TRY(tree_end(&u->tree, &u->opaque));
	if (syncfs(UNPACK_TARGET) < 0)
		return error_errno(&u->err, errno, "sync the layer");
	return fs_usage(UNPACK_TARGET, &u->report.bytes, &u->report.inodes, &u->err);
}

static bool write_all(const void *data, size_t n)
{
	const char *p = data;

	while (n) {
		ssize_t done = write(UNPACK_REPORT, p, n);

		if (done < 0 && errno != EINTR)
			return false;
		if (done > 0) {
			p += done;
			n -= (size_t)done;
		}
	}
	return true;
}

int main(int argc, char **argv)
{
	static struct unpack u;
	int r;

	if (argc != 4)
		return 2;
	tree_init(&u.tree, UNPACK_TARGET, &u.err);
	u.tree.is_layer = !strcmp(argv[1], "layer");
	u.tree.max_bytes = strtoull(argv[2], NULL, 10);
	u.tree.max_inodes = strtoull(argv[3], NULL, 10);
	r = die_with_parent(&u);
	if (r == 0)
		r = load_libraries(&u);
	if (r == 0)
		r = clone_lowers(&u);
	if (r == 0)
		r = lock_in(&u);
	if (r == 0)
		r = unpack(&u);
	if (r == 0 && u.opaque.length > UNPACK_OPAQUE_MAX)
		r = error_set(&u.err, ERR_INVALID, "it has too many opaque directories");
	u.report.size = sizeof(u.report);
	u.report.code = -r;
	snprintf(u.report.text, sizeof(u.report.text), "%s", r ? u.err.text : "");
	u.report.opaque_bytes = r ? 0 : u.opaque.length;
	if (!write_all(&u.report, sizeof(u.report)) ||
	    !write_all(u.opaque.data, (size_t)u.report.opaque_bytes))
		_exit(3);
	/* no leak checks or exit handlers: their system calls are not on the list */
	_exit(0);
}
