// SPDX-License-Identifier: Apache-2.0

package restart

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
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
	stop := keepDiskBusy(t, s.Dir)
	begin := time.Now()
	var all sync.WaitGroup
	for i := range sideBySide {
		all.Go(func() {
			for j := range *lives / sideBySide {
				p := s.pod(fmt.Sprintf("churn-%d-%d", i, j))
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
		})
	}
	all.Wait()
	t.Logf("%d pods in %v, and %d MB were written meanwhile", *lives, time.Since(begin).Round(time.Millisecond), stop()>>20)
	s.end(t)
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
