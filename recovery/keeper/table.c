/* SPDX-License-Identifier: Apache-2.0 */
/* Kept descriptors. Peculiar: chains of a hash table run through the slots of the descriptors
 * themselves; number 0, which is never kept, ends them. */
#include "recovery/keeper/table.h"

#include <string.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "io/base/log.h"
#include "recovery/fdstore.h"

#define BUCKETS 16384

struct kept {
	char name[FDSTORE_NAME_MAX + 1]; /* "": nothing is kept at this number */
	uint16_t next;			 /* in its bucket, 0: last */
};

static struct kept table[KEEPER_FD_MAX];
static uint16_t buckets[BUCKETS];
static int end = TABLE_FIRST; /* all kept numbers are below */
static int limit;	      /* none is kept at or above */

void table_init(void)
{
	struct rlimit r;

	limit = KEEPER_FD_MAX - TABLE_SPARE;
	if (getrlimit(RLIMIT_NOFILE, &r) == 0 && r.rlim_cur < KEEPER_FD_MAX)
		limit = (int)r.rlim_cur - TABLE_SPARE;
}

int table_limit(void)
{
	return limit;
}

static uint16_t *bucket_of(const char *name)
{
	uint32_t hash = 2166136261u;

	for (; *name; name++)
		hash = (hash ^ (unsigned char)*name) * 16777619u;
	return &buckets[hash % BUCKETS];
}

void table_forget(const char *name)
{
	uint16_t *link = bucket_of(name);

	while (*link) {
		uint16_t fd = *link;

		if (strcmp(table[fd].name, name) != 0) {
			link = &table[fd].next;
			continue;
		}
		*link = table[fd].next;
		table[fd].name[0] = '\0';
		close(fd);
	}
}

void table_keep(const char *name, int fd)
{
	uint16_t *bucket = bucket_of(name);

	if (fd < TABLE_FIRST || fd >= limit) {
		log_error("keeper: %s is not kept: descriptors from %d on are refused; raise the "
			  "limit of open files",
			  name, limit);
		close(fd);
		return;
	}
	memcpy(table[fd].name, name, strlen(name) + 1);
	table[fd].next = *bucket;
	*bucket = (uint16_t)fd;
	if (fd >= end)
		end = fd + 1;
}

int table_find(const char *name)
{
	uint16_t fd = *bucket_of(name);

	while (fd && strcmp(table[fd].name, name) != 0)
		fd = table[fd].next;
	return fd ? fd : -1;
}

void table_close_others(void)
{
	unsigned first = TABLE_FIRST;

	for (int fd = table_next(TABLE_FIRST); fd >= 0; fd = table_next(fd + 1)) {
		if ((unsigned)fd > first)
			syscall(SYS_close_range, first, (unsigned)fd - 1, 0);
		first = (unsigned)fd + 1;
	}
	syscall(SYS_close_range, first, ~0u, 0);
}

int table_end(void)
{
	return end;
}

int table_next(int fd)
{
	for (; fd < end; fd++)
		if (table[fd].name[0])
			return fd;
	return -1;
}

const char *table_name(int fd)
{
	return table[fd].name;
}
