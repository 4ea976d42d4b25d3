/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The process's log: logfmt lines on stderr, one write(2) each. Handlers and recovery log; what
 * lies below them reports by struct error and logs at debug at the most.
 */
#pragma once

enum log_level { LOG_DEBUG, LOG_INFO, LOG_WARNING, LOG_ERROR };

/* Lines below the level are dropped. Default LOG_INFO. */
void log_set_level(enum log_level level);
/* "debug", "info", "warning" or "error"; -1 when it is none of them. */
int log_level_parse(const char *name);
void log_line(enum log_level level, const char *format, ...) __attribute__((format(printf, 2, 3)));

#define log_debug(...) log_line(LOG_DEBUG, __VA_ARGS__)
#define log_info(...) log_line(LOG_INFO, __VA_ARGS__)
#define log_warning(...) log_line(LOG_WARNING, __VA_ARGS__)
#define log_error(...) log_line(LOG_ERROR, __VA_ARGS__)
