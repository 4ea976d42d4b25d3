/* SPDX-License-Identifier: Apache-2.0 */
/* What went through the interfaces of a pod's network namespace. */
#pragma once

#include "io/base/error.h"
#include "sandbox/usage.h"

/* net is a descriptor of the namespace; *ret is empty before. Blocks: for offload. */
int net_usage_read(int net, struct net_list *ret, struct error *err);
/* The text of /proc/net/dev, which is cut up. */
void net_usage_parse(char *text, struct net_list *ret);
