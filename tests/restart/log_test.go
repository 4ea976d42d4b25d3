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
)

// record is a line of a CRI log: time, stream, tag and payload, with a blank between two.
type record struct {
	stream, tag string
	payload     []byte
}

func parseRecord(line []byte) (record, error) {
	fields := bytes.SplitN(line, []byte(" "), 4)
	if len(fields) != 4 {
		return record{}, errors.New("not a log record")
	}
	if _, err := time.Parse(time.RFC3339Nano, string(fields[0])); err != nil {
		return record{}, err
	}
	r := record{string(fields[1]), string(fields[2]), fields[3]}
	if (r.stream != "stdout" && r.stream != "stderr") || (r.tag != "F" && r.tag != "P") {
		return record{}, fmt.Errorf("stream %q, tag %q", r.stream, r.tag)
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
			line, err := reader.ReadBytes('\n')
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
	next    int64
	partial []byte
	ended   bool
}

func (c *counter) see(r record) error {
	c.partial = append(c.partial, r.payload...)
	if r.tag == "P" {
		return nil
	}
	line := c.partial
	c.partial = c.partial[:0]
	if c.ended {
		return errors.New("a line behind the last one")
	}
	if string(line) == fmt.Sprintf("end %d", c.next) {
		c.ended = true
		return nil
	}
	number, rest, _ := strings.Cut(string(line), " ")
	length, filler, _ := strings.Cut(rest, " ")
	if number != strconv.FormatInt(c.next, 10) {
		return fmt.Errorf("%s %s, but line %d was to come", r.stream, number, c.next)
	}
	if length != strconv.Itoa(len(filler)) {
		return fmt.Errorf("%s line %d has %d letters of %s", r.stream, c.next, len(filler), length)
	}
	for i := range filler {
		if filler[i] != byte('a'+(c.next+int64(i))%26) {
			return fmt.Errorf("%s line %d is wrong from letter %d on", r.stream, c.next, i)
		}
	}
	c.next++
	return nil
}

// checkLog finds every line of both streams once, in order and whole, and returns their number.
func checkLog(parts []string) (int64, error) {
	streams := map[string]*counter{"stdout": {}, "stderr": {}}
	err := eachRecord(parts, func(r record) error { return streams[r.stream].see(r) })
	total := streams["stdout"].next + streams["stderr"].next
	for name, c := range streams {
		if err == nil && !c.ended {
			err = fmt.Errorf("%s ends after line %d without its last one", name, c.next-1)
		}
	}
	return total, err
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
