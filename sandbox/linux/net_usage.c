/* SPDX-License-Identifier: Apache-2.0 */
/* What went through the interfaces of a network namespace: /proc/net/dev (proc_pid_net(5)), as a
 * thread sees it that has joined. */
#include "sandbox/linux/net_usage.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "io/base/alloc.h"
#include "io/base/cleanup.h"
#include "io/base/clock.h"
#include "sandbox/linux/ns.h"

/* A pod can make any number of them. */
#define INTERFACES_MAX 256
#define TEXT_MAX (1 << 20)
/* Numbers of a line: bytes, packets, errors, drops and four more, for each direction. */
#define NUMBERS 16

/* "  eth0: 1 2 3 …"; false for the two lines of headings. */
static bool parse_line(const char *line, struct net_usage *ret)
{
	const char *colon = strchr(line, ':');
	uint64_t n[NUMBERS];
	char *at;

	while (isspace((unsigned char)*line))
		line++;
	if (!colon || colon - line >= (int)sizeof(ret->name))
		return false;
	at = (char *)colon + 1;
	for (int i = 0; i < NUMBERS; i++) {
		char *end;

		n[i] = strtoull(at, &end, 10);
		if (end == at)
			return false;
		at = end;
	}
	*ret = (struct net_usage){
		.received = {.bytes = n[0], .packets = n[1], .errors = n[2], .dropped = n[3]},
		.sent = {.bytes = n[8], .packets = n[9], .errors = n[10], .dropped = n[11]},
	};
	memcpy(ret->name, line, (size_t)(colon - line));
	return true;
}

void net_usage_parse(char *text, struct net_list *ret)
{
	char *rest = NULL;

	ret->items = xcalloc(INTERFACES_MAX, sizeof(*ret->items));
	for (char *line = strtok_r(text, "\n", &rest); line && ret->count < INTERFACES_MAX;
	     line = strtok_r(NULL, "\n", &rest))
		ret->count += parse_line(line, &ret->items[ret->count]);
}

int net_usage_read(int net, struct net_list *ret, struct error *err)
{
	struct buf text CLEANUP(buf_done) = {0};

	TRY(ns_read_inside(net, "/proc/thread-self/net/dev", TEXT_MAX, &text, err));
	ret->at = realtime_ns();
	net_usage_parse(text.data, ret);
	return 0;
}
