/* SPDX-License-Identifier: Apache-2.0 */
/* AppArmor's lists and the default profile. Peculiar: the kernel takes compiled profiles only, and
 * the node's own apparmor_parser is what knows its version. */
#include "sandbox/linux/apparmor.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "io/base/buf.h"
#include "io/base/cleanup.h"
#include "io/fs.h"
#include "io/process.h"

#define ENABLED "sys/module/apparmor/parameters/enabled"
#define PROFILES "sys/kernel/security/apparmor/profiles"
#define PROFILES_MAX (8 * 1024 * 1024)

/* What containers need, and nothing of the kernel's that is not theirs. */
static const char default_profile[] =
	"profile " APPARMOR_DEFAULT " flags=(attach_disconnected,mediate_deleted) {\n"
	"  network,\n"
	"  capability,\n"
	"  file,\n"
	"  umount,\n"
	"  signal (receive) peer=unconfined,\n"
	"  signal (send,receive) peer=" APPARMOR_DEFAULT ",\n"
	"  ptrace (trace,read,tracedby,readby) peer=" APPARMOR_DEFAULT ",\n"
	"  deny mount,\n"
	"  deny /proc/sysrq-trigger rwklx,\n"
	"  deny /proc/kcore rwklx,\n"
	"  deny /proc/kallsyms rwklx,\n"
	"  deny /proc/sys/kernel/{?,??,[^s][^h][^m]**} wklx,\n"
	"  deny /sys/firmware/** rwklx,\n"
	"  deny /sys/kernel/security/** rwklx,\n"
	"  deny /sys/fs/[^c]*/** wklx,\n"
	"}\n";

bool apparmor_is_enabled(int root)
{
	struct buf text CLEANUP(buf_done) = {0};

	return fs_read_at(root, ENABLED, 16, &text, NULL) == 0 && text.length &&
	       text.data[0] == 'Y';
}

const char *apparmor_name(enum apparmor_kind kind, const char *profile, bool is_enabled)
{
	if (!is_enabled || kind == APPARMOR_UNCONFINED)
		return NULL;
	return kind == APPARMOR_LOCALHOST ? profile : APPARMOR_DEFAULT;
}

/* Lines are "name (mode)", and a name may have spaces. */
static bool has_line(const struct buf *list, const char *name)
{
	const char *line = list->data, *end = list->data + list->length;
	size_t n = strlen(name);

	while (line < end) {
		const char *next = memchr(line, '\n', (size_t)(end - line)) ?: end;
		const char *mode = memrchr(line, '(', (size_t)(next - line));

		if (mode == line + n + 1 && memcmp(line, name, n) == 0 && line[n] == ' ')
			return true;
		line = next + 1;
	}
	return false;
}

static int is_loaded(int root, const char *name, bool *ret, struct error *err)
{
	struct buf list CLEANUP(buf_done) = {0};
	struct error why = {0};

	if (fs_read_at(root, PROFILES, PROFILES_MAX, &list, &why) < 0)
		return error_set(err, ERR_PRECONDITION,
				 "apparmor profile %.200s: the kernel's list of profiles can't be "
				 "read: %.300s; mount securityfs on /sys/kernel/security",
				 name, why.text);
	*ret = has_line(&list, name);
	return 0;
}

static int open_parser(int root)
{
	static const char *const places[] = {"sbin/apparmor_parser", "usr/sbin/apparmor_parser"};
	int fd = -1;

	for (size_t i = 0; i < sizeof(places) / sizeof(places[0]) && fd < 0; i++)
		fd = fs_openat2(root, places[i], O_PATH, 0, 0);
	return fd;
}

static int load_default(int root, struct error *err)
{
	static const char *argv[] = {"apparmor_parser", "-Kr", NULL};
	cleanup_close int text = memfd_create("profile", MFD_CLOEXEC);
	cleanup_close int parser = open_parser(root);
	struct process_spec spec = {.exe_fd = parser, .argv = argv, .stdio = {text, -1, -1}};
	cleanup_close int pidfd = -1;
	siginfo_t end;
	pid_t pid;

	if (parser < 0)
		return error_set(err, ERR_PRECONDITION,
				 "apparmor profile " APPARMOR_DEFAULT
				 ": not loaded, and there is no "
				 "apparmor_parser to load it; install it");
	if (text < 0 || write(text, default_profile, strlen(default_profile)) < 0 ||
	    lseek(text, 0, SEEK_SET) < 0)
		return error_errno(err, errno, "hand over the default apparmor profile");
	TRY(process_start(&spec, &pidfd, &pid, err));
	while (waitid(P_PIDFD, (id_t)pidfd, &end, WEXITED) < 0 && errno == EINTR)
		;
	return 0;
}

int apparmor_need(int root, enum apparmor_kind kind, const char *profile, struct error *err)
{
	bool is_enabled = apparmor_is_enabled(root), is_there;
	const char *name = apparmor_name(kind, profile, is_enabled);

	if (!is_enabled && kind == APPARMOR_LOCALHOST)
		return error_set(
			err, ERR_INVALID,
			"apparmor profile %.200s: this node's kernel has no AppArmor, or it "
			"is off; run the pod on another node",
			profile);
	if (!name)
		return 0;
	TRY(is_loaded(root, name, &is_there, err));
	if (!is_there && kind == APPARMOR_RUNTIME_DEFAULT) {
		TRY(load_default(root, err));
		TRY(is_loaded(root, name, &is_there, err));
	}
	if (!is_there && kind == APPARMOR_RUNTIME_DEFAULT)
		return error_set(err, ERR_PRECONDITION,
				 "apparmor profile %s: apparmor_parser did not load it", name);
	if (!is_there)
		return error_set(err, ERR_INVALID,
				 "apparmor profile %.200s: it is not loaded on this node; load it "
				 "with apparmor_parser",
				 name);
	return 0;
}
