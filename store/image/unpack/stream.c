/* SPDX-License-Identifier: Apache-2.0 */
/* Streams. Peculiar: libarchive decompresses as an archive of format "raw", and a second one reads
 * the tar from that, so that the digest between them can be taken. */
#include "store/image/unpack/stream.h"

#include <archive.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "io/base/alloc.h"

/* gzip can't shrink more than 1,032 times; what does is a bomb */
#define RATIO_MAX 2000
#define RATIO_FREE (256 * 1024 * 1024ull)

static ssize_t read_block(struct stream *s)
{
	ssize_t n;

	do {
		n = read(s->fd, s->block, STREAM_BLOCK);
	} while (n < 0 && errno == EINTR);
	if (n < 0)
		return error_errno(s->err, errno, "read the stream");
	s->in_bytes += (uint64_t)n;
	return n;
}

static ssize_t read_raw(struct archive *raw, void *data, const void **ret)
{
	struct stream *s = data;
	ssize_t n = (ssize_t)s->first;

	*ret = s->block;
	s->first = 0;
	if (n == 0)
		n = read_block(s);
	if (n < 0) {
		archive_set_error(raw, EIO, "%s", s->err->text);
		return ARCHIVE_FATAL;
	}
	digest_add(s->in, s->block, (size_t)n);
	return n;
}

static const struct {
	const char *magic;
	size_t length;
	const char *name;
	bool is_known;
} compressions[] = {
	{"\x1f\x8b", 2, "gzip", true},
	{"\x28\xb5\x2f\xfd", 4, "zstd", true},
	{"\xfd"
	 "7zXZ\0",
	 6, "xz", false},
	{"BZh", 3, "bzip2", false},
	{"\x04\x22\x4d\x18", 4, "lz4", false},
};

/* 1 compressed, 0 plain. */
static int find_compression(const struct stream *s)
{
	for (size_t i = 0; i < sizeof(compressions) / sizeof(*compressions); i++) {
		if (s->first < compressions[i].length ||
		    memcmp(s->block, compressions[i].magic, compressions[i].length) != 0)
			continue;
		if (!compressions[i].is_known)
			return error_set(s->err, ERR_INVALID,
					 "compressed with %s: only plain, gzip and zstd are read",
					 compressions[i].name);
		return 1;
	}
	/* frames that a reader skips; their second half of the magic is fixed */
	if (s->first >= 4 && (s->block[0] & 0xf0) == 0x50 &&
	    !memcmp(s->block + 1, "\x2a\x4d\x18", 3))
		return error_set(s->err, ERR_INVALID, "zstd: it begins with a skippable frame");
	return 0;
}

static int raw_error(struct stream *s, const char *what)
{
	const char *why = archive_error_string(s->raw);

	return error_set(s->err, ERR_INVALID, "%s: %s", what, why ? why : "unknown");
}

static int open_raw(struct stream *s)
{
	struct archive_entry *entry;
	int r;

	s->in = digest_new();
	s->raw = archive_read_new();
	if (!s->raw)
		return error_set(s->err, ERR_EXHAUSTED, "decompressor: no memory");
	if (archive_read_support_filter_gzip(s->raw) != ARCHIVE_OK ||
	    archive_read_support_filter_zstd(s->raw) != ARCHIVE_OK ||
	    archive_read_support_format_raw(s->raw) != ARCHIVE_OK ||
	    archive_read_support_format_empty(s->raw) != ARCHIVE_OK)
		return error_set(s->err, ERR_INTERNAL, "libarchive lacks gzip or zstd");
	if (archive_read_open(s->raw, s, NULL, read_raw, NULL) != ARCHIVE_OK)
		return raw_error(s, "decompress");
	r = archive_read_next_header(s->raw, &entry);
	s->is_read = r == ARCHIVE_EOF;
	return r == ARCHIVE_OK || r == ARCHIVE_EOF ? 0 : raw_error(s, "decompress");
}

int stream_open(struct stream *s, int fd, uint64_t max_bytes, struct error *err)
{
	ssize_t n;
	int r;

	*s = (struct stream){.fd = fd, .max_bytes = max_bytes, .err = err};
	s->out = digest_new();
	s->block = xmalloc(STREAM_BLOCK);
	n = read_block(s);
	if (n < 0)
		return (int)n;
	s->first = (size_t)n;
	r = find_compression(s);
	return r == 1 ? open_raw(s) : r;
}

/* Decompressed bytes, or 0 at an end that nothing follows. */
static ssize_t next_raw(struct stream *s, const void **ret)
{
	la_int64_t offset;
	size_t n = 0;
	int r;

	do {
		r = archive_read_data_block(s->raw, ret, &n, &offset);
	} while (r == ARCHIVE_OK && n == 0);
	if (r == ARCHIVE_OK)
		return (ssize_t)n;
	if (r != ARCHIVE_EOF)
		return raw_error(s, "decompress");
	if (archive_filter_bytes(s->raw, -1) != (la_int64_t)s->in_bytes)
		return error_set(s->err, ERR_INVALID,
				 "decompress: bytes behind the end of the compressed data");
	return 0;
}

ssize_t stream_next(struct stream *s, const void **ret)
{
	ssize_t n;

	if (s->is_read)
		return 0;
	if (s->raw) {
		n = next_raw(s, ret);
	} else {
		n = s->first ? (ssize_t)s->first : read_block(s);
		s->first = 0;
		*ret = s->block;
	}
	if (n <= 0) {
		s->is_read = n == 0;
		return n;
	}
	s->out_bytes += (uint64_t)n;
	if (s->out_bytes > s->max_bytes)
		return error_set(s->err, ERR_INVALID,
				 "it unpacks to more than the limit of %llu bytes",
				 (unsigned long long)s->max_bytes);
	if (s->out_bytes > RATIO_FREE && s->out_bytes / RATIO_MAX > s->in_bytes)
		return error_set(s->err, ERR_INVALID, "it unpacks to more than %d times its size",
				 RATIO_MAX);
	digest_add(s->out, *ret, (size_t)n);
	return n;
}

int stream_end(struct stream *s, char digest[DIGEST_SIZE], char diff_id[DIGEST_SIZE])
{
	const void *data;
	ssize_t n;

	do {
		n = stream_next(s, &data);
	} while (n > 0);
	if (n < 0)
		return (int)n;
	n = s->raw ? read_block(s) : 0;
	if (n != 0)
		return n < 0 ? (int)n
			     : error_set(s->err, ERR_INVALID,
					 "decompress: bytes behind the end of the compressed data");
	digest_end(s->out, diff_id);
	if (s->in)
		digest_end(s->in, digest);
	else
		memcpy(digest, diff_id, DIGEST_SIZE);
	archive_read_free(s->raw);
	free(s->block);
	return 0;
}
