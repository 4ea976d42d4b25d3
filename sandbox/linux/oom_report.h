/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the kernel wrote to its log when it killed for memory: the one place where it says by whose
 * limit, on v1 and v2 alike. It writes some 10 such reports in 5 seconds and keeps the rest to
 * itself, and a log that is short forgets them; so nothing but a text may depend on it.
 */
#pragma once

/*
 * The group by whose limit a process of group or below was killed last, malloc'ed: path or one
 * above it, "/" when the node had no memory left; NULL when no report is found. Reads what is new
 * in /dev/kmsg, with all that is there at first, so not on the loop. Any thread.
 */
char *oom_report_find(const char *path);
/* At start and at the end. Where /dev/kmsg can't be read, nothing is found. */
void oom_reports_init(void);
void oom_reports_done(void);

/* Of one record of /dev/kmsg (its prefix, ";", its text) the same; NULL if it is no such report,
 * none of the kernel's own, or of another group. */
char *oom_report_parse(const char *record, const char *path);
