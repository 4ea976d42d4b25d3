// SPDX-License-Identifier: Apache-2.0

package restart

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"crisp/node"
)

type limits = cri.LinuxContainerResources

// TestInterruptedUpdates: limits that a server was changing when it died are the new ones as soon as
// the next one has seen to it, or, where those can't be had any more, the old ones and nothing else.
func TestInterruptedUpdates(t *testing.T) {
	f := newFaults(t)
	s := newScene(t, startKept(t, 0), cgroupParent(t))
	t.Run("of a pod are finished", func(t *testing.T) {
		for _, point := range []string{"update_intended", "limits_changed"} {
			podUpdateIsFinished(t, s, f, point)
		}
	})
	t.Run("of a pod that never had any", func(t *testing.T) { firstPodUpdate(t, s, f) })
	t.Run("that can't be had any more leave nothing", func(t *testing.T) { updateIsTakenBack(t, s, f) })
}

// dieAt sends a request that its server does not survive.
func dieAt(t *testing.T, f *faults, point string, call func() error) {
	t.Helper()
	f.give(t, order{kind: "at", name: point, action: "kill", count: 1})
	if err := call(); err == nil {
		t.Fatalf("the call succeeded under a server that was to die at %s", point)
	}
	if !f.takeBack(t) {
		t.Fatalf("%s was not passed", point)
	}
}

func expectFile(t *testing.T, cgroup, v1, v2, want string) {
	t.Helper()
	node.Eventually(t, 5*time.Second, func() error {
		if got, err := node.CgroupValue(cgroup, v1, v2); err != nil || got != want {
			return fmt.Errorf("%s of %s is %q, not %s (%v)", v1, cgroup, got, want, err)
		}
		return nil
	})
}

func podUpdateIsFinished(t *testing.T, s *scene, f *faults, point string) {
	p := s.NewPod("pod-"+point, s.dir, "")
	p.Config.Linux.Resources = &limits{MemoryLimitInBytes: 64 << 20}
	must(t, p.Up(node.Demo, "/bin/sleep", "1000"))
	dieAt(t, f, point, func() error {
		_, err := node.Call(s.Runtime.UpdatePodSandboxResources, &cri.UpdatePodSandboxResourcesRequest{PodSandboxId: p.ID,
			Resources: &limits{MemoryLimitInBytes: 128 << 20}, Overhead: &limits{MemoryLimitInBytes: 4 << 20}})
		return err
	})
	s.Await(t)
	expectFile(t, "/crisp/"+p.ID, "memory.limit_in_bytes", "memory.max", fmt.Sprint(132<<20))
	r, _, err := node.Retry(s.Runtime.PodSandboxStatus, &cri.PodSandboxStatusRequest{PodSandboxId: p.ID, Verbose: true})
	must(t, err)
	if info := r.Info["info"]; !strings.Contains(info, `"memory_limit_in_bytes":134217728`) {
		t.Errorf("told: %s", info)
	}
	s.end(t, p)
}

// firstPodUpdate: a pod without limits has no cgroup, and is given one as long as no container is in it: the next
// server, which finds the sandbox before its containers, knows that as well.
func firstPodUpdate(t *testing.T, s *scene, f *faults) {
	for _, containers := range []int{0, 1} {
		p := s.NewPod(fmt.Sprintf("pod-first-%d", containers), s.dir, "")
		must(t, p.Run())
		if containers > 0 {
			must(t, p.Create(node.Demo, "/bin/sleep", "1000"))
			must(t, p.Start())
		}
		dieAt(t, f, "update_intended", func() error {
			_, err := node.Call(s.Runtime.UpdatePodSandboxResources, &cri.UpdatePodSandboxResourcesRequest{PodSandboxId: p.ID,
				Resources: &limits{MemoryLimitInBytes: 64 << 20}})
			return err
		})
		s.Await(t)
		r, _, err := node.Retry(s.Runtime.PodSandboxStatus, &cri.PodSandboxStatusRequest{PodSandboxId: p.ID, Verbose: true})
		must(t, err)
		_, err = os.Stat(node.CgroupFile("/crisp/"+p.ID, "memory.limit_in_bytes", "memory.max"))
		if hasGroup, hasLimit := err == nil, strings.Contains(r.Info["info"], `"memory_limit_in_bytes":67108864`); hasGroup != (containers == 0) || hasLimit != hasGroup {
			t.Errorf("with %d containers: it has a cgroup: %v, is told to have a limit: %v", containers, hasGroup, hasLimit)
		}
		s.end(t, p)
	}
}

// updateIsTakenBack: all of it is in force when the server dies; then the container takes more memory
// than it allows, which v1 does not let the next server limit.
func updateIsTakenBack(t *testing.T, s *scene, f *faults) {
	if node.IsCgroupV2() {
		t.Skip("v2 refuses no limit of memory")
	}
	shared := t.TempDir()
	p := s.pod("taken-back")
	p.Tune = func(c *cri.ContainerConfig) {
		c.Linux.Resources = &limits{CpuShares: 512, MemoryLimitInBytes: 256 << 20}
		c.Mounts = []*cri.Mount{{HostPath: shared, ContainerPath: "/shared"}}
	}
	must(t, p.Up(node.Demo, "/bin/sh", "-c", "while [ ! -e /shared/go ]; do sleep 0.05; done; "+
		"x=$(head -c 67108864 /dev/zero | tr '\\0' x); sleep 1000; true"))
	group := filepath.Join(s.parent, p.Container)
	cpus, err := node.CgroupValue(group, "cpuset.cpus", "cpuset.cpus")
	must(t, err)
	goOn := s.HoldKeeper(t)
	dieAt(t, f, "limits_changed", func() error {
		_, err := node.Call(s.Runtime.UpdateContainerResources, &cri.UpdateContainerResourcesRequest{ContainerId: p.Container,
			Linux: &limits{CpuShares: 1024, CpuQuota: 50000, CpuPeriod: 50000, CpusetCpus: "0", MemoryLimitInBytes: 32 << 20}})
		return err
	})
	expectFile(t, group, "cpuset.cpus", "cpuset.cpus", "0")
	must(t, os.WriteFile(node.CgroupFile(group, "memory.limit_in_bytes", ""), []byte(fmt.Sprint(256<<20)), 0))
	must(t, os.WriteFile(filepath.Join(shared, "go"), nil, 0o644))
	node.Eventually(t, 20*time.Second, func() error {
		text, err := node.CgroupValue(group, "memory.usage_in_bytes", "")
		must(t, err)
		if n, _ := strconv.Atoi(text); n < 64<<20 {
			return fmt.Errorf("it uses %s bytes", text)
		}
		return nil
	})
	goOn()
	s.Await(t)
	for file, want := range map[string]string{"cpu.shares": "512", "cpu.cfs_quota_us": "-1", "cpu.cfs_period_us": "100000",
		"cpuset.cpus": cpus, "memory.limit_in_bytes": fmt.Sprint(256 << 20)} {
		expectFile(t, group, file, "", want)
	}
	status, err := p.Status()
	must(t, err)
	if told, want := status.GetResources().GetLinux().String(), (&limits{CpuShares: 512, MemoryLimitInBytes: 256 << 20}).String(); told != want {
		t.Errorf("told: %s, not %s", told, want)
	}
	s.end(t, p)
}
