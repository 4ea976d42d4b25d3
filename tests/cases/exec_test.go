// SPDX-License-Identifier: Apache-2.0

package cases

import (
	"bytes"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"crisp/node"
)

// TestExec: what ExecSync answers, when, and what it leaves.
func TestExec(t *testing.T) {
	s := newScene(t)
	for _, c := range []struct {
		name string
		test func(*testing.T, *scene)
	}{
		{"ends with its command, not with a child that holds the pipe", execEndsWithCommand},
		{"that takes too long ends with all that it started", execTimeLimit},
		{"with endless output returns the first 16 MiB and the exit code", execLargeOutput},
		{"of a command killed by a signal is 128 + its number", execSignal},
		{"of a missing program names it", execMissingProgram},
		{"is refused where nothing runs", execNothingRuns},
		{"leaves nothing after 1000 times", execLeavesNothing},
	} {
		t.Run(c.name, func(t *testing.T) { c.test(t, s) })
	}
}

func execEndsWithCommand(t *testing.T, s *scene) {
	p := s.sleeper(t, "background")
	for _, child := range []string{"sleep 8", "while :; do echo more; echo more >&2; done", "trap '' HUP TERM; sleep 8 >&2"} {
		begin := time.Now()
		// with and without a limit
		for _, limit := range []int64{2, 0} {
			r, err := s.exec(p, limit, "/bin/sh", "-c", "echo hi; ("+child+") & exit 4")
			if took := time.Since(begin); took > 700*time.Millisecond {
				t.Errorf("%s: it took %v", child, took)
			}
			if err != nil || r.ExitCode != 4 || !bytes.HasPrefix(r.Stdout, []byte("hi\n")) {
				t.Errorf("%s: %v, %v", child, r, err)
			}
			begin = time.Now()
		}
	}
	s.end(t, p)
}

func execTimeLimit(t *testing.T, s *scene) {
	p := s.sleeper(t, "limit")
	number := uniqueNumber()
	var all sync.WaitGroup
	for _, script := range []string{
		"exec sleep " + number,
		"sleep " + number + " & sleep " + number,
		"setsid sh -c 'setsid sleep " + number + " & sleep " + number + " &' & sleep " + number,
		"trap '' TERM; while :; do sleep " + number + "; done",
	} {
		all.Go(func() {
			begin := time.Now()
			_, err := s.exec(p, 2, "/bin/sh", "-c", script)
			took := time.Since(begin)
			refused(t, err, codes.DeadlineExceeded)
			if took < 1700*time.Millisecond || took > 2300*time.Millisecond {
				t.Errorf("%s: it took %v", script, took)
			}
		})
	}
	time.Sleep(time.Second)
	if n := withArgument(number); n != 7 {
		t.Errorf("%d processes run", n)
	}
	all.Wait()
	if n := withArgument(number); n > 0 {
		t.Errorf("%d processes go on", n)
	}
	if status, err := p.Status(); err != nil || status.State != cri.ContainerState_CONTAINER_RUNNING {
		t.Errorf("the container is %v, %v", status, err)
	}
	s.end(t, p)
}

func execLargeOutput(t *testing.T, s *scene) {
	const limit, written = 16 << 20, 200 << 20
	p := s.sleeper(t, "large")
	before := s.self(t, "VmRSS")
	for range 2 {
		r, err := s.exec(p, 60, "/bin/sh", "-c", fmt.Sprintf("echo begin; head -c %d /dev/zero; echo text >&2; exit 3", written))
		must(t, err)
		if r.ExitCode != 3 || len(r.Stdout) != limit || string(r.Stderr) != "text\n" {
			t.Errorf("exit code %d, %d bytes, stderr %q", r.ExitCode, len(r.Stdout), r.Stderr)
		}
		if !bytes.HasPrefix(r.Stdout, []byte("begin\n\x00")) {
			t.Errorf("it begins with %q", r.Stdout[:min(20, len(r.Stdout))])
		}
	}
	gained, peak := s.self(t, "VmRSS")-before, s.self(t, "VmHWM")-before
	t.Logf("the server gained %d kB, at most %d kB", gained, peak)
	if !s.isSanitized() && (gained > 64<<10 || peak > 128<<10) {
		t.Errorf("the server gained %d kB, at most %d kB", gained, peak)
	}
	s.end(t, p)
}

func execSignal(t *testing.T, s *scene) {
	p := s.sleeper(t, "signal")
	for script, code := range map[string]int32{"kill -9 $$": 137, "kill -15 $$": 143, "exit 255": 255, "kill -11 $$": 139} {
		if r, err := s.exec(p, 10, "/bin/sh", "-c", script); err != nil || r.ExitCode != code {
			t.Errorf("%s: %v, %v", script, r, err)
		}
	}
	s.end(t, p)
}

func execMissingProgram(t *testing.T, s *scene) {
	p := s.sleeper(t, "missing")
	pid, err := s.Pid()
	must(t, err)
	for _, program := range []string{"/no/such/program", "no-such-program", "/etc/passwd", "/etc"} {
		_, err := s.exec(p, 10, program, "argument")
		if err == nil || !strings.Contains(err.Error(), program) {
			t.Errorf("%s: %v", program, err)
		}
	}
	_, err = s.exec(p, 10)
	refused(t, err, codes.InvalidArgument)
	if after, err := s.Pid(); err != nil || after != pid {
		t.Errorf("the server was %d, and is %d, %v", pid, after, err)
	}
	s.end(t, p)
}

func execNothingRuns(t *testing.T, s *scene) {
	p := s.pod("nothing")
	must(t, p.Run())
	must(t, p.Create(node.Demo, "/bin/sleep", "1000"))
	_, err := s.exec(p, 10, "/bin/true")
	refused(t, err, codes.FailedPrecondition, p.Container)
	must(t, p.Start())
	must(t, p.Stop(0))
	_, err = s.exec(p, 10, "/bin/true")
	refused(t, err, codes.FailedPrecondition, p.Container)
	s.end(t, p)
	for _, id := range []string{p.Container, strings.Repeat("0", 64), "../" + p.Container, "x"} {
		_, err = s.exec(&node.Pod{Container: id}, 10, "/bin/true")
		refused(t, err, codes.NotFound)
	}
}

var execs = flag.Int("execs", 1000, "how many ExecSync leave nothing, twenty at once")

func execLeavesNothing(t *testing.T, s *scene) {
	p := s.sleeper(t, "thousand")
	many := func(n int) {
		const sideBySide = 20
		var all sync.WaitGroup
		for range sideBySide {
			all.Go(func() {
				for range n / sideBySide {
					if r, err := s.exec(p, 10, "/bin/true"); err != nil || r.ExitCode != 0 {
						t.Errorf("%v, %v", r, err)
						return
					}
				}
			})
		}
		all.Wait()
	}
	count := func() (descriptors, tasks, resident int) {
		pid, err := s.Pid()
		must(t, err)
		fds, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", pid))
		must(t, err)
		threads, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*", pid))
		must(t, err)
		return len(fds), len(threads), s.self(t, "VmRSS")
	}
	many(200)
	others := len(s.Others())
	descriptors, tasks, resident := count()
	begin, used := time.Now(), s.processorTime(t)
	many(*execs)
	t.Logf("%d execs in %v, for each %.3f ms of the server's processor time", *execs,
		time.Since(begin).Round(time.Millisecond), (s.processorTime(t)-used).Seconds()*1000/float64(*execs))
	// the pool's threads end when they have been idle for a while
	node.Eventually(t, 20*time.Second, func() error {
		if n := len(s.Others()); n != others {
			return fmt.Errorf("%d processes were there, and %d are: %v", others, n, s.Others())
		}
		d, n, r := count()
		if d > descriptors || n > tasks || (!s.isSanitized() && r > resident+2<<10) {
			return fmt.Errorf("%d descriptors, %d tasks, %d kB are now %d, %d, %d", descriptors, tasks, resident, d, n, r)
		}
		t.Logf("%d descriptors, %d tasks, %d kB are now %d, %d, %d", descriptors, tasks, resident, d, n, r)
		return nil
	})
	s.end(t, p)
}
