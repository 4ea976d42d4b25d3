// SPDX-License-Identifier: Apache-2.0

package restart

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"crisp/node"
)

// record is a line of a CRI log: time, stream, tag and payload, with a blank between two.
type record struct {
	stream, tag string
	payload     []byte
}

// parseRecord makes no copies: the storm reads gigabytes.
func parseRecord(line []byte) (record, error) {
	stamp, rest, _ := bytes.Cut(line, []byte(" "))
	stream, rest, _ := bytes.Cut(rest, []byte(" "))
	tag, payload, whole := bytes.Cut(rest, []byte(" "))
	if !whole {
		return record{}, errors.New("not a log record")
	}
	if _, err := time.Parse(time.RFC3339Nano, string(stamp)); err != nil {
		return record{}, err
	}
	r := record{payload: payload}
	for _, name := range []string{"stdout", "stderr"} {
		if string(stream) == name {
			r.stream = name
		}
	}
	for _, name := range []string{"F", "P"} {
		if string(tag) == name {
			r.tag = name
		}
	}
	if r.stream == "" || r.tag == "" {
		return record{}, fmt.Errorf("stream %q, tag %q", stream, tag)
	}
	return r, nil
}

// eachRecord goes through the parts of a log in their order. A last line without its end is an error.
func eachRecord(parts []string, see func(record) error) error {
	for _, path := range parts {
		file, err := os.Open(path)
		if err != nil {
			return err
		}
		defer file.Close()
		reader := bufio.NewReaderSize(file, 1<<20)
		for number := 1; ; number++ {
			line, err := reader.ReadSlice('\n')
			if err == io.EOF && len(line) == 0 {
				break
			}
			if err != nil {
				return fmt.Errorf("%s:%d: %w after %d bytes", filepath.Base(path), number, err, len(line))
			}
			r, err := parseRecord(line[:len(line)-1])
			if err == nil {
				err = see(r)
			}
			if err != nil {
				return fmt.Errorf("%s:%d: %w in %.100q", filepath.Base(path), number, err, line)
			}
		}
	}
	return nil
}

// readLog is a whole log of whole lines, each as "stream: text".
func readLog(path string) ([]string, error) {
	lines, rest := []string{}, map[string]string{}
	err := eachRecord([]string{path}, func(r record) error {
		rest[r.stream] += string(r.payload)
		if r.tag == "F" {
			lines = append(lines, r.stream+": "+rest[r.stream])
			rest[r.stream] = ""
		}
		return nil
	})
	return lines, err
}

// counter follows the numbered lines that writer/writer.c writes to one stream.
type counter struct {
	next       int64
	partial    []byte
	ended      bool
	isTerminal bool // its lines end with a carriage return
}

// filler holds that of any line: from its number modulo 26 on.
var filler = bytes.Repeat([]byte("abcdefghijklmnopqrstuvwxyz"), 2000)

func (c *counter) see(r record) error {
	line := r.payload
	if r.tag == "P" || len(c.partial) > 0 {
		c.partial = append(c.partial, r.payload...)
		line = c.partial
	}
	if r.tag == "P" {
		return nil
	}
	c.partial = c.partial[:0]
	if c.ended {
		return errors.New("a line behind the last one")
	}
	if c.isTerminal {
		line = bytes.TrimSuffix(line, []byte("\r"))
	}
	var digits [20]byte
	next := strconv.AppendInt(digits[:0], c.next, 10)
	number, rest, _ := bytes.Cut(line, []byte(" "))
	if string(number) == "end" && bytes.Equal(rest, next) {
		c.ended = true
		return nil
	}
	length, letters, _ := bytes.Cut(rest, []byte(" "))
	if !bytes.Equal(number, next) {
		return fmt.Errorf("%s %s, but line %d was to come", r.stream, number, c.next)
	}
	if string(length) != strconv.Itoa(len(letters)) {
		return fmt.Errorf("%s line %d has %d letters of %s", r.stream, c.next, len(letters), length)
	}
	if !bytes.HasPrefix(filler[c.next%26:], letters) {
		return fmt.Errorf("%s line %d has wrong letters", r.stream, c.next)
	}
	c.next++
	return nil
}

// logCheck finds every line of a writer once, in order and whole, in the parts of its log as they come.
type logCheck struct {
	streams map[string]*counter
	bytes   int64
}

func newLogCheck(isTerminal bool) *logCheck {
	if isTerminal {
		return &logCheck{streams: map[string]*counter{"stdout": {isTerminal: true}}}
	}
	return &logCheck{streams: map[string]*counter{"stdout": {}, "stderr": {}}}
}

// part goes on with the log's next one.
func (c *logCheck) part(path string) error {
	if file, err := os.Stat(path); err == nil {
		c.bytes += file.Size()
	}
	return eachRecord([]string{path}, func(r record) error {
		if c.streams[r.stream] == nil {
			return errors.New("a stream that it doesn't write to")
		}
		return c.streams[r.stream].see(r)
	})
}

// end is after the last part.
func (c *logCheck) end() error {
	for name, s := range c.streams {
		if !s.ended {
			return fmt.Errorf("%s ends after line %d without its last one", name, s.next-1)
		}
	}
	return nil
}

func (c *logCheck) lines() (total int64) {
	for _, s := range c.streams {
		total += s.next
	}
	return total
}

// checkLog does all of it.
func checkLog(parts []string) (int64, error) {
	c := newLogCheck(false)
	for _, path := range parts {
		if err := c.part(path); err != nil {
			return c.lines(), err
		}
	}
	return c.lines(), c.end()
}

// TestCheckLogSeesFaults: a log with a lost, repeated, torn or mixed-up piece isn't taken for a good one.
func TestCheckLogSeesFaults(t *testing.T) {
	const stamp = "2026-01-02T03:04:05.000000006Z "
	good := []string{"stdout F 0 3 abc", "stderr F 0 1 a", "stdout P 1 4 b", "stderr F end 1", "stdout F cde", "stdout F end 2"}
	write := func(lines ...string) string {
		path := filepath.Join(t.TempDir(), "log")
		text := ""
		for _, line := range lines {
			text += stamp + line + "\n"
		}
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	if n, err := checkLog([]string{write(good[:3]...), write(good[3:]...)}); n != 3 || err != nil {
		t.Errorf("a good log has %d lines, %v", n, err)
	}
	for i := range good {
		without := append(append([]string{}, good[:i]...), good[i+1:]...)
		if _, err := checkLog([]string{write(without...)}); err == nil {
			t.Errorf("line %d of the log is missing, and nobody sees it", i)
		}
		twice := append(append([]string{}, good[:i+1]...), good[i:]...)
		if _, err := checkLog([]string{write(twice...)}); err == nil {
			t.Errorf("line %d of the log is there twice, and nobody sees it", i)
		}
		torn := append([]string{}, good...)
		torn[i] = torn[i][:len(torn[i])-1]
		if _, err := checkLog([]string{write(torn...)}); err == nil {
			t.Errorf("line %d of the log has lost a byte, and nobody sees it", i)
		}
	}
}

// TestWriterWaitsOnlyForAFullPipe: while no server is there, a container writes until its pipe is full,
// which has the documented size; then it waits, and the next server finds all of it. A terminal takes less.
func TestWriterWaitsOnlyForAFullPipe(t *testing.T) {
	const size = 1000 // of a line, with its end
	script := fmt.Sprintf(`stty -onlcr 2>/dev/null; i=0; while [ ! -e /host/over ]; do printf '%%0%dd\n' $i; i=$((i+1)); echo $i >/host/count; done`, size-1)
	for name, tune := range map[string]func(*cri.ContainerConfig){"pipe": func(*cri.ContainerConfig) {}, "terminal": withTerminal} {
		t.Run(name, func(t *testing.T) {
			s := newScene(t, startKept(t, 0), cgroupParent(t))
			host := t.TempDir()
			count := func() (n int) {
				node.Eventually(t, 10*time.Second, func() error {
					// may be empty for a moment
					raw, err := os.ReadFile(filepath.Join(host, "count"))
					if err == nil {
						n, err = strconv.Atoi(string(bytes.TrimSpace(raw)))
					}
					return err
				})
				return n
			}
			p := s.pod(name)
			p.Tune = func(config *cri.ContainerConfig) {
				config.Mounts = []*cri.Mount{{HostPath: host, ContainerPath: "/host"}}
				tune(config)
			}
			must(t, p.Up(node.Demo, "/bin/sh", "-c", script))
			count()
			pipe := s.Borrow(t, func(link string) bool { return strings.HasSuffix(link, p.Container+"/1") })
			// no next server until we say so
			must(t, unix.Kill(s.Own()[0], unix.SIGSTOP))
			s.Kill(t)
			killed, stopped := count(), -1
			node.Eventually(t, 30*time.Second, func() error {
				was := stopped
				if stopped = count(); stopped != was {
					time.Sleep(500 * time.Millisecond)
					return fmt.Errorf("it writes on: %d lines", stopped)
				}
				return nil
			})
			held, err := unix.IoctlGetInt(int(pipe.Fd()), unix.TIOCINQ)
			must(t, err)
			t.Logf("it wrote %d bytes while no server was there; the pipe holds %d", (stopped-killed)*size, held)
			if name == "pipe" && (held < 240<<10 || held > 256<<10) {
				t.Errorf("the pipe is full with %d bytes", held)
			}
			pipe.Close()
			must(t, unix.Kill(s.Own()[0], unix.SIGCONT))
			s.Await(t)
			node.Eventually(t, 10*time.Second, func() error {
				if n := count(); n < stopped+100 {
					return fmt.Errorf("it stopped after %d lines and has %d", stopped, n)
				}
				return nil
			})
			must(t, os.WriteFile(filepath.Join(host, "over"), nil, 0o600))
			until(t, p, cri.ContainerState_CONTAINER_EXITED)
			lines, err := readLog(p.LogFile())
			must(t, err)
			for i, line := range lines {
				if line != fmt.Sprintf("stdout: %0*d", size-1, i) {
					t.Fatalf("line %d is %.20q…", i, line)
				}
			}
			if n := count(); len(lines) != n {
				t.Errorf("%d of %d lines", len(lines), n)
			}
			s.end(t, p)
		})
	}
}
