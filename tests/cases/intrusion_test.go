// SPDX-License-Identifier: Apache-2.0

package cases

import (
	"crypto/sha256"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	"google.golang.org/grpc/codes"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"crisp/node"
)

// TestIntrusions has the bytes of attacks on other runtimes, a class of vulnerabilities each.
func TestIntrusions(t *testing.T) {
	unix.Umask(0)
	s := newScene(t)
	for _, c := range []struct {
		name string
		run  func(*testing.T, *scene)
	}{
		{"OwnExecutable", intrusionOwnExecutable},
		{"Sysctls", intrusionSysctls},
		{"CgroupsReadOnly", intrusionCgroups},
		{"AbstractSockets", intrusionSockets},
		{"Modes", intrusionModes},
		{"MissingFileWithTerminal", intrusionMissingFile},
		{"ImageLabels", intrusionImageLabels},
		{"LogIsLink", intrusionLogLink},
		{"NothingOfOursInPod", intrusionNothingOfOurs},
	} {
		t.Run(c.name, func(t *testing.T) { c.run(t, s) })
	}
}

func hashOf(t *testing.T, path string) [32]byte {
	t.Helper()
	raw, err := os.ReadFile(path)
	must(t, err)
	return sha256.Sum256(raw)
}

// intrusionOwnExecutable: what a container is started by can't be written from inside (CVE-2019-5736).
func intrusionOwnExecutable(t *testing.T, s *scene) {
	pid, err := s.Pid()
	must(t, err)
	exe := fmt.Sprintf("/proc/%d/exe", pid)
	before := hashOf(t, exe)
	p := s.pod("own-executable")
	// a program of the container that watches who comes in, keeps their executable, and writes to it as soon
	// as nobody executes it any more
	must(t, p.Up(node.Demo, "/bin/sh", "-c", `while :; do for p in /proc/[0-9]*; do
case $p in /proc/1|/proc/$$) continue;; esac
case $(readlink $p/exe) in *memfd*|*crisp*) for i in 1 2 3 4 5 6 7 8 9 10; do
(echo bad >/proc/self/fd/9) 2>/dev/null && echo WRITTEN && break; sleep 0.05; done 9<$p/exe;; esac; done; done`))
	for range 50 {
		// the interpreter of the entering program is the entering program itself
		// whether they can be executed at all is not the point
		s.expectExec(t, p, "printf '#!/proc/self/exe\n' >/tmp/x; chmod 755 /tmp/x", 0, "")
		for _, command := range []string{"/proc/self/exe", "/tmp/x"} {
			_, _ = s.exec(p, 10, command)
		}
	}
	log, err := os.ReadFile(p.LogFile())
	must(t, err)
	if strings.Contains(string(log), "WRITTEN") {
		t.Error("an executable that came in was written")
	}
	s.end(t, p)
	for _, command := range []string{"/proc/self/exe", "/proc/self/fd/3"} {
		p = s.pod("own-executable-first")
		must(t, p.Run())
		must(t, p.Create(node.Demo, command))
		if p.Start() == nil {
			exited(t, p)
		}
		s.end(t, p)
	}
	if hashOf(t, exe) != before {
		t.Error("the server's executable changed")
	}
}

// intrusionSysctls: names and values that mean something else to somebody (CVE-2022-0811), and those that
// would be the node's own (CVE-2022-0532).
func intrusionSysctls(t *testing.T, s *scene) {
	read := func(name string) string {
		raw, err := os.ReadFile("/proc/sys/" + strings.ReplaceAll(name, ".", "/"))
		must(t, err)
		return string(raw)
	}
	host := map[string]string{}
	for _, name := range []string{"kernel.core_pattern", "kernel.shm_rmid_forced", "net.ipv4.ip_unprivileged_port_start", "kernel.hostname",
		"kernel.domainname", "vm.overcommit_memory"} {
		host[name] = read(name)
	}
	t.Cleanup(func() {
		for name, value := range host {
			if read(name) != value {
				must(t, os.WriteFile("/proc/sys/"+strings.ReplaceAll(name, ".", "/"), []byte(value), 0))
			}
		}
	})
	for name, value := range map[string]string{
		"kernel.core_pattern":                          "|/bin/sh",
		"kernel.shm_rmid_forced+kernel.core_pattern":   "1",
		"kernel.shm_rmid_forced=1+kernel.core_pattern": "1",
		"net..ipv4.ip_forward":                         "1",
		"net.../kernel.core_pattern":                   "1",
		"net/../kernel/core_pattern":                   "1",
		"net.ipv4./../../kernel/core_pattern":          "1",
		"kernel.shm_rmid_forced":                       "1\nkernel.core_pattern=|/bin/sh",
		"kernel.shmmax":                                "",
		"kernel.domainname":                            "a",
		"vm.overcommit_memory":                         "1",
		"net.ipv4.ip_unprivileged_port_start ":         "1",
		"kernel.shmall":                                "1 + kernel.core_pattern=|/bin/sh",
		"kernel.msgmax":                                "+kernel.core_pattern",
	} {
		p := s.pod("sysctl " + name)
		p.Config.Linux.SecurityContext.NamespaceOptions.Network = cri.NamespaceMode_POD
		p.Config.Linux.Sysctls = map[string]string{name: value}
		_, err := node.Call(s.Runtime.RunPodSandbox, &cri.RunPodSandboxRequest{Config: p.Config})
		refused(t, err, codes.InvalidArgument, "sysctl")
	}
	for name, ns := range map[string]*cri.NamespaceOption{
		"net.ipv4.ip_unprivileged_port_start": {Network: cri.NamespaceMode_NODE},
		"kernel.shm_rmid_forced":              {Ipc: cri.NamespaceMode_NODE},
	} {
		p := s.pod("sysctl-of-the-node")
		p.Config.Linux.SecurityContext.NamespaceOptions = ns
		p.Config.Linux.Sysctls = map[string]string{name: "1"}
		_, err := node.Call(s.Runtime.RunPodSandbox, &cri.RunPodSandboxRequest{Config: p.Config})
		refused(t, err, codes.InvalidArgument, name)
	}
	for name, value := range host {
		if now := read(name); now != value {
			t.Errorf("%s of the node is %q now, not %q", name, now, value)
		}
	}
	s.end(t)
}

// intrusionCgroups: they are read-only from inside, whatever the user namespace (CVE-2023-25809).
func intrusionCgroups(t *testing.T, s *scene) {
	for _, userns := range []bool{false, true} {
		p := s.pod(fmt.Sprintf("cgroups-%v", userns))
		if userns {
			p.Config.Linux.SecurityContext.NamespaceOptions.UsernsOptions = mapping(100000, 65536)
		}
		must(t, p.Up(node.Demo, "/bin/sleep", "1000"))
		script := `for d in /sys/fs/cgroup /sys/fs/cgroup/*; do mkdir $d/escape 2>/dev/null && echo MADE $d; done
for f in /sys/fs/cgroup/cgroup.procs /sys/fs/cgroup/*/cgroup.procs /sys/fs/cgroup/*/tasks; do (echo 0 >$f) 2>/dev/null && echo WRITTEN $f; done; true`
		if got := s.output(t, p, script); got != "" {
			t.Errorf("user namespace %v: %s", userns, got)
		}
		s.end(t, p)
	}
}

// intrusionSockets: a container on the node's network finds no socket of ours by name (CVE-2020-15257), and
// those with a path are for root alone.
func intrusionSockets(t *testing.T, s *scene) {
	p := s.sleeper(t, "sockets")
	for line := range strings.Lines(s.output(t, p, "cat /proc/net/unix")) {
		fields := strings.Fields(line)
		if name := fields[len(fields)-1]; strings.HasPrefix(name, "@") && strings.Contains(name, "crisp") {
			t.Errorf("an abstract socket: %s", line)
		}
	}
	err := filepath.WalkDir(s.Dir, func(path string, d os.DirEntry, err error) error {
		if err != nil || d.Type() != os.ModeSocket {
			return nil
		}
		info, err := d.Info()
		must(t, err)
		if mode := info.Mode().Perm(); mode&0o077 != 0 {
			t.Errorf("%s has mode %o", path, mode)
		}
		return nil
	})
	must(t, err)
	s.end(t, p)
}

// intrusionModes: with an umask of 0 no directory of the server's can be walked by others, but for what
// containers must reach (CVE-2024-25621).
func intrusionModes(t *testing.T, s *scene) {
	p := s.sleeper(t, "modes")
	for _, top := range []string{"root", "state"} {
		var st unix.Stat_t
		must(t, unix.Stat(filepath.Join(s.Dir, top), &st))
		if st.Mode&0o066 != 0 || st.Uid != 0 {
			t.Errorf("%s has mode %o and owner %d", top, st.Mode&0o777, st.Uid)
		}
		entries, err := os.ReadDir(filepath.Join(s.Dir, top))
		must(t, err)
		for _, e := range entries {
			must(t, unix.Lstat(filepath.Join(s.Dir, top, e.Name()), &st))
			if st.Mode&unix.S_IFMT != unix.S_IFLNK && st.Mode&0o022 != 0 {
				t.Errorf("%s/%s has mode %o", top, e.Name(), st.Mode&0o777)
			}
		}
	}
	s.end(t, p)
}

// intrusionMissingFile: a start that fails leaves nothing of its terminal (CVE-2022-23471).
func intrusionMissingFile(t *testing.T, s *scene) {
	p := s.pod("missing-file")
	must(t, p.Run())
	for i := range 50 {
		p.Tune = func(c *cri.ContainerConfig) {
			c.Metadata.Name, c.Tty = fmt.Sprintf("c%d", i), true
		}
		must(t, p.Create(node.Demo, "/no/such/file"))
		if err := p.Start(); err == nil {
			t.Fatal("a file that is not there was started")
		}
		must(t, p.RemoveContainer())
	}
	s.end(t, p)
}

// intrusionImageLabels: what an image says of itself is no word of ours or of the kubelet's (CVE-2026-53488).
func intrusionImageLabels(t *testing.T, s *scene) {
	const image = "example.com/labels:1"
	c := newCanary(t)
	labels := map[string]string{}
	for _, prefix := range []string{"crisp.", "io.crisp.", "crisp.io/", "io.kubernetes.cri.", "io.kubernetes.container.", "io.cri-o.", "org.opencontainers.image.", "containerd.io/"} {
		for _, name := range []string{"log", "log-uri", "logPath", "image-label", "privileged", "handler", "sandboxer", "runtime", "restart", "state", "command"} {
			labels[prefix+name] = "file://" + c.file
		}
	}
	base := append(node.Busybox(t), node.Link("bin/grep", "busybox"), node.Link("bin/sleep", "busybox"))
	s.ImportImage(t, image, map[string]any{"Labels": labels, "OnBuild": []string{"RUN /bin/sh"}, "StopSignal": "SIGTERM",
		"Healthcheck": map[string]any{"Test": []string{"CMD-SHELL", "echo bad >" + c.file}}}, base)
	p := s.pod("labels")
	p.Tune = func(config *cri.ContainerConfig) { config.Annotations = labels }
	p.Config.Annotations = labels
	must(t, p.Up(image, "/bin/sh", "-c", "echo logged; sleep 1000"))
	s.lines(t, p, "grep -c . /proc/1/root/proc/self/status >/dev/null; grep -w CapEff /proc/self/status | grep -c 'a80425fb'", "1")
	status, err := p.Status()
	must(t, err)
	if len(status.Labels) != 1 || status.LogPath != p.LogFile() {
		t.Errorf("labels %v, log %s", status.Labels, status.LogPath)
	}
	node.Eventually(t, 5*time.Second, func() error {
		if raw, _ := os.ReadFile(p.LogFile()); !strings.Contains(string(raw), "logged") {
			return fmt.Errorf("the log is %q", raw)
		}
		return nil
	})
	must(t, p.Remove())
	s.removeImage(t, image)
	c.alive(t)
	s.end(t)
}

// intrusionLogLink: a workload that may write in its pod's log directory has no file of the node's written or
// made by us, at the start and when the log is opened anew (the kubelet's log symlink reads).
func intrusionLogLink(t *testing.T, s *scene) {
	c := newCanary(t)
	for i, target := range []string{c.file, filepath.Join(c.dir, "new"), "../../../../../../../.." + c.file} {
		p := s.pod(fmt.Sprintf("log-link-%d", i))
		must(t, p.Run())
		must(t, p.Create(node.Demo, "/bin/sh", "-c", "while :; do echo line; sleep 0.05; done"))
		_ = os.Remove(p.LogFile())
		must(t, os.Symlink(target, p.LogFile()))
		err := p.Start()
		if err == nil {
			time.Sleep(200 * time.Millisecond)
			// as at a rotation
			must(t, os.Remove(p.LogFile()))
			must(t, p.Reopen())
			must(t, os.Remove(p.LogFile()))
			must(t, os.Symlink(target, p.LogFile()))
			err = p.Reopen()
		}
		refused(t, err, codes.InvalidArgument, p.LogFile(), "symbolic link")
		c.alive(t)
		s.end(t, p)
	}
}

// intrusionNothingOfOurs: no process of ours is where a pod's limits kill (CVE-2019-14891).
func intrusionNothingOfOurs(t *testing.T, s *scene) {
	p := s.pod("nothing-of-ours")
	p.Config.Linux.SecurityContext.NamespaceOptions.Pid = cri.NamespaceMode_POD
	must(t, p.Up(node.Demo, "/bin/sleep", "1000"))
	s.output(t, p, "sleep 1000 >/dev/null 2>&1 </dev/null &")
	group := filepath.Dir(node.CgroupFile(s.parent, "memory.limit_in_bytes", "memory.max"))
	node.Eventually(t, 5*time.Second, func() error {
		var programs []string
		must(t, filepath.WalkDir(group, func(path string, d os.DirEntry, err error) error {
			if err != nil || d.Name() != "cgroup.procs" {
				return nil
			}
			raw, _ := os.ReadFile(path)
			for _, pid := range strings.Fields(string(raw)) {
				program, _ := os.Readlink("/proc/" + pid + "/exe")
				programs = append(programs, filepath.Base(program))
			}
			return nil
		}))
		if strings.Join(programs, " ") != "busybox busybox" {
			return fmt.Errorf("in the pod's cgroup are %q", programs)
		}
		return nil
	})
	s.end(t, p)
}
