/* SPDX-License-Identifier: Apache-2.0 */
/* The method tables, and the handlers in them: one function a call, which decodes, asks the node
 * and packs the reply. */
#pragma once

#include "cri/grpc.h"

extern const struct grpc_method cri_methods[];
extern const size_t cri_method_count;

int cri_version(struct task *t, struct call *c, const void *message);
int cri_status(struct task *t, struct call *c, const void *message);
int cri_get_container_events(struct task *t, struct call *c, const void *message);
int cri_runtime_config(struct task *t, struct call *c, const void *message);
int cri_update_runtime_config(struct task *t, struct call *c, const void *message);
int cri_run_pod_sandbox(struct task *t, struct call *c, const void *message);
int cri_stop_pod_sandbox(struct task *t, struct call *c, const void *message);
int cri_remove_pod_sandbox(struct task *t, struct call *c, const void *message);
int cri_update_pod_sandbox_resources(struct task *t, struct call *c, const void *message);
int cri_pod_sandbox_status(struct task *t, struct call *c, const void *message);
int cri_list_pod_sandbox(struct task *t, struct call *c, const void *message);
int cri_create_container(struct task *t, struct call *c, const void *message);
int cri_start_container(struct task *t, struct call *c, const void *message);
int cri_stop_container(struct task *t, struct call *c, const void *message);
int cri_remove_container(struct task *t, struct call *c, const void *message);
int cri_list_containers(struct task *t, struct call *c, const void *message);
int cri_container_status(struct task *t, struct call *c, const void *message);
int cri_update_container_resources(struct task *t, struct call *c, const void *message);
int cri_reopen_container_log(struct task *t, struct call *c, const void *message);
int cri_exec_sync(struct task *t, struct call *c, const void *message);
int cri_container_stats(struct task *t, struct call *c, const void *message);
int cri_list_container_stats(struct task *t, struct call *c, const void *message);
int cri_stream_container_stats(struct task *t, struct call *c, const void *message);
int cri_pod_sandbox_stats(struct task *t, struct call *c, const void *message);
int cri_list_pod_sandbox_stats(struct task *t, struct call *c, const void *message);
int cri_stream_pod_sandbox_stats(struct task *t, struct call *c, const void *message);
int cri_list_metric_descriptors(struct task *t, struct call *c, const void *message);
int cri_list_pod_sandbox_metrics(struct task *t, struct call *c, const void *message);
int cri_stream_pod_sandbox_metrics(struct task *t, struct call *c, const void *message);
int cri_stream_pod_sandboxes(struct task *t, struct call *c, const void *message);
int cri_stream_containers(struct task *t, struct call *c, const void *message);
int cri_stream_images(struct task *t, struct call *c, const void *message);
int cri_list_images(struct task *t, struct call *c, const void *message);
int cri_image_status(struct task *t, struct call *c, const void *message);
int cri_remove_image(struct task *t, struct call *c, const void *message);
int cri_image_fs_info(struct task *t, struct call *c, const void *message);
int crisp_import(struct task *t, struct call *c, const void *message);
