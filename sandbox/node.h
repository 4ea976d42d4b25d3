/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The node: every sandbox and container that this server answers for, in memory, and what their
 * operations need. The store holds the same durably; a reply follows its commit.
 *
 * Ownership: the maps hold one reference on each object until it is removed; a task that works on
 * one holds another (…_acquire), since it may wait while the object goes. Everything is the loop
 * thread's.
 *
 * Order: an object's operations take its queue, a sandbox's before those of its containers; nobody
 * keeps a queue while it waits for a container to end, since the end takes the queue itself.
 *
 * The front end (cri/) gives configurations as bytes; the node keeps them as it received them, and
 * asks the front end for their meaning.
 */
#pragma once

#include <stdint.h>

#include "io/base/cleanup.h"
#include "io/base/map.h"
#include "io/container_io.h"
#include "io/task.h"
#include "sandbox/handler.h"
#include "sandbox/sandboxer.h"
#include "store/image/image.h"

struct store;
struct fdstore;
struct job;
struct node;

/* In a container's root_dir: a directory for each volume of its image. */
#define CONTAINER_VOLUMES "volumes"
#define ID_SIZE 65 /* 64 hex digits and NUL */
#define SECCOMP_PROFILE_NAME "seccomp.json"

/* Durable (store rows hold the numbers): append only. */
enum sandbox_state {
	SANDBOX_CREATING = 0, /* the intent; a restart undoes it */
	SANDBOX_READY = 1,
	SANDBOX_NOTREADY = 2,
	SANDBOX_REMOVING = 3, /* the intent; a restart finishes it */
};

enum container_state {
	CONTAINER_CREATING = 0,
	CONTAINER_CREATED = 1,
	CONTAINER_RUNNING = 2,
	CONTAINER_EXITED = 3,
	CONTAINER_REMOVING = 4,
};

/* Limits of a container or of a whole sandbox, as updates leave them: the front end's bytes. */
struct limits {
	struct buf bytes; /* empty: as in the configuration */
	struct buf next;  /* those that an update under way shall leave */
};

struct sandbox {
	struct node *node;
	char id[ID_SIZE];
	enum sandbox_state state;
	const struct sandboxer *kind;
	char *handler;	   /* of the request: "" is the default one */
	char *options;	   /* what that meant (handler_text()); NULL: not known */
	char *name;	   /* the key that must be unique among sandboxes */
	struct buf config; /* the front end's bytes, which it can decode */
	void *handle;	   /* the kind's; NULL before create and after a failed recovery */
	struct buf record; /* what the kind recorded, while there is no handle */
	char *dir;	   /* STATE/run/sandboxes/<id> */
	int64_t created_at;
	struct task_mutex queue;
	struct task_event settled; /* recovery has looked at it */
	struct list containers;	   /* struct container, node_in_sandbox */
	struct limits limits;	   /* durable */
	struct cpu_rate cpu_rate;
	bool is_told; /* its creation was to be heard of, so its end will be */
	bool is_removed;
	int refs;
};

struct container {
	struct node *node;
	struct sandbox *sandbox;
	struct list node_in_sandbox;
	char id[ID_SIZE];
	enum container_state state;
	char *name;	   /* the key that must be unique among the containers of all sandboxes */
	struct buf config; /* as a sandbox's */
	struct limits limits; /* durable */
	struct buf edits;     /* what its CDI devices mean (cdi.h); stored, empty: it has none */
	void *handle;	      /* as a sandbox's; one that has ended keeps but its record */
	struct buf record;
	struct container_io *io; /* NULL when nothing is to be logged (any more) */
	int stdin_fd;		 /* our end of its stdin, −1 */
	char *state_dir;	 /* STATE/run/containers/<id>: FIFOs and spools */
	char *root_dir; /* ROOT/containers/<id>: the overlay's upper and work, CONTAINER_VOLUMES */
	char *log_path; /* absolute; NULL: output is dropped */
	char *image_id, *image_ref;
	int64_t created_at, started_at, finished_at;
	int exit_code;
	int stop_signal; /* these three from its spec, once that was made */
	bool has_tty, has_stdin;
	char *reason, *message;
	struct task_mutex queue;
	struct task_event settled;
	struct task_event exited; /* set once it is EXITED and that is durable */
	struct io_position position;
	bool has_position;
	struct cpu_rate cpu_rate;
	struct layer_usage layer; /* as last measured */
	int64_t layer_cost;	  /* what that took, ns */
	struct job *layer_job;	  /* that measures it now, or NULL */
	bool is_damaged;	  /* its row was: all that it can is end and be removed */
	bool is_partial;	  /* the same, since an image of it is damaged or gone */
	bool is_told;		  /* as a sandbox's */
	bool is_removed;
	int refs;
};

/* The meaning of struct limits; object is the container or the sandbox. */
struct limits_front {
	/* Fails when the bytes are damaged; the other functions are given none that are. */
	int (*check)(struct arena *arena, const struct buf *bytes, struct error *err);
	/* bytes empty: those of the object's configuration. */
	void (*spec)(struct arena *arena, const void *object, const struct buf *bytes,
		     struct resources *ret);
	/* What comes of those that hold by a change, as it was passed to the update. */
	int (*merge)(struct arena *arena, const void *object, const void *change, struct buf *ret,
		     struct error *err);
};

/*
 * The meaning of configurations, which are kept as bytes and decoded where they are used. All
 * functions are pure; arenas live as long as what is made in them.
 */
struct front_end {
	/* NULL with err set when the bytes are damaged. */
	void *(*sandbox_decode)(struct arena *arena, const struct buf *bytes, struct error *err);
	/* What stands for a damaged one; only the id is known. */
	void (*sandbox_blank)(const char *id, struct buf *ret);
	int (*sandbox_spec)(struct arena *arena, const struct sandbox *sb, struct sandbox_spec *ret,
			    struct error *err);
	void *(*container_decode)(struct arena *arena, const struct buf *bytes, struct error *err);
	void (*container_blank)(const char *id, struct buf *ret);
	/* Of one that is decoded: its name within the sandbox, malloc'ed. */
	char *(*container_name)(const void *config);
	/* image: NULL when it or one that is mounted is damaged or gone; then the spec has only
	 * what the container's end needs. */
	int (*container_spec)(struct arena *arena, const struct container *c,
			      const struct image *image, struct container_spec *ret,
			      struct error *err);
	/* The ids of the images that it mounts; those are whole when container_spec is asked for
	 * more than its end needs. */
	struct string_list (*container_images)(struct arena *arena, const void *config);
	/* The host's file of its seccomp profile, or NULL; of that a copy is kept, for the spec to
	 * name: SECCOMP_PROFILE_NAME in its root_dir. */
	const char *(*container_profile)(const void *config);
	const struct limits_front *container_limits, *sandbox_limits;
	/* The pod's files that its containers get to see: written to sb->dir. */
	int (*sandbox_files)(const struct sandbox *sb, struct error *err);
};

enum node_event { EVENT_CREATED, EVENT_STARTED, EVENT_STOPPED, EVENT_DELETED };

/*
 * Who wants to hear of changes of state, from node_watch() to node_unwatch(): of each in its order,
 * as soon as it shows in the object. A container is started once its program runs. c is NULL when
 * it is the sandbox that changed. Neither suspends nor unwatches.
 */
struct node_watcher {
	struct list node;
	void (*changed)(void *data, enum node_event event, const struct sandbox *sb,
			const struct container *c);
	void *data;
};

enum row_kind { ROW_SANDBOX, ROW_CONTAINER, ROW_STREAM };

/* Who wants to hear of damaged rows instead of the log; nothing is written then. */
struct row_report {
	/* id is never NULL, and maybe none */
	void (*damaged)(void *data, enum row_kind kind, const char *id, const char *why);
	void *data;
};

struct node {
	struct loop *loop;
	const struct front_end *front;
	struct store *store;
	struct image_store *images;	     /* NULL: of no interest (crisp fsck) */
	const struct row_report *row_report; /* NULL: the log */
	struct pins *pins;
	struct fdstore *fdstore;
	struct sandboxer_env env;
	char *root_dir, *state_dir;		     /* absolute */
	const char *cgroup_driver, *systemd_address; /* as env's */
	char *pod_cidr; /* addresses for pods as the kubelet told them, or NULL */
	char *run_dir;	/* STATE/run, in memory: what comes and goes with each object */
	/* ROOT/containers, STATE/run/containers, STATE/run/sandboxes: a directory for each object
	 */
	int roots_fd, states_fd, sandboxes_fd;
	/* Writable layers are on another file system than images. */
	bool has_layer_disk;
	struct string_list cdi_dirs;	/* later ones win */
	const struct handler *handlers; /* the first is the default one */
	size_t handler_count;
	size_t pipe_size; /* of a container's stdout and stderr, bytes */
	bool log_blocks;  /* a container whose log can't be written waits, and loses nothing */
	struct map sandboxes, containers;
	struct map sandbox_names, container_names;
	struct reconcile *reconcile; /* intents of an earlier life, until they are seen to */
	/* What recovery still has to do: objects that it has not seen to, and the sweep. */
	size_t unsettled;
	struct {
		size_t busy; /* objects that are worked on */
		struct task_cond changed;
	} recovery;
	struct list watchers;	  /* struct node_watcher */
	struct map lost_handlers; /* names of those that pods were made by and that are gone */
	struct map strangers; /* ids of rows that this build can't use, which keep what is theirs */
	bool is_incomplete;   /* some rows could not be read */
	bool is_rebooted;  /* the rows are of an earlier boot: their change could not be written */
	bool is_boot_open; /* and this boot is not noted yet */
};

/* Fills env from the other members, for the kinds' init. */
void node_set_env(struct node *n);
/* At start, once the store is open: after a reboot everything in it has ended. */
void node_check_boot(struct node *n);
/* Opens the state of an earlier life, without touching the world: then the socket can answer. */
int node_load(struct node *n, struct error *err);
/* Starts a task for each object that brings it and the world in line. */
void node_reconcile(struct node *n);

/*
 * Removes what has a place and a name of ours and belongs to no object, once all are settled; fn is
 * told of each thing, such as "directory /x/y". is_dry: nothing is removed. ERR_PRECONDITION when
 * some rows could not be read.
 */
int node_sweep(struct task *t, struct node *n, bool is_dry,
	       void (*fn)(void *data, const char *thing), void *data);

/* Durable. */
int node_set_pod_cidr(struct task *t, struct node *n, const char *cidr);

void node_watch(struct node *n, struct node_watcher *w);
void node_unwatch(struct node_watcher *w);

/* By id or unambiguous prefix, without a reference; NULL when there is none. */
struct sandbox *sandbox_find(struct node *n, const char *id);
struct container *container_find(struct node *n, const char *id);
/* Finds, waits until settled, takes a reference and the queue. ERR_NOT_FOUND when there is none. */
int sandbox_acquire(struct task *t, struct node *n, const char *id, struct sandbox **ret);
int container_acquire(struct task *t, struct node *n, const char *id, struct container **ret);
/* For who only looks at an object with a reference of its own: waits a moment (200 ms) for recovery
 * to see to it, and to the sandbox's containers; of what takes longer, what is recorded is to be
 * told. */
int sandbox_look(struct task *t, struct sandbox *sb);
int container_look(struct task *t, struct container *c);
void sandbox_release(struct sandbox *sb);
void container_release(struct container *c);
struct sandbox *sandbox_ref(struct sandbox *sb);
void sandbox_unref(struct sandbox *sb);
struct container *container_ref(struct container *c);
void container_unref(struct container *c);

static inline void cleanup_sandbox_fn(struct sandbox **sb)
{
	if (*sb)
		sandbox_release(*sb);
}

static inline void cleanup_container_fn(struct container **c)
{
	if (*c)
		container_release(*c);
}

#define cleanup_sandbox CLEANUP(cleanup_sandbox_fn)
#define cleanup_container CLEANUP(cleanup_container_fn)

/* What the front end asks for; see the CRI calls of the same names for the meaning. */
struct sandbox_request {
	const char *name; /* unique key */
	const char *handler;
	const void *config;
	size_t config_size;
};

struct container_request {
	const char *sandbox_id;
	const char *name; /* unique within the sandbox */
	const char *image;
	const char *log_path;		/* absolute or NULL */
	struct string_list cdi_devices; /* checked names */
	const void *config;
	size_t config_size;
};

/* A repeated request joins the running one and gets its id. ret_id has ID_SIZE bytes. */
int sandbox_run(struct task *t, struct node *n, const struct sandbox_request *request,
		char *ret_id);
/* Both succeed for what is gone. */
int sandbox_stop(struct task *t, struct node *n, const char *id);
int sandbox_remove(struct task *t, struct node *n, const char *id);

int container_create(struct task *t, struct node *n, const struct container_request *request,
		     char *ret_id);
int container_start(struct task *t, struct node *n, const char *id);
/* The stop signal, then after grace_ms SIGKILL for all of it. */
int container_stop(struct task *t, struct node *n, const char *id, uint64_t grace_ms);
int container_remove(struct task *t, struct node *n, const char *id);
/*
 * Changes the limits of a container that has not ended: all that change says, or nothing. change is
 * the front end's. A value that can't be had is ERR_INVALID and names the field or the file; one
 * that has ended is ERR_PRECONDITION. A server that dies under it leaves it whole or undone to the
 * next one.
 */
int container_update(struct task *t, struct node *n, const char *id, const void *change);
/* The same for a whole sandbox that is ready. What it changes is the kind's to say; where somebody
 * else has set limits for the pod (spec.h), they are only recorded. */
int sandbox_update(struct task *t, struct node *n, const char *id, const void *change);
/* The limits that it has now, whoever changed them; looked at for a moment (200 ms) only. An error
 * where nobody can tell, as of one that has ended: those that were asked for are to be told then.
 * The caller has a reference. */
int container_limits(struct task *t, struct container *c, struct limits_now *ret);
int container_reopen_log(struct task *t, struct node *n, const char *id);

/* What became of a container's stdout and stderr in all its life, in bytes. Without a log nothing
 * is logged, and nothing is dropped either. */
struct container_output {
	uint64_t taken[2], logged[2], dropped[2];
	bool is_log_failing; /* now: it can't be written */
};

struct container_output container_output(const struct container *c);

struct container_stats {
	struct usage usage;	  /* nothing is known of one that doesn't run */
	uint64_t nano_cores;	  /* processor time per second; USAGE_NONE at the first look */
	struct layer_usage layer; /* of its writable layer */
};

/*
 * What each of them uses: the caller has references on them, and room for as many in ret. What
 * hangs, ends or is gone meanwhile is left unknown after a second; the others don't wait for it.
 * Fails only with the caller's own deadline or cancellation. Details are those of usage.h that
 * take a look at each process.
 */
int containers_stats(struct task *t, struct container **containers, size_t count, bool has_details,
		     struct container_stats *ret);

/* What the writable layers of all containers take together, each as it was last measured if it is
 * not measured within a moment. Fails like containers_stats(). */
int layers_usage(struct task *t, struct node *n, uint64_t *ret_bytes, uint64_t *ret_inodes);

struct sandbox_stats {
	bool is_sum;
	struct sandbox_usage all; /* its usage, where the kind can't tell, the containers' sum */
	uint64_t nano_cores;
	struct container **containers; /* references, and what each uses; in the task's arena */
	struct container_stats *stats;
	size_t count;
};

/* The same for sandboxes with their containers. ret is zeroed before, and given up by
 * sandbox_stats_done() even after a failure. */
int sandboxes_stats(struct task *t, struct sandbox **sandboxes, size_t count, bool has_details,
		    struct sandbox_stats *ret);
void sandbox_stats_done(struct sandbox_stats *stats);

struct exec_result {
	struct buf out, err; /* the caller frees them */
	int exit_code;
};

/* Runs argv to its end; timeout_ms 0 means none. */
int container_exec_sync(struct task *t, struct node *n, const char *id,
			const struct string_list *argv, uint64_t timeout_ms,
			struct exec_result *ret);
