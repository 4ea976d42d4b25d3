// SPDX-License-Identifier: Apache-2.0

package conformance

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"crisp/node"
)

// server is the crispd under test, as crictl sees it: one that we start (CRISPD names the program, and
// may add options), or one that runs already (CRISP_SOCKET).
type server struct {
	*node.Server
	crictl string
	config string   // crictl's configuration file
	ids    []string // of all pods and containers that crictl told us
}

// newServer leaves nothing behind: what it started ends with the test, which fails if crispd didn't.
func newServer(t *testing.T) *server {
	t.Helper()
	bin, err := exec.Command("./build").Output()
	if err != nil {
		t.Fatalf("./build: %v: %s", err, err.(*exec.ExitError).Stderr)
	}
	s := &server{
		crictl: filepath.Join(strings.TrimSpace(string(bin)), "crictl"),
		config: filepath.Join(t.TempDir(), "crictl.yaml"),
	}
	if socket := os.Getenv("CRISP_SOCKET"); socket != "" {
		s.Server = node.Attach(socket)
	} else {
		s.Server = node.Start(t, node.NeedEnv(t, "CRISPD", "crispd, or CRISP_SOCKET to the socket of one that runs"))
	}
	endpoints := fmt.Sprintf("runtime-endpoint: unix://%s\nimage-endpoint: unix://%s\ntimeout: 30\n", s.Socket, s.Socket)
	if err := os.WriteFile(s.config, []byte(endpoints), 0o600); err != nil {
		t.Fatal(err)
	}
	return s
}

var wholeID = regexp.MustCompile(`\b[0-9a-f]{64}\b`)

// run starts crictl and returns what it wrote, and its error with that of stderr.
func (s *server) run(args ...string) (stdout, stderr string, err error) {
	cmd := exec.Command(s.crictl, append([]string{"--config", s.config}, args...)...)
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	err = cmd.Run()
	for _, id := range wholeID.FindAllString(out.String(), -1) {
		if !slices.Contains(s.ids, id) {
			s.ids = append(s.ids, id)
		}
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
