/* SPDX-License-Identifier: Apache-2.0 */
/* Profiles in JSON. Each fault is told with its place, as "syscalls[3].args[0].op". */
#include "sandbox/linux/seccomp_priv.h"

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/utsname.h>

#include "io/base/alloc.h"
#include "sandbox/linux/caps.h"

#define ERRNO_MAX 4095
#define DEPTH_MAX 32

#if defined(__x86_64__)
#define NATIVE_GO "amd64"
#define NATIVE_SCMP "SCMP_ARCH_X86_64"
#elif defined(__aarch64__)
#define NATIVE_GO "arm64"
#define NATIVE_SCMP "SCMP_ARCH_AARCH64"
#else
#define NATIVE_GO "unknown"
#define NATIVE_SCMP "unknown"
#endif

void seccomp_profile_done(struct seccomp_profile *p)
{
	json_decref(p->json);
	free(p->rules);
	*p = (struct seccomp_profile){0};
}

bool seccomp_profile_add(struct seccomp_profile *p, const struct seccomp_rule *rule)
{
	if (p->rule_count == SECCOMP_RULES_MAX)
		return false;
	if (p->rule_count == p->rule_capacity) {
		p->rule_capacity = p->rule_capacity ? p->rule_capacity * 2 : 512;
		p->rules = xrealloc(p->rules, p->rule_capacity * sizeof(*p->rules));
	}
	p->rules[p->rule_count++] = *rule;
	return true;
}

struct parser {
	struct seccomp_profile profile;
	uint64_t capabilities;
	struct error *err;
};

static int fault(struct parser *p, const char *place, const char *why)
{
	return error_set(p->err, ERR_INVALID, "seccomp profile: %s: %s", place, why);
}

static int fault_at(struct parser *p, size_t index, const char *place, const char *why)
{
	return error_set(p->err, ERR_INVALID, "seccomp profile: syscalls[%zu]%s: %s", index, place,
			 why);
}

static const struct {
	const char *name;
	uint32_t action;
} actions[] = {
	{"SCMP_ACT_ALLOW", SECCOMP_RET_ALLOW},
	{"SCMP_ACT_ERRNO", SECCOMP_RET_ERRNO},
	{"SCMP_ACT_KILL", SECCOMP_RET_KILL_THREAD},
	{"SCMP_ACT_KILL_THREAD", SECCOMP_RET_KILL_THREAD},
	{"SCMP_ACT_KILL_PROCESS", SECCOMP_RET_KILL_PROCESS},
	{"SCMP_ACT_TRAP", SECCOMP_RET_TRAP},
	{"SCMP_ACT_TRACE", SECCOMP_RET_TRACE},
	{"SCMP_ACT_LOG", SECCOMP_RET_LOG},
};

/* NULL on success, else what is wrong. */
static const char *parse_action(const json_t *value, const json_t *number, uint32_t *ret)
{
	const char *name = json_string_value(value);
	json_int_t code = 1; /* EPERM */

	if (!name)
		return "missing or no string";
	if (strcmp(name, "SCMP_ACT_NOTIFY") == 0)
		return "SCMP_ACT_NOTIFY needs an agent that listens, which is not supported; use "
		       "another action";
	if (number && !json_is_null(number)) {
		code = json_integer_value(number);
		if (!json_is_integer(number) || code < 0 || code > ERRNO_MAX)
			return "its errno is no number from 0 to 4095";
	}
	for (size_t i = 0; i < sizeof(actions) / sizeof(actions[0]); i++) {
		if (strcmp(actions[i].name, name) != 0)
			continue;
		*ret = actions[i].action;
		if (*ret == SECCOMP_RET_ERRNO || *ret == SECCOMP_RET_TRACE)
			*ret |= (uint32_t)code;
		return NULL;
	}
	return "unknown action";
}

static bool has_string(const json_t *array, const char *s)
{
	const json_t *item;
	size_t i;

	json_array_foreach(array, i, item)
	{
		if (json_is_string(item) && strcmp(json_string_value(item), s) == 0)
			return true;
	}
	return false;
}

static bool has_capability(const struct parser *p, const json_t *name)
{
	int cap = json_is_string(name) ? caps_find(json_string_value(name)) : -1;

	return cap >= 0 && p->capabilities & 1ull << cap;
}

static bool is_kernel_at_least(const char *text)
{
	struct utsname u;
	unsigned major = 0, minor = 0, want_major = 0, want_minor = 0;

	uname(&u);
	(void)sscanf(u.release, "%u.%u", &major, &minor);
	(void)sscanf(text, "%u.%u", &want_major, &want_minor);
	return major > want_major || (major == want_major && minor >= want_minor);
}

/* Whether the rule is for this container: all of `includes`, none of `excludes`. */
static bool applies(const struct parser *p, const json_t *rule)
{
	const json_t *in = json_object_get(rule, "includes"),
		     *ex = json_object_get(rule, "excludes");
	const json_t *arches = json_object_get(in, "arches"), *cap;
	const char *kernel = json_string_value(json_object_get(in, "minKernel"));
	size_t i;

	json_array_foreach(json_object_get(in, "caps"), i, cap)
	{
		if (!has_capability(p, cap))
			return false;
	}
	json_array_foreach(json_object_get(ex, "caps"), i, cap)
	{
		if (has_capability(p, cap))
			return false;
	}
	if (json_array_size(arches) && !has_string(arches, NATIVE_GO))
		return false;
	if (has_string(json_object_get(ex, "arches"), NATIVE_GO))
		return false;
	if (kernel && !is_kernel_at_least(kernel))
		return false;
	kernel = json_string_value(json_object_get(ex, "minKernel"));
	return !kernel || !is_kernel_at_least(kernel);
}

static const char *parse_arg(const json_t *arg, struct seccomp_arg *ret)
{
	static const char *const names[] = {
		[COMPARE_NE] = "SCMP_CMP_NE",
		[COMPARE_LT] = "SCMP_CMP_LT",
		[COMPARE_LE] = "SCMP_CMP_LE",
		[COMPARE_EQ] = "SCMP_CMP_EQ",
		[COMPARE_GE] = "SCMP_CMP_GE",
		[COMPARE_GT] = "SCMP_CMP_GT",
		[COMPARE_MASKED_EQ] = "SCMP_CMP_MASKED_EQ",
	};
	const json_t *index = json_object_get(arg, "index"), *value = json_object_get(arg, "value"),
		     *value2 = json_object_get(arg, "valueTwo");
	const char *op = json_string_value(json_object_get(arg, "op"));

	if (!json_is_integer(index) || json_integer_value(index) < 0 ||
	    json_integer_value(index) >= SECCOMP_ARGS_MAX)
		return "its index is no number from 0 to 5";
	if (!json_is_integer(value) || (value2 && !json_is_integer(value2)))
		return "its value is missing or no number";
	ret->index = (unsigned)json_integer_value(index);
	ret->value = (uint64_t)json_integer_value(value);
	ret->value2 = (uint64_t)json_integer_value(value2);
	for (size_t i = 0; op && i < sizeof(names) / sizeof(names[0]); i++) {
		if (strcmp(names[i], op) == 0) {
			ret->compare = (enum seccomp_compare)i;
			return NULL;
		}
	}
	return "its op is missing or unknown";
}

static int add_names(struct parser *p, size_t at, const json_t *names, struct seccomp_rule *rule)
{
	const json_t *name;
	size_t i;

	json_array_foreach(names, i, name)
	{
		rule->name = json_string_value(name);
		if (!rule->name || !*rule->name)
			return fault_at(p, at, ".names", "one is empty or no string");
		if (!seccomp_profile_add(&p->profile, rule))
			return fault_at(p, at, "", "too many rules");
	}
	return 0;
}

/* Two conditions on one argument can't stand in one rule of libseccomp; runtimes agreed on taking
 * such a list as alternatives. */
static int add_alternatives(struct parser *p, size_t at, const json_t *names,
			    const struct seccomp_rule *rule)
{
	for (unsigned i = 0; i < rule->arg_count; i++) {
		struct seccomp_rule one = {.action = rule->action, .arg_count = 1};

		one.args[0] = rule->args[i];
		TRY(add_names(p, at, names, &one));
	}
	return 0;
}

static int parse_args(struct parser *p, size_t at, const json_t *rule, struct seccomp_rule *ret,
		      bool *ret_alternatives)
{
	const json_t *args = json_object_get(rule, "args"), *arg;
	unsigned seen = 0;
	size_t i;

	*ret_alternatives = false;
	if (args && !json_is_null(args) && !json_is_array(args))
		return fault_at(p, at, ".args", "no list");
	if (json_array_size(args) > SECCOMP_ARGS_MAX)
		return fault_at(p, at, ".args", "more than 6");
	json_array_foreach(args, i, arg)
	{
		const char *why = parse_arg(arg, &ret->args[i]);
		char place[32];

		snprintf(place, sizeof(place), ".args[%zu]", i);
		if (why)
			return fault_at(p, at, place, why);
		if (seen & 1u << ret->args[i].index)
			*ret_alternatives = true;
		seen |= 1u << ret->args[i].index;
		ret->arg_count++;
	}
	return 0;
}

static int parse_rule(struct parser *p, size_t at, const json_t *rule)
{
	struct seccomp_rule base = {0};
	const json_t *names, *name;
	bool is_alternatives;
	const char *why;

	if (!json_is_object(rule))
		return fault_at(p, at, "", "no object");
	why = parse_action(json_object_get(rule, "action"), json_object_get(rule, "errnoRet"),
			   &base.action);
	if (why)
		return fault_at(p, at, ".action", why);
	TRY(parse_args(p, at, rule, &base, &is_alternatives));
	names = json_object_get(rule, "names");
	name = json_object_get(rule, "name");
	if (names ? !json_is_array(names) : !json_is_string(name))
		return fault_at(p, at, ".names", "missing or no list");
	if (!applies(p, rule))
		return 0;
	if (names)
		return is_alternatives ? add_alternatives(p, at, names, &base)
				       : add_names(p, at, names, &base);
	base.name = json_string_value(name);
	if (!seccomp_profile_add(&p->profile, &base))
		return fault_at(p, at, "", "too many rules");
	return 0;
}

static int parse_rules(struct parser *p, const json_t *root)
{
	const json_t *rules = json_object_get(root, "syscalls"), *rule;
	size_t i;

	if (rules && !json_is_null(rules) && !json_is_array(rules))
		return fault(p, "syscalls", "no list");
	json_array_foreach(rules, i, rule)
	{
		TRY(parse_rule(p, i, rule));
	}
	return 0;
}

/* "SCMP_ARCH_X86_64" to libseccomp's "x86_64"; the names differ in case alone. */
static int add_arch(struct parser *p, const char *place, const json_t *value)
{
	static const char *const names[] = {
		"x86_64",    "x86",    "x32",	   "aarch64",	  "arm",     "mips",  "mips64",
		"mips64n32", "mipsel", "mipsel64", "mipsel64n32", "ppc",     "ppc64", "ppc64le",
		"s390",	     "s390x",  "riscv64",  "parisc",	  "parisc64"};
	const char *text = json_string_value(value);

	if (!text || strncmp(text, "SCMP_ARCH_", 10) != 0)
		return fault(p, place, "no name such as SCMP_ARCH_X86_64");
	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
		if (strcasecmp(names[i], text + 10) != 0)
			continue;
		if (p->profile.arch_count == SECCOMP_ARCHES_MAX)
			return fault(p, place, "too many architectures");
		p->profile.arches[p->profile.arch_count++] = names[i];
		return 0;
	}
	/* one that is newer than libseccomp can't be this machine's */
	return 0;
}

static int parse_arches(struct parser *p, const json_t *root)
{
	const json_t *plain = json_object_get(root, "architectures"),
		     *map = json_object_get(root, "archMap"), *item, *sub;
	size_t i, j;

	if (json_array_size(plain) && json_array_size(map))
		return fault(p, "architectures", "stands beside archMap; give one of them");
	json_array_foreach(plain, i, item)
	{
		TRY(add_arch(p, "architectures", item));
	}
	json_array_foreach(map, i, item)
	{
		const json_t *name = json_object_get(item, "architecture");

		if (!json_is_string(name))
			return fault(p, "archMap", "an entry has no architecture");
		if (strcmp(json_string_value(name), NATIVE_SCMP) != 0)
			continue;
		TRY(add_arch(p, "archMap", name));
		json_array_foreach(json_object_get(item, "subArchitectures"), j, sub)
		{
			TRY(add_arch(p, "archMap", sub));
		}
	}
	return 0;
}

static int parse_flags(struct parser *p, const json_t *root)
{
	const json_t *flag;
	size_t i;

	json_array_foreach(json_object_get(root, "flags"), i, flag)
	{
		const char *name = json_string_value(flag);

		if (!name)
			return fault(p, "flags", "one is no string");
		if (strcmp(name, "SECCOMP_FILTER_FLAG_LOG") == 0)
			p->profile.flags |= SECCOMP_FILTER_FLAG_LOG;
		else if (strcmp(name, "SECCOMP_FILTER_FLAG_TSYNC") == 0)
			p->profile.flags |= SECCOMP_FILTER_FLAG_TSYNC;
		else if (strcmp(name, "SECCOMP_FILTER_FLAG_SPEC_ALLOW") == 0)
			p->profile.flags |= SECCOMP_FILTER_FLAG_SPEC_ALLOW;
		/* it says how to wait for an agent, and there is none */
		else if (strcmp(name, "SECCOMP_FILTER_FLAG_WAIT_KILLABLE_RECV") != 0)
			return fault(p, "flags", "unknown flag");
	}
	return 0;
}

static int parse_root(struct parser *p, const json_t *root)
{
	const char *why;

	if (!json_is_object(root))
		return fault(p, "top", "no object");
	why = parse_action(json_object_get(root, "defaultAction"),
			   json_object_get(root, "defaultErrnoRet"), &p->profile.default_action);
	if (why)
		return fault(p, "defaultAction", why);
	if (json_string_length(json_object_get(root, "listenerPath")))
		return fault(p, "listenerPath", "agents that listen are not supported");
	TRY(parse_arches(p, root));
	TRY(parse_flags(p, root));
	return parse_rules(p, root);
}

/* The parser recurses, and threads have small stacks. */
static bool is_too_deep(const char *text)
{
	int depth = 0;
	bool is_string = false;

	for (; *text; text++) {
		if (is_string && *text == '\\' && text[1])
			text++;
		else if (*text == '"')
			is_string = !is_string;
		else if (!is_string && (*text == '[' || *text == '{') && ++depth > DEPTH_MAX)
			return true;
		else if (!is_string && (*text == ']' || *text == '}'))
			depth--;
	}
	return false;
}

int seccomp_json_profile(const char *text, uint64_t capabilities, struct seccomp_profile *ret,
			 struct error *err)
{
	struct parser p = {.capabilities = capabilities, .err = err};
	size_t length = text ? strlen(text) : 0;
	json_error_t why;
	json_t *root;
	int r;

	if (!length)
		return fault(&p, "top", "it is empty");
	if (length > SECCOMP_PROFILE_MAX)
		return fault(&p, "top", "it is larger than 1 MiB");
	if (is_too_deep(text))
		return fault(&p, "top", "it is nested too deeply");
	root = json_loadb(text, length, 0, &why);
	if (!root)
		return error_set(err, ERR_INVALID, "seccomp profile: line %d, column %d: %s",
				 why.line, why.column, why.text);
	r = parse_root(&p, root);
	p.profile.json = root;
	if (r < 0)
		seccomp_profile_done(&p.profile);
	else
		*ret = p.profile;
	return r;
}
