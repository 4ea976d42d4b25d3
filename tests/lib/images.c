/* SPDX-License-Identifier: Apache-2.0 */
/* Image archives for tests. */
#include "tests/lib/images.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <cmocka.h>

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "io/base/cleanup.h"
#include "io/base/error.h"
#include "io/fs.h"
#include "tests/lib/tar.h"

void fixture_layer_make(struct fixture_layer *l, const char *file, const char *text,
			const char *filter)
{
	CLEANUP(buf_done) struct buf tar = {0};

	*l = (struct fixture_layer){0};
	TAR(&tar, .name = file, .mode = 0644, .data = text, .size = strlen(text));
	tar_end(&tar);
	digest_of(tar.data, tar.length, l->diff_id);
	if (filter)
		compress_append(&l->blob, filter, tar.data, tar.length);
	else
		buf_append(&l->blob, tar.data, tar.length);
	digest_of(l->blob.data, l->blob.length, l->digest);
}

void fixture_layer_done(struct fixture_layer *l)
{
	buf_done(&l->blob);
}

void fixture_write(int dir, const char *path, const void *data, size_t n)
{
	char part[512];

	assert_true(strlen(path) < sizeof(part));
	for (const char *p = strchr(path, '/'); p; p = strchr(p + 1, '/')) {
		memcpy(part, path, (size_t)(p - path));
		part[p - path] = 0;
		assert_true(mkdirat(dir, part, 0755) == 0 || errno == EEXIST);
	}
	cleanup_close int fd = openat(dir, path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);

	assert_true(fd >= 0);
	assert_int_equal(write(fd, data, n), n);
}

static void write_blob(int dir, const void *data, size_t n, char ret[DIGEST_SIZE])
{
	char path[128];

	digest_of(data, n, ret);
	snprintf(path, sizeof(path), "blobs/sha256/%s", digest_hex(ret));
	fixture_write(dir, path, data, n);
}

void fixture_blob(int dir, const char *text, char ret[DIGEST_SIZE])
{
	char digest[DIGEST_SIZE];

	write_blob(dir, text, strlen(text), ret ? ret : digest);
}

void fixture_config(struct buf *ret, const struct fixture_layer *const *layers, size_t count,
		    const char *arch, const char *config)
{
	buf_printf(ret, "{\"architecture\":\"%s\",\"os\":\"linux\",\"config\":%s,", arch,
		   config ? config : "{}");
	buf_puts(ret, "\"rootfs\":{\"type\":\"layers\",\"diff_ids\":[");
	for (size_t i = 0; i < count; i++)
		buf_printf(ret, "%s\"%s\"", i ? "," : "", layers[i]->diff_id);
	buf_puts(ret, "]}}");
}

void fixture_descriptor(struct buf *ret, const char *type, const char *digest, size_t size,
			const char *name, const char *platform)
{
	buf_printf(ret, "{\"mediaType\":\"%s\",\"digest\":\"%s\",\"size\":%zu", type, digest, size);
	if (name)
		buf_printf(ret, ",\"annotations\":{\"io.containerd.image.name\":\"%s\"}", name);
	if (platform)
		buf_printf(ret, ",\"platform\":{\"os\":\"linux\",\"architecture\":\"%s\"}",
			   platform);
	buf_puts(ret, "}");
}

void fixture_oci_image(int dir, const struct fixture_layer *const *layers, size_t count,
		       const char *arch, const char *config, struct fixture_image *ret)
{
	CLEANUP(buf_done) struct buf text = {0};
	CLEANUP(buf_done) struct buf manifest = {0};
	char digest[DIGEST_SIZE];

	fixture_config(&text, layers, count, arch, config);
	write_blob(dir, text.data, text.length, ret->id);
	buf_puts(&manifest, "{\"schemaVersion\":2,\"mediaType\":\"" OCI_MANIFEST "\",\"config\":");
	fixture_descriptor(&manifest, OCI_CONFIG, ret->id, text.length, NULL, NULL);
	buf_puts(&manifest, ",\"layers\":[");
	for (size_t i = 0; i < count; i++) {
		buf_puts(&manifest, i ? "," : "");
		write_blob(dir, layers[i]->blob.data, layers[i]->blob.length, digest);
		fixture_descriptor(&manifest, OCI_LAYER, digest, layers[i]->blob.length, NULL,
				   NULL);
	}
	buf_puts(&manifest, "]}");
	write_blob(dir, manifest.data, manifest.length, ret->manifest);
	ret->manifest_size = manifest.length;
}

void fixture_index(int dir, const char *entries)
{
	static const char layout[] = "{\"imageLayoutVersion\":\"1.0.0\"}";
	CLEANUP(buf_done) struct buf index = {0};

	buf_printf(&index, "{\"schemaVersion\":2,\"manifests\":[%s]}", entries);
	fixture_write(dir, "index.json", index.data, index.length);
	fixture_write(dir, "oci-layout", layout, strlen(layout));
}

static void pack_dir(int dir, const char *prefix, struct buf *tar)
{
	int fd = openat(dir, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	cleanup_closedir DIR *stream = fdopendir(fd);
	struct dirent *e;

	while ((e = readdir(stream))) {
		CLEANUP(buf_done) struct buf data = {0};
		CLEANUP(buf_done) struct buf name = {0};
		struct error err;
		struct stat st;

		if (!strcmp(e->d_name, ".") || !strcmp(e->d_name, ".."))
			continue;
		assert_int_equal(fstatat(fd, e->d_name, &st, AT_SYMLINK_NOFOLLOW), 0);
		buf_printf(&name, "%s%s", prefix, e->d_name);
		if (S_ISDIR(st.st_mode)) {
			cleanup_close int sub =
				openat(fd, e->d_name, O_RDONLY | O_DIRECTORY | O_CLOEXEC);

			buf_puts(&name, "/");
			TAR(tar, .name = name.data, .type = '5', .mode = 0755);
			pack_dir(sub, name.data, tar);
			continue;
		}
		assert_int_equal(fs_read_at(fd, e->d_name, 1 << 26, &data, &err), 0);
		TAR(tar, .name = name.data, .mode = 0644, .data = data.data, .size = data.length);
	}
}

void fixture_pack(int dir, const char *filter, struct buf *ret)
{
	CLEANUP(buf_done) struct buf tar = {0};

	pack_dir(dir, "", &tar);
	tar_end(&tar);
	if (filter)
		compress_append(ret, filter, tar.data, tar.length);
	else
		buf_append(ret, tar.data, tar.length);
}
