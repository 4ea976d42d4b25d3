// SPDX-License-Identifier: Apache-2.0

package restart

import (
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"text/tabwriter"
	"time"

	"golang.org/x/sys/unix"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"crisp/node"
)

var allDeaths = flag.Bool("all-deaths", false, "TestDeaths without a keeper: in each way both reaped and as zombies")

// death is one way for a container to end while no server is there. Its script begins with a line
// "begun", waits, goes on when nobody is there any more, and its main process ends.
type death struct {
	name   string
	script string
	code   int32
	reason string
	last   string // line of its log
	pids   cri.NamespaceMode
	tune   func(*cri.ContainerConfig)
	before func(*dying, *testing.T) // the server dies
	away   func(*dying, *testing.T) // while it is
	after  func(*dying, *testing.T) // another one came: it ran until now
	early  bool                     // it is released as the server dies
}

const (
	own    = cri.NamespaceMode_CONTAINER
	shared = cri.NamespaceMode_POD
	host   = cri.NamespaceMode_NODE
)

// What a script begins with: the pipes are in a directory of the node.
const (
	waits      = "echo begun; read x </go/now; "
	waitsEarly = "echo begun; read x </go/early; "
)

var longLine = strings.Repeat("x", 64<<10)

var deaths = []death{
	{name: "exit 0", script: waits + "echo bye", code: 0, reason: "Completed", last: "bye", pids: own},
	{name: "exit 1", script: waits + "echo bye; exit 1", code: 1, reason: "Error", last: "bye", pids: own},
	{name: "exit 42, stderr", script: waits + "echo bye >&2; exit 42", code: 42, reason: "Error", last: "bye", pids: own},
	{name: "command not found", script: waits + "echo bye; no-such-command 2>/dev/null", code: 127, reason: "Error", last: "bye", pids: own},
	{name: "exit 255", script: waits + "echo bye; exit 255", code: 255, reason: "Error", last: "bye", pids: own},
	{name: "nothing to say", script: waits + "exit 2", code: 2, reason: "Error", last: "begun", pids: own},
	{name: "SIGKILL of the node's", script: "echo begun; sleep 1000", code: 137, reason: "Error", last: "begun", pids: own, away: (*dying).kill},
	{name: "SIGKILL of itself", script: waits + "echo bye; kill -KILL $$", code: 137, reason: "Error", last: "bye", pids: host},
	{name: "SIGTERM", script: waits + "echo bye; kill -TERM $$", code: 143, reason: "Error", last: "bye", pids: shared},
	{name: "SIGSEGV", script: waits + "ulimit -c unlimited; echo bye; kill -SEGV $$", code: 139, reason: "Error", last: "bye", pids: shared},
	{name: "SIGABRT", script: waits + "ulimit -c unlimited; echo bye; kill -ABRT $$", code: 134, reason: "Error", last: "bye", pids: host},
	{name: "out of memory", script: waits + "exec tail /dev/zero", code: 137, reason: "OOMKilled", last: "begun", pids: own, tune: littleMemory},
	{name: "child out of memory", script: waits + "tail /dev/zero; echo bye; exit 5", code: 5, reason: "OOMKilled", last: "bye", pids: own, tune: littleMemory},
	{name: "stop: ends in time", script: "trap 'echo term; read x </go/now; echo bye; exit 7' TERM; echo begun; while :; do sleep 0.02; done", code: 7, reason: "Error", last: "bye", pids: own,
		before: func(d *dying, t *testing.T) { d.stop(t); d.says(t, "term") }},
	{name: "stop: ignored", script: "trap '' TERM; echo begun; read x </go/now; echo bye; sleep 1000", code: 137, reason: "Error", last: "bye", pids: own,
		before: (*dying).stop, after: func(d *dying, t *testing.T) { must(t, d.Stop(0)) }},
	{name: "child holds the pipe", script: waits + "sleep 1000 & echo bye; exit 3", code: 3, reason: "Error", last: "bye", pids: shared},
	{name: "child on the node", script: waits + "setsid sleep 1000 & echo bye; exit 4", code: 4, reason: "Error", last: "bye", pids: host},
	{name: "64 KiB, no newline", script: waits + `head -c 65536 /dev/zero | tr '\0' x; exit 9`, code: 9, reason: "Error", last: longLine, pids: own},
	{name: "terminal", script: "trap '' HUP; " + waits + "echo bye; exit 13", code: 13, reason: "Error", last: "bye", pids: own, tune: withTerminal},
	{name: "terminal, pod's pids", script: "trap '' HUP; " + waits + "echo bye; exit 17", code: 17, reason: "Error", last: "bye", pids: shared, tune: withTerminal},
	{name: "with stdin", script: waits + "echo bye; exit 14", code: 14, reason: "Error", last: "bye", pids: own, tune: func(c *cri.ContainerConfig) { c.Stdin = true }},
	{name: "log was rotated", script: waits + "echo bye; exit 15", code: 15, reason: "Error", last: "bye", pids: own, before: (*dying).rotate},
	{name: "log is renamed meanwhile", script: waits + "echo bye; exit 20", code: 20, reason: "Error", last: "bye", pids: own,
		away: func(d *dying, t *testing.T) { must(t, os.Rename(d.LogFile(), d.LogFile()+".1")) }},
	{name: "an exec runs in it", script: waits + "echo bye; exit 16", code: 16, reason: "Error", last: "bye", pids: own, before: (*dying).exec},
	{name: "user 1000", script: waits + "echo bye; exit 18", code: 18, reason: "Error", last: "bye", pids: own, tune: asUser},
	{name: "as the server dies", script: waitsEarly + "echo bye; exit 19", code: 19, reason: "Error", last: "bye", pids: own, early: true},
	{name: "as it dies, pod's pids", script: waitsEarly + "echo bye; kill -KILL $$", code: 137, reason: "Error", last: "bye", pids: shared, early: true},
}

func littleMemory(c *cri.ContainerConfig) {
	c.Linux.Resources = &cri.LinuxContainerResources{MemoryLimitInBytes: 16 << 20, MemorySwapLimitInBytes: 16 << 20}
}

func asUser(c *cri.ContainerConfig) {
	c.Linux.SecurityContext.RunAsUser = &cri.Int64Value{Value: 1000}
}

// dying is a container of a death.
type dying struct {
	*node.Pod
	kind  death
	s     *scene
	pid   int
	pidfd int
	ended time.Time // as the test saw it
}

// says waits for a line that is the last one.
func (d *dying) says(t *testing.T, text string) {
	t.Helper()
	node.Eventually(t, 10*time.Second, func() error {
		last, err := lastLine(d.Pod)
		if err == nil && last != text {
			err = fmt.Errorf("%s: the log ends with %q", d.kind.name, last)
		}
		return err
	})
}

func (d *dying) stop(t *testing.T) {
	go func() {
		_, _ = node.Call(d.s.Runtime.StopContainer, &cri.StopContainerRequest{ContainerId: d.Container, Timeout: 20})
	}()
}

func (d *dying) kill(t *testing.T) {
	must(t, unix.PidfdSendSignal(d.pidfd, unix.SIGKILL, nil, 0))
}

func (d *dying) rotate(t *testing.T) {
	must(t, os.Rename(d.LogFile(), d.LogFile()+".1"))
	must(t, d.Reopen())
}

func (d *dying) exec(t *testing.T) {
	go func() {
		_, _ = node.Call(d.s.Runtime.ExecSync, &cri.ExecSyncRequest{ContainerId: d.Container, Cmd: []string{"/bin/sh", "-c", "echo begun >/go/exec; sleep 1000"}, Timeout: 100})
	}()
	node.Eventually(t, 5*time.Second, func() error { _, err := os.Stat(filepath.Join(d.s.dir, "go", "exec")); return err })
	must(t, os.Remove(filepath.Join(d.s.dir, "go", "exec")))
}

// mainPid is the container's main process, as the node sees it.
func (s *scene) mainPid(p *node.Pod) (int, error) {
	r, err := node.Call(s.Runtime.ContainerStatus, &cri.ContainerStatusRequest{ContainerId: p.Container, Verbose: true})
	if err != nil {
		return 0, err
	}
	var info struct{ Pid int }
	for _, text := range r.Info {
		if err := json.Unmarshal([]byte(text), &info); err != nil {
			return 0, err
		}
	}
	return info.Pid, nil
}

// lastLine is the last whole line of a log, or of the one that it was before it was renamed, without a
// terminal's carriage return.
func lastLine(p *node.Pod) (string, error) {
	lines, err := readLog(p.LogFile())
	if os.IsNotExist(err) {
		lines, err = readLog(p.LogFile() + ".1")
	}
	if err != nil || len(lines) == 0 {
		return "", err
	}
	_, text, _ := strings.Cut(lines[len(lines)-1], ": ")
	return strings.TrimSuffix(text, "\r"), nil
}

// situation is what is left of crisp when containers die, and how it came to that.
type situation struct {
	way       string // "kill", "term" or "upgrade"
	isKept    bool   // a keeper is there all the time
	isOld     bool   // the kernel forgets how a process ended that was reaped
	areReaped bool   // somebody reaps them before the next server comes
}

// mayBeUnknown: nobody can know how it ended.
func (w situation) mayBeUnknown(d *dying) bool {
	return w.isOld && w.areReaped && !w.isKept && d.kind.after == nil
}

// mayBeLost: what it wrote last was in a pipe that nobody had open any more.
func (w situation) mayBeLost(d *dying) bool {
	return !w.isKept && d.kind.after == nil && !strings.HasPrefix(d.kind.name, "child holds") && !strings.HasPrefix(d.kind.name, "child on")
}

// deathScene is a server that dies again and again, with containers of all kinds each time.
type deathScene struct {
	*scene
	program    string
	now, early *os.File // what containers wait for
	keeperDies bool
	runs       int
}

func newDeathScene(t *testing.T, hasKeeper, keeperDies bool) *deathScene {
	t.Helper()
	parent := cgroupParent(t)
	program := filepath.Join(t.TempDir(), "crispd")
	copyFile(t, crispd(t), program)
	options := []string{}
	if hasKeeper {
		// finished_at is true only if it isn't when the server came back
		options = append(options, "--keep", "--restart-delay", "1300")
	}
	s := &deathScene{scene: newScene(t, node.Start(t, program, options...), parent), program: program, keeperDies: keeperDies}
	must(t, os.Mkdir(filepath.Join(s.dir, "go"), 0o777))
	must(t, os.Chmod(filepath.Join(s.dir, "go"), 0o777))
	s.now, s.early = s.fifo(t, "now"), s.fifo(t, "early")
	return s
}

// fifo is open at both ends, so that nobody waits to open it.
func (s *deathScene) fifo(t *testing.T, name string) *os.File {
	t.Helper()
	path := filepath.Join(s.dir, "go", name)
	must(t, unix.Mkfifo(path, 0o666))
	must(t, os.Chmod(path, 0o666))
	file, err := os.OpenFile(path, os.O_RDWR, 0)
	must(t, err)
	t.Cleanup(func() { file.Close() })
	return file
}

func copyFile(t *testing.T, from, to string) {
	t.Helper()
	data, err := os.ReadFile(from)
	must(t, err)
	must(t, os.WriteFile(to+".new", data, 0o755))
	must(t, os.Rename(to+".new", to))
}

// begin starts a container of each kind, and returns when all of them wait.
func (s *deathScene) begin(t *testing.T) []*dying {
	t.Helper()
	var all []*dying
	s.runs++
	for i, kind := range deaths {
		d := &dying{Pod: s.pod(fmt.Sprintf("death-%d-%d", s.runs, i)), kind: kind, s: s.scene}
		d.Config.Linux.SecurityContext.NamespaceOptions.Pid = kind.pids
		d.Tune = func(c *cri.ContainerConfig) {
			c.Mounts = append(c.Mounts, &cri.Mount{ContainerPath: "/go", HostPath: filepath.Join(s.dir, "go")})
			if kind.tune != nil {
				kind.tune(c)
			}
		}
		all = append(all, d)
	}
	must(t, atOnce(all, func(d *dying) error { return d.Up(node.Demo, "/bin/sh", "-c", d.kind.script) }))
	for _, d := range all {
		d.says(t, "begun")
		pid, err := s.mainPid(d.Pod)
		must(t, err)
		d.pid = pid
		d.pidfd, err = unix.PidfdOpen(pid, 0)
		must(t, err)
		if d.kind.before != nil {
			d.kind.before(d, t)
		}
	}
	return all
}

// atOnce does something to all of them.
func atOnce(all []*dying, f func(*dying) error) error {
	errs := make([]error, len(all))
	var busy sync.WaitGroup
	for i, d := range all {
		busy.Go(func() { errs[i] = f(d) })
	}
	busy.Wait()
	return errors.Join(errs...)
}

// release lets all that wait go on.
func release(t *testing.T, fifo *os.File) {
	t.Helper()
	_, err := io.WriteString(fifo, strings.Repeat("\n", len(deaths)))
	must(t, err)
}

// drain takes what was too much.
func drain(fifo *os.File) {
	_ = unix.SetNonblock(int(fifo.Fd()), true)
	_, _ = unix.Read(int(fifo.Fd()), make([]byte, 1000))
	_ = unix.SetNonblock(int(fifo.Fd()), false)
}

// away ends the server, and all containers that don't outlive it.
func (s *deathScene) away(t *testing.T, w situation, all []*dying) {
	t.Helper()
	signal := unix.SIGKILL
	switch w.way {
	case "term":
		signal = unix.SIGTERM
	case "upgrade":
		copyFile(t, crispd(t), s.program)
		if w.isKept {
			s.replaceKeeper(t)
		}
	}
	if s.keeperDies {
		s.KillKeeper(t)
	}
	release(t, s.early)
	s.KillBy(t, signal)
	release(t, s.now)
	for _, d := range all {
		if d.kind.away != nil {
			d.kind.away(d, t)
		}
	}
	awaitDeaths(t, w, all, func(d *dying) bool { return d.kind.after == nil })
	drain(s.now)
	drain(s.early)
}

// awaitDeaths notes when each of them dies. Without a keeper we are their parent: zombies stay if they
// shall, but for those that a dying pid namespace waits for.
func awaitDeaths(t *testing.T, w situation, all []*dying, dies func(*dying) bool) {
	t.Helper()
	node.Eventually(t, 10*time.Second, func() error {
		var mains []int
		var waits error
		for _, d := range all {
			poll := []unix.PollFd{{Fd: int32(d.pidfd), Events: unix.POLLIN}}
			if n, _ := unix.Poll(poll, 0); n == 1 && d.ended.IsZero() {
				d.ended = time.Now()
			}
			if d.ended.IsZero() && dies(d) {
				waits = fmt.Errorf("%s doesn't end", d.kind.name)
			}
			mains = append(mains, d.pid)
		}
		switch {
		case w.isKept:
		case w.areReaped:
			node.ReapOrphans()
		default:
			node.ReapOrphans(mains...)
		}
		return waits
	})
}

// back has a server again.
func (s *deathScene) back(t *testing.T, w situation, all []*dying) {
	t.Helper()
	if w.isKept {
		s.Await(t)
	} else {
		s.Run(t)
	}
	for _, d := range all {
		if d.kind.after != nil {
			d.kind.after(d, t)
		}
	}
	awaitDeaths(t, w, all, func(*dying) bool { return true })
}

// look tells how a container ended as the server says, and complains when that isn't right.
func (d *dying) look(t *testing.T, w situation) string {
	t.Helper()
	status := until(t, d.Pod, cri.ContainerState_CONTAINER_EXITED)
	last, err := lastLine(d.Pod)
	must(t, err)
	finished := time.Unix(0, status.FinishedAt).Sub(d.ended)
	cell := fmt.Sprintf("%d %s %+.2f %.8q", status.ExitCode, status.Reason, finished.Seconds(), last)
	isRight := status.ExitCode == d.kind.code && status.Reason == d.kind.reason
	isUnknown := status.ExitCode == 255 && status.Reason == "Unknown"
	if !isRight && !(isUnknown && w.mayBeUnknown(d)) {
		t.Errorf("%s: code %d, reason %q (%s)", d.kind.name, status.ExitCode, status.Reason, status.Message)
		cell += " WRONG"
	}
	// we look every few milliseconds; without a keeper it is when the next server came
	if early := finished < -time.Second; early || (finished > time.Second && (w.isKept || d.kind.after != nil)) {
		t.Errorf("%s: finished %v after its end", d.kind.name, finished)
		cell += " WRONG TIME"
	}
	isLost := (last == "" || last == "begun" || last == "term") && w.mayBeLost(d)
	if last != d.kind.last && !isLost {
		t.Errorf("%s: the log ends with %.100q", d.kind.name, last)
		cell += " WRONG LINE"
	}
	return cell
}

// run is one life and death of all kinds; it returns a cell for each.
func (s *deathScene) run(t *testing.T, w situation) []string {
	t.Helper()
	all := s.begin(t)
	s.away(t, w, all)
	s.back(t, w, all)
	var cells []string
	for _, d := range all {
		cells = append(cells, d.look(t, w))
	}
	if !w.isKept {
		// a pid namespace doesn't end before them
		node.ReapOrphans()
	}
	must(t, atOnce(all, func(d *dying) error { return d.Remove() }))
	for _, d := range all {
		unix.Close(d.pidfd)
	}
	return cells
}

// TestDeaths: containers that end while no server is there, in every way and for whoever is left to see
// it, have their exit code, reason, time and last line, as far as anybody can know. What nobody can
// know is 255 with a reason of its own.
func TestDeaths(t *testing.T) {
	for _, c := range []struct {
		name                  string
		hasKeeper, keeperDies bool
	}{
		{"keeper", true, false}, {"keeper dies too", true, true}, {"no keeper", false, false},
	} {
		for _, isOld := range []bool{false, true} {
			name := c.name + ", this kernel"
			if isOld {
				name = c.name + ", kernel before 6.15"
			}
			t.Run(name, func(t *testing.T) {
				if !isOld && !kernelKeepsExitStatus() {
					t.Skip("needs Linux 6.15, whose pidfds keep an exit status")
				}
				if isOld {
					t.Setenv("CRISP_NO_PIDFD_INFO", "1")
				}
				s := newDeathScene(t, c.hasKeeper, c.keeperDies)
				var header []string
				rows := make([][]string, len(deaths))
				for _, w := range situations(c.hasKeeper && !c.keeperDies, c.keeperDies, isOld) {
					header = append(header, w.String())
					for i, cell := range s.run(t, w) {
						rows[i] = append(rows[i], cell)
					}
				}
				printTable(t, header, rows)
				s.end(t)
			})
		}
	}
}

// situations are all of the keeper's, and of those without one every other, unless all are asked for.
func situations(isKept, keeperDies, isOld bool) []situation {
	var all []situation
	for i, way := range []string{"kill", "term", "upgrade"} {
		for _, areReaped := range []bool{true, false} {
			isEvery := *allDeaths || areReaped == (keeperDies == (i%2 == 0))
			if isKept && areReaped || !isKept && isEvery {
				all = append(all, situation{way, isKept, isOld, areReaped})
			}
		}
	}
	return all
}

func (w situation) String() string {
	if !w.areReaped {
		return w.way + ", zombies"
	}
	return w.way
}

// printTable says for each kind and way: code, reason, seconds from the end to finished_at, last line.
func printTable(t *testing.T, header []string, rows [][]string) {
	var text strings.Builder
	table := tabwriter.NewWriter(&text, 0, 0, 2, ' ', 0)
	fmt.Fprintf(table, "\t%s\n", strings.Join(header, "\t"))
	for i, cells := range rows {
		fmt.Fprintf(table, "%s\t%s\n", deaths[i].name, strings.Join(cells, "\t"))
	}
	table.Flush()
	t.Logf("code, reason, seconds too late, last line:\n%s", text.String())
}
