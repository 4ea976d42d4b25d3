// SPDX-License-Identifier: Apache-2.0

package restart

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"crisp/node"
)

// stream is what the verbose status says about stdout or stderr, in bytes.
type stream struct{ Taken, Logged, Dropped int64 }

type output struct {
	Stdout, Stderr stream
	LogFailing     bool
}

func (s *scene) output(t *testing.T, p *node.Pod) output {
	t.Helper()
	r, err := node.Call(s.Runtime.ContainerStatus, &cri.ContainerStatusRequest{ContainerId: p.Container, Verbose: true})
	must(t, err)
	var info struct{ Output output }
	must(t, json.Unmarshal([]byte(r.Info["info"]), &info))
	return info.Output
}

// expectTotal sees that the node's status says the same about its only container.
func (s *scene) expectTotal(t *testing.T, of output) {
	t.Helper()
	r, err := node.Call(s.Runtime.Status, &cri.StatusRequest{Verbose: true})
	must(t, err)
	var total struct {
		stream
		FailingLogs int
	}
	must(t, json.Unmarshal([]byte(r.Info["output"]), &total))
	if total.Dropped != of.Stdout.Dropped+of.Stderr.Dropped || (total.FailingLogs == 1) != of.LogFailing {
		t.Errorf("the node says %+v, the container %+v", total, of)
	}
}

// smallDisk is a pod whose logs are on a file system of 1 MiB.
func (s *scene) smallDisk(t *testing.T, name string) *node.Pod {
	t.Helper()
	p := s.pod(name)
	must(t, os.MkdirAll(p.Config.LogDirectory, 0o755))
	must(t, unix.Mount("test", p.Config.LogDirectory, "tmpfs", 0, "size=1m"))
	t.Cleanup(func() {
		if err := unix.Unmount(p.Config.LogDirectory, 0); err != nil {
			t.Error(err)
		}
	})
	return p
}

// enlarge makes room on it.
func enlarge(t *testing.T, p *node.Pod) {
	t.Helper()
	must(t, unix.Mount("test", p.Config.LogDirectory, "tmpfs", unix.MS_REMOUNT, "size=1g"))
}

// Numbered lines of 100 bytes each: where a line is in the stream says its number. The last one's number
// is in /count as far as it was written, and /over ends them.
const numbers = `i=0; while [ ! -e /over ]; do k=0
while [ $k -lt 200 ]; do printf '%099d\n' $i; i=$((i+1)); k=$((k+1)); done; echo $i >/count; done; exit 5`

func count(t *testing.T, p *node.Pod) int {
	t.Helper()
	r, err := p.Exec("/bin/cat", "/count")
	must(t, err)
	n, _ := strconv.Atoi(strings.TrimSpace(string(r.Stdout)))
	return n
}

// goesOn sees a container write so many lines more.
func goesOn(t *testing.T, p *node.Pod, lines int) {
	t.Helper()
	begin := count(t, p)
	node.Eventually(t, 20*time.Second, func() error {
		if n := count(t, p); n < begin+lines {
			return fmt.Errorf("it wrote %d lines, then %d", begin, n)
		}
		return nil
	})
}

// expectNumbers finds the lines in the log, but for what its markers say is missing; it returns the bytes
// of the stream, and how many of them are missing.
func expectNumbers(t *testing.T, path string) (size, dropped int64) {
	t.Helper()
	err := eachRecord([]string{path}, func(r record) error {
		text, missing := string(r.payload)+"\n", int64(0)
		if n, err := fmt.Sscanf(text, "[%d bytes dropped: the log could not be written]\n", &missing); n == 1 && err == nil {
			dropped += missing
			size += missing
			return nil
		}
		if want := fmt.Sprintf("%099d\n", size/100)[size%100:]; text != want {
			return fmt.Errorf("%q, but %q was to come", text, want)
		}
		size += int64(len(text))
		return nil
	})
	must(t, err)
	return size, dropped
}

// TestFullLogDrops: a container whose log can't be written never waits; what is dropped is counted over
// restarts, and the log itself says how much is missing, and where.
func TestFullLogDrops(t *testing.T) {
	s := newScene(t, startKept(t, 0), cgroupParent(t))
	p := s.smallDisk(t, "full")
	must(t, p.Up(node.Demo, "/bin/sh", "-c", numbers))
	dropping := func(than int64) {
		t.Helper()
		node.Eventually(t, 30*time.Second, func() error {
			if o := s.output(t, p); o.Stdout.Dropped <= than || !o.LogFailing {
				return fmt.Errorf("it doesn't drop more than %d: %+v", than, o)
			}
			return nil
		})
	}
	dropping(0)
	s.expectTotal(t, s.output(t, p))
	goesOn(t, p, 20_000)
	was := s.output(t, p).Stdout
	s.Restart(t)
	if now := s.output(t, p).Stdout; now.Dropped < was.Dropped/2 || now.Taken < was.Taken {
		t.Errorf("of %+v a restart made %+v", was, now)
	}
	goesOn(t, p, 20_000)
	dropping(was.Dropped)
	s.Restart(t)
	enlarge(t, p)
	node.Eventually(t, 20*time.Second, func() error {
		if s.output(t, p).LogFailing {
			return fmt.Errorf("it still fails")
		}
		return nil
	})
	goesOn(t, p, 2_000)
	_, err := p.Exec("/bin/touch", "/over")
	must(t, err)
	ended := until(t, p, cri.ContainerState_CONTAINER_EXITED)
	if ended.ExitCode != 5 {
		t.Errorf("exit code %d", ended.ExitCode)
	}
	size, dropped := expectNumbers(t, p.LogFile())
	t.Logf("%d of %d bytes were dropped", dropped, size)
	for range 2 {
		o := s.output(t, p)
		if o.Stdout != (stream{size, size - dropped, dropped}) || o.Stderr != (stream{}) || o.LogFailing || dropped == 0 {
			t.Errorf("%d bytes, %d of them missing in the log; the status says %+v", size, dropped, o)
		}
		s.expectTotal(t, o)
		s.Restart(t)
	}
	s.end(t, p)
}

// TestFullDiskDoesNotBlock: where the log and the server's own database are on the same full disk, no
// position can be committed either; the container goes on, and what was dropped is counted all the same,
// also over kills.
func TestFullDiskDoesNotBlock(t *testing.T) {
	disk := t.TempDir()
	must(t, unix.Mount("test", disk, "tmpfs", 0, "size=64m"))
	t.Cleanup(func() {
		if err := unix.Unmount(disk, unix.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
	server := startKept(t, 0)
	root := filepath.Join(disk, "root")
	must(t, os.Mkdir(root, 0o700))
	must(t, unix.Mount(root, filepath.Join(server.Dir, "root"), "", unix.MS_BIND, ""))
	server.Restart(t)
	s := newScene(t, server, cgroupParent(t))
	s.dir = disk
	host := t.TempDir()
	p := s.pod("full")
	p.Tune = func(c *cri.ContainerConfig) {
		c.Mounts = []*cri.Mount{{HostPath: host, ContainerPath: "/host"}}
	}
	// its own root is on that disk too
	script := strings.NewReplacer("/over", "/host/over", "/count", "/host/count").Replace(numbers)
	must(t, p.Up(node.Demo, "/bin/sh", "-c", script))
	filler := filepath.Join(disk, "filler")
	file, err := os.Create(filler)
	must(t, err)
	for err == nil {
		_, err = file.Write(make([]byte, 1<<16))
	}
	must(t, file.Close())
	taken := int64(0)
	for range 3 {
		// many times what the spool holds
		node.Eventually(t, 20*time.Second, func() error {
			if o := s.output(t, p).Stdout; o.Taken < taken+8<<20 || o.Dropped == 0 {
				return fmt.Errorf("it had %d bytes and now %+v", taken, o)
			}
			return nil
		})
		taken = s.output(t, p).Stdout.Taken
		s.Restart(t)
	}
	must(t, os.Remove(filler))
	must(t, os.WriteFile(filepath.Join(host, "over"), nil, 0o600))
	until(t, p, cri.ContainerState_CONTAINER_EXITED)
	size, dropped := expectNumbers(t, p.LogFile())
	if o := s.output(t, p).Stdout; o != (stream{size, size - dropped, dropped}) || dropped < taken/2 {
		t.Errorf("%d bytes, %d of them missing in the log; the status says %+v", size, dropped, o)
	}
	s.end(t, p)
}

// TestFullLogBlocks, where the configuration says so: the container waits, also for its end, and loses
// nothing.
func TestFullLogBlocks(t *testing.T) {
	s := newScene(t, node.Start(t, crispd(t), "--keep", "--restart-delay", "0", "--log-full", "block"), cgroupParent(t))
	goes, ends, given := s.smallDisk(t, "goes"), s.smallDisk(t, "ends"), s.smallDisk(t, "given")
	must(t, goes.Up(node.Demo, "/bin/sh", "-c", numbers))
	for _, p := range []*node.Pod{ends, given} {
		must(t, p.Up(node.Demo, "/bin/sh", "-c", "i=0; while [ $i -lt 20000 ]; do printf '%099d\\n' $i; i=$((i+1)); done; exit 6"))
	}
	stands := func() {
		t.Helper()
		last := -1
		node.Eventually(t, 30*time.Second, func() error {
			was := last
			last = count(t, goes)
			if last != was {
				time.Sleep(time.Second)
				return fmt.Errorf("it writes on: %d lines", last)
			}
			return nil
		})
	}
	stands()
	s.Restart(t)
	stands()
	for _, p := range []*node.Pod{goes, ends, given} {
		if o := s.output(t, p); !o.LogFailing || o.Stdout.Dropped != 0 || o.Stdout.Taken < 1_000_000 {
			t.Errorf("%s: %+v", p.Config.Metadata.Name, o)
		}
		if status, err := p.Status(); err != nil || status.State != cri.ContainerState_CONTAINER_RUNNING {
			t.Errorf("%s is %v, %v", p.Config.Metadata.Name, status, err)
		}
	}
	// who stops a whole pod gives the rest up
	must(t, given.Remove())
	enlarge(t, goes)
	enlarge(t, ends)
	goesOn(t, goes, 2_000)
	_, err := goes.Exec("/bin/touch", "/over")
	if err != nil && status.Code(err) != codes.FailedPrecondition {
		t.Error(err)
	}
	for p, code := range map[*node.Pod]int32{goes: 5, ends: 6} {
		node.Eventually(t, 20*time.Second, func() error {
			status, err := p.Status()
			if err == nil && status.State != cri.ContainerState_CONTAINER_EXITED {
				err = fmt.Errorf("it is %v", status.State)
			}
			if err == nil && status.ExitCode != code {
				t.Errorf("%s: exit code %d", p.Config.Metadata.Name, status.ExitCode)
			}
			return err
		})
		size, dropped := expectNumbers(t, p.LogFile())
		if o := s.output(t, p); dropped != 0 || o.Stdout != (stream{size, size, 0}) || size < 1_000_000 {
			t.Errorf("%s: %d bytes, %d dropped; the status says %+v", p.Config.Metadata.Name, size, dropped, o)
		}
	}
	s.end(t, goes, ends)
}
