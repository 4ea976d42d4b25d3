// SPDX-License-Identifier: Apache-2.0

package cases

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"google.golang.org/grpc/codes"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"crisp/node"
)

// TestPodLimits: limits of a whole pod are the cgroup's that is ours, and told where it is not.
func TestPodLimits(t *testing.T) {
	s := newScene(t)
	for _, c := range []struct {
		name string
		test func(*testing.T, *scene)
	}{
		{"are those of its cgroup, with the overhead", podLimitsSum},
		{"change as a whole or not at all, and survive", podLimitsChange},
		{"that it did not have can be given before its first container", podLimitsLater},
		{"in somebody else's cgroup are kept, and change nothing", podLimitsOfOthers},
		{"that can't be had are refused by their names", podLimitsRefusals},
		{"end a container by the kernel, and name the pod's cgroup", podLimitsOOM},
		{"are not what annotations say", podLimitsAnnotations},
		{"of 8 MiB are enough, nearly all of it for the containers", podLimitsSmall},
	} {
		t.Run(c.name, func(t *testing.T) { c.test(t, s) })
	}
}

// ownPod has no cgroup parent.
func (s *scene) ownPod(name string, overhead, resources *limits) *node.Pod {
	p := s.NewPod(name, s.dir, "")
	p.Config.Linux.Overhead, p.Config.Linux.Resources = overhead, resources
	return p
}

// expectGroup: values of a cgroup by their names in v1.
func expectGroup(t *testing.T, cgroup string, want map[string]string) {
	t.Helper()
	for name, value := range want {
		v2 := limitFiles[name]
		now, err := node.CgroupValue(cgroup, name, v2)
		must(t, err)
		if name == "cpu.cfs_quota_us" {
			now, err = node.CPUMax(cgroup)
			must(t, err)
		}
		if now != value && !(node.IsCgroupV2() && name == "cpu.shares") {
			t.Errorf("%s of %s is %s, not %s", name, cgroup, now, value)
		}
	}
}

func updatePod(s *scene, p *node.Pod, overhead, resources *limits) error {
	_, err := node.Call(s.Runtime.UpdatePodSandboxResources, &cri.UpdatePodSandboxResourcesRequest{
		PodSandboxId: p.ID, Overhead: overhead, Resources: resources})
	return err
}

// podInfo is what PodSandboxStatus tells of limits, for people.
type podInfo struct {
	Limits struct {
		Overhead, Resources map[string]any
		EnforcedBy          string
	}
}

func (s *scene) podInfo(t *testing.T, p *node.Pod) (info podInfo) {
	t.Helper()
	r, err := node.Call(s.Runtime.PodSandboxStatus, &cri.PodSandboxStatusRequest{PodSandboxId: p.ID, Verbose: true})
	must(t, err)
	must(t, json.Unmarshal([]byte(r.Info["info"]), &info))
	return info
}

func podGroup(p *node.Pod) string {
	return "/crisp/" + p.ID
}

func (s *scene) endOwn(t *testing.T, pods ...*node.Pod) {
	t.Helper()
	s.end(t, pods...)
	for _, p := range pods {
		if _, err := os.Stat(filepath.Dir(node.CgroupFile(podGroup(p), "memory.limit_in_bytes", "memory.max"))); err == nil {
			t.Errorf("%s is left", podGroup(p))
		}
	}
}

func podLimitsSum(t *testing.T, s *scene) {
	p := s.ownPod("pod-limits", &limits{CpuShares: 100, CpuPeriod: 50000, CpuQuota: 5000, MemoryLimitInBytes: 16 * mib},
		&limits{CpuShares: 512, CpuPeriod: 100000, CpuQuota: 50000, MemoryLimitInBytes: 64 * mib, CpusetCpus: "0"})
	must(t, p.Up(node.Demo, "/bin/sleep", "1000"))
	expectGroup(t, podGroup(p), map[string]string{"cpu.shares": "612", "cpu.cfs_quota_us": "60000 100000",
		"memory.limit_in_bytes": fmt.Sprint(80 * mib), "cpuset.cpus": "0"})
	expectGroup(t, podGroup(p)+"/"+p.Container, map[string]string{"cpuset.cpus": "0"})
	info := s.podInfo(t, p)
	if info.Limits.EnforcedBy != "crisp" || info.Limits.Resources["memory_limit_in_bytes"] != float64(64*mib) ||
		info.Limits.Overhead["cpu_quota"] != float64(5000) {
		t.Errorf("told: %v", info)
	}
	// what it uses is the group's
	if stats := s.podStats(t, p).Linux; stats.Memory.UsageBytes.GetValue() == 0 {
		t.Errorf("stats %v", stats)
	}
	s.endOwn(t, p)
}

func podLimitsChange(t *testing.T, s *scene) {
	p := s.ownPod("pod-change", nil, &limits{CpuShares: 512, CpuPeriod: 100000, CpuQuota: 50000, MemoryLimitInBytes: 64 * mib})
	must(t, p.Up(node.Demo, "/bin/sleep", "1000"))
	must(t, updatePod(s, p, &limits{MemoryLimitInBytes: 8 * mib}, &limits{CpuQuota: 150000, MemoryLimitInBytes: 128 * mib}))
	now := map[string]string{"cpu.shares": "512", "cpu.cfs_quota_us": "150000 100000", "memory.limit_in_bytes": fmt.Sprint(136 * mib)}
	expectGroup(t, podGroup(p), now)
	err := updatePod(s, p, nil, &limits{CpuShares: 2048, MemoryLimitInBytes: 256 * mib, CpusetCpus: "9999"})
	refused(t, err, codes.InvalidArgument, "cpuset.cpus", podGroup(p))
	expectGroup(t, podGroup(p), now)
	s.Kill(t)
	must(t, updatePod(s, p, nil, &limits{CpuShares: 1024}))
	now["cpu.shares"] = "1024"
	expectGroup(t, podGroup(p), now)
	if r := s.podInfo(t, p).Limits; r.Resources["memory_limit_in_bytes"] != float64(128*mib) || r.Overhead["memory_limit_in_bytes"] != float64(8*mib) {
		t.Errorf("told: %v", r)
	}
	// its containers go on below it
	second := *p
	second.Tune = func(c *cri.ContainerConfig) { c.Metadata.Name, c.LogPath = "second", "" }
	must(t, second.Create(node.Demo, "/bin/sleep", "1000"))
	must(t, second.Start())
	expectGroup(t, podGroup(p)+"/"+second.Container, map[string]string{})
	s.endOwn(t, p)
}

func podLimitsLater(t *testing.T, s *scene) {
	p := s.ownPod("pod-later", nil, nil)
	must(t, p.Run())
	must(t, updatePod(s, p, nil, &limits{MemoryLimitInBytes: 64 * mib}))
	must(t, p.Create(node.Demo, "/bin/sleep", "1000"))
	must(t, p.Start())
	expectGroup(t, podGroup(p), map[string]string{"memory.limit_in_bytes": fmt.Sprint(64 * mib)})
	late := s.ownPod("pod-too-late", nil, nil)
	must(t, late.Up(node.Demo, "/bin/sleep", "1000"))
	refused(t, updatePod(s, late, nil, &limits{MemoryLimitInBytes: 64 * mib}), codes.FailedPrecondition, late.ID, "linux.resources")
	if r := s.podInfo(t, late).Limits.Resources; len(r) != 0 {
		t.Errorf("told: %v", r)
	}
	s.endOwn(t, p, late)
}

func podLimitsOfOthers(t *testing.T, s *scene) {
	parent := s.limitedParent(t, "pod-others", 64*mib)
	p := s.NewPod("pod-others", s.dir, parent)
	p.Config.Linux.Resources = &limits{MemoryLimitInBytes: 32 * mib, CpuShares: 77}
	must(t, p.Up(node.Demo, "/bin/sleep", "1000"))
	must(t, updatePod(s, p, &limits{Unified: map[string]string{"memory.oom.group": "1"}}, &limits{MemoryLimitInBytes: 48 * mib}))
	expectGroup(t, parent, map[string]string{"memory.limit_in_bytes": fmt.Sprint(64 * mib), "cpu.shares": "1024"})
	s.Restart(t)
	info := s.podInfo(t, p).Limits
	if info.EnforcedBy != "the owner of linux.cgroup_parent" || info.Resources["memory_limit_in_bytes"] != float64(48*mib) || info.Resources["cpu_shares"] != float64(77) {
		t.Errorf("told: %v", info)
	}
	s.end(t, p)
}

func podLimitsRefusals(t *testing.T, s *scene) {
	p := s.ownPod("pod-refusals", nil, &limits{CpuShares: 512})
	must(t, p.Run())
	for field, l := range map[string][2]*limits{
		"resources: missing":                   {nil, nil},
		"resources.oom_score_adj":              {nil, {OomScoreAdj: 5}},
		"overhead.cpuset_cpus":                 {{CpusetCpus: "0"}, nil},
		"overhead.unified":                     {{Unified: map[string]string{"memory.high": "1"}}, nil},
		"resources.cpu_period":                 {nil, {CpuPeriod: 1}},
		"resources.memory_swap_limit_in_bytes": {nil, {MemorySwapLimitInBytes: 5 * mib}},
	} {
		refused(t, updatePod(s, p, l[0], l[1]), codes.InvalidArgument, field)
	}
	must(t, p.StopSandbox())
	refused(t, updatePod(s, p, nil, &limits{CpuShares: 5}), codes.FailedPrecondition, p.ID)
	s.endOwn(t, p)
	refused(t, updatePod(s, p, nil, &limits{CpuShares: 5}), codes.NotFound, p.ID)
	bad := s.ownPod("pod-bad", nil, &limits{CpusetCpus: "999"})
	_, err := node.Call(s.Runtime.RunPodSandbox, &cri.RunPodSandboxRequest{Config: bad.Config})
	refused(t, err, codes.InvalidArgument, "cpuset.cpus")
	s.end(t)
}

func podLimitsOOM(t *testing.T, s *scene) {
	p := s.ownPod("pod-oom", nil, &limits{MemoryLimitInBytes: oomLimit})
	expectEnd(t, s.run(t, p, "/bin/tail", "/dev/zero"), 137, "OOMKilled")
	s.expectKills(t, p, 1, podGroup(p), "which has more than this container")
	s.endOwn(t, p)
}

// podLimitsAnnotations: the bytes of CVE-2023-6476, and what other runtimes take from annotations.
func podLimitsAnnotations(t *testing.T, s *scene) {
	evil := map[string]string{
		"io.kubernetes.cri-o.UnifiedCgroup.main": "memory.max=max;cpu.weight=10000",
		"io.kubernetes.cri-o.UnifiedCgroup":      "memory.max=max",
		"io.kubernetes.cri.sandbox-memory":       "0",
		"memory-limit.crio.io":                   "-1",
		"cpu-quota.crio.io":                      "disable",
		"run.oci.systemd.force_cgroup_v1":        "/sys/fs/cgroup",
		"crisp.unified.memory.max":               "max",
	}
	p := s.ownPod("pod-annotations", nil, &limits{MemoryLimitInBytes: 64 * mib, CpuShares: 512})
	p.Config.Annotations = evil
	p.Tune = func(c *cri.ContainerConfig) {
		c.Annotations = evil
		c.Linux.Resources = &limits{MemoryLimitInBytes: 32 * mib, CpuShares: 256, CpuPeriod: 100000, CpuQuota: 20000}
	}
	must(t, p.Up(node.Demo, "/bin/sleep", "1000"))
	expectGroup(t, podGroup(p), map[string]string{"memory.limit_in_bytes": fmt.Sprint(64 * mib), "cpu.shares": "512"})
	own := map[string]string{"memory.limit_in_bytes": fmt.Sprint(32 * mib), "cpu.shares": "256", "cpu.cfs_quota_us": "20000 100000"}
	expectGroup(t, podGroup(p)+"/"+p.Container, own)
	_, err := node.Call(s.Runtime.UpdateContainerResources, &cri.UpdateContainerResourcesRequest{ContainerId: p.Container,
		Linux: &limits{CpuShares: 128}, Annotations: evil})
	must(t, err)
	own["cpu.shares"] = "128"
	expectGroup(t, podGroup(p)+"/"+p.Container, own)
	s.endOwn(t, p)
}

// podLimitsSmall: what setting a container up takes is not the pod's.
func podLimitsSmall(t *testing.T, s *scene) {
	for _, limit := range []int64{8 * mib, 16 * mib, 20 * mib, 32 * mib} {
		parent := s.limitedParent(t, fmt.Sprint("pod-small-", limit/mib), limit)
		p := s.NewPod("pod-small", s.dir, parent)
		must(t, p.Run())
		must(t, p.Create(node.Demo, "/bin/true"))
		peak := func() uint64 {
			text, err := node.CgroupValue(parent, "memory.max_usage_in_bytes", "memory.peak")
			must(t, err)
			var n uint64
			_, err = fmt.Sscan(text, &n)
			must(t, err)
			return n
		}
		created := peak()
		must(t, p.Start())
		expectEnd(t, exited(t, p), 0, "Completed")
		t.Logf("limit %d MiB: %d KiB before the program was there, %d KiB at its end", limit/mib, created>>10, peak()>>10)
		between(t, "bytes of the runtime", created, 0, mib)
		// with busybox itself, and the page tables and kernel memory of a process
		between(t, "bytes in all", peak(), 0, 2*mib)
		s.end(t, p)
	}
}
