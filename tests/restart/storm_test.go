// SPDX-License-Identifier: Apache-2.0

package restart

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"crisp/node"
)

const stormImage = "docker.io/library/storm:latest"

var (
	kills   = flag.Int("kills", 200, "how often TestStorm kills the server")
	writers = flag.Int("writers", 20, "how many containers write meanwhile")
	churns  = flag.Int("churns", 3, "how many pods at a time come and go meanwhile")
	seed    = flag.Uint64("seed", 0, "of the random choices; 0: a new one")
)

// storm is a server that is killed again and again, and what goes on around it.
type storm struct {
	*node.Server
	t       *testing.T
	dir     string
	writers []*writer
	over    atomic.Bool
	pods    atomic.Int64 // that came and went
}

type writer struct {
	*node.Pod
	rotations int
}

// TestStorm kills the server at random times while containers write, logs are rotated, and pods come
// and go; nothing may be lost, repeated or left. The same seed makes the same choices, though not at
// the same instants.
func TestStorm(t *testing.T) {
	if *seed == 0 {
		*seed = uint64(time.Now().UnixNano())
	}
	t.Logf("to repeat: -kills %d -writers %d -churns %d -seed %d", *kills, *writers, *churns, *seed)
	parent := cgroupParent(t)
	s := &storm{Server: startKept(t, 0), t: t, dir: t.TempDir()}
	importImages(t, s.Server)
	before := baseline(t, s.Server, s.dir, parent)

	for i := range *writers {
		w := &writer{Pod: s.Client(t).NewPod(fmt.Sprintf("writer-%d", i), s.dir, parent)}
		if err := w.Up(stormImage, "/bin/writer", fmt.Sprint(*seed+uint64(i))); err != nil {
			t.Fatal(err)
		}
		s.writers = append(s.writers, w)
	}
	var busy sync.WaitGroup
	for i := range *churns {
		busy.Go(func() { s.churn(i, parent) })
	}
	busy.Go(s.rotate)
	begin := time.Now()
	s.kill()
	t.Logf("%d kills in %v", *kills, time.Since(begin).Round(time.Millisecond))
	s.over.Store(true)
	busy.Wait()
	t.Logf("%d pods came and went", s.pods.Load())
	s.checkLogs()
	for _, w := range s.writers {
		if err := w.Remove(); err != nil {
			t.Error(err)
		}
	}
	s.Leftovers(t, before, marks(parent)...)
}

func source(stream uint64) *rand.Rand {
	return rand.New(rand.NewPCG(*seed, stream))
}

func between(r *rand.Rand, low, high time.Duration) time.Duration {
	return low + time.Duration(r.Int64N(int64(high-low)))
}

// kill lets each server live 5 to 150 ms from its first answer, and sees that none has lost a writer.
func (s *storm) kill() {
	r := source(1)
	for i := range *kills {
		if s.t.Failed() {
			return
		}
		if i%10 == 0 {
			s.checkWriters()
		}
		time.Sleep(between(r, 5*time.Millisecond, 150*time.Millisecond))
		s.Restart(s.t)
	}
}

func (s *storm) checkWriters() {
	for _, w := range s.writers {
		status, err := w.Status()
		if err != nil {
			s.t.Error(err)
		} else if status.State != cri.ContainerState_CONTAINER_RUNNING {
			s.t.Errorf("%s is %v (%s: %s)", w.Config.Metadata.Name, status.State, status.Reason, status.Message)
		}
	}
}

// churn takes pods through their lives, some shorter than others.
func (s *storm) churn(number int, parent string) {
	r := source(100 + uint64(number))
	for i := 0; !s.over.Load() && !s.t.Failed(); i++ {
		p := s.Client(s.t).NewPod(fmt.Sprintf("churn-%d-%d", number, i), s.dir, parent)
		if err := live(p, r.IntN(5)); err != nil {
			s.t.Error(err)
		}
		// whatever had become of it
		if p.ID != "" {
			if err := p.Remove(); err != nil {
				s.t.Error(err)
			}
		}
		s.pods.Add(1)
		_ = os.RemoveAll(p.Config.LogDirectory)
	}
}

// live goes so many steps: a pod, a container, started, executed in, stopped.
func live(p *node.Pod, steps int) error {
	if err := p.Run(); err != nil || steps < 1 {
		return err
	}
	if err := p.Create(node.Demo, "/bin/sleep", "1000"); err != nil || steps < 2 {
		return err
	}
	if err := p.Start(); err != nil || steps < 3 {
		return err
	}
	if r, err := p.Exec("/bin/echo", "hello"); err != nil || r.ExitCode != 0 || string(r.Stdout) != "hello\n" {
		return fmt.Errorf("echo in %s: %v, %v", p.Config.Metadata.Name, r, err)
	}
	if steps < 4 {
		return nil
	}
	return p.Stop(0)
}

// rotate does to logs what the kubelet does: rename, then reopen.
func (s *storm) rotate() {
	r := source(2)
	for !s.over.Load() && !s.t.Failed() {
		time.Sleep(between(r, 20*time.Millisecond, 200*time.Millisecond))
		w := s.writers[r.IntN(len(s.writers))]
		w.rotations++
		// one may be missing only because a server was killed before it had made the new one
		if err := os.Rename(w.LogFile(), w.part(w.rotations)); err != nil && !os.IsNotExist(err) {
			s.t.Error(err)
		}
		if err := w.Reopen(); err != nil {
			s.t.Error(err)
		}
	}
}

func (w *writer) part(number int) string {
	return fmt.Sprintf("%s.%06d", w.LogFile(), number)
}

// checkLogs ends the writers; each has to have ended by itself, and its log to say all of it.
func (s *storm) checkLogs() {
	total := int64(0)
	for _, w := range s.writers {
		name := w.Config.Metadata.Name
		if err := w.Stop(30); err != nil {
			s.t.Error(err)
			continue
		}
		status, err := w.Status()
		if err != nil || status.State != cri.ContainerState_CONTAINER_EXITED || status.ExitCode != 7 {
			s.t.Errorf("%s should have exited with 7: %v, %v", name, status, err)
		}
		parts, _ := filepath.Glob(w.LogFile() + ".*")
		lines, err := checkLog(append(parts, w.LogFile()))
		if err != nil {
			s.t.Errorf("log of %s in %d parts: %v", name, len(parts)+1, err)
		}
		total += lines
	}
	s.t.Logf("%d lines in %d logs", total, len(s.writers))
}
