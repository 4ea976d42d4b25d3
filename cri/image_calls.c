/* SPDX-License-Identifier: Apache-2.0 */
/* ListImages, StreamImages, ImageStatus, RemoveImage, ImageFsInfo, and Import of our own API. */
#include "cri/methods.h"
#include "cri/reply.h"

#include <stdlib.h>
#include <string.h>

#include "cri/proto/crisp.pb-c.h"
#include "io/base/clock.h"

static void set_user(struct arena *arena, const char *user, Runtime__V1__Image *m)
{
	char *name, *colon, *end;
	long long uid;

	if (!user || !*user)
		return;
	name = arena_strdup(arena, user);
	colon = strchr(name, ':');
	if (colon)
		*colon = 0;
	uid = strtoll(name, &end, 10);
	if (*end || end == name) {
		m->username = name;
		return;
	}
	m->uid = REPLY(arena, Runtime__V1__Int64Value, RUNTIME__V1__INT64_VALUE__INIT);
	m->uid->value = uid;
}

static Runtime__V1__Image *message_of(struct arena *arena, const struct image *img)
{
	Runtime__V1__Image *m = REPLY(arena, Runtime__V1__Image, RUNTIME__V1__IMAGE__INIT);

	m->id = (char *)img->id;
	m->repo_tags = (char **)img->repo_tags.items;
	m->n_repo_tags = img->repo_tags.count;
	m->repo_digests = (char **)img->repo_digests.items;
	m->n_repo_digests = img->repo_digests.count;
	/* the kubelet takes an image without size for a damaged one */
	m->size = img->size ? img->size : 1;
	m->pinned = img->is_pinned;
	set_user(arena, img->config.user, m);
	return m;
}

struct listing {
	struct arena *arena;
	struct string_list ids;
};

static void count_image(const struct image *img, void *data)
{
	++*(size_t *)data;
}

static void add_image(const struct image *img, void *data)
{
	struct listing *l = data;

	l->ids.items[l->ids.count++] = arena_strdup(l->arena, img->id);
}

/* The ids of those that a filter lets through. */
static struct string_list ids_of(struct arena *arena, struct node *n,
				 const Runtime__V1__ImageFilter *filter)
{
	const Runtime__V1__ImageSpec *wanted = filter ? filter->image : NULL;
	struct listing l = {.arena = arena};
	const struct image *img;
	size_t count = 0;

	image_each(n->images, count_image, &count);
	l.ids.items = arena_new_array(arena, const char *, count + 1);
	if (!wanted || !*wanted->image) {
		image_each(n->images, add_image, &l);
		return l.ids;
	}
	img = image_find(n->images, wanted->image);
	if (img)
		add_image(img, &l);
	return l.ids;
}

static ProtobufCMessage *item_of(struct arena *arena, struct node *n, const char *id)
{
	const struct image *img = image_by_id(n->images, id);

	return img ? &message_of(arena, img)->base : NULL;
}

int cri_list_images(struct task *t, struct call *c, const void *message)
{
	const Runtime__V1__ListImagesRequest *request = message;
	Runtime__V1__ListImagesResponse reply = RUNTIME__V1__LIST_IMAGES_RESPONSE__INIT;
	struct node *n = call_data(c);
	struct string_list ids = ids_of(t->arena, n, request->filter);

	reply.images = arena_new_array(t->arena, Runtime__V1__Image *, ids.count);
	for (size_t i = 0; i < ids.count; i++)
		reply.images[reply.n_images++] =
			message_of(t->arena, image_by_id(n->images, ids.items[i]));
	return call_reply(t, c, &reply.base);
}

int cri_stream_images(struct task *t, struct call *c, const void *message)
{
	const Runtime__V1__StreamImagesRequest *request = message;
	struct string_list ids = ids_of(t->arena, call_data(c), request->filter);

	return reply_stream(t, c, &ids, item_of);
}

int cri_image_status(struct task *t, struct call *c, const void *message)
{
	const Runtime__V1__ImageStatusRequest *request = message;
	Runtime__V1__ImageStatusResponse reply = RUNTIME__V1__IMAGE_STATUS_RESPONSE__INIT;
	Runtime__V1__ImageStatusResponse__InfoEntry entry =
		RUNTIME__V1__IMAGE_STATUS_RESPONSE__INFO_ENTRY__INIT;
	Runtime__V1__ImageStatusResponse__InfoEntry *entries = &entry;
	struct node *n = call_data(c);
	const struct image *img;

	if (!request->image || !*request->image->image)
		return error_set(&t->err, ERR_INVALID, "image.image: missing");
	img = image_find(n->images, request->image->image);
	if (img)
		reply.image = message_of(t->arena, img);
	if (img && request->verbose) {
		entry.key = text("info");
		/* a document of the image's own, valid JSON as it was parsed at import */
		entry.value = arena_printf(t->arena, "{\"imageSpec\":%.*s}",
					   (int)img->config_length, img->config_json);
		reply.n_info = 1;
		reply.info = &entries;
	}
	return call_reply(t, c, &reply.base);
}

int cri_remove_image(struct task *t, struct call *c, const void *message)
{
	const Runtime__V1__RemoveImageRequest *request = message;
	Runtime__V1__RemoveImageResponse reply = RUNTIME__V1__REMOVE_IMAGE_RESPONSE__INIT;
	struct node *n = call_data(c);

	if (!request->image || !*request->image->image)
		return error_set(&t->err, ERR_INVALID, "image.image: missing");
	TRY(image_remove(t, n->images, request->image->image));
	return call_reply(t, c, &reply.base);
}

int cri_image_fs_info(struct task *t, struct call *c, const void *message)
{
	Runtime__V1__ImageFsInfoResponse reply = RUNTIME__V1__IMAGE_FS_INFO_RESPONSE__INIT;
	Runtime__V1__FilesystemUsage *images, *layers;
	struct node *n = call_data(c);
	uint64_t bytes, inodes;
	const char *dir;

	image_fs_info(n->images, &bytes, &inodes, &dir);
	images = layers = reply_disk(t->arena, text(dir), realtime_ns(), bytes, inodes);
	if (n->has_layer_disk) {
		TRY(layers_usage(t, n, &bytes, &inodes));
		layers = reply_disk(t->arena, reply_layer_dir(t->arena, n), realtime_ns(), bytes,
				    inodes);
	}
	reply.image_filesystems = &images;
	reply.n_image_filesystems = 1;
	reply.container_filesystems = &layers;
	reply.n_container_filesystems = 1;
	return call_reply(t, c, &reply.base);
}

struct import_call {
	struct task *t;
	struct call *c;
};

static void send_progress(const struct image_progress *p, void *data)
{
	struct import_call *i = data;
	Crisp__V1__ImportProgress m = CRISP__V1__IMPORT_PROGRESS__INIT;

	m.step = text(p->what);
	m.layers_done = (uint32_t)p->done;
	m.layers_total = (uint32_t)p->total;
	/* a client that went away cancels the task, which the import itself sees */
	(void)call_send(i->t, i->c, &m.base);
}

static int send_image(struct task *t, struct call *c, const struct image *img)
{
	Crisp__V1__ImportProgress m = CRISP__V1__IMPORT_PROGRESS__INIT;

	m.image_id = (char *)img->id;
	m.references = (char **)img->repo_tags.items;
	m.n_references = img->repo_tags.count;
	return call_send(t, c, &m.base);
}

int crisp_import(struct task *t, struct call *c, const void *message)
{
	const Crisp__V1__ImportRequest *request = message;
	Crisp__V1__ImportProgress last = CRISP__V1__IMPORT_PROGRESS__INIT;
	struct node *n = call_data(c);
	struct import_call i = {t, c};
	struct image_import in = {
		.path = request->path,
		.names = {(const char **)request->names, request->n_names},
		.progress = send_progress,
		.data = &i,
	};
	struct string_list ids = {0};

	if (request->path[0] != '/')
		return error_set(&t->err, ERR_INVALID, "path %.200s: must be absolute",
				 request->path);
	TRY(image_import(t, n->images, &in, &ids));
	for (size_t k = 0; k < ids.count; k++) {
		const struct image *img = image_by_id(n->images, ids.items[k]);

		if (img)
			TRY(send_image(t, c, img));
	}
	last.done = true;
	return call_send(t, c, &last.base);
}
