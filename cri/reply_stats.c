/* SPDX-License-Identifier: Apache-2.0 */
/* Figures as the CRI has them. */
#include "cri/packed.h"
#include "cri/reply.h"
#include "cri/translate.h"

#include <string.h>

Runtime__V1__UInt64Value *reply_value(struct arena *arena, uint64_t figure)
{
	Runtime__V1__UInt64Value *v;

	if (figure == USAGE_NONE)
		return NULL;
	v = REPLY(arena, Runtime__V1__UInt64Value, RUNTIME__V1__UINT64_VALUE__INIT);
	v->value = figure;
	return v;
}

static Runtime__V1__PsiData *psi_data(struct arena *arena, const struct pressure *p)
{
	Runtime__V1__PsiData *d = REPLY(arena, Runtime__V1__PsiData, RUNTIME__V1__PSI_DATA__INIT);

	d->total = p->total;
	d->avg10 = p->average[0];
	d->avg60 = p->average[1];
	d->avg300 = p->average[2];
	return d;
}

static Runtime__V1__PsiStats *psi_of(struct arena *arena, const struct pressures *p)
{
	Runtime__V1__PsiStats *s;

	if (!p->is_known)
		return NULL;
	s = REPLY(arena, Runtime__V1__PsiStats, RUNTIME__V1__PSI_STATS__INIT);
	s->some = psi_data(arena, &p->some);
	s->full = psi_data(arena, &p->full);
	return s;
}

Runtime__V1__CpuUsage *reply_cpu_usage(struct arena *arena, const struct usage *u,
				       uint64_t nano_cores)
{
	Runtime__V1__CpuUsage *c =
		REPLY(arena, Runtime__V1__CpuUsage, RUNTIME__V1__CPU_USAGE__INIT);

	c->timestamp = u->at;
	c->usage_core_nano_seconds = reply_value(arena, u->figures[USAGE_CPU]);
	c->usage_nano_cores = reply_value(arena, nano_cores);
	c->psi = psi_of(arena, &u->cpu);
	return c;
}

Runtime__V1__MemoryUsage *reply_memory_usage(struct arena *arena, const struct usage *u)
{
	Runtime__V1__MemoryUsage *m =
		REPLY(arena, Runtime__V1__MemoryUsage, RUNTIME__V1__MEMORY_USAGE__INIT);
	uint64_t working_set = usage_working_set(u);

	m->timestamp = u->at;
	m->working_set_bytes = reply_value(arena, working_set);
	m->available_bytes =
		reply_value(arena, usage_left(u->figures[USAGE_MEMORY_LIMIT], working_set));
	m->usage_bytes = reply_value(arena, u->figures[USAGE_MEMORY]);
	m->rss_bytes = reply_value(arena, u->figures[USAGE_MEMORY_RSS]);
	m->page_faults = reply_value(arena, u->figures[USAGE_PAGE_FAULTS]);
	m->major_page_faults = reply_value(arena, u->figures[USAGE_MAJOR_PAGE_FAULTS]);
	m->psi = psi_of(arena, &u->memory);
	return m;
}

static Runtime__V1__SwapUsage *swap_of(struct arena *arena, const struct usage *u)
{
	Runtime__V1__SwapUsage *s =
		REPLY(arena, Runtime__V1__SwapUsage, RUNTIME__V1__SWAP_USAGE__INIT);

	s->timestamp = u->at;
	s->swap_usage_bytes = reply_value(arena, u->figures[USAGE_SWAP]);
	s->swap_available_bytes = reply_value(
		arena, usage_left(u->figures[USAGE_SWAP_LIMIT], u->figures[USAGE_SWAP]));
	return s;
}

Runtime__V1__IoUsage *reply_io_usage(struct arena *arena, const struct usage *u)
{
	Runtime__V1__IoUsage *io = REPLY(arena, Runtime__V1__IoUsage, RUNTIME__V1__IO_USAGE__INIT);

	io->timestamp = u->at;
	io->psi = psi_of(arena, &u->io);
	return io;
}

Runtime__V1__FilesystemUsage *reply_disk(struct arena *arena, char *dir, int64_t at, uint64_t bytes,
					 uint64_t inodes)
{
	Runtime__V1__FilesystemUsage *f =
		REPLY(arena, Runtime__V1__FilesystemUsage, RUNTIME__V1__FILESYSTEM_USAGE__INIT);

	f->timestamp = at;
	f->fs_id = REPLY(arena, Runtime__V1__FilesystemIdentifier,
			 RUNTIME__V1__FILESYSTEM_IDENTIFIER__INIT);
	f->fs_id->mountpoint = dir;
	f->used_bytes = reply_value(arena, bytes);
	f->inodes_used = reply_value(arena, inodes);
	return f;
}

char *reply_layer_dir(struct arena *arena, const struct node *n)
{
	uint64_t bytes, inodes;
	const char *dir;

	image_fs_info(n->images, &bytes, &inodes, &dir);
	if (!n->has_layer_disk)
		return text(dir);
	return arena_printf(arena, "%.*s/containers", (int)(strrchr(dir, '/') - dir), dir);
}

static Runtime__V1__FilesystemUsage *layer_of(struct arena *arena, const struct container *c,
					      const struct layer_usage *layer)
{
	return reply_disk(arena, reply_layer_dir(arena, c->node), layer->at, layer->bytes,
			  layer->inodes);
}

static Runtime__V1__ContainerAttributes *attributes_of(struct arena *arena,
						       const struct container *c)
{
	static const char *const as_is[] = {"metadata", "labels", "annotations", NULL};
	Runtime__V1__ContainerAttributes *a = REPLY(arena, Runtime__V1__ContainerAttributes,
						    RUNTIME__V1__CONTAINER_ATTRIBUTES__INIT);

	a->id = (char *)c->id;
	packed_lend(arena, &runtime__v1__container_config__descriptor, &c->config, as_is, &a->base);
	return a;
}

Runtime__V1__ContainerStats *reply_container_stats(struct arena *arena, const struct container *c,
						   const struct container_stats *stats)
{
	Runtime__V1__ContainerStats *s =
		REPLY(arena, Runtime__V1__ContainerStats, RUNTIME__V1__CONTAINER_STATS__INIT);
	const struct usage *u = &stats->usage;

	s->attributes = attributes_of(arena, c);
	if (stats->layer.at)
		s->writable_layer = layer_of(arena, c, &stats->layer);
	if (!u->at)
		return s;
	s->cpu = reply_cpu_usage(arena, u, stats->nano_cores);
	s->memory = reply_memory_usage(arena, u);
	s->swap = swap_of(arena, u);
	s->io = reply_io_usage(arena, u);
	return s;
}
