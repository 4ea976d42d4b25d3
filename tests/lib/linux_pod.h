/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Pods of the linux kind for tests that run as root: a directory of its own, an image of one layer
 * with busybox, a kind that is initialised on a loop of its own. What a test leaves behind makes
 * its teardown fail: processes, descriptors, mounts, cgroups, pins.
 */
#pragma once

#include "io/base/buf.h"
#include "recovery/pin.h"
#include "sandbox/sandboxer.h"

struct linux_node {
	struct loop *loop;
	char *dir;   /* everything of the test, absolute */
	char *layer; /* the image */
	struct pins *pins;
	const struct sandboxer *kind;
	unsigned exits, sandbox_exits; /* how often the kind reported one */
	uint64_t oom_kills;	       /* as the kind reported them */
	char *oom_group;	       /* of the last ones */
	struct error last;	       /* of the last on_task() */
};

extern struct linux_node node;

/* For cmocka: the node, once for a group of tests. */
int linux_node_setup(void **state);
int linux_node_teardown(void **state);
/* The kind as a new server would find it: handles are invalid afterwards. */
void linux_node_restart(void);

/* Runs fn(t, arg) on a task to its end; its error is in node.last. */
int on_task(int (*fn)(struct task *t, void *arg), void *arg);

/* A pod and a container in it with their defaults, to be changed before they are used. */
struct linux_pod {
	struct sandbox_spec sandbox;
	struct container_spec container;
	char id[65], container_id[65], parent[64];
	const char *argv[16], *envp[16];
	const char *layers[4];
	char *upper, *work;
	void *sandbox_handle, *container_handle;
	int out[2]; /* pipe of stdout and stderr */
	struct buf output;
	struct container_exit exit;
	int master; /* its terminal or -1 */
};

/* argv is sh -c script. */
void pod_init(struct linux_pod *p, const char *script);
void pod_done(struct linux_pod *p);
/* Whole steps, each negative with node.last when it fails. */
int pod_create(struct task *t, struct linux_pod *p);
int pod_start(struct task *t, struct linux_pod *p);
/* Reads to the end of its output, waits. */
int pod_wait(struct task *t, struct linux_pod *p);
int pod_remove(struct task *t, struct linux_pod *p);
/* Creates, starts, waits, removes; also after a failure. Output and exit are in p. */
int pod_run(struct linux_pod *p);
/* The second container of a pod: shares everything but the container's own things. */
void pod_init_second(struct linux_pod *p, const struct linux_pod *first, const char *script);

/* Runs argv by exec in the pod's container; output in *ret, exit code or negative. */
int pod_exec(struct task *t, struct linux_pod *p, const char *id, const char *script,
	     struct buf *ret);

/* Asserts that text has the line. */
void assert_line(const char *text, const char *line);
