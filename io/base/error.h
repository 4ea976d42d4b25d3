/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The one idiom for errors. A function that can fail returns 0 or -ERR_x and fills a struct error
 * that its caller gave. Text: "what on what: why; what to do", lower case, no full stop. Functions
 * either report or log, never both: the edge (a CRI handler, recovery) logs once.
 *
 * An errno never becomes a contract error by accident: error_errno() gives ERR_INTERNAL (or
 * ERR_EXHAUSTED for a full disk, table or memory). ERR_NOT_FOUND is said only by the lookup that
 * owns the name; else a missing sysfs file would tell the kubelet that its pod is gone.
 */
#pragma once

enum err {
	ERR_OK = 0,
	ERR_NOT_FOUND,
	ERR_EXISTS,
	ERR_INVALID,	  /* the caller's input is wrong */
	ERR_PRECONDITION, /* right input, wrong state */
	ERR_EXHAUSTED,
	ERR_DEADLINE,
	ERR_CANCELLED,
	ERR_UNAVAILABLE, /* try again later */
	ERR_DENIED,
	ERR_UNIMPLEMENTED,
	ERR_INTERNAL,
};

struct error {
	enum err code;
	int sys; /* errno of the failing call, or 0 */
	char text[768];
};

/* The enum's word, "not found" for instance. */
const char *err_name(enum err code);

/* Sets code and text, returns -code. err may be NULL. */
int error_set(struct error *err, enum err code, const char *format, ...)
	__attribute__((format(printf, 3, 4)));

/* The same for a failed system call: ": " and strerror(sys) are appended. */
int error_errno(struct error *err, int sys, const char *format, ...)
	__attribute__((format(printf, 3, 4)));

/* Prepends "outer: " to the text of an error that is set; code stays. Returns -code. */
int error_wrap(struct error *err, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* Copies from to to and returns -code, to pass an error on. */
int error_copy(struct error *to, const struct error *from);

/* TRY(call): returns call's negative result from the caller. Only as a whole statement. */
#define TRY(call)                                                                                  \
	do {                                                                                       \
		int try_result_ = (call);                                                          \
		if (try_result_ < 0)                                                               \
			return try_result_;                                                        \
	} while (0)
