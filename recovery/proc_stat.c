/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Parsing /proc/PID/stat. Peculiar: the second field is the program's name and may hold anything,
 * also parentheses and spaces, so fields are counted from the last ')'.
 */
#include "recovery/proc_stat.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* As proc(5) numbers them. */
#define FIELD_STARTTIME 22
#define FIELD_EXIT_CODE 52

int proc_stat_open(pid_t pid)
{
	char path[32];
	int fd;

	snprintf(path, sizeof(path), "/proc/%d/stat", pid);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	return fd < 0 ? -errno : fd;
}

int proc_stat_read(int fd, struct proc_stat *ret)
{
	char text[1024];
	ssize_t size = pread(fd, text, sizeof(text) - 1, 0);
	const char *p;
	struct proc_stat stat = {0};

	if (size < 0)
		return -errno;
	text[size] = '\0';
	p = strrchr(text, ')');
	if (!p)
		return -EPROTO;
	for (int field = 2; field < FIELD_EXIT_CODE; p++) {
		if (*p == '\0')
			return -EPROTO;
		if (*p != ' ')
			continue;
		field++;
		if (field == FIELD_STARTTIME)
			stat.started = strtoull(p + 1, NULL, 10);
		else if (field == FIELD_EXIT_CODE)
			stat.status = atoi(p + 1);
	}
	*ret = stat;
	return 0;
}
