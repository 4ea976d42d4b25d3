/* SPDX-License-Identifier: Apache-2.0 */
/* Messages that are kept packed: what is lent to a reply arrives there, filters see what is in
 * them, and damage ends a walk. */
#include "cri/packed.h"

#include <setjmp.h>
#include <stdarg.h>
#include <string.h>
#include <cmocka.h>

#include "cri/canonical.h"
#include "cri/proto/cri.pb-c.h"
#include "cri/reply.h"
#include "io/base/cleanup.h"

#define CONFIG (&runtime__v1__container_config__descriptor)
#define ARENA_CAP (1 << 20)

typedef Runtime__V1__ContainerConfig__LabelsEntry Label;

static Label label(const char *key, const char *value)
{
	Label l = RUNTIME__V1__CONTAINER_CONFIG__LABELS_ENTRY__INIT;

	l.key = (char *)key;
	l.value = (char *)value;
	return l;
}

/* With a name, an image, a log_path, labels a=1, empty= and long=xxx…. */
static struct buf config_of(void)
{
	static char text[3000];
	Runtime__V1__ContainerConfig c = RUNTIME__V1__CONTAINER_CONFIG__INIT;
	Runtime__V1__ContainerMetadata name = RUNTIME__V1__CONTAINER_METADATA__INIT;
	Runtime__V1__ImageSpec image = RUNTIME__V1__IMAGE_SPEC__INIT;
	Label a = label("a", "1"), empty = label("empty", ""), wide = label("long", text);
	Label *labels[] = {&a, &empty, &wide};
	struct buf bytes = {0};

	memset(text, 'x', sizeof(text) - 1);
	name.name = (char *)"main";
	name.attempt = 7;
	image.image = (char *)"busybox";
	c.metadata = &name;
	c.image = &image;
	c.log_path = (char *)"main.log";
	c.labels = labels;
	c.n_labels = 3;
	canonical_pack(&c.base, &bytes);
	return bytes;
}

static void what_is_lent_arrives_under_its_other_number(void **state)
{
	static const char *const names[] = {"metadata", "image", "labels", "annotations", NULL};
	struct arena *arena CLEANUP(cleanup_arena_fn) = arena_new(ARENA_CAP);
	struct buf bytes CLEANUP(buf_done) = config_of(), packed CLEANUP(buf_done) = {0};
	Runtime__V1__Container item = RUNTIME__V1__CONTAINER__INIT, *got;

	item.id = (char *)"abc";
	packed_lend(arena, CONFIG, &bytes, names, &item.base);
	canonical_pack(&item.base, &packed);
	got = packed_decode(arena, &runtime__v1__container__descriptor, &packed);
	assert_non_null(got);
	assert_string_equal(got->id, "abc");
	assert_string_equal(got->metadata->name, "main");
	assert_int_equal(got->metadata->attempt, 7);
	assert_string_equal(got->image->image, "busybox");
	assert_int_equal(got->n_labels, 3);
	assert_string_equal(got->labels[0]->key, "a");
	assert_int_equal(strlen(got->labels[2]->value), 2999);
	assert_int_equal(got->n_annotations, 0);
	/* nothing that was not named */
	assert_int_equal(got->base.n_unknown_fields, 0);
}

static bool has(const struct buf *bytes, const char *key, const char *value)
{
	Label wanted = label(key, value), *list = &wanted;

	return packed_has_labels(CONFIG, bytes, &list, 1);
}

static void filters_see_whole_labels_only(void **state)
{
	struct buf bytes CLEANUP(buf_done) = config_of();
	Label a = label("a", "1"), b = label("b", "2"), *both[] = {&a, &b};

	assert_true(has(&bytes, "a", "1"));
	assert_true(has(&bytes, "empty", ""));
	assert_false(has(&bytes, "a", ""));
	assert_false(has(&bytes, "a", "11"));
	assert_false(has(&bytes, "", ""));
	assert_false(has(&bytes, "main", ""));
	assert_true(packed_has_labels(CONFIG, &bytes, NULL, 0));
	assert_true(packed_has_labels(CONFIG, &bytes, both, 1));
	assert_false(packed_has_labels(CONFIG, &bytes, both, 2));
}

static void what_the_encoding_leaves_out_is_empty(void **state)
{
	struct buf bytes CLEANUP(buf_done) = {0};

	/* labels is field 9: an entry with a key alone, and one of nothing */
	buf_append(&bytes, "\x4a\x03\x0a\x01k\x4a\x00", 7);
	assert_true(has(&bytes, "k", ""));
	assert_true(has(&bytes, "", ""));
	assert_false(has(&bytes, "k", "v"));
}

static void damage_ends_a_walk(void **state)
{
	static const char *const names[] = {"labels", NULL};
	struct buf bytes CLEANUP(buf_done) = config_of();

	for (size_t n = 0; n <= bytes.length; n++) {
		struct arena *arena CLEANUP(cleanup_arena_fn) = arena_new(ARENA_CAP);
		struct buf part CLEANUP(buf_done) = {0};
		Runtime__V1__Container item = RUNTIME__V1__CONTAINER__INIT;

		/* of its own size, so that a sanitizer sees what is read behind it */
		buf_set(&part, bytes.data, n);
		packed_lend(arena, CONFIG, &part, names, &item.base);
		assert_true(item.base.n_unknown_fields <= 3);
		(void)has(&part, "long", "x");
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(what_is_lent_arrives_under_its_other_number),
		cmocka_unit_test(filters_see_whole_labels_only),
		cmocka_unit_test(what_the_encoding_leaves_out_is_empty),
		cmocka_unit_test(damage_ends_a_walk),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
