// SPDX-License-Identifier: Apache-2.0

package restart

import (
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"crisp/node"
)

// systemd is its part in the life of a unit of Type=notify with FileDescriptorStoreMax: it takes and
// keeps descriptors, and passes them to the next process. systemd itself can't run here.
type systemd struct {
	conn    *net.UnixConn
	mutex   sync.Mutex
	kept    map[string]*os.File
	isReady bool
	read    chan bool // of all that was sent before a BARRIER=1
}

// startSystemd is heard of by the servers that start from now on.
func startSystemd(t *testing.T, max int) *systemd {
	t.Helper()
	path := filepath.Join(t.TempDir(), "notify")
	conn, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: path, Net: "unixgram"})
	must(t, err)
	s := &systemd{conn: conn, kept: map[string]*os.File{}, read: make(chan bool, 1)}
	t.Setenv("NOTIFY_SOCKET", path)
	t.Setenv("FDSTORE", strconv.Itoa(max))
	done := make(chan bool)
	go func() {
		defer close(done)
		for s.receive() {
		}
	}()
	t.Cleanup(func() {
		conn.Close()
		<-done
		for _, file := range s.kept {
			file.Close()
		}
	})
	return s
}

// receive obeys one message; false at the end.
func (s *systemd) receive() bool {
	text, control := make([]byte, 4096), make([]byte, unix.CmsgSpace(4*4))
	n, controlled, _, _, err := s.conn.ReadMsgUnix(text, control)
	if err != nil {
		return false
	}
	var fds []int
	messages, _ := unix.ParseSocketControlMessage(control[:controlled])
	for _, message := range messages {
		rights, _ := unix.ParseUnixRights(&message)
		fds = append(fds, rights...)
	}
	said := map[string]string{}
	for line := range strings.Lines(string(text[:n])) {
		key, value, _ := strings.Cut(strings.TrimSuffix(line, "\n"), "=")
		said[key] = value
	}
	s.mutex.Lock()
	defer s.mutex.Unlock()
	name := said["FDNAME"]
	if old := s.kept[name]; old != nil && (said["FDSTOREREMOVE"] == "1" || len(fds) > 0) {
		old.Close()
		delete(s.kept, name)
	}
	for _, fd := range fds {
		s.kept[name] = os.NewFile(uintptr(fd), name)
	}
	s.isReady = s.isReady || said["READY"] == "1"
	if said["BARRIER"] == "1" {
		s.read <- true
	}
	return true
}

// barrier returns when all messages are obeyed that were sent until now.
func (s *systemd) barrier(t *testing.T) {
	t.Helper()
	conn, err := net.DialUnix("unixgram", nil, s.conn.LocalAddr().(*net.UnixAddr))
	must(t, err)
	defer conn.Close()
	_, err = conn.Write([]byte("BARRIER=1"))
	must(t, err)
	<-s.read
}

// pass gives all that is kept to the next process, after it has read what the last one said.
func (s *systemd) pass(t *testing.T, to *node.Server) int {
	t.Helper()
	s.barrier(t)
	s.mutex.Lock()
	defer s.mutex.Unlock()
	var names []string
	to.Passed = nil
	for name, file := range s.kept {
		names = append(names, name)
		to.Passed = append(to.Passed, file)
	}
	t.Setenv("LISTEN_FDS", strconv.Itoa(len(names)))
	t.Setenv("LISTEN_FDNAMES", strings.Join(names, ":"))
	return len(names)
}

// asUnit is a program that runs another one with LISTEN_PID as systemd sets it.
func asUnit(t *testing.T) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "as-unit")
	must(t, os.WriteFile(path, []byte("#!/bin/sh\nexport LISTEN_PID=$$\nexec \"$@\"\n"), 0o755))
	return path + " " + crispd(t)
}

// loseNothing has containers with pipes and terminals write while the unit is restarted again and again.
func loseNothing(t *testing.T, manager *systemd, server *node.Server, end func()) {
	t.Helper()
	importImages(t, server)
	c, dir, parent := server.Client(t), t.TempDir(), cgroupParent(t)
	const counts = "i=0; while [ $i -lt 100 ]; do echo tick $i; i=$((i+1)); usleep 10000; done; exit 5"
	piped, typed := c.NewPod("piped", dir, parent), c.NewPod("typed", dir, parent)
	typed.Tune = withTerminal
	pods := []*node.Pod{piped, typed}
	for _, p := range pods {
		must(t, p.Up(node.Demo, "/bin/sh", "-c", counts))
	}
	for range 3 {
		end()
		if n := manager.pass(t, server); n < 4 {
			t.Errorf("systemd keeps %d descriptors", n)
		}
		server.Run(t)
	}
	for _, p := range pods {
		if status := until(t, p, cri.ContainerState_CONTAINER_EXITED); status.ExitCode != 5 || status.Reason != "Error" {
			t.Errorf("%s: code %d, reason %s", p.Config.Metadata.Name, status.ExitCode, status.Reason)
		}
		expectAllTicks(t, p, 100)
		must(t, p.Remove())
	}
}

// TestSystemdIsTheKeeper: where the kernel keeps exit statuses, crispd --keep under systemd is one
// process, and nothing is lost when it dies, terminals included.
func TestSystemdIsTheKeeper(t *testing.T) {
	if !kernelKeepsExitStatus() {
		t.Skip("needs Linux 6.15, whose pidfds keep an exit status")
	}
	manager := startSystemd(t, 1000)
	server := node.Start(t, asUnit(t), "--keep")
	if own := server.Own(); len(own) != 1 || !manager.isReady {
		t.Fatalf("processes %v, ready: %v", own, manager.isReady)
	}
	loseNothing(t, manager, server, func() { server.KillBy(t, unix.SIGKILL) })
	node.Eventually(t, 5*time.Second, func() error {
		manager.mutex.Lock()
		defer manager.mutex.Unlock()
		if len(manager.kept) > 0 {
			return fmt.Errorf("systemd still keeps %d descriptors", len(manager.kept))
		}
		return nil
	})
}

// TestKeepersPlaceIsAKeepers: what is executed to take a keeper's place becomes a keeper or nothing,
// whoever could be one now.
func TestKeepersPlaceIsAKeepers(t *testing.T) {
	startSystemd(t, 1000)
	t.Setenv("CRISP_KEEPER_STATE", "check")
	dir := t.TempDir()
	out, err := exec.Command("timeout", "10", crispd(t), "--keep", "--root", filepath.Join(dir, "root"), "--state", filepath.Join(dir, "state")).CombinedOutput()
	if err == nil || !strings.Contains(string(out), "what is handed over") {
		t.Errorf("%v: %s", err, out)
	}
}

// TestOldKernelNeedsTheKeeper: where the kernel forgets how a process ended, crispd --keep has a keeper
// of its own also under systemd, which hears when it is ready, and has its descriptors while the unit is
// restarted.
func TestOldKernelNeedsTheKeeper(t *testing.T) {
	t.Setenv("CRISP_NO_PIDFD_INFO", "1")
	manager := startSystemd(t, 1000)
	server := node.Start(t, asUnit(t), "--keep")
	node.Eventually(t, 5*time.Second, func() error {
		manager.mutex.Lock()
		defer manager.mutex.Unlock()
		if !manager.isReady {
			return fmt.Errorf("systemd waits for READY=1")
		}
		return nil
	})
	if own := server.Own(); len(own) != 2 {
		t.Errorf("processes %v", own)
	}
	loseNothing(t, manager, server, func() {
		manager.barrier(t)
		if n := len(manager.kept); n > 0 {
			t.Errorf("with a keeper, systemd keeps %d descriptors", n)
		}
		server.KillKeeperBy(t, unix.SIGTERM)
	})
}
