// SPDX-License-Identifier: Apache-2.0

package cases

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

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
		{"what the kernel holds is told, whoever changed it", updateRealValues},
		{"a score that can't be had is told as it is, and said once", updateLowScore},
		{"memory below what is used is had or refused as a whole", updateBelowUsage},
		{"while the kernel kills for memory, limits change all or none", updateDuringOOM},
		{"hugepages are limited for each size that the node has", updateHugepages},
		{"limits that v1 has not are refused by name", updateUnified},
		{"a cgroup parent in systemd's notation is refused with advice", updateSliceParent},
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
	controllers, _ := os.ReadFile("/sys/fs/cgroup/unified/cgroup.controllers")
	_, err := os.Stat("/sys/fs/cgroup/hugetlb")
	return err == nil || node.IsCgroupV2() || strings.Contains(string(controllers), "hugetlb")
}

func updateScore(t *testing.T, s *scene) {
	p := s.pod("update-score")
	p.Tune = limited(&limits{OomScoreAdj: 100})
	must(t, p.Up(node.Demo, "/bin/sh", "-c", "sleep 1000 & sleep 1000; :"))
	node.Eventually(t, 5*time.Second, func() error {
		if names := s.output(t, p, "cat /proc/[0-9]*/comm"); strings.Count(names, "sleep\n") != 2 {
			return fmt.Errorf("its processes are %q", names)
		}
		return nil
	})
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

// setFile writes to a cgroup as somebody else would.
func setFile(t *testing.T, cgroup, v1, v2, value string) {
	t.Helper()
	must(t, os.WriteFile(node.CgroupFile(cgroup, v1, v2), []byte(value), 0))
}

func updateRealValues(t *testing.T, s *scene) {
	p := s.pod("update-real")
	// neither is a whole number of pages
	asked := &limits{CpuShares: 512, MemoryLimitInBytes: 64_000_001, MemorySwapLimitInBytes: 64_000_002, CpusetCpus: "0"}
	p.Tune = limited(asked)
	must(t, p.Up(node.Demo, "/bin/sleep", "1000"))
	expectTold(t, p, asked)
	group := s.cgroupOf(p)
	setFile(t, group, "cpu.shares", "cpu.weight", "100")
	setFile(t, group, "memory.limit_in_bytes", "memory.max", fmt.Sprint(32*mib))
	real := &limits{CpuShares: 100, MemoryLimitInBytes: 32 * mib, MemorySwapLimitInBytes: 64_000_002, CpusetCpus: "0"}
	if node.IsCgroupV2() {
		real.CpuShares, real.MemorySwapLimitInBytes = 1024, 32*mib
	} else {
		setFile(t, group, "cpu.cfs_quota_us", "", "70000")
		real.CpuQuota = 70000
	}
	expectTold(t, p, real)
	r, err := node.Call(s.Runtime.ContainerStatus, &cri.ContainerStatusRequest{ContainerId: p.Container, Verbose: true})
	must(t, err)
	if info := r.Info["info"]; !strings.Contains(info, fmt.Sprint(`"memory_limit_in_bytes":`, 32*mib)) {
		t.Errorf("info %s", info)
	}
	// one that nobody limits has no limits
	free := s.sleeper(t, "update-free")
	status, err := free.Status()
	must(t, err)
	if told := status.GetResources().GetLinux(); told != nil && told.String() != "" {
		t.Errorf("without limits the status has %v", told)
	}
	// of one that has ended, what was asked for
	must(t, p.Stop(0))
	expectTold(t, p, asked)
	s.end(t, p, free)
}

func updateLowScore(t *testing.T, s *scene) {
	p := s.pod("update-low-score")
	p.Tune = limited(&limits{OomScoreAdj: -900})
	must(t, p.Up(node.Demo, "/bin/sleep", "1000"))
	must(t, s.update(p, &limits{OomScoreAdj: -950}))
	score := strings.TrimSpace(s.output(t, p, "cat /proc/1/oom_score_adj"))
	status, err := p.Status()
	must(t, err)
	if told := fmt.Sprint(status.GetResources().GetLinux().GetOomScoreAdj()); told != score {
		t.Errorf("the status has score %s, the process %s", told, score)
	}
	said := strings.Count(s.Log(t), "can't be had without CAP_SYS_RESOURCE")
	if score == "-950" && said != 0 || score != "-950" && said != 1 {
		t.Errorf("with score %s it is said %d times", score, said)
	}
	s.end(t, p)
}

// updateBelowUsage: v1 refuses what it can't free, v2 makes room by killing.
func updateBelowUsage(t *testing.T, s *scene) {
	p := s.pod("update-below")
	p.Tune = limited(&limits{CpuShares: 512, MemoryLimitInBytes: 256 * mib, MemorySwapLimitInBytes: 256 * mib})
	must(t, p.Up(node.Demo, "/bin/sh", "-c", "x=$(head -c 67108864 /dev/zero | tr '\\0' x); echo ready; sleep 1000; true"))
	node.Eventually(t, 20*time.Second, func() error {
		if len(records(t, p.LogFile())) == 0 {
			return errors.New("nothing in its log")
		}
		return nil
	})
	before := s.limitsNow(t, p)
	err := s.update(p, &limits{CpuShares: 1024, MemoryLimitInBytes: 16 * mib, MemorySwapLimitInBytes: 16 * mib})
	if node.IsCgroupV2() {
		must(t, err)
		s.expectLimits(t, p, map[string]string{"cpu.shares": "1024", "memory.limit_in_bytes": fmt.Sprint(16 * mib)})
	} else {
		refused(t, err, codes.FailedPrecondition, "memory.", "in use")
		s.expectLimits(t, p, before)
		expectTold(t, p, &limits{CpuShares: 512, MemoryLimitInBytes: 256 * mib, MemorySwapLimitInBytes: 256 * mib})
	}
	s.end(t, p)
}

func updateDuringOOM(t *testing.T, s *scene) {
	p := s.pod("update-oom")
	p.Tune = limited(&limits{CpuShares: 512, MemoryLimitInBytes: 24 * mib, MemorySwapLimitInBytes: 24 * mib})
	must(t, p.Up(node.Demo, "/bin/sh", "-c", "while :; do tail /dev/zero; done"))
	node.Eventually(t, 10*time.Second, func() error {
		if len(s.told(t, p)) == 0 {
			return errors.New("nothing was killed yet")
		}
		return nil
	})
	for i := range int64(20) {
		shares, memory := 512+512*(i%2), (24+16*(i%2))*mib
		l := &limits{CpuShares: shares, MemoryLimitInBytes: memory, MemorySwapLimitInBytes: memory}
		before := s.limitsNow(t, p)
		err := s.update(p, l)
		// only if it can't make room in time
		if err != nil {
			refused(t, err, codes.FailedPrecondition, "memory.")
			s.expectLimits(t, p, before)
			continue
		}
		s.expectLimits(t, p, map[string]string{"cpu.shares": fmt.Sprint(shares), "memory.limit_in_bytes": fmt.Sprint(memory)})
		expectTold(t, p, l)
	}
	must(t, p.Stop(0))
	expectEnd(t, exited(t, p), 137, "OOMKilled")
	s.end(t, p)
}

// hugepageSizes are those that the kernel has, as files of cgroups name them.
func hugepageSizes(t *testing.T) (sizes []string) {
	dirs, err := filepath.Glob("/sys/kernel/mm/hugepages/hugepages-*kB")
	must(t, err)
	for _, dir := range dirs {
		var kb int
		_, err := fmt.Sscanf(filepath.Base(dir), "hugepages-%dkB", &kb)
		must(t, err)
		switch {
		case kb%(1<<20) == 0:
			sizes = append(sizes, fmt.Sprint(kb>>20, "GB"))
		case kb%(1<<10) == 0:
			sizes = append(sizes, fmt.Sprint(kb>>10, "MB"))
		default:
			sizes = append(sizes, fmt.Sprint(kb, "KB"))
		}
	}
	return sizes
}

// hugetlbFile is where the limit of a page size is: a hybrid node may have that in v2 only.
func hugetlbFile(cgroup, size string) string {
	for _, path := range []string{
		filepath.Join("/sys/fs/cgroup/hugetlb", cgroup, "hugetlb."+size+".limit_in_bytes"),
		filepath.Join("/sys/fs/cgroup/unified", cgroup, "hugetlb."+size+".max"),
		filepath.Join("/sys/fs/cgroup", cgroup, "hugetlb."+size+".max"),
	} {
		if _, err := os.Stat(path); err == nil {
			return path
		}
	}
	return ""
}

func updateHugepages(t *testing.T, s *scene) {
	var all []*cri.HugepageLimit
	for i, size := range hugepageSizes(t) {
		all = append(all, &cri.HugepageLimit{PageSize: size, Limit: uint64(i+1) << 30})
	}
	if len(all) == 0 || !hasHugetlb() {
		p := s.pod("update-no-hugepages")
		must(t, p.Run())
		request := p.Request(node.Demo, "/bin/true")
		request.Config.Linux.Resources = &limits{HugepageLimits: []*cri.HugepageLimit{{PageSize: "2MB", Limit: 2 << 20}}}
		_, err := node.Call(s.Runtime.CreateContainer, request)
		refused(t, err, codes.FailedPrecondition, "hugepage", "hugetlb")
		p.Tune = limited(&limits{HugepageLimits: []*cri.HugepageLimit{{PageSize: "2MB"}}})
		must(t, p.Create(node.Demo, "/bin/true"))
		s.end(t, p)
		t.Skip("this node has no huge pages")
	}
	expect := func(p *node.Pod, factor uint64) {
		t.Helper()
		for _, l := range all {
			raw, err := os.ReadFile(hugetlbFile(s.cgroupOf(p), l.PageSize))
			must(t, err)
			if got := strings.TrimSpace(string(raw)); got != fmt.Sprint(l.Limit*factor) {
				t.Errorf("limit of %s is %s, not %d", l.PageSize, got, l.Limit*factor)
			}
		}
	}
	p := s.pod("update-hugepages")
	p.Tune = limited(&limits{HugepageLimits: all})
	must(t, p.Up(node.Demo, "/bin/sleep", "1000"))
	expect(p, 1)
	var twice []*cri.HugepageLimit
	for _, l := range all {
		twice = append(twice, &cri.HugepageLimit{PageSize: l.PageSize, Limit: 2 * l.Limit})
	}
	must(t, s.update(p, &limits{HugepageLimits: twice}))
	expect(p, 2)
	refused(t, s.update(p, &limits{HugepageLimits: []*cri.HugepageLimit{all[0], {PageSize: "3MB", Limit: 3 << 20}}}),
		codes.InvalidArgument, "hugetlb.3MB", "no pages of this size")
	expect(p, 2)
	must(t, s.update(p, &limits{HugepageLimits: []*cri.HugepageLimit{{PageSize: "3MB"}}}))
	// one that came without any
	late := s.sleeper(t, "update-hugepages-late")
	must(t, s.update(late, &limits{HugepageLimits: all}))
	expect(late, 1)
	s.end(t, p, late)
}

func updateUnified(t *testing.T, s *scene) {
	p := s.pod("update-unified")
	must(t, p.Run())
	request := p.Request(node.Demo, "/bin/sleep", "1000")
	request.Config.Linux.Resources = &limits{Unified: map[string]string{"memory.high": "1000000"}}
	r, err := node.Call(s.Runtime.CreateContainer, request)
	if !node.IsCgroupV2() {
		refused(t, err, codes.InvalidArgument, "memory.high", "v1")
		s.end(t, p)
		return
	}
	must(t, err)
	p.Container = r.ContainerId
	value, err := node.CgroupValue(s.cgroupOf(p), "", "memory.high")
	must(t, err)
	if value != "999424" {
		t.Errorf("memory.high is %s", value)
	}
	s.end(t, p)
}

func updateSliceParent(t *testing.T, s *scene) {
	for _, parent := range []string{"/kubepods.slice/kubepods-burstable.slice", "kubepods-burstable-podx.slice", "system.slice:crisp:x"} {
		p := s.NewPod("slice", s.dir, parent)
		_, err := node.Call(s.Runtime.RunPodSandbox, &cri.RunPodSandboxRequest{Config: p.Config})
		refused(t, err, codes.InvalidArgument, "cgroupfs", "cgroupDriver")
	}
	s.end(t)
}
