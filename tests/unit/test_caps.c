/* SPDX-License-Identifier: Apache-2.0 */
/* Capability names and lists; which sysctls a sandbox may set. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <linux/capability.h>
#include <stdlib.h>
#include <string.h>

#include "sandbox/linux/caps.h"
#include "sandbox/linux/sysctl.h"

#define BIT(cap) (1ull << (cap))
#define LIST(...)                                                                                  \
	(&(struct string_list){(const char *[]){__VA_ARGS__},                                      \
			       sizeof((const char *[]){__VA_ARGS__}) / sizeof(const char *)})

static void names_are_found_in_any_case(void **state)
{
	assert_int_equal(caps_find("CAP_NET_ADMIN"), CAP_NET_ADMIN);
	assert_int_equal(caps_find("net_admin"), CAP_NET_ADMIN);
	assert_int_equal(caps_find("Cap_Net_Admin"), CAP_NET_ADMIN);
	assert_int_equal(caps_find("CAP_CHECKPOINT_RESTORE"), CAP_CHECKPOINT_RESTORE);
	assert_int_equal(caps_find(""), -1);
	assert_int_equal(caps_find("CAP_"), -1);
	assert_int_equal(caps_find("CAP_CAP_KILL"), -1);
	assert_int_equal(caps_find("ALL"), -1);
	for (int cap = 0; cap <= CAP_LAST_CAP; cap++)
		assert_int_equal(caps_find(caps_name(cap)), cap);
	assert_null(caps_name(-1));
	assert_null(caps_name(63));
}

static void the_default_has_14(void **state)
{
	assert_int_equal(__builtin_popcountll(caps_default), 14);
	assert_true(caps_default & BIT(CAP_NET_RAW));
	assert_false(caps_default & BIT(CAP_SYS_ADMIN));
	assert_int_equal(caps_default & ~caps_all(), 0);
}

static uint64_t apply(uint64_t base, const struct string_list *add, const struct string_list *drop)
{
	struct error err = {0};
	uint64_t mask = 0;

	if (caps_apply(base, add, drop, &mask, &err) < 0)
		fail_msg("%s", err.text);
	return mask;
}

static void lists_are_applied(void **state)
{
	assert_int_equal(apply(caps_default, NULL, NULL), caps_default);
	assert_int_equal(apply(caps_default, LIST("SYS_TIME"), LIST("KILL", "CAP_CHOWN")),
			 (caps_default | BIT(CAP_SYS_TIME)) & ~BIT(CAP_KILL) & ~BIT(CAP_CHOWN));
	assert_int_equal(apply(caps_default, NULL, LIST("all")), 0);
	assert_int_equal(apply(caps_default, LIST("NET_BIND_SERVICE"), LIST("ALL")),
			 BIT(CAP_NET_BIND_SERVICE));
	assert_int_equal(apply(caps_default, LIST("ALL"), NULL), caps_all());
	assert_int_equal(apply(caps_default, LIST("ALL"), LIST("SYS_ADMIN")),
			 caps_all() & ~BIT(CAP_SYS_ADMIN));
	assert_int_equal(apply(0, LIST("KILL"), LIST("KILL")), BIT(CAP_KILL));
	assert_int_equal(apply(UINT64_MAX, NULL, NULL), caps_all());
}

static void unknown_names_are_refused(void **state)
{
	struct error err = {0};
	uint64_t mask = 42;

	assert_int_equal(caps_apply(0, LIST("CAP_FLY"), NULL, &mask, &err), -ERR_INVALID);
	assert_non_null(strstr(err.text, "CAP_FLY"));
	assert_int_equal(caps_apply(0, NULL, LIST("x"), &mask, &err), -ERR_INVALID);
	assert_int_equal(mask, 42);
}

static int check_sysctl(const char *name, const char *value, enum ns_mode net, enum ns_mode ipc)
{
	struct key_value kv = {name, value};
	struct sandbox_spec spec = {.net = net, .ipc = ipc, .sysctls = {&kv, 1}};
	struct error err = {0};

	return sysctl_check(&spec, &err);
}

static void namespaced_sysctls_are_allowed(void **state)
{
	static const char *const names[] = {
		"kernel.shmmax",       "kernel.shm_rmid_forced",    "kernel.sem",
		"kernel.msgmnb",       "fs.mqueue.msg_max",	    "net.core.somaxconn",
		"net.ipv4.ip_forward", "net.ipv4.ping_group_range", "net.ipv6.conf.eth0.mtu",
		"kernel.msgmax"};
	char *path;

	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
		assert_int_equal(check_sysctl(names[i], "1 2\t3", NS_POD, NS_POD), 0);
	path = sysctl_path("net.ipv4.ip_forward");
	assert_string_equal(path, "sys/net/ipv4/ip_forward");
	free(path);
}

static void sysctls_of_the_node_are_refused(void **state)
{
	static const char *const names[] = {"kernel.panic",
					    "vm.swappiness",
					    "kernel.core_pattern",
					    "fs.file-max",
					    "kernel.shmmax2",
					    "kernel.domainname",
					    "",
					    "net",
					    "net.",
					    "net..core",
					    ".net.core",
					    "net/ipv4/ip_forward",
					    "net.ipv4/../../kernel/core_pattern",
					    "net.core.somaxconn ",
					    "net.a+b",
					    "kernel.shmmax=1",
					    "net.\ncore",
					    "kernel/shmmax",
					    "dev.cdrom.debug"};

	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
		assert_int_equal(check_sysctl(names[i], "1", NS_POD, NS_POD), -ERR_INVALID);
	assert_int_equal(check_sysctl("kernel.shmmax", "1\nx", NS_POD, NS_POD), -ERR_INVALID);
	assert_int_equal(check_sysctl("kernel.shmmax", "", NS_POD, NS_POD), -ERR_INVALID);
	assert_int_equal(check_sysctl("kernel.shmmax", NULL, NS_POD, NS_POD), -ERR_INVALID);
	assert_int_equal(check_sysctl("kernel.shmmax", "1", NS_POD, NS_NODE), -ERR_INVALID);
	assert_int_equal(check_sysctl("fs.mqueue.msg_max", "1", NS_POD, NS_NODE), -ERR_INVALID);
	assert_int_equal(check_sysctl("net.core.somaxconn", "1", NS_NODE, NS_POD), -ERR_INVALID);
	assert_int_equal(check_sysctl("net.core.somaxconn", "1", NS_POD, NS_NODE), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(names_are_found_in_any_case),
		cmocka_unit_test(the_default_has_14),
		cmocka_unit_test(lists_are_applied),
		cmocka_unit_test(unknown_names_are_refused),
		cmocka_unit_test(namespaced_sysctls_are_allowed),
		cmocka_unit_test(sysctls_of_the_node_are_refused),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
