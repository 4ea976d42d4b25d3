// SPDX-License-Identifier: Apache-2.0

package restart

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"crisp/node"
)

// within is one call with a deadline of its own.
func within[Q, A any](limit time.Duration, f func(context.Context, *Q, ...grpc.CallOption) (*A, error), request *Q) error {
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	_, err := f(ctx, request)
	return err
}

// wantLate wants a deadline that passed and, in the error, why.
func wantLate(t *testing.T, what string, err error, why ...string) {
	t.Helper()
	if status.Code(err) != codes.DeadlineExceeded {
		t.Errorf("%s: %v, not a passed deadline", what, err)
		return
	}
	for _, text := range why {
		if !strings.Contains(err.Error(), text) {
			t.Errorf("%s says %q, and not %q", what, err, text)
		}
	}
}

// wantLogged counts the lines of the server's log with all of these texts.
func (s *scene) wantLogged(t *testing.T, count int, texts ...string) {
	t.Helper()
	raw, err := os.ReadFile(filepath.Join(s.Dir, "log"))
	must(t, err)
	var found []string
lines:
	for line := range strings.Lines(string(raw)) {
		for _, text := range texts {
			if !strings.Contains(line, text) {
				continue lines
			}
		}
		found = append(found, line)
	}
	if len(found) != count {
		t.Errorf("the log has %d lines with %q, not %d: %q", len(found), texts, count, found)
	}
}

// cgroupFile is one of a container's, in whatever hierarchy has it.
func (s *scene) cgroupFile(t *testing.T, p *node.Pod, names ...string) string {
	t.Helper()
	for _, name := range names {
		nested, _ := filepath.Glob(filepath.Join("/sys/fs/cgroup/*", s.parent, p.Container, name))
		top, _ := filepath.Glob(filepath.Join("/sys/fs/cgroup", s.parent, p.Container, name))
		if found := append(nested, top...); len(found) > 0 {
			return found[0]
		}
	}
	t.Fatalf("container %s has no %v", p.Container, names)
	return ""
}

// freeze stops all of a container as the kernel's suspend would.
func (s *scene) freeze(t *testing.T, p *node.Pod) {
	t.Helper()
	file := s.cgroupFile(t, p, "freezer.state", "cgroup.freeze")
	text := "1"
	if strings.HasSuffix(file, "state") {
		text = "FROZEN"
	}
	must(t, os.WriteFile(file, []byte(text), 0))
}

func (s *scene) pids(t *testing.T, p *node.Pod) []int {
	t.Helper()
	raw, err := os.ReadFile(s.cgroupFile(t, p, "cgroup.procs"))
	must(t, err)
	var pids []int
	for _, text := range strings.Fields(string(raw)) {
		pid, err := strconv.Atoi(text)
		must(t, err)
		pids = append(pids, pid)
	}
	return pids
}

// suspend sends SIGSTOP to all processes of a pod with one pid namespace.
func (s *scene) suspend(t *testing.T, p *node.Pod) {
	t.Helper()
	namespace := func(pid int) string {
		link, _ := os.Readlink(fmt.Sprintf("/proc/%d/ns/pid", pid))
		return link
	}
	own := namespace(s.pids(t, p)[0])
	count := 0
	for pid := range s.Others() {
		if namespace(pid) == own {
			must(t, unix.Kill(pid, unix.SIGSTOP))
			count++
		}
	}
	if count < 2 {
		t.Errorf("only %d processes are in the pod's pid namespace", count)
	}
}

// TestStuckObjectsHoldUpNobody: a container whose log lies on a dead mount, a frozen one, and a pod whose
// processes are all stopped. After a restart everything is listed and the others are served within a
// second; a call on the one that can't be recovered says why it waits; all can be removed in the end.
func TestStuckObjectsHoldUpNobody(t *testing.T) {
	s := newScene(t, startKept(t, 0), cgroupParent(t))
	stuck, frozen, stopped, fine := s.pod("stuck"), s.pod("frozen"), s.pod("stopped"), s.pod("fine")
	stopped.Config.Linux.SecurityContext.NamespaceOptions.Pid = cri.NamespaceMode_POD
	all := []*node.Pod{stuck, frozen, stopped, fine}
	for _, p := range all {
		must(t, p.Up(node.Demo, "/bin/sh", "-c", "echo begun; exec sleep 1000"))
	}
	neighbour := *stuck
	neighbour.Tune = func(c *cri.ContainerConfig) { c.Metadata.Name, c.LogPath = "neighbour", "" }
	must(t, neighbour.Create(node.Demo, "/bin/sleep", "1000"))
	must(t, neighbour.Start())
	s.freeze(t, frozen)
	s.suspend(t, stopped)

	s.Kill(t)
	mount := node.NewDeadMount(t, stuck.Config.LogDirectory)
	begin := time.Now()
	s.Await(t)
	sandboxes, err := node.Call(s.Runtime.ListPodSandbox, &cri.ListPodSandboxRequest{})
	must(t, err)
	containers, err := node.Call(s.Runtime.ListContainers, &cri.ListContainersRequest{})
	must(t, err)
	if len(sandboxes.Items) != len(all) || len(containers.Containers) != len(all)+1 {
		t.Errorf("%d sandboxes and %d containers are listed", len(sandboxes.Items), len(containers.Containers))
	}
	for _, p := range []*node.Pod{fine, &neighbour} {
		if r, err := p.Exec("/bin/true"); err != nil || r.ExitCode != 0 {
			t.Errorf("exec: %v, %v", r, err)
		}
	}
	if took := time.Since(begin); took > time.Second {
		t.Errorf("others were served after %v", took)
	}
	mount.Wanted(t)
	status, err := stuck.Status()
	if err != nil || status.State != cri.ContainerState_CONTAINER_RUNNING {
		t.Errorf("the stuck one is %v, %v", status, err)
	}
	why := []string{"wait for container " + stuck.Container, "is opening its log since"}
	wantLate(t, "StopContainer", within(time.Second, s.Runtime.StopContainer, &cri.StopContainerRequest{ContainerId: stuck.Container}), why...)
	wantLate(t, "StopPodSandbox", within(time.Second, s.Runtime.StopPodSandbox, &cri.StopPodSandboxRequest{PodSandboxId: stuck.ID}), why...)
	for _, p := range []*node.Pod{frozen, stopped, fine} {
		must(t, p.Stop(0))
		must(t, p.Remove())
	}
	mount.Revive()
	must(t, neighbour.Stop(0))
	must(t, stuck.Stop(0))
	s.wantLogged(t, 1, "container "+stuck.Container+" is not recovered yet", "is opening its log since")
	s.end(t, stuck)
}

// cpuTime of the server so far.
func (s *scene) cpuTime(t *testing.T) time.Duration {
	t.Helper()
	pid, err := s.Pid()
	must(t, err)
	raw, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	must(t, err)
	fields := strings.Fields(string(raw[strings.LastIndexByte(string(raw), ')')+1:]))
	user, _ := strconv.Atoi(fields[11])
	system, _ := strconv.Atoi(fields[12])
	return time.Duration(user+system) * 10 * time.Millisecond
}

// TestUninterruptibleProcess: a process that waits for a dead mount can't be killed. Its stop says so,
// twenty others are stopped in time meanwhile, and the server does not busy itself with it.
func TestUninterruptibleProcess(t *testing.T) {
	s := newScene(t, startKept(t, 0), cgroupParent(t))
	data := t.TempDir()
	mount := node.NewDeadMount(t, filepath.Join(data, "dead"))
	stuck := s.pod("stuck")
	stuck.Tune = func(c *cri.ContainerConfig) {
		c.Mounts = []*cri.Mount{{HostPath: data, ContainerPath: "/data"}}
	}
	must(t, stuck.Up(node.Demo, "/bin/ls", "/data/dead/x"))
	mount.Wanted(t)
	var others []*node.Pod
	for i := range 20 {
		p := s.pod(fmt.Sprintf("other-%d", i))
		must(t, p.Up(node.Demo, "/bin/sleep", "1000"))
		others = append(others, p)
	}
	var group sync.WaitGroup
	group.Go(func() {
		err := within(3*time.Second, s.Runtime.StopContainer, &cri.StopContainerRequest{ContainerId: stuck.Container, Timeout: 1})
		wantLate(t, "StopContainer", err, "(state D)", "state D waits for a device or a file system")
	})
	failures := make([]error, len(others))
	for i, p := range others {
		group.Go(func() {
			failures[i] = within(5*time.Second, s.Runtime.StopContainer, &cri.StopContainerRequest{ContainerId: p.Container, Timeout: 1})
		})
	}
	group.Wait()
	must(t, errors.Join(failures...))
	begin, spent := time.Now(), s.cpuTime(t)
	wantLate(t, "RemovePodSandbox", within(time.Second, s.Runtime.RemovePodSandbox, &cri.RemovePodSandboxRequest{PodSandboxId: stuck.ID}))
	if spent = s.cpuTime(t) - spent; spent > time.Since(begin)/10 {
		t.Errorf("waiting took %v of the processors", spent)
	}
	mount.Revive()
	until(t, stuck, cri.ContainerState_CONTAINER_EXITED)
	s.end(t, append(others, stuck)...)
}

// TestDeadMountHangsNobodyElse: a create with a device on a dead mount, twenty starts with a mount
// source on it: they are told what their deadline passed with, who waits for one is told, too, and other
// pods are not kept from anything. When the mount answers again, nothing is left.
func TestDeadMountHangsNobodyElse(t *testing.T) {
	s := newScene(t, startKept(t, 0), cgroupParent(t))
	mount := node.NewDeadMount(t, filepath.Join(t.TempDir(), "dead"))
	create := s.pod("create")
	must(t, create.Run())
	create.Tune = func(c *cri.ContainerConfig) {
		c.Devices = []*cri.Device{{HostPath: filepath.Join(mount.Dir, "device"), ContainerPath: "/dev/dead", Permissions: "r"}}
	}
	request := create.Request(node.Demo, "/bin/sleep", "1000")
	wantLate(t, "CreateContainer", within(time.Second, s.Runtime.CreateContainer, request), "is looking up its user and devices since")

	var starts []*node.Pod
	for i := range 20 {
		p := s.pod(fmt.Sprintf("start-%d", i))
		p.Tune = func(c *cri.ContainerConfig) {
			c.Mounts = []*cri.Mount{{HostPath: filepath.Join(mount.Dir, "data"), ContainerPath: "/data"}}
		}
		must(t, p.Run())
		must(t, p.Create(node.Demo, "/bin/sleep", "1000"))
		starts = append(starts, p)
	}
	var group sync.WaitGroup
	for _, p := range starts {
		group.Go(func() {
			wantLate(t, "StartContainer", within(2*time.Second, s.Runtime.StartContainer, &cri.StartContainerRequest{ContainerId: p.Container}),
				"StartContainer is opening its mount sources since")
		})
	}
	mount.Wanted(t)
	begin := time.Now()
	fine := s.pod("fine")
	must(t, fine.Up(node.Demo, "/bin/sleep", "1000"))
	must(t, fine.Stop(0))
	if took := time.Since(begin); took > time.Second {
		t.Errorf("another pod took %v", took)
	}
	wantLate(t, "StopContainer", within(time.Second, s.Runtime.StopContainer, &cri.StopContainerRequest{ContainerId: starts[0].Container}),
		"wait for container "+starts[0].Container, "StartContainer is opening its mount sources since")
	group.Wait()
	s.wantBounded(t, starts[1])
	mount.Revive()
	s.end(t, append(starts, create, fine)...)
}

// wantBounded: of one pod only so many calls may hang, since each has a thread. One does already.
func (s *scene) wantBounded(t *testing.T, p *node.Pod) {
	t.Helper()
	next, tune, number := *p, p.Tune, 0
	next.Tune = func(c *cri.ContainerConfig) {
		tune(c)
		c.Metadata.Name = fmt.Sprintf("next-%d", number)
	}
	for ; number < 15; number++ {
		must(t, next.Create(node.Demo, "/bin/sleep", "1000"))
		wantLate(t, "StartContainer", within(200*time.Millisecond, s.Runtime.StartContainer, &cri.StartContainerRequest{ContainerId: next.Container}))
	}
	err := within(time.Second, s.Runtime.CreateContainer, next.Request(node.Demo, "/bin/sleep", "1000"))
	if status.Code(err) != codes.Unavailable || !strings.Contains(err.Error(), "16 earlier calls still wait for a path of the host") {
		t.Errorf("one call too many: %v", err)
	}
}

// TestCreateWaitsForItsLogDirectory: as long as a create can still make something, its pod waits for it.
func TestCreateWaitsForItsLogDirectory(t *testing.T) {
	s := newScene(t, startKept(t, 0), cgroupParent(t))
	p, fine := s.pod("create"), s.pod("fine")
	must(t, p.Run())
	mount := node.NewDeadMount(t, filepath.Join(p.Config.LogDirectory, "dead"))
	p.Tune = func(c *cri.ContainerConfig) { c.LogPath = "dead/logs/main.log" }
	request := p.Request(node.Demo, "/bin/sleep", "1000")
	at := "CreateContainer is making its directories since"
	wantLate(t, "the first CreateContainer", within(time.Second, s.Runtime.CreateContainer, request), at, "but it goes on")
	s.wantLogged(t, 1, at, "but it goes on")
	wantLate(t, "the second", within(time.Second, s.Runtime.CreateContainer, request), "wait for sandbox "+p.ID, at)
	wantLate(t, "RemovePodSandbox", within(time.Second, s.Runtime.RemovePodSandbox, &cri.RemovePodSandboxRequest{PodSandboxId: p.ID}), "wait for sandbox "+p.ID, at)
	must(t, fine.Up(node.Demo, "/bin/sleep", "1000"))
	mount.Revive()
	s.end(t, p, fine)
}

// TestUserNamespaceSurvives: after a restart a second container of the pod has the id map of the first,
// which was killed, and reads what that wrote to a shared directory.
func TestUserNamespaceSurvives(t *testing.T) {
	s := newScene(t, startKept(t, 0), cgroupParent(t))
	shared := t.TempDir()
	must(t, os.Chmod(shared, 0o777))
	p := s.pod("users")
	ids := []*cri.IDMapping{{HostId: 1000000, ContainerId: 0, Length: 65536}}
	p.Config.Linux.SecurityContext.NamespaceOptions.UsernsOptions = &cri.UserNamespace{Mode: cri.NamespaceMode_POD, Uids: ids, Gids: ids}
	p.Tune = func(c *cri.ContainerConfig) {
		c.Mounts = []*cri.Mount{{HostPath: shared, ContainerPath: "/shared"}}
	}
	must(t, p.Up(node.Demo, "/bin/sh", "-c", "umask 077; echo from the first >/shared/file; exec sleep 1000"))
	idMap := func() string {
		t.Helper()
		raw, err := os.ReadFile(fmt.Sprintf("/proc/%d/uid_map", s.pids(t, p)[0]))
		must(t, err)
		return strings.Join(strings.Fields(string(raw)), " ")
	}
	node.Eventually(t, 5*time.Second, func() error {
		_, err := os.Stat(filepath.Join(shared, "file"))
		return err
	})
	before := idMap()
	s.Restart(t)
	must(t, unix.Kill(s.pids(t, p)[0], unix.SIGKILL))
	until(t, p, cri.ContainerState_CONTAINER_EXITED)
	p.Tune = func(c *cri.ContainerConfig) {
		c.Metadata.Attempt = 1
		c.Mounts = []*cri.Mount{{HostPath: shared, ContainerPath: "/shared"}}
	}
	must(t, p.Create(node.Demo, "/bin/sleep", "1000"))
	must(t, p.Start())
	if after := idMap(); after != before || after != "0 1000000 65536" {
		t.Errorf("the id map was %q, is %q", before, after)
	}
	r, err := p.Exec("/bin/cat", "/shared/file")
	if err != nil || string(r.Stdout) != "from the first\n" {
		t.Errorf("the second container reads %v, %v", r, err)
	}
	s.end(t, p)
}
