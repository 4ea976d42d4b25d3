// SPDX-License-Identifier: Apache-2.0

package restart

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"crisp/node"
)

// onDeadMount is a pod that was writing its log to a mount when that died.
func (s *scene) onDeadMount(t *testing.T, name, script string) (*node.Pod, *node.DeadMount) {
	t.Helper()
	p := s.pod(name)
	mount := node.NewDeadMount(t, p.Config.LogDirectory)
	mount.Revive()
	must(t, p.Up(node.Demo, "/bin/sh", "-c", script))
	node.Eventually(t, 5*time.Second, func() error {
		if len(mount.File()) == 0 {
			return fmt.Errorf("nothing is logged")
		}
		return nil
	})
	mount.Die()
	mount.Wanted(t)
	return p, mount
}

// TestDeadLog: the mount that a log is on answers nothing any more. Its container never waits, whatever
// else is on the node does not notice, and when the mount is back the log goes on and says what it lacks.
func TestDeadLog(t *testing.T) {
	s := newScene(t, startKept(t, 0), cgroupParent(t))
	p, mount := s.onDeadMount(t, "dead", numbers)
	pods, mounts := []*node.Pod{p}, []*node.DeadMount{mount}
	for i := range 5 { // more than write at the same time
		small, its := s.onDeadMount(t, fmt.Sprintf("small%d", i), "while :; do echo line; usleep 10000; done")
		pods, mounts = append(pods, small), append(mounts, its)
	}
	for i := range 10 {
		begin := time.Now()
		fine := s.pod(fmt.Sprintf("fine%d", i))
		must(t, fine.Up(node.Demo, "/bin/echo", "fine"))
		until(t, fine, cri.ContainerState_CONTAINER_EXITED)
		if lines, err := readLog(fine.LogFile()); err != nil || len(lines) != 1 {
			t.Errorf("its log is %q, %v", lines, err)
		}
		must(t, fine.Remove())
		if took := time.Since(begin); took > 2*time.Second {
			t.Errorf("pod %d took %v", i, took)
		}
	}
	s.mustLog(t, p.LogFile()+" does not answer")
	// many times what spool and pipe hold
	goesOn(t, p, 200_000)
	if o := s.output(t, p); !o.LogFailing {
		t.Errorf("while it is dead: %+v", o)
	}
	for _, its := range mounts {
		its.Revive()
	}
	_, err := p.Exec("/bin/touch", "/over")
	must(t, err)
	if ended := until(t, p, cri.ContainerState_CONTAINER_EXITED); ended.ExitCode != 5 {
		t.Errorf("exit code %d", ended.ExitCode)
	}
	path := filepath.Join(t.TempDir(), "log")
	must(t, os.WriteFile(path, mount.File(), 0o600))
	size, dropped := expectNumbers(t, path)
	t.Logf("%d of %d bytes were dropped", dropped, size)
	if o := s.output(t, p); o.Stdout != (stream{size, size - dropped, dropped}) || o.LogFailing || dropped == 0 {
		t.Errorf("%d bytes, %d of them missing in the log; the status says %+v", size, dropped, o)
	}
	s.end(t, pods...)
}

// TestEndWithADeadLog: neither an exit nor a removal waits for it for long.
func TestEndWithADeadLog(t *testing.T) {
	s := newScene(t, startKept(t, 0), cgroupParent(t))
	const script = "while [ ! -e /over ]; do echo line; usleep 10000; done; exit 7"
	ends, first := s.onDeadMount(t, "ends", script)
	stopped, second := s.onDeadMount(t, "stopped", script)
	_, err := ends.Exec("/bin/touch", "/over")
	must(t, err)
	begin := time.Now()
	if ended := until(t, ends, cri.ContainerState_CONTAINER_EXITED); ended.ExitCode != 7 {
		t.Errorf("exit code %d", ended.ExitCode)
	}
	must(t, stopped.Stop(0))
	if took := time.Since(begin); took > 10*time.Second {
		t.Errorf("both ends took %v", took)
	}
	s.mustLog(t, "its log can't be written", "dropped")
	first.Revive()
	second.Revive()
	s.end(t, ends, stopped)
}
