/* SPDX-License-Identifier: Apache-2.0 */
/* store/image/plan and config: what archives are understood, what ambiguous or damaged ones say. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "io/base/buf.h"
#include "io/base/cleanup.h"
#include "io/fs.h"
#include "store/image/config.h"
#include "store/image/plan.h"
#include "tests/lib/images.h"
#include "tests/lib/group.h"

static char top_path[] = "/tmp/crisp-test-plan-XXXXXX";
static int top, dir;
static struct fixture_layer base, extra;
static const struct fixture_layer *const layers[] = {&base, &extra};
static struct plan *plan;
static struct error err;

static int setup(void **state)
{
	struct error e;

	fs_remove_tree_blocking(top, "a", &e);
	mkdirat(top, "a", 0755);
	dir = openat(top, "a", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	return dir < 0 ? -1 : 0;
}

static int teardown(void **state)
{
	plan_free(plan);
	plan = NULL;
	close(dir);
	return fs_remove_tree_blocking(top, "a", &err);
}

static void read_ok(void)
{
	plan_free(plan);
	plan = NULL;
	if (plan_read(dir, NULL, &plan, &err) < 0)
		fail_msg("refused: %s", err.text);
}

static void read_bad(const char *what)
{
	struct plan *p;

	assert_int_equal(plan_read(dir, NULL, &p, &err), -ERR_INVALID);
	if (!strstr(err.text, what))
		fail_msg("says \"%s\", not \"%s\"", err.text, what);
}

static void put(const char *path, const char *text)
{
	fixture_write(dir, path, text, strlen(text));
}

/* An index of one entry. */
static void put_index(const char *type, const char *digest, size_t size, const char *name)
{
	CLEANUP(buf_done) struct buf entry = {0};

	fixture_descriptor(&entry, type, digest, size, name, NULL);
	fixture_index(dir, entry.data);
}

static void test_oci(void **state)
{
	struct fixture_image img;
	char chain[DIGEST_SIZE], digest_ref[200];
	struct plan_image *p;

	fixture_oci_image(dir, layers, 2, image_architecture, NULL, &img);
	put_index(OCI_MANIFEST, img.manifest, img.manifest_size, "busybox:1");
	read_ok();
	assert_int_equal(plan->count, 1);
	p = plan->images;
	assert_string_equal(p->id, img.id);
	assert_string_equal(p->manifest_digest, img.manifest);
	assert_int_equal(p->repo_tags.count, 1);
	assert_string_equal(p->repo_tags.items[0], "docker.io/library/busybox:1");
	snprintf(digest_ref, sizeof(digest_ref), "docker.io/library/busybox@%s", img.manifest);
	assert_string_equal(p->repo_digests.items[0], digest_ref);
	assert_int_equal(p->layer_count, 2);
	assert_string_equal(p->layers[0].chain_id, base.diff_id);
	digest_chain(base.diff_id, extra.diff_id, chain);
	assert_string_equal(p->layers[1].chain_id, chain);
	assert_string_equal(p->layers[1].digest, extra.digest);
	assert_int_equal(p->layers[1].size, extra.blob.length);
}

static void test_oci_names(void **state)
{
	CLEANUP(buf_done) struct buf entries = {0};
	struct fixture_image img;
	char text[400];
	const char *more[] = {"quay.io/x/y:z"};
	struct string_list names = {.items = more, .count = 1};

	fixture_oci_image(dir, layers, 1, image_architecture, NULL, &img);
	/* the same image under two names is one image */
	fixture_descriptor(&entries, OCI_MANIFEST, img.manifest, img.manifest_size, "a:1", NULL);
	buf_puts(&entries, ",");
	fixture_descriptor(&entries, OCI_MANIFEST, img.manifest, img.manifest_size, "a:2", NULL);
	fixture_index(dir, entries.data);
	read_ok();
	assert_int_equal(plan->count, 1);
	assert_int_equal(plan->images->repo_tags.count, 2);
	assert_int_equal(plan->images->repo_digests.count, 1);
	plan_free(plan);
	plan = NULL;
	assert_int_equal(plan_read(dir, &names, &plan, &err), 0);
	assert_int_equal(plan->images->repo_tags.count, 3);
	/* a full reference in the specification's own annotation counts, a bare tag does not */
	snprintf(text, sizeof(text),
		 "{\"mediaType\":\"" OCI_MANIFEST "\",\"digest\":\"%s\",\"size\":%zu,"
		 "\"annotations\":{\"org.opencontainers.image.ref.name\":\"%s\"}}",
		 img.manifest, img.manifest_size, "registry.k8s.io/pause:3.9");
	fixture_index(dir, text);
	read_ok();
	assert_string_equal(plan->images->repo_tags.items[0], "registry.k8s.io/pause:3.9");
	snprintf(text, sizeof(text),
		 "{\"mediaType\":\"" OCI_MANIFEST "\",\"digest\":\"%s\",\"size\":%zu,"
		 "\"annotations\":{\"org.opencontainers.image.ref.name\":\"latest\"}}",
		 img.manifest, img.manifest_size);
	fixture_index(dir, text);
	read_ok();
	assert_int_equal(plan->images->repo_tags.count, 0);
	/* a name with a digest that is another's */
	snprintf(text, sizeof(text), "busybox@%s", img.id);
	put_index(OCI_MANIFEST, img.manifest, img.manifest_size, text);
	read_bad("has the digest");
	snprintf(text, sizeof(text), "busybox@%s", img.manifest);
	put_index(OCI_MANIFEST, img.manifest, img.manifest_size, text);
	read_ok();
	assert_int_equal(plan->images->repo_tags.count, 0);
	assert_int_equal(plan->images->repo_digests.count, 1);
	put_index(OCI_MANIFEST, img.manifest, img.manifest_size, "Not A Name");
	read_bad("reference");
}

static void test_oci_platforms(void **state)
{
	CLEANUP(buf_done) struct buf inner = {0};
	CLEANUP(buf_done) struct buf top_entry = {0};
	struct fixture_image ours, other;
	char digest[DIGEST_SIZE];

	fixture_oci_image(dir, layers, 1, "mips", NULL, &other);
	fixture_oci_image(dir, layers, 2, image_architecture, NULL, &ours);
	buf_puts(&inner, "{\"schemaVersion\":2,\"mediaType\":\"" OCI_INDEX "\",\"manifests\":[");
	fixture_descriptor(&inner, OCI_MANIFEST, other.manifest, other.manifest_size, NULL, "mips");
	buf_puts(&inner, ",");
	fixture_descriptor(&inner, OCI_MANIFEST, ours.manifest, ours.manifest_size, NULL,
			   image_architecture);
	buf_puts(&inner, ",");
	fixture_descriptor(&inner, OCI_MANIFEST, base.digest, 77, NULL, "unknown");
	buf_puts(&inner, "]}");
	fixture_blob(dir, inner.data, digest);
	put_index(OCI_INDEX, digest, inner.length, "multi");
	read_ok();
	assert_int_equal(plan->count, 1);
	assert_string_equal(plan->images->id, ours.id);
	/* the name stands for the index */
	assert_non_null(strstr(plan->images->repo_digests.items[0], digest));
	assert_string_equal(plan->images->manifest_digest, ours.manifest);
	/* nothing for us: in the index, in the archive, or found out by the configuration only */
	fixture_descriptor(&top_entry, OCI_MANIFEST, other.manifest, other.manifest_size, "x",
			   "mips");
	fixture_index(dir, top_entry.data);
	read_bad("no image for linux/");
	put_index(OCI_MANIFEST, other.manifest, other.manifest_size, "x");
	read_bad("image is for linux/mips");
}

/* A manifest whose text is fully ours. */
static void put_manifest(const char *text, const char *type)
{
	char digest[DIGEST_SIZE];

	fixture_blob(dir, text, digest);
	put_index(type, digest, strlen(text), "x");
}

static void test_oci_refused(void **state)
{
	CLEANUP(buf_done) struct buf bomb = {0};
	struct fixture_image img;
	char text[600], path[128];

	fixture_oci_image(dir, layers, 1, image_architecture, NULL, &img);
	/* the descriptor's promises */
	put_index(OCI_MANIFEST, img.manifest, img.manifest_size + 1, "x");
	read_bad("damaged");
	put_index(OCI_MANIFEST, "sha256:../../../../etc/passwd", 3, "x");
	read_bad("64 hex digits");
	put_index(OCI_MANIFEST, base.diff_id + 1, 3, "x");
	read_bad("64 hex digits");
	put_index(OCI_MANIFEST, img.manifest, 5 << 20, "x");
	read_bad("at most");
	put_index("application/vnd.example+json", img.manifest, img.manifest_size, "x");
	read_bad("media type");
	put_index(OCI_MANIFEST, extra.digest, 12, "x");
	read_bad("not there");
	/* ambiguous documents (GHSA-5j5w-g665-5m35) */
	put_manifest("{\"mediaType\":\"" OCI_MANIFEST "\",\"layers\":[],\"manifests\":[]}",
		     OCI_MANIFEST);
	read_bad("both layers and manifests");
	put_manifest("{\"mediaType\":\"" OCI_INDEX "\",\"layers\":[]}", OCI_MANIFEST);
	read_bad("its own mediaType");
	put_manifest("{\"manifests\":[]}", OCI_MANIFEST);
	read_bad("no layers");
	put_manifest("{\"a\":1,\"a\":2}", OCI_MANIFEST);
	read_bad("duplicate");
	put_manifest("[]", OCI_MANIFEST);
	read_bad("no layers");
	/* no container image, or one of an unknown kind of layers */
	snprintf(text, sizeof(text),
		 "{\"config\":{\"mediaType\":\"application/vnd.helm+json\",\"digest\":\"%s\","
		 "\"size\":1},\"layers\":[]}",
		 img.id);
	put_manifest(text, OCI_MANIFEST);
	read_bad("no container image");
	/* nested without end */
	for (int i = 0; i < 100; i++)
		buf_puts(&bomb, "[");
	put("index.json", bomb.data);
	read_bad("nested deeper");
	/* a blob that changed */
	put_index(OCI_MANIFEST, img.manifest, img.manifest_size, "x");
	snprintf(path, sizeof(path), "blobs/sha256/%s", digest_hex(img.id));
	put(path, "{}");
	read_bad("damaged");
	/* a link out of the archive */
	assert_int_equal(unlinkat(dir, path, 0), 0);
	assert_int_equal(symlinkat("/etc/passwd", dir, path), 0);
	read_bad("configuration");
	put("index.json", "{\"manifests\":[],\"layers\":[]}");
	read_bad("no OCI image index");
	put("index.json", "{}");
	read_bad("no OCI image index");
	put("index.json", "{\"manifests\":[1,null,{}]}");
	read_bad("descriptor");
	assert_int_equal(unlinkat(dir, "index.json", 0), 0);
	read_bad("neither");
}

static void put_docker(const struct fixture_layer *const *from, size_t count, const char *config,
		       const char *tags)
{
	CLEANUP(buf_done) struct buf text = {0};
	CLEANUP(buf_done) struct buf list = {0};
	char digest[DIGEST_SIZE], path[128];

	fixture_config(&text, from, count, image_architecture, config);
	digest_of(text.data, text.length, digest);
	snprintf(path, sizeof(path), "%s.json", digest_hex(digest));
	put(path, text.data);
	buf_printf(&list, "[{\"Config\":\"%s\",\"RepoTags\":%s,\"Layers\":[", path, tags);
	for (size_t i = 0; i < count; i++) {
		snprintf(path, sizeof(path), "layer%zu/layer.tar", i);
		fixture_write(dir, path, from[i]->blob.data, from[i]->blob.length);
		buf_printf(&list, "%s\"%s\"", i ? "," : "", path);
	}
	buf_puts(&list, "]}]");
	put("manifest.json", list.data);
}

static void test_docker(void **state)
{
	put_docker(layers, 2, NULL, "[\"app\",\"ghcr.io/me/app:2\"]");
	read_ok();
	assert_int_equal(plan->images->repo_tags.count, 2);
	assert_string_equal(plan->images->repo_tags.items[0], "docker.io/library/app:latest");
	assert_int_equal(plan->images->repo_digests.count, 0);
	assert_null(plan->images->manifest_digest);
	assert_string_equal(plan->images->layers[1].path, "layer1/layer.tar");
	assert_null(plan->images->layers[1].digest);
	put_docker(layers, 1, NULL, "null");
	read_ok();
	assert_int_equal(plan->images->repo_tags.count, 0);
}

static void test_docker_refused(void **state)
{
	put_docker(layers, 1, NULL, "[\"Bad Name\"]");
	read_bad("reference");
	put_docker(layers, 1, NULL, "[7]");
	read_bad("tag");
	put_docker(layers, 1, NULL, "7");
	read_bad("needs Config");
	put("manifest.json", "[{\"Config\":\"../../etc/passwd\",\"Layers\":[]}]");
	read_bad("configuration ../../etc/passwd");
	put("manifest.json", "[{\"Config\":\"nowhere.json\",\"Layers\":[]}]");
	read_bad("nowhere.json");
	put("manifest.json", "{}");
	read_bad("no list");
	put("manifest.json", "[]");
	read_bad("no image");
	put("manifest.json", "[");
	read_bad("JSON");
	/* a file named after another content */
	put("manifest.json",
	    "[{\"Config\":\"e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855."
	    "json\","
	    "\"Layers\":[\"layer0/layer.tar\"]}]");
	CLEANUP(buf_done) struct buf text = {0};

	fixture_config(&text, layers, 1, image_architecture, NULL);
	put("e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855.json", text.data);
	read_bad("damaged");
}

static void test_config(void **state)
{
	static const char config[] =
		"{\"User\":\"1003:1004\",\"Env\":[\"A=b\",\"C\"],\"Entrypoint\":[\"/e\"],"
		"\"Cmd\":\"one string\",\"WorkingDir\":\"/w\",\"StopSignal\":\"SIGUSR1\","
		"\"Volumes\":{\"/v2\":{},\"/v1\":{}},\"ExposedPorts\":{\"80/tcp\":{}},"
		"\"Labels\":{\"z\":\"1\",\"a\":\"2\"},\"Unknown\":[1]}";
	CLEANUP(buf_done) struct buf text = {0};
	struct arena *arena = arena_new(1 << 20);
	struct string_list ids;
	struct image_config c;

	fixture_config(&text, layers, 2, image_architecture, config);
	assert_int_equal(image_config_parse(text.data, text.length, arena, &c, &ids, &err), 0);
	assert_string_equal(c.user, "1003:1004");
	assert_int_equal(c.env.count, 2);
	assert_string_equal(c.env.items[1], "C");
	assert_string_equal(c.entrypoint.items[0], "/e");
	assert_int_equal(c.cmd.count, 1);
	assert_string_equal(c.cmd.items[0], "one string");
	assert_string_equal(c.working_dir, "/w");
	assert_string_equal(c.stop_signal, "SIGUSR1");
	assert_string_equal(c.volumes.items[0], "/v1");
	assert_string_equal(c.exposed_ports.items[0], "80/tcp");
	assert_string_equal(c.labels.items[0].key, "a");
	assert_string_equal(c.labels.items[0].value, "2");
	assert_int_equal(ids.count, 2);
	arena_free(arena);
}

static void test_config_refused(void **state)
{
	static const char *const bad[] = {
		"{\"User\":7}",
		"{\"Env\":\"A=b\"}",
		"{\"Env\":[1]}",
		"{\"Cmd\":{}}",
		"{\"Volumes\":[]}",
		"{\"Labels\":{\"a\":1}}",
		"7",
		"{\"User\":\"a\\u0000b\"}",
		"{\"User\":\"\xff\"}",
	};
	static const char *const whole[] = {
		"",
		"{",
		"null",
		"[]",
		"{}",
		"{\"rootfs\":{}}",
		"{\"rootfs\":{\"diff_ids\":[]}}",
		"{\"rootfs\":{\"diff_ids\":[\"sha256:x\"]}}",
		"{\"rootfs\":{\"diff_ids\":[\"sha512:00\"]}}",
	};
	struct arena *arena = arena_new(1 << 20);
	struct string_list ids;
	struct image_config c;

	for (size_t i = 0; i < sizeof(bad) / sizeof(*bad); i++) {
		CLEANUP(buf_done) struct buf text = {0};

		fixture_config(&text, layers, 1, image_architecture, bad[i]);
		assert_int_equal(image_config_parse(text.data, text.length, arena, &c, &ids, &err),
				 -ERR_INVALID);
		assert_non_null(strstr(err.text, "image configuration"));
	}
	for (size_t i = 0; i < sizeof(whole) / sizeof(*whole); i++)
		assert_int_equal(
			image_config_parse(whole[i], strlen(whole[i]), arena, &c, &ids, &err),
			-ERR_INVALID);
	arena_free(arena);
}

static int group_setup(void **state)
{
	if (!mkdtemp(top_path))
		return -1;
	top = open(top_path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	fixture_layer_make(&base, "base", "base", "gzip");
	fixture_layer_make(&extra, "extra", "extra", "zstd");
	return top < 0 ? -1 : 0;
}

static int group_teardown(void **state)
{
	fixture_layer_done(&base);
	fixture_layer_done(&extra);
	close(top);
	return rmdir(top_path);
}

#define T(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		T(test_oci),	     T(test_oci_names),	     T(test_oci_platforms),
		T(test_oci_refused), T(test_docker),	     T(test_docker_refused),
		T(test_config),	     T(test_config_refused),
	};

	return RUN_GROUP(tests, group_setup, group_teardown);
}
