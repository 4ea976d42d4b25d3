/* SPDX-License-Identifier: Apache-2.0 */
/* CDI specifications: which documents are taken, what devices mean by files in directories, what
 * becomes of a spec. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>
#include <cmocka.h>

#include "io/base/alloc.h"
#include "sandbox/cdi_priv.h"

/* Two directories, the second of which wins, and what was told of bad files. */
static char low[] = "/tmp/crisp-cdi-low-XXXXXX", high[] = "/tmp/crisp-cdi-high-XXXXXX";
static struct buf problems;

static int make_directories(void **state)
{
	return mkdtemp(low) && mkdtemp(high) ? 0 : -1;
}

static int remove_directories(void **state)
{
	return rmdir(low) + rmdir(high);
}

static int clean(void **state)
{
	static const char *const names[] = {"a.json", "b.json", "c.yaml", "d.yaml", "e.txt"};
	const char *const dirs[] = {low, high};

	for (size_t d = 0; d < 2; d++) {
		for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
			char path[128];

			snprintf(path, sizeof(path), "%s/%s", dirs[d], names[i]);
			unlink(path);
		}
	}
	buf_done(&problems);
	return 0;
}

static void put_file(const char *dir, const char *name, const char *text)
{
	char path[128];
	FILE *f;

	snprintf(path, sizeof(path), "%s/%s", dir, name);
	f = fopen(path, "we");
	assert_non_null(f);
	fputs(text, f);
	fclose(f);
}

static void note(void *data, const char *problem)
{
	buf_printf(&problems, "%s\n", problem);
}

static int resolve(const char *const *names, size_t count, struct buf *ret, struct error *err)
{
	const char *dirs[] = {low, "/no/such/directory", high};
	struct string_list all = {dirs, 3}, wanted = {(const char **)names, count};

	*err = (struct error){0};
	return cdi_resolve(&all, &wanted, note, NULL, ret, err);
}

#define RESOLVE(ret, err, ...)                                                                     \
	({                                                                                         \
		const char *names_[] = {__VA_ARGS__};                                              \
		resolve(names_, sizeof(names_) / sizeof(names_[0]), ret, err);                     \
	})

static const char gpu[] =
	"{\"cdiVersion\":\"0.7.0\",\"kind\":\"vendor.com/gpu\",\"containerEdits\":{\"env\":["
	"\"ALL=1\"]},\"devices\":["
	"{\"name\":\"0\",\"containerEdits\":{\"env\":[\"GPU=0\",\"PATH=/gpu\"],\"deviceNodes\":[{"
	"\"path\":\"/dev/gpu0\",\"hostPath\":\"/dev/null\",\"type\":\"c\",\"major\":1,\"minor\":3,"
	"\"fileMode\":432,\"permissions\":\"rw\",\"gid\":44}],\"mounts\":[{\"hostPath\":\"/usr/"
	"lib\","
	"\"containerPath\":\"/gpu/"
	"lib\",\"options\":[\"ro\",\"rbind\",\"rslave\",\"nosuid\",\"noexec\",\"nodev\"]}],"
	"\"additionalGids\":[44,0]}},"
	"{\"name\":\"1\",\"containerEdits\":{\"env\":[\"GPU=1\"]}},"
	"{\"name\":\"hooked\",\"containerEdits\":{\"hooks\":[{\"hookName\":\"createRuntime\","
	"\"path\":\"/bin/true\"}]}},"
	"{\"name\":\"net\",\"containerEdits\":{\"intelRdt\":{\"closID\":\"x\"}}}]}";

static void edits_change_the_spec(void **state)
{
	static const char *env[] = {"PATH=/bin", "A=1"};
	static gid_t groups[] = {7};
	struct arena *arena = arena_new(1 << 20);
	struct container_spec spec = {.envp = {env, 2}};
	struct buf edits = {0};
	struct error err;

	spec.user.supplemental.items = groups;
	spec.user.supplemental.count = 1;
	put_file(low, "a.json", gpu);
	assert_int_equal(
		RESOLVE(&edits, &err, "vendor.com/gpu=0", "vendor.com/gpu=1", "vendor.com/gpu=0"),
		0);
	assert_int_equal(cdi_apply(arena, edits.data, edits.length, &spec, &err), 0);
	buf_done(&edits);
	assert_int_equal(spec.envp.count, 4);
	assert_string_equal(spec.envp.items[0], "PATH=/gpu");
	assert_string_equal(spec.envp.items[1], "A=1");
	assert_string_equal(spec.envp.items[2], "ALL=1");
	assert_string_equal(spec.envp.items[3], "GPU=1");
	assert_int_equal(spec.device_count, 1);
	assert_string_equal(spec.devices[0].path, "/dev/gpu0");
	assert_string_equal(spec.devices[0].host_path, "/dev/null");
	assert_string_equal(spec.devices[0].permissions, "rw");
	assert_int_equal(spec.devices[0].number, makedev(1, 3));
	assert_int_equal(spec.devices[0].type, 'c');
	assert_int_equal(spec.devices[0].mode, 0660);
	assert_true(spec.devices[0].has_mode && spec.devices[0].has_gid);
	assert_false(spec.devices[0].has_uid);
	assert_int_equal(spec.mount_count, 1);
	assert_string_equal(spec.mounts[0].source, "/usr/lib");
	assert_true(spec.mounts[0].is_readonly && spec.mounts[0].is_nosuid);
	assert_true(spec.mounts[0].is_noexec && spec.mounts[0].is_nodev);
	assert_int_equal(spec.mounts[0].propagation, PROPAGATION_SLAVE);
	assert_int_equal(spec.user.supplemental.count, 2);
	assert_int_equal(spec.user.supplemental.items[1], 44);
	arena_free(arena);
}

static void expect_no_device(const char *name, enum err code, const char *why)
{
	struct buf edits = {0};
	struct error err;

	assert_int_equal(RESOLVE(&edits, &err, name), -(int)code);
	if (!strstr(err.text, name) || !strstr(err.text, why))
		fail_msg("\"%s\" and \"%s\" are not in: %s", name, why, err.text);
	assert_int_equal(edits.length, 0);
	buf_done(&edits);
}

static void what_cant_be_done_is_refused_by_file_and_field(void **state)
{
	put_file(low, "a.json", gpu);
	expect_no_device("vendor.com/gpu=hooked", ERR_UNIMPLEMENTED, "a.json");
	expect_no_device("vendor.com/gpu=hooked", ERR_UNIMPLEMENTED, "containerEdits.hooks");
	expect_no_device("vendor.com/gpu=net", ERR_UNIMPLEMENTED, "containerEdits.intelRdt");
	expect_no_device("vendor.com/gpu=2", ERR_INVALID, "no specification");
	expect_no_device("vendor.com/gp=0", ERR_INVALID, "no specification");
}

#define ONE(value)                                                                                 \
	"cdiVersion: 0.3.0\nkind: vendor.com/gpu\ndevices:\n- name: one\n  containerEdits:\n    "  \
	"env: [ \"FROM=" value "\" ]\n"

static void expect_edit(const char *name, const char *text)
{
	struct buf edits = {0};
	struct error err;

	if (RESOLVE(&edits, &err, name) < 0)
		fail_msg("%s", err.text);
	buf_append(&edits, "", 1);
	if (!strstr(edits.data, text))
		fail_msg("\"%s\" is not in: %s", text, edits.data);
	buf_done(&edits);
}

static void a_later_directory_wins_and_one_file_may_not(void **state)
{
	put_file(low, "c.yaml", ONE("low"));
	expect_edit("vendor.com/gpu=one", "FROM=low");
	put_file(high, "c.yaml", ONE("high"));
	expect_edit("vendor.com/gpu=one", "FROM=high");
	put_file(low, "d.yaml", ONE("low"));
	expect_edit("vendor.com/gpu=one", "FROM=high");
	put_file(high, "d.yaml", ONE("other"));
	expect_no_device("vendor.com/gpu=one", ERR_INVALID, "c.yaml");
	expect_no_device("vendor.com/gpu=one", ERR_INVALID, "d.yaml");
}

static void a_bad_file_is_told_and_left_out(void **state)
{
	char fifo[128];

	put_file(low, "a.json", "{");
	put_file(low, "c.yaml", ONE("low"));
	put_file(low, "e.txt", "not a specification");
	snprintf(fifo, sizeof(fifo), "%s/b.json", low);
	assert_int_equal(mkfifo(fifo, 0600), 0);
	expect_edit("vendor.com/gpu=one", "FROM=low");
	buf_append(&problems, "", 1);
	assert_non_null(strstr(problems.data, "a.json: JSON: line 1"));
	assert_non_null(strstr(problems.data, "b.json"));
	assert_null(strstr(problems.data, "e.txt"));
	expect_no_device("vendor.com/gpu=two", ERR_INVALID, "2 can't be used");
}

static void a_file_that_is_too_large_is_left_out(void **state)
{
	char *text = xmalloc(CDI_FILE_MAX + 2);

	memset(text, ' ', CDI_FILE_MAX + 1);
	text[CDI_FILE_MAX + 1] = '\0';
	put_file(low, "a.json", text);
	free(text);
	expect_no_device("vendor.com/gpu=one", ERR_INVALID, "a.json");
}

/* Either the whole text, or a document with these edits for its only device. */
static int check_text(const char *text, bool is_yaml, struct error *err)
{
	json_t *document = NULL;
	int r = is_yaml ? cdi_yaml_parse(text, strlen(text), &document, err)
			: json_parse(text, strlen(text), &document, err);

	if (r == 0)
		r = cdi_check_document(document, err);
	json_decref(document);
	return r;
}

#define HEAD(version) "{\"cdiVersion\":\"" version "\",\"kind\":\"v.com/c\",\"devices\":["
#define WITH(version, edits) HEAD(version) "{\"name\":\"a\",\"containerEdits\":{" edits "}}]}"

static void documents_are_checked_with_the_place_of_the_fault(void **state)
{
	static const struct {
		const char *text, *fault; /* NULL: there is none */
	} cases[] = {
		{WITH("1.1.0", "\"netDevices\":[{\"hostInterfaceName\":\"e\",\"name\":\"f\"}]"),
		 NULL},
		{WITH("1.0.0", "\"netDevices\":[]"),
		 "containerEdits.netDevices: came with version 1.1"},
		{WITH("0.6.0", "\"additionalGids\":[1]"), "additionalGids: came with version 0.7"},
		{WITH("0.7.0", "\"additionalGids\":[-1]"), "additionalGids: must be from 0"},
		{WITH("0.7.0", "\"additionalGids\":[\"1\"]"),
		 "additionalGids: must be a list of int"},
		{WITH("0.4.0", "\"deviceNodes\":[{\"path\":\"/d\",\"hostPath\":\"/e\"}]"),
		 "devices[0].containerEdits.deviceNodes[0].hostPath: came with version 0.5"},
		{WITH("0.3.0", "\"mounts\":[{\"hostPath\":\"/a\",\"containerPath\":\"/b\",\"type\":"
			       "\"bind\"}]"),
		 "mounts[0].type: came with version 0.4"},
		{WITH("0.3.0", "\"mounts\":[{\"hostPath\":\"/a\",\"containerPath\":\"b\"}]"),
		 "mounts[0].containerPath: must be an absolute path"},
		{WITH("0.3.0", "\"mounts\":[{\"hostPath\":\"/a\"}]"),
		 "mounts[0].containerPath: missing"},
		{WITH("0.3.0", "\"mounts\":[7]"), "mounts[0]: must be an object"},
		{WITH("0.3.0", "\"mounts\":{}"), "mounts: must be a list"},
		{WITH("0.3.0", "\"env\":[\"A\"]"), "containerEdits.env: must be of the form"},
		{WITH("0.3.0", "\"env\":[\"=A\"]"), "containerEdits.env: must be of the form"},
		{WITH("0.3.0", "\"env\":\"A=B\""), "containerEdits.env: must be a list of strings"},
		{WITH("0.3.0", "\"en\":[]"), "containerEdits.en: there is no such key"},
		{WITH("0.3.0", ""), "devices[0].containerEdits: empty"},
		{WITH("0.7.0", "\"deviceNodes\":[{\"path\":\"/d\",\"major\":4294967296}]"),
		 "deviceNodes[0].major: must be from 0"},
		{WITH("0.7.0", "\"deviceNodes\":[{\"path\":\"/d\",\"permissions\":\"rx\"}]"),
		 "deviceNodes[0].permissions: must be out of rwm"},
		{WITH("0.7.0", "\"deviceNodes\":[{\"path\":\"/d\",\"type\":\"cc\"}]"),
		 "deviceNodes[0].type: must be b, c, u or p"},
		{WITH("0.7.0", "\"deviceNodes\":[{\"path\":\"/d\",\"fileMode\":\"0660\"}]"),
		 "deviceNodes[0].fileMode: must be an integer"},
		{WITH("0.2.0", "\"env\":[\"A=B\"]"), "cdiVersion: 0.2.0 is none"},
		{WITH("2.0.0", "\"env\":[\"A=B\"]"), "cdiVersion: 2.0.0 is none"},
		{"[]", "must be an object"},
		{"{}", "cdiVersion: missing"},
		{"{\"cdiVersion\":\"0.3.0\",\"kind\":\"v/c\",\"devices\":[]}", "devices: empty"},
		{"{\"cdiVersion\":\"0.3.0\",\"kind\":\"v\",\"devices\":[]}",
		 "kind: not of the form"},
		{"{\"cdiVersion\":\"0.3.0\",\"kind\":\"../c\",\"devices\":[]}",
		 "kind: not of the form"},
		{"{\"cdiVersion\":\"0.5.0\",\"kind\":\"v/c.d\",\"devices\":[]}",
		 "kind: a dot in the"},
		{"{\"cdiVersion\":\"0.3.0\",\"devices\":[]}", "kind: missing"},
		{HEAD("0.4.0") "{\"name\":\"0\",\"containerEdits\":{\"env\":[\"A=B\"]}}]}",
		 "devices[0].name: it is no name"},
		{HEAD("0.5.0") "{\"name\":\"0\",\"containerEdits\":{\"env\":[\"A=B\"]}}]}", NULL},
		{HEAD("0.5.0") "{\"name\":\"a\",\"containerEdits\":{\"env\":[\"A=B\"]}},{\"name\":"
			       "\"a\","
			       "\"containerEdits\":{\"env\":[\"A=B\"]}}]}",
		 "devices[1].name: another device has it"},
		{HEAD("0.5.0") "{\"name\":\"a\"}]}", "devices[0].containerEdits: missing"},
	};

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		for (int is_yaml = 0; is_yaml < 2; is_yaml++) {
			struct error err = {0};
			int r = check_text(cases[i].text, is_yaml, &err);

			if (r != (cases[i].fault ? -ERR_INVALID : 0))
				fail_msg("%s: %d %s", cases[i].text, r, err.text);
			if (cases[i].fault && !strstr(err.text, cases[i].fault))
				fail_msg("\"%s\" is not in: %s", cases[i].fault, err.text);
		}
	}
}

static void yaml_means_what_json_can_say(void **state)
{
	static const char text[] = "a: 1\nb: [ 0660, 0o17, 0x1f, -3, 08, '1', true, ~, 1.0 ]\n"
				   "c: {d: \"x\\ty\", e: }\n";
	struct error err = {0};
	json_t *json = NULL;
	char *dump;

	if (cdi_yaml_parse(text, strlen(text), &json, &err) < 0)
		fail_msg("%s", err.text);
	dump = json_dumps(json, JSON_COMPACT | JSON_SORT_KEYS);
	assert_string_equal(dump, "{\"a\":1,\"b\":[432,15,31,-3,\"08\",\"1\",true,null,\"1.0\"],"
				  "\"c\":{\"d\":\"x\\ty\",\"e\":null}}");
	free(dump);
	json_decref(json);
}

static void yaml_that_json_cant_say_is_refused(void **state)
{
	static const struct {
		const char *text, *fault;
	} cases[] = {
		{"a: &x 1\nb: *x\n", "line 1: anchors"},
		{"a: [*x]\n", "line 1: anchors"},
		{"a: !!binary aa==\n", "tags"},
		{"a: 1\na: 2\n", "twice"},
		{"a: 1\n---\nb: 2\n", "second document"},
		{"[a]: 1\n", "no string"},
		{"", "nothing in it"},
		{"a: [\n", "line"},
		{"a: \"\\0\"\n", "NUL"},
		{"\"a\\0b\": 1\n", "NUL"},
		{"\t", "line 1"},
		{"a: \xff\n", "line"},
	};
	char *deep = xmalloc(100001);
	struct error err = {0};
	json_t *json = NULL;

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		err = (struct error){0};
		assert_int_equal(cdi_yaml_parse(cases[i].text, strlen(cases[i].text), &json, &err),
				 -ERR_INVALID);
		if (!strstr(err.text, cases[i].fault))
			fail_msg("%zu: \"%s\" is not in: %s", i, cases[i].fault, err.text);
	}
	memset(deep, '[', 100000);
	deep[100000] = '\0';
	assert_int_equal(cdi_yaml_parse(deep, 100000, &json, &err), -ERR_INVALID);
	free(deep);
}

/* Documents with one byte changed or cut off anywhere: taken or refused, but nothing worse. */
static void damaged_documents_do_no_harm(void **state)
{
	static const char yaml[] = ONE("x");
	const char *const texts[] = {gpu, yaml};

	for (size_t k = 0; k < 2; k++) {
		for (size_t i = 0; i < strlen(texts[k]); i++) {
			static const char bytes[] = {0, '"', '{', ']', ':', '\n', '&', '\xc3', '-'};
			char *copy = xstrdup(texts[k]);
			struct error err = {0};
			struct buf edits = {0};

			for (size_t b = 0; b < sizeof(bytes); b++) {
				copy[i] = bytes[b];
				put_file(low, k ? "c.yaml" : "a.json", copy);
				if (i % 7 == 0)
					(void)RESOLVE(&edits, &err, "vendor.com/gpu=0");
				(void)check_text(copy, k, &err);
			}
			buf_done(&edits);
			free(copy);
		}
	}
}

static void damaged_edits_are_an_internal_error(void **state)
{
	static const char *const texts[] = {"", "[]", "{\"env\":[1]}", "{\"devices\":[]}", "{"};
	struct arena *arena = arena_new(1 << 20);

	for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++) {
		struct container_spec spec = {0};
		struct error err = {0};

		assert_int_equal(cdi_apply(arena, texts[i], strlen(texts[i]), &spec, &err),
				 -ERR_INTERNAL);
		assert_non_null(strstr(err.text, "damaged"));
	}
	arena_free(arena);
}

static void names_are_checked(void **state)
{
	static const char *const good[] = {"v/c=d", "vendor.com/gpu=0", "a-b_c.d/e-f=0:1.2_3-4"};
	static const char *const bad[] = {"",	  "v/c",     "v/c=",	"/c=d",
					  "v/=d", "v/c=d,",  "v/c=-d",	"1v/c=d",
					  "v=c",  "v/c/d=e", "v/c=d=e", "v c/d=e"};
	struct error err = {0};

	for (size_t i = 0; i < sizeof(good) / sizeof(good[0]); i++)
		assert_int_equal(cdi_check_name("x", good[i], &err), 0);
	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
		assert_int_equal(cdi_check_name("x", bad[i], &err), -ERR_INVALID);
}

#define TEST(name) cmocka_unit_test_teardown(name, clean)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(edits_change_the_spec),
		TEST(what_cant_be_done_is_refused_by_file_and_field),
		TEST(a_later_directory_wins_and_one_file_may_not),
		TEST(a_bad_file_is_told_and_left_out),
		TEST(a_file_that_is_too_large_is_left_out),
		TEST(documents_are_checked_with_the_place_of_the_fault),
		TEST(yaml_means_what_json_can_say),
		TEST(yaml_that_json_cant_say_is_refused),
		TEST(damaged_documents_do_no_harm),
		TEST(damaged_edits_are_an_internal_error),
		TEST(names_are_checked),
	};

	return cmocka_run_group_tests(tests, make_directories, remove_directories);
}
