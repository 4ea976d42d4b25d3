/* SPDX-License-Identifier: Apache-2.0 */
/* What doctor.c asks for, one function a row; for it alone. Each fills detail and tells the state.
 */
#pragma once

#include "sandbox/linux/cgroup.h"
#include "sandbox/linux/doctor.h"

struct probe {
	int root;	     /* where files are looked up */
	char *detail;	     /* of the finding at hand */
	struct cgroups *cg;  /* NULL: there are none, */
	struct error cg_why; /* and why */
	int tree;	     /* a detached copy of the root's mount, or −1 */
};

void probe_begin(struct probe *p);
void probe_end(struct probe *p);

enum finding_state probe_kernel(struct probe *p);
enum finding_state probe_openat2(struct probe *p);
enum finding_state probe_cgroups(struct probe *p);
enum finding_state probe_tracker(struct probe *p);
enum finding_state probe_clone(struct probe *p);
enum finding_state probe_devices(struct probe *p);
enum finding_state probe_swap(struct probe *p);
enum finding_state probe_exit_status(struct probe *p);
enum finding_state probe_idmap(struct probe *p);
enum finding_state probe_recursive(struct probe *p);
enum finding_state probe_overlay(struct probe *p);
enum finding_state probe_userns(struct probe *p);
enum finding_state probe_seccomp(struct probe *p);
enum finding_state probe_apparmor(struct probe *p);
enum finding_state probe_selinux(struct probe *p);
enum finding_state probe_resource(struct probe *p);
enum finding_state probe_descriptors(struct probe *p);
enum finding_state probe_inotify(struct probe *p);
enum finding_state probe_pipes(struct probe *p);
