// SPDX-License-Identifier: Apache-2.0

package conformance

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"sort"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// server is the crispd under test: one that we start in a directory of its own (CRISPD names the
// program, and may add options), or one that runs already (CRISP_SOCKET).
type server struct {
	socket  string
	crisp   string // the command line program
	crictl  string
	config  string          // crictl's configuration file
	dir     string          // root, state and log beneath it; empty if the server is not ours
	ids     map[string]bool // of all pods and containers that crictl told us
	process *exec.Cmd
	own     map[string]string // the processes of an idle server: itself, and its keeper
	ended   chan error
}

func needEnv(t *testing.T, name, what string) string {
	t.Helper()
	value := os.Getenv(name)
	if value == "" {
		t.Fatalf("set %s to %s", name, what)
	}
	return value
}

// newServer leaves nothing behind: what it started ends with the test, which fails if crispd didn't.
func newServer(t *testing.T) *server {
	t.Helper()
	// what a server leaves behind becomes our child and can be seen
	if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil {
		t.Fatal(err)
	}
	bin, err := exec.Command("./build").Output()
	if err != nil {
		t.Fatalf("./build: %v: %s", err, err.(*exec.ExitError).Stderr)
	}
	s := &server{
		socket: os.Getenv("CRISP_SOCKET"),
		crisp:  needEnv(t, "CRISP", "crisp, the command line program"),
		crictl: filepath.Join(strings.TrimSpace(string(bin)), "crictl"),
		config: filepath.Join(t.TempDir(), "crictl.yaml"),
		ids:    map[string]bool{},
	}
	if s.socket == "" {
		s.start(t, needEnv(t, "CRISPD", "crispd, or CRISP_SOCKET to the socket of one that runs"))
	}
	endpoints := fmt.Sprintf("runtime-endpoint: unix://%s\nimage-endpoint: unix://%s\ntimeout: 30\n", s.socket, s.socket)
	if err := os.WriteFile(s.config, []byte(endpoints), 0o600); err != nil {
		t.Fatal(err)
	}
	return s
}

func (s *server) start(t *testing.T, crispd string) {
	t.Helper()
	s.dir = t.TempDir()
	s.socket = filepath.Join(s.dir, "crispd.sock")
	log, err := os.Create(filepath.Join(s.dir, "log"))
	if err != nil {
		t.Fatal(err)
	}
	command := append(strings.Fields(crispd), "--root", filepath.Join(s.dir, "root"),
		"--state", filepath.Join(s.dir, "state"), "--listen", s.socket)
	s.process = exec.Command(command[0], command[1:]...)
	s.process.Stdout, s.process.Stderr = log, log
	if err := s.process.Start(); err != nil {
		t.Fatal(err)
	}
	s.ended = make(chan error, 1)
	go func() { s.ended <- s.process.Wait() }()
	t.Cleanup(func() { s.stop(t) })
	eventually(t, 10*time.Second, func() error {
		select {
		case err := <-s.ended:
			s.ended <- err
			t.Fatalf("crispd ended before it listened: %v", err)
		default:
		}
		_, err := os.Stat(s.socket)
		return err
	})
	s.own = descendants()
}

func (s *server) stop(t *testing.T) {
	_ = s.process.Process.Signal(unix.SIGTERM)
	select {
	case <-s.ended:
	case <-time.After(10 * time.Second):
		t.Error("crispd still runs 10 s after SIGTERM")
		_ = s.process.Process.Kill()
		<-s.ended
	}
	if t.Failed() {
		log, _ := os.ReadFile(filepath.Join(s.dir, "log"))
		t.Logf("crispd's log:\n%s", log)
	}
	// containers outlive a server, and so does what a failed test left
	for pid := range descendants() {
		if n, err := strconv.Atoi(pid); err == nil {
			_ = unix.Kill(n, unix.SIGKILL)
		}
	}
	// two host mounts are the server's own (its pins); the temporary directory can't go with them
	for _, m := range mountsBelow(t, s.dir) {
		if err := unix.Unmount(m, unix.MNT_DETACH); err != nil {
			t.Errorf("unmount %s: %v", m, err)
		}
	}
}

// eventually waits until f finds nothing wrong; it asks often, because there is no event to wait for.
func eventually(t *testing.T, limit time.Duration, f func() error) {
	t.Helper()
	for end := time.Now().Add(limit); ; time.Sleep(20 * time.Millisecond) {
		err := f()
		if err == nil {
			return
		}
		if time.Now().After(end) {
			t.Fatalf("after %v: %v", limit, err)
		}
	}
}

var wholeID = regexp.MustCompile(`\b[0-9a-f]{64}\b`)

// run starts crictl and returns what it wrote, and its error with that of stderr.
func (s *server) run(args ...string) (stdout, stderr string, err error) {
	cmd := exec.Command(s.crictl, append([]string{"--config", s.config}, args...)...)
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	err = cmd.Run()
	for _, id := range wholeID.FindAllString(out.String(), -1) {
		s.ids[id] = true
	}
	return out.String(), errs.String(), err
}

// ctl is run for a call that must succeed without a word of warning.
func (s *server) ctl(t *testing.T, args ...string) string {
	t.Helper()
	stdout, stderr, err := s.run(args...)
	if err != nil {
		t.Fatalf("crictl %s: %v: %s", strings.Join(args, " "), err, stderr)
	}
	if stderr != "" {
		t.Errorf("crictl %s has something to say: %s", strings.Join(args, " "), stderr)
	}
	return stdout
}

// object is a JSON answer of crictl.
func (s *server) object(t *testing.T, args ...string) value {
	t.Helper()
	out := s.ctl(t, args...)
	var v any
	if err := json.Unmarshal([]byte(out), &v); err != nil {
		t.Fatalf("crictl %s: %v in %s", strings.Join(args, " "), err, out)
	}
	return value{v}
}

// value is any piece of JSON; a member that isn't there is a value of nil.
type value struct{ any }

// at follows member names and list indices, "status.conditions.0.type".
func (v value) at(path string) value {
	for _, key := range strings.Split(path, ".") {
		switch x := v.any.(type) {
		case map[string]any:
			v = value{x[key]}
		case []any:
			i, err := strconv.Atoi(key)
			if err != nil || i >= len(x) {
				return value{}
			}
			v = value{x[i]}
		default:
			return value{}
		}
	}
	return v
}

func (v value) list() []value {
	items, _ := v.any.([]any)
	list := make([]value, len(items))
	for i := range items {
		list[i] = value{items[i]}
	}
	return list
}

func (v value) String() string {
	if text, ok := v.any.(string); ok {
		return text
	}
	raw, _ := json.Marshal(v.any)
	return string(raw)
}

// expect compares members with what they must be, all of them before it gives up.
func (v value) expect(t *testing.T, want map[string]string) {
	t.Helper()
	for path, text := range want {
		if have := v.at(path).String(); have != text {
			t.Errorf("%s is %s, want %s", path, have, text)
		}
	}
	if t.Failed() {
		t.Fatalf("in %s", v)
	}
}

// world is what a node may not gain by pods that came and went. Others may use the machine too, so
// mounts and cgroups count if they bear the id of one of our pods or containers.
type world struct {
	processes map[string]string // pid → name, beside the server and its keeper
	mounts    map[string]string
	cgroups   map[string]string
	fds       map[string]string // of the server and its keeper: kind → number
	files     map[string]string // below root and state
}

func mountsBelow(t *testing.T, dir string) []string {
	t.Helper()
	raw, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		t.Fatal(err)
	}
	var mounts []string
	for line := range strings.Lines(string(raw)) {
		if at := strings.Fields(line)[4]; strings.HasPrefix(at, dir+"/") {
			mounts = append(mounts, at)
		}
	}
	// the inner ones first
	sort.Sort(sort.Reverse(sort.StringSlice(mounts)))
	return mounts
}

// descendants are the processes that came from this test, by pid, with their names. Orphans are among
// them, as we are the subreaper; dead ones that only we could reap are not.
func descendants() map[string]string {
	self := strconv.Itoa(os.Getpid())
	found, parents, names := map[string]string{}, map[string][]string{}, map[string]string{}
	stats, _ := filepath.Glob("/proc/[0-9]*/stat")
	for _, path := range stats {
		raw, err := os.ReadFile(path)
		if err != nil {
			continue
		}
		open, end := bytes.IndexByte(raw, '('), bytes.LastIndexByte(raw, ')')
		pid, rest := strings.TrimSpace(string(raw[:open])), strings.Fields(string(raw[end+1:]))
		if state, parent := rest[0], rest[1]; state != "Z" || parent != self {
			names[pid] = string(raw[open+1 : end])
			parents[parent] = append(parents[parent], pid)
		}
	}
	for queue := []string{self}; len(queue) > 0; queue = queue[1:] {
		for _, child := range parents[queue[0]] {
			found[child] = names[child]
			queue = append(queue, child)
		}
	}
	return found
}

// others are the processes that are neither the server nor its keeper; nil if the server is not ours.
func (s *server) others() map[string]string {
	if s.process == nil {
		return nil
	}
	found := descendants()
	for pid := range s.own {
		delete(found, pid)
	}
	return found
}

func (s *server) isOurs(path string) bool {
	if s.dir != "" && strings.HasPrefix(path, s.dir+"/") {
		return true
	}
	for id := range s.ids {
		if strings.Contains(path, id) {
			return true
		}
	}
	return false
}

func (s *server) mounts(t *testing.T) map[string]string {
	t.Helper()
	raw, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		t.Fatal(err)
	}
	found := map[string]string{}
	for line := range strings.Lines(string(raw)) {
		if s.isOurs(line) || s.isOurs(strings.Fields(line)[4]) {
			found[strings.Fields(line)[4]] = ""
		}
	}
	return found
}

func (s *server) cgroups() map[string]string {
	found := map[string]string{}
	_ = filepath.WalkDir("/sys/fs/cgroup", func(path string, entry fs.DirEntry, err error) error {
		if err == nil && entry.IsDir() && s.isOurs(path) {
			found[path] = ""
		}
		return nil
	})
	return found
}

// descriptors counts by kind (pipe, socket, net, anon_inode …), because numbers say nothing, and shows
// files by name; those of the database come and go.
func (s *server) descriptors() map[string]string {
	counts := map[string]int{}
	for pid := range s.own {
		links, _ := filepath.Glob("/proc/" + pid + "/fd/*")
		for _, link := range links {
			to, err := os.Readlink(link)
			if err != nil || strings.Contains(filepath.Base(to), ".db") {
				continue
			}
			if !strings.HasPrefix(to, "/") {
				to, _, _ = strings.Cut(to, ":[")
			}
			counts[to]++
		}
	}
	found := map[string]string{}
	for kind, n := range counts {
		found[kind] = strconv.Itoa(n)
	}
	return found
}

func (s *server) look(t *testing.T) world {
	t.Helper()
	w := world{cgroups: s.cgroups(), mounts: s.mounts(t)}
	if s.dir == "" {
		return w
	}
	w.processes, w.fds = s.others(), s.descriptors()
	w.files = map[string]string{}
	for _, dir := range []string{"root", "state"} {
		_ = filepath.WalkDir(filepath.Join(s.dir, dir), func(path string, _ fs.DirEntry, err error) error {
			if err == nil && !strings.Contains(filepath.Base(path), ".db") {
				w.files[path] = ""
			}
			return nil
		})
	}
	return w
}

// gained says what after has and before hadn't.
func gained(what string, before, after map[string]string) []string {
	var lines []string
	for key, text := range after {
		if old, known := before[key]; !known || (what == "descriptors" && old != text) {
			lines = append(lines, strings.TrimSpace(fmt.Sprintf("%s: %s %s", what, key, text)))
		}
	}
	sort.Strings(lines)
	return lines
}

// leftovers waits a little: directories are deleted behind the reply.
func (s *server) leftovers(t *testing.T, before world) {
	t.Helper()
	eventually(t, 5*time.Second, func() error {
		after := s.look(t)
		lines := gained("process", before.processes, after.processes)
		lines = append(lines, gained("mount", before.mounts, after.mounts)...)
		lines = append(lines, gained("cgroup", before.cgroups, after.cgroups)...)
		lines = append(lines, gained("descriptors", before.fds, after.fds)...)
		lines = append(lines, gained("file", before.files, after.files)...)
		if n := len(lines); n > 0 {
			return fmt.Errorf("left behind %d things:\n%s", n, strings.Join(lines[:min(n, 50)], "\n"))
		}
		return nil
	})
}
