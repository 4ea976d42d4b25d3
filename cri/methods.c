/* SPDX-License-Identifier: Apache-2.0 */
/* Every method of the CRI and of our own API. One that isn't there yet has no handler: the server
 * then answers UNIMPLEMENTED with its name. */
#include "cri/methods.h"

#include "cri/proto/cri.pb-c.h"
#include "cri/proto/crisp.pb-c.h"

#define RUNTIME(name, request, reply, handler)                                                     \
	{                                                                                          \
		"/runtime.v1.RuntimeService/" #name, &runtime__v1__##request##__descriptor,        \
			&runtime__v1__##reply##__descriptor, false, handler                        \
	}
#define RUNTIME_STREAM(name, request, reply, handler)                                              \
	{                                                                                          \
		"/runtime.v1.RuntimeService/" #name, &runtime__v1__##request##__descriptor,        \
			&runtime__v1__##reply##__descriptor, true, handler                         \
	}
#define IMAGE(name, request, reply, handler)                                                       \
	{                                                                                          \
		"/runtime.v1.ImageService/" #name, &runtime__v1__##request##__descriptor,          \
			&runtime__v1__##reply##__descriptor, false, handler                        \
	}

const struct grpc_method cri_methods[] = {
	RUNTIME(Version, version_request, version_response, cri_version),
	RUNTIME(RunPodSandbox, run_pod_sandbox_request, run_pod_sandbox_response,
		cri_run_pod_sandbox),
	RUNTIME(StopPodSandbox, stop_pod_sandbox_request, stop_pod_sandbox_response,
		cri_stop_pod_sandbox),
	RUNTIME(RemovePodSandbox, remove_pod_sandbox_request, remove_pod_sandbox_response,
		cri_remove_pod_sandbox),
	RUNTIME(PodSandboxStatus, pod_sandbox_status_request, pod_sandbox_status_response,
		cri_pod_sandbox_status),
	RUNTIME(ListPodSandbox, list_pod_sandbox_request, list_pod_sandbox_response,
		cri_list_pod_sandbox),
	RUNTIME_STREAM(StreamPodSandboxes, stream_pod_sandboxes_request,
		       stream_pod_sandboxes_response, cri_stream_pod_sandboxes),
	RUNTIME(CreateContainer, create_container_request, create_container_response,
		cri_create_container),
	RUNTIME(StartContainer, start_container_request, start_container_response,
		cri_start_container),
	RUNTIME(StopContainer, stop_container_request, stop_container_response, cri_stop_container),
	RUNTIME(RemoveContainer, remove_container_request, remove_container_response,
		cri_remove_container),
	RUNTIME(ListContainers, list_containers_request, list_containers_response,
		cri_list_containers),
	RUNTIME_STREAM(StreamContainers, stream_containers_request, stream_containers_response,
		       cri_stream_containers),
	RUNTIME(ContainerStatus, container_status_request, container_status_response,
		cri_container_status),
	RUNTIME(UpdateContainerResources, update_container_resources_request,
		update_container_resources_response, cri_update_container_resources),
	RUNTIME(ReopenContainerLog, reopen_container_log_request, reopen_container_log_response,
		cri_reopen_container_log),
	RUNTIME(ExecSync, exec_sync_request, exec_sync_response, cri_exec_sync),
	RUNTIME(Exec, exec_request, exec_response, NULL),
	RUNTIME(Attach, attach_request, attach_response, NULL),
	RUNTIME(PortForward, port_forward_request, port_forward_response, NULL),
	RUNTIME(ContainerStats, container_stats_request, container_stats_response,
		cri_container_stats),
	RUNTIME(ListContainerStats, list_container_stats_request, list_container_stats_response,
		cri_list_container_stats),
	RUNTIME_STREAM(StreamContainerStats, stream_container_stats_request,
		       stream_container_stats_response, cri_stream_container_stats),
	RUNTIME(PodSandboxStats, pod_sandbox_stats_request, pod_sandbox_stats_response,
		cri_pod_sandbox_stats),
	RUNTIME(ListPodSandboxStats, list_pod_sandbox_stats_request,
		list_pod_sandbox_stats_response, cri_list_pod_sandbox_stats),
	RUNTIME_STREAM(StreamPodSandboxStats, stream_pod_sandbox_stats_request,
		       stream_pod_sandbox_stats_response, cri_stream_pod_sandbox_stats),
	RUNTIME(UpdateRuntimeConfig, update_runtime_config_request, update_runtime_config_response,
		cri_update_runtime_config),
	RUNTIME(Status, status_request, status_response, cri_status),
	RUNTIME(CheckpointContainer, checkpoint_container_request, checkpoint_container_response,
		NULL),
	RUNTIME(CheckpointPod, checkpoint_pod_request, checkpoint_pod_response, NULL),
	RUNTIME(RestorePod, restore_pod_request, restore_pod_response, NULL),
	RUNTIME_STREAM(GetContainerEvents, get_events_request, container_event_response,
		       cri_get_container_events),
	RUNTIME(ListMetricDescriptors, list_metric_descriptors_request,
		list_metric_descriptors_response, cri_list_metric_descriptors),
	RUNTIME(ListPodSandboxMetrics, list_pod_sandbox_metrics_request,
		list_pod_sandbox_metrics_response, cri_list_pod_sandbox_metrics),
	RUNTIME_STREAM(StreamPodSandboxMetrics, stream_pod_sandbox_metrics_request,
		       stream_pod_sandbox_metrics_response, cri_stream_pod_sandbox_metrics),
	RUNTIME(RuntimeConfig, runtime_config_request, runtime_config_response, cri_runtime_config),
	RUNTIME(UpdatePodSandboxResources, update_pod_sandbox_resources_request,
		update_pod_sandbox_resources_response, cri_update_pod_sandbox_resources),
	IMAGE(ListImages, list_images_request, list_images_response, cri_list_images),
	{"/runtime.v1.ImageService/StreamImages", &runtime__v1__stream_images_request__descriptor,
	 &runtime__v1__stream_images_response__descriptor, true, cri_stream_images},
	IMAGE(ImageStatus, image_status_request, image_status_response, cri_image_status),
	IMAGE(PullImage, pull_image_request, pull_image_response, NULL),
	IMAGE(RemoveImage, remove_image_request, remove_image_response, cri_remove_image),
	IMAGE(ImageFsInfo, image_fs_info_request, image_fs_info_response, cri_image_fs_info),
	{"/crisp.v1.Crisp/Import", &crisp__v1__import_request__descriptor,
	 &crisp__v1__import_progress__descriptor, true, crisp_import},
};

const size_t cri_method_count = sizeof(cri_methods) / sizeof(cri_methods[0]);
