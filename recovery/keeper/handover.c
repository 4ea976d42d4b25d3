/* SPDX-License-Identifier: Apache-2.0 */
/* Handing over. Peculiar: a check changes nothing, as it is made by another process that only has
 * the same descriptors while the keeper goes on. */
#include "recovery/keeper/handover.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "recovery/keeper/table.h"

/* More than a version adds to a header or an entry. */
#define SIZE_MAX_KNOWN 4096

static int write_all(const void *data, size_t size, off_t at, struct error *err)
{
	if (pwrite(KEEPER_STATE_FD, data, size, at) != (ssize_t)size)
		return error_errno(err, errno, "keeper: write what is handed over");
	return 0;
}

static int write_entries(off_t at, uint32_t *ret_count, struct error *err)
{
	static struct handover_entry batch[64];
	size_t used = 0;

	*ret_count = 0;
	for (int fd = table_next(TABLE_FIRST); fd >= 0; fd = table_next(fd + 1)) {
		memset(&batch[used], 0, sizeof(*batch));
		batch[used].fd = fd;
		memcpy(batch[used].name, table_name(fd), strlen(table_name(fd)));
		++*ret_count;
		if (++used < sizeof(batch) / sizeof(*batch))
			continue;
		TRY(write_all(batch, sizeof(batch), at, err));
		at += (off_t)sizeof(batch);
		used = 0;
	}
	return write_all(batch, used * sizeof(*batch), at, err);
}

int handover_write(const struct handover *state, struct error *err)
{
	struct handover h = *state;

	memcpy(h.magic, HANDOVER_MAGIC, sizeof(h.magic));
	h.version = HANDOVER_VERSION;
	h.header_size = sizeof(h);
	h.entry_size = sizeof(struct handover_entry);
	if (ftruncate(KEEPER_STATE_FD, 0) < 0)
		return error_errno(err, errno, "keeper: empty what is handed over");
	TRY(write_entries(sizeof(h), &h.entry_count, err));
	return write_all(&h, sizeof(h), 0, err);
}

/* Reads what both versions know of something; the rest is zero. */
static int read_known(void *to, size_t size, uint32_t written, uint64_t at, struct error *err)
{
	size_t known = written < size ? written : size;

	memset(to, 0, size);
	if (pread(KEEPER_STATE_FD, to, known, (off_t)at) != (ssize_t)known)
		return error_set(err, ERR_INVALID, "keeper: what is handed over is cut short");
	return 0;
}

static int read_entry(const struct handover *h, uint32_t number, struct handover_entry *ret,
		      struct error *err)
{
	uint64_t at = h->header_size + (uint64_t)number * h->entry_size;

	TRY(read_known(ret, sizeof(*ret), h->entry_size, at, err));
	if (ret->fd < TABLE_FIRST || ret->fd >= table_limit() || !ret->name[0] ||
	    ret->name[FDSTORE_NAME_MAX])
		return error_set(err, ERR_INVALID, "keeper: entry %u of what is handed over",
				 number);
	return 0;
}

static int check_header(struct handover *h, struct error *err)
{
	TRY(read_known(h, sizeof(*h), sizeof(*h), 0, err));
	if (memcmp(h->magic, HANDOVER_MAGIC, sizeof(h->magic)) != 0)
		return error_set(err, ERR_INVALID, "keeper: what is handed over is no keeper's");
	if (h->version != HANDOVER_VERSION)
		return error_set(err, ERR_INVALID,
				 "keeper: what is handed over is of version %u, and this program "
				 "knows %u",
				 h->version, HANDOVER_VERSION);
	if (h->header_size > SIZE_MAX_KNOWN || h->entry_size > SIZE_MAX_KNOWN ||
	    h->entry_count > KEEPER_FD_MAX)
		return error_set(err, ERR_INVALID, "keeper: sizes of what is handed over");
	return read_known(h, sizeof(*h), h->header_size, 0, err);
}

int handover_check(struct handover *ret, struct error *err)
{
	TRY(check_header(ret, err));
	for (int fd = 3; fd < TABLE_FIRST; fd++)
		if (fcntl(fd, F_GETFD) < 0)
			return error_errno(err, errno, "keeper: descriptor %d of its own", fd);
	for (uint32_t i = 0; i < ret->entry_count; i++) {
		struct handover_entry entry;

		TRY(read_entry(ret, i, &entry, err));
		if (fcntl(entry.fd, F_GETFD) < 0)
			return error_errno(err, errno, "keeper: descriptor %d, %s", entry.fd,
					   entry.name);
	}
	return 0;
}

void handover_take(const struct handover *state)
{
	struct handover_entry entry;

	for (uint32_t i = 0; i < state->entry_count; i++)
		if (read_entry(state, i, &entry, NULL) == 0)
			table_keep(entry.name, entry.fd);
	table_close_others();
}
