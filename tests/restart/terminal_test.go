// SPDX-License-Identifier: Apache-2.0

package restart

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"crisp/node"
)

// terminal is the master of the only terminal; what attach will have, until it exists.
func (s *scene) terminal(t *testing.T) *os.File {
	t.Helper()
	return s.Borrow(t, func(link string) bool { return filepath.Base(link) == "ptmx" })
}

func withTerminal(c *cri.ContainerConfig) {
	c.Tty, c.Stdin = true, true
}

// write types, or pipes.
func write(t *testing.T, to *os.File, text string) {
	t.Helper()
	if n, err := unix.Write(int(to.Fd()), []byte(text)); n != len(text) {
		t.Fatalf("%d of %d bytes went in: %v", n, len(text), err)
	}
}

// awaitLine waits for a line of stdout.
func awaitLine(t *testing.T, p *node.Pod, text string) {
	t.Helper()
	node.Eventually(t, 10*time.Second, func() error {
		lines, err := readLog(p.LogFile())
		if err == nil && !slices.Contains(lines, "stdout: "+text) {
			err = fmt.Errorf("%q isn't in the log: %q", text, lines[max(0, len(lines)-10):])
		}
		return err
	})
}

// expectTicks finds the lines "tick 0", "tick 1" … each once and in order among the others.
func expectTicks(t *testing.T, p *node.Pod, atLeast int) {
	t.Helper()
	lines, err := readLog(p.LogFile())
	must(t, err)
	next := 0
	for _, line := range lines {
		number, isTick := strings.CutPrefix(line, "stdout: tick ")
		if !isTick {
			continue
		}
		if strings.TrimSuffix(number, "\r") != fmt.Sprint(next) {
			t.Fatalf("%q, but tick %d was to come", line, next)
		}
		next++
	}
	if next < atLeast {
		t.Errorf("only %d ticks", next)
	}
}

// TestTerminalSurvives: output that was written to a container's terminal while the server was away is
// in the log, the window's size is kept and what is typed reaches the process, after two restarts in a row.
func TestTerminalSurvives(t *testing.T) {
	s := newScene(t, startKept(t, 200), cgroupParent(t))
	p := s.pod("terminal")
	p.Tune = withTerminal
	must(t, p.Up(node.Demo, "/bin/sh", "-c", `stty -echo -onlcr
(i=0; while [ ! -e /over ]; do echo tick $i; i=$((i+1)); done; echo ticked) &
while read word; do echo "got $word at $(stty size)"; done`))
	size := &unix.Winsize{Row: 33, Col: 77}
	must(t, unix.IoctlSetWinsize(int(s.terminal(t).Fd()), unix.TIOCSWINSZ, size))
	for i := range 3 {
		master := s.terminal(t)
		if got, err := unix.IoctlGetWinsize(int(master.Fd()), unix.TIOCGWINSZ); err != nil || got.Row != size.Row || got.Col != size.Col {
			t.Errorf("after %d rounds the window is %v, %v", i, got, err)
		}
		write(t, master, fmt.Sprintf("word%d\n", i))
		awaitLine(t, p, fmt.Sprintf("got word%d at 33 77", i))
		s.Restart(t)
		s.Restart(t)
	}
	// typed while nobody is there
	master := s.terminal(t)
	s.Kill(t)
	write(t, master, "meanwhile\n")
	master.Close()
	s.Await(t)
	awaitLine(t, p, "got meanwhile at 33 77")
	if r, err := p.Exec("/bin/touch", "/over"); err != nil || r.ExitCode != 0 {
		t.Fatal(r, err)
	}
	awaitLine(t, p, "ticked")
	expectTicks(t, p, 1000)
	s.end(t, p)
}

// TestTerminalEndsWhileAway: the last words on a terminal are in the log though its container ended
// before the next server came.
func TestTerminalEndsWhileAway(t *testing.T) {
	s := newScene(t, startKept(t, 700), cgroupParent(t))
	p := s.pod("ends")
	p.Tune = withTerminal
	must(t, p.Up(node.Demo, "/bin/sh", "-c", `stty -onlcr; echo ready; read word; sleep 0.3
i=0; while [ $i -lt 3000 ]; do echo tick $i; i=$((i+1)); done; printf 'last %s' "$word"; exit 42`))
	awaitLine(t, p, "ready")
	write(t, s.terminal(t), "word\n")
	awaitLine(t, p, "word") // its echo
	s.Kill(t)
	s.Await(t)
	if status := until(t, p, cri.ContainerState_CONTAINER_EXITED); status.ExitCode != 42 {
		t.Errorf("exit code %d, reason %q", status.ExitCode, status.Reason)
	}
	awaitLine(t, p, "last word")
	expectTicks(t, p, 3000)
	s.end(t, p)
}

// TestTerminalThatIsReopened: a program may close its terminal and open it again, as an init does with
// its console, also while the server is away; it is the same terminal.
func TestTerminalThatIsReopened(t *testing.T) {
	s := newScene(t, startKept(t, 300), cgroupParent(t))
	p := s.pod("reopened")
	p.Tune = withTerminal
	must(t, p.Up(node.Demo, "/bin/sh", "-c", `stty -onlcr -echo; echo first; exec <&- >&- 2>&-; sleep 0.3
i=0; while [ $i -lt 10 ]; do echo tick $i >/dev/console; i=$((i+1)); sleep 0.1; done
exec </dev/console >/dev/console; echo again; read word; echo "got $word"`))
	awaitLine(t, p, "tick 2")
	s.Restart(t)
	awaitLine(t, p, "again")
	write(t, s.terminal(t), "word\n")
	until(t, p, cri.ContainerState_CONTAINER_EXITED)
	awaitLine(t, p, "got word")
	expectTicks(t, p, 10)
	s.end(t, p)
}

// TestStdinStaysOpen: the stdin of a container without a terminal is not closed by a restart, and what
// is in its pipe is read once.
func TestStdinStaysOpen(t *testing.T) {
	s := newScene(t, startKept(t, 200), cgroupParent(t))
	p := s.pod("stdin")
	p.Tune = func(c *cri.ContainerConfig) { c.Stdin = true }
	must(t, p.Up(node.Demo, "/bin/sh", "-c", `while read word; do echo "got $word"; done; echo closed; exit 3`))
	stdin := func() *os.File {
		return s.Borrow(t, func(link string) bool { return strings.HasSuffix(link, p.Container+"/0") })
	}
	var want []string
	for i := range 3 {
		own := stdin()
		write(t, own, fmt.Sprintf("before %d\n", i))
		s.Kill(t)
		write(t, own, fmt.Sprintf("meanwhile %d\n", i))
		own.Close()
		s.Await(t)
		s.Restart(t)
		own = stdin()
		write(t, own, fmt.Sprintf("after %d\n", i))
		own.Close()
		want = append(want, fmt.Sprintf("stdout: got before %d", i), fmt.Sprintf("stdout: got meanwhile %d", i), fmt.Sprintf("stdout: got after %d", i))
	}
	awaitLine(t, p, "got after 2")
	if lines, err := readLog(p.LogFile()); err != nil || !slices.Equal(lines, want) {
		t.Errorf("the log is %q, %v", lines, err)
	}
	if status, err := p.Status(); err != nil || status.State != cri.ContainerState_CONTAINER_RUNNING {
		t.Errorf("it is %v, %v", status, err)
	}
	s.end(t, p)
}
