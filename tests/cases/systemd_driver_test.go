// SPDX-License-Identifier: Apache-2.0

package cases

import (
	"fmt"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	"google.golang.org/grpc/codes"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"crisp/node"
)

// TestSystemdDriver: containers in scopes and slices. Not systemd makes them here but a stand-in for its
// manager (tests/systemd/mock_systemd.c), since systemd makes cgroups only where it has booted the node.
func TestSystemdDriver(t *testing.T) {
	s, mock := newSystemdScene(t)
	for _, c := range []struct {
		name string
		test func(*testing.T, *systemdScene)
	}{
		{"is told to the kubelet", systemdTold},
		{"puts a container into a scope of its pod's slice, with its limits", systemdScope},
		{"changes limits in systemd as well, and before the start", systemdUpdate},
		{"makes a slice for a pod that has limits and no parent", systemdPodSlice},
		{"refuses parents in the other style, and says what to set", systemdRefusals},
		{"goes on when systemd executes itself anew", systemdAnew},
		{"waits for systemd only until the deadline", systemdHangs},
		{"finds its scopes after a kill, and how they ended", systemdKilled},
		{"knows kills for memory, though the group goes at once", systemdOutOfMemory},
	} {
		t.Run(c.name, func(t *testing.T) { c.test(t, &systemdScene{s, mock, s.parent[1:]}) })
	}
}

type systemdScene struct {
	*scene
	mock  *mockSystemd
	slice string
}

type mockSystemd struct {
	process *exec.Cmd
	log     string
}

func (m *mockSystemd) signal(t *testing.T, signal unix.Signal) {
	t.Helper()
	must(t, m.process.Process.Signal(signal))
}

// calls are the lines about a unit, with the name of what was called.
func (m *mockSystemd) calls(t *testing.T, unit string) (lines []string) {
	t.Helper()
	raw, err := os.ReadFile(m.log)
	must(t, err)
	for line := range strings.Lines(string(raw)) {
		if strings.Contains(line, " "+unit) {
			lines = append(lines, strings.TrimSpace(line))
		}
	}
	return lines
}

// last is what was told of a unit the last time by a call.
func (m *mockSystemd) last(t *testing.T, call, unit string) (found string) {
	t.Helper()
	for _, line := range m.calls(t, unit) {
		if strings.HasPrefix(line, call+" ") {
			found = line
		}
	}
	return found
}

func newSystemdScene(t *testing.T) (*scene, *mockSystemd) {
	t.Helper()
	dir := t.TempDir()
	socket := filepath.Join(dir, "private")
	log, err := os.Create(filepath.Join(dir, "log"))
	must(t, err)
	m := &mockSystemd{exec.Command(node.NeedEnv(t, "MOCK_SYSTEMD", "mock_systemd")), log.Name()}
	m.process.Args = append(m.process.Args, socket)
	m.process.Stdout, m.process.Stderr = log, log
	must(t, m.process.Start())
	t.Cleanup(func() {
		_ = m.process.Process.Signal(unix.SIGTERM)
		_ = m.process.Wait()
		log.Close()
		if t.Failed() {
			raw, _ := os.ReadFile(m.log)
			t.Logf("what systemd's stand-in was told:\n%s", raw)
		}
		node.RemoveCgroups("/crisp.slice")
	})
	node.Eventually(t, 5*time.Second, func() error { _, err := os.Stat(socket); return err })
	// "a-b.slice" is in "a.slice"
	return newSceneIn(t, fmt.Sprintf("/crispcases%d.slice", os.Getpid()),
		"--cgroup-driver", "systemd", "--systemd-address", "unix:path="+socket), m
}

func scopeOf(p *node.Pod) string {
	return "crisp-" + p.Container + ".scope"
}

func (s *systemdScene) cgroupOf(p *node.Pod) string {
	return "/" + s.slice + "/" + scopeOf(p)
}

func systemdTold(t *testing.T, s *systemdScene) {
	r, err := node.Call(s.Runtime.RuntimeConfig, &cri.RuntimeConfigRequest{})
	must(t, err)
	if got := r.Linux.CgroupDriver; got != cri.CgroupDriver_SYSTEMD {
		t.Errorf("the driver is %v", got)
	}
}

// expectAll wants all texts in one.
func expectAll(t *testing.T, text string, all ...string) {
	t.Helper()
	for _, one := range all {
		if !strings.Contains(text, one) {
			t.Errorf("no %s in: %s", one, text)
		}
	}
}

func systemdScope(t *testing.T, s *systemdScene) {
	base := strings.TrimSuffix(s.slice, ".slice")
	p := s.NewPod("scope", s.dir, base+"-burstable-podX.slice")
	p.Tune = func(c *cri.ContainerConfig) {
		c.Linux.Resources = &limits{CpuShares: 512, CpuQuota: 12345, CpuPeriod: 100000, MemoryLimitInBytes: 64 * mib}
	}
	must(t, p.Up(node.Demo, "/bin/sleep", "1000"))
	cgroup := fmt.Sprintf("/%s.slice/%s-burstable.slice/%s-burstable-podX.slice/%s", base, base, base, scopeOf(p))
	expectGroup(t, cgroup, map[string]string{
		"cpu.shares": "512", "memory.limit_in_bytes": fmt.Sprint(64 * mib), "cpu.cfs_quota_us": "12345 100000"})
	expectAll(t, s.mock.last(t, "StartTransientUnit", scopeOf(p)), "Slice="+base+"-burstable-podX.slice",
		"Delegate=yes", "DefaultDependencies=no", "PIDs=1", fmt.Sprint("MemoryMax=", 64*mib),
		"CPUQuotaPerSecUSec=130000 ")
	expectIDs(t, s.scene, p, path.Dir(cgroup), cgroup)
	// nobody is in it but the container's own process, which an exec joins
	for range 2 {
		pids, err := os.ReadFile("/sys/fs/cgroup/unified" + cgroup + "/cgroup.procs")
		if !node.IsCgroupV2() && (err != nil || len(strings.Fields(string(pids))) != 1) {
			t.Errorf("in the scope are %q, %v", pids, err)
		}
		if out := s.output(t, p, "cat /proc/self/cgroup"); !strings.Contains(out, ":/") {
			t.Errorf("an exec sees %s", out)
		}
	}
	must(t, p.Remove())
	if calls := s.mock.calls(t, scopeOf(p)); len(calls) < 2 {
		t.Errorf("its end was not told: %q", calls)
	}
	// the kubelet's, and never ours to remove
	node.RemoveCgroups("/" + s.slice + "/" + base + "-burstable.slice")
	s.end(t)
}

func systemdUpdate(t *testing.T, s *systemdScene) {
	p := s.pod("update")
	must(t, p.Run())
	must(t, p.Create(node.Demo, "/bin/sleep", "1000"))
	must(t, s.update(p, &limits{MemoryLimitInBytes: 48 * mib}))
	refused(t, s.update(p, &limits{CpusetCpus: "x"}), codes.InvalidArgument, "cpuset")
	s.Restart(t)
	must(t, p.Start())
	expectGroup(t, s.cgroupOf(p), map[string]string{"memory.limit_in_bytes": fmt.Sprint(48 * mib)})
	must(t, s.update(p, &limits{MemoryLimitInBytes: 80 * mib, CpuShares: 300, CpuQuota: 20001, CpuPeriod: 100000}))
	expectGroup(t, s.cgroupOf(p), map[string]string{
		"memory.limit_in_bytes": fmt.Sprint(80 * mib), "cpu.shares": "300", "cpu.cfs_quota_us": "20001 100000"})
	told := s.mock.last(t, "SetUnitProperties", scopeOf(p))
	expectAll(t, told, fmt.Sprint("MemoryMax=", 80*mib), "CPUQuotaPerSecUSec=210000")
	// what the kernel refuses is not told
	refused(t, s.update(p, &limits{MemoryLimitInBytes: 90 * mib, CpusetCpus: "4000"}), codes.InvalidArgument, "cpuset")
	if now := s.mock.last(t, "SetUnitProperties", scopeOf(p)); strings.Contains(now, fmt.Sprint("MemoryMax=", 90*mib)) {
		t.Errorf("told: %s", now)
	}
	s.end(t, p)
}

func systemdPodSlice(t *testing.T, s *systemdScene) {
	p := s.ownPod("own", nil, &limits{MemoryLimitInBytes: 100 * mib})
	must(t, p.Up(node.Demo, "/bin/sleep", "1000"))
	slice := "crisp-" + p.ID + ".slice"
	expectGroup(t, "/crisp.slice/"+slice, map[string]string{"memory.limit_in_bytes": fmt.Sprint(100 * mib)})
	expectAll(t, s.mock.last(t, "StartTransientUnit", scopeOf(p)), "Slice="+slice)
	s.Restart(t)
	must(t, updatePod(s.scene, p, nil, &limits{MemoryLimitInBytes: 120 * mib}))
	expectGroup(t, "/crisp.slice/"+slice, map[string]string{"memory.limit_in_bytes": fmt.Sprint(120 * mib)})
	must(t, p.Remove())
	if s.mock.last(t, "StopUnit", slice) == "" {
		t.Error("its slice was not stopped")
	}
	s.end(t)
}

func systemdRefusals(t *testing.T, s *systemdScene) {
	for parent, what := range map[string]string{
		"/kubepods/burstable/podX":              "cgroupDriver: systemd",
		"/kubepods.slice/kubepods-a-podX.slice": "/kubepods.slice/kubepods-a.slice/kubepods-a-podX.slice",
		"kubepods--podX.slice":                  "not a slice",
		"-.slice":                               "not a slice",
		"../a.slice":                            "name the slice alone",
		"system.slice:crisp:x":                  "not a slice",
	} {
		p := s.NewPod("refused", s.dir, parent)
		_, err := node.Call(s.Runtime.RunPodSandbox, &cri.RunPodSandboxRequest{Config: p.Config})
		refused(t, err, codes.InvalidArgument, "linux.cgroup_parent", what)
	}
	s.end(t)
}

func systemdAnew(t *testing.T, s *systemdScene) {
	for i := range 5 {
		p := s.pod(fmt.Sprint("anew-", i))
		must(t, p.Run())
		must(t, p.Create(node.Demo, "/bin/sleep", "1000"))
		s.mock.signal(t, unix.SIGHUP)
		time.Sleep(time.Duration(i) * time.Millisecond)
		// once: it is not for the caller to try again
		_, err := node.Call(s.Runtime.StartContainer, &cri.StartContainerRequest{ContainerId: p.Container})
		must(t, err)
		must(t, p.Remove())
	}
	s.end(t)
}

func systemdHangs(t *testing.T, s *systemdScene) {
	p, other := s.pod("hangs"), s.sleeper(t, "other")
	must(t, p.Run())
	must(t, p.Create(node.Demo, "/bin/sleep", "1000"))
	s.mock.signal(t, unix.SIGSTOP)
	begin := time.Now()
	_, err := node.CallWithin(time.Second, s.Runtime.StartContainer, &cri.StartContainerRequest{ContainerId: p.Container})
	refused(t, err, codes.DeadlineExceeded)
	if took := time.Since(begin); took > 3*time.Second {
		t.Errorf("it took %v", took)
	}
	// whoever needs nothing of it does not wait
	if _, err := s.exec(other, 5, "/bin/true"); err != nil {
		t.Error(err)
	}
	s.mock.signal(t, unix.SIGCONT)
	must(t, p.Start())
	s.end(t, p, other)
}

func systemdKilled(t *testing.T, s *systemdScene) {
	p, lost := s.pod("killed"), s.sleeper(t, "lost")
	must(t, p.Up(node.Demo, "/bin/sh", "-c", "sleep 0.5; exit 7"))
	s.Kill(t)
	time.Sleep(700 * time.Millisecond)
	s.Await(t)
	expectEnd(t, exited(t, p), 7, "Error")
	if out := s.output(t, lost, "echo here"); out != "here\n" {
		t.Errorf("an exec after the restart says %q", out)
	}
	s.end(t, p, lost)
}

func systemdOutOfMemory(t *testing.T, s *systemdScene) {
	for i := range 10 {
		p := s.pod(fmt.Sprint("oom-", i))
		p.Tune = func(c *cri.ContainerConfig) {
			c.Linux.Resources = &limits{MemoryLimitInBytes: oomLimit, MemorySwapLimitInBytes: oomLimit}
		}
		status := s.run(t, p, "/bin/tail", "/dev/zero")
		expectEnd(t, status, 137, "OOMKilled")
		must(t, p.Remove())
	}
	s.end(t)
}
