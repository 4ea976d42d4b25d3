// SPDX-License-Identifier: Apache-2.0

package cases

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
	"google.golang.org/grpc/codes"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"crisp/node"
)

// profileOfActions has a rule for each action, on calls that the image's commands make.
const profileOfActions = `{"defaultAction": "SCMP_ACT_ALLOW", "flags": ["SECCOMP_FILTER_FLAG_LOG"],
"architectures": ["SCMP_ARCH_X86_64", "SCMP_ARCH_X86", "SCMP_ARCH_X32", "SCMP_ARCH_AARCH64"],
"syscalls": [
 {"names": ["chmod", "fchmodat"], "action": "SCMP_ACT_ERRNO", "errnoRet": 28},
 {"names": ["sync"], "action": "SCMP_ACT_KILL_PROCESS"},
 {"names": ["symlink", "symlinkat"], "action": "SCMP_ACT_TRAP"},
 {"names": ["mkdir", "mkdirat"], "action": "SCMP_ACT_LOG"},
 {"names": ["chroot"], "action": "SCMP_ACT_TRACE", "errnoRet": 5},
 {"names": ["ioprio_set"], "action": "SCMP_ACT_ERRNO", "errnoRet": 13,
  "args": [{"index": 2, "value": 16391, "op": "SCMP_CMP_EQ"}]}]}`

func TestSeccomp(t *testing.T) {
	s := newScene(t)
	for _, c := range []struct {
		name string
		run  func(*testing.T, *scene)
	}{
		{"Actions", seccompActions},
		{"Deprecated", seccompDeprecated},
		{"KeptOverRestarts", seccompKept},
		{"Refused", seccompRefused},
		{"Default", seccompDefault},
	} {
		t.Run(c.name, func(t *testing.T) { c.run(t, s) })
	}
}

// localhost is a profile of the node, in a file that is written for it.
func localhost(t *testing.T, text string) *cri.SecurityProfile {
	t.Helper()
	path := filepath.Join(t.TempDir(), "profile.json")
	must(t, os.WriteFile(path, []byte(text), 0o600))
	return &cri.SecurityProfile{ProfileType: cri.SecurityProfile_Localhost, LocalhostRef: path}
}

func withSeccomp(p *cri.SecurityProfile) func(*cri.ContainerConfig) {
	return func(c *cri.ContainerConfig) { c.Linux.SecurityContext.Seccomp = p }
}

// expectExec runs a script that is to give that exit code and say what.
func (s *scene) expectExec(t *testing.T, p *node.Pod, script string, code int32, what string) {
	t.Helper()
	r, err := s.exec(p, 30, "/bin/sh", "-c", script)
	must(t, err)
	said := string(r.Stdout) + string(r.Stderr)
	if r.ExitCode != code || !strings.Contains(said, what) {
		t.Errorf("%s: exit code %d, %q; not %d, %q", script, r.ExitCode, said, code, what)
	}
}

func seccompActions(t *testing.T, s *scene) {
	cases := []struct {
		script string
		code   int32
		what   string
	}{
		{"chmod 700 /tmp", 1, "No space left on device"},
		{"sync", 128 + int32(unix.SIGSYS), ""},
		{"ln -s a /tmp/b", 128 + int32(unix.SIGSYS), ""},
		{"rm -rf /tmp/c; mkdir /tmp/c && echo made", 0, "made"},
		{"chroot / true", 1, "Function not implemented"},
		{"ionice -c 2 -n 7 true", 1, "Permission denied"},
		{"ionice -c 2 -n 6 echo fine", 0, "fine"},
	}
	p := s.pod("actions")
	p.Tune = withSeccomp(localhost(t, profileOfActions))
	must(t, p.Up(node.Demo, "/bin/sleep", "1000"))
	for _, c := range cases {
		s.expectExec(t, p, c.script, c.code, c.what)
	}
	s.end(t, p)
	// the first process has it, too
	p = s.pod("first-process")
	p.Tune = withSeccomp(localhost(t, profileOfActions))
	expectEnd(t, s.run(t, p, "/bin/sync"), 128+int32(unix.SIGSYS), "Error")
	s.end(t, p)
}

func seccompDeprecated(t *testing.T, s *scene) {
	p := s.pod("deprecated")
	profile := localhost(t, profileOfActions)
	p.Tune = func(c *cri.ContainerConfig) {
		c.Linux.SecurityContext.SeccompProfilePath = "localhost/" + profile.LocalhostRef
	}
	must(t, p.Up(node.Demo, "/bin/sleep", "1000"))
	s.expectExec(t, p, "chmod 700 /tmp", 1, "No space left on device")
	s.end(t, p)
}

// seccompKept: what becomes of the file later changes nothing, whoever reads it again.
func seccompKept(t *testing.T, s *scene) {
	profile := localhost(t, profileOfActions)
	running, created := s.pod("running"), s.pod("created")
	for _, p := range []*node.Pod{running, created} {
		p.Tune = withSeccomp(profile)
		must(t, p.Run())
		must(t, p.Create(node.Demo, "/bin/sleep", "1000"))
	}
	must(t, running.Start())
	must(t, os.WriteFile(profile.LocalhostRef, []byte(`{"defaultAction": "SCMP_ACT_ALLOW"}`), 0o600))
	s.Kill(t)
	s.Await(t)
	must(t, created.Start())
	for _, p := range []*node.Pod{running, created} {
		s.expectExec(t, p, "chmod 700 /tmp", 1, "No space left on device")
	}
	// one that is made now has the new text
	later := s.pod("later")
	later.Tune = withSeccomp(profile)
	must(t, later.Up(node.Demo, "/bin/sleep", "1000"))
	s.expectExec(t, later, "chmod 700 /tmp && echo fine", 0, "fine")
	s.end(t, running, created, later)
}

func seccompRefused(t *testing.T, s *scene) {
	const field = "config.linux.security_context.seccomp"
	dir := t.TempDir()
	good := localhost(t, `{"defaultAction": "SCMP_ACT_ALLOW"}`).LocalhostRef
	fifo, link := filepath.Join(dir, "fifo"), filepath.Join(dir, "link")
	must(t, unix.Mkfifo(fifo, 0o600))
	must(t, os.Symlink(good, link))
	action := func(name string) string {
		return localhost(t, `{"defaultAction": "`+name+`"}`).LocalhostRef
	}
	p := s.pod("refused")
	must(t, p.Run())
	for _, c := range []struct {
		kind cri.SecurityProfile_ProfileType
		ref  string
		what string
	}{
		{cri.SecurityProfile_Localhost, "", field + ".localhost_ref"},
		{cri.SecurityProfile_RuntimeDefault, good, field + ".localhost_ref"},
		{cri.SecurityProfile_Localhost, "profile.json", "absolute"},
		{cri.SecurityProfile_Localhost, filepath.Dir(good) + "/../" + filepath.Base(filepath.Dir(good)) + "/profile.json", "absolute"},
		{cri.SecurityProfile_Localhost, dir + "/missing", "No such file"},
		{cri.SecurityProfile_Localhost, dir, "no regular file"},
		{cri.SecurityProfile_Localhost, fifo, "no regular file"},
		{cri.SecurityProfile_Localhost, "/dev/zero", "no regular file"},
		{cri.SecurityProfile_Localhost, link, "symbolic links"},
		{cri.SecurityProfile_Localhost, localhost(t, "").LocalhostRef, "is empty"},
		{cri.SecurityProfile_Localhost, localhost(t, "{").LocalhostRef, "line 1"},
		{cri.SecurityProfile_Localhost, localhost(t, "{\"defaultAction\": \"SCMP_ACT_ALLOW\"}\x00x").LocalhostRef, "NUL"},
		{cri.SecurityProfile_Localhost, localhost(t, strings.Repeat(" ", 1<<20+1)).LocalhostRef, "larger than"},
		{cri.SecurityProfile_Localhost, action("SCMP_ACT_PERMIT"), "defaultAction: unknown action"},
		{cri.SecurityProfile_Localhost, action("SCMP_ACT_NOTIFY"), "SCMP_ACT_NOTIFY"},
	} {
		p.Tune = withSeccomp(&cri.SecurityProfile{ProfileType: c.kind, LocalhostRef: c.ref})
		_, err := node.Call(s.Runtime.CreateContainer, p.Request(node.Demo, "/bin/true"))
		refused(t, err, codes.InvalidArgument, c.what)
	}
	for _, old := range []string{"localhost/", "localhost/profile.json", "unconfigured", "/etc/passwd"} {
		p.Tune = func(c *cri.ContainerConfig) { c.Linux.SecurityContext.SeccompProfilePath = old }
		_, err := node.Call(s.Runtime.CreateContainer, p.Request(node.Demo, "/bin/true"))
		refused(t, err, codes.InvalidArgument, field+"_profile_path")
	}
	s.end(t, p)
}

// seccompDefault: the default filter is there for the first process and for others.
func seccompDefault(t *testing.T, s *scene) {
	const look = "grep -w Seccomp: /proc/self/status"
	for kind, want := range map[cri.SecurityProfile_ProfileType]int{
		cri.SecurityProfile_RuntimeDefault: 2, cri.SecurityProfile_Unconfined: 0} {
		p := s.pod("default-" + strings.ToLower(kind.String()))
		p.Tune = withSeccomp(&cri.SecurityProfile{ProfileType: kind})
		must(t, p.Up(node.Demo, "/bin/sh", "-c", look+"; sleep 1000"))
		line := fmt.Sprintf("Seccomp:\t%d", want)
		s.expectExec(t, p, look, 0, line)
		s.expectExec(t, p, "grep -w Seccomp: /proc/1/status", 0, line)
		s.end(t, p)
	}
}
