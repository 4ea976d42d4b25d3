// SPDX-License-Identifier: Apache-2.0

package restart

import (
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"crisp/node"
)

// faults are ordered one at a time from a server that was built with them; io/base/fault.h says how.
type faults struct {
	file   string
	serial int
}

// order is one fault: at the count-th passing of the place, counted from the order on.
type order struct {
	kind, name, action string
	count              int
}

func (o order) String() string {
	return fmt.Sprintf("%s at %s %s, passing %d", o.action, o.kind, o.name, o.count)
}

// isDeath says whether the server that obeys will end.
func (o order) isDeath() bool {
	return o.action == "kill" || o.action == "term"
}

// newFaults is for the servers that are started after it.
func newFaults(t *testing.T) *faults {
	t.Helper()
	raw, err := os.ReadFile(crispd(t))
	if err != nil || !regexp.MustCompile("CRISP_FAULT\x00").Match(raw) {
		t.Skip("needs a crispd that was built with -DFAULTS=ON")
	}
	f := &faults{file: filepath.Join(t.TempDir(), "fault")}
	t.Setenv("CRISP_FAULT", f.file)
	return f
}

func (f *faults) give(t *testing.T, o order) {
	t.Helper()
	f.serial++
	draft := f.file + ".draft"
	must(t, os.WriteFile(draft, fmt.Appendf(nil, "%s %d %s %d %s\n", o.kind, o.count, o.action, f.serial, o.name), 0o600))
	must(t, os.Rename(draft, f.file))
}

// takeBack says whether the order had been obeyed before.
func (f *faults) takeBack(t *testing.T) bool {
	t.Helper()
	err := os.Remove(f.file)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		t.Fatal(err)
	}
	return err != nil
}

// life is all that a pod goes through, step by step, under a server that faults are ordered from.
type life struct {
	*scene
	*faults
	pod     *node.Pod
	archive string
	isKept  bool
	// a deadline that passed in StopContainer may have been the grace period's
	isGraceCut bool
}

// outputLines is more than the spool keeps for itself, lastLines enough to be on its way at the end.
const outputLines, lastLines = 2000, 20000

// createdLimits are the container's quota and period of cpu until they are updated.
const createdLimits, updatedLimits = "150000 100000", "200000 50000"

// step is one call. What it does may be repeated until it succeeds.
type step struct {
	name string // of the CRI's method where it is one
	do   func() error
}

func (l *life) steps(t *testing.T) []step {
	p := l.pod
	steps := []step{
		{"RunPodSandbox", p.Run},
		{"CreateContainer", l.create},
		{"StartContainer", l.start},
		{"ContainerStatus", l.expectRunning},
		{"UpdateContainerResources", l.limit},
		{"UpdatePodSandboxResources", l.limitPod},
		{"ExecSync", func() error {
			r, err := p.Exec("/bin/sh", "-c", "echo out; exit 3")
			if err == nil && (r.ExitCode != 3 || string(r.Stdout) != "out\n") {
				err = fmt.Errorf("the command gave %v", r)
			}
			return err
		}},
		{"restart", func() error { return l.killAndAwait(t) }},
		{"ContainerStatus", func() error { return l.expectLimits(updatedLimits) }},
		{"PodSandboxStatus", func() error { return l.expectPodLimit(updatedPodLimit) }},
		{"ReopenContainerLog", func() error {
			if _, err := os.Stat(p.LogFile() + ".1"); errors.Is(err, fs.ErrNotExist) {
				if err := os.Rename(p.LogFile(), p.LogFile()+".1"); err != nil {
					return err
				}
			}
			return p.Reopen()
		}},
		{"StopContainer", func() error { return p.Stop(20) }},
		{"ContainerStatus", l.expectEnd},
		{"RemoveContainer", p.RemoveContainer},
		{"StopPodSandbox", p.StopSandbox},
		{"RemovePodSandbox", p.RemoveSandbox},
	}
	if !l.isKept {
		return steps
	}
	// the command line program is a child of ours that a dead server's orphans must not be confused
	// with, so with a keeper only
	return append([]step{
		{"ImportImage", l.importAgain},
		{"RemoveImage", func() error {
			_, _, err := node.Retry(l.Images.RemoveImage, &cri.RemoveImageRequest{Image: &cri.ImageSpec{Image: stormImage}})
			return err
		}},
	}, steps...)
}

// start makes the container anew if an earlier start failed, as the kubelet does.
func (l *life) start() error {
	err := l.pod.Start()
	if status.Code(errors.Unwrap(err)) != codes.FailedPrecondition {
		return err
	}
	s, failure := l.pod.Status()
	if failure != nil || s.Reason != "StartError" || s.ExitCode != 128 {
		return fmt.Errorf("%w; its status is %v, %v", err, s, failure)
	}
	if err := l.pod.RemoveContainer(); err != nil {
		return err
	}
	if err := l.create(); err != nil {
		return err
	}
	return l.pod.Start()
}

// limit changes the limits that create gave. What fails leaves all of them, to be read and in effect, or
// all are new ones.
func (l *life) limit() error {
	_, _, err := node.Retry(l.Runtime.UpdateContainerResources, &cri.UpdateContainerResourcesRequest{ContainerId: l.pod.Container,
		Linux: &cri.LinuxContainerResources{CpuPeriod: 50000, CpuQuota: 200000}})
	if err == nil {
		return l.expectLimits(updatedLimits)
	}
	for end := time.Now().Add(5 * time.Second); ; time.Sleep(5 * time.Millisecond) {
		failure := l.expectLimits(createdLimits)
		if failure == nil || l.expectLimits(updatedLimits) == nil {
			return err
		}
		if time.Now().After(end) {
			return fmt.Errorf("%v; and then: %v", err, failure)
		}
	}
}

func (l *life) expectLimits(want string) error {
	s, err := l.pod.Status()
	if err != nil {
		return err
	}
	r := s.GetResources().GetLinux()
	if told := fmt.Sprint(r.GetCpuQuota(), " ", r.GetCpuPeriod()); told != want {
		return fmt.Errorf("its status has quota and period %s, not %s", told, want)
	}
	got, err := node.CPUMax(filepath.Join(l.parent, l.pod.Container))
	if err == nil && got != want {
		err = fmt.Errorf("its cgroup has quota and period %s, not %s", got, want)
	}
	return err
}

// updatedPodLimit is the pod's limit of memory, which it had none of.
const updatedPodLimit = "memory_limit_in_bytes\":1073741824"

// limitPod is the same for the pod, whose cgroup is not the server's to limit.
func (l *life) limitPod() error {
	_, _, err := node.Retry(l.Runtime.UpdatePodSandboxResources, &cri.UpdatePodSandboxResourcesRequest{PodSandboxId: l.pod.ID,
		Resources: &cri.LinuxContainerResources{MemoryLimitInBytes: 1 << 30}})
	if err == nil {
		return l.expectPodLimit(updatedPodLimit)
	}
	if failure := l.expectPodLimit(`"resources":{`); failure != nil {
		return fmt.Errorf("%v; and then: %v", err, failure)
	}
	return err
}

func (l *life) expectPodLimit(want string) error {
	r, _, err := node.Retry(l.Runtime.PodSandboxStatus, &cri.PodSandboxStatusRequest{PodSandboxId: l.pod.ID, Verbose: true})
	if err == nil && !strings.Contains(r.Info["info"], want) {
		err = fmt.Errorf("%s isn't in %s", want, r.Info["info"])
	}
	return err
}

func (l *life) create() error {
	l.pod.Tune = func(c *cri.ContainerConfig) {
		c.Linux.Resources = &cri.LinuxContainerResources{CpuPeriod: 100000, CpuQuota: 150000}
	}
	return l.pod.Create(node.Demo, "/bin/sh", "-c", fmt.Sprintf("trap 'trap \"\" TERM; seq %d %d; exit 7' TERM; seq %d; sleep 1000 & wait", outputLines+1, outputLines+lastLines, outputLines))
}

// importAgain repeats an import as long as servers die under it.
func (l *life) importAgain() error {
	var err error
	for end := time.Now().Add(node.CallLimit); time.Now().Before(end); time.Sleep(5 * time.Millisecond) {
		var out []byte
		out, err = exec.Command(os.Getenv("CRISP"), "--address", l.Socket, "import", l.archive).CombinedOutput()
		if err == nil {
			return nil
		}
		err = fmt.Errorf("crisp import: %w: %s", err, out)
		if l.isOrdered() {
			break // not for the lack of a server
		}
	}
	return err
}

// isOrdered says whether a fault is still to come.
func (f *faults) isOrdered() bool {
	_, err := os.Stat(f.file)
	return err == nil
}

// killAndAwait returns when the next server has seen the container; the fault may hit that one.
func (l *life) killAndAwait(t *testing.T) error {
	// unless a fault was quicker
	if pid, err := l.Pid(); err == nil {
		if err := unix.Kill(pid, unix.SIGKILL); err != nil && err != unix.ESRCH {
			return err
		}
	}
	_, err := l.pod.Status()
	// the sweep comes after all of it, and nobody is told when
	for end := time.Now().Add(150 * time.Millisecond); l.isOrdered() && time.Now().Before(end); {
		time.Sleep(5 * time.Millisecond)
	}
	return err
}

func (l *life) expectRunning() error {
	status, err := l.pod.Status()
	if err == nil && status.State != cri.ContainerState_CONTAINER_RUNNING {
		err = fmt.Errorf("it is %v with code %d (%s: %s), not running", status.State, status.ExitCode, status.Reason, status.Message)
	}
	return err
}

// expectEnd: its code, and all that it wrote. Without a keeper the last bytes may go with a server.
func (l *life) expectEnd() error {
	status, err := l.pod.Status()
	if err != nil {
		return err
	}
	wasKilled := l.isGraceCut && status.ExitCode == 137
	if status.State != cri.ContainerState_CONTAINER_EXITED || (status.ExitCode != 7 && !wasKilled) {
		return fmt.Errorf("it is %v with code %d (%s: %s), not exited with 7", status.State, status.ExitCode, status.Reason, status.Message)
	}
	var all []string
	for _, name := range []string{l.pod.LogFile() + ".1", l.pod.LogFile()} {
		lines, err := readLog(name)
		if err != nil {
			return err
		}
		all = append(all, lines...)
	}
	for i, line := range all {
		if line != fmt.Sprintf("stdout: %d", i+1) {
			return fmt.Errorf("line %d of the log is %q", i, line)
		}
	}
	if len(all) < outputLines+lastLines && l.isKept && !wasKilled {
		return fmt.Errorf("the log has %d lines", len(all))
	}
	return nil
}

// live goes all the steps, each under the order that it gets (name "" is none), and says how many
// were obeyed.
func (l *life) live(t *testing.T, name string, orderOf func(step) order) int {
	t.Helper()
	l.pod = l.scene.pod(name)
	l.pod.Config.Linux.SecurityContext.NamespaceOptions = &cri.NamespaceOption{} // all its own: more to undo
	l.isGraceCut = false
	obeyed := 0
	for _, s := range l.steps(t) {
		o := orderOf(s)
		if o.name != "" {
			l.give(t, o)
		}
		err := l.through(t, s.do)
		isObeyed := l.takeBack(t)
		if o.action == "failing" {
			isObeyed = err != nil
		}
		if isObeyed && o.name != "" {
			obeyed++
			l.isGraceCut = l.isGraceCut || (s.name == "StopContainer" && o.action == "deadline")
		} else {
			o = order{action: "nothing"}
		}
		if err != nil && !o.isDeath() {
			expectCode(t, s, o, err)
			err = l.through(t, s.do)
		}
		if s.name == "restart" && o.action == "fail" && err == nil {
			err = l.through(t, s.do) // what could not be recovered waits for the next server
		}
		if err != nil {
			t.Fatalf("%s: %s with %v: %v", name, s.name, o, err)
		}
	}
	must(t, os.RemoveAll(l.pod.Config.LogDirectory))
	if !l.isKept {
		node.ReapOrphans()
	}
	l.Leftovers(t, l.before, marks(l.parent)...)
	return obeyed
}

// expectCode: what a caller is told of a fault that the server survived.
func expectCode(t *testing.T, s step, o order, err error) {
	t.Helper()
	want := map[string]codes.Code{"deadline": codes.DeadlineExceeded, "cancel": codes.Canceled, "fail": codes.Internal, "failing": codes.Internal}[o.action]
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		return // the command line's own words
	}
	for inner := err; inner != nil; inner = errors.Unwrap(inner) {
		if got, is := status.FromError(inner); is && got.Code() == want && want != codes.OK {
			return
		}
	}
	t.Errorf("%s with %v: %v", s.name, o, err)
}

// through starts a server without a keeper again as often as it ends meanwhile, and is the PID 1 that
// reaps what such a server leaves.
func (l *life) through(t *testing.T, do func() error) error {
	t.Helper()
	done := make(chan error, 1)
	go func() { done <- do() }()
	var reap <-chan time.Time
	if !l.isKept {
		ticker := time.NewTicker(5 * time.Millisecond)
		defer ticker.Stop()
		reap = ticker.C
	}
	for {
		select {
		case err := <-done:
			return err
		case <-l.Ended():
			l.Launch(t)
		case <-reap:
			node.ReapOrphans()
		}
	}
}

func newLife(t *testing.T, isKept bool) *life {
	l := &life{faults: newFaults(t), isKept: isKept}
	parent := cgroupParent(t)
	server := startPlain
	if isKept {
		server = func(t *testing.T) *node.Server { return startKept(t, 0) }
	}
	s := server(t)
	s.Import(t, makeImage(t, "../../cri/demo-image"))
	if isKept {
		l.archive = makeImage(t, "./image")
	}
	l.scene = &scene{Server: s, Client: s.Client(t), dir: t.TempDir(), parent: parent}
	l.before = baseline(t, s, l.dir, parent)
	return l
}

func faultPoints(t *testing.T) []string {
	t.Helper()
	raw, err := os.ReadFile("../../io/base/fault_points.h")
	must(t, err)
	var names []string
	for _, match := range regexp.MustCompile(`(?m)^\tX\((\w+)\)`).FindAllSubmatch(raw, -1) {
		names = append(names, string(match[1]))
	}
	if len(names) < 20 || !slices.IsSorted(names) {
		t.Fatalf("the fault points are to be sorted: %v", names)
	}
	return names
}

// everyPassing lives through one fault a step, at its first passing, its second and so on, until
// there is no such passing any more; it says how many faults that were.
func (l *life) everyPassing(t *testing.T, label string, orderOf func(s step, count int) order) int {
	t.Helper()
	total := 0
	for count := 1; ; count++ {
		obeyed := l.live(t, fmt.Sprintf("%s-%d", label, count), func(s step) order { return orderOf(s, count) })
		if obeyed == 0 || t.Failed() {
			return total
		}
		total += obeyed
	}
}

var every = flag.Bool("every", false, "TestFaultPoints: both signals at each point, with a keeper and without, not one with and the other without")

// TestFaultPoints: a server dies behind each durable step of each call, and the repeated call finds or
// makes what the first one was asked for.
func TestFaultPoints(t *testing.T) {
	for k, kind := range []string{"kept", "plain"} {
		t.Run(kind, func(t *testing.T) {
			l := newLife(t, kind == "kept")
			for a, action := range []string{"kill", "term"} {
				for i, point := range faultPoints(t) {
					if !*every && (k+a+i)%2 != 0 {
						continue
					}
					begin := time.Now()
					n := l.everyPassing(t, action+"-"+point, func(s step, count int) order {
						return order{kind: "at", name: point, action: action, count: count}
					})
					t.Logf("%s at %s: %d times, %v", action, point, n, time.Since(begin).Round(time.Millisecond))
					if n == 0 && !mayBeUnpassed(point, l.isKept) {
						t.Errorf("%s is never passed", point)
					}
					if t.Failed() {
						return
					}
				}
			}
		})
	}
}

// mayBeUnpassed: points that need what this server or this life does not have.
func mayBeUnpassed(point string, isKept bool) bool {
	return !isKept && slices.Contains([]string{"descriptor_kept", "image_committed", "layer_moved", "layer_unpacked"}, point)
}

// TestWaits: each suspension of each call fails, times out, is cancelled, or is the server's end; or it
// fails, and undoing what was done fails too.
func TestWaits(t *testing.T) {
	l := newLife(t, true)
	for _, o := range []order{
		{kind: "wait", action: "deadline"}, {kind: "wait", action: "cancel"}, {kind: "work", action: "fail"}, {kind: "work", action: "failing"},
		{kind: "wait", action: "kill"}, {kind: "wait", action: "term"},
	} {
		begin := time.Now()
		n := l.everyPassing(t, o.action, func(s step, count int) order {
			if s.name == "restart" {
				return order{}
			}
			o.name, o.count = task(s), count
			return o
		})
		t.Logf("%s: %d times, %v", o.action, n, time.Since(begin).Round(time.Millisecond))
		if t.Failed() {
			return
		}
	}
}

// task is the name of the task that serves a step.
func task(s step) string {
	switch s.name {
	case "ImportImage":
		return "/crisp.v1.Crisp/Import"
	case "RemoveImage":
		return "/runtime.v1.ImageService/RemoveImage"
	}
	return "/runtime.v1.RuntimeService/" + s.name
}

// TestBackgroundWaits: the same for what the server does behind replies and at its start.
func TestBackgroundWaits(t *testing.T) {
	l := newLife(t, true)
	for _, name := range []string{"container exit", "exec done", "find a sandbox", "adopt a container", "start of a log", "recovery"} {
		for _, o := range []order{{kind: "work", action: "fail"}, {kind: "wait", action: "kill"}} {
			n := l.everyPassing(t, o.action+"-"+name[:4], func(s step, count int) order {
				o.name, o.count = name, count
				return o
			})
			t.Logf("%s in %s: %d times", o.action, name, n)
			if t.Failed() {
				return
			}
		}
	}
}
