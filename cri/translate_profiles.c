/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Security profiles: seccomp and AppArmor, in the API's present fields and in the deprecated ones,
 * which count where the present one is missing. Peculiar: a profile that can't be meant is refused
 * and never stands for "none" (CVE-2023-2431).
 */
#include "cri/translate_priv.h"

#include <string.h>

#define LOCALHOST "localhost/"
#define TYPE(name) RUNTIME__V1__SECURITY_PROFILE__PROFILE_TYPE__##name

/* What an old field says; false when it says nothing that there is. */
static bool read_old(const char *old, enum profile_kind *ret, const char **ret_ref)
{
	*ret_ref = NULL;
	if (!is_set(old))
		*ret = PROFILE_NONE;
	else if (!strcmp(old, "runtime/default") || !strcmp(old, "docker/default"))
		*ret = PROFILE_RUNTIME_DEFAULT;
	else if (!strcmp(old, "unconfined"))
		*ret = PROFILE_UNCONFINED;
	else if (!strncmp(old, LOCALHOST, strlen(LOCALHOST)))
		*ret = PROFILE_LOCALHOST;
	else
		return false;
	if (*ret == PROFILE_LOCALHOST)
		*ret_ref = old + strlen(LOCALHOST);
	return true;
}

enum profile_kind translate_profile(const Runtime__V1__SecurityProfile *profile, const char *old,
				    const char **ret_ref)
{
	enum profile_kind kind = PROFILE_NONE;

	*ret_ref = NULL;
	if (!profile) {
		read_old(old, &kind, ret_ref);
		return kind;
	}
	if (profile->profile_type == TYPE(Unconfined))
		return PROFILE_UNCONFINED;
	if (profile->profile_type == TYPE(RuntimeDefault))
		return PROFILE_RUNTIME_DEFAULT;
	*ret_ref = profile->localhost_ref;
	return PROFILE_LOCALHOST;
}

static bool has_dot_dot(const char *path)
{
	for (const char *p = path; (p = strstr(p, "..")); p += 2)
		if ((p == path || p[-1] == '/') && (!p[2] || p[2] == '/'))
			return true;
	return false;
}

static int check_type(const char *field, const Runtime__V1__SecurityProfile *profile,
		      struct error *err)
{
	if (profile->profile_type == TYPE(Localhost) && !is_set(profile->localhost_ref))
		return error_set(err, ERR_INVALID,
				 "%s.localhost_ref: missing; profile_type Localhost needs it",
				 field);
	if (profile->profile_type != TYPE(Localhost) && is_set(profile->localhost_ref))
		return error_set(err, ERR_INVALID,
				 "%s.localhost_ref: only profile_type Localhost has one", field);
	return 0;
}

static int check_old(const char *field, const char *old, struct error *err)
{
	enum profile_kind kind;
	const char *ref;

	if (!read_old(old, &kind, &ref))
		return error_set(err, ERR_INVALID,
				 "%s %.200s: must be runtime/default, unconfined or localhost/ "
				 "with a profile",
				 field, old);
	if (kind == PROFILE_LOCALHOST && !is_set(ref))
		return error_set(err, ERR_INVALID, "%s: names no profile behind localhost/", field);
	return 0;
}

static int check_path(const char *field, const char *path, struct error *err)
{
	if (path[0] != '/' || has_dot_dot(path))
		return error_set(err, ERR_INVALID,
				 "%s %.200s: must be the absolute path of a file, without \"..\"",
				 field, path);
	return 0;
}

int translate_check_seccomp(const Runtime__V1__SecurityProfile *profile, const char *old,
			    struct error *err)
{
	enum profile_kind kind;
	const char *ref;

	if (profile)
		TRY(check_type(SECURITY_CONTEXT ".seccomp", profile, err));
	else
		TRY(check_old(SECURITY_CONTEXT ".seccomp_profile_path", old, err));
	kind = translate_profile(profile, old, &ref);
	if (kind != PROFILE_LOCALHOST)
		return 0;
	return check_path(profile ? SECURITY_CONTEXT ".seccomp.localhost_ref"
				  : SECURITY_CONTEXT ".seccomp_profile_path localhost/",
			  ref, err);
}

/* Behind a prefix that clients give it from habit. */
static const char *plain_name(const char *ref)
{
	return !strncmp(ref, LOCALHOST, strlen(LOCALHOST)) ? ref + strlen(LOCALHOST) : ref;
}

int translate_check_apparmor(const Runtime__V1__SecurityProfile *profile, const char *old,
			     struct error *err)
{
	enum profile_kind kind;
	const char *ref;

	if (profile)
		TRY(check_type(SECURITY_CONTEXT ".apparmor", profile, err));
	else
		TRY(check_old(SECURITY_CONTEXT ".apparmor_profile", old, err));
	kind = translate_profile(profile, old, &ref);
	if (kind != PROFILE_LOCALHOST)
		return 0;
	ref = plain_name(ref);
	/* it goes into a command to the kernel and is looked up in a list with one a line */
	for (const char *p = ref; *p; p++)
		if ((unsigned char)*p < ' ' || *p == 127)
			return error_set(err, ERR_INVALID,
					 SECURITY_CONTEXT
					 ".apparmor: a profile's name has no control characters");
	if (!*ref || strlen(ref) > APPARMOR_NAME_MAX)
		return error_set(err, ERR_INVALID,
				 SECURITY_CONTEXT ".apparmor: a profile's name has 1 to %d bytes",
				 APPARMOR_NAME_MAX);
	return 0;
}

#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wdeprecated-declarations"

static enum profile_kind seccomp_of(const ContainerSecurity *s, const char **ret_path)
{
	*ret_path = NULL;
	if (!s)
		return PROFILE_RUNTIME_DEFAULT;
	if (s->privileged)
		return PROFILE_UNCONFINED;
	return translate_profile(s->seccomp, s->seccomp_profile_path, ret_path);
}

static void apparmor_of(const ContainerSecurity *s, struct container_spec *ret)
{
	enum profile_kind kind = PROFILE_NONE;
	const char *ref = NULL;

	if (s && s->privileged)
		kind = PROFILE_UNCONFINED;
	else if (s)
		kind = translate_profile(s->apparmor, s->apparmor_profile, &ref);
	ret->apparmor_profile = NULL;
	if (kind == PROFILE_UNCONFINED)
		ret->apparmor = APPARMOR_UNCONFINED;
	else if (kind == PROFILE_LOCALHOST)
		ret->apparmor = APPARMOR_LOCALHOST;
	else
		ret->apparmor = APPARMOR_RUNTIME_DEFAULT;
	if (ref)
		ret->apparmor_profile = plain_name(ref);
}

#pragma GCC diagnostic pop

const char *translate_container_profile(const void *config)
{
	const char *path;

	seccomp_of(security_of(config), &path);
	return path;
}

void translate_profiles(struct arena *arena, const struct container *c,
			const ContainerConfig *config, struct container_spec *ret)
{
	const ContainerSecurity *s = security_of(config);
	const char *path;

	switch (seccomp_of(s, &path)) {
	case PROFILE_NONE:
		/* a context without a profile means none: what the API's clients expect */
	case PROFILE_UNCONFINED:
		ret->seccomp = SECCOMP_UNCONFINED;
		break;
	case PROFILE_RUNTIME_DEFAULT:
		ret->seccomp = SECCOMP_RUNTIME_DEFAULT;
		break;
	case PROFILE_LOCALHOST:
		ret->seccomp = SECCOMP_LOCALHOST;
		ret->seccomp_profile = arena_printf(arena, "%s/" SECCOMP_PROFILE_NAME, c->root_dir);
		break;
	}
	apparmor_of(s, ret);
}
