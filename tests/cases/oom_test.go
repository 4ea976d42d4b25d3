// SPDX-License-Identifier: Apache-2.0

package cases

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"crisp/node"
)

// TestOutOfMemory: who was killed for memory, and by whose limit, is told as it happens.
func TestOutOfMemory(t *testing.T) {
	s := newScene(t)
	for _, c := range []struct {
		name string
		test func(*testing.T, *scene)
	}{
		{"of the main process ends the container", oomMain},
		{"of a child is told at once, and is the reason of an end with its own code", oomChild},
		{"of an exec is told, and the container goes on", oomExec},
		{"by the pod's limit names the pod's cgroup", oomOfPod},
		{"by a container's limit does not blame the pod's", oomOfContainerInPod},
		{"while no server runs is told by the next one", oomWhileDown},
		{"is told once, whatever server runs", oomOnce},
		{"of many containers are each its own", oomOfMany},
		{"costs no descriptor of a container", oomDescriptors},
	} {
		t.Run(c.name, func(t *testing.T) { c.test(t, s) })
	}
}

// eat takes more memory than any limit here.
const eat = "tail /dev/zero"

const oomLimit = 32 * mib

// told are the lines in the server's log that tell of kills of a container.
func (s *scene) told(t *testing.T, p *node.Pod) []string {
	t.Helper()
	var lines []string
	for line := range strings.Lines(s.Log(t)) {
		if strings.Contains(line, p.Container) && strings.Contains(line, "killed for memory") {
			lines = append(lines, line)
		}
	}
	return lines
}

// expectKills waits for one line, which names the cgroup whose limit it was.
func (s *scene) expectKills(t *testing.T, p *node.Pod, kills int, cgroup, whose string) {
	t.Helper()
	node.Eventually(t, 5*time.Second, func() error {
		if lines := s.told(t, p); len(lines) != 1 ||
			!strings.Contains(lines[0], fmt.Sprintf(": %d of its processes", kills)) ||
			!strings.Contains(lines[0], " "+cgroup+", "+whose) {
			return fmt.Errorf("not %d by the limit of %s, %s: %q", kills, cgroup, whose, lines)
		}
		return nil
	})
}

func (s *scene) cgroupOf(p *node.Pod) string {
	return s.parent + "/" + p.Container
}

func oomMain(t *testing.T, s *scene) {
	p := s.pod("oom-main")
	p.Tune = limitMemory(oomLimit)
	status := s.run(t, p, "/bin/tail", "/dev/zero")
	expectEnd(t, status, 137, "OOMKilled")
	if !strings.Contains(status.Message, s.cgroupOf(p)) {
		t.Errorf("message %q", status.Message)
	}
	s.expectKills(t, p, 1, s.cgroupOf(p), "its own")
	s.end(t, p)
}

// oomChild: the reason is containerd's, too; the code is what the main process made of it.
func oomChild(t *testing.T, s *scene) {
	p := s.pod("oom-child")
	p.Tune = limitMemory(oomLimit)
	must(t, p.Up(node.Demo, "/bin/sh", "-c", eat+"; while [ ! -e /go ]; do sleep 0.05; done; exit 5"))
	s.expectKills(t, p, 1, s.cgroupOf(p), "its own")
	status, err := p.Status()
	must(t, err)
	if status.State != cri.ContainerState_CONTAINER_RUNNING {
		t.Errorf("it is %v", status.State)
	}
	s.output(t, p, ": >/go")
	expectEnd(t, exited(t, p), 5, "OOMKilled")
	s.expectKills(t, p, 1, s.cgroupOf(p), "its own")
	s.end(t, p)
}

func oomExec(t *testing.T, s *scene) {
	p := s.pod("oom-exec")
	p.Tune = limitMemory(oomLimit)
	must(t, p.Up(node.Demo, "/bin/sleep", "1000"))
	r, err := s.exec(p, 30, "/bin/tail", "/dev/zero")
	must(t, err)
	if r.ExitCode != 137 {
		t.Errorf("exit code %d", r.ExitCode)
	}
	s.expectKills(t, p, 1, s.cgroupOf(p), "its own")
	s.output(t, p, "true")
	must(t, p.Stop(0))
	expectEnd(t, exited(t, p), 137, "OOMKilled")
	s.end(t, p)
}

// limitedParent is a cgroup as the kubelet makes one for a pod.
func (s *scene) limitedParent(t *testing.T, name string, limit int64) string {
	t.Helper()
	parent := s.parent + "-" + name
	t.Cleanup(func() { node.RemoveParent(t, parent) })
	must(t, os.MkdirAll(filepath.Dir(node.CgroupFile(parent, "memory.limit_in_bytes", "memory.max")), 0o755))
	must(t, os.WriteFile(node.CgroupFile(parent, "memory.limit_in_bytes", "memory.max"), []byte(fmt.Sprint(limit)), 0))
	return parent
}

func oomOfPod(t *testing.T, s *scene) {
	parent := s.limitedParent(t, "oom-pod", oomLimit)
	for name, tune := range map[string]func(*cri.ContainerConfig){
		"without a limit of its own": nil, "with more than the pod": limitMemory(256 * mib),
	} {
		p := s.NewPod("oom-pod", s.dir, parent)
		p.Tune = tune
		status := s.run(t, p, "/bin/tail", "/dev/zero")
		expectEnd(t, status, 137, "OOMKilled")
		if !strings.Contains(status.Message, parent+",") {
			t.Errorf("%s: message %q", name, status.Message)
		}
		s.expectKills(t, p, 1, parent, "which has more than this container")
		s.end(t, p)
	}
}

func oomOfContainerInPod(t *testing.T, s *scene) {
	parent := s.limitedParent(t, "oom-both", 256*mib)
	p := s.NewPod("oom-both", s.dir, parent)
	p.Tune = limitMemory(oomLimit)
	expectEnd(t, s.run(t, p, "/bin/tail", "/dev/zero"), 137, "OOMKilled")
	s.expectKills(t, p, 1, parent+"/"+p.Container, "its own")
	s.end(t, p)
}

func oomWhileDown(t *testing.T, s *scene) {
	p, main := s.pod("oom-down"), s.pod("oom-down-main")
	shared := t.TempDir()
	p.Tune = func(c *cri.ContainerConfig) {
		limitMemory(oomLimit)(c)
		c.Mounts = []*cri.Mount{{HostPath: shared, ContainerPath: "/shared"}}
	}
	main.Tune = p.Tune
	wait := "while [ ! -e /shared/go ]; do sleep 0.05; done; "
	must(t, p.Up(node.Demo, "/bin/sh", "-c", wait+eat+"; sleep 1000"))
	must(t, main.Up(node.Demo, "/bin/sh", "-c", wait+"exec "+eat))
	goOn := s.HoldKeeper(t)
	s.Kill(t)
	must(t, os.WriteFile(filepath.Join(shared, "go"), nil, 0o644))
	node.Eventually(t, 20*time.Second, func() error {
		for _, c := range []*node.Pod{p, main} {
			text, err := os.ReadFile(node.CgroupFile(s.cgroupOf(c), "memory.oom_control", "memory.events"))
			must(t, err)
			if !strings.Contains(string(text), "oom_kill 1\n") {
				return fmt.Errorf("nothing was killed: %s", text)
			}
		}
		return nil
	})
	goOn()
	s.Await(t)
	s.expectKills(t, p, 1, s.cgroupOf(p), "its own")
	expectEnd(t, exited(t, main), 137, "OOMKilled")
	s.expectKills(t, main, 1, s.cgroupOf(main), "its own")
	// events are told anew, too
	_, err := s.exec(p, 30, "/bin/tail", "/dev/zero")
	must(t, err)
	node.Eventually(t, 5*time.Second, func() error {
		if lines := s.told(t, p); len(lines) != 2 {
			return fmt.Errorf("told: %q", lines)
		}
		return nil
	})
	s.end(t, p, main)
}

func oomOnce(t *testing.T, s *scene) {
	p := s.pod("oom-once")
	p.Tune = limitMemory(oomLimit)
	must(t, p.Up(node.Demo, "/bin/sh", "-c", eat+"; sleep 1000"))
	s.expectKills(t, p, 1, s.cgroupOf(p), "its own")
	// one that dies before this is durable has told it for the next one, too
	s.output(t, p, "true")
	s.Restart(t)
	s.output(t, p, "true")
	must(t, p.Stop(0))
	status := exited(t, p)
	expectEnd(t, status, 137, "OOMKilled")
	if !strings.Contains(status.Message, s.cgroupOf(p)) {
		t.Errorf("message %q", status.Message)
	}
	s.expectKills(t, p, 1, s.cgroupOf(p), "its own")
	s.end(t, p)
}

// oomOfMany: on v1 some of them share what tells.
func oomOfMany(t *testing.T, s *scene) {
	var pods []*node.Pod
	for i := range 40 {
		p := s.pod(fmt.Sprint("oom-many-", i))
		p.Tune = limitMemory(oomLimit)
		must(t, p.Up(node.Demo, "/bin/sleep", "1000"))
		pods = append(pods, p)
	}
	for i, p := range pods {
		// ends of others tell by the same descriptor
		if i%4 == 1 {
			must(t, p.Remove())
		} else if i%4 == 2 {
			_, err := s.exec(p, 30, "/bin/tail", "/dev/zero")
			must(t, err)
		}
	}
	for i, p := range pods {
		if i%4 == 2 {
			s.expectKills(t, p, 1, s.cgroupOf(p), "its own")
		} else if lines := s.told(t, p); len(lines) > 0 {
			t.Errorf("nothing of it was killed: %q", lines)
		}
	}
	s.end(t, pods...)
}

func oomDescriptors(t *testing.T, s *scene) {
	count := func() (n int) {
		pid, err := s.Pid()
		must(t, err)
		links, err := filepath.Glob(fmt.Sprintf("/proc/%d/fd/*", pid))
		must(t, err)
		for _, link := range links {
			if to, err := os.Readlink(link); err == nil && (to == "anon_inode:[eventfd]" || to == "anon_inode:inotify") {
				n++
			}
		}
		return n
	}
	before := count()
	var pods []*node.Pod
	for i := range 20 {
		p := s.pod(fmt.Sprint("oom-fds-", i))
		p.Tune = limitMemory(oomLimit)
		must(t, p.Up(node.Demo, "/bin/sleep", "1000"))
		pods = append(pods, p)
	}
	// all are watched by now: one of them last, as it was started last
	_, err := s.exec(pods[19], 30, "/bin/tail", "/dev/zero")
	must(t, err)
	s.expectKills(t, pods[19], 1, s.cgroupOf(pods[19]), "its own")
	if now := count(); now > before {
		t.Errorf("%d descriptors for events, %d with %d containers", before, now, len(pods))
	}
	s.end(t, pods...)
}
