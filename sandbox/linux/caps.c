/* SPDX-License-Identifier: Apache-2.0 */
/* Capability names. */
#include "sandbox/linux/caps.h"

#include <fcntl.h>
#include <linux/capability.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

#include "io/base/cleanup.h"

#define BIT(cap) (1ull << (cap))

static const char *const names[] = {
	[CAP_CHOWN] = "CAP_CHOWN",
	[CAP_DAC_OVERRIDE] = "CAP_DAC_OVERRIDE",
	[CAP_DAC_READ_SEARCH] = "CAP_DAC_READ_SEARCH",
	[CAP_FOWNER] = "CAP_FOWNER",
	[CAP_FSETID] = "CAP_FSETID",
	[CAP_KILL] = "CAP_KILL",
	[CAP_SETGID] = "CAP_SETGID",
	[CAP_SETUID] = "CAP_SETUID",
	[CAP_SETPCAP] = "CAP_SETPCAP",
	[CAP_LINUX_IMMUTABLE] = "CAP_LINUX_IMMUTABLE",
	[CAP_NET_BIND_SERVICE] = "CAP_NET_BIND_SERVICE",
	[CAP_NET_BROADCAST] = "CAP_NET_BROADCAST",
	[CAP_NET_ADMIN] = "CAP_NET_ADMIN",
	[CAP_NET_RAW] = "CAP_NET_RAW",
	[CAP_IPC_LOCK] = "CAP_IPC_LOCK",
	[CAP_IPC_OWNER] = "CAP_IPC_OWNER",
	[CAP_SYS_MODULE] = "CAP_SYS_MODULE",
	[CAP_SYS_RAWIO] = "CAP_SYS_RAWIO",
	[CAP_SYS_CHROOT] = "CAP_SYS_CHROOT",
	[CAP_SYS_PTRACE] = "CAP_SYS_PTRACE",
	[CAP_SYS_PACCT] = "CAP_SYS_PACCT",
	[CAP_SYS_ADMIN] = "CAP_SYS_ADMIN",
	[CAP_SYS_BOOT] = "CAP_SYS_BOOT",
	[CAP_SYS_NICE] = "CAP_SYS_NICE",
	[CAP_SYS_RESOURCE] = "CAP_SYS_RESOURCE",
	[CAP_SYS_TIME] = "CAP_SYS_TIME",
	[CAP_SYS_TTY_CONFIG] = "CAP_SYS_TTY_CONFIG",
	[CAP_MKNOD] = "CAP_MKNOD",
	[CAP_LEASE] = "CAP_LEASE",
	[CAP_AUDIT_WRITE] = "CAP_AUDIT_WRITE",
	[CAP_AUDIT_CONTROL] = "CAP_AUDIT_CONTROL",
	[CAP_SETFCAP] = "CAP_SETFCAP",
	[CAP_MAC_OVERRIDE] = "CAP_MAC_OVERRIDE",
	[CAP_MAC_ADMIN] = "CAP_MAC_ADMIN",
	[CAP_SYSLOG] = "CAP_SYSLOG",
	[CAP_WAKE_ALARM] = "CAP_WAKE_ALARM",
	[CAP_BLOCK_SUSPEND] = "CAP_BLOCK_SUSPEND",
	[CAP_AUDIT_READ] = "CAP_AUDIT_READ",
	[CAP_PERFMON] = "CAP_PERFMON",
	[CAP_BPF] = "CAP_BPF",
	[CAP_CHECKPOINT_RESTORE] = "CAP_CHECKPOINT_RESTORE",
};

#define NAME_COUNT ((int)(sizeof(names) / sizeof(names[0])))

const uint64_t caps_default = BIT(CAP_CHOWN) | BIT(CAP_DAC_OVERRIDE) | BIT(CAP_FSETID) |
			      BIT(CAP_FOWNER) | BIT(CAP_MKNOD) | BIT(CAP_NET_RAW) |
			      BIT(CAP_SETGID) | BIT(CAP_SETUID) | BIT(CAP_SETFCAP) |
			      BIT(CAP_SETPCAP) | BIT(CAP_NET_BIND_SERVICE) | BIT(CAP_SYS_CHROOT) |
			      BIT(CAP_KILL) | BIT(CAP_AUDIT_WRITE);

static int read_last_cap(void)
{
	cleanup_close int fd = open("/proc/sys/kernel/cap_last_cap", O_RDONLY | O_CLOEXEC);
	char text[16] = "";

	if (fd < 0 || read(fd, text, sizeof(text) - 1) <= 0)
		return NAME_COUNT - 1;
	return atoi(text);
}

uint64_t caps_all(void)
{
	static uint64_t all;
	uint64_t mask = __atomic_load_n(&all, __ATOMIC_RELAXED);

	if (!mask) {
		int last = read_last_cap();

		mask = last >= 63 ? UINT64_MAX : BIT(last + 1) - 1;
		__atomic_store_n(&all, mask, __ATOMIC_RELAXED);
	}
	return mask;
}

int caps_find(const char *name)
{
	if (strncasecmp(name, "CAP_", 4) == 0)
		name += 4;
	for (int i = 0; i < NAME_COUNT; i++)
		if (strcasecmp(names[i] + 4, name) == 0)
			return i;
	return -1;
}

const char *caps_name(int cap)
{
	return cap >= 0 && cap < NAME_COUNT ? names[cap] : NULL;
}

/* The mask of the list's names; "ALL" is told apart. */
static int parse_list(const struct string_list *list, uint64_t *ret_mask, bool *ret_all,
		      struct error *err)
{
	*ret_mask = 0;
	*ret_all = false;
	for (size_t i = 0; list && i < list->count; i++) {
		int cap;

		if (strcasecmp(list->items[i], "ALL") == 0) {
			*ret_all = true;
			continue;
		}
		cap = caps_find(list->items[i]);
		if (cap < 0)
			return error_set(err, ERR_INVALID, "capability \"%.64s\": no such name",
					 list->items[i]);
		*ret_mask |= BIT(cap);
	}
	return 0;
}

int caps_apply(uint64_t base, const struct string_list *add, const struct string_list *drop,
	       uint64_t *ret, struct error *err)
{
	uint64_t added, dropped, missing;
	bool add_all, drop_all;

	TRY(parse_list(add, &added, &add_all, err));
	TRY(parse_list(drop, &dropped, &drop_all, err));
	missing = added & ~caps_all();
	if (missing)
		return error_set(err, ERR_PRECONDITION,
				 "capability %s: this kernel does not have it",
				 caps_name(__builtin_ctzll(missing)));
	if (drop_all)
		base = 0;
	if (add_all)
		base = caps_all();
	*ret = ((base & ~dropped) | added) & caps_all();
	return 0;
}
