// SPDX-License-Identifier: Apache-2.0

package restart

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"crisp/node"
)

var lives = flag.Int("lives", 400, "how many pods come and go in TestChurnLeavesNothing")

// TestChurnLeavesNothing: pods that come and go, twenty at a time, leave nothing behind, however slow
// the disk is meanwhile.
func TestChurnLeavesNothing(t *testing.T) {
	const sideBySide = 20
	s := newScene(t, startKept(t, 0), cgroupParent(t))
	churn := func(name string, count int) {
		var all sync.WaitGroup
		for i := range sideBySide {
			all.Go(func() { s.comeAndGo(t, fmt.Sprintf("%s-%d", name, i), count/sideBySide) })
		}
		all.Wait()
	}
	// what so many at once need is kept for the next ones
	churn("first", 5*sideBySide)
	resident := s.resident(t)
	stop := keepDiskBusy(t, s.Dir)
	begin := time.Now()
	churn("churn", *lives)
	t.Logf("%d pods in %v, and %d MB were written meanwhile", *lives, time.Since(begin).Round(time.Millisecond), stop()>>20)
	s.end(t)
	now := s.resident(t)
	t.Logf("%d kB of memory are %d now", resident, now)
	if now > resident+2<<10 && !node.IsSanitized(crispd(t)) {
		t.Errorf("%d kB of memory have become %d", resident, now)
	}
}

// comeAndGo has pods live one after the other.
func (s *scene) comeAndGo(t *testing.T, name string, count int) {
	for j := range count {
		p := s.pod(fmt.Sprintf("%s-%d", name, j))
		err := p.Up(node.Demo, "/bin/sleep", "1000")
		if err == nil && j%2 == 0 {
			err = p.Stop(0)
		}
		if err == nil {
			err = p.Remove()
		}
		if err != nil {
			t.Error(err)
			return
		}
	}
}

// resident is the server's memory in kB.
func (s *scene) resident(t *testing.T) (kb int) {
	t.Helper()
	pid, err := s.Pid()
	must(t, err)
	raw, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	must(t, err)
	_, rest, _ := strings.Cut(string(raw), "VmRSS:")
	_, err = fmt.Sscan(rest, &kb)
	must(t, err)
	return kb
}

// keepDiskBusy writes and syncs files in dir until it is stopped, which says how many bytes it wrote.
func keepDiskBusy(t *testing.T, dir string) func() int64 {
	over, done := make(chan bool), make(chan int64)
	go func() {
		var written int64
		data := make([]byte, 8<<20)
		path := filepath.Join(dir, "busy")
		defer func() { done <- written }()
		for {
			select {
			case <-over:
				_ = os.Remove(path)
				return
			default:
			}
			file, err := os.Create(path)
			if err == nil {
				_, err = file.Write(data)
			}
			if err == nil {
				err = file.Sync()
				_ = file.Close()
			}
			if err != nil {
				t.Error(err)
				return
			}
			written += int64(len(data))
		}
	}()
	return func() int64 { close(over); return <-done }
}
