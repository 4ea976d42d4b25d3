/* SPDX-License-Identifier: Apache-2.0 */
/* The conversation with the init helper, and its failures as sentences. */
#include <errno.h>
#include <string.h>
#include <sys/socket.h>

#include "io/base/cleanup.h"
#include "io/base/fault.h"
#include "sandbox/linux/kind.h"

static const char *const step_texts[] = {
#define INIT_STEP_TEXT(name, text) [name] = text,
	INIT_STEPS(INIT_STEP_TEXT)
#undef INIT_STEP_TEXT
};

static int exec_error(const struct init_report *report, const char *what, struct error *err)
{
	const char *hint = "";

	if (report->error == ENOENT && !strchr(report->path, '/'))
		hint = " in the image's PATH";
	else if (report->error == ENOENT)
		hint = ", or its interpreter is missing";
	error_set(err, ERR_INVALID, "%s: exec \"%s\": %s%s", what, report->path,
		  report->error == ENOENT ? "no such file or directory"
					  : strerrordesc_np(report->error) ?: "unknown error",
		  hint);
	err->sys = report->error;
	return -(int)err->code;
}

int control_error(const struct init_report *report, const char *what, struct error *err)
{
	if (report->step >= STEP_COUNT)
		return error_set(err, ERR_INTERNAL, "%s: the init helper failed at step %u", what,
				 report->step);
	if (report->step == STEP_EXEC)
		return exec_error(report, what, err);
	/* what the image or the request is to blame for */
	if (report->step == STEP_MOUNT_PROC || report->step == STEP_CWD_OUTSIDE ||
	    (report->step == STEP_STDIO && report->error == ENOENT) ||
	    report->error == ENAMETOOLONG || report->error == EROFS || report->error == ELOOP ||
	    report->error == ENOTDIR || report->error == EISDIR) {
		error_set(err, ERR_INVALID, "%s: %s %s: %s", what, step_texts[report->step],
			  report->path, strerrordesc_np(report->error) ?: "unknown error");
		err->sys = report->error;
		return -(int)err->code;
	}
	return error_errno(err, report->error, "%s: %s%s%s", what, step_texts[report->step],
			   report->path[0] ? " " : "", report->path);
}

static int take_descriptor(struct msghdr *message)
{
	struct cmsghdr *c = CMSG_FIRSTHDR(message);
	int fd;

	if (!c || c->cmsg_level != SOL_SOCKET || c->cmsg_type != SCM_RIGHTS ||
	    c->cmsg_len != CMSG_LEN(sizeof(int)))
		return -1;
	memcpy(&fd, CMSG_DATA(c), sizeof(fd));
	return fd;
}

int control_wait(struct task *t, int control, const char *what, enum control_event *ret_event,
		 int *ret_master)
{
	struct init_report report;
	struct iovec iov = {.iov_base = &report, .iov_len = sizeof(report)};
	union {
		struct cmsghdr header;
		char space[CMSG_SPACE(sizeof(int))];
	} space;
	struct msghdr message = {.msg_iov = &iov,
				 .msg_iovlen = 1,
				 .msg_control = &space,
				 .msg_controllen = sizeof(space)};
	ssize_t n;
	int fd;

	while ((n = recvmsg(control, &message, MSG_CMSG_CLOEXEC)) < 0 &&
	       (errno == EAGAIN || errno == EINTR))
		TRY(task_wait_fd(t, control, LOOP_READ));
	/* a helper that died without a word leaves what we had not sent as ECONNRESET */
	if (n == 0 || (n < 0 && errno == ECONNRESET)) {
		*ret_event = CONTROL_CLOSED;
		return 0;
	}
	if (n != sizeof(report))
		return error_errno(&t->err, n < 0 ? errno : EBADMSG, "%s: hear the init helper",
				   what);
	fd = take_descriptor(&message);
	if (fd >= 0 && ret_master)
		*ret_master = fd;
	else
		close_fd(fd);
	report.path[sizeof(report.path) - 1] = 0;
	if (report.message == INIT_FAILED)
		return control_error(&report, what, &t->err);
	*ret_event = CONTROL_READY;
	return 0;
}

int control_go(int control, struct error *err)
{
	struct init_report go = {.message = INIT_GO};

	if (send(control, &go, sizeof(go), MSG_NOSIGNAL) < 0 && errno != EPIPE &&
	    errno != ECONNRESET)
		return error_errno(err, errno, "let the init helper go on");
	FAULT(process_released);
	return 0;
}
