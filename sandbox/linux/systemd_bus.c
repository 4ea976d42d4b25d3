/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The calls of systemd_bus.h by sd-bus(3). Peculiar: sd-bus's own waiting is not used. It tells
 * what it waits for, and the task does that.
 */
#include "sandbox/linux/systemd_bus.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <systemd/sd-bus.h>

#include "io/base/alloc.h"
#include "io/base/buf.h"
#include "io/base/cleanup.h"
#include "io/fs.h"

#define DESTINATION "org.freedesktop.systemd1"
#define OBJECT "/org/freedesktop/systemd1"
#define MANAGER DESTINATION ".Manager"
#define NO_SUCH_UNIT DESTINATION ".NoSuchUnit"
#define UNIT_EXISTS DESTINATION ".UnitExists"

/* While a manager executes itself anew it refuses connections, for some 100 ms. */
#define RETRY_FIRST_MS 20
#define RETRY_LONGEST_MS 500
#define RETRIES 12
/* Ends of jobs that came before the answer which says whose they are. */
#define JOBS_MAX 16

#define TEXT_MAX 256

struct ended_job {
	char path[TEXT_MAX], result[32];
};

/* A connection, and the call that it is for. */
struct bus_call {
	sd_bus *bus;
	const char *unit;
	bool is_answered, is_over;
	char error[TEXT_MAX], message[TEXT_MAX]; /* of the answer, if it is one */
	char job[TEXT_MAX];			 /* that it started */
	struct ended_job ended[JOBS_MAX];
	size_t ended_count; /* also of those that were overwritten */
};

void unit_properties_done(struct unit_properties *p)
{
	for (size_t i = 0; i < p->count; i++)
		free(p->items[i].bytes);
	free(p->items);
	*p = (struct unit_properties){0};
}

struct unit_property *unit_property_add(struct unit_properties *p, const char *name,
					enum property_type type)
{
	p->items = xrealloc(p->items, (p->count + 1) * sizeof(*p->items));
	p->items[p->count] = (struct unit_property){.name = name, .type = type};
	return &p->items[p->count++];
}

int systemd_probe(const char *address, struct error *err)
{
	static const char prefix[] = "unix:path=";
	struct sockaddr_un to = {.sun_family = AF_UNIX};
	cleanup_close int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);

	if (strncmp(address, prefix, strlen(prefix)) != 0 ||
	    strlen(address) - strlen(prefix) >= sizeof(to.sun_path))
		return error_set(err, ERR_INVALID,
				 "systemd's address %.100s: it must be unix:path= and the path of "
				 "a socket",
				 address);
	snprintf(to.sun_path, sizeof(to.sun_path), "%s", address + strlen(prefix));
	/* a full queue has somebody who will take it */
	if (fd < 0 || (connect(fd, (struct sockaddr *)&to, sizeof(to)) < 0 && errno != EAGAIN))
		return error_set(err, ERR_UNAVAILABLE, "connect to systemd at %s: %s", address,
				 strerrordesc_np(errno));
	return 0;
}

static struct bus_call *call_new(const char *unit)
{
	struct bus_call *c = xnew(struct bus_call);

	c->unit = unit;
	return c;
}

static void call_free(struct bus_call **c)
{
	sd_bus_close_unref((*c)->bus);
	free(*c);
}

static void keep(char *to, size_t size, const char *text)
{
	snprintf(to, size, "%s", text ? text : "");
}

static const struct ended_job *find_ended(const struct bus_call *c)
{
	for (size_t i = 0; i < c->ended_count && i < JOBS_MAX; i++)
		if (*c->job && !strcmp(c->ended[i].path, c->job))
			return &c->ended[i];
	return NULL;
}

static int on_job_removed(sd_bus_message *m, void *data, sd_bus_error *ret_error)
{
	struct bus_call *c = data;
	const char *path, *unit, *result;
	struct ended_job *e;
	uint32_t id;

	if (sd_bus_message_read(m, "uoss", &id, &path, &unit, &result) < 0 ||
	    strcmp(unit, c->unit) != 0)
		return 0;
	e = &c->ended[c->ended_count++ % JOBS_MAX];
	keep(e->path, sizeof(e->path), path);
	keep(e->result, sizeof(e->result), result);
	c->is_over = find_ended(c);
	return 0;
}

static int on_answer(sd_bus_message *m, void *data, sd_bus_error *ret_error)
{
	const sd_bus_error *e = sd_bus_message_get_error(m);
	struct bus_call *c = data;
	const char *job;

	c->is_answered = true;
	if (e) {
		keep(c->error, sizeof(c->error), e->name);
		keep(c->message, sizeof(c->message), e->message);
	} else if (sd_bus_message_has_signature(m, "o") && sd_bus_message_read(m, "o", &job) >= 0) {
		keep(c->job, sizeof(c->job), job);
	}
	c->is_over = !*c->job || find_ended(c);
	return 0;
}

/* Until the call is over; -errno of the connection is stored in ret_lost. */
static int drive(struct task *t, struct bus_call *c, int *ret_lost)
{
	while (!c->is_over) {
		int events, r = sd_bus_process(c->bus, NULL);

		if (r < 0) {
			*ret_lost = r;
			return 0;
		}
		if (r > 0)
			continue;
		events = sd_bus_get_events(c->bus);
		r = sd_bus_get_fd(c->bus);
		if (events < 0 || r < 0) {
			*ret_lost = r < 0 ? r : events;
			return 0;
		}
		TRY(task_wait_fd(t, r,
				 (events & POLLIN ? LOOP_READ : 0) |
					 (events & POLLOUT ? LOOP_WRITE : 0)));
	}
	/* sd-bus answers by itself what a lost connection will not */
	if (!strcmp(c->error, SD_BUS_ERROR_NO_REPLY) ||
	    !strcmp(c->error, SD_BUS_ERROR_DISCONNECTED))
		*ret_lost = -ECONNRESET;
	return 0;
}

static int connect_bus(struct bus_call *c, const char *address)
{
	int r = sd_bus_new(&c->bus);

	if (r >= 0)
		r = sd_bus_set_address(c->bus, address);
	if (r >= 0)
		r = sd_bus_start(c->bus);
	if (r >= 0)
		r = sd_bus_match_signal(c->bus, NULL, NULL, OBJECT, MANAGER, "JobRemoved",
					on_job_removed, c);
	return r;
}

/* What is asked of the manager: fills the message's body; a negative errno. */
struct request {
	const char *member, *unit;
	const struct unit_properties *properties;
	pid_t pid;
	int (*fill)(sd_bus_message *m, const struct request *r);
};

static int send_request(struct bus_call *c, const struct request *request)
{
	sd_bus_message *m = NULL;
	int r = sd_bus_message_new_method_call(c->bus, &m, DESTINATION, OBJECT, MANAGER,
					       request->member);

	if (r >= 0)
		r = request->fill(m, request);
	if (r >= 0)
		r = sd_bus_call_async(c->bus, NULL, m, on_answer, c, UINT64_MAX);
	sd_bus_message_unref(m);
	return r;
}

static int try_call(struct task *t, struct bus_call *c, const char *address,
		    const struct request *request, int *ret_lost)
{
	int r = connect_bus(c, address);

	if (r >= 0)
		r = send_request(c, request);
	if (r < 0) {
		*ret_lost = r;
		return 0;
	}
	return drive(t, c, ret_lost);
}

/* Whether another connection may have more luck. */
static bool is_passing(int lost)
{
	return lost == -ECONNREFUSED || lost == -ECONNRESET || lost == -ENOTCONN ||
	       lost == -ENOENT || lost == -EAGAIN || lost == -EPIPE || lost == -ECONNABORTED;
}

static int call_within(struct task *t, struct bus_call **c, const char *address,
		       const struct request *request)
{
	uint64_t pause_ms = RETRY_FIRST_MS;
	int lost;

	for (int tries = 0;; tries++) {
		lost = 0;
		TRY(try_call(t, *c, address, request, &lost));
		if (!lost)
			return 0;
		if (!is_passing(lost) || tries == RETRIES)
			break;
		TRY(task_sleep_ms(t, pause_ms));
		pause_ms = pause_ms * 2 > RETRY_LONGEST_MS ? RETRY_LONGEST_MS : pause_ms * 2;
		call_free(c);
		*c = call_new(request->unit);
	}
	return error_set(&t->err, ERR_UNAVAILABLE,
			 "unit %s: %s of systemd at %s: %s; is systemd there? if not, set "
			 "cgroup_driver: cgroupfs in crispd's configuration",
			 request->unit, request->member, address, strerrordesc_np(-lost));
}

/* The answer is in c, also if it is an error. */
static int call_manager(struct task *t, struct bus_call **c, const char *address,
			const struct request *request)
{
	uint64_t now = loop_now(t->loop), old = task_limit_ms(t, UNIT_TIMEOUT_MS);
	int r = call_within(t, c, address, request);

	task_restore_deadline(t, old);
	if (r == -ERR_DEADLINE)
		return error_set(&t->err, ERR_DEADLINE,
				 "unit %s: %s of systemd at %s: %s after %llu ms; look at "
				 "systemctl list-jobs",
				 request->unit, request->member, address,
				 (*c)->is_answered ? "its job has not ended" : "no answer",
				 (unsigned long long)(loop_now(t->loop) - now) / 1000000);
	return r;
}

static bool has_error(const struct bus_call *c, const char *name)
{
	return !strcmp(c->error, name);
}

/* What came of a call: 0, or the manager's refusal, or how the job ended. */
static int judge(const struct bus_call *c, const struct request *request, struct error *err)
{
	const struct ended_job *e = find_ended(c);
	enum err code = ERR_INTERNAL;

	if (!*c->error && (!e || !strcmp(e->result, "done")))
		return 0;
	if (!*c->error)
		return error_set(err, ERR_INTERNAL,
				 "unit %s: systemd's job for it ended as \"%s\"; look at "
				 "systemctl status %s",
				 c->unit, e->result, c->unit);
	if (has_error(c, SD_BUS_ERROR_INVALID_ARGS) ||
	    has_error(c, SD_BUS_ERROR_PROPERTY_READ_ONLY))
		code = ERR_INVALID;
	else if (has_error(c, SD_BUS_ERROR_ACCESS_DENIED))
		code = ERR_DENIED;
	else if (has_error(c, NO_SUCH_UNIT))
		code = ERR_PRECONDITION;
	return error_set(err, code, "unit %s: systemd refuses %s: %s (%s)", c->unit,
			 request->member, c->message, c->error);
}

static int append_property(sd_bus_message *m, const struct unit_property *p)
{
	int r;

	switch (p->type) {
	case PROPERTY_BOOL:
		return sd_bus_message_append(m, "(sv)", p->name, "b", (int)p->number);
	case PROPERTY_STRING:
		return sd_bus_message_append(m, "(sv)", p->name, "s", p->string);
	case PROPERTY_NUMBER:
		return sd_bus_message_append(m, "(sv)", p->name, "t", p->number);
	case PROPERTY_BYTES:
		break;
	}
	r = sd_bus_message_open_container(m, 'r', "sv");
	if (r >= 0)
		r = sd_bus_message_append(m, "s", p->name);
	if (r >= 0)
		r = sd_bus_message_open_container(m, 'v', "ay");
	if (r >= 0)
		r = sd_bus_message_append_array(m, 'y', p->bytes, p->size);
	if (r >= 0)
		r = sd_bus_message_close_container(m);
	return r < 0 ? r : sd_bus_message_close_container(m);
}

static int append_properties(sd_bus_message *m, const struct request *request)
{
	int r = sd_bus_message_open_container(m, 'a', "(sv)");

	for (size_t i = 0; r >= 0 && i < request->properties->count; i++)
		r = append_property(m, &request->properties->items[i]);
	if (r >= 0 && request->pid)
		r = sd_bus_message_append(m, "(sv)", "PIDs", "au", 1, (uint32_t)request->pid);
	return r < 0 ? r : sd_bus_message_close_container(m);
}

static int fill_start(sd_bus_message *m, const struct request *request)
{
	int r = sd_bus_message_append(m, "ss", request->unit, "replace");

	if (r >= 0)
		r = append_properties(m, request);
	return r < 0 ? r : sd_bus_message_append(m, "a(sa(sv))", 0);
}

static int fill_change(sd_bus_message *m, const struct request *request)
{
	int r = sd_bus_message_append(m, "sb", request->unit, 1);

	return r < 0 ? r : append_properties(m, request);
}

static int fill_stop(sd_bus_message *m, const struct request *request)
{
	return sd_bus_message_append(m, "ss", request->unit, "replace");
}

static int fill_reset(sd_bus_message *m, const struct request *request)
{
	return sd_bus_message_append(m, "s", request->unit);
}

#define CLEANUP_CALL __attribute__((cleanup(call_free)))

/* One that failed is remembered until it is told not to be; what comes of that is no matter. */
static int reset_failed(struct task *t, const char *address, const char *unit)
{
	struct request request = {.member = "ResetFailedUnit", .unit = unit, .fill = fill_reset};
	CLEANUP_CALL struct bus_call *c = call_new(unit);

	return call_manager(t, &c, address, &request);
}

int systemd_stop(struct task *t, const char *address, const char *unit)
{
	struct request request = {.member = "StopUnit", .unit = unit, .fill = fill_stop};
	CLEANUP_CALL struct bus_call *c = call_new(unit);

	TRY(call_manager(t, &c, address, &request));
	if (has_error(c, NO_SUCH_UNIT))
		return 0;
	TRY(judge(c, &request, &t->err));
	return reset_failed(t, address, unit);
}

int systemd_change(struct task *t, const char *address, const char *unit,
		   const struct unit_properties *properties)
{
	struct request request = {.member = "SetUnitProperties",
				  .unit = unit,
				  .properties = properties,
				  .fill = fill_change};
	CLEANUP_CALL struct bus_call *c = call_new(unit);

	TRY(call_manager(t, &c, address, &request));
	return judge(c, &request, &t->err);
}

/* After a connection was lost nobody knows whether the unit that is there is the one asked for. */
static bool is_in(pid_t pid, const char *unit)
{
	struct buf text CLEANUP(buf_done) = {0};
	char path[32];

	snprintf(path, sizeof(path), "/proc/%d/cgroup", (int)pid);
	return fs_read_file(path, 65536, &text, NULL) == 0 && text.data && strstr(text.data, unit);
}

static int start(struct task *t, const char *address, const struct request *request,
		 bool *ret_exists)
{
	CLEANUP_CALL struct bus_call *c = call_new(request->unit);

	TRY(call_manager(t, &c, address, request));
	*ret_exists = has_error(c, UNIT_EXISTS);
	return *ret_exists ? 0 : judge(c, request, &t->err);
}

/* Only what systemd.unit(5) lets a running unit change. */
static int change_existing(struct task *t, const char *address, const struct request *request)
{
	struct unit_properties limits = {0};
	int r = 0;

	for (size_t i = 0; i < request->properties->count; i++) {
		const struct unit_property *p = &request->properties->items[i];

		if (p->type == PROPERTY_NUMBER || p->type == PROPERTY_BYTES) {
			struct unit_property *copy = unit_property_add(&limits, p->name, p->type);

			*copy = *p;
		}
	}
	if (limits.count)
		r = systemd_change(t, address, request->unit, &limits);
	/* the bytes are the caller's */
	free(limits.items);
	return r;
}

int systemd_start(struct task *t, const char *address, const char *unit,
		  const struct unit_properties *properties, pid_t pid)
{
	struct request request = {.member = "StartTransientUnit",
				  .unit = unit,
				  .properties = properties,
				  .pid = pid,
				  .fill = fill_start};
	bool exists;

	TRY(start(t, address, &request, &exists));
	if (!exists)
		return 0;
	if (!pid || is_in(pid, unit))
		return change_existing(t, address, &request);
	TRY(systemd_stop(t, address, unit));
	TRY(start(t, address, &request, &exists));
	if (exists)
		return error_set(&t->err, ERR_UNAVAILABLE,
				 "unit %s: it was stopped, but systemd says that it is still "
				 "there; try again",
				 unit);
	return 0;
}
