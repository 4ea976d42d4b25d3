// SPDX-License-Identifier: Apache-2.0

package restart

import (
	"flag"
	"fmt"
	"maps"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"crisp/node"
)

var scale = flag.Int("scale", 100, "how many pods TestManyPods has up at once")

// TestManyPods: many pods of one container are that many processes on the host, and nothing else: no
// mounts, three descriptors each at most, and no pipe of anybody gets smaller. The pods' cgroups are the
// server's own here.
func TestManyPods(t *testing.T) {
	s := newScene(t, startKept(t, 0), cgroupParent(t))
	s.parent = "" // from here on: pods in a parent that the server makes and removes
	mounts, descriptors := node.HostMounts(), s.descriptors(t)
	var pods []*node.Pod
	marks := []string{}
	for i := range *scale {
		p := s.pod(fmt.Sprintf("many-%d", i))
		must(t, p.Up(node.Demo, "/bin/sleep", "1000"))
		pods = append(pods, p)
		marks = append(marks, p.ID, p.Container)
	}
	for range 2 {
		others := s.Others()
		if names := slices.Compact(slices.Sorted(maps.Values(others))); len(others) != *scale || !slices.Equal(names, []string{"sleep"}) {
			t.Errorf("%d pods have %d processes: %v", *scale, len(others), names)
		}
		if gained := node.HostMounts() - mounts; gained != 0 {
			t.Errorf("the host has %d more mounts", gained)
		}
		// a server that has just come opens more, but not for long; a few of its own stay, such as
		// the program that guards devices
		node.Eventually(t, 10*time.Second, func() error {
			for role, n := range s.descriptors(t) {
				if gained := n - descriptors[role]; gained > 3**scale+4 {
					return fmt.Errorf("the %s has %d more descriptors for %d containers: %v", role, gained, *scale, s.Descriptors())
				}
			}
			return nil
		})
		if size := pipeSize(t); size != 65536 {
			t.Errorf("a root process without capabilities gets pipes of %d bytes", size)
		}
		s.Restart(t)
	}
	for _, p := range pods {
		must(t, p.Remove())
	}
	s.Leftovers(t, s.before, marks...)
}

// descriptors are the totals of server and keeper, without the logs and spools that happen to be open:
// a bounded number.
func (s *scene) descriptors(t *testing.T) map[string]int {
	t.Helper()
	totals := map[string]int{}
	for kind, text := range s.Descriptors() {
		if strings.Contains(kind, s.dir+"/") || strings.HasSuffix(kind, ".spool") {
			continue
		}
		n, err := strconv.Atoi(text)
		must(t, err)
		var role string
		_, _ = fmt.Sscan(kind, &role)
		totals[role] += n
	}
	return totals
}

// pipeSize is that of a new pipe for a root process without capabilities.
func pipeSize(t *testing.T) int {
	t.Helper()
	type answer struct {
		size int
		err  error
	}
	answers := make(chan answer)
	go func() {
		// never unlocked: the thread ends with the goroutine, and nobody else gets it
		runtime.LockOSThread()
		header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
		var none [2]unix.CapUserData
		if err := unix.Capset(&header, &none[0]); err != nil {
			answers <- answer{err: err}
			return
		}
		var ends [2]int
		if err := unix.Pipe2(ends[:], unix.O_CLOEXEC); err != nil {
			answers <- answer{err: err}
			return
		}
		size, err := unix.FcntlInt(uintptr(ends[0]), unix.F_GETPIPE_SZ, 0)
		unix.Close(ends[0])
		unix.Close(ends[1])
		answers <- answer{size, err}
	}()
	a := <-answers
	must(t, a.err)
	return a.size
}
