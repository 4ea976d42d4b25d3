// SPDX-License-Identifier: Apache-2.0

package cases

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"

	"google.golang.org/grpc"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"crisp/node"
)

// collect reads a streamed list to its end.
func collect[A, I any](t *testing.T, stream grpc.ServerStreamingClient[A], err error, items func(*A) []I) (all []I, parts int) {
	t.Helper()
	must(t, err)
	for {
		part, err := stream.Recv()
		if err == io.EOF {
			return all, parts
		}
		must(t, err)
		if len(items(part)) == 0 {
			t.Error("an empty part")
		}
		all = append(all, items(part)...)
		parts++
	}
}

func ids[I interface{ GetId() string }](items []I) string {
	return idsBy(items, I.GetId)
}

func idsBy[I any](items []I, id func(I) string) string {
	var all []string
	for _, item := range items {
		all = append(all, id(item))
	}
	slices.Sort(all)
	return strings.Join(all, " ")
}

// TestStreamedLists: they are the lists, in parts.
func TestStreamedLists(t *testing.T) {
	s := newScene(t)
	ctx := context.Background()
	stream, err := s.Runtime.StreamPodSandboxes(ctx, &cri.StreamPodSandboxesRequest{})
	if none, _ := collect(t, stream, err, (*cri.StreamPodSandboxesResponse).GetPodSandboxes); len(none) != 0 {
		t.Errorf("there are pods: %v", none)
	}
	pods := make([]*node.Pod, 8)
	for i := range pods {
		pods[i] = s.pod(fmt.Sprintf("listed-%d", i))
		pods[i].Config.Annotations = map[string]string{"large": strings.Repeat("x", 200<<10)}
		must(t, pods[i].Run())
		must(t, pods[i].Create(node.Demo, "/bin/true"))
	}
	podList, err := node.Call(s.Runtime.ListPodSandbox, &cri.ListPodSandboxRequest{})
	must(t, err)
	stream, err = s.Runtime.StreamPodSandboxes(ctx, &cri.StreamPodSandboxesRequest{})
	streamed, parts := collect(t, stream, err, (*cri.StreamPodSandboxesResponse).GetPodSandboxes)
	if ids(streamed) != ids(podList.Items) || parts < 2 {
		t.Errorf("in %d parts:\n%s\nnot\n%s", parts, ids(streamed), ids(podList.Items))
	}
	stream, err = s.Runtime.StreamPodSandboxes(ctx, &cri.StreamPodSandboxesRequest{Filter: &cri.PodSandboxFilter{LabelSelector: map[string]string{"name": "listed-3"}}})
	if one, _ := collect(t, stream, err, (*cri.StreamPodSandboxesResponse).GetPodSandboxes); ids(one) != pods[3].ID || one[0].Metadata.Uid != "listed-3-uid" {
		t.Errorf("filtered: %s", ids(one))
	}
	containers, err := s.Runtime.StreamContainers(ctx, &cri.StreamContainersRequest{})
	all, _ := collect(t, containers, err, (*cri.StreamContainersResponse).GetContainers)
	list, err := node.Call(s.Runtime.ListContainers, &cri.ListContainersRequest{})
	must(t, err)
	if ids(all) != ids(list.Containers) || len(all) != len(pods) {
		t.Errorf("containers:\n%s\nnot\n%s", ids(all), ids(list.Containers))
	}
	containers, err = s.Runtime.StreamContainers(ctx, &cri.StreamContainersRequest{Filter: &cri.ContainerFilter{PodSandboxId: pods[5].ID}})
	if one, _ := collect(t, containers, err, (*cri.StreamContainersResponse).GetContainers); ids(one) != pods[5].Container {
		t.Errorf("filtered: %s", ids(one))
	}
	podStats, err := s.Runtime.StreamPodSandboxStats(ctx, &cri.StreamPodSandboxStatsRequest{})
	ofPods, parts := collect(t, podStats, err, (*cri.StreamPodSandboxStatsResponse).GetPodSandboxStats)
	if got := idsBy(ofPods, func(i *cri.PodSandboxStats) string { return i.Attributes.Id }); got != ids(podList.Items) || parts < 2 {
		t.Errorf("statistics of pods in %d parts:\n%s\nnot\n%s", parts, got, ids(podList.Items))
	}
	containerStats, err := s.Runtime.StreamContainerStats(ctx, &cri.StreamContainerStatsRequest{})
	ofContainers, _ := collect(t, containerStats, err, (*cri.StreamContainerStatsResponse).GetContainerStats)
	if got := idsBy(ofContainers, func(i *cri.ContainerStats) string { return i.Attributes.Id }); got != ids(list.Containers) {
		t.Errorf("statistics of containers:\n%s\nnot\n%s", got, ids(list.Containers))
	}
	metrics, err := s.Runtime.StreamPodSandboxMetrics(ctx, &cri.StreamPodSandboxMetricsRequest{})
	measured, _ := collect(t, metrics, err, (*cri.StreamPodSandboxMetricsResponse).GetPodSandboxMetrics)
	if got := idsBy(measured, (*cri.PodSandboxMetrics).GetPodSandboxId); got != ids(podList.Items) {
		t.Errorf("metrics of pods:\n%s\nnot\n%s", got, ids(podList.Items))
	}
	images, err := s.Images.StreamImages(ctx, &cri.StreamImagesRequest{})
	if got, _ := collect(t, images, err, (*cri.StreamImagesResponse).GetImages); len(got) != 1 || !slices.Contains(got[0].RepoTags, node.Demo) {
		t.Errorf("images: %v", got)
	}
	images, err = s.Images.StreamImages(ctx, &cri.StreamImagesRequest{Filter: &cri.ImageFilter{Image: &cri.ImageSpec{Image: "absent"}}})
	if got, _ := collect(t, images, err, (*cri.StreamImagesResponse).GetImages); len(got) != 0 {
		t.Errorf("filtered: %v", got)
	}
	s.end(t, pods...)
}
