// SPDX-License-Identifier: Apache-2.0

// Package cases shows that what users of other runtimes suffered from is right here, each case by what a
// caller or the node sees. CRISPD and CRISP name the programs; wants root.
package cases

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"crisp/node"
)

// scene is a server with the demo image, and what the node was like before.
type scene struct {
	*node.Server
	*node.Client
	dir, parent string
	before      node.World
}

// newScene has made and removed a pod already, so that whatever is made at first use is there.
func newScene(t *testing.T, options ...string) *scene {
	t.Helper()
	return newSceneIn(t, fmt.Sprintf("/crisp-cases-%d", os.Getpid()), append(options, "--cgroup-driver", "cgroupfs")...)
}

// newSceneIn has pods in a parent, by a server with options.
func newSceneIn(t *testing.T, parent string, options ...string) *scene {
	t.Helper()
	s := &scene{parent: parent, dir: t.TempDir()}
	t.Cleanup(func() { node.RemoveParent(t, s.parent) })
	s.Server = node.Start(t, node.NeedEnv(t, "CRISPD", "crispd, the server"), append(options, "--keep")...)
	s.Client = s.Server.Client(t)
	image := filepath.Join(t.TempDir(), "image.tar")
	if out, err := exec.Command("../../cri/demo-image", image).CombinedOutput(); err != nil {
		t.Fatalf("demo-image: %v: %s", err, out)
	}
	s.Import(t, image)
	p := s.pod("first")
	must(t, p.Up(node.Demo, "/bin/sleep", "1000"))
	_, err := p.Exec("/bin/true")
	must(t, err)
	must(t, p.Remove())
	s.before = s.Look(t, s.marks()...)
	return s
}

func (s *scene) marks() []string {
	return []string{s.parent + "/"}
}

func (s *scene) pod(name string) *node.Pod {
	return s.NewPod(name, s.dir, s.parent)
}

// sleeper is a pod to execute in.
func (s *scene) sleeper(t *testing.T, name string) *node.Pod {
	t.Helper()
	p := s.pod(name)
	must(t, p.Up(node.Demo, "/bin/sleep", "1000"))
	return p
}

// run has a container run to its end.
func (s *scene) run(t *testing.T, p *node.Pod, command ...string) *cri.ContainerStatus {
	t.Helper()
	must(t, p.Up(node.Demo, command...))
	return exited(t, p)
}

// end removes pods and sees that nothing is left: no process, not even a dead one.
func (s *scene) end(t *testing.T, pods ...*node.Pod) {
	t.Helper()
	for _, p := range pods {
		must(t, p.Remove())
	}
	s.Leftovers(t, s.before, s.marks()...)
}

// exec is ExecSync with a limit in seconds.
func (s *scene) exec(p *node.Pod, limit int64, command ...string) (*cri.ExecSyncResponse, error) {
	return node.Call(s.Runtime.ExecSync, &cri.ExecSyncRequest{ContainerId: p.Container, Cmd: command, Timeout: limit})
}

// output is what a command that succeeds prints.
func (s *scene) output(t *testing.T, p *node.Pod, script string) string {
	t.Helper()
	r, err := s.exec(p, 30, "/bin/sh", "-c", script)
	must(t, err)
	if r.ExitCode != 0 {
		t.Fatalf("%s: exit code %d: %s", script, r.ExitCode, r.Stderr)
	}
	return string(r.Stdout)
}

// verbose is the information that a status has of a pod or a container when it is asked for.
func (s *scene) verbose(t *testing.T, id string) (info map[string]any) {
	t.Helper()
	raw := ""
	if r, err := node.Call(s.Runtime.PodSandboxStatus, &cri.PodSandboxStatusRequest{PodSandboxId: id, Verbose: true}); err == nil {
		raw = r.Info["info"]
	} else {
		r, err := node.Call(s.Runtime.ContainerStatus, &cri.ContainerStatusRequest{ContainerId: id, Verbose: true})
		must(t, err)
		raw = r.Info["info"]
	}
	must(t, json.Unmarshal([]byte(raw), &info))
	return info
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// refused expects an error of a code that says all of what.
func refused(t *testing.T, err error, code codes.Code, what ...string) {
	t.Helper()
	if status.Code(err) != code {
		t.Errorf("%v, not %v: %v", status.Code(err), code, err)
	}
	for _, text := range what {
		if err != nil && !strings.Contains(err.Error(), text) {
			t.Errorf("%q isn't in: %v", text, err)
		}
	}
}

// exited waits for the end of a container.
func exited(t *testing.T, p *node.Pod) *cri.ContainerStatus {
	t.Helper()
	var status *cri.ContainerStatus
	node.Eventually(t, 20*time.Second, func() (err error) {
		status, err = p.Status()
		if err == nil && status.State != cri.ContainerState_CONTAINER_EXITED {
			err = fmt.Errorf("it is %v", status.State)
		}
		return err
	})
	return status
}

func expectEnd(t *testing.T, s *cri.ContainerStatus, code int32, reason string) {
	t.Helper()
	if s.ExitCode != code || s.Reason != reason {
		t.Errorf("exit code %d, reason %q (%s), not %d, %q", s.ExitCode, s.Reason, s.Message, code, reason)
	}
}

// uniqueNumber goes into a command line, so that its process can be found on the node.
func uniqueNumber() string {
	return strconv.Itoa(int(time.Now().UnixNano()%1_000_000_000) + 1_000_000_000)
}

// withArgument counts the processes of the node that have an argument.
func withArgument(argument string) int {
	found := 0
	lines, _ := filepath.Glob("/proc/[0-9]*/cmdline")
	for _, path := range lines {
		raw, _ := os.ReadFile(path)
		for _, part := range strings.Split(string(raw), "\x00") {
			if part == argument {
				found++
			}
		}
	}
	return found
}

func (s *scene) isSanitized() bool {
	return node.IsSanitized(os.Getenv("CRISPD"))
}

// self is a number that the kernel tells about the server, as VmRSS in kB.
func (s *scene) self(t *testing.T, name string) int {
	t.Helper()
	pid, err := s.Pid()
	must(t, err)
	raw, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	must(t, err)
	for line := range strings.Lines(string(raw)) {
		if rest, found := strings.CutPrefix(line, name+":"); found {
			n, err := strconv.Atoi(strings.Fields(rest)[0])
			must(t, err)
			return n
		}
	}
	t.Fatalf("no %s in /proc/%d/status", name, pid)
	return 0
}

// processorTime is what the server has used, and the children that it has reaped.
func (s *scene) processorTime(t *testing.T) time.Duration {
	t.Helper()
	pid, err := s.Pid()
	must(t, err)
	raw, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	must(t, err)
	_, rest, _ := strings.Cut(string(raw), ") ")
	var ticks int
	for _, field := range strings.Fields(rest)[11:15] {
		n, err := strconv.Atoi(field)
		must(t, err)
		ticks += n
	}
	// in hundredths of a second everywhere that Linux is (sysconf(3), _SC_CLK_TCK)
	return time.Duration(ticks) * 10 * time.Millisecond
}
