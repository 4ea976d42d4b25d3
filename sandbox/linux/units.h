/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Names and limits in systemd's terms: slices and their place among the cgroups (systemd.slice(5)),
 * the units that are ours, and limits as properties (systemd.resource-control(5)).
 *
 * A cgroup's path tells whose it is: its last component is a unit's name if systemd made it. So a
 * node whose driver is changed goes on with what it has.
 */
#pragma once

#include <stdbool.h>

#include "io/base/arena.h"
#include "sandbox/linux/cgroup_priv.h"
#include "sandbox/linux/systemd_bus.h"

/* Of every unit that we make. */
#define UNIT_PREFIX "crisp-"
#define UNIT_DEFAULT_SLICE "crisp.slice"

/* Whether a path, or a name, is in systemd's notation: it ends with .slice, or ":" follows that. */
bool unit_is_slice(const char *path);
/* The unit that has the cgroup path, within path; NULL for one that is not systemd's. */
const char *unit_of(const char *path);
/* The slice that holds it, which is the component before, malloc'ed; NULL at the top. */
char *unit_slice_of(const char *path);
/* The id in a name that we gave to a cgroup, "<id>", "crisp-<id>.scope" or "crisp-<id>.slice", of
 * that length; false for another's. */
bool unit_id(const char *name, char *ret_id, size_t length);

/*
 * The cgroup of a pod's parent, absolute, malloc'ed: "a-b.slice", "/a.slice/a-b.slice" and
 * "a.slice/a-b.slice" are /a.slice/a-b.slice; other paths are as they are. ERR_INVALID names what
 * is wrong with it.
 */
int unit_parent_path(const char *parent, char **ret, struct error *err);
/* ERR_INVALID when a parent is not in the style of the driver, with the setting to change. */
int unit_check_style(const char *parent, bool is_systemd, struct error *err);

/* What of the settings systemd has a property for, added to ret. It writes its properties anew
 * whenever it likes, so it must know what it could undo. */
void unit_add_limits(const struct cgroups *cg, const struct setting_list *settings,
		     struct unit_properties *ret);
