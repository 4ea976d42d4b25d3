/* SPDX-License-Identifier: Apache-2.0 */
/*
 * CRI configurations into specs. Peculiar: it runs at create, at start and at each recovery, so it
 * depends on nothing but the stored bytes and the image's configuration.
 */
#include "cri/canonical.h"
#include "cri/packed.h"
#include "cri/translate_priv.h"

#include "io/base/alloc.h"
#include "io/base/buf.h"

enum ns_mode translate_ns_mode(Runtime__V1__NamespaceMode mode)
{
	switch (mode) {
	case NS_NAME(CONTAINER):
		return NS_CONTAINER;
	case NS_NAME(NODE):
		return NS_NODE;
	case NS_NAME(TARGET):
		return NS_TARGET;
	default:
		return NS_POD;
	}
}

struct id_map_list translate_id_maps(struct arena *arena, Runtime__V1__IDMapping **maps,
				     size_t count)
{
	struct id_map_list list = {arena_new_array(arena, struct id_map, count), count};

	for (size_t i = 0; i < count; i++)
		list.items[i] = (struct id_map){
			.inside = maps[i]->container_id,
			.outside = maps[i]->host_id,
			.length = maps[i]->length,
		};
	return list;
}

static void *sandbox_decode(struct arena *arena, const struct buf *bytes, struct error *err)
{
	SandboxConfig *config =
		packed_decode(arena, &runtime__v1__pod_sandbox_config__descriptor, bytes);

	if (config && config->metadata)
		return config;
	error_set(err, ERR_INTERNAL, "stored PodSandboxConfig: damaged");
	return NULL;
}

SandboxConfig *sandbox_config(struct arena *arena, const struct sandbox *sb)
{
	return sandbox_decode(arena, &sb->config, NULL);
}

static void sandbox_blank(const char *id, struct buf *ret)
{
	SandboxConfig config = RUNTIME__V1__POD_SANDBOX_CONFIG__INIT;
	Runtime__V1__PodSandboxMetadata metadata = RUNTIME__V1__POD_SANDBOX_METADATA__INIT;

	metadata.name = metadata.uid = (char *)id;
	metadata.namespace_ = (char *)"damaged";
	config.metadata = &metadata;
	canonical_pack(&config.base, ret);
}

static void *container_decode(struct arena *arena, const struct buf *bytes, struct error *err)
{
	ContainerConfig *config =
		packed_decode(arena, &runtime__v1__container_config__descriptor, bytes);

	if (config && config->metadata && config->image)
		return config;
	error_set(err, ERR_INTERNAL, "stored ContainerConfig: damaged");
	return NULL;
}

ContainerConfig *container_config(struct arena *arena, const struct container *c)
{
	return container_decode(arena, &c->config, NULL);
}

static void container_blank(const char *id, struct buf *ret)
{
	ContainerConfig config = RUNTIME__V1__CONTAINER_CONFIG__INIT;
	Runtime__V1__ContainerMetadata metadata = RUNTIME__V1__CONTAINER_METADATA__INIT;
	Runtime__V1__ImageSpec image = RUNTIME__V1__IMAGE_SPEC__INIT;

	metadata.name = (char *)id;
	config.metadata = &metadata;
	config.image = &image;
	canonical_pack(&config.base, ret);
}

/* A mount's image_ref is the id of the image, since the container was created. */
static struct string_list container_images(struct arena *arena, const void *config)
{
	const ContainerConfig *c = config;
	struct string_list list = {arena_new_array(arena, const char *, c->n_mounts), 0};

	for (size_t i = 0; i < c->n_mounts; i++)
		if (translate_has_image(c->mounts[i]))
			list.items[list.count++] = c->mounts[i]->image->image_ref;
	return list;
}

static char *container_name(const void *config)
{
	const ContainerConfig *c = config;

	return xasprintf("%s_%u", c->metadata->name, c->metadata->attempt);
}

const struct front_end cri_front_end = {
	.sandbox_decode = sandbox_decode,
	.sandbox_blank = sandbox_blank,
	.sandbox_spec = translate_sandbox,
	.sandbox_files = translate_sandbox_files,
	.container_decode = container_decode,
	.container_blank = container_blank,
	.container_name = container_name,
	.container_spec = translate_container,
	.container_profile = translate_container_profile,
	.container_limits = &translate_container_limits,
	.sandbox_limits = &translate_sandbox_limits,
	.container_images = container_images,
};
