/* SPDX-License-Identifier: Apache-2.0 */
/* Error values. Peculiar: text is cut, never allocated, so that reporting works without memory. */
#include "io/base/error.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

static const char *const names[] = {
	[ERR_OK] = "ok",
	[ERR_NOT_FOUND] = "not found",
	[ERR_EXISTS] = "already exists",
	[ERR_INVALID] = "invalid",
	[ERR_PRECONDITION] = "failed precondition",
	[ERR_EXHAUSTED] = "exhausted",
	[ERR_DEADLINE] = "deadline exceeded",
	[ERR_CANCELLED] = "cancelled",
	[ERR_UNAVAILABLE] = "unavailable",
	[ERR_DENIED] = "denied",
	[ERR_UNIMPLEMENTED] = "unimplemented",
	[ERR_INTERNAL] = "internal",
};

const char *err_name(enum err code)
{
	return names[code];
}

int error_set(struct error *err, enum err code, const char *format, ...)
{
	va_list args;

	if (!err)
		return -(int)code;
	err->code = code;
	err->sys = 0;
	va_start(args, format);
	vsnprintf(err->text, sizeof(err->text), format, args);
	va_end(args);
	return -(int)code;
}

static enum err code_of_errno(int sys)
{
	switch (sys) {
	case ENOSPC:
	case EDQUOT:
	case ENOMEM:
	case EMFILE:
	case ENFILE:
	case EAGAIN: /* clone(2): the pids limit */
		return ERR_EXHAUSTED;
	default:
		return ERR_INTERNAL;
	}
}

int error_errno(struct error *err, int sys, const char *format, ...)
{
	enum err code = code_of_errno(sys);
	va_list args;
	size_t n;

	if (!err)
		return -(int)code;
	err->code = code;
	err->sys = sys;
	va_start(args, format);
	vsnprintf(err->text, sizeof(err->text), format, args);
	va_end(args);
	n = strlen(err->text);
	snprintf(err->text + n, sizeof(err->text) - n, ": %s",
		 strerrordesc_np(sys) ?: "unknown error");
	return -(int)code;
}

int error_wrap(struct error *err, const char *format, ...)
{
	char inner[sizeof(err->text)];
	va_list args;
	size_t n;

	if (!err)
		return -ERR_INTERNAL;
	memcpy(inner, err->text, sizeof(inner));
	va_start(args, format);
	vsnprintf(err->text, sizeof(err->text), format, args);
	va_end(args);
	n = strlen(err->text);
	snprintf(err->text + n, sizeof(err->text) - n, ": %s", inner);
	return -(int)err->code;
}

int error_copy(struct error *to, const struct error *from)
{
	if (to)
		*to = *from;
	return -(int)from->code;
}
