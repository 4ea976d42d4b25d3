/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The table of ends, in memory that two processes share. Peculiar: no locks. A writer
 * claims a slot by its number, writes the content, sets the new number; a reader that finds the
 * same number before and after copying has a whole record. A writer that is killed in between costs
 * the slot. The reader acknowledges by writing the number that it read, so a slot that was
 * meanwhile taken for another process isn't acknowledged by accident.
 */
#include "recovery/exit_records.h"

#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "io/base/alloc.h"

#define CLAIMED UINT32_MAX

struct slot {
	_Atomic uint32_t number; /* 0: empty; CLAIMED; else grows with every record */
	_Atomic uint32_t acknowledged;
	int32_t pid, status;
	uint64_t started;
	int64_t ended_at;
};

/* Rows come after each other, so that the first ones, which are all that is used on most nodes,
 * share few pages. */
struct table {
	_Atomic uint32_t rows_used; /* readers don't touch those below */
	_Atomic uint32_t last_number;
	struct slot slots[EXIT_ROWS][EXIT_COLUMNS];
};

struct exit_records {
	struct table *table;
};

int exit_record_status(const siginfo_t *info)
{
	switch (info->si_code) {
	case CLD_EXITED:
		return (info->si_status & 0xff) << 8;
	case CLD_DUMPED:
		return info->si_status | 0x80;
	default:
		return info->si_status;
	}
}

struct exit_records *exit_records_map(int fd, struct error *err)
{
	struct exit_records *x;
	struct stat st;
	void *p;

	if (fstat(fd, &st) < 0 || st.st_size != sizeof(struct table)) {
		error_set(err, ERR_INVALID,
			  "exit records: the keeper's table has another size: it is of another "
			  "version; restart it too");
		return NULL;
	}
	p = mmap(NULL, sizeof(struct table), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	if (p == MAP_FAILED) {
		error_errno(err, errno, "map the exit records");
		return NULL;
	}
	x = xnew(struct exit_records);
	x->table = p;
	return x;
}

struct exit_records *exit_records_new(int *ret_fd, struct error *err)
{
	int fd = memfd_create("crisp-exits", MFD_CLOEXEC);
	struct exit_records *x = NULL;

	if (fd < 0 || ftruncate(fd, sizeof(struct table)) < 0)
		error_errno(err, errno, "memory for exit records");
	else
		x = exit_records_map(fd, err);
	if (x)
		*ret_fd = fd;
	else if (fd >= 0)
		close(fd);
	return x;
}

void exit_records_unmap(struct exit_records *x)
{
	if (!x)
		return;
	munmap(x->table, sizeof(struct table));
	free(x);
}

static struct slot *slot_at(struct exit_records *x, unsigned row, pid_t pid)
{
	return &x->table->slots[row][(unsigned)pid % EXIT_COLUMNS];
}

/* A free slot in pid's column, else the oldest one, claimed; NULL when all are being written. */
static struct slot *slot_claim(struct exit_records *x, pid_t pid, unsigned *ret_row)
{
	struct slot *best = NULL;
	uint32_t best_number = 0, oldest = 0, last = atomic_load(&x->table->last_number);

	for (unsigned row = 0; row < EXIT_ROWS; row++) {
		struct slot *s = slot_at(x, row, pid);
		uint32_t number = atomic_load(&s->number);
		bool is_free = !number || atomic_load(&s->acknowledged) == number;

		/* a difference is right also after the numbers wrapped */
		if (number == CLAIMED || (best && !is_free && last - number <= oldest))
			continue;
		best = s;
		best_number = number;
		oldest = last - number;
		*ret_row = row;
		if (is_free)
			break;
	}
	if (!best || atomic_compare_exchange_strong(&best->number, &best_number, CLAIMED))
		return best;
	return slot_claim(x, pid, ret_row);
}

static uint32_t next_number(struct exit_records *x)
{
	uint32_t number;

	do
		number = atomic_fetch_add(&x->table->last_number, 1) + 1;
	while (number == 0 || number == CLAIMED);
	return number;
}

void exit_records_add(struct exit_records *x, const struct exit_record *record)
{
	unsigned row = 0, used;
	struct slot *s = slot_claim(x, record->pid, &row);

	if (!s)
		return;
	s->pid = record->pid;
	s->status = record->status;
	s->started = record->started;
	s->ended_at = record->ended_at;
	atomic_store(&s->acknowledged, 0);
	atomic_store(&s->number, next_number(x));
	used = atomic_load(&x->table->rows_used);
	while (row >= used && !atomic_compare_exchange_weak(&x->table->rows_used, &used, row + 1))
		;
}

/* The slot of that process and the number under which *ret was read, or NULL. */
static struct slot *slot_find(struct exit_records *x, pid_t pid, uint64_t started,
			      struct exit_record *ret, uint32_t *ret_number)
{
	unsigned rows = atomic_load(&x->table->rows_used);

	for (unsigned row = 0; row < rows && row < EXIT_ROWS; row++) {
		struct slot *s = slot_at(x, row, pid);
		uint32_t number = atomic_load(&s->number);

		if (!number || number == CLAIMED || s->pid != pid || s->started != started)
			continue;
		ret->pid = s->pid;
		ret->status = s->status;
		ret->started = s->started;
		ret->ended_at = s->ended_at;
		atomic_thread_fence(memory_order_acquire);
		if (atomic_load(&s->number) != number)
			continue;
		*ret_number = number;
		return s;
	}
	return NULL;
}

bool exit_records_find(struct exit_records *x, pid_t pid, uint64_t started, struct exit_record *ret)
{
	struct exit_record record;
	uint32_t number;

	if (!slot_find(x, pid, started, &record, &number))
		return false;
	*ret = record;
	return true;
}

void exit_records_acknowledge(struct exit_records *x, pid_t pid, uint64_t started)
{
	struct exit_record record;
	uint32_t number;
	struct slot *s = slot_find(x, pid, started, &record, &number);

	if (s)
		atomic_store(&s->acknowledged, number);
}
