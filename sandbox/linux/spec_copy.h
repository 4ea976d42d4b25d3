/* SPDX-License-Identifier: Apache-2.0 */
/* Deep copies of specs, since a caller's live no longer than its call. All of it is in the arena.
 */
#pragma once

#include "io/base/arena.h"
#include "sandbox/spec.h"

void resources_copy(struct arena *a, const struct resources *r, struct resources *ret);
void sandbox_spec_copy(struct arena *a, const struct sandbox_spec *spec, struct sandbox_spec *ret);
void container_spec_copy(struct arena *a, const struct container_spec *spec,
			 struct container_spec *ret);
