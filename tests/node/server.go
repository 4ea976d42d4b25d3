// SPDX-License-Identifier: Apache-2.0

// Package node is one crispd as a test sees it: started in directories of its own, killed, started
// again, asked by gRPC, and searched for what it left on the machine.
package node

import (
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// Server is a crispd of ours, with its keeper if it was started with --keep; or one that somebody
// else runs, of which only the socket is known.
type Server struct {
	Socket  string
	Dir     string // root, state and log beneath it; empty if the server is not ours
	command []string
	process *exec.Cmd // the keeper, or the server
	ended   chan error
	logFile *os.File
	client  *Client
	// Passed are descriptors that the program gets as 3, 4 …
	Passed []*os.File
}

var sanitizerReport = regexp.MustCompile(`(?m)^.*(ERROR: AddressSanitizer|runtime error:).*$`)

// NeedEnv is the value of a variable without which the test makes no sense.
func NeedEnv(t testing.TB, name, what string) string {
	t.Helper()
	value := os.Getenv(name)
	if value == "" {
		t.Fatalf("set %s to %s", name, what)
	}
	return value
}

// Start runs crispd (a program, maybe with options) and waits until it answers. What it leaves
// becomes our child and can be seen. It is stopped when the test ends.
func Start(t testing.TB, crispd string, options ...string) *Server {
	t.Helper()
	if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil {
		t.Fatal(err)
	}
	// a socket's path can't be longer than 107 bytes, so no test's name may be in it
	dir, err := os.MkdirTemp("", "crisp-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := os.RemoveAll(dir); err != nil {
			t.Error(err)
		}
	})
	s := &Server{Dir: dir}
	s.Socket = filepath.Join(s.Dir, "crispd.sock")
	s.command = append(strings.Fields(crispd), "--root", filepath.Join(s.Dir, "root"),
		"--state", filepath.Join(s.Dir, "state"), "--listen", s.Socket)
	s.command = append(s.command, options...)
	s.logFile, err = os.Create(filepath.Join(s.Dir, "log"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.stop(t) })
	s.Run(t)
	return s
}

// Attach is for a server that runs already.
func Attach(socket string) *Server {
	return &Server{Socket: socket}
}

// Run starts the program, at first and after the end of a server without a keeper, and waits until it
// answers.
func (s *Server) Run(t testing.TB) {
	t.Helper()
	s.Launch(t)
	s.Await(t)
}

// Launch is Run without the wait.
func (s *Server) Launch(t testing.TB) {
	t.Helper()
	s.process = exec.Command(s.command[0], s.command[1:]...)
	s.process.Stdout, s.process.Stderr, s.process.ExtraFiles = s.logFile, s.logFile, s.Passed
	if err := s.process.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	process := s.process
	go func() { ended <- process.Wait() }()
	s.ended = ended
}

// Await returns when the server answers.
func (s *Server) Await(t testing.TB) {
	t.Helper()
	Eventually(t, 20*time.Second, func() error {
		select {
		case err := <-s.ended:
			s.ended <- err
			t.Fatalf("crispd ended before it answered: %v", err)
		default:
		}
		_, err := s.Pid()
		return err
	})
	s.Client(t).version(t)
}

func (s *Server) stop(t testing.TB) {
	if s.client != nil {
		s.client.conn.Close()
	}
	if s.process != nil && s.process.Process != nil {
		_ = s.process.Process.Signal(unix.SIGTERM)
		select {
		case <-s.ended:
		case <-time.After(10 * time.Second):
			t.Error("crispd still runs 10 s after SIGTERM")
			_ = s.process.Process.Kill()
			<-s.ended
		}
	}
	log, _ := os.ReadFile(filepath.Join(s.Dir, "log"))
	// its keeper would have started another one
	if report := sanitizerReport.Find(log); report != nil {
		t.Errorf("a sanitizer ended crispd: %s", report)
	}
	if t.Failed() {
		t.Logf("the end of crispd's log:\n%s", log[max(0, len(log)-20000):])
	}
	s.logFile.Close()
	// containers outlive a server, and so does what a failed test left
	for pid := range descendants() {
		_ = unix.Kill(pid, unix.SIGKILL)
	}
	// two host mounts are the server's own (its pins); the temporary directory can't go with them
	for _, m := range MountsBelow(s.Dir) {
		if err := unix.Unmount(m, unix.MNT_DETACH); err != nil {
			t.Errorf("unmount %s: %v", m, err)
		}
	}
	ReapOrphans()
}

// Pid is the process that made the socket listen: the server, never its keeper.
func (s *Server) Pid() (int, error) {
	conn, err := net.DialUnix("unix", nil, &net.UnixAddr{Name: s.Socket, Net: "unix"})
	if err != nil {
		return 0, err
	}
	defer conn.Close()
	raw, err := conn.SyscallConn()
	if err != nil {
		return 0, err
	}
	var who *unix.Ucred
	var failure error
	err = raw.Control(func(fd uintptr) {
		who, failure = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED)
	})
	if err != nil || failure != nil {
		return 0, fmt.Errorf("%v, %v", err, failure)
	}
	return int(who.Pid), nil
}

// IsKept says whether a keeper is there to start the server again.
func (s *Server) IsKept() bool {
	return slices.Contains(s.command, "--keep")
}

// Own are the pids of the server and its keeper.
func (s *Server) Own() []int {
	own := []int{s.process.Process.Pid}
	if pid, err := s.Pid(); err == nil && pid != own[0] {
		own = append(own, pid)
	}
	return own
}

// Kill is kill -9 of the server alone, and returns when it is gone.
func (s *Server) Kill(t testing.TB) {
	t.Helper()
	s.KillBy(t, unix.SIGKILL)
}

// KillBy is the same by another signal.
func (s *Server) KillBy(t testing.TB, signal unix.Signal) {
	t.Helper()
	pid, err := s.Pid()
	if err != nil {
		t.Fatalf("no server to kill: %v", err)
	}
	if parent := parentOf(pid); parent != s.process.Process.Pid && parent != os.Getpid() {
		t.Fatalf("process %d is to be killed, but is a child of %d, neither the keeper's nor ours", pid, parent)
	}
	fd, err := unix.PidfdOpen(pid, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fd)
	if err := unix.PidfdSendSignal(fd, signal, nil, 0); err != nil {
		t.Fatal(err)
	}
	poll := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}
	for {
		n, err := unix.Poll(poll, 10000)
		if err == unix.EINTR {
			continue
		}
		if n != 1 {
			t.Fatalf("process %d doesn't die", pid)
		}
		break
	}
	if !s.IsKept() {
		s.ended <- <-s.ended
	}
}

// KillKeeper is kill -9 of the keeper alone, and returns when it is gone. Run starts another one, once
// the server is gone too.
func (s *Server) KillKeeper(t testing.TB) {
	t.Helper()
	s.KillKeeperBy(t, unix.SIGKILL)
}

// KillKeeperBy is the same by another signal; SIGTERM ends its server, too.
func (s *Server) KillKeeperBy(t testing.TB, signal unix.Signal) {
	t.Helper()
	if err := s.process.Process.Signal(signal); err != nil {
		t.Fatal(err)
	}
	s.ended <- <-s.ended
}

// HoldKeeper stops the keeper, so that no server comes in place of one that is killed until it is let
// go on.
func (s *Server) HoldKeeper(t testing.TB) (goOn func()) {
	t.Helper()
	if err := s.process.Process.Signal(unix.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	return func() {
		if err := s.process.Process.Signal(unix.SIGCONT); err != nil {
			t.Fatal(err)
		}
	}
}

// Log is what all servers have written to it so far.
func (s *Server) Log(t testing.TB) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(s.Dir, "log"))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// KillOthers kills what a server that is gone has left, and waits until it has ended.
func (s *Server) KillOthers() {
	for pid := range s.Others() {
		_ = unix.Kill(pid, unix.SIGKILL)
	}
	for end := time.Now().Add(5 * time.Second); len(s.Others()) > 0 && time.Now().Before(end); {
		ReapOrphans()
		time.Sleep(time.Millisecond)
	}
}

// Ended says that a server without a keeper has ended: start it again by Run. Never, for one with.
func (s *Server) Ended() <-chan error {
	if s.IsKept() {
		return nil
	}
	return s.ended
}

// Restart kills the server and waits until another one answers.
func (s *Server) Restart(t testing.TB) {
	t.Helper()
	s.Kill(t)
	if !s.IsKept() {
		ReapOrphans()
		s.Run(t)
		return
	}
	s.Await(t)
}

// Import has the server take in an archive.
func (s *Server) Import(t testing.TB, archive string) {
	t.Helper()
	crisp := NeedEnv(t, "CRISP", "crisp, the command line program")
	if out, err := exec.Command(crisp, "--address", s.Socket, "import", archive).CombinedOutput(); err != nil {
		t.Fatalf("crisp import: %v: %s", err, out)
	}
}

// ReapOrphans does what PID 1 does: takes the status of dead children, but for some. Nobody else may be
// waiting for one meanwhile.
func ReapOrphans(except ...int) {
	self := os.Getpid()
	for pid, p := range processes() {
		if p.parent == self && p.state == "Z" && !slices.Contains(except, pid) {
			var status unix.WaitStatus
			_, _ = unix.Wait4(pid, &status, unix.WNOHANG, nil)
		}
	}
}

// Eventually waits until f finds nothing wrong; it asks often, because there is no event to wait for.
func Eventually(t testing.TB, limit time.Duration, f func() error) {
	t.Helper()
	for end := time.Now().Add(limit); ; time.Sleep(5 * time.Millisecond) {
		err := f()
		if err == nil {
			return
		}
		if time.Now().After(end) {
			t.Fatalf("after %v: %v", limit, err)
		}
	}
}

func parentOf(pid int) int {
	raw, _ := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	for line := range strings.Lines(string(raw)) {
		if rest, found := strings.CutPrefix(line, "PPid:"); found {
			parent, _ := strconv.Atoi(strings.TrimSpace(rest))
			return parent
		}
	}
	return 0
}

// Borrow is a copy of the server's only descriptor whose link in /proc fits.
func (s *Server) Borrow(t testing.TB, fits func(link string) bool) *os.File {
	t.Helper()
	pid, err := s.Pid()
	if err != nil {
		t.Fatal(err)
	}
	var found []int
	links, _ := filepath.Glob(fmt.Sprintf("/proc/%d/fd/*", pid))
	for _, link := range links {
		if to, err := os.Readlink(link); err == nil && fits(to) {
			number, _ := strconv.Atoi(filepath.Base(link))
			found = append(found, number)
		}
	}
	if len(found) != 1 {
		t.Fatalf("%d descriptors of the server fit", len(found))
	}
	process, err := unix.PidfdOpen(pid, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(process)
	fd, err := unix.PidfdGetfd(process, found[0], 0)
	if err != nil {
		t.Fatal(err)
	}
	file := os.NewFile(uintptr(fd), "borrowed")
	t.Cleanup(func() { file.Close() })
	return file
}
