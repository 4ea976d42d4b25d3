// SPDX-License-Identifier: Apache-2.0

package cases

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"crisp/node"
)

// TestProcfsAttacks: what shall be written beneath /proc is written to the kernel's own procfs, whatever
// else is at such a place (CVE-2025-52881).
func TestProcfsAttacks(t *testing.T) {
	s := newScene(t)
	for _, c := range []struct {
		name string
		test func(*testing.T, *scene)
	}{
		{"the image has files where procfs has them", procfsImage},
		{"a container covers procfs and others are executed and limited", procfsCovered},
	} {
		t.Run(c.name, func(t *testing.T) { c.test(t, s) })
	}
	t.Run("the node's own sysctls are covered", procfsNode)
}

// fakes are files that would take what is meant for the kernel.
var fakes = []string{"self/oom_score_adj", "thread-self/attr/exec", "thread-self/attr/apparmor/exec",
	"1/oom_score_adj", "1/uid_map", "1/gid_map", "1/setgroups", "sys/kernel/shm_rmid_forced"}

// procfsImage: below the mount of procfs the image's files are as they were, and the kernel's have the values.
func procfsImage(t *testing.T, s *scene) {
	const image = "example.com/fake-proc:1"
	layer := []node.Entry{node.Dir("proc", 0o755)}
	for _, dir := range []string{"self", "thread-self", "thread-self/attr", "thread-self/attr/apparmor", "1", "sys", "sys/kernel"} {
		layer = append(layer, node.Dir("proc/"+dir, 0o755))
	}
	for _, name := range fakes {
		layer = append(layer, node.File("proc/"+name, 0o666, "fake"))
	}
	s.ImportImage(t, image, nil, append(node.Busybox(t), node.Link("bin/cat", "busybox"), node.Link("bin/umount", "busybox"), node.Link("bin/sleep", "busybox")), layer)
	for _, mapped := range []bool{false, true} {
		p := s.pod(fmt.Sprintf("fake-proc-%v", mapped))
		p.Config.Linux.Sysctls = map[string]string{"kernel.shm_rmid_forced": "1"}
		if mapped {
			p.Config.Linux.SecurityContext.NamespaceOptions.UsernsOptions = mapping(100000, 65536)
		} else {
			p.Config.Linux.SecurityContext.Privileged = true
		}
		p.Tune = func(c *cri.ContainerConfig) {
			c.Linux.Resources = &cri.LinuxContainerResources{OomScoreAdj: 600}
			c.Linux.SecurityContext.Privileged = !mapped
		}
		must(t, p.Up(image, "/bin/sleep", "1000"))
		s.lines(t, p, "cat /proc/self/oom_score_adj /proc/1/oom_score_adj /proc/sys/kernel/shm_rmid_forced", "600", "600", "1")
		if !mapped {
			s.lines(t, p, "umount -l /proc; cd /proc; cat "+strings.Join(fakes, " "), strings.Repeat("fake", len(fakes)))
		}
		must(t, p.Remove())
	}
	s.removeImage(t, image)
	s.end(t)
}

// score is what the node's kernel says of the one process with this argument.
func score(t *testing.T, argument string) string {
	t.Helper()
	lines, _ := filepath.Glob("/proc/[0-9]*/cmdline")
	for _, path := range lines {
		if raw, _ := os.ReadFile(path); strings.HasSuffix(string(raw), "sleep\x00"+argument+"\x00") {
			raw, err := os.ReadFile(filepath.Join(filepath.Dir(path), "oom_score_adj"))
			must(t, err)
			return strings.TrimSpace(string(raw))
		}
	}
	t.Fatalf("no process has the argument %s", argument)
	return ""
}

// procfsCovered: the container is privileged and shares its pid namespace, so that it knows who comes in.
func procfsCovered(t *testing.T, s *scene) {
	p := s.pod("covered-proc")
	p.Config.Linux.SecurityContext.Privileged = true
	p.Config.Linux.SecurityContext.NamespaceOptions.Pid = cri.NamespaceMode_POD
	number, name := uniqueNumber(), "first"
	p.Tune = func(c *cri.ContainerConfig) {
		c.Metadata.Name, c.LogPath = name, name+".log"
		c.Linux.Resources = &cri.LinuxContainerResources{OomScoreAdj: 600}
		c.Linux.SecurityContext.Privileged = true
	}
	must(t, p.Up(node.Demo, "/bin/sleep", number))
	first := p.Container
	s.output(t, p, `busybox mount -t tmpfs fake /proc; cd /proc
for d in self thread-self $(busybox seq 1 200); do busybox mkdir -p $d/attr/apparmor; for f in oom_score_adj attr/exec attr/apparmor/exec cgroup; do echo fake >$d/$f; done; done`)
	executed := uniqueNumber()
	s.output(t, p, "busybox setsid sleep "+executed+" >/dev/null 2>&1 </dev/null &")
	name = "second"
	second := uniqueNumber()
	must(t, p.Create(node.Demo, "/bin/sleep", second))
	must(t, p.Start())
	for _, argument := range []string{number, executed, second} {
		if got := score(t, argument); got != "600" {
			t.Errorf("the score for the OOM killer is %s", got)
		}
	}
	p.Container = first
	must(t, s.update(p, &limits{OomScoreAdj: 700}))
	for argument, want := range map[string]string{number: "700", executed: "700", second: "600"} {
		if got := score(t, argument); got != want {
			t.Errorf("after an update the score for the OOM killer is %s, not %s", got, want)
		}
	}
	s.lines(t, p, "busybox find /proc -type f -exec cat {} + | busybox sort -u", "fake")
	s.end(t, p)
}

// procfsNode has a server where a directory lies over those of the pods' sysctls. A file would not do: each
// namespace has its own.
func procfsNode(t *testing.T) {
	dir := t.TempDir()
	fake, script := filepath.Join(dir, "fs/mqueue/msg_max"), filepath.Join(dir, "cover")
	must(t, os.MkdirAll(filepath.Dir(fake), 0o755))
	must(t, os.WriteFile(fake, []byte("fake"), 0o644))
	must(t, os.WriteFile(script, []byte("#!/bin/sh\nmount --bind "+dir+"/fs /proc/sys/fs && exec \"$@\"\n"), 0o755))
	t.Setenv("CRISPD", "unshare --mount "+script+" "+os.Getenv("CRISPD"))
	s := newScene(t)
	p := s.pod("covered-sysctl")
	p.Config.Linux.Sysctls = map[string]string{"fs.mqueue.msg_max": "17"}
	must(t, p.Up(node.Demo, "/bin/sleep", "1000"))
	s.lines(t, p, "cat /proc/sys/fs/mqueue/msg_max", "17")
	if raw, err := os.ReadFile(fake); err != nil || string(raw) != "fake" {
		t.Errorf("the file over the sysctl has %q now, %v", raw, err)
	}
	s.end(t, p)
}
