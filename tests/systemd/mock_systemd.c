/* SPDX-License-Identifier: Apache-2.0 */
/*
 * mock_systemd SOCKET: not systemd, but what crisp sees of its manager, for nodes without it. It
 * listens where a private socket would be and makes real cgroups, in v2 and in the v1 hierarchies
 * that systemd knows, with the limits that it is told; a scope whose last process is gone goes with
 * its group at once. Every call is a line on stdout: member, unit, and what was told.
 *
 * SIGHUP: it executes itself anew as far as peers can see: connections are closed, what has not
 * been answered never is, and for a moment it takes no others. SIGTERM: it ends.
 *
 * What it does not do: dependencies, slices that other units need beside their groups, rounding,
 * timeouts, authorisation, writing limits again later.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/inotify.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <systemd/sd-bus.h>
#include <systemd/sd-event.h>

#define OBJECT "/org/freedesktop/systemd1"
#define MANAGER "org.freedesktop.systemd1.Manager"
#define ERROR "org.freedesktop.systemd1."
#define PEERS_MAX 64
#define UNITS_MAX 4096
#define PATH_SIZE 512
#define AWAY_US 150000
/* How long a job takes. */
#define JOB_US 3000

/* The hierarchies, v2 first. */
static const char *roots[8] = {"/sys/fs/cgroup/unified"};
static int root_count = 1;

struct unit {
	char name[256], path[PATH_SIZE];
	int watch;
	bool is_there, is_slice;
};

struct job {
	char unit[256], path[64];
	unsigned id;
	bool is_stop;
};

static struct unit units[UNITS_MAX];
static sd_bus *peers[PEERS_MAX];
static sd_event *event;
static sd_event_source *listening;
static int listener = -1, inotify = -1;
static unsigned last_job;
static struct sockaddr_un place = {.sun_family = AF_UNIX};

static void die(const char *what, int r)
{
	fprintf(stderr, "%s: %s\n", what, strerror(r < 0 ? -r : errno));
	exit(1);
}

static void find_roots(void)
{
	static const char *const v1[] = {"cpu", "cpuacct", "memory", "pids"};
	static char paths[4][64];

	if (access("/sys/fs/cgroup/cgroup.controllers", F_OK) == 0) {
		roots[0] = "/sys/fs/cgroup";
		return;
	}
	for (size_t i = 0; i < sizeof(v1) / sizeof(v1[0]); i++) {
		snprintf(paths[i], sizeof(paths[i]), "/sys/fs/cgroup/%s", v1[i]);
		if (access(paths[i], F_OK) == 0)
			roots[root_count++] = paths[i];
	}
}

static struct unit *find_unit(const char *name)
{
	for (int i = 0; i < UNITS_MAX; i++)
		if (units[i].is_there && !strcmp(units[i].name, name))
			return &units[i];
	return NULL;
}

static struct unit *new_unit(const char *name)
{
	for (int i = 0; i < UNITS_MAX; i++) {
		if (units[i].is_there)
			continue;
		units[i] = (struct unit){.watch = -1, .is_there = true};
		snprintf(units[i].name, sizeof(units[i].name), "%s", name);
		return &units[i];
	}
	fprintf(stderr, "too many units\n");
	exit(1);
}

/* "a-b.slice" → "/a.slice/a-b.slice" */
static void expand(const char *slice, char *path)
{
	size_t n = strlen(slice) - strlen(".slice"), at = 0;

	for (size_t i = 1; i <= n; i++)
		if (i == n || slice[i] == '-')
			at += (size_t)snprintf(path + at, PATH_SIZE - at, "/%.*s.slice", (int)i,
					       slice);
}

static int make_dirs(int root, const char *path)
{
	char whole[2 * PATH_SIZE];

	snprintf(whole, sizeof(whole), "%s%s", roots[root], path);
	for (char *at = whole + strlen(roots[root]) + 1; (at = strchr(at, '/')); at++) {
		*at = '\0';
		if (mkdir(whole, 0755) < 0 && errno != EEXIST)
			return -errno;
		*at = '/';
	}
	return mkdir(whole, 0755) < 0 && errno != EEXIST ? -errno : 0;
}

static int write_in(int root, const char *path, const char *file, const char *value)
{
	char whole[3 * PATH_SIZE];
	int fd, r = 0;

	snprintf(whole, sizeof(whole), "%s%s/%s", roots[root], path, file);
	fd = open(whole, O_WRONLY | O_CLOEXEC);
	if (fd < 0 || write(fd, value, strlen(value)) < 0)
		r = -errno;
	if (fd >= 0)
		close(fd);
	return r;
}

static void remove_tree(const char *path, int depth)
{
	DIR *list = depth < 16 ? opendir(path) : NULL;
	struct dirent *e;
	char below[4 * PATH_SIZE];

	while (list && (e = readdir(list))) {
		if (e->d_type != DT_DIR || e->d_name[0] == '.')
			continue;
		snprintf(below, sizeof(below), "%s/%s", path, e->d_name);
		remove_tree(below, depth + 1);
	}
	if (list)
		closedir(list);
	rmdir(path);
}

static void drop_unit(struct unit *u)
{
	char whole[2 * PATH_SIZE];

	if (u->watch >= 0)
		inotify_rm_watch(inotify, u->watch);
	u->is_there = false;
	for (int i = 0; i < root_count; i++) {
		snprintf(whole, sizeof(whole), "%s%s", roots[i], u->path);
		remove_tree(whole, 0);
	}
}

static bool is_populated(const struct unit *u)
{
	char whole[3 * PATH_SIZE], text[128] = "";
	int fd;

	snprintf(whole, sizeof(whole), "%s%s/cgroup.events", roots[0], u->path);
	fd = open(whole, O_RDONLY | O_CLOEXEC);
	if (fd >= 0 && read(fd, text, sizeof(text) - 1) < 0)
		text[0] = '\0';
	if (fd >= 0)
		close(fd);
	return strstr(text, "populated 1");
}

static int on_group_event(sd_event_source *s, int fd, uint32_t revents, void *data)
{
	char text[2048] __attribute__((aligned(__alignof__(struct inotify_event))));
	ssize_t n = read(fd, text, sizeof(text));

	for (char *at = text; at < text + n;) {
		const struct inotify_event *e = (const void *)at;

		for (int i = 0; i < UNITS_MAX; i++)
			if (units[i].is_there && units[i].watch == e->wd &&
			    !is_populated(&units[i])) {
				printf("empty %s\n", units[i].name);
				drop_unit(&units[i]);
			}
		at += sizeof(*e) + e->len;
	}
	return 0;
}

static void tell_end(const struct job *j, const char *result)
{
	for (int i = 0; i < PEERS_MAX; i++)
		if (peers[i])
			sd_bus_emit_signal(peers[i], OBJECT, MANAGER, "JobRemoved", "uoss", j->id,
					   j->path, j->unit, result);
}

static void kill_all(const struct unit *u)
{
	if (write_in(0, u->path, "cgroup.kill", "1") < 0)
		return;
	for (int i = 0; i < 1000 && is_populated(u); i++)
		usleep(1000);
}

static int on_job(sd_event_source *s, uint64_t now, void *data)
{
	struct job *j = data;
	struct unit *u = find_unit(j->unit);

	if (j->is_stop && u) {
		kill_all(u);
		drop_unit(u);
	}
	tell_end(j, "done");
	free(j);
	sd_event_source_unref(s);
	return 0;
}

static int start_job(sd_bus_message *m, const char *unit, bool is_stop)
{
	struct job *j = calloc(1, sizeof(*j));
	sd_event_source *s = NULL;

	j->id = ++last_job;
	j->is_stop = is_stop;
	snprintf(j->unit, sizeof(j->unit), "%s", unit);
	snprintf(j->path, sizeof(j->path), OBJECT "/job/%u", j->id);
	sd_event_add_time_relative(event, &s, CLOCK_MONOTONIC, JOB_US, 100, on_job, j);
	return sd_bus_reply_method_return(m, "o", j->path);
}

/* A limit in the files of v1 and v2, whichever is there. */
static void set_limit(const struct unit *u, const char *name, uint64_t value)
{
	static const struct {
		const char *name, *v1, *v2;
	} files[] = {
		{"CPUShares", "cpu.shares", "-"},
		{"CPUWeight", "-", "cpu.weight"},
		{"MemoryMax", "memory.limit_in_bytes", "memory.max"},
		{"MemorySwapMax", "-", "memory.swap.max"},
		{"TasksMax", "pids.max", "pids.max"},
	};
	char text[32];

	for (size_t i = 0; i < sizeof(files) / sizeof(files[0]); i++) {
		if (strcmp(files[i].name, name))
			continue;
		for (int root = 0; root < root_count; root++) {
			const char *file = root_count > 1 ? files[i].v1 : files[i].v2;

			snprintf(text, sizeof(text), "%llu", (unsigned long long)value);
			if (value == UINT64_MAX)
				snprintf(text, sizeof(text), "%s",
					 strstr(file, "limit_in_bytes") ? "-1" : "max");
			write_in(root, u->path, file, text);
		}
	}
}

struct told {
	char slice[256];
	uint32_t pids[16];
	size_t pid_count;
	struct {
		char name[32];
		uint64_t value;
	} limits[16];
	size_t limit_count;
	char unknown[64]; /* a property that systemd does not have */
};

static int read_value(sd_bus_message *m, const char *name, struct told *t)
{
	const char *signature, *text;
	const void *bytes;
	uint64_t number;
	size_t size;
	char type;
	int flag, r;

	r = sd_bus_message_peek_type(m, &type, &signature);
	if (r < 0)
		return r;
	if (!strcmp(signature, "s")) {
		r = sd_bus_message_read(m, "v", "s", &text);
		if (r >= 0 && !strcmp(name, "Slice"))
			snprintf(t->slice, sizeof(t->slice), "%s", text);
		printf(" %s=%s", name, r >= 0 ? text : "?");
	} else if (!strcmp(signature, "b")) {
		r = sd_bus_message_read(m, "v", "b", &flag);
		printf(" %s=%s", name, flag ? "yes" : "no");
	} else if (!strcmp(signature, "t")) {
		r = sd_bus_message_read(m, "v", "t", &number);
		snprintf(t->limits[t->limit_count].name, 32, "%s", name);
		t->limits[t->limit_count++ % 16].value = number;
		printf(" %s=%llu", name, (unsigned long long)number);
	} else if (!strcmp(signature, "ay")) {
		sd_bus_message_enter_container(m, 'v', "ay");
		r = sd_bus_message_read_array(m, 'y', &bytes, &size);
		sd_bus_message_exit_container(m);
		printf(" %s=", name);
		for (size_t i = 0; r >= 0 && i < size; i++)
			printf("%02x", ((const unsigned char *)bytes)[i]);
	} else if (!strcmp(signature, "au") && !strcmp(name, "PIDs")) {
		sd_bus_message_enter_container(m, 'v', "au");
		r = sd_bus_message_read_array(m, 'u', &bytes, &size);
		sd_bus_message_exit_container(m);
		t->pid_count = size / sizeof(uint32_t);
		memcpy(t->pids, bytes, size < sizeof(t->pids) ? size : sizeof(t->pids));
		printf(" PIDs=%zu", t->pid_count);
	} else {
		snprintf(t->unknown, sizeof(t->unknown), "%s", name);
		r = sd_bus_message_skip(m, "v");
	}
	return r;
}

static int read_properties(sd_bus_message *m, struct told *t)
{
	const char *name;
	int r = sd_bus_message_enter_container(m, 'a', "(sv)");

	while (r >= 0 && (r = sd_bus_message_enter_container(m, 'r', "sv")) > 0) {
		r = sd_bus_message_read(m, "s", &name);
		if (r >= 0)
			r = read_value(m, name, t);
		if (r >= 0)
			r = sd_bus_message_exit_container(m);
	}
	if (r >= 0)
		r = sd_bus_message_exit_container(m);
	printf("\n");
	return r;
}

static int make_unit(const char *name, const struct told *t)
{
	struct unit *u = new_unit(name);
	char path[2 * PATH_SIZE], pid[16];
	int r = 0;

	u->is_slice = strstr(name, ".slice");
	expand(u->is_slice ? name : t->slice, u->path);
	if (!u->is_slice) {
		size_t at = strlen(u->path);

		snprintf(u->path + at, sizeof(u->path) - at, "/%s", name);
	}
	for (int i = 0; i < root_count && r >= 0; i++)
		r = make_dirs(i, u->path);
	for (size_t i = 0; i < t->limit_count; i++)
		set_limit(u, t->limits[i].name, t->limits[i].value);
	for (size_t i = 0; i < t->pid_count; i++) {
		snprintf(pid, sizeof(pid), "%u", t->pids[i]);
		for (int root = 0; root < root_count && r >= 0; root++)
			r = write_in(root, u->path, "cgroup.procs", pid);
	}
	if (r >= 0 && !u->is_slice) {
		snprintf(path, sizeof(path), "%s%s/cgroup.events", roots[0], u->path);
		u->watch = inotify_add_watch(inotify, path, IN_MODIFY);
	}
	if (r < 0)
		drop_unit(u);
	return r;
}

static int on_start(sd_bus_message *m, void *data, sd_bus_error *error)
{
	struct told t = {0};
	const char *name, *mode;
	int r = sd_bus_message_read(m, "ss", &name, &mode);

	if (r < 0)
		return r;
	printf("StartTransientUnit %s", name);
	r = read_properties(m, &t);
	if (r < 0)
		return r;
	if (*t.unknown)
		return sd_bus_error_setf(error, SD_BUS_ERROR_PROPERTY_READ_ONLY,
					 "Cannot set property %s, or unknown property.", t.unknown);
	if (find_unit(name))
		return sd_bus_error_setf(error, ERROR "UnitExists",
					 "Unit %s was already loaded or has a fragment file.",
					 name);
	if (strstr(name, ".scope") && !t.pid_count)
		return sd_bus_error_setf(error, SD_BUS_ERROR_INVALID_ARGS,
					 "Scope has no PIDs. Refusing.");
	r = make_unit(name, &t);
	return r < 0 ? r : start_job(m, name, false);
}

static int no_such(sd_bus_error *error, const char *name)
{
	return sd_bus_error_setf(error, ERROR "NoSuchUnit", "Unit %s not loaded.", name);
}

static int on_stop(sd_bus_message *m, void *data, sd_bus_error *error)
{
	const char *name, *mode;
	int r = sd_bus_message_read(m, "ss", &name, &mode);

	if (r < 0)
		return r;
	printf("StopUnit %s\n", name);
	return find_unit(name) ? start_job(m, name, true) : no_such(error, name);
}

static int on_change(sd_bus_message *m, void *data, sd_bus_error *error)
{
	struct told t = {0};
	struct unit *u;
	const char *name;
	int runtime, r = sd_bus_message_read(m, "sb", &name, &runtime);

	if (r < 0)
		return r;
	printf("SetUnitProperties %s", name);
	r = read_properties(m, &t);
	if (r < 0)
		return r;
	u = find_unit(name);
	if (!u)
		return no_such(error, name);
	for (size_t i = 0; i < t.limit_count; i++)
		set_limit(u, t.limits[i].name, t.limits[i].value);
	return sd_bus_reply_method_return(m, "");
}

static int on_reset(sd_bus_message *m, void *data, sd_bus_error *error)
{
	const char *name;
	int r = sd_bus_message_read(m, "s", &name);

	if (r < 0)
		return r;
	return find_unit(name) ? sd_bus_reply_method_return(m, "") : no_such(error, name);
}

static const sd_bus_vtable manager[] = {
	SD_BUS_VTABLE_START(0),
	SD_BUS_METHOD("StartTransientUnit", "ssa(sv)a(sa(sv))", "o", on_start,
		      SD_BUS_VTABLE_UNPRIVILEGED),
	SD_BUS_METHOD("StopUnit", "ss", "o", on_stop, SD_BUS_VTABLE_UNPRIVILEGED),
	SD_BUS_METHOD("SetUnitProperties", "sba(sv)", "", on_change, SD_BUS_VTABLE_UNPRIVILEGED),
	SD_BUS_METHOD("ResetFailedUnit", "s", "", on_reset, SD_BUS_VTABLE_UNPRIVILEGED),
	SD_BUS_SIGNAL("JobRemoved", "uoss", 0),
	SD_BUS_VTABLE_END,
};

static void close_peer(int i)
{
	sd_bus_detach_event(peers[i]);
	sd_bus_close_unref(peers[i]);
	peers[i] = NULL;
}

static int on_gone(sd_bus_message *m, void *data, sd_bus_error *error)
{
	for (int i = 0; i < PEERS_MAX; i++)
		if (peers[i] == sd_bus_message_get_bus(m)) {
			sd_bus_detach_event(peers[i]);
			sd_bus_unref(peers[i]);
			peers[i] = NULL;
		}
	return 0;
}

static int serve(sd_bus *bus, int fd)
{
	sd_id128_t id;
	int r = sd_id128_randomize(&id);

	if (r >= 0)
		r = sd_bus_set_fd(bus, fd, fd);
	if (r >= 0)
		r = sd_bus_set_server(bus, 1, id);
	if (r >= 0)
		r = sd_bus_start(bus);
	if (r >= 0)
		r = sd_bus_add_object_vtable(bus, NULL, OBJECT, MANAGER, manager, NULL);
	if (r >= 0)
		r = sd_bus_match_signal(bus, NULL, "org.freedesktop.DBus.Local",
					"/org/freedesktop/DBus/Local", "org.freedesktop.DBus.Local",
					"Disconnected", on_gone, NULL);
	return r < 0 ? r : sd_bus_attach_event(bus, event, 0);
}

static int on_peer(sd_event_source *s, int fd, uint32_t revents, void *data)
{
	int peer = accept4(fd, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC), i = 0;

	while (i < PEERS_MAX && peers[i])
		i++;
	if (peer < 0 || i == PEERS_MAX || sd_bus_new(&peers[i]) < 0)
		die("accept", 0);
	if (serve(peers[i], peer) < 0)
		close_peer(i);
	return 0;
}

static void start_listening(void)
{
	unlink(place.sun_path);
	listener = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (listener < 0 || bind(listener, (struct sockaddr *)&place, sizeof(place)) < 0 ||
	    listen(listener, 128) < 0)
		die(place.sun_path, 0);
	sd_event_add_io(event, &listening, listener, EPOLLIN, on_peer, NULL);
}

static int on_back(sd_event_source *s, uint64_t now, void *data)
{
	sd_event_source_unref(s);
	start_listening();
	printf("back\n");
	return 0;
}

static int on_signal(sd_event_source *s, const struct signalfd_siginfo *si, void *data)
{
	sd_event_source *timer = NULL;

	if (si->ssi_signo == SIGTERM)
		return sd_event_exit(event, 0);
	printf("away\n");
	listening = sd_event_source_unref(listening);
	close(listener);
	for (int i = 0; i < PEERS_MAX; i++)
		if (peers[i])
			close_peer(i);
	return sd_event_add_time_relative(event, &timer, CLOCK_MONOTONIC, AWAY_US, 100, on_back,
					  NULL);
}

int main(int argc, char **argv)
{
	sigset_t set;

	if (argc != 2 || strlen(argv[1]) >= sizeof(place.sun_path)) {
		fprintf(stderr, "usage: mock_systemd SOCKET\n");
		return 2;
	}
	setlinebuf(stdout);
	snprintf(place.sun_path, sizeof(place.sun_path), "%s", argv[1]);
	find_roots();
	sigemptyset(&set);
	sigaddset(&set, SIGHUP);
	sigaddset(&set, SIGTERM);
	sigprocmask(SIG_BLOCK, &set, NULL);
	inotify = inotify_init1(IN_CLOEXEC | IN_NONBLOCK);
	if (inotify < 0 || sd_event_new(&event) < 0)
		die("start", 0);
	sd_event_add_signal(event, NULL, SIGHUP, on_signal, NULL);
	sd_event_add_signal(event, NULL, SIGTERM, on_signal, NULL);
	sd_event_add_io(event, NULL, inotify, EPOLLIN, on_group_event, NULL);
	start_listening();
	printf("ready\n");
	return sd_event_loop(event);
}
