/* SPDX-License-Identifier: Apache-2.0 */
/* The linux kind of sandbox, for sandbox/kinds.c. */
#pragma once

#include "sandbox/sandboxer.h"

extern const struct sandboxer linux_sandboxer;
