/* SPDX-License-Identifier: Apache-2.0 */
/*
 * ListMetricDescriptors, ListPodSandboxMetrics, StreamPodSandboxMetrics: the figures that the
 * kubelet shows at /metrics/cadvisor, under cAdvisor's names and labels. Peculiar: one table has
 * all of them, but for those that no container here has: what the kernel counts for a whole disk,
 * and what it counts on v2 alone. A figure that isn't known has a descriptor and no value. Values
 * are integers, so times are whole seconds.
 */
#include "cri/gather.h"
#include "cri/methods.h"
#include "cri/reply.h"
#include "cri/translate.h"

#include <string.h>

#include "io/base/cleanup.h"

#define SECOND 1000000000
#define BASE_LABELS 6
#define LABELS_MAX (BASE_LABELS + 4)
#define CPU_PERIOD_US 100000
#define CPU_SHARES 1024

/* Of every metric: cAdvisor's, in this order. */
static const char *const base_labels[BASE_LABELS] = {"id",	  "name",      "image",
						     "container", "namespace", "pod"};

/* What a value is taken from. */
struct subject {
	const struct container *container;
	const struct container_stats *stats;
	const Runtime__V1__LinuxContainerResources *limits;
};

struct metric {
	const char *name, *help;
	Runtime__V1__MetricType type;
	const char *keys[LABELS_MAX - BASE_LABELS];   /* further labels, */
	const char *values[LABELS_MAX - BASE_LABELS]; /* and their values */
	/* One of the two: */
	enum usage_figure figure;
	uint64_t (*get)(const struct subject *s);
	unsigned divisor;     /* 0: 1 */
	bool is_zero_if_none; /* what has no limit */
};

static const Runtime__V1__LinuxContainerResources *limits_of(struct arena *arena,
							     const struct container *c)
{
	static const Runtime__V1__LinuxContainerResources none =
		RUNTIME__V1__LINUX_CONTAINER_RESOURCES__INIT;
	const Runtime__V1__LinuxContainerResources *held = translate_resources_of(arena, c);

	return held ? held : &none;
}

static uint64_t cpu_period(const struct subject *s)
{
	int64_t period = s->limits->cpu_period;

	return period > 0 ? (uint64_t)period : CPU_PERIOD_US;
}

static uint64_t cpu_quota(const struct subject *s)
{
	int64_t quota = s->limits->cpu_quota;

	return quota > 0 ? (uint64_t)quota : USAGE_NONE;
}

static uint64_t cpu_shares(const struct subject *s)
{
	int64_t shares = s->limits->cpu_shares;

	return shares > 0 ? (uint64_t)shares : CPU_SHARES;
}

static uint64_t memory_limit(const struct subject *s)
{
	return (uint64_t)positive(s->limits->memory_limit_in_bytes);
}

static uint64_t swap_limit(const struct subject *s)
{
	return (uint64_t)positive(s->limits->memory_swap_limit_in_bytes);
}

/* The CRI has none. */
static uint64_t no_reservation(const struct subject *s)
{
	return 0;
}

static uint64_t working_set(const struct subject *s)
{
	return usage_working_set(&s->stats->usage);
}

static uint64_t if_measured(const struct subject *s, uint64_t value)
{
	return s->stats->layer.at ? value : USAGE_NONE;
}

static uint64_t layer_bytes(const struct subject *s)
{
	return if_measured(s, s->stats->layer.bytes);
}

static uint64_t fs_bytes(const struct subject *s)
{
	return if_measured(s, s->stats->layer.fs_bytes);
}

static uint64_t fs_inodes(const struct subject *s)
{
	return if_measured(s, s->stats->layer.fs_inodes);
}

static uint64_t fs_inodes_free(const struct subject *s)
{
	return if_measured(s, s->stats->layer.fs_inodes_free);
}

static uint64_t last_seen(const struct subject *s)
{
	return (uint64_t)s->stats->usage.at;
}

static uint64_t start_time(const struct subject *s)
{
	return (uint64_t)positive(s->container->started_at);
}

/* Those that have a value for each device or page size, which are added by themselves. */
static uint64_t never(const struct subject *s)
{
	return USAGE_NONE;
}

#define PRESSURE(resource, kind)                                                                   \
	static uint64_t resource##_##kind(const struct subject *s)                                 \
	{                                                                                          \
		const struct pressures *p = &s->stats->usage.resource;                             \
                                                                                                   \
		return p->is_known ? p->kind.total : USAGE_NONE;                                   \
	}
PRESSURE(cpu, some)
PRESSURE(cpu, full)
PRESSURE(memory, some)
PRESSURE(memory, full)
PRESSURE(io, some)
PRESSURE(io, full)

#define COUNTER RUNTIME__V1__METRIC_TYPE__COUNTER
#define GAUGE RUNTIME__V1__METRIC_TYPE__GAUGE

#define BLKIO "container_blkio_device_usage_total"
#define HUGETLB "container_hugetlb_usage_bytes"
#define HUGETLB_PEAK "container_hugetlb_max_usage_bytes"

/* Rows of one name follow each other. */
static const struct metric metrics[] = {
	{BLKIO, "Bytes moved by a block device", COUNTER,
	 .keys = {"device", "major", "minor", "operation"}, .get = never},
	{"container_cpu_cfs_burst_periods_total", "Periods in which it had more than its quota",
	 COUNTER, .figure = USAGE_CPU_BURSTS},
	{"container_cpu_cfs_burst_seconds_total", "Time that it had beyond its quota", COUNTER,
	 .figure = USAGE_CPU_BURST, .divisor = SECOND},
	{"container_cpu_cfs_periods_total", "Enforcement periods of the quota that elapsed",
	 COUNTER, .figure = USAGE_CPU_PERIODS},
	{"container_cpu_cfs_throttled_periods_total", "Periods in which it had to wait", COUNTER,
	 .figure = USAGE_CPU_THROTTLED_PERIODS},
	{"container_cpu_cfs_throttled_seconds_total", "Time that it had to wait", COUNTER,
	 .figure = USAGE_CPU_THROTTLED, .divisor = SECOND},
	{"container_cpu_system_seconds_total", "Processor time in the kernel", COUNTER,
	 .figure = USAGE_CPU_SYSTEM, .divisor = SECOND},
	{"container_cpu_usage_seconds_total", "Processor time", COUNTER, .keys = {"cpu"},
	 .values = {"total"}, .figure = USAGE_CPU, .divisor = SECOND},
	{"container_cpu_user_seconds_total", "Processor time in programs", COUNTER,
	 .figure = USAGE_CPU_USER, .divisor = SECOND},
	{"container_file_descriptors", "Open file descriptors", GAUGE, .figure = USAGE_DESCRIPTORS},
	{"container_fs_inodes_free", "Free inodes of the writable layer's file system", GAUGE,
	 .keys = {"device"}, .values = {""}, .get = fs_inodes_free},
	{"container_fs_inodes_total", "Inodes of the writable layer's file system", GAUGE,
	 .keys = {"device"}, .values = {""}, .get = fs_inodes},
	{"container_fs_limit_bytes", "Size of the writable layer's file system", GAUGE,
	 .keys = {"device"}, .values = {""}, .get = fs_bytes},
	{"container_fs_reads_bytes_total", "Bytes read from disks", COUNTER, .keys = {"device"},
	 .values = {""}, .figure = USAGE_READ_BYTES},
	{"container_fs_reads_total", "Reads from disks", COUNTER, .keys = {"device"},
	 .values = {""}, .figure = USAGE_READS},
	{"container_fs_usage_bytes", "Bytes in the writable layer", GAUGE, .keys = {"device"},
	 .values = {""}, .get = layer_bytes},
	{"container_fs_writes_bytes_total", "Bytes written to disks", COUNTER, .keys = {"device"},
	 .values = {""}, .figure = USAGE_WRITE_BYTES},
	{"container_fs_writes_total", "Writes to disks", COUNTER, .keys = {"device"},
	 .values = {""}, .figure = USAGE_WRITES},
	{HUGETLB_PEAK, "Most bytes of huge pages at a time", GAUGE, .keys = {"pagesize"},
	 .get = never},
	{HUGETLB, "Bytes of huge pages", GAUGE, .keys = {"pagesize"}, .get = never},
	{"container_last_seen", "When the figures were read", GAUGE, .get = last_seen,
	 .divisor = SECOND},
	{"container_memory_cache", "Bytes of page cache", GAUGE, .figure = USAGE_MEMORY_CACHE},
	{"container_memory_failcnt", "How often the limit was hit", COUNTER,
	 .figure = USAGE_MEMORY_FAILURES},
	{"container_memory_failures_total", "Page faults", COUNTER,
	 .keys = {"failure_type", "scope"}, .values = {"pgfault", "container"},
	 .figure = USAGE_PAGE_FAULTS},
	{"container_memory_failures_total", "Page faults", COUNTER,
	 .keys = {"failure_type", "scope"}, .values = {"pgmajfault", "container"},
	 .figure = USAGE_MAJOR_PAGE_FAULTS},
	{"container_memory_failures_total", "Page faults", COUNTER,
	 .keys = {"failure_type", "scope"}, .values = {"pgfault", "hierarchy"},
	 .figure = USAGE_PAGE_FAULTS},
	{"container_memory_failures_total", "Page faults", COUNTER,
	 .keys = {"failure_type", "scope"}, .values = {"pgmajfault", "hierarchy"},
	 .figure = USAGE_MAJOR_PAGE_FAULTS},
	{"container_memory_file_dirty_bytes", "Bytes of files yet to be written", GAUGE,
	 .figure = USAGE_MEMORY_DIRTY},
	{"container_memory_file_writeback_bytes", "Bytes of files that are being written", GAUGE,
	 .figure = USAGE_MEMORY_WRITEBACK},
	{"container_memory_kernel_usage", "Bytes of kernel memory", GAUGE,
	 .figure = USAGE_MEMORY_KERNEL},
	{"container_memory_mapped_file", "Bytes of mapped files", GAUGE,
	 .figure = USAGE_MEMORY_MAPPED},
	{"container_memory_max_usage_bytes", "Most bytes of memory at a time", GAUGE,
	 .figure = USAGE_MEMORY_PEAK},
	{"container_memory_rss", "Bytes of anonymous memory", GAUGE, .figure = USAGE_MEMORY_RSS},
	{"container_memory_swap", "Bytes in swap", GAUGE, .figure = USAGE_SWAP},
	{"container_memory_total_active_file_bytes", "Bytes of files in use", GAUGE,
	 .figure = USAGE_MEMORY_ACTIVE_FILE},
	{"container_memory_total_inactive_file_bytes", "Bytes of files not in use lately", GAUGE,
	 .figure = USAGE_MEMORY_INACTIVE_FILE},
	{"container_memory_usage_bytes", "Bytes of memory, all counted", GAUGE,
	 .figure = USAGE_MEMORY},
	{"container_memory_working_set_bytes", "Bytes of memory without inactive files", GAUGE,
	 .get = working_set},
	{"container_memory_workingset_refault_anon_total",
	 "Anonymous pages that were wanted back after reclaim", COUNTER,
	 .figure = USAGE_ANON_REFAULTS},
	{"container_memory_workingset_refault_file_total",
	 "Pages of files that were wanted back after reclaim", COUNTER,
	 .figure = USAGE_FILE_REFAULTS},
	{"container_oom_events_total", "Processes killed for memory", COUNTER,
	 .figure = USAGE_OOM_KILLS},
	{"container_pressure_cpu_stalled_seconds_total",
	 "Time in which all tasks waited for a processor", COUNTER, .get = cpu_full,
	 .divisor = SECOND},
	{"container_pressure_cpu_waiting_seconds_total",
	 "Time in which some task waited for a processor", COUNTER, .get = cpu_some,
	 .divisor = SECOND},
	{"container_pressure_io_stalled_seconds_total", "Time in which all tasks waited for disks",
	 COUNTER, .get = io_full, .divisor = SECOND},
	{"container_pressure_io_waiting_seconds_total", "Time in which some task waited for disks",
	 COUNTER, .get = io_some, .divisor = SECOND},
	{"container_pressure_memory_stalled_seconds_total",
	 "Time in which all tasks waited for memory", COUNTER, .get = memory_full,
	 .divisor = SECOND},
	{"container_pressure_memory_waiting_seconds_total",
	 "Time in which some task waited for memory", COUNTER, .get = memory_some,
	 .divisor = SECOND},
	{"container_processes", "Processes", GAUGE, .figure = USAGE_PROCESSES},
	{"container_sockets", "Open sockets", GAUGE, .figure = USAGE_SOCKETS},
	{"container_spec_cpu_period", "Period of the processor quota, in microseconds", GAUGE,
	 .get = cpu_period},
	{"container_spec_cpu_quota", "Processor quota of a period, in microseconds", GAUGE,
	 .get = cpu_quota},
	{"container_spec_cpu_shares", "Processor shares", GAUGE, .get = cpu_shares},
	{"container_spec_memory_limit_bytes", "Limit of memory, 0 for none", GAUGE,
	 .get = memory_limit},
	{"container_spec_memory_reservation_limit_bytes", "Reserved memory", GAUGE,
	 .get = no_reservation},
	{"container_spec_memory_swap_limit_bytes", "Limit of memory and swap, 0 for none", GAUGE,
	 .get = swap_limit},
	{"container_start_time_seconds", "When it was started", GAUGE, .get = start_time,
	 .divisor = SECOND},
	{"container_threads", "Threads", GAUGE, .figure = USAGE_TASKS},
	{"container_threads_max", "Limit of threads, 0 for none", GAUGE,
	 .figure = USAGE_TASKS_LIMIT, .is_zero_if_none = true},
	{"container_ulimits_soft", "Soft limit of the main process", GAUGE, .keys = {"ulimit"},
	 .values = {"max_open_files"}, .figure = USAGE_DESCRIPTORS_LIMIT},
};

#define METRIC_COUNT (sizeof(metrics) / sizeof(metrics[0]))

/* Of a pod's network, once an interface. */
struct net_metric {
	const char *name, *help;
	uint64_t (*get)(const struct net_usage *n);
};

#define TRAFFIC(direction, member)                                                                 \
	static uint64_t direction##_##member(const struct net_usage *n)                            \
	{                                                                                          \
		return n->direction.member;                                                        \
	}
TRAFFIC(received, bytes)
TRAFFIC(received, errors)
TRAFFIC(received, dropped)
TRAFFIC(received, packets)
TRAFFIC(sent, bytes)
TRAFFIC(sent, errors)
TRAFFIC(sent, dropped)
TRAFFIC(sent, packets)

static const struct net_metric net_metrics[] = {
	{"container_network_receive_bytes_total", "Bytes received", received_bytes},
	{"container_network_receive_errors_total", "Errors while receiving", received_errors},
	{"container_network_receive_packets_dropped_total", "Packets dropped while receiving",
	 received_dropped},
	{"container_network_receive_packets_total", "Packets received", received_packets},
	{"container_network_transmit_bytes_total", "Bytes sent", sent_bytes},
	{"container_network_transmit_errors_total", "Errors while sending", sent_errors},
	{"container_network_transmit_packets_dropped_total", "Packets dropped while sending",
	 sent_dropped},
	{"container_network_transmit_packets_total", "Packets sent", sent_packets},
};

#define NET_METRIC_COUNT (sizeof(net_metrics) / sizeof(net_metrics[0]))

static Runtime__V1__MetricDescriptor *descriptor(struct arena *arena, const char *name,
						 const char *help, const char *const *extra,
						 size_t extra_max)
{
	Runtime__V1__MetricDescriptor *d =
		REPLY(arena, Runtime__V1__MetricDescriptor, RUNTIME__V1__METRIC_DESCRIPTOR__INIT);

	d->name = text(name);
	d->help = text(help);
	d->label_keys = arena_new_array(arena, char *, LABELS_MAX);
	for (size_t i = 0; i < BASE_LABELS; i++)
		d->label_keys[d->n_label_keys++] = text(base_labels[i]);
	for (size_t i = 0; i < extra_max && extra[i]; i++)
		d->label_keys[d->n_label_keys++] = text(extra[i]);
	return d;
}

int cri_list_metric_descriptors(struct task *t, struct call *c, const void *message)
{
	static const char *const interface[] = {"interface"};
	Runtime__V1__ListMetricDescriptorsResponse reply =
		RUNTIME__V1__LIST_METRIC_DESCRIPTORS_RESPONSE__INIT;

	reply.descriptors = arena_new_array(t->arena, Runtime__V1__MetricDescriptor *,
					    METRIC_COUNT + NET_METRIC_COUNT);
	for (size_t i = 0; i < METRIC_COUNT; i++)
		if (!i || strcmp(metrics[i].name, metrics[i - 1].name) != 0)
			reply.descriptors[reply.n_descriptors++] =
				descriptor(t->arena, metrics[i].name, metrics[i].help,
					   metrics[i].keys, LABELS_MAX - BASE_LABELS);
	for (size_t i = 0; i < NET_METRIC_COUNT; i++)
		reply.descriptors[reply.n_descriptors++] = descriptor(
			t->arena, net_metrics[i].name, net_metrics[i].help, interface, 1);
	return call_reply(t, c, &reply.base);
}

/* As cAdvisor has it: the path of the cgroup. */
static char *id_label(struct arena *arena, const struct sandbox *sb, const struct container *c)
{
	struct container_info container = {0};
	struct sandbox_info pod = {0};
	const char *cgroup;

	if (c && c->handle)
		sb->kind->container_info(c->handle, &container);
	else if (!c && sb->handle)
		sb->kind->sandbox_info(sb->handle, &pod);
	cgroup = c ? container.cgroup : pod.cgroup;
	return cgroup ? arena_strdup(arena, cgroup)
		      : arena_printf(arena, "/%s", c ? c->id : sb->id);
}

/* The values of base_labels, which all metrics of an object share. */
static char **labels_of(struct arena *arena, const struct sandbox *sb, const struct container *c)
{
	const Runtime__V1__PodSandboxConfig *pod = sandbox_config(arena, sb);
	const Runtime__V1__ContainerConfig *config = c ? container_config(arena, c) : NULL;
	char **labels = arena_new_array(arena, char *, BASE_LABELS);

	labels[0] = id_label(arena, sb, c);
	labels[1] = text(c ? c->id : "");
	labels[2] = text(config && config->image ? config->image->image : "");
	labels[3] = text(config && config->metadata ? config->metadata->name : "");
	labels[4] = text(pod->metadata ? pod->metadata->namespace_ : "");
	labels[5] = text(pod->metadata ? pod->metadata->name : "");
	return labels;
}

static Runtime__V1__Metric *metric_of(struct arena *arena, const char *name,
				      Runtime__V1__MetricType type, char **labels, uint64_t value)
{
	Runtime__V1__Metric *m = REPLY(arena, Runtime__V1__Metric, RUNTIME__V1__METRIC__INIT);

	m->name = text(name);
	m->metric_type = type;
	m->value = reply_value(arena, value);
	m->label_values = arena_new_array(arena, char *, LABELS_MAX);
	m->n_label_values = BASE_LABELS;
	memcpy(m->label_values, labels, BASE_LABELS * sizeof(*labels));
	return m;
}

static uint64_t value_of(const struct metric *m, const struct subject *s)
{
	uint64_t value = m->get ? m->get(s) : s->stats->usage.figures[m->figure];

	if (value == USAGE_NONE)
		return m->is_zero_if_none ? 0 : value;
	return m->divisor ? value / m->divisor : value;
}

static void add_label(Runtime__V1__Metric *m, const char *value)
{
	m->label_values[m->n_label_values++] = text(value);
}

static void add_device(struct arena *arena, Runtime__V1__ContainerMetrics *all, char **labels,
		       const struct device_usage *d, bool is_write)
{
	Runtime__V1__Metric *m =
		metric_of(arena, BLKIO, COUNTER, labels, is_write ? d->write_bytes : d->read_bytes);

	add_label(m, *d->name ? arena_printf(arena, "/dev/%s", d->name) : "");
	add_label(m, arena_printf(arena, "%u", d->major));
	add_label(m, arena_printf(arena, "%u", d->minor));
	add_label(m, is_write ? "Write" : "Read");
	all->metrics[all->n_metrics++] = m;
}

static void add_hugepages(struct arena *arena, Runtime__V1__ContainerMetrics *all, char **labels,
			  const char *name, const char *size, uint64_t value)
{
	Runtime__V1__Metric *m;

	if (value == USAGE_NONE)
		return;
	m = metric_of(arena, name, GAUGE, labels, value);
	add_label(m, arena_strdup(arena, size));
	all->metrics[all->n_metrics++] = m;
}

/* Two of each device and page size at most. */
static void add_single_ones(struct arena *arena, Runtime__V1__ContainerMetrics *all, char **labels,
			    const struct usage *u)
{
	for (size_t i = 0; i < u->device_count; i++) {
		add_device(arena, all, labels, &u->devices[i], false);
		add_device(arena, all, labels, &u->devices[i], true);
	}
	for (size_t i = 0; i < u->hugepage_count; i++) {
		const struct hugepage_usage *h = &u->hugepages[i];

		add_hugepages(arena, all, labels, HUGETLB, h->size, h->bytes);
		add_hugepages(arena, all, labels, HUGETLB_PEAK, h->size, h->peak);
	}
}

static Runtime__V1__ContainerMetrics *container_metrics(struct arena *arena,
							const struct subject *s)
{
	Runtime__V1__ContainerMetrics *all =
		REPLY(arena, Runtime__V1__ContainerMetrics, RUNTIME__V1__CONTAINER_METRICS__INIT);
	char **labels = labels_of(arena, s->container->sandbox, s->container);

	all->container_id = (char *)s->container->id;
	all->metrics = arena_new_array(arena, Runtime__V1__Metric *,
				       METRIC_COUNT + 2 * (USAGE_DEVICES + USAGE_PAGE_SIZES));
	for (size_t i = 0; i < METRIC_COUNT; i++) {
		const struct metric *m = &metrics[i];
		uint64_t value = value_of(m, s);
		Runtime__V1__Metric *reply;

		if (value == USAGE_NONE)
			continue;
		reply = metric_of(arena, m->name, m->type, labels, value);
		for (size_t k = 0; k < LABELS_MAX - BASE_LABELS && m->keys[k]; k++)
			add_label(reply, m->values[k]);
		all->metrics[all->n_metrics++] = reply;
	}
	add_single_ones(arena, all, labels, &s->stats->usage);
	return all;
}

/* Loopback only counts for a pod that has nothing else. */
static bool is_counted(const struct net_list *net, size_t i)
{
	return net->count == 1 || strcmp(net->items[i].name, "lo") != 0;
}

static Runtime__V1__PodSandboxMetrics *pod_metrics(struct arena *arena, const struct sandbox *sb,
						   const struct sandbox_stats *stats)
{
	Runtime__V1__PodSandboxMetrics *all = REPLY(arena, Runtime__V1__PodSandboxMetrics,
						    RUNTIME__V1__POD_SANDBOX_METRICS__INIT);
	const struct net_list *net = &stats->all.net;
	char **labels = labels_of(arena, sb, NULL);

	all->pod_sandbox_id = (char *)sb->id;
	all->metrics = arena_new_array(arena, Runtime__V1__Metric *, net->count * NET_METRIC_COUNT);
	for (size_t i = 0; i < net->count; i++) {
		for (size_t k = 0; k < NET_METRIC_COUNT && is_counted(net, i); k++) {
			Runtime__V1__Metric *m =
				metric_of(arena, net_metrics[k].name, COUNTER, labels,
					  net_metrics[k].get(&net->items[i]));

			m->label_values[m->n_label_values++] =
				arena_strdup(arena, net->items[i].name);
			all->metrics[all->n_metrics++] = m;
		}
	}
	all->container_metrics =
		arena_new_array(arena, Runtime__V1__ContainerMetrics *, stats->count);
	for (size_t i = 0; i < stats->count; i++) {
		struct subject s = {stats->containers[i], &stats->stats[i], NULL};

		if (!s.stats->usage.at || s.container->is_removed)
			continue;
		s.limits = limits_of(arena, s.container);
		all->container_metrics[all->n_container_metrics++] = container_metrics(arena, &s);
	}
	return all;
}

/* Those of all pods that are ready. */
static int list_metrics(struct task *t, struct node *n, struct sandbox_gather *g,
			Runtime__V1__PodSandboxMetrics ***ret)
{
	TRY(sandbox_gather(t, n, NULL, true, g));
	*ret = arena_new_array(t->arena, Runtime__V1__PodSandboxMetrics *, g->count);
	for (size_t i = 0; i < g->count; i++)
		(*ret)[i] = pod_metrics(t->arena, g->sandboxes[i], &g->stats[i]);
	return 0;
}

int cri_list_pod_sandbox_metrics(struct task *t, struct call *c, const void *message)
{
	Runtime__V1__ListPodSandboxMetricsResponse reply =
		RUNTIME__V1__LIST_POD_SANDBOX_METRICS_RESPONSE__INIT;
	struct sandbox_gather g CLEANUP(sandbox_gather_done) = {0};

	TRY(list_metrics(t, call_data(c), &g, &reply.pod_metrics));
	reply.n_pod_metrics = g.count;
	return call_reply(t, c, &reply.base);
}

int cri_stream_pod_sandbox_metrics(struct task *t, struct call *c, const void *message)
{
	struct sandbox_gather g CLEANUP(sandbox_gather_done) = {0};
	Runtime__V1__PodSandboxMetrics **list;

	TRY(list_metrics(t, call_data(c), &g, &list));
	return reply_stream_items(t, c, (ProtobufCMessage **)list, g.count);
}
