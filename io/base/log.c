/* SPDX-License-Identifier: Apache-2.0 */
/* logfmt log on stderr. The message is quoted, control characters in it are escaped. */
#include "io/base/log.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

static const char *const names[] = {"debug", "info", "warning", "error"};
static enum log_level minimum = LOG_INFO;

void log_set_level(enum log_level level)
{
	minimum = level;
}

int log_level_parse(const char *name)
{
	for (int i = 0; i < (int)(sizeof(names) / sizeof(names[0])); i++)
		if (!strcmp(names[i], name))
			return i;
	return -1;
}

static size_t quote(char *to, size_t size, const char *s)
{
	size_t n = 0;

	for (; *s && n + 5 < size; s++) {
		unsigned char c = (unsigned char)*s;

		if (c == '"' || c == '\\') {
			to[n++] = '\\';
			to[n++] = (char)c;
		} else if (c < 0x20 || c == 0x7f) {
			n += (size_t)snprintf(to + n, size - n, "\\x%02x", c);
		} else {
			to[n++] = (char)c;
		}
	}
	return n;
}

void log_line(enum log_level level, const char *format, ...)
{
	char message[1024], line[1400];
	struct timespec now;
	struct tm tm;
	va_list args;
	size_t n;

	if (level < minimum)
		return;
	va_start(args, format);
	vsnprintf(message, sizeof(message), format, args);
	va_end(args);
	clock_gettime(CLOCK_REALTIME, &now);
	gmtime_r(&now.tv_sec, &tm);
	n = strftime(line, sizeof(line), "time=%Y-%m-%dT%H:%M:%S", &tm);
	n += (size_t)snprintf(line + n, sizeof(line) - n, ".%06ldZ level=%s msg=\"",
			      now.tv_nsec / 1000, names[level]);
	n += quote(line + n, sizeof(line) - n - 2, message);
	line[n++] = '"';
	line[n++] = '\n';
	/* nowhere to report a failure to */
	(void)!write(STDERR_FILENO, line, n);
}
