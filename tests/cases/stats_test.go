// SPDX-License-Identifier: Apache-2.0

package cases

import (
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"crisp/node"
)

// TestStats: the figures are those of what really happens in a container.
func TestStats(t *testing.T) {
	s := newScene(t)
	for _, c := range []struct {
		name string
		test func(*testing.T, *scene)
	}{
		{"of the processor are those of a busy loop", statsProcessor},
		{"of memory show what a process holds, and what its limit leaves", statsMemory},
		{"of the writable layer count bytes and inodes, also after the end", statsLayer},
		{"are listed by id, pod and labels", statsFilters},
		{"come although a container's disk hangs", statsHang},
		{"of a pod are those of its cgroup and its network", statsPod},
		{"of a pod in a shared cgroup are its containers' sum", statsPodSum},
		{"in cAdvisor's form have a descriptor and its labels", statsMetrics},
		{"have a descriptor for each name that the kubelet shows", statsNames},
		{"in cAdvisor's form follow an update, and tell page sizes apart", statsMetricsNow},
		{"of two containers are each its own, and their pod's the sum", statsTwo},
		{"of nobody are NotFound", statsNobody},
	} {
		t.Run(c.name, func(t *testing.T) { c.test(t, s) })
	}
}

const mib = 1 << 20

func (s *scene) stats(t *testing.T, p *node.Pod) *cri.ContainerStats {
	t.Helper()
	r, err := node.Call(s.Runtime.ContainerStats, &cri.ContainerStatsRequest{ContainerId: p.Container})
	must(t, err)
	if a := r.Stats.Attributes; a.Id != p.Container || a.Metadata.Name != "main" || a.Labels["name"] != p.Config.Metadata.Name {
		t.Errorf("attributes %v", a)
	}
	return r.Stats
}

// listed are the ids of the containers that ListContainerStats tells of.
func (s *scene) listed(t *testing.T, filter *cri.ContainerStatsFilter) []string {
	t.Helper()
	r, err := node.Call(s.Runtime.ListContainerStats, &cri.ListContainerStatsRequest{Filter: filter})
	must(t, err)
	var ids []string
	for _, c := range r.Stats {
		ids = append(ids, c.Attributes.Id)
	}
	slices.Sort(ids)
	return ids
}

func between(t *testing.T, what string, value, low, high uint64) {
	t.Helper()
	if value < low || value > high {
		t.Errorf("%s: %d is not within %d to %d", what, value, low, high)
	}
}

func statsProcessor(t *testing.T, s *scene) {
	busy, idle := s.pod("busy"), s.sleeper(t, "idle")
	must(t, busy.Up(node.Demo, "/bin/sh", "-c", "while :; do :; done"))
	first := s.stats(t, busy).Cpu
	if first.UsageNanoCores != nil {
		t.Errorf("a rate after one look: %v", first)
	}
	time.Sleep(1200 * time.Millisecond)
	second := s.stats(t, busy).Cpu
	passed := uint64(second.Timestamp - first.Timestamp)
	used := second.UsageCoreNanoSeconds.Value - first.UsageCoreNanoSeconds.Value
	// it may have had to share the processor, but can't have had two
	between(t, "time of a busy loop", used, passed/20, passed*11/10)
	between(t, "its rate", second.UsageNanoCores.GetValue(), used*999_000_000/passed, used*1_001_000_000/passed)
	calm := s.stats(t, idle).Cpu
	between(t, "time of a sleeper", calm.UsageCoreNanoSeconds.Value, 1, 200_000_000)
	s.end(t, busy, idle)
}

func statsMemory(t *testing.T, s *scene) {
	p := s.pod("memory")
	p.Tune = limitMemory(256 * mib)
	must(t, p.Up(node.Demo, "/bin/sh", "-c", "x=$(head -c 33554432 /dev/zero | tr '\\0' x); echo ready; sleep 1000; true"))
	node.Eventually(t, 20*time.Second, func() error {
		if log := p.LogFile(); len(records(t, log)) == 0 {
			return fmt.Errorf("%s is empty", filepath.Base(log))
		}
		return nil
	})
	// the kernel adds up memory.stat every two seconds
	var m *cri.MemoryUsage
	node.Eventually(t, 10*time.Second, func() error {
		if m = s.stats(t, p).Memory; m.RssBytes.Value < 32*mib {
			return fmt.Errorf("rss is %d", m.RssBytes.Value)
		}
		return nil
	})
	between(t, "usage", m.UsageBytes.Value, m.RssBytes.Value, 256*mib)
	between(t, "working set", m.WorkingSetBytes.Value, m.RssBytes.Value, m.UsageBytes.Value)
	if m.AvailableBytes.GetValue() != 256*mib-m.WorkingSetBytes.Value {
		t.Errorf("%d are available, %d used", m.AvailableBytes.GetValue(), m.WorkingSetBytes.Value)
	}
	// pages of 4 KiB, unless they are huge
	between(t, "page faults", m.PageFaults.Value, 32, 1_000_000)
	if m.MajorPageFaults == nil || m.Timestamp == 0 {
		t.Errorf("figures are missing: %v", m)
	}
	free := s.sleeper(t, "free")
	if m := s.stats(t, free).Memory; m.AvailableBytes != nil {
		t.Errorf("without a limit %v are available", m.AvailableBytes)
	}
	s.end(t, p, free)
}

func statsLayer(t *testing.T, s *scene) {
	p := s.sleeper(t, "layer")
	s.output(t, p, "dd if=/dev/zero of=/blob bs=1M count=8; mkdir /many; for i in $(seq 50); do : >/many/$i; done; sync")
	layer := s.stats(t, p).WritableLayer
	between(t, "bytes", layer.UsedBytes.Value, 8*mib, 9*mib)
	between(t, "inodes", layer.InodesUsed.Value, 52, 60)
	images, err := node.Call(s.Images.ImageFsInfo, &cri.ImageFsInfoRequest{})
	must(t, err)
	if one, two := images.ImageFilesystems[0], images.ContainerFilesystems[0]; one.String() != two.String() {
		t.Errorf("one disk is told of as two: %v, %v", one, two)
	}
	if of := images.ContainerFilesystems[0].FsId.Mountpoint; layer.FsId.GetMountpoint() != of {
		t.Errorf("it is on %v, not %s", layer.FsId, of)
	}
	s.output(t, p, "dd if=/dev/zero of=/more bs=1M count=8; sync")
	// a layer is not measured at each look
	if again := s.stats(t, p).WritableLayer; again.Timestamp != layer.Timestamp {
		t.Errorf("it was measured at %d, and again at %d", layer.Timestamp, again.Timestamp)
	}
	must(t, p.Stop(0))
	exited(t, p)
	ended := s.stats(t, p)
	between(t, "bytes at the end", ended.WritableLayer.UsedBytes.Value, 16*mib, 18*mib)
	if ended.Cpu != nil || ended.Memory != nil {
		t.Errorf("figures of what has ended: %v", ended)
	}
	s.end(t, p)
}

func statsFilters(t *testing.T, s *scene) {
	one, two := s.sleeper(t, "one"), s.sleeper(t, "two")
	both := []string{one.Container, two.Container}
	slices.Sort(both)
	for _, c := range []struct {
		what   string
		filter *cri.ContainerStatsFilter
		want   []string
	}{
		{"no filter", nil, both},
		{"an empty filter", &cri.ContainerStatsFilter{}, both},
		{"an id", &cri.ContainerStatsFilter{Id: one.Container}, []string{one.Container}},
		{"the begin of an id", &cri.ContainerStatsFilter{Id: one.Container[:20]}, []string{one.Container}},
		{"a pod", &cri.ContainerStatsFilter{PodSandboxId: two.ID}, []string{two.Container}},
		{"a label", &cri.ContainerStatsFilter{LabelSelector: map[string]string{"name": "two"}}, []string{two.Container}},
		{"another's pod", &cri.ContainerStatsFilter{Id: one.Container, PodSandboxId: two.ID}, nil},
		{"no label", &cri.ContainerStatsFilter{LabelSelector: map[string]string{"name": "three"}}, nil},
	} {
		if got := s.listed(t, c.filter); !slices.Equal(got, c.want) {
			t.Errorf("%s: %v, not %v", c.what, got, c.want)
		}
	}
	stream, err := s.Runtime.StreamContainerStats(t.Context(), &cri.StreamContainerStatsRequest{})
	must(t, err)
	part, err := stream.Recv()
	must(t, err)
	if len(part.ContainerStats) != 2 || part.ContainerStats[0].Cpu == nil {
		t.Errorf("the stream has %v", part)
	}
	must(t, one.Remove())
	if got := s.listed(t, nil); !slices.Equal(got, []string{two.Container}) {
		t.Errorf("with one removed: %v", got)
	}
	s.end(t, two)
}

// statsHang: a layer on a disk that doesn't answer costs the list a moment, and its own figure only.
func statsHang(t *testing.T, s *scene) {
	stuck, fine := s.sleeper(t, "stuck"), s.sleeper(t, "fine")
	// only for as long as the inner test lasts
	t.Run("list", func(t *testing.T) {
		node.NewDeadMount(t, filepath.Join(s.Dir, "root", "containers", stuck.Container))
		for range 3 {
			begin := time.Now()
			r, err := node.Call(s.Runtime.ListContainerStats, &cri.ListContainerStatsRequest{})
			must(t, err)
			if took := time.Since(begin); took > 2*time.Second {
				t.Errorf("it took %v", took)
			}
			if len(r.Stats) != 2 {
				t.Fatalf("%d are listed", len(r.Stats))
			}
			for _, c := range r.Stats {
				is := c.Attributes.Id == stuck.Container
				if c.Cpu == nil || c.Memory == nil || (c.WritableLayer == nil) != is {
					t.Errorf("stuck %v: %v", is, c)
				}
			}
		}
	})
	s.end(t, stuck, fine)
}

func (s *scene) podStats(t *testing.T, p *node.Pod) *cri.PodSandboxStats {
	t.Helper()
	r, err := node.Call(s.Runtime.PodSandboxStats, &cri.PodSandboxStatsRequest{PodSandboxId: p.ID})
	must(t, err)
	if a := r.Stats.Attributes; a.Id != p.ID || a.Metadata.Uid != p.Config.Metadata.Uid || a.Labels["name"] != p.Config.Metadata.Name {
		t.Errorf("attributes %v", a)
	}
	return r.Stats
}

func (s *scene) listedPods(t *testing.T, filter *cri.PodSandboxStatsFilter) []string {
	t.Helper()
	r, err := node.Call(s.Runtime.ListPodSandboxStats, &cri.ListPodSandboxStatsRequest{Filter: filter})
	must(t, err)
	var ids []string
	for _, p := range r.Stats {
		ids = append(ids, p.Attributes.Id)
	}
	slices.Sort(ids)
	return ids
}

// statsPod: what a container that has ended used is still the pod's.
func statsPod(t *testing.T, s *scene) {
	parent := s.parent + "-pod-own-uid"
	t.Cleanup(func() { node.RemoveParent(t, parent) })
	p := s.NewPod("pod-own", s.dir, parent)
	p.Config.Linux.SecurityContext.NamespaceOptions.Network = cri.NamespaceMode_POD
	must(t, p.Up(node.Demo, "/bin/sleep", "1000"))
	before := s.podStats(t, p).Linux
	lo := before.Network.DefaultInterface
	if lo.GetName() != "lo" || len(before.Network.Interfaces) != 0 {
		t.Errorf("interfaces of a pod without a network: %v", before.Network)
	}
	s.output(t, p, "sleep 2 | nc -l -p 1234 >/dev/null & sleep 0.3; head -c 1000000 /dev/zero | nc 127.0.0.1 1234; wait")
	second := *p
	second.Tune = func(c *cri.ContainerConfig) { c.Metadata.Name, c.LogPath = "second", "" }
	must(t, second.Create(node.Demo, "/bin/sh", "-c", "i=0; while [ $i -lt 300000 ]; do i=$((i+1)); done"))
	must(t, second.Start())
	exited(t, &second)
	stats := s.podStats(t, p)
	after := stats.Linux
	for what, values := range map[string][2]*cri.UInt64Value{
		"received": {lo.RxBytes, after.Network.DefaultInterface.RxBytes},
		"sent":     {lo.TxBytes, after.Network.DefaultInterface.TxBytes},
	} {
		between(t, what, values[1].Value-values[0].Value, 1_000_000, 1_300_000)
	}
	if len(after.Containers) != 2 {
		t.Fatalf("%d containers", len(after.Containers))
	}
	first := after.Containers[slices.IndexFunc(after.Containers, func(c *cri.ContainerStats) bool { return c.Attributes.Id == p.Container })]
	between(t, "time of the pod", after.Cpu.UsageCoreNanoSeconds.Value, first.Cpu.UsageCoreNanoSeconds.Value+100_000_000, 60_000_000_000)
	between(t, "memory of the pod", after.Memory.UsageBytes.Value, 1, 64*mib)
	between(t, "processes", after.Process.ProcessCount.Value, 1, 1)
	if got := s.listedPods(t, &cri.PodSandboxStatsFilter{LabelSelector: map[string]string{"name": "pod-own"}}); !slices.Equal(got, []string{p.ID}) {
		t.Errorf("listed by a label: %v", got)
	}
	s.end(t, p)
}

func statsPodSum(t *testing.T, s *scene) {
	p, other := s.sleeper(t, "sum"), s.sleeper(t, "other")
	second := *p
	second.Tune = func(c *cri.ContainerConfig) { c.Metadata.Name, c.LogPath = "second", "" }
	must(t, second.Create(node.Demo, "/bin/sh", "-c", "sleep 1000 & wait"))
	must(t, second.Start())
	node.Eventually(t, 5*time.Second, func() error {
		if n := s.podStats(t, p).Linux.Process.ProcessCount.Value; n != 3 {
			return fmt.Errorf("%d processes, not 3", n)
		}
		return nil
	})
	pod := s.podStats(t, p).Linux
	if pod.Network != nil {
		t.Errorf("traffic of a pod on the node's network: %v", pod.Network)
	}
	var sum uint64
	for _, c := range pod.Containers {
		sum += c.Memory.UsageBytes.Value
	}
	if len(pod.Containers) != 2 || pod.Memory.UsageBytes.Value != sum {
		t.Errorf("%d containers use %d, the pod %d", len(pod.Containers), sum, pod.Memory.UsageBytes.Value)
	}
	both := []string{p.ID, other.ID}
	slices.Sort(both)
	if got := s.listedPods(t, nil); !slices.Equal(got, both) {
		t.Errorf("listed: %v", got)
	}
	if got := s.listedPods(t, &cri.PodSandboxStatsFilter{Id: p.ID[:20]}); !slices.Equal(got, []string{p.ID}) {
		t.Errorf("listed by id: %v", got)
	}
	must(t, p.StopSandbox())
	if got := s.listedPods(t, nil); !slices.Equal(got, []string{other.ID}) {
		t.Errorf("with one stopped: %v", got)
	}
	if stopped := s.podStats(t, p).Linux; stopped.Cpu != nil || len(stopped.Containers) != 2 {
		t.Errorf("a stopped pod: %v", stopped)
	}
	s.end(t, p, other)
}

// expectIDs: metrics and the verbose statuses name the cgroups, whoever made them.
func expectIDs(t *testing.T, s *scene, p *node.Pod, pod, container string) {
	t.Helper()
	r, err := node.Call(s.Runtime.ListPodSandboxMetrics, &cri.ListPodSandboxMetricsRequest{})
	must(t, err)
	of := r.PodMetrics[slices.IndexFunc(r.PodMetrics, func(m *cri.PodSandboxMetrics) bool { return m.PodSandboxId == p.ID })]
	// a pod on the node's network has none of its own; "id" is the first label of all
	for _, m := range of.Metrics {
		if got := m.LabelValues[0]; got != pod {
			t.Errorf("the pod's %s is of %s, not %s", m.Name, got, pod)
		}
	}
	for _, m := range of.ContainerMetrics[0].Metrics {
		if got := m.LabelValues[0]; got != container {
			t.Errorf("the container's %s is of %s, not %s", m.Name, got, container)
		}
	}
	for id, want := range map[string]string{p.ID: pod, p.Container: container} {
		if got := s.verbose(t, id)["cgroup"]; got != want {
			t.Errorf("%s is in the cgroup %v, not %s", id, got, want)
		}
	}
}

// statsMetrics: what has no descriptor, or other labels than that, the kubelet drops.
func statsMetrics(t *testing.T, s *scene) {
	p := s.pod("metrics")
	p.Config.Linux.SecurityContext.NamespaceOptions.Network = cri.NamespaceMode_POD
	p.Tune = limitMemory(64 * mib)
	must(t, p.Up(node.Demo, "/bin/sh", "-c", "sleep 1000 3</dev/null & wait"))
	neighbour := s.sleeper(t, "neighbour")
	must(t, neighbour.Stop(0))
	descriptors, err := node.Call(s.Runtime.ListMetricDescriptors, &cri.ListMetricDescriptorsRequest{})
	must(t, err)
	keys := map[string][]string{}
	for _, d := range descriptors.Descriptors {
		if keys[d.Name] != nil || d.Help == "" {
			t.Errorf("descriptor %v", d)
		}
		keys[d.Name] = d.LabelKeys
	}
	labels := func(m *cri.Metric) map[string]string {
		of := keys[m.Name]
		if len(of) == 0 || len(of) != len(m.LabelValues) || m.Value == nil {
			t.Fatalf("%v, labels %v", m, of)
		}
		all := map[string]string{}
		for i, key := range of {
			all[key] = m.LabelValues[i]
		}
		return all
	}
	var pod *cri.PodSandboxMetrics
	node.Eventually(t, 5*time.Second, func() error {
		r, err := node.Call(s.Runtime.ListPodSandboxMetrics, &cri.ListPodSandboxMetricsRequest{})
		must(t, err)
		pod = r.PodMetrics[slices.IndexFunc(r.PodMetrics, func(m *cri.PodSandboxMetrics) bool { return m.PodSandboxId == p.ID })]
		if len(r.PodMetrics) != 2 || len(pod.ContainerMetrics) != 1 {
			t.Fatalf("%d pods, %d containers", len(r.PodMetrics), len(pod.ContainerMetrics))
		}
		for _, m := range pod.ContainerMetrics[0].Metrics {
			if m.Name == "container_processes" && m.Value.Value == 2 {
				return nil
			}
		}
		return errors.New("there are not yet two processes")
	})
	for _, m := range pod.Metrics {
		of := labels(m)
		if of["pod"] != "metrics" || of["namespace"] != "test" || of["container"] != "" || of["interface"] != "lo" {
			t.Errorf("%s: labels %v", m.Name, of)
		}
	}
	expectIDs(t, s, p, s.parent, s.parent+"/"+p.Container)
	values := map[string]uint64{}
	for _, m := range pod.ContainerMetrics[0].Metrics {
		of := labels(m)
		if of["pod"] != "metrics" || of["container"] != "main" || of["name"] != p.Container || of["image"] != node.Demo {
			t.Errorf("%s: labels %v", m.Name, of)
		}
		values[m.Name] = m.Value.Value
	}
	now := uint64(time.Now().Unix())
	for _, c := range []struct {
		name      string
		low, high uint64
	}{
		{"container_processes", 2, 2}, {"container_threads", 2, 2}, {"container_threads_max", 0, 0},
		{"container_file_descriptors", 7, 20}, {"container_sockets", 0, 0},
		{"container_spec_memory_limit_bytes", 64 * mib, 64 * mib}, {"container_memory_usage_bytes", 1, 64 * mib},
		{"container_spec_cpu_shares", 1024, 1024}, {"container_spec_cpu_period", 100000, 100000},
		{"container_start_time_seconds", now - 60, now}, {"container_last_seen", now - 60, now + 1},
		{"container_fs_usage_bytes", 0, mib}, {"container_fs_limit_bytes", 100 * mib, 1 << 60},
		{"container_cpu_usage_seconds_total", 0, 5}, {"container_oom_events_total", 0, 0},
		{"container_ulimits_soft", 256, 1 << 40},
	} {
		if _, is := values[c.name]; !is {
			t.Errorf("there is no %s", c.name)
		}
		between(t, c.name, values[c.name], c.low, c.high)
	}
	stream, err := s.Runtime.StreamPodSandboxMetrics(t.Context(), &cri.StreamPodSandboxMetricsRequest{})
	must(t, err)
	part, err := stream.Recv()
	must(t, err)
	if len(part.PodSandboxMetrics) != 2 {
		t.Errorf("the stream has %d pods", len(part.PodSandboxMetrics))
	}
	s.end(t, p, neighbour)
}

func statsNobody(t *testing.T, s *scene) {
	for _, id := range []string{"", "x", strings.Repeat("0", 64)} {
		_, err := node.Call(s.Runtime.ContainerStats, &cri.ContainerStatsRequest{ContainerId: id})
		refused(t, err, codes.NotFound)
		_, err = node.Call(s.Runtime.PodSandboxStats, &cri.PodSandboxStatsRequest{PodSandboxId: id})
		refused(t, err, codes.NotFound)
	}
}

// kubeletNames are what the kubelet 1.37 shows of containers at /metrics/cadvisor, and critest asks for.
var kubeletNames = strings.Fields(`
	container_blkio_device_usage_total container_cpu_cfs_burst_periods_total container_cpu_cfs_burst_seconds_total
	container_cpu_cfs_periods_total container_cpu_cfs_throttled_periods_total
	container_cpu_cfs_throttled_seconds_total container_cpu_system_seconds_total container_cpu_usage_seconds_total
	container_cpu_user_seconds_total container_file_descriptors container_fs_inodes_free container_fs_inodes_total
	container_fs_limit_bytes container_fs_reads_bytes_total container_fs_reads_total container_fs_usage_bytes
	container_fs_writes_bytes_total container_fs_writes_total container_hugetlb_max_usage_bytes
	container_hugetlb_usage_bytes container_last_seen container_memory_cache container_memory_failcnt
	container_memory_failures_total container_memory_file_dirty_bytes container_memory_file_writeback_bytes
	container_memory_kernel_usage container_memory_mapped_file container_memory_max_usage_bytes
	container_memory_rss container_memory_swap container_memory_total_active_file_bytes
	container_memory_total_inactive_file_bytes container_memory_usage_bytes container_memory_working_set_bytes
	container_memory_workingset_refault_anon_total container_memory_workingset_refault_file_total
	container_network_receive_bytes_total container_network_receive_errors_total
	container_network_receive_packets_dropped_total container_network_receive_packets_total
	container_network_transmit_bytes_total container_network_transmit_errors_total
	container_network_transmit_packets_dropped_total container_network_transmit_packets_total
	container_oom_events_total container_pressure_cpu_stalled_seconds_total
	container_pressure_cpu_waiting_seconds_total container_pressure_io_stalled_seconds_total
	container_pressure_io_waiting_seconds_total container_pressure_memory_stalled_seconds_total
	container_pressure_memory_waiting_seconds_total container_processes container_sockets container_spec_cpu_period
	container_spec_cpu_quota container_spec_cpu_shares container_spec_memory_limit_bytes
	container_spec_memory_reservation_limit_bytes container_spec_memory_swap_limit_bytes
	container_start_time_seconds container_threads container_threads_max container_ulimits_soft
`)

// statsNames: what has no descriptor the kubelet can't show.
func statsNames(t *testing.T, s *scene) {
	r, err := node.Call(s.Runtime.ListMetricDescriptors, &cri.ListMetricDescriptorsRequest{})
	must(t, err)
	for _, name := range kubeletNames {
		if !slices.ContainsFunc(r.Descriptors, func(d *cri.MetricDescriptor) bool { return d.Name == name }) {
			t.Errorf("there is no %s", name)
		}
	}
	if len(r.Descriptors) != len(kubeletNames) {
		t.Errorf("%d descriptors, not %d", len(r.Descriptors), len(kubeletNames))
	}
}

// metricsOf are those of a pod's only container, by name and what follows the six labels of all.
func (s *scene) metricsOf(t *testing.T, p *node.Pod) map[string]uint64 {
	t.Helper()
	r, err := node.Call(s.Runtime.ListPodSandboxMetrics, &cri.ListPodSandboxMetricsRequest{})
	must(t, err)
	values := map[string]uint64{}
	for _, pod := range r.PodMetrics {
		for _, c := range pod.ContainerMetrics {
			for _, m := range c.Metrics {
				if pod.PodSandboxId == p.ID {
					values[strings.Join(append([]string{m.Name}, m.LabelValues[6:]...), " ")] = m.Value.Value
				}
			}
		}
	}
	return values
}

// statsMetricsNow: limits are those after an update; huge pages have a value for each size.
func statsMetricsNow(t *testing.T, s *scene) {
	p := s.pod("metrics-now")
	p.Tune = limited(&limits{CpuShares: 512, MemoryLimitInBytes: 64 * mib})
	must(t, p.Up(node.Demo, "/bin/sleep", "1000"))
	l := &limits{CpuShares: 256, MemoryLimitInBytes: 32 * mib}
	sizes := hugepageSizes(t)
	for _, size := range sizes {
		l.HugepageLimits = append(l.HugepageLimits, &cri.HugepageLimit{PageSize: size})
	}
	must(t, s.update(p, l))
	values := s.metricsOf(t, p)
	want := map[string]uint64{"container_spec_cpu_shares": 256, "container_spec_memory_limit_bytes": 32 * mib}
	if hasHugetlb() {
		for _, size := range sizes {
			want["container_hugetlb_usage_bytes "+size] = 0
		}
	}
	for name, value := range want {
		if got, is := values[name]; !is || got != value {
			t.Errorf("%s is %d (%v), not %d", name, got, is, value)
		}
	}
	// the kernel adds them up every few seconds
	node.Eventually(t, 10*time.Second, func() error {
		if values = s.metricsOf(t, p); values["container_memory_failures_total pgfault hierarchy"] == 0 {
			return fmt.Errorf("page faults: %v", values)
		}
		return nil
	})
	s.end(t, p)
}

// statsTwo: one that works hard shows in its own figures and its pod's, not in its neighbour's.
func statsTwo(t *testing.T, s *scene) {
	parent := s.parent + "-two-uid"
	t.Cleanup(func() { node.RemoveParent(t, parent) })
	p := s.NewPod("two", s.dir, parent)
	must(t, p.Up(node.Demo, "/bin/sleep", "1000"))
	busy := *p
	busy.Tune = func(c *cri.ContainerConfig) { c.Metadata.Name, c.LogPath = "busy", "" }
	// until its own processor time says so, however little it gets
	must(t, busy.Create(node.Demo, "/bin/sh", "-c", `dd if=/dev/zero of=/blob bs=1M count=50; sync
		used() { awk '{ print int(($14 + $15) / 100) }' /proc/1/stat; }
		while [ $(used) -lt 3 ]; do i=0; while [ $i -lt 20000 ]; do i=$((i+1)); done; done; : >/done; exec sleep 1000`))
	must(t, busy.Start())
	node.Eventually(t, 60*time.Second, func() error {
		r, err := s.exec(&busy, 10, "/bin/ls", "/done")
		if err == nil && r.ExitCode != 0 {
			err = errors.New("it is still busy")
		}
		return err
	})
	stats := s.podStats(t, p).Linux
	if len(stats.Containers) != 2 {
		t.Fatalf("%d containers", len(stats.Containers))
	}
	hard, calm := stats.Containers[0], stats.Containers[1]
	if hard.Attributes.Id != busy.Container {
		hard, calm = calm, hard
	}
	const second = 1_000_000_000
	// the rest is dd, awk and the commands that asked
	between(t, "time of the busy one", hard.Cpu.UsageCoreNanoSeconds.Value, 3*second, 8*second)
	between(t, "time of the calm one", calm.Cpu.UsageCoreNanoSeconds.Value, 0, second/2)
	between(t, "bytes of the busy one's layer", hard.WritableLayer.UsedBytes.Value, 50*mib, 51*mib)
	between(t, "bytes of the calm one's layer", calm.WritableLayer.UsedBytes.Value, 0, mib)
	both := hard.Cpu.UsageCoreNanoSeconds.Value + calm.Cpu.UsageCoreNanoSeconds.Value
	between(t, "time of the pod", stats.Cpu.UsageCoreNanoSeconds.Value, both*95/100, both*105/100)
	s.end(t, p)
}
