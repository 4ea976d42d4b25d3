// SPDX-License-Identifier: Apache-2.0

package node

import (
	"bytes"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"sort"
	"strconv"
	"strings"
	"testing"
	"time"
)

// World is what a node may not gain by pods that came and went. Others may use the machine too, so
// mounts and cgroups count if they lie in the server's directories or bear one of the marks.
type World struct {
	things map[string]map[string]string // what → which → how many, or ""
}

type process struct {
	name, state string
	parent      int
}

func processes() map[int]process {
	found := map[int]process{}
	stats, _ := filepath.Glob("/proc/[0-9]*/stat")
	for _, path := range stats {
		raw, err := os.ReadFile(path)
		if err != nil {
			continue
		}
		open, end := bytes.IndexByte(raw, '('), bytes.LastIndexByte(raw, ')')
		pid, _ := strconv.Atoi(strings.TrimSpace(string(raw[:open])))
		rest := strings.Fields(string(raw[end+1:]))
		parent, _ := strconv.Atoi(rest[1])
		found[pid] = process{string(raw[open+1 : end]), rest[0], parent}
	}
	return found
}

// descendants are the processes that came from this test, by pid, with their names. Orphans are among
// them, as we are the subreaper; dead ones that only we could reap are not.
func descendants() map[int]string {
	self := os.Getpid()
	all, children, found := processes(), map[int][]int{}, map[int]string{}
	for pid, p := range all {
		if p.state != "Z" || p.parent != self {
			children[p.parent] = append(children[p.parent], pid)
		}
	}
	for queue := []int{self}; len(queue) > 0; queue = queue[1:] {
		for _, child := range children[queue[0]] {
			found[child] = all[child].name
			queue = append(queue, child)
		}
	}
	return found
}

// Others are the processes that are neither the server nor its keeper nor programs that the test
// runs itself; nil if the server is not ours.
func (s *Server) Others() map[int]string {
	if s.process == nil {
		return nil
	}
	found := descendants()
	for _, pid := range s.Own() {
		delete(found, pid)
	}
	return found
}

// MountsBelow are mount points, the inner ones first.
func MountsBelow(dir string) []string {
	var mounts []string
	for _, line := range mountinfo() {
		if at := strings.Fields(line)[4]; strings.HasPrefix(at, dir+"/") {
			mounts = append(mounts, at)
		}
	}
	// the inner ones first
	sort.Sort(sort.Reverse(sort.StringSlice(mounts)))
	return mounts
}

func mountinfo() []string {
	raw, _ := os.ReadFile("/proc/self/mountinfo")
	return strings.Split(strings.TrimSpace(string(raw)), "\n")
}

// HostMounts is how many mounts the host's table has.
func HostMounts() int {
	return len(mountinfo())
}

func (s *Server) isOurs(text string, marks []string) bool {
	if s.Dir != "" && strings.Contains(text, s.Dir+"/") {
		return true
	}
	return slices.ContainsFunc(marks, func(mark string) bool { return strings.Contains(text, mark) })
}

// Descriptors counts by kind (pipe, socket, net, anon_inode …), because numbers say nothing, and shows
// files by name; those of the database come and go.
func (s *Server) Descriptors() map[string]string {
	counts := map[string]int{}
	own := s.Own()
	for _, pid := range own {
		role := "server"
		if len(own) > 1 && pid == own[0] {
			role = "keeper"
		}
		links, _ := filepath.Glob(fmt.Sprintf("/proc/%d/fd/*", pid))
		for _, link := range links {
			to, err := os.Readlink(link)
			if err != nil || strings.Contains(filepath.Base(to), ".db") {
				continue
			}
			if !strings.HasPrefix(to, "/") {
				to, _, _ = strings.Cut(to, ":[")
			}
			counts[role+" "+to]++
		}
	}
	// what the server makes once, as soon as it has time
	for _, kind := range []string{"server /memfd:seccomp (deleted)", "server anon_inode:bpf-prog"} {
		counts[kind] = max(counts[kind], 1)
	}
	found := map[string]string{}
	for kind, n := range counts {
		found[kind] = strconv.Itoa(n)
	}
	return found
}

// rows counts those of every table but the images'.
func (s *Server) rows(t testing.TB) map[string]string {
	t.Helper()
	found := map[string]string{}
	for _, table := range []string{"sandboxes", "containers", "streams", "intents"} {
		out, err := exec.Command("sqlite3", "-readonly", filepath.Join(s.Dir, "root", "crisp.db"),
			"SELECT count(*) FROM "+table).CombinedOutput()
		if err != nil {
			t.Fatalf("sqlite3 (Debian package sqlite3): %v: %s", err, out)
		}
		found[table] = strings.TrimSpace(string(out))
	}
	return found
}

// pins are what the server has pinned: one of its threads has nothing else in its root.
func (s *Server) pins(t testing.TB) map[string]string {
	t.Helper()
	found := map[string]string{}
	pid, err := s.Pid()
	if err != nil {
		return found
	}
	threads, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*", pid))
	for _, thread := range threads {
		name, _ := os.ReadFile(filepath.Join(thread, "comm"))
		if strings.TrimSpace(string(name)) != "crisp-pins" {
			continue
		}
		entries, err := os.ReadDir(filepath.Join(thread, "root"))
		if err != nil {
			t.Fatalf("the pins can't be seen: %v", err)
		}
		for _, entry := range entries {
			found[entry.Name()] = ""
		}
	}
	return found
}

// Look sees all of it. Marks are ids of pods and containers, or names of cgroups that are ours.
func (s *Server) Look(t testing.TB, marks ...string) World {
	t.Helper()
	w := World{map[string]map[string]string{"mount": {}, "cgroup": {}, "process": {}, "file": {}}}
	for _, line := range mountinfo() {
		if s.isOurs(line, marks) {
			w.things["mount"][strings.Fields(line)[4]] = ""
		}
	}
	_ = filepath.WalkDir("/sys/fs/cgroup", func(path string, entry fs.DirEntry, err error) error {
		if err == nil && entry.IsDir() && s.isOurs(path, marks) {
			w.things["cgroup"][path] = ""
		}
		return nil
	})
	if s.process == nil {
		return w
	}
	for pid, name := range s.Others() {
		w.things["process"][fmt.Sprintf("%d %s", pid, name)] = ""
	}
	for _, dir := range []string{"root", "state"} {
		_ = filepath.WalkDir(filepath.Join(s.Dir, dir), func(path string, _ fs.DirEntry, err error) error {
			if err == nil && !strings.Contains(filepath.Base(path), ".db") {
				w.things["file"][path] = ""
			}
			return nil
		})
	}
	w.things["pin"] = s.pins(t)
	w.things["descriptors"] = s.Descriptors()
	w.things["rows"] = s.rows(t)
	return w
}

// IsSanitized says whether the program keeps what it freed in quarantine, so that its memory tells
// nothing.
func IsSanitized(program string) bool {
	raw, err := os.ReadFile(program)
	return err == nil && bytes.Contains(raw, []byte("__asan_init"))
}

// gained says what after has and before hadn't.
func (before World) gained(after World) []string {
	var lines []string
	for what, things := range after.things {
		for which, number := range things {
			if old, known := before.things[what][which]; !known || more(old, number) {
				lines = append(lines, strings.TrimSpace(fmt.Sprintf("%s: %s %s", what, which, number)))
			}
		}
	}
	sort.Strings(lines)
	return lines
}

func more(old, number string) bool {
	a, _ := strconv.Atoi(old)
	b, _ := strconv.Atoi(number)
	return b > a
}

// Leftovers fails if there is more than before. It waits a little: directories are deleted behind the
// reply.
func (s *Server) Leftovers(t testing.TB, before World, marks ...string) {
	t.Helper()
	Eventually(t, 5*time.Second, func() error {
		lines := before.gained(s.Look(t, marks...))
		if n := len(lines); n > 0 {
			return fmt.Errorf("left behind %d things:\n%s", n, strings.Join(lines[:min(n, 50)], "\n"))
		}
		return nil
	})
}

// cgroups are a cgroup and those in it, in all hierarchies, the outer ones first.
func cgroups(path string) []string {
	found, _ := filepath.Glob("/sys/fs/cgroup" + path)
	nested, _ := filepath.Glob("/sys/fs/cgroup/*" + path)
	var dirs []string
	for _, top := range append(found, nested...) {
		_ = filepath.WalkDir(top, func(path string, entry fs.DirEntry, err error) error {
			if err == nil && entry.IsDir() {
				dirs = append(dirs, path)
			}
			return nil
		})
	}
	return dirs
}

// RemoveCgroups removes a cgroup with all in it, as a reboot does. Nothing may run there.
func RemoveCgroups(path string) {
	for _, dir := range slices.Backward(cgroups(path)) {
		_ = os.Remove(dir)
	}
}

// RemoveParent removes a cgroup of the test's in all hierarchies, and reports what was left in it. A
// server removes only cgroups that it made, never the parent that a caller named.
func RemoveParent(t testing.TB, parent string) {
	t.Helper()
	for _, dir := range slices.Backward(cgroups(parent)) {
		if !strings.HasSuffix(dir, parent) {
			t.Errorf("cgroup left: %s", dir)
		}
		Eventually(t, 5*time.Second, func() error { return os.Remove(dir) })
	}
}
