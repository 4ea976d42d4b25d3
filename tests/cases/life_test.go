// SPDX-License-Identifier: Apache-2.0

package cases

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"crisp/node"
)

// TestLives: how pods and containers begin and end.
func TestLives(t *testing.T) {
	s := newScene(t)
	for _, c := range []struct {
		name string
		test func(*testing.T, *scene)
	}{
		{"missing entrypoint fails the start, not the creation, and is named", lifeMissingEntrypoint},
		{"main process out of memory is OOMKilled", lifeOutOfMemory},
		{"end of a child by memory shows although the main process goes on", lifeChildOutOfMemory},
		{"container on the host's pids leaves no background process", lifeHostPid},
		{"pod within 8 MiB starts", lifeSmallPod},
		{"twenty pods come at once", lifeManyAtOnce},
		{"repeated name is the same pod and container", lifeRepeatedName},
	} {
		t.Run(c.name, func(t *testing.T) { c.test(t, s) })
	}
}

func lifeMissingEntrypoint(t *testing.T, s *scene) {
	for i, program := range []string{"/no/such/program", "no-such-program", "/etc/passwd", "/tmp"} {
		p := s.pod(fmt.Sprintf("missing-%d", i))
		must(t, p.Run())
		must(t, p.Create(node.Demo, program, "argument"))
		err := p.Start()
		if err == nil || !strings.Contains(err.Error(), program) {
			t.Errorf("%s: %v", program, err)
		}
		status := exited(t, p)
		expectEnd(t, status, 128, "StartError")
		if !strings.Contains(status.Message, program) {
			t.Errorf("%s isn't in %q", program, status.Message)
		}
		s.end(t, p)
	}
}

func limitMemory(bytes int64) func(*cri.ContainerConfig) {
	return func(c *cri.ContainerConfig) {
		c.Linux.Resources = &cri.LinuxContainerResources{MemoryLimitInBytes: bytes, MemorySwapLimitInBytes: bytes}
	}
}

func lifeOutOfMemory(t *testing.T, s *scene) {
	p := s.pod("oom")
	p.Tune = limitMemory(32 << 20)
	expectEnd(t, s.run(t, p, "/bin/tail", "/dev/zero"), 137, "OOMKilled")
	s.end(t, p)
}

// lifeChildOutOfMemory: the exit code is the main process's own; the reason is OOMKilled if anything in
// the container was killed for memory, as a child's death mostly is why the parent gave up.
func lifeChildOutOfMemory(t *testing.T, s *scene) {
	p := s.pod("oom-child")
	p.Tune = limitMemory(32 << 20)
	expectEnd(t, s.run(t, p, "/bin/sh", "-c", "tail /dev/zero; exit 5"), 5, "OOMKilled")
	s.end(t, p)
}

func lifeHostPid(t *testing.T, s *scene) {
	number := uniqueNumber()
	p := s.pod("host-pid")
	p.Config.Linux.SecurityContext.NamespaceOptions.Pid = cri.NamespaceMode_NODE
	must(t, p.Up(node.Demo, "/bin/sh", "-c", "setsid sleep "+number+" & sleep 0.3; exit 3"))
	node.Eventually(t, 2*time.Second, func() error {
		if n := withArgument(number); n != 1 {
			return fmt.Errorf("%d background processes", n)
		}
		return nil
	})
	expectEnd(t, exited(t, p), 3, "Error")
	if n := withArgument(number); n != 0 {
		t.Errorf("%d background processes of a container that ended", n)
	}
	s.end(t, p)
}

// makeLimited makes the parent cgroup with a limit of memory, where the machine has its memory controller.
func makeLimited(parent string, bytes int) error {
	file := filepath.Join("/sys/fs/cgroup/memory", parent, "memory.limit_in_bytes")
	if _, err := os.Stat("/sys/fs/cgroup/memory/memory.limit_in_bytes"); err != nil {
		file = filepath.Join("/sys/fs/cgroup", parent, "memory.max")
		if err := os.WriteFile("/sys/fs/cgroup/cgroup.subtree_control", []byte("+memory"), 0); err != nil {
			return err
		}
	}
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		return err
	}
	return os.WriteFile(file, []byte(strconv.Itoa(bytes)), 0)
}

func lifeSmallPod(t *testing.T, s *scene) {
	parent := s.parent + "-small"
	t.Cleanup(func() { node.RemoveParent(t, parent) })
	must(t, makeLimited(parent, 8<<20))
	for i := range 5 {
		p := s.NewPod(fmt.Sprintf("small-%d", i), s.dir, parent)
		must(t, p.Up(node.Demo, "/bin/sh", "-c", "/bin/true && sleep 1000"))
		if r, err := s.exec(p, 10, "/bin/true"); err != nil || r.ExitCode != 0 {
			t.Errorf("exec: %v, %v", r, err)
		}
		must(t, p.Stop(0))
		expectEnd(t, exited(t, p), 137, "Error")
		s.end(t, p)
	}
	// the limit is one: what needs more is killed
	p := s.NewPod("small-oom", s.dir, parent)
	if status := s.run(t, p, "/bin/tail", "/dev/zero"); status.ExitCode != 137 {
		t.Errorf("exit code %d", status.ExitCode)
	}
	s.end(t, p)
}

func lifeManyAtOnce(t *testing.T, s *scene) {
	var all sync.WaitGroup
	pods, errs := make([]*node.Pod, 20), make([]error, 20)
	for i := range pods {
		pods[i] = s.pod(fmt.Sprintf("many-%d", i))
		pods[i].Config.Linux.SecurityContext.NamespaceOptions = &cri.NamespaceOption{Pid: cri.NamespaceMode_CONTAINER}
		all.Go(func() { errs[i] = pods[i].Up(node.Demo, "/bin/sleep", "1000") })
	}
	all.Wait()
	must(t, errors.Join(errs...))
	if n := len(s.Others()); n != len(pods) {
		t.Errorf("%d pods have %d processes", len(pods), n)
	}
	ids := map[string]bool{}
	for i, p := range pods {
		ids[p.ID], ids[p.Container] = true, true
		all.Go(func() { errs[i] = p.Remove() })
	}
	all.Wait()
	must(t, errors.Join(errs...))
	if len(ids) != 2*len(pods) {
		t.Errorf("%d ids", len(ids))
	}
	s.end(t)
}

// lifeRepeatedName: a caller whose call timed out asks again, while that is running or when it is done.
func lifeRepeatedName(t *testing.T, s *scene) {
	pods := make([]*node.Pod, 8)
	var all sync.WaitGroup
	errs := make([]error, len(pods))
	for i := range pods {
		pods[i] = s.pod("twin")
		all.Go(func() {
			if errs[i] = pods[i].Run(); errs[i] == nil {
				errs[i] = pods[i].Create(node.Demo, "/bin/sleep", "1000")
			}
		})
	}
	all.Wait()
	must(t, errors.Join(errs...))
	again := s.pod("twin")
	must(t, again.Run())
	must(t, again.Create(node.Demo, "/bin/sleep", "1000"))
	for _, p := range pods {
		if p.ID != again.ID || p.Container != again.Container {
			t.Errorf("pod %s with %s, and pod %s with %s", again.ID, again.Container, p.ID, p.Container)
		}
	}
	// the same name for something else is no repetition
	other := s.pod("twin")
	other.ID = again.ID
	err := other.Create(node.Demo, "/bin/sleep", "2000")
	refused(t, err, codes.AlreadyExists, again.Container)
	// and is free again
	must(t, again.Remove())
	must(t, other.Up(node.Demo, "/bin/sleep", "2000"))
	if other.ID == again.ID || other.Container == again.Container {
		t.Error("a removed one came back")
	}
	s.end(t, other)
}
