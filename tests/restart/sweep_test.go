// SPDX-License-Identifier: Apache-2.0

package restart

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"crisp/node"
)

// mkdir makes directories that are gone after the test, if the server leaves them.
func mkdir(t *testing.T, dirs ...string) {
	t.Helper()
	for _, dir := range dirs {
		must(t, os.MkdirAll(dir, 0o755))
		t.Cleanup(func() { _ = os.Remove(dir) })
	}
}

func exists(path string) bool {
	_, err := os.Lstat(path)
	return err == nil
}

// hierarchies are the mount points of cgroups that have that group.
func hierarchies(t *testing.T, group string) []string {
	t.Helper()
	found, err := filepath.Glob("/sys/fs/cgroup/*" + group)
	must(t, err)
	top, err := filepath.Glob("/sys/fs/cgroup" + group)
	must(t, err)
	return append(found, top...)
}

// TestSweep: what has a place and a name of the server's and is nobody's goes and is logged; what isn't the
// server's stays: other names in these places, cgroups of another server, mounts of others.
func TestSweep(t *testing.T) {
	parent := cgroupParent(t)
	s := newScene(t, startPlain(t), parent)
	good, lost := s.sleeper(t, "good"), s.pod("lost")
	lost.Config.Linux.SecurityContext.NamespaceOptions = &cri.NamespaceOption{} // pins of all sorts, and a PID 1
	lost.Config.Linux.CgroupParent = parent + "/own"                            // as the kubelet has it
	must(t, lost.Up(node.Demo, "/bin/sleep", "1000"))
	s.Kill(t)
	// a pod of which only the row is gone
	s.sql(t, fmt.Sprintf("DELETE FROM sandboxes WHERE id = '%s'; DELETE FROM containers WHERE id = '%s'", lost.ID, lost.Container))

	mine, others, foreign := strings.Repeat("ab", 32), strings.Repeat("cd", 32), strings.Repeat("ef", 32)
	roots, states := filepath.Join(s.Dir, "root/containers"), filepath.Join(s.Dir, "state/run/containers")
	sandboxes := filepath.Join(s.Dir, "state/run/sandboxes")
	swept := []string{
		filepath.Join(roots, mine), filepath.Join(states, mine), filepath.Join(sandboxes, mine),
		filepath.Join(s.Dir, "root/images/layers", mine), filepath.Join(s.Dir, "root/images/ingest/half"),
		filepath.Join(roots, lost.Container), filepath.Join(states, lost.Container), filepath.Join(sandboxes, lost.ID),
	}
	kept := []string{
		filepath.Join(roots, "notes"), filepath.Join(states, mine[:63]), filepath.Join(sandboxes, strings.ToUpper(mine)),
		filepath.Join(s.Dir, "root/mine"), filepath.Join(s.Dir, "state/mine"),
	}
	mkdir(t, append(swept[:5], kept...)...)
	// the layers, and the directory with another's mount on it
	stray, elsewhere := filepath.Join(roots, mine, "merged"), filepath.Join(s.Dir, "root/mine/mount")
	mkdir(t, stray, elsewhere, filepath.Join(roots, mine, "deep/er"))
	must(t, unix.Mount("overlay", stray, "overlay", 0, fmt.Sprintf("lowerdir=%s:%s", kept[0], kept[3])))
	must(t, unix.Mount("none", elsewhere, "tmpfs", 0, ""))
	t.Cleanup(func() { _ = unix.Unmount(elsewhere, unix.MNT_DETACH) })
	// cgroups: one of an id of ours, one of another server on the node, one that is nobody's business
	var groups, strangers []string
	for _, h := range hierarchies(t, parent) {
		groups = append(groups, filepath.Join(h, mine))
		strangers = append(strangers, filepath.Join(h, others), filepath.Join(h, "other"))
	}
	if len(groups) == 0 {
		t.Fatal("no cgroup of the test is there")
	}
	// the default parent, which other servers share and may have removed
	for _, h := range hierarchies(t, parent) {
		h = strings.TrimSuffix(h, parent) + "/crisp"
		groups = append(groups, filepath.Join(h, mine))
		strangers = append(strangers, filepath.Join(h, foreign))
	}
	mkdir(t, append(groups, strangers...)...)

	s.Run(t)
	s.mustLog(t, "state and world are in line")
	node.Eventually(t, 5*time.Second, func() error {
		for _, path := range append(swept, groups...) {
			if exists(path) {
				return fmt.Errorf("%s is still there", path)
			}
		}
		return nil
	})
	for _, path := range append(kept, strangers...) {
		if !exists(path) {
			t.Errorf("%s is gone", path)
		}
	}
	for _, words := range [][]string{
		{"directory " + swept[0]}, {"directory " + swept[1]}, {"directory " + swept[2]}, {"layer " + mine},
		{"cgroup " + parent + "/" + mine}, {"cgroup /crisp/" + mine}, {"cgroup " + parent + "/own/" + lost.Container},
		{"pin " + lost.ID + ".net"}, {"pin " + lost.ID + ".ipc"}, {"pin " + lost.ID + ".shm"}, {"pin " + lost.ID + ".init"},
		{"pin " + lost.Container + ".pid"},
	} {
		s.mustLog(t, append(words, "level=warning", "nobody's")...)
	}
	if s.logged(t, good.ID) || s.logged(t, good.Container) {
		t.Error("the log names what is somebody's")
	}
	var st unix.Statfs_t
	if err := unix.Statfs(elsewhere, &st); err != nil || st.Type != unix.TMPFS_MAGIC {
		t.Errorf("another's mount is gone: %v", err)
	}
	node.Eventually(t, 5*time.Second, func() error {
		node.ReapOrphans()
		if n := len(s.Others()); n != 1 {
			return fmt.Errorf("%d processes run, not the one", n)
		}
		return nil
	})
	s.expectWorks(t, good)
	must(t, unix.Unmount(elsewhere, 0))
	for _, path := range append([]string{elsewhere}, append(kept, strangers...)...) {
		must(t, os.Remove(path))
	}
	node.RemoveCgroups(parent + "/own")
	s.end(t, good)
}

// TestSweepHarmsNothingThatComesAndGoes: pods are made and removed while it runs.
func TestSweepHarmsNothingThatComesAndGoes(t *testing.T) {
	s := newScene(t, startPlain(t), cgroupParent(t))
	for round := range 3 {
		s.Kill(t)
		for i := range 100 {
			id := fmt.Sprintf("%062x%02x", i, round)
			mkdir(t, filepath.Join(s.Dir, "root/containers", id, "upper"), filepath.Join(s.Dir, "state/run/containers", id))
		}
		s.Run(t)
		for i := range 10 {
			p := s.sleeper(t, fmt.Sprintf("p-%d-%d", round, i))
			if r, err := p.Exec("/bin/echo", "fine"); err != nil || string(r.Stdout) != "fine\n" {
				t.Errorf("exec: %v, %v", r, err)
			}
			must(t, p.Remove())
		}
	}
	s.end(t)
}

// TestTornLog: a database whose log ends in the middle is as old as that; what came later is swept.
func TestTornLog(t *testing.T) {
	s := newScene(t, startPlain(t), cgroupParent(t))
	pods := []*node.Pod{s.sleeper(t, "a"), s.sleeper(t, "b"), s.sleeper(t, "c")}
	s.Kill(t)
	log := filepath.Join(s.Dir, "root/crisp.db-wal")
	info, err := os.Stat(log)
	must(t, err)
	must(t, os.Truncate(log, info.Size()*9/10+100))
	_ = os.Remove(filepath.Join(s.Dir, "root/crisp.db-shm"))
	s.Run(t)
	s.mustLog(t, "state and world are in line")
	listed, err := node.Call(s.Runtime.ListContainers, &cri.ListContainersRequest{})
	must(t, err)
	t.Logf("%d of %d containers are listed", len(listed.Containers), len(pods))
	node.Eventually(t, 5*time.Second, func() error {
		if n := len(s.Others()); n > len(listed.Containers) {
			return fmt.Errorf("%d processes run in %d containers", n, len(listed.Containers))
		}
		return nil
	})
	for _, p := range pods {
		must(t, p.Remove())
	}
	s.end(t)
}
