// SPDX-License-Identifier: Apache-2.0

package restart

import (
	"encoding/json"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"crisp/node"
)

const stormImage = "docker.io/library/storm:latest"

const (
	// rotateSize is how long a log gets before it is rotated, as soon as its turn comes.
	rotateSize = 4 << 20
	// diskSize is what logs may take before their rotation: then the writers have to stand still until
	// the half of it is checked.
	diskSize = 1 << 30
)

var (
	kills     = flag.Int("kills", 200, "how often TestStorm kills the server")
	killTime  = flag.Duration("kill-time", time.Hour, "when TestStorm stops killing it anyway")
	writers   = flag.Int("writers", 20, "how many containers write meanwhile")
	terminals = flag.Int("terminals", 5, "how many of them to a terminal")
	pause     = flag.Int("pause", 150, "how long a writer rests between two bursts at the most, in ms; 0: all write at full speed")
	churns    = flag.Int("churns", 3, "how many pods at a time come and go meanwhile")
	seed      = flag.Uint64("seed", 0, "of the random choices; 0: a new one")
)

// storm is a server that is killed again and again, and what goes on around it.
type storm struct {
	*node.Server
	t       *testing.T
	dir     string
	writers []*writer
	over    atomic.Bool
	killed  int
	pods    atomic.Int64 // that came and went
	disk    int64        // the most that logs took before their rotation
	held    int          // how often they had to stand still
}

type writer struct {
	*node.Pod
	process          int // a pidfd
	check            *logCheck
	rotations, parts int
}

// TestStorm kills the server at random times while containers write, logs are rotated, and pods come
// and go; nothing may be lost, repeated or left. The same seed makes the same choices, though not at
// the same instants. Parts of logs are checked and deleted as they are rotated, so any length fits on
// the disk.
func TestStorm(t *testing.T) {
	if *seed == 0 {
		*seed = uint64(time.Now().UnixNano())
	}
	t.Logf("to repeat: -kills %d -writers %d -terminals %d -pause %d -churns %d -seed %d", *kills, *writers, *terminals, *pause, *churns, *seed)
	parent := cgroupParent(t)
	s := &storm{Server: startKept(t, 0), t: t, dir: t.TempDir()}
	importImages(t, s.Server)
	before := baseline(t, s.Server, s.dir, parent)

	for i := range *writers {
		s.begin(i, parent)
	}
	var busy sync.WaitGroup
	for i := range *churns {
		busy.Go(func() { s.churn(i, parent) })
	}
	// two, as reading is what takes the time
	for i := range 2 {
		busy.Go(func() { s.rotate(i, 2) })
	}
	busy.Go(s.hold)
	begin := time.Now()
	s.kill()
	s.over.Store(true)
	busy.Wait()
	s.report(begin)
	s.endWriters()
	s.report(begin)
	for _, w := range s.writers {
		if err := w.Remove(); err != nil {
			t.Error(err)
		}
	}
	s.Leftovers(t, before, marks(parent)...)
}

// begin starts a writer, and holds it until all are there; the first ones have terminals.
func (s *storm) begin(number int, parent string) {
	isTerminal, streams := number < *terminals, "2"
	w := &writer{Pod: s.Client(s.t).NewPod(fmt.Sprintf("writer-%d", number), s.dir, parent), check: newLogCheck(isTerminal)}
	if isTerminal {
		w.Tune = withTerminal
		streams = "1"
	}
	must(s.t, w.Up(stormImage, "/bin/writer", fmt.Sprint(*seed+uint64(number)), fmt.Sprint(*pause), streams))
	w.process = s.pidfd(w.Pod)
	must(s.t, unix.PidfdSendSignal(w.process, unix.SIGSTOP, nil, 0))
	s.writers = append(s.writers, w)
}

// pidfd is that of a container's first process.
func (s *storm) pidfd(p *node.Pod) int {
	r, err := node.Call(s.Client(s.t).Runtime.ContainerStatus, &cri.ContainerStatusRequest{ContainerId: p.Container, Verbose: true})
	must(s.t, err)
	var info struct{ Pid int }
	must(s.t, json.Unmarshal([]byte(r.Info["info"]), &info))
	fd, err := unix.PidfdOpen(info.Pid, 0)
	must(s.t, err)
	s.t.Cleanup(func() { unix.Close(fd) })
	return fd
}

// hold keeps the logs within the disk: nobody checks as fast as all can write.
func (s *storm) hold() {
	isHeld, limit := true, int64(max(diskSize, 4*rotateSize*len(s.writers)))
	for !s.over.Load() {
		time.Sleep(20 * time.Millisecond)
		total := int64(0)
		for _, w := range s.writers {
			total += w.size()
		}
		s.disk = max(s.disk, total)
		if total > limit && !isHeld {
			isHeld = true
			s.held++
			s.signal(unix.SIGSTOP)
		}
		if total < limit/2 && isHeld {
			isHeld = false
			s.signal(unix.SIGCONT)
		}
	}
	s.signal(unix.SIGCONT)
}

func (s *storm) signal(number unix.Signal) {
	for _, w := range s.writers {
		if err := unix.PidfdSendSignal(w.process, number, nil, 0); err != nil {
			s.t.Errorf("signal %v for %s: %v", number, w.Config.Metadata.Name, err)
		}
	}
}

// report is right while nobody rotates.
func (s *storm) report(begin time.Time) {
	lines, bytes, parts := int64(0), int64(0), 0
	for _, w := range s.writers {
		lines += w.check.lines()
		bytes += w.check.bytes
		parts += w.parts
	}
	s.t.Logf("%v: %d kills, %d pods came and went; %d lines, %d MB of log in %d parts checked; logs took %d MB at most before their rotation, which held the writers up %d times",
		time.Since(begin).Round(time.Second), s.killed, s.pods.Load(), lines, bytes/1e6, parts, s.disk/1e6, s.held)
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
	begin := time.Now()
	for ; s.killed < *kills && time.Since(begin) < *killTime; s.killed++ {
		if s.t.Failed() {
			return
		}
		if s.killed%10 == 0 {
			s.checkWriters()
		}
		if s.killed%500 == 499 {
			s.t.Logf("%v: %d kills", time.Since(begin).Round(time.Second), s.killed+1)
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

// rotate does to every so-manieth log what the kubelet does: rename, then reopen; when it is long, or just
// so. What was rotated is checked and deleted.
func (s *storm) rotate(first, step int) {
	r := source(10 + uint64(first))
	for !s.over.Load() && !s.t.Failed() {
		time.Sleep(between(r, 20*time.Millisecond, 200*time.Millisecond))
		chosen := r.IntN(len(s.writers))
		for i := first; i < len(s.writers); i += step {
			if w := s.writers[i]; i == chosen || w.size() > rotateSize {
				if err := s.rotateOne(w); err != nil {
					s.t.Error(err)
				}
			}
		}
	}
}

func (s *storm) rotateOne(w *writer) error {
	part := fmt.Sprintf("%s.%06d", w.LogFile(), w.rotations)
	w.rotations++
	// one may be missing only because a server was killed before it had made the new one
	renamed := os.Rename(w.LogFile(), part)
	if renamed != nil && !os.IsNotExist(renamed) {
		return renamed
	}
	if err := w.Reopen(); err != nil || renamed != nil {
		return err
	}
	return w.checkPart(part)
}

func (w *writer) checkPart(path string) error {
	w.parts++
	if err := w.check.part(path); err != nil {
		return fmt.Errorf("log of %s in %d parts: %w", w.Config.Metadata.Name, w.parts, err)
	}
	return os.Remove(path)
}

func (w *writer) size() int64 {
	file, err := os.Stat(w.LogFile())
	if err != nil {
		return 0
	}
	return file.Size()
}

// endWriters ends them, all at once as they go on writing until then; each has to have ended by itself, and
// its log to say all of it.
func (s *storm) endWriters() {
	var all sync.WaitGroup
	for _, w := range s.writers {
		all.Go(func() {
			if err := w.Stop(60); err != nil {
				s.t.Error(err)
			}
		})
	}
	all.Wait()
	for _, w := range s.writers {
		name := w.Config.Metadata.Name
		status, err := w.Status()
		if err != nil || status.State != cri.ContainerState_CONTAINER_EXITED || status.ExitCode != 7 {
			s.t.Errorf("%s should have exited with 7: %v, %v", name, status, err)
		}
		if err := w.checkPart(w.LogFile()); err != nil {
			s.t.Error(err)
		} else if err := w.check.end(); err != nil {
			s.t.Errorf("log of %s: %v", name, err)
		}
	}
}
