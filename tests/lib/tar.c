/* SPDX-License-Identifier: Apache-2.0 */
/* Tar by hand: ustar headers, PAX records, nothing else. */
#include "tests/lib/tar.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <cmocka.h>

#include <archive.h>
#include <archive_entry.h>
#include <stdio.h>
#include <string.h>

#define BLOCK 512

static void pad(struct buf *tar)
{
	size_t n = (BLOCK - tar->length % BLOCK) % BLOCK;

	memset(buf_reserve(tar, n + 1), 0, n + 1);
	tar->length += n;
}

static void add_header(struct buf *tar, const struct tar_entry *e)
{
	unsigned sum = 0;
	char *h;

	h = memset(buf_reserve(tar, BLOCK + 1), 0, BLOCK + 1);
	strncpy(h, e->name, 100);
	sprintf(h + 100, "%07o", e->mode ? e->mode & 07777 : 0644);
	sprintf(h + 108, "%07lo", e->uid);
	sprintf(h + 116, "%07lo", e->gid);
	sprintf(h + 124, "%011zo", e->size);
	sprintf(h + 136, "%011lo", e->mtime);
	memset(h + 148, ' ', 8);
	h[156] = e->type ? e->type : '0';
	strncpy(h + 157, e->link ? e->link : "", 100);
	memcpy(h + 257, "ustar\00000", 8);
	sprintf(h + 329, "%07o", e->major);
	sprintf(h + 337, "%07o", e->minor);
	for (int i = 0; i < BLOCK; i++)
		sum += (unsigned char)h[i];
	sprintf(h + 148, "%06o", sum);
	tar->length += BLOCK;
}

void tar_record(struct buf *pax, const char *key, const void *value, size_t n)
{
	size_t rest = strlen(key) + n + 3, digits = 1;
	char text[32];

	while ((size_t)snprintf(text, sizeof(text), "%zu", rest + digits) > digits)
		digits++;
	buf_printf(pax, "%zu %s=", rest + digits, key);
	buf_append(pax, value, n);
	buf_append(pax, "\n", 1);
}

void tar_add(struct buf *tar, const struct tar_entry *e)
{
	struct buf pax = {0};

	if (e->pax)
		buf_append(&pax, e->pax->data, e->pax->length);
	if (strlen(e->name) > 100)
		tar_record(&pax, "path", e->name, strlen(e->name));
	if (e->link && strlen(e->link) > 100)
		tar_record(&pax, "linkpath", e->link, strlen(e->link));
	if (pax.length) {
		add_header(tar,
			   &(struct tar_entry){.name = "pax", .type = 'x', .size = pax.length});
		buf_append(tar, pax.data, pax.length);
		pad(tar);
	}
	buf_done(&pax);
	add_header(tar, e);
	if (e->data)
		buf_append(tar, e->data, e->size);
	pad(tar);
}

void tar_end(struct buf *tar)
{
	memset(buf_reserve(tar, 2 * BLOCK), 0, 2 * BLOCK);
	tar->length += 2 * BLOCK;
}

static la_ssize_t append(struct archive *a, void *data, const void *bytes, size_t n)
{
	buf_append(data, bytes, n);
	return (la_ssize_t)n;
}

void compress_append(struct buf *to, const char *filter, const void *data, size_t n)
{
	struct archive *a = archive_write_new();
	struct archive_entry *e = archive_entry_new();

	assert_int_equal(archive_write_add_filter_by_name(a, filter), ARCHIVE_OK);
	assert_int_equal(archive_write_set_format_raw(a), ARCHIVE_OK);
	archive_write_set_bytes_per_block(a, 0);
	assert_int_equal(archive_write_open(a, to, NULL, append, NULL), ARCHIVE_OK);
	archive_entry_set_filetype(e, AE_IFREG);
	archive_entry_set_pathname(e, "raw");
	assert_int_equal(archive_write_header(a, e), ARCHIVE_OK);
	assert_int_equal(archive_write_data(a, data, n), n);
	assert_int_equal(archive_write_close(a), ARCHIVE_OK);
	archive_entry_free(e);
	archive_write_free(a);
}
