// SPDX-License-Identifier: Apache-2.0

package restart

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"crisp/node"
)

// replaceKeeper has the keeper execute the program at its path.
func (s *scene) replaceKeeper(t *testing.T) {
	t.Helper()
	const line = "the keeper was replaced and goes on"
	count := func() int {
		log, err := os.ReadFile(filepath.Join(s.Dir, "log"))
		must(t, err)
		return strings.Count(string(log), line)
	}
	before := count()
	must(t, unix.Kill(s.Own()[0], unix.SIGUSR2))
	node.Eventually(t, 20*time.Second, func() error {
		if count() == before {
			return fmt.Errorf("the keeper was not replaced")
		}
		return nil
	})
}

// TestReplacedKeeperLosesNothing: a new version of crisp is put at the keeper's path, the keeper becomes
// it while containers run, then the server dies. What containers write and how they end before, during
// and after that is all there, for pipes and terminals.
func TestReplacedKeeperLosesNothing(t *testing.T) {
	parent := cgroupParent(t)
	program := filepath.Join(t.TempDir(), "crispd")
	copyFile(t, crispd(t), program)
	s := newScene(t, node.Start(t, program, "--keep", "--restart-delay", "300"), parent)
	const counts = "i=0; while [ $i -lt 150 ]; do echo tick $i; i=$((i+1)); usleep 10000; done; exit 5"
	piped, typed, ended := s.pod("piped"), s.pod("typed"), s.pod("ended")
	typed.Tune = withTerminal
	must(t, piped.Up(node.Demo, "/bin/sh", "-c", counts))
	must(t, typed.Up(node.Demo, "/bin/sh", "-c", counts))
	must(t, ended.Up(node.Demo, "/bin/sh", "-c", "sleep 0.2; echo last; exit 6"))
	keeper := s.Own()[0]
	before, err := s.Pid()
	must(t, err)
	for range 2 {
		copyFile(t, crispd(t), program)
		s.replaceKeeper(t)
	}
	if after, err := s.Pid(); err != nil || after != before || s.Own()[0] != keeper {
		t.Fatalf("the keeper was %d and is %d, its server was %d and is %d, %v", keeper, s.Own()[0], before, after, err)
	}
	for range 3 {
		s.Kill(t)
		s.replaceKeeper(t)
		s.Await(t)
	}
	for p, code := range map[*node.Pod]int32{piped: 5, typed: 5, ended: 6} {
		if status := until(t, p, cri.ContainerState_CONTAINER_EXITED); status.ExitCode != code || status.Reason != "Error" {
			t.Errorf("%s: code %d, reason %s", p.Config.Metadata.Name, status.ExitCode, status.Reason)
		}
	}
	expectAllTicks(t, piped, 150)
	expectAllTicks(t, typed, 150)
	if last, err := lastLine(ended); err != nil || last != "last" {
		t.Errorf("the log ends with %q, %v", last, err)
	}
	s.end(t, piped, typed, ended)
}

// expectAllTicks finds the lines "tick 0", "tick 1" … and nothing else in a log.
func expectAllTicks(t *testing.T, p *node.Pod, count int) {
	t.Helper()
	lines, err := readLog(p.LogFile())
	must(t, err)
	for i := range max(count, len(lines)) {
		if i >= len(lines) || strings.TrimSuffix(lines[i], "\r") != fmt.Sprintf("stdout: tick %d", i) {
			t.Fatalf("%s: line %d of %d is wrong: %q", p.Config.Metadata.Name, i, len(lines), lines[min(i, len(lines)):])
		}
	}
}

// TestBadKeeperIsRefused: a program that is none of ours doesn't take the keeper's place.
func TestBadKeeperIsRefused(t *testing.T) {
	parent := cgroupParent(t)
	program := filepath.Join(t.TempDir(), "crispd")
	copyFile(t, crispd(t), program)
	s := newScene(t, node.Start(t, program, "--keep", "--restart-delay", "300"), parent)
	p := s.pod("ends")
	must(t, p.Up(node.Demo, "/bin/sh", "-c", "sleep 0.5; echo bye; exit 7"))
	must(t, os.Rename(program, program+".good"))
	copyFile(t, "/bin/true", program)
	must(t, unix.Kill(s.Own()[0], unix.SIGUSR2))
	node.Eventually(t, 10*time.Second, func() error {
		if log, err := os.ReadFile(filepath.Join(s.Dir, "log")); err != nil || !strings.Contains(string(log), "can't take over") {
			return fmt.Errorf("nothing is logged, %v", err)
		}
		return nil
	})
	must(t, os.Rename(program+".good", program))
	s.Restart(t)
	if status := until(t, p, cri.ContainerState_CONTAINER_EXITED); status.ExitCode != 7 {
		t.Errorf("code %d, reason %s", status.ExitCode, status.Reason)
	}
	if last, err := lastLine(p); err != nil || last != "bye" {
		t.Errorf("the log ends with %q, %v", last, err)
	}
	s.end(t, p)
}

// TestInterruptedStopIsRepeated: the server dies in the grace period of a stop; the next one's period
// counts from its own beginning.
func TestInterruptedStopIsRepeated(t *testing.T) {
	s := newScene(t, startKept(t, 0), cgroupParent(t))
	p := s.pod("stubborn")
	must(t, p.Up(node.Demo, "/bin/sh", "-c", "trap 'echo term' TERM; echo begun; while :; do sleep 0.05; done"))
	awaitLine(t, p, "begun")
	stopped := make(chan error)
	go func() {
		_, err := node.Call(s.Runtime.StopContainer, &cri.StopContainerRequest{ContainerId: p.Container, Timeout: 20})
		stopped <- err
	}()
	awaitLine(t, p, "term")
	time.Sleep(time.Second)
	s.Restart(t)
	if err := <-stopped; err == nil {
		t.Error("a stop that a dead server began has succeeded")
	}
	if status, err := p.Status(); err != nil || status.State != cri.ContainerState_CONTAINER_RUNNING {
		t.Errorf("after the restart it is %v, %v", status, err)
	}
	begin := time.Now()
	must(t, p.Stop(3))
	took := time.Since(begin)
	status, err := p.Status()
	must(t, err)
	if status.State != cri.ContainerState_CONTAINER_EXITED || status.ExitCode != 137 || took > 4*time.Second || took < 3*time.Second {
		t.Errorf("after %v it is %v, code %d", took, status.State, status.ExitCode)
	}
	s.end(t, p)
}

// oomScore is what protects a process from being killed for memory, -1000 most, or exposes it.
func oomScore(t *testing.T, pid int) int {
	t.Helper()
	raw, err := os.ReadFile(fmt.Sprintf("/proc/%d/oom_score_adj", pid))
	must(t, err)
	score, err := strconv.Atoi(strings.TrimSpace(string(raw)))
	must(t, err)
	return score
}

// TestMemoryIsNotTakenFromTheServer: server and keeper are the last to be killed for memory, where the
// kernel allows that; their log says where not; containers have the score that was asked for.
func TestMemoryIsNotTakenFromTheServer(t *testing.T) {
	parent := cgroupParent(t)
	// one that containers may not inherit, in any case
	want, said := 300, 1
	if exec.Command("/bin/sh", "-c", "echo -999 >/proc/self/oom_score_adj").Run() == nil {
		want, said = -999, 0
	}
	server := node.Start(t, "choom -n 300 -- "+crispd(t), "--keep")
	for _, pid := range server.Own() {
		if score := oomScore(t, pid); score != want {
			t.Errorf("process %d of %v has oom_score_adj %d, not %d", pid, server.Own(), score, want)
		}
	}
	log, err := os.ReadFile(filepath.Join(server.Dir, "log"))
	must(t, err)
	if n := strings.Count(string(log), "oom_score_adj"); n != said {
		t.Errorf("the log speaks of it %d times, not %d", n, said)
	}
	s := newScene(t, server, parent)
	for i, score := range []int{0, 321} {
		p := s.pod(fmt.Sprintf("score-%d", i))
		p.Tune = func(c *cri.ContainerConfig) {
			c.Linux.Resources = &cri.LinuxContainerResources{OomScoreAdj: int64(score)}
		}
		must(t, p.Up(node.Demo, "/bin/sleep", "1000"))
		pid, err := s.mainPid(p)
		must(t, err)
		if found := oomScore(t, pid); found != score {
			t.Errorf("a container has oom_score_adj %d, not %d", found, score)
		}
		s.end(t, p)
	}
}
