// SPDX-License-Identifier: Apache-2.0

package cases

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"google.golang.org/grpc/codes"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"crisp/node"
)

// TestUpdates: limits that change while a container is there.
func TestUpdates(t *testing.T) {
	s := newScene(t)
	for _, c := range []struct {
		name string
		test func(*testing.T, *scene)
	}{
		{"limits go up and down, and the status shows them", updateUpAndDown},
		{"what is not said stays", updateKeepsTheRest},
		{"one that was not started yet starts with the new limits", updateBeforeStart},
		{"a refused file leaves all others as they were, and is named", updateAllOrNothing},
		{"what can't be done is refused by its name", updateRefusals},
		{"score for the OOM killer is renewed in every process", updateScore},
		{"limits are known after a restart", updateSurvives},
	} {
		t.Run(c.name, func(t *testing.T) { c.test(t, s) })
	}
}

type limits = cri.LinuxContainerResources

func (s *scene) update(p *node.Pod, l *limits) error {
	_, err := node.Call(s.Runtime.UpdateContainerResources, &cri.UpdateContainerResourcesRequest{ContainerId: p.Container, Linux: l})
	return err
}

// limitFiles are the names of limits in cgroup v1 and v2.
var limitFiles = map[string]string{
	"cpu.shares": "cpu.weight", "cpu.cfs_quota_us": "cpu.max", "cpuset.cpus": "cpuset.cpus", "memory.limit_in_bytes": "memory.max",
}

// limitsNow are all that the kernel holds, by the name in v1.
func (s *scene) limitsNow(t *testing.T, p *node.Pod) map[string]string {
	t.Helper()
	all := map[string]string{}
	for v1, v2 := range limitFiles {
		value, err := node.CgroupValue(filepath.Join(s.parent, p.Container), v1, v2)
		must(t, err)
		all[v1] = value
	}
	max, err := node.CPUMax(filepath.Join(s.parent, p.Container))
	must(t, err)
	all["cpu.cfs_quota_us"] = max
	if node.IsCgroupV2() && all["cpu.shares"] != "" {
		// the curve between shares and weight has its own test
		all["cpu.shares"] = map[string]string{"59": "512", "100": "1024"}[all["cpu.shares"]]
	}
	return all
}

func (s *scene) expectLimits(t *testing.T, p *node.Pod, want map[string]string) {
	t.Helper()
	now := s.limitsNow(t, p)
	for name, value := range want {
		if now[name] != value {
			t.Errorf("%s is %s, not %s", name, now[name], value)
		}
	}
}

// expectTold: what ContainerStatus says.
func expectTold(t *testing.T, p *node.Pod, want *limits) {
	t.Helper()
	status, err := p.Status()
	must(t, err)
	if told := status.GetResources().GetLinux(); told.String() != want.String() {
		t.Errorf("the status has %v, not %v", told, want)
	}
}

func limited(l *limits) func(*cri.ContainerConfig) {
	return func(c *cri.ContainerConfig) { c.Linux.Resources = l }
}

func updateUpAndDown(t *testing.T, s *scene) {
	p := s.pod("update-up")
	p.Tune = limited(&limits{CpuShares: 512, CpuPeriod: 100000, CpuQuota: 50000, MemoryLimitInBytes: 64 << 20})
	must(t, p.Up(node.Demo, "/bin/sleep", "1000"))
	for _, c := range []struct {
		shares, quota, memory int64
	}{{1024, 200000, 128 << 20}, {512, 20000, 32 << 20}, {1024, 300000, 256 << 20}} {
		l := &limits{CpuShares: c.shares, CpuPeriod: 100000, CpuQuota: c.quota, MemoryLimitInBytes: c.memory}
		must(t, s.update(p, l))
		s.expectLimits(t, p, map[string]string{"cpu.shares": fmt.Sprint(c.shares),
			"cpu.cfs_quota_us": fmt.Sprint(c.quota, " 100000"), "memory.limit_in_bytes": fmt.Sprint(c.memory)})
		expectTold(t, p, l)
	}
	must(t, s.update(p, &limits{CpuQuota: -1}))
	s.expectLimits(t, p, map[string]string{"cpu.cfs_quota_us": "max 100000"})
	s.end(t, p)
}

func updateKeepsTheRest(t *testing.T, s *scene) {
	p := s.pod("update-rest")
	p.Tune = limited(&limits{CpuShares: 512, CpuPeriod: 50000, CpuQuota: 25000, MemoryLimitInBytes: 64 << 20})
	must(t, p.Up(node.Demo, "/bin/sleep", "1000"))
	must(t, s.update(p, &limits{CpusetCpus: "0"}))
	must(t, s.update(p, &limits{CpuQuota: 40000}))
	s.expectLimits(t, p, map[string]string{"cpu.shares": "512", "cpu.cfs_quota_us": "40000 50000", "cpuset.cpus": "0",
		"memory.limit_in_bytes": fmt.Sprint(64 << 20)})
	expectTold(t, p, &limits{CpuShares: 512, CpuPeriod: 50000, CpuQuota: 40000, CpusetCpus: "0", MemoryLimitInBytes: 64 << 20})
	s.end(t, p)
}

func updateBeforeStart(t *testing.T, s *scene) {
	p := s.pod("update-created")
	p.Tune = limited(&limits{CpuShares: 512, OomScoreAdj: 100})
	must(t, p.Run())
	must(t, p.Create(node.Demo, "/bin/sh", "-c", "cat /proc/self/oom_score_adj; sleep 1000"))
	must(t, s.update(p, &limits{CpuShares: 1024, CpusetCpus: "0", OomScoreAdj: 555}))
	must(t, p.Start())
	s.expectLimits(t, p, map[string]string{"cpu.shares": "1024", "cpuset.cpus": "0"})
	if score := s.output(t, p, "cat /proc/1/oom_score_adj"); score != "555\n" {
		t.Errorf("its score for the OOM killer is %q", score)
	}
	s.end(t, p)
}

func updateAllOrNothing(t *testing.T, s *scene) {
	p := s.pod("update-refused")
	p.Tune = limited(&limits{CpuShares: 512, CpuPeriod: 100000, CpuQuota: 50000, MemoryLimitInBytes: 64 << 20})
	must(t, p.Up(node.Demo, "/bin/sleep", "1000"))
	before := s.limitsNow(t, p)
	for file, l := range map[string]*limits{
		"cpuset.cpus": {CpuShares: 1024, CpuQuota: 80000, MemoryLimitInBytes: 128 << 20, CpusetCpus: "9999"},
		"cpuset.mems": {CpuShares: 1024, CpuQuota: 80000, MemoryLimitInBytes: 128 << 20, CpusetMems: "999"},
	} {
		refused(t, s.update(p, l), codes.InvalidArgument, file)
		s.expectLimits(t, p, before)
	}
	expectTold(t, p, &limits{CpuShares: 512, CpuPeriod: 100000, CpuQuota: 50000, MemoryLimitInBytes: 64 << 20})
	s.end(t, p)
}

func updateRefusals(t *testing.T, s *scene) {
	p := s.sleeper(t, "update-refusals")
	for field, l := range map[string]*limits{
		"linux.cpu_period":                 {CpuPeriod: 10},
		"linux.cpu_quota":                  {CpuQuota: -5},
		"linux.cpu_shares":                 {CpuShares: -1},
		"linux.memory_limit_in_bytes":      {MemoryLimitInBytes: -2},
		"linux.memory_swap_limit_in_bytes": {MemoryLimitInBytes: 64 << 20, MemorySwapLimitInBytes: 32 << 20},
		"linux.oom_score_adj":              {OomScoreAdj: 1001},
		"cpuset.cpus":                      {CpusetCpus: "zero"},
		"hugepage limit":                   {HugepageLimits: []*cri.HugepageLimit{{PageSize: "large", Limit: 1}}},
		"cgroup.procs":                     {Unified: map[string]string{"cgroup.procs": "1"}},
	} {
		if strings.HasPrefix(field, "hugepage") && !hasHugetlb() {
			continue // left out then, as the kubelet sends them everywhere
		}
		refused(t, s.update(p, l), codes.InvalidArgument, field)
	}
	_, err := node.Call(s.Runtime.UpdateContainerResources, &cri.UpdateContainerResourcesRequest{ContainerId: p.Container})
	refused(t, err, codes.InvalidArgument, "linux: missing")
	_, err = node.Call(s.Runtime.UpdateContainerResources, &cri.UpdateContainerResourcesRequest{ContainerId: p.Container,
		Windows: &cri.WindowsContainerResources{}})
	refused(t, err, codes.InvalidArgument, "windows")
	refused(t, s.update(&node.Pod{Container: "feed"}, &limits{CpuShares: 2}), codes.NotFound, "feed")
	must(t, p.Stop(0))
	refused(t, s.update(p, &limits{CpuShares: 1024}), codes.FailedPrecondition, p.Container)
	s.end(t, p)
}

func hasHugetlb() bool {
	_, err := os.Stat("/sys/fs/cgroup/hugetlb")
	return err == nil || node.IsCgroupV2()
}

func updateScore(t *testing.T, s *scene) {
	p := s.pod("update-score")
	p.Tune = limited(&limits{OomScoreAdj: 100})
	must(t, p.Up(node.Demo, "/bin/sh", "-c", "sleep 1000 & sleep 1000; :"))
	must(t, s.update(p, &limits{OomScoreAdj: 700}))
	if scores := s.output(t, p, "cat /proc/[0-9]*/oom_score_adj | sort -u"); scores != "700\n" {
		t.Errorf("its processes have the scores %q", scores)
	}
	s.end(t, p)
}

func updateSurvives(t *testing.T, s *scene) {
	p := s.pod("update-restart")
	p.Tune = limited(&limits{CpuShares: 512})
	must(t, p.Up(node.Demo, "/bin/sleep", "1000"))
	must(t, s.update(p, &limits{CpuShares: 1024, MemoryLimitInBytes: 64 << 20}))
	s.Kill(t)
	expectTold(t, p, &limits{CpuShares: 1024, MemoryLimitInBytes: 64 << 20})
	must(t, s.update(p, &limits{CpusetCpus: "0"}))
	s.expectLimits(t, p, map[string]string{"cpu.shares": "1024", "cpuset.cpus": "0", "memory.limit_in_bytes": fmt.Sprint(64 << 20)})
	s.end(t, p)
}
