/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The engine that completes what an earlier life of the server announced (store/intents.h): it
 * calls what the owner of each intent's kind registered, oldest intent first, and ends the intent
 * when that succeeded. What fails is logged and stays for the next start.
 */
#pragma once

#include "store/intents.h"

struct reconcile;

/* Reads the open intents. At start, before the loop runs and before new ones can be begun. NULL
 * with err set. */
struct reconcile *reconcile_load(struct store *s, struct error *err);
/* Finishes or undoes all of them; returns how many stay open. Frees r. Each gets TASK_SHIELD_NS;
 * the task's own deadline and cancellation don't count. */
size_t reconcile_run(struct task *t, struct reconcile *r);
