/* SPDX-License-Identifier: Apache-2.0 */
/*
 * crispd: opens what the node has, answers on the socket, then brings recorded and real state in
 * line. Peculiar: there is no clean shutdown. SIGTERM ends the process as SIGKILL would; containers
 * go on, and the next start takes them over.
 */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <linux/magic.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#include "cri/config.h"
#include "cri/grpc.h"
#include "cri/methods.h"
#include "cri/translate.h"
#include "io/base/alloc.h"
#include "io/base/cleanup.h"
#include "io/base/log.h"
#include "io/fs.h"
#include "io/procfs.h"
#include "recovery/exit_status.h"
#include "recovery/fdstore.h"
#include "recovery/keeper.h"
#include "recovery/pin.h"
#include "sandbox/cdi.h"
#include "sandbox/node.h"
#include "store/db.h"

/* As low as it goes short of being exempt. */
#define OOM_SCORE "-999"

/* Descriptors of some thousand containers; 128 KiB of kernel memory. */
#define FD_TABLE_SIZE 16384

/* A directory that holds one for each object, and its descriptor. */
static int make_dir(const char *parent, const char *name, int *ret_fd, struct error *err)
{
	char *path cleanup_free = xasprintf("%s/%s", parent, name);

	TRY(fs_make_dirs(path, 0711, err));
	*ret_fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (*ret_fd < 0)
		return error_errno(err, errno, "open %s", path);
	return 0;
}

/* Pipes, spools and the pods' small files come and go with every container, so they are in memory
 * also where the state directory is not. */
static int make_run_dir(struct node *n, struct error *err)
{
	struct statfs fs;

	TRY(fs_make_dirs(n->state_dir, 0711, err));
	n->run_dir = xasprintf("%s/run", n->state_dir);
	TRY(fs_make_dirs(n->run_dir, 0711, err));
	if (statfs(n->run_dir, &fs) < 0)
		return error_errno(err, errno, "statfs %s", n->run_dir);
	if (fs.f_type == TMPFS_MAGIC)
		return 0;
	if (mount("crisp", n->run_dir, "tmpfs", MS_NOSUID | MS_NODEV | MS_NOEXEC, "mode=0711") < 0)
		log_warning("%s stays on disk, since no tmpfs can be mounted there: %s", n->run_dir,
			    strerrordesc_np(errno));
	return 0;
}

static int make_dirs(struct node *n, struct error *err)
{
	TRY(fs_make_dirs(n->root_dir, 0711, err));
	TRY(make_run_dir(n, err));
	TRY(make_dir(n->root_dir, "containers", &n->roots_fd, err));
	TRY(make_dir(n->run_dir, "containers", &n->states_fd, err));
	return make_dir(n->run_dir, "sandboxes", &n->sandboxes_fd, err);
}

static int find_layer_disk(struct node *n, struct error *err)
{
	struct stat layers, images;
	uint64_t bytes, inodes;
	const char *dir;

	image_fs_info(n->images, &bytes, &inodes, &dir);
	if (fstat(n->roots_fd, &layers) < 0 || stat(dir, &images) < 0)
		return error_errno(err, errno, "find the file systems of %s", n->root_dir);
	n->has_layer_disk = layers.st_dev != images.st_dev;
	return 0;
}

static int open_node(struct node *n, const struct config *config, struct error *err)
{
	static const char *default_cdi_dirs[] = {CDI_DIRS};
	const struct sandboxer *kind = sandboxer_find("linux");
	struct handler *handlers;

	n->front = &cri_front_end;
	n->root_dir = config->root;
	n->state_dir = config->state;
	n->pipe_size = config->pipe_size;
	n->cgroup_driver = config->cgroup_driver;
	n->systemd_address = config->systemd_address;
	n->log_blocks = !strcmp(config->log_full, "block");
	n->cdi_dirs = config->cdi_dirs ? (struct string_list){(const char **)config->cdi_dirs,
							      config->cdi_dirs_count}
				       : (struct string_list){default_cdi_dirs, 2};
	n->handler_count = config_handlers(config, &handlers);
	n->handlers = handlers;
	TRY(make_dirs(n, err));
	n->store = store_open(n->loop, n->root_dir, err);
	if (!n->store)
		return -(int)err->code;
	node_check_boot(n);
	n->images = image_store_open(n->loop, n->store, n->root_dir, err);
	if (!n->images)
		return -(int)err->code;
	TRY(find_layer_disk(n, err));
	n->pins = pins_open(n->loop, n->state_dir, err);
	if (!n->pins)
		return -(int)err->code;
	node_set_env(n);
	TRY(kind->init(&n->env, err));
	return node_load(n, err);
}

static int serve(struct node *n, const struct config *config, struct error *err)
{
	struct grpc_server *s = grpc_server_new(n->loop, cri_methods, cri_method_count, n, err);
	int fd;

	if (!s)
		return -(int)err->code;
	fd = grpc_listen_unix(config->listen, err);
	if (fd < 0)
		return fd;
	TRY(grpc_server_listen(s, fd, err));
	node_reconcile(n);
	fdstore_notify_ready(n->fdstore);
	log_info("crispd %s answers on %s: %zu sandboxes, %zu containers", CRISP_VERSION,
		 config->listen, n->sandboxes.count, n->containers.count);
	loop_run(n->loop);
	return 0;
}

static void stop_main(struct task *t, void *arg)
{
	struct node *n = arg;

	if (!n->sandboxes.count && sandboxer_find("linux")->give_up(t) < 0)
		log_debug("left behind: %s", t->err.text);
	loop_stop(n->loop);
}

static void on_stop(void *data)
{
	struct node *n = data;

	log_info("stopping; containers go on");
	task_start(n->loop, "stop", stop_main, n);
}

/* An unused node leaves no mounts behind; a used one keeps its pins for the next start. */
static void give_up_mounts(struct node *n)
{
	struct error err = {0};

	if (n->sandboxes.count)
		return;
	if (pins_destroy(n->pins, &err) < 0)
		log_debug("pins stay: %s", err.text);
	close_fd(n->states_fd);
	close_fd(n->sandboxes_fd);
	umount2(n->run_dir, UMOUNT_NOFOLLOW); /* not ours where STATE is in memory anyway */
}

static void log_task(const struct task *t, uint64_t parked_ns, void *data)
{
	unsigned long long parked_ms = parked_ns / 1000000;

	if (t->stage)
		log_info("waits for %llu ms: %s, %s since %llu ms", parked_ms, t->name, t->stage,
			 (unsigned long long)(loop_now(t->loop) - t->stage_since) / 1000000);
	else
		log_info("waits for %llu ms: %s", parked_ms, t->name);
}

/* For whoever asks what hangs. */
static void on_dump(void *data)
{
	log_info("%zu tasks", task_count());
	task_each(log_task, NULL);
}

/* Containers get their own limits; ours is as high as it may be. */
static void raise_fd_limit(void)
{
	struct rlimit limit;

	if (getrlimit(RLIMIT_NOFILE, &limit) == 0) {
		limit.rlim_cur = limit.rlim_max;
		setrlimit(RLIMIT_NOFILE, &limit);
	}
}

/* The kernel lets a process with threads wait while it makes the table of descriptors larger, 10 ms
 * and more (synchronize_rcu), and here that would be the loop: so it is large before there are any.
 */
static void widen_fd_table(void)
{
	struct rlimit limit = {.rlim_cur = FD_TABLE_SIZE};
	int last = FD_TABLE_SIZE - 1;

	getrlimit(RLIMIT_NOFILE, &limit);
	if (limit.rlim_cur < FD_TABLE_SIZE)
		last = (int)limit.rlim_cur - 1;
	close_fd(fcntl(STDERR_FILENO, F_DUPFD_CLOEXEC, last));
}

/* Nobody else can do for the node what we do; the keeper, which becomes the parent of this one, is
 * told by the same function. 0 or -errno. */
static int escape_oom_killer(void)
{
	return procfs_write("self/oom_score_adj", OOM_SCORE);
}

static int run(const struct config *config, struct error *err)
{
	struct node n = {0};
	int r;

	signal(SIGPIPE, SIG_IGN);
	umask(022);
	raise_fd_limit();
	widen_fd_table();
	r = escape_oom_killer();
	if (r < 0)
		log_warning("oom_score_adj %s is refused (%s): a node short of memory may kill "
			    "the server; give it CAP_SYS_RESOURCE",
			    OOM_SCORE, strerrordesc_np(-r));
	n.loop = loop_new(err);
	if (!n.loop)
		return -(int)err->code;
	/* it takes the descriptors that were passed, so nothing may be opened before */
	n.fdstore = fdstore_open(n.loop, err);
	if (!n.fdstore)
		return -(int)err->code;
	loop_on_signal(n.loop, SIGTERM, on_stop, &n);
	loop_on_signal(n.loop, SIGINT, on_stop, &n);
	loop_on_signal(n.loop, SIGUSR1, on_dump, NULL);
	TRY(open_node(&n, config, err));
	TRY(serve(&n, config, err));
	give_up_mounts(&n);
	/* threads and tasks end with the process, wherever they are */
	_exit(0);
}

/* systemd can be the keeper where the kernel itself knows how processes ended; but who is executed
 * in a keeper's place has to be one. */
static bool needs_keeper(const struct config *config)
{
	return config->is_kept && (getenv(KEEPER_STATE_VARIABLE) || !fdstore_is_systemd() ||
				   !exit_status_has_pidfd_info());
}

/* The server that the keeper starts has the same command line but for that option. */
static int run_keeper(int argc, char **argv, const struct config *config)
{
	int count = 0;

	for (int i = 0; i < argc; i++)
		if (strcmp(argv[i], "--keep"))
			argv[count++] = argv[i];
	argv[count] = NULL;
	return keeper_main(argv, config->restart_delay_ms);
}

int main(int argc, char **argv)
{
	struct config config = {0};
	struct error err = {0};
	int r = config_load(argc, argv, &config, &err);

	if (r == 0 && config.wants_help) {
		fputs(config_usage(), stdout);
		return 0;
	}
	if (r == 0 && config.wants_version) {
		puts("crispd " CRISP_VERSION);
		return 0;
	}
	if (r == 0) {
		log_set_level((enum log_level)log_level_parse(config.log_level));
		if (needs_keeper(&config)) {
			raise_fd_limit();
			/* refused: the server says it */
			escape_oom_killer();
			return run_keeper(argc, argv, &config);
		}
		r = run(&config, &err);
	}
	if (r < 0)
		log_error("%s", err.text);
	config_done(&config);
	return r < 0 ? 1 : 0;
}
