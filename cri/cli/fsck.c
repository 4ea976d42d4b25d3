/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Peculiar: it is a server's start without the server: the same rows are loaded by the same rules,
 * and the same sweep runs, so that what is damage is said in one place. The order is that of what
 * depends on what: the database file, the rows, the images, the world.
 */
#include "cri/cli/fsck.h"

#include <fcntl.h>
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cri/translate.h"
#include "io/base/alloc.h"
#include "io/base/cleanup.h"
#include "io/base/log.h"
#include "recovery/pin.h"
#include "sandbox/node.h"
#include "store/containers.h"
#include "store/db.h"
#include "store/image/check.h"
#include "store/sandboxes.h"
#include "store/streams.h"

enum status { CLEAN = 0, FIXED = 1, LEFT = 4, FAILED = 8, USAGE = 16 };

struct fsck {
	const char *root, *state;
	bool is_fix;
	bool is_silent; /* the rows were reported already */
	struct loop *loop;
	struct store *store;
	struct store_batch batch; /* rows to be deleted */
	struct node node;
	size_t fixed, left;
	struct error err;
	int result;
};

static void say(struct fsck *f, const char *fault, bool is_fixed)
{
	printf("%s%s\n", fault, !f->is_fix ? "" : is_fixed ? ": fixed" : ": left");
	fflush(stdout);
	f->fixed += is_fixed;
	f->left += !is_fixed;
}

static void on_row(void *data, enum row_kind kind, const char *id, const char *why)
{
	static const char *const names[] = {"sandbox", "container", "log position of container"};
	struct fsck *f = data;
	char *fault cleanup_free = NULL;

	if (f->is_silent)
		return;
	fault = xasprintf("%s %.64s: %s", names[kind], id, why);
	say(f, fault, f->is_fix);
	if (kind == ROW_SANDBOX)
		batch_sandbox_delete(&f->batch, id);
	else if (kind == ROW_CONTAINER)
		batch_container_delete(&f->batch, id);
	else
		batch_stream_delete(&f->batch, id);
}

static void on_image(void *data, const char *fault, bool is_fixed)
{
	say(data, fault, is_fixed);
}

static void on_thing(void *data, const char *thing)
{
	struct fsck *f = data;
	char *fault cleanup_free = xasprintf("%s: it is nobody's", thing);

	say(f, fault, f->is_fix);
}

static bool is_used(void *data, const char *image_id)
{
	const struct fsck *f = data;

	map_for_each(slot, &f->node.containers) {
		const struct container *c = slot->value;

		if (!strcmp(c->image_id, image_id))
			return true;
	}
	return false;
}

/* −1 when it is not there: nothing can be nobody's in it then. */
static int open_dir(const char *parent, const char *name)
{
	char *path cleanup_free = xasprintf("%s/%s", parent, name);

	return open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
}

static int load(struct fsck *f, struct error *err)
{
	static struct row_report report = {.damaged = on_row};
	struct node *n = &f->node;

	report.data = f;
	*n = (struct node){.loop = f->loop,
			   .front = &cri_front_end,
			   .store = f->store,
			   .row_report = &report,
			   .root_dir = xstrdup(f->root),
			   .state_dir = xstrdup(f->state),
			   .run_dir = xasprintf("%s/run", f->state)};
	n->roots_fd = open_dir(n->root_dir, "containers");
	n->states_fd = open_dir(n->run_dir, "containers");
	n->sandboxes_fd = open_dir(n->run_dir, "sandboxes");
	return node_load(n, err);
}

/* After the damaged rows are gone, what was theirs is nobody's. */
static int check_rows(struct fsck *f, struct error *err)
{
	TRY(load(f, err));
	if (!f->is_fix || !f->batch.first)
		return 0;
	TRY(store_commit_blocking(f->store, &f->batch, err));
	f->is_silent = true;
	return load(f, err);
}

static int check_images(struct fsck *f, struct error *err)
{
	struct image_check check = {
		.is_fix = f->is_fix, .is_used = is_used, .found = on_image, .data = f};

	return image_store_check(f->store, f->root, &check, err);
}

static void world_main(struct task *t, void *arg)
{
	struct fsck *f = arg;

	f->result = node_sweep(t, &f->node, !f->is_fix, on_thing, f);
	f->err = t->err;
	loop_stop(f->loop);
}

static int check_world(struct fsck *f, struct error *err)
{
	struct node *n = &f->node;

	/* a part of the database that can't be read was found before */
	if (n->is_incomplete)
		return 0;
	if (pins_exist(f->state)) {
		n->pins = pins_open(f->loop, f->state, err);
		if (!n->pins)
			return -(int)err->code;
	}
	node_set_env(n);
	task_start(f->loop, "fsck", world_main, f);
	loop_run(f->loop);
	pins_close(n->pins);
	return f->result < 0 ? error_copy(err, &f->err) : 0;
}

static int open_store(struct fsck *f, struct error *err)
{
	f->store = store_open_offline(f->root, f->is_fix, err);
	return f->store ? 0 : -(int)err->code;
}

/* What can't be read of the file goes, the rest stays. */
static int check_file(struct fsck *f, struct error *err)
{
	char *fault cleanup_free = NULL;

	if (store_check(f->store, err) == 0)
		return 0;
	fault = xstrdup(err->text);
	if (f->is_fix) {
		TRY(store_rebuild(f->store, err));
		store_close(take_ptr(f->store));
		TRY(open_store(f, err));
	}
	say(f, fault, f->is_fix);
	return 0;
}

static int check_all(struct fsck *f, struct error *err)
{
	TRY(open_store(f, err));
	TRY(check_file(f, err));
	TRY(check_rows(f, err));
	TRY(check_images(f, err));
	return check_world(f, err);
}

static int run(struct fsck *f)
{
	struct error err = {0};
	int r;

	f->loop = loop_new(&err);
	r = f->loop ? check_all(f, &err) : -(int)err.code;
	if (r < 0)
		fprintf(stderr, "crisp fsck: %s\n", err.text);
	/* a database that can't be opened is damage, too; what is there is not touched */
	if (r == -ERR_INTERNAL && !f->store)
		return LEFT;
	if (r < 0)
		return FAILED;
	store_close(f->store);
	if (f->left)
		return LEFT;
	return f->fixed ? FIXED : CLEAN;
}

static int usage(FILE *to)
{
	fputs("usage: crisp fsck [--fix] [--root DIR] [--state DIR]\n\n"
	      "Looks for damage in a node's directories while no crispd runs on them: rows that "
	      "make "
	      "no\nsense, images without their layers, and what belongs to nobody: directories, "
	      "pins,\n"
	      "cgroups. One line for each. Pods and containers that are not damaged are not "
	      "touched,\n"
	      "and go on.\n\n"
	      "  --fix        remove what was found, with what runs in it\n"
	      "  --root DIR   durable data (/var/lib/crisp)\n"
	      "  --state DIR  run-time data (/run/crisp)\n\n"
	      "Exit status: 0 nothing found, 1 all fixed, 4 something is left, 8 could not look,\n"
	      "16 wrong options.\n",
	      to);
	return to == stdout ? 0 : USAGE;
}

int fsck_main(int argc, char **argv)
{
	static const struct option options[] = {{"fix", no_argument, NULL, 'f'},
						{"root", required_argument, NULL, 'r'},
						{"state", required_argument, NULL, 's'},
						{"help", no_argument, NULL, 'h'},
						{0}};
	static struct fsck fsck = {.root = "/var/lib/crisp", .state = "/run/crisp"};
	int id;

	optind = 1;
	while ((id = getopt_long(argc, argv, "", options, NULL)) >= 0) {
		if (id == 'f')
			fsck.is_fix = true;
		else if (id == 'r')
			fsck.root = optarg;
		else if (id == 's')
			fsck.state = optarg;
		else
			return usage(id == 'h' ? stdout : stderr);
	}
	if (optind < argc)
		return usage(stderr);
	log_set_level(LOG_ERROR);
	return run(&fsck);
}
