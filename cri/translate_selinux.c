/* SPDX-License-Identifier: Apache-2.0 */
/* SELinux options. Whether the node's policy knows what they make up is the sandboxer's to find. */
#include "cri/translate_priv.h"

#include <string.h>

/* Of one part; a label of four can be no longer. */
#define PART_MAX 200

static bool is_part(const char *text, const char *also)
{
	static const char usual[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
				    "0123456789_.-";

	for (; *text; text++)
		if (!strchr(usual, *text) && !strchr(also, *text))
			return false;
	return true;
}

static int check_part(const char *name, const char *text, const char *also, struct error *err)
{
	if (strlen(text) <= PART_MAX && is_part(text, also))
		return 0;
	return error_set(err, ERR_INVALID,
			 SECURITY_CONTEXT ".selinux_options.%s \"%.80s\": it is no %s of a label; "
					  "use at most %d letters, digits and \"_.-%s\"",
			 name, text, name, PART_MAX, also);
}

int translate_check_selinux(const Runtime__V1__SELinuxOption *o, struct error *err)
{
	if (!o)
		return 0;
	TRY(check_part("user", o->user, "", err));
	TRY(check_part("role", o->role, "", err));
	TRY(check_part("type", o->type, "", err));
	return check_part("level", o->level, ":,", err);
}

struct selinux_spec translate_selinux(const Runtime__V1__SELinuxOption *o)
{
	if (!o)
		return (struct selinux_spec){0};
	return (struct selinux_spec){null_if_empty(o->user), null_if_empty(o->role),
				     null_if_empty(o->type), null_if_empty(o->level)};
}
