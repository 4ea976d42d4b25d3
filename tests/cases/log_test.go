// SPDX-License-Identifier: Apache-2.0

package cases

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	"google.golang.org/grpc/codes"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"crisp/node"
)

// TestLogs: every byte that a container printed is in its log once, in the form that collectors read.
func TestLogs(t *testing.T) {
	s := newScene(t)
	for _, c := range []struct {
		name string
		test func(*testing.T, *scene)
	}{
		{"end with a whole record though the last line has no end", logLastLine},
		{"join to what was printed, whatever the bytes and the lengths of lines", logAnyBytes},
		{"of fifty that end at once are whole", logAtOnce},
		{"that are rotated have every line once, also while the container ends", logRotation},
		{"that are rotated keep a line in one piece if it is soon complete", logRotationWaitsForLine},
		{"are where the status says, whatever happens to the container", logPath},
		{"can be read by a group and are root's", logMode},
		{"can't be where no file can", logNowhere},
	} {
		t.Run(c.name, func(t *testing.T) { c.test(t, s) })
	}
}

// record is a line of a log.
type record struct {
	stream, tag string
	payload     []byte
}

// records are those of the parts of a log, in their order.
func records(t *testing.T, parts ...string) []record {
	t.Helper()
	var found []record
	for _, path := range parts {
		raw, err := os.ReadFile(path)
		must(t, err)
		for line := range bytes.Lines(raw) {
			text, whole := bytes.CutSuffix(line, []byte("\n"))
			fields := bytes.SplitN(text, []byte(" "), 4)
			if !whole || len(fields) != 4 {
				t.Fatalf("%s: no record: %.100q", filepath.Base(path), line)
			}
			if _, err := time.Parse(time.RFC3339Nano, string(fields[0])); err != nil {
				t.Fatalf("%s: %v in %.100q", filepath.Base(path), err, line)
			}
			found = append(found, record{string(fields[1]), string(fields[2]), fields[3]})
		}
	}
	return found
}

// joined is what a stream's records say was printed. Each F ends a line.
func joined(found []record, stream string) []byte {
	var all []byte
	for _, r := range found {
		if r.stream != stream {
			continue
		}
		all = append(all, r.payload...)
		if r.tag == "F" {
			all = append(all, '\n')
		}
	}
	return all
}

func logLastLine(t *testing.T, s *scene) {
	for name, script := range map[string]string{
		"exit":   "printf hello; printf oops >&2",
		"signal": "printf hello; printf oops >&2; kill -9 $$",
	} {
		p := s.pod("last-line-" + name)
		s.run(t, p, "/bin/sh", "-c", script)
		found := records(t, p.LogFile())
		for stream, text := range map[string]string{"stdout": "hello\n", "stderr": "oops\n"} {
			if got := joined(found, stream); string(got) != text {
				t.Errorf("%s: %s is %q", name, stream, got)
			}
		}
		s.end(t, p)
	}
}

func logAnyBytes(t *testing.T, s *scene) {
	lengths := []int{0, 1, 16383, 16384, 16385, 32768, 32769, 100000}
	script, input, want := "", []byte{}, []int{}
	for _, n := range lengths {
		script += fmt.Sprintf("head -c %d /dev/zero | tr '\\000' x; echo; ", n)
		input = append(input, strings.Repeat("x", n)+"\n"...)
		want = append(want, max(1, (n+16383)/16384))
	}
	script += `printf 'a\000b\000\n\000\n\377\376\200 \303\n\r\r\n  F P \n'`
	input = append(input, "a\x00b\x00\n\x00\n\xff\xfe\x80 \xc3\n\r\r\n  F P \n"...)
	p := s.pod("bytes")
	expectEnd(t, s.run(t, p, "/bin/sh", "-c", script), 0, "Completed")
	found := records(t, p.LogFile())
	if got := joined(found, "stdout"); !bytes.Equal(got, input) {
		t.Errorf("%d bytes became %d, or others", len(input), len(got))
	}
	// no line is in more pieces than it must be
	for i, n := range want {
		for piece := 1; piece <= n; piece++ {
			tag := "P"
			if piece == n {
				tag = "F"
			}
			if len(found) == 0 || found[0].tag != tag {
				t.Fatalf("the line of %d bytes isn't in %d pieces", lengths[i], n)
			}
			found = found[1:]
		}
	}
	s.end(t, p)
}

func logAtOnce(t *testing.T, s *scene) {
	const count, size = 50, 2_000_000
	line := func(i int) string { return strings.Repeat(string(rune('a'+i%26)), 60+i) }
	var all sync.WaitGroup
	pods := make([]*node.Pod, count)
	for i := range pods {
		pods[i] = s.pod(fmt.Sprintf("at-once-%d", i))
		must(t, pods[i].Run())
		must(t, pods[i].Create(node.Demo, "/bin/sh", "-c", fmt.Sprintf("yes $0 | head -c %d", size), line(i)))
	}
	for _, p := range pods {
		all.Go(func() {
			if err := p.Start(); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	for i, p := range pods {
		expectEnd(t, exited(t, p), 0, "Completed")
		input := []byte(strings.Repeat(line(i)+"\n", size/len(line(i)))[:size])
		if input[size-1] != '\n' {
			input = append(input, '\n')
		}
		if got := joined(records(t, p.LogFile()), "stdout"); sha256.Sum256(got) != sha256.Sum256(input) {
			t.Errorf("container %d printed %d bytes, and %d others are in its log", i, len(input), len(got))
		}
	}
	s.end(t, pods...)
}

// rotate does to a log what the kubelet does: rename, reopen, and if that fails rename back.
func (s *scene) rotate(p *node.Pod, parts *[]string) error {
	part := fmt.Sprintf("%s.%d", p.LogFile(), len(*parts))
	if err := os.Rename(p.LogFile(), part); err != nil {
		return err
	}
	_, err := node.Call(s.Runtime.ReopenContainerLog, &cri.ReopenContainerLogRequest{ContainerId: p.Container})
	if err != nil {
		return errors.Join(err, os.Rename(part, p.LogFile()))
	}
	*parts = append(*parts, part)
	return nil
}

func logRotation(t *testing.T, s *scene) {
	// goes on for a while when it is to stop
	const script = `last=-1; trap 'last=$((i+30000))' TERM
i=0; while [ $i -ne $last ]; do echo $i; i=$((i+1)); done; echo end $i; exit 6`
	p := s.pod("rotation")
	must(t, p.Up(node.Demo, "/bin/sh", "-c", script))
	var parts []string
	for range 100 {
		time.Sleep(5 * time.Millisecond)
		must(t, s.rotate(p, &parts))
	}
	stopped := make(chan error, 1)
	go func() { stopped <- p.Stop(20) }()
	// until nobody writes it any more
	before, err := len(parts), error(nil)
	for err == nil {
		err = s.rotate(p, &parts)
	}
	must(t, <-stopped)
	refused(t, err, codes.FailedPrecondition, p.Container, "not running")
	expectEnd(t, exited(t, p), 6, "Error")
	if len(parts) == before {
		t.Error("the log was never rotated while the container ended")
	}
	parts = append(parts, p.LogFile())
	next, ended := 0, false
	for i, r := range records(t, parts...) {
		text := fmt.Sprint(next)
		if string(r.payload) == "end "+text {
			ended = true
			continue
		}
		if r.stream != "stdout" || r.tag != "F" || string(r.payload) != text {
			t.Fatalf("record %d is %s %s %q, but line %d was to come", i, r.stream, r.tag, r.payload, next)
		}
		next++
	}
	if !ended {
		t.Errorf("the last line is missing behind %d", next)
	}
	t.Logf("%d lines in %d parts, %d of them from its end", next, len(parts), len(parts)-before)

	_, err = node.Call(s.Runtime.ReopenContainerLog, &cri.ReopenContainerLogRequest{ContainerId: p.Container})
	refused(t, err, codes.FailedPrecondition, p.Container, "not running")
	s.end(t, p)
	_, err = node.Call(s.Runtime.ReopenContainerLog, &cri.ReopenContainerLogRequest{ContainerId: p.Container})
	refused(t, err, codes.NotFound, p.Container)
}

// logRotationWaitsForLine: of a long line a piece is in the log when the rotation comes. If the rest
// follows soon, it goes where the piece is; otherwise the rotation doesn't wait for it.
func logRotationWaitsForLine(t *testing.T, s *scene) {
	const piece, rest = 16384, 5000
	for name, wait := range map[string]time.Duration{"soon": 10 * time.Millisecond, "late": time.Second} {
		host := t.TempDir()
		p := s.pod("line-" + name)
		p.Tune = func(c *cri.ContainerConfig) {
			c.Mounts = []*cri.Mount{{HostPath: host, ContainerPath: "/host"}}
		}
		must(t, p.Up(node.Demo, "/bin/sh", "-c", fmt.Sprintf(`head -c %d /dev/zero | tr '\000' x
while [ ! -e /host/go ]; do usleep 1000; done; head -c %d /dev/zero | tr '\000' x; echo; echo next; sleep 1000`, piece+1, rest-1)))
		node.Eventually(t, 10*time.Second, func() error {
			if file, err := os.Stat(p.LogFile()); err != nil || file.Size() < piece {
				return fmt.Errorf("nothing of the line is there: %v", err)
			}
			return nil
		})
		time.AfterFunc(wait, func() { _ = os.WriteFile(filepath.Join(host, "go"), nil, 0o600) })
		var parts []string
		begin := time.Now()
		must(t, s.rotate(p, &parts))
		took := time.Since(begin)
		node.Eventually(t, 10*time.Second, func() error {
			if raw, err := os.ReadFile(p.LogFile()); err != nil || !bytes.HasSuffix(raw, []byte(" next\n")) {
				return fmt.Errorf("the next line isn't there: %v", err)
			}
			return nil
		})
		old, new := records(t, parts...), records(t, p.LogFile())
		if name == "late" {
			if took > 500*time.Millisecond || len(old) != 1 || len(new) != 2 {
				t.Errorf("the rotation took %v, with %d and %d records", took, len(old), len(new))
			}
		} else if len(old) != 2 || len(new) != 1 {
			t.Errorf("a line that was soon complete is in two files, of %d and %d records", len(old), len(new))
		}
		if got, want := joined(append(old, new...), "stdout"), strings.Repeat("x", piece+rest)+"\nnext\n"; string(got) != want {
			t.Errorf("%s: %d bytes became %d, or others", name, len(want), len(got))
		}
		s.end(t, p)
	}
}

func logPath(t *testing.T, s *scene) {
	p := s.pod("path")
	check := func(state cri.ContainerState) {
		t.Helper()
		for range 2 {
			status, err := p.Status()
			must(t, err)
			if status.LogPath != p.LogFile() || status.State != state {
				t.Errorf("the log of one that is %v is %q", status.State, status.LogPath)
			}
			s.Restart(t)
		}
	}
	must(t, p.Run())
	must(t, p.Create(node.Demo, "/bin/sh", "-c", "echo text; sleep 1000"))
	check(cri.ContainerState_CONTAINER_CREATED)
	must(t, p.Start())
	check(cri.ContainerState_CONTAINER_RUNNING)
	var parts []string
	must(t, s.rotate(p, &parts))
	check(cri.ContainerState_CONTAINER_RUNNING)
	must(t, p.Stop(0))
	check(cri.ContainerState_CONTAINER_EXITED)
	if got := joined(records(t, append(parts, p.LogFile())...), "stdout"); string(got) != "text\n" {
		t.Errorf("the log says %q", got)
	}
	must(t, p.Remove())
}

func logNowhere(t *testing.T, s *scene) {
	name := strings.Repeat("n", 255)
	for _, path := range []string{name + "n", strings.Repeat(name+"/", 17) + "log", "dir/", "dir/.", ".", "../out", "dir/.."} {
		s.refusesCreate(t, func(c *cri.ContainerConfig) { c.LogPath = path }, codes.InvalidArgument, "config.log_path "+path[:1])
	}
	inFile := s.podWith("in-file", func(c *cri.ContainerConfig) { c.LogPath = "file/log" })
	must(t, inFile.Run())
	must(t, os.WriteFile(filepath.Join(inFile.Config.LogDirectory, "file"), nil, 0o644))
	must(t, inFile.Create(node.Demo, "/bin/true"))
	refused(t, inFile.Start(), codes.InvalidArgument, "open log "+inFile.Config.LogDirectory, "is a file")
	must(t, inFile.Remove())
	p := s.podWith("long", func(c *cri.ContainerConfig) { c.LogPath = name + "/" + name })
	must(t, p.Up(node.Demo, "/bin/true"))
	if _, err := os.Stat(filepath.Join(p.Config.LogDirectory, name, name)); err != nil {
		t.Error(err)
	}
	must(t, p.Remove())
}

func logMode(t *testing.T, s *scene) {
	p := s.pod("mode")
	p.Tune = func(c *cri.ContainerConfig) { c.LogPath = "main/0.log" }
	must(t, p.Up(node.Demo, "/bin/sleep", "1000"))
	path := filepath.Join(p.Config.LogDirectory, "main", "0.log")
	check := func() {
		t.Helper()
		var file, dir unix.Stat_t
		must(t, errors.Join(unix.Stat(path, &file), unix.Stat(filepath.Dir(path), &dir)))
		if file.Mode != unix.S_IFREG|0o640 || file.Uid != 0 || file.Gid != 0 {
			t.Errorf("the log's mode is %o, its owner %d:%d", file.Mode, file.Uid, file.Gid)
		}
		if mode := dir.Mode &^ unix.S_IFMT; (mode != 0o755 && mode != 0o750) || dir.Uid != 0 || dir.Gid != 0 {
			t.Errorf("the directory's mode is %o, its owner %d:%d", mode, dir.Uid, dir.Gid)
		}
	}
	check()
	must(t, os.Rename(path, path+".1"))
	must(t, p.Reopen())
	check()
	s.end(t, p)
}
