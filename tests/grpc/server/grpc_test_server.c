/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A gRPC server with methods that do what the client test asks for, by means of CRI messages:
 * grpc_test_server SOCKET. The word in VersionRequest.version, and numbers behind it, choose.
 * SIGTERM shuts down with GOAWAY and frees everything, SIGINT frees at once.
 */
#include <inttypes.h>
#include <dirent.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/time.h>
#include <time.h>

#include "cri/grpc.h"
#include "cri/proto/cri.pb-c.h"
#include "io/base/alloc.h"
#include "io/base/cleanup.h"
#include "io/base/log.h"

/* What the client may ask about with "count". */
static int cancelled_count, parked_count;
static struct loop *loop;
static struct grpc_server *server;

/* The wall clock that h2o sees; it can be set back. */
static time_t clock_offset_s;

int gettimeofday(struct timeval *restrict tv, void *restrict zone)
{
	struct timespec now;

	clock_gettime(CLOCK_REALTIME, &now);
	tv->tv_sec = now.tv_sec + clock_offset_s;
	tv->tv_usec = now.tv_nsec / 1000;
	return 0;
}

static int reply_text(struct task *t, struct call *c, const char *text)
{
	Runtime__V1__VersionResponse r = RUNTIME__V1__VERSION_RESPONSE__INIT;

	r.version = (char *)(uintptr_t) "0.1.0";
	r.runtime_name = (char *)(uintptr_t)text;
	return call_reply(t, c, &r.base);
}

static int reply_large(struct task *t, struct call *c, size_t size)
{
	char *text cleanup_free = xmalloc(size + 1);

	memset(text, 'x', size);
	text[size] = '\0';
	return reply_text(t, c, text);
}

static int park(struct task *t)
{
	struct task_event never;
	int r;

	task_event_init(&never);
	parked_count++;
	r = task_event_wait(t, &never);
	parked_count--;
	if (r == -ERR_CANCELLED)
		cancelled_count++;
	return r;
}

/* Resident memory in KiB and open descriptors. */
static void measure(long *ret_rss, long *ret_fds)
{
	FILE *file cleanup_fclose = fopen("/proc/self/statm", "re");
	DIR *dir cleanup_closedir = opendir("/proc/self/fd");
	long pages = 0;

	if (file && fscanf(file, "%*s %ld", &pages) != 1)
		pages = 0;
	*ret_rss = pages * 4;
	*ret_fds = -3;
	while (dir && readdir(dir))
		++*ret_fds;
}

static int reply_counts(struct task *t, struct call *c)
{
	char text[160];
	long rss, fds;

	measure(&rss, &fds);
	snprintf(text, sizeof(text),
		 "tasks=%zu calls=%zu connections=%zu cancelled=%d parked=%d rss=%ld fds=%ld",
		 task_count(), grpc_server_calls(server), grpc_server_connections(server),
		 cancelled_count, parked_count, rss, fds);
	return reply_text(t, c, text);
}

static int fail(struct task *t, const char *word)
{
	if (!strcmp(word, "notfound"))
		return error_set(&t->err, ERR_NOT_FOUND, "pod x does not exist");
	if (!strcmp(word, "long"))
		return error_set(&t->err, ERR_PRECONDITION, "%0700d", 7);
	return error_set(&t->err, ERR_UNAVAILABLE, "größer als 100 %%, \"日本語\"\nnext\x01 line");
}

static int version(struct task *t, struct call *c, const void *request)
{
	const Runtime__V1__VersionRequest *r = request;
	char word[32] = "";
	unsigned long number = 0;

	sscanf(r->version, "%31s %lu", word, &number);
	if (!strcmp(word, "park"))
		return park(t);
	if (!strcmp(word, "sleep")) {
		TRY(task_sleep_ms(t, number));
		return reply_text(t, c, "slept");
	}
	if (!strcmp(word, "clock")) {
		clock_offset_s -= (time_t)number;
		return reply_text(t, c, "set back");
	}
	if (!strcmp(word, "large"))
		return reply_large(t, c, number);
	if (!strcmp(word, "count"))
		return reply_counts(t, c);
	if (!strcmp(word, "fail"))
		return fail(t, r->version + 5);
	if (!strcmp(word, "reply-then-fail")) {
		TRY(reply_text(t, c, "not to be seen"));
		return fail(t, "notfound");
	}
	if (!strcmp(word, "silent"))
		return 0;
	if (!strcmp(word, "badtext"))
		return reply_text(t, c, "broken \xff text");
	if (!strcmp(word, "shielded")) {
		task_shield(t, 1);
		(void)task_sleep_ms(t, number);
		task_shield(t, -1);
		return reply_text(t, c, "late");
	}
	return reply_text(t, c, "crisp");
}

static int events(struct task *t, struct call *c, const void *request)
{
	Runtime__V1__ContainerEventResponse e = RUNTIME__V1__CONTAINER_EVENT_RESPONSE__INIT;

	/* 10,000 numbered events, then the end; the client can tell a lost or a doubled one */
	for (int i = 0; i < 10000; i++) {
		char id[32];

		snprintf(id, sizeof(id), "%d", i);
		e.container_id = id;
		e.created_at = i;
		TRY(call_send(t, c, &e.base));
	}
	return 0;
}

/* Has nested strings in its request. */
static int list(struct task *t, struct call *c, const void *request)
{
	Runtime__V1__ListPodSandboxResponse r = RUNTIME__V1__LIST_POD_SANDBOX_RESPONSE__INIT;

	return call_reply(t, c, &r.base);
}

static int pull(struct task *t, struct call *c, const void *request)
{
	const Runtime__V1__PullImageRequest *r = request;
	Runtime__V1__PullImageResponse reply = RUNTIME__V1__PULL_IMAGE_RESPONSE__INIT;
	char text[64];

	snprintf(text, sizeof(text), "%zu",
		 r->image && r->image->image ? strlen(r->image->image) : 0);
	reply.image_ref = text;
	return call_reply(t, c, &reply.base);
}

static const struct grpc_method methods[] = {
	{"/runtime.v1.RuntimeService/Version", &runtime__v1__version_request__descriptor,
	 &runtime__v1__version_response__descriptor, false, version},
	{"/runtime.v1.RuntimeService/ListPodSandbox",
	 &runtime__v1__list_pod_sandbox_request__descriptor,
	 &runtime__v1__list_pod_sandbox_response__descriptor, false, list},
	{"/runtime.v1.RuntimeService/GetContainerEvents",
	 &runtime__v1__get_events_request__descriptor,
	 &runtime__v1__container_event_response__descriptor, true, events},
	{"/runtime.v1.RuntimeService/Status", &runtime__v1__status_request__descriptor,
	 &runtime__v1__status_response__descriptor, false, NULL},
};
static const struct grpc_method image_methods[] = {
	{"/runtime.v1.ImageService/PullImage", &runtime__v1__pull_image_request__descriptor,
	 &runtime__v1__pull_image_response__descriptor, false, pull},
};

static void on_goaway(void *data)
{
	grpc_server_shutdown(server);
}

static void on_stop(void *data)
{
	loop_stop(loop);
}

/* Lets handlers that were cancelled return. */
static void on_drain(void *data)
{
	struct loop_timer *timer = data;

	if (task_count())
		loop_timer_start(loop, timer, loop_now(loop) + 1000000);
	else
		loop_stop(loop);
}

int main(int argc, char **argv)
{
	struct error err = {0};
	struct loop_timer drain;
	int fd;

	if (argc != 2)
		return 2;
	loop = loop_new(&err);
	server = loop ? grpc_server_new(loop, methods, sizeof(methods) / sizeof(*methods), NULL,
					&err)
		      : NULL;
	fd = server ? grpc_listen_unix(argv[1], &err) : -1;
	if (fd < 0 || grpc_server_listen(server, fd, &err) < 0) {
		log_error("%s", err.text);
		return 1;
	}
	grpc_server_add_methods(server, image_methods, 1);
	log_set_level(LOG_WARNING);
	loop_on_signal(loop, SIGTERM, on_goaway, NULL);
	loop_on_signal(loop, SIGINT, on_stop, NULL);
	printf("ready\n");
	fflush(stdout);
	loop_run(loop);

	grpc_server_free(server);
	loop_timer_init(&drain, "drain", on_drain, &drain);
	loop_timer_start(loop, &drain, loop_now(loop));
	loop_run(loop);
	loop_free(loop);
	task_pool_trim();
	return 0;
}
