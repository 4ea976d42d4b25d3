/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a container or a sandbox used, in neutral terms. Nothing here is kept up to date by itself:
 * figures are read when somebody asks. Sizes are bytes, times nanoseconds; counters only grow while
 * the container lives.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Not known, not limited, or nothing that this node counts. */
#define USAGE_NONE UINT64_MAX

enum usage_figure {
	USAGE_CPU, /* time on all processors */
	USAGE_CPU_USER,
	USAGE_CPU_SYSTEM,
	USAGE_CPU_PERIODS, /* of its quota; in how many of them it had to wait, and how long */
	USAGE_CPU_THROTTLED_PERIODS,
	USAGE_CPU_THROTTLED,
	USAGE_CPU_BURSTS, /* periods in which it had more than its quota, and by how much */
	USAGE_CPU_BURST,
	USAGE_MEMORY,
	USAGE_MEMORY_LIMIT,
	USAGE_MEMORY_PEAK,
	USAGE_MEMORY_FAILURES, /* how often the limit was hit */
	USAGE_MEMORY_ACTIVE_FILE,
	USAGE_MEMORY_INACTIVE_FILE,
	USAGE_MEMORY_RSS, /* anonymous */
	USAGE_MEMORY_CACHE,
	USAGE_MEMORY_MAPPED,
	USAGE_MEMORY_KERNEL,
	USAGE_MEMORY_DIRTY, /* cached writes, and those on their way to a disk */
	USAGE_MEMORY_WRITEBACK,
	USAGE_FILE_REFAULTS, /* of pages that reclaim had taken */
	USAGE_ANON_REFAULTS,
	USAGE_PAGE_FAULTS,
	USAGE_MAJOR_PAGE_FAULTS, /* that had to read */
	USAGE_SWAP,
	USAGE_SWAP_LIMIT,
	USAGE_OOM_KILLS,
	USAGE_TASKS, /* threads */
	USAGE_TASKS_LIMIT,
	USAGE_PROCESSES,
	USAGE_READS, /* of disks: operations and bytes */
	USAGE_READ_BYTES,
	USAGE_WRITES,
	USAGE_WRITE_BYTES,
	USAGE_DESCRIPTORS, /* these three, devices and hugepages only where details are asked for */
	USAGE_SOCKETS,
	USAGE_DESCRIPTORS_LIMIT, /* of its main process */
	USAGE_COUNT,
};

/* Waiting for a resource: all time, and the percentage of the last 10, 60 and 300 seconds. */
struct pressure {
	uint64_t total;
	double average[3];
};

/* Of some of its tasks, and of all at once. */
struct pressures {
	bool is_known;
	struct pressure some, full;
};

/* More devices than these are left out. */
#define USAGE_DEVICES 8
/* No processor has more sizes of huge pages. */
#define USAGE_PAGE_SIZES 4

/* Of one disk. */
struct device_usage {
	unsigned major, minor;
	char name[32]; /* "sda"; "" when nobody knows */
	uint64_t read_bytes, write_bytes;
};

/* Huge pages of one size; peak may be USAGE_NONE. */
struct hugepage_usage {
	char size[16]; /* "2MB" */
	uint64_t bytes, peak;
};

struct usage {
	int64_t at; /* realtime; 0: nothing is known */
	uint64_t figures[USAGE_COUNT];
	struct pressures cpu, memory, io;
	struct device_usage devices[USAGE_DEVICES];
	size_t device_count;
	struct hugepage_usage hugepages[USAGE_PAGE_SIZES];
	size_t hugepage_count;
};

/* One direction of a network interface. */
struct net_traffic {
	uint64_t bytes, packets, errors, dropped;
};

struct net_usage {
	char name[16];
	struct net_traffic received, sent;
};

/* Interfaces of a network namespace; items are malloc'ed. */
struct net_list {
	int64_t at; /* realtime; 0: nothing is known */
	struct net_usage *items;
	size_t count;
};

void net_list_done(struct net_list *list);

/* What a kind can tell of a whole sandbox. */
struct sandbox_usage {
	struct usage usage; /* not known where it has nothing of its own that counts */
	struct net_list net;
};

/* All of it USAGE_NONE. */
void usage_init(struct usage *u);
/* Memory that can't be had back at once: what is used without the inactive part of files. */
uint64_t usage_working_set(const struct usage *u);
/* Adds what counts for both: no limits, no peaks, no pressures and nothing of single devices or
 * page sizes. What either doesn't know is the
 * other's. */
void usage_add(struct usage *to, const struct usage *u);
/* What is left of a limit; USAGE_NONE without one. */
uint64_t usage_left(uint64_t limit, uint64_t used);

/* A writable layer: what is stored in it. */
struct layer_usage {
	int64_t at; /* when that was measured, realtime; 0: never */
	uint64_t bytes, inodes;
	uint64_t fs_bytes, fs_inodes, fs_inodes_free; /* of the file system that it is on */
};

/* The last two times that a container's processor time was looked at; zeroed at first. */
struct cpu_rate {
	int64_t at;
	uint64_t cpu;
	uint64_t per_second;
	bool is_known;
};

/*
 * Takes in a look at at, and returns the processor time per second between two looks that are at
 * least one second apart: these and the one before, or the last such; USAGE_NONE if there were none
 * yet.
 */
uint64_t cpu_rate_add(struct cpu_rate *r, int64_t at, uint64_t cpu);
