// SPDX-License-Identifier: Apache-2.0

package restart

import (
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/protobuf/encoding/prototext"
	"google.golang.org/protobuf/proto"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"crisp/node"
)

// scene is a server with images, and what the node was like before the test.
type scene struct {
	*node.Server
	*node.Client
	dir, parent string
	before      node.World
}

func newScene(t *testing.T, s *node.Server, parent string) *scene {
	t.Helper()
	importImages(t, s)
	sc := &scene{Server: s, Client: s.Client(t), dir: t.TempDir(), parent: parent}
	sc.before = baseline(t, s, sc.dir, parent)
	return sc
}

func (s *scene) pod(name string) *node.Pod {
	return s.NewPod(name, s.dir, s.parent)
}

// end removes pods and sees that nothing is left.
func (s *scene) end(t *testing.T, pods ...*node.Pod) {
	t.Helper()
	for _, p := range pods {
		must(t, p.Remove())
	}
	if !s.IsKept() {
		node.ReapOrphans()
	}
	s.Leftovers(t, s.before, marks(s.parent)...)
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// until waits for a container's state.
func until(t *testing.T, p *node.Pod, state cri.ContainerState) *cri.ContainerStatus {
	t.Helper()
	var status *cri.ContainerStatus
	node.Eventually(t, 10*time.Second, func() (err error) {
		status, err = p.Status()
		if err == nil && status.State != state {
			err = fmt.Errorf("it is %v (%s: %s), not %v", status.State, status.Reason, status.Message, state)
		}
		return err
	})
	return status
}

// TestRunningContainerSurvivesAndStillLogs: what it wrote before, during and after is there.
func TestRunningContainerSurvivesAndStillLogs(t *testing.T) {
	parent := cgroupParent(t)
	withAndWithoutKeeper(t, func(t *testing.T, server *node.Server) {
		s := newScene(t, server, parent)
		p := s.pod("counts")
		must(t, p.Up(node.Demo, "/bin/sh", "-c", "i=0; while [ $i -lt 100 ]; do echo line $i; i=$((i+1)); usleep 20000; done; sleep 1000"))
		for range 5 {
			time.Sleep(200 * time.Millisecond)
			s.Restart(t)
			if status, err := p.Status(); err != nil || status.State != cri.ContainerState_CONTAINER_RUNNING {
				t.Fatalf("after kill -9 it is %v, %v", status, err)
			}
		}
		node.Eventually(t, 10*time.Second, func() error {
			lines, err := readLog(p.LogFile())
			if err == nil && len(lines) < 100 {
				err = fmt.Errorf("%d lines", len(lines))
			}
			return err
		})
		lines, err := readLog(p.LogFile())
		must(t, err)
		for i, line := range lines {
			if line != fmt.Sprintf("stdout: line %d", i) {
				t.Fatalf("line %d is %q", i, line)
			}
		}
		s.end(t, p)
	})
}

// TestExitWhileAway: a container that ended while no server was there has its exit code and its last
// line.
func TestExitWhileAway(t *testing.T) {
	s := newScene(t, startKept(t, 700), cgroupParent(t))
	p := s.pod("ends")
	must(t, p.Up(node.Demo, "/bin/sh", "-c", "sleep 0.4; echo last line; exit 42"))
	s.Kill(t)
	killed := time.Now()
	s.Await(t)
	status := until(t, p, cri.ContainerState_CONTAINER_EXITED)
	if status.ExitCode != 42 || status.Reason != "Error" {
		t.Errorf("exit code %d, reason %q", status.ExitCode, status.Reason)
	}
	if finished := time.Unix(0, status.FinishedAt); finished.Before(killed) || finished.After(killed.Add(2*time.Second)) {
		t.Errorf("killed at %v, container finished at %v", killed, finished)
	}
	if lines, err := readLog(p.LogFile()); err != nil || !slices.Equal(lines, []string{"stdout: last line"}) {
		t.Errorf("the log is %q, %v", lines, err)
	}
	s.end(t, p)
}

// TestExitWhileAwayWithoutKeeper: the exit code is known where the kernel keeps it.
func TestExitWhileAwayWithoutKeeper(t *testing.T) {
	if !kernelKeepsExitStatus() {
		t.Skip("needs Linux 6.15, whose pidfds keep an exit status")
	}
	s := newScene(t, startPlain(t), cgroupParent(t))
	p := s.pod("ends")
	must(t, p.Up(node.Demo, "/bin/sh", "-c", "sleep 0.3; exit 42"))
	s.Kill(t)
	time.Sleep(600 * time.Millisecond)
	node.ReapOrphans()
	s.Run(t)
	if status := until(t, p, cri.ContainerState_CONTAINER_EXITED); status.ExitCode != 42 {
		t.Errorf("exit code %d, reason %q", status.ExitCode, status.Reason)
	}
	s.end(t, p)
}

func kernelKeepsExitStatus() bool {
	raw, _ := os.ReadFile("/proc/sys/kernel/osrelease")
	major, minor := 0, 0
	_, _ = fmt.Sscanf(string(raw), "%d.%d", &major, &minor)
	return major > 6 || (major == 6 && minor >= 15)
}

// TestCreatedContainerStarts after the server that created it is gone.
func TestCreatedContainerStarts(t *testing.T) {
	parent := cgroupParent(t)
	withAndWithoutKeeper(t, func(t *testing.T, server *node.Server) {
		s := newScene(t, server, parent)
		p := s.pod("waits")
		must(t, p.Run())
		must(t, p.Create(node.Demo, "/bin/sh", "-c", "echo started; exit 3"))
		s.Restart(t)
		if status, err := p.Status(); err != nil || status.State != cri.ContainerState_CONTAINER_CREATED {
			t.Fatalf("it is %v, %v", status, err)
		}
		must(t, p.Start())
		if status := until(t, p, cri.ContainerState_CONTAINER_EXITED); status.ExitCode != 3 {
			t.Errorf("exit code %d", status.ExitCode)
		}
		if lines, err := readLog(p.LogFile()); err != nil || !slices.Equal(lines, []string{"stdout: started"}) {
			t.Errorf("the log is %q, %v", lines, err)
		}
		s.end(t, p)
	})
}

// TestHalfMadeSandboxIsUndone: of 50 that a kill hit at random, some are there as a whole, and nothing
// at all is left of the others.
func TestHalfMadeSandboxIsUndone(t *testing.T) {
	parent := cgroupParent(t)
	t.Run("with keeper", func(t *testing.T) { halfMadeSandboxIsUndone(t, newScene(t, startKept(t, 0), parent)) })
	t.Run("without keeper, kernel before 6.15", func(t *testing.T) {
		t.Setenv("CRISP_NO_PIDFD_INFO", "1")
		halfMadeSandboxIsUndone(t, newScene(t, startPlain(t), parent))
	})
}

func halfMadeSandboxIsUndone(t *testing.T, s *scene) {
	t.Helper()
	whole := 0
	for i := range 50 {
		p := s.pod(fmt.Sprintf("half-%d", i))
		p.Config.Linux.SecurityContext.NamespaceOptions = &cri.NamespaceOption{} // all its own: more to undo
		answered := make(chan bool)
		go func() {
			_, err := node.Call(s.Runtime.RunPodSandbox, &cri.RunPodSandboxRequest{Config: p.Config})
			answered <- err == nil
		}()
		time.Sleep(rand.N(15 * time.Millisecond))
		s.Restart(t)
		wasAnswered := <-answered
		var list *cri.ListPodSandboxResponse
		node.Eventually(t, 5*time.Second, func() (err error) {
			list, err = node.Call(s.Runtime.ListPodSandbox, &cri.ListPodSandboxRequest{})
			for _, item := range list.GetItems() {
				if item.State != cri.PodSandboxState_SANDBOX_READY {
					err = fmt.Errorf("a pod that is half there: %v", item)
				}
			}
			return err
		})
		if wasAnswered && len(list.Items) != 1 {
			t.Fatalf("pod %d was answered for, and isn't there", i)
		}
		for _, item := range list.Items {
			p.ID = item.Id
			must(t, p.Remove())
			whole++
		}
	}
	t.Logf("%d of 50 were whole", whole)
	s.end(t)
}

// listing is all that the server says about its pods, containers and images.
func (s *scene) listing(t *testing.T) string {
	t.Helper()
	var all strings.Builder
	say := func(m proto.Message, err error) {
		must(t, err)
		// its blanks differ at random from one process to the next, but not within one
		fmt.Fprintln(&all, prototext.Format(m))
	}
	pods, err := node.Call(s.Runtime.ListPodSandbox, &cri.ListPodSandboxRequest{})
	must(t, err)
	slices.SortFunc(pods.Items, func(a, b *cri.PodSandbox) int { return strings.Compare(a.Id, b.Id) })
	say(pods, nil)
	for _, pod := range pods.Items {
		status, err := node.Call(s.Runtime.PodSandboxStatus, &cri.PodSandboxStatusRequest{PodSandboxId: pod.Id})
		must(t, err)
		status.Timestamp = 0
		say(status, nil)
	}
	containers, err := node.Call(s.Runtime.ListContainers, &cri.ListContainersRequest{})
	must(t, err)
	slices.SortFunc(containers.Containers, func(a, b *cri.Container) int { return strings.Compare(a.Id, b.Id) })
	say(containers, nil)
	for _, container := range containers.Containers {
		say(node.Call(s.Runtime.ContainerStatus, &cri.ContainerStatusRequest{ContainerId: container.Id}))
	}
	images, err := node.Call(s.Images.ListImages, &cri.ListImagesRequest{})
	must(t, err)
	slices.SortFunc(images.Images, func(a, b *cri.Image) int { return strings.Compare(a.Id, b.Id) })
	say(images, nil)
	say(node.Call(s.Runtime.RuntimeConfig, &cri.RuntimeConfigRequest{}))
	return all.String()
}

// expectSameLines names the lines that only one of them has.
func expectSameLines(t *testing.T, before, after string) {
	t.Helper()
	if before == after {
		return
	}
	counts := map[string]int{}
	for line := range strings.Lines(before) {
		counts[line]--
	}
	for line := range strings.Lines(after) {
		counts[line]++
	}
	for line, n := range counts {
		if n < 0 {
			t.Errorf("lost: %s", line)
		} else if n > 0 {
			t.Errorf("new: %s", line)
		}
	}
	if !t.Failed() {
		t.Error("the order is another one")
	}
}

// TestListingIsTheSame before and after: pods and containers in each of their states.
func TestListingIsTheSame(t *testing.T) {
	parent := cgroupParent(t)
	withAndWithoutKeeper(t, func(t *testing.T, server *node.Server) {
		s := newScene(t, server, parent)
		running, exited, created, empty, stopped := s.pod("running"), s.pod("exited"), s.pod("created"), s.pod("empty"), s.pod("stopped")
		must(t, running.Up(node.Demo, "/bin/sleep", "1000"))
		must(t, exited.Up(node.Demo, "/bin/sh", "-c", "exit 5"))
		must(t, created.Run())
		must(t, created.Create(node.Demo, "/bin/true"))
		must(t, empty.Run())
		must(t, stopped.Run())
		_, err := node.Call(s.Runtime.StopPodSandbox, &cri.StopPodSandboxRequest{PodSandboxId: stopped.ID})
		must(t, err)
		until(t, exited, cri.ContainerState_CONTAINER_EXITED)
		before := s.listing(t)
		s.Restart(t)
		expectSameLines(t, before, s.listing(t))
		s.end(t, running, exited, created, empty, stopped)
	})
}

// TestExecAfterRestart works in every running container at once, while the server has only just come.
func TestExecAfterRestart(t *testing.T) {
	s := newScene(t, startKept(t, 0), cgroupParent(t))
	var pods []*node.Pod
	for i := range 10 {
		p := s.pod(fmt.Sprintf("exec-%d", i))
		must(t, p.Up(node.Demo, "/bin/sleep", "1000"))
		pods = append(pods, p)
	}
	var abandoned sync.WaitGroup
	for _, p := range pods[:3] {
		// this one's caller gets an error; the command may go on, but not beyond its container
		abandoned.Go(func() {
			_, _ = node.Call(s.Runtime.ExecSync, &cri.ExecSyncRequest{ContainerId: p.Container, Cmd: []string{"/bin/sleep", "2000"}, Timeout: 5})
		})
	}
	time.Sleep(100 * time.Millisecond)
	s.Restart(t)
	var all sync.WaitGroup
	for i, p := range pods {
		all.Go(func() {
			r, err := p.Exec("/bin/sh", "-c", fmt.Sprintf("echo out; echo err >&2; exit %d", i))
			if err != nil || int(r.ExitCode) != i || string(r.Stdout) != "out\n" || string(r.Stderr) != "err\n" {
				t.Errorf("exec %d: %v, %v", i, r, err)
			}
		})
	}
	all.Wait()
	abandoned.Wait()
	s.end(t, pods...)
}

// TestRepeatedNameJoins: who asks again, at the same time or after the server died, gets the same pod
// and the same container.
func TestRepeatedNameJoins(t *testing.T) {
	s := newScene(t, startKept(t, 0), cgroupParent(t))
	for i := range 20 {
		pods := []*node.Pod{s.pod(fmt.Sprintf("twin-%d", i)), s.pod(fmt.Sprintf("twin-%d", i)), s.pod(fmt.Sprintf("twin-%d", i))}
		var all sync.WaitGroup
		for _, p := range pods {
			all.Go(func() {
				if err := p.Run(); err != nil {
					t.Error(err)
				} else if err := p.Create(node.Demo, "/bin/sleep", "1000"); err != nil {
					t.Error(err)
				}
			})
		}
		time.Sleep(rand.N(10 * time.Millisecond))
		s.Restart(t)
		all.Wait()
		for _, p := range pods {
			if p.ID != pods[0].ID || p.Container != pods[0].Container {
				t.Errorf("pod %s with %s, and pod %s with %s", p.ID, p.Container, pods[0].ID, pods[0].Container)
			}
		}
		list, err := node.Call(s.Runtime.ListContainers, &cri.ListContainersRequest{})
		must(t, err)
		if len(list.Containers) != 1 {
			t.Errorf("%d containers of one name", len(list.Containers))
		}
		must(t, pods[0].Start())
		must(t, pods[0].Remove())
		if t.Failed() {
			return
		}
	}
	s.end(t)
}
