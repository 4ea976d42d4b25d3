/* SPDX-License-Identifier: Apache-2.0 */
/* A profile in neutral terms, between those who make one (our table, JSON) and the compiler. */
#pragma once

#include <linux/seccomp.h>

#include "sandbox/linux/seccomp.h"

#define SECCOMP_ARGS_MAX 6
/* What a profile may hold at most, all names of all rules counted. */
#define SECCOMP_RULES_MAX 16384
#define SECCOMP_ARCHES_MAX 8

enum seccomp_compare {
	COMPARE_NE,
	COMPARE_LT,
	COMPARE_LE,
	COMPARE_EQ,
	COMPARE_GE,
	COMPARE_GT,
	COMPARE_MASKED_EQ, /* argument & value == value2 */
};

struct seccomp_arg {
	unsigned index;
	enum seccomp_compare compare;
	uint64_t value, value2;
};

/* action and errno as the kernel's SECCOMP_RET_* word. */
struct seccomp_rule {
	const char *name;
	uint32_t action;
	struct seccomp_arg args[SECCOMP_ARGS_MAX];
	unsigned arg_count;
};

struct seccomp_profile {
	uint32_t default_action;
	const char *
		arches[SECCOMP_ARCHES_MAX]; /* libseccomp's names, "x86_64"; none: the native one */
	size_t arch_count;
	unsigned flags;
	struct seccomp_rule *rules;
	size_t rule_count, rule_capacity;
	void *json; /* what the names belong to, or NULL */
};

void seccomp_profile_done(struct seccomp_profile *p);
/* A copy of rule; false when there are SECCOMP_RULES_MAX. */
bool seccomp_profile_add(struct seccomp_profile *p, const struct seccomp_rule *rule);

/* RuntimeDefault. Only the capabilities of seccomp_default_caps make a difference. */
extern const uint64_t seccomp_default_caps;
void seccomp_default_profile(uint64_t capabilities, struct seccomp_profile *ret);
/* Localhost. */
int seccomp_json_profile(const char *text, uint64_t capabilities, struct seccomp_profile *ret,
			 struct error *err);
