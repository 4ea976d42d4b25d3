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

// TestMountAttacks: images and volumes that were made to have the node's files read, changed or made.
func TestMountAttacks(t *testing.T) {
	s := newScene(t)
	for _, c := range []struct {
		name string
		test func(*testing.T, *scene, *canary)
	}{
		{"CVE-2019-19921 CVE-2023-27561 CVE-2026-41579 the image's proc, sys and dev are links", attackLinks},
		{"CVE-2026-41579 CVE-2026-47766 the image's etc, run and what is in dev are links", attackInnerLinks},
		{"CVE-2025-31133 the image's null device is a link", attackNull},
		{"CVE-2026-88264 the image's console is a link", attackConsole},
		{"CVE-2026-55686 the working directory is beneath a link", attackWorkingDirectory},
		{"CVE-2021-43816 a file of the node is mounted as the pod's hosts", attackHosts},
		{"CVE-2021-30465 CVE-2024-45310 a volume's directory is exchanged for a link all the time", attackExchange},
		{"R6 all masked directories share one file system", maskedShare},
	} {
		t.Run(c.name, func(t *testing.T) { c.test(t, s, newCanary(t)) })
	}
}

// canary is a directory of the node with a file; whatever happens there is seen.
type canary struct {
	dir, file string
	watch     int
}

func newCanary(t *testing.T) *canary {
	t.Helper()
	// the name goes into scripts
	dir, err := os.MkdirTemp("", "canary-")
	must(t, err)
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	c := &canary{dir: dir, file: filepath.Join(dir, "file")}
	must(t, os.WriteFile(c.file, []byte("canary"), 0o640))
	must(t, os.Chown(c.file, 11, 12))
	c.watch, err = unix.InotifyInit1(unix.IN_CLOEXEC | unix.IN_NONBLOCK)
	must(t, err)
	t.Cleanup(func() { unix.Close(c.watch) })
	_, err = unix.InotifyAddWatch(c.watch, dir, unix.IN_CREATE|unix.IN_DELETE|unix.IN_MODIFY|unix.IN_ATTRIB|unix.IN_MOVE)
	must(t, err)
	return c
}

// alive expects that nothing was made, changed or mounted there.
func (c *canary) alive(t *testing.T) {
	t.Helper()
	events := make([]byte, 4096)
	if n, _ := unix.Read(c.watch, events); n > 0 {
		t.Errorf("something happened in the node's directory: %q", events[:n])
	}
	raw, err := os.ReadFile(c.file)
	var st unix.Stat_t
	if err == nil {
		err = unix.Stat(c.file, &st)
	}
	if err != nil || string(raw) != "canary" || st.Uid != 11 || st.Gid != 12 || st.Mode&0o7777 != 0o640 {
		t.Errorf("the node's file: %q of %d:%d, mode %o, %v", raw, st.Uid, st.Gid, st.Mode, err)
	}
	if found := node.MountsBelow(c.dir); len(found) > 0 {
		t.Errorf("mounted on the node: %v", found)
	}
}

const attackImage = "example.com/attack:1"

// attack is a pod with a container of an image with these entries.
func (s *scene) attack(t *testing.T, config map[string]any, entries ...node.Entry) *node.Pod {
	t.Helper()
	base := node.Busybox(t)
	for _, name := range []string{"sleep", "stat", "cat", "grep", "ls", "cut", "sort", "uniq", "wc"} {
		base = append(base, node.Link("bin/"+name, "busybox"))
	}
	s.ImportImage(t, attackImage, config, base, entries)
	p := s.pod("attack")
	must(t, p.Run())
	return p
}

// over removes what attack made, and sees to the canary.
func (s *scene) over(t *testing.T, p *node.Pod, c *canary) {
	t.Helper()
	must(t, p.Remove())
	s.removeImage(t, attackImage)
	c.alive(t)
	s.end(t)
}

func attackLinks(t *testing.T, s *scene, c *canary) {
	for _, name := range []string{"proc", "sys", "dev"} {
		for _, target := range []string{c.dir, "../../../../.." + c.dir, "/tmp"} {
			p := s.attack(t, nil, node.Link(name, target))
			must(t, p.Create(attackImage, "/bin/sleep", "1000"))
			refused(t, p.Start(), codes.InvalidArgument, "/"+name)
			s.over(t, p, c)
		}
	}
}

// attackInnerLinks: what is in dev is ours whatever the image has there, and the kubelet's files lie where
// its links lead within the root.
func attackInnerLinks(t *testing.T, s *scene, c *canary) {
	hosts := filepath.Join(t.TempDir(), "hosts")
	must(t, os.WriteFile(hosts, []byte("hosts"), 0o644))
	for _, target := range []string{c.dir, "../../../../.." + c.dir, c.dir + "/../" + filepath.Base(c.dir)} {
		layer := []node.Entry{node.Dir("dev", 0o755), node.Dir("var", 0o755), node.Link("etc", target), node.Link("var/run", target)}
		for _, name := range []string{"pts", "shm", "mqueue", "console", "fd", "stdin", "termination-log", "zero"} {
			layer = append(layer, node.Link("dev/"+name, target))
		}
		p := s.attack(t, nil, layer...)
		p.Tune = func(config *cri.ContainerConfig) {
			for _, path := range []string{"/etc/hosts", "/etc/hostname", "/etc/resolv.conf", "/dev/termination-log", "/var/run/secrets/deep/token"} {
				config.Mounts = append(config.Mounts, &cri.Mount{HostPath: hosts, ContainerPath: path})
			}
			config.Linux.SecurityContext.MaskedPaths = []string{"/etc/masked", "/etc/hostname"}
			config.Linux.SecurityContext.ReadonlyPaths = []string{"/etc/readonly", "/etc/resolv.conf"}
		}
		must(t, p.Create(attackImage, "/bin/sleep", "1000"))
		must(t, p.Start())
		s.lines(t, p, "cat /etc/hosts /etc/resolv.conf /dev/termination-log /var/run/secrets/deep/token; cat /etc/hostname | wc -c", "hostshostshostshosts0")
		s.lines(t, p, "ls -A "+c.dir, "hostname", "hosts", "resolv.conf", "secrets")
		s.lines(t, p, "stat -c %F /dev/pts /dev/shm /dev/mqueue /dev/zero /dev/fd", "directory", "directory", "directory", "character special file", "symbolic link")
		if err := p.Stop(0); err != nil {
			t.Error(err)
		}
		s.over(t, p, c)
	}
}

func attackNull(t *testing.T, s *scene, c *canary) {
	p := s.attack(t, nil, node.Dir("dev", 0o755), node.Link("dev/null", c.file), node.File("masked", 0o644, "secret"))
	p.Tune = func(c *cri.ContainerConfig) {
		c.Linux.SecurityContext.MaskedPaths = []string{"/masked", "/proc/version"}
	}
	must(t, p.Create(attackImage, "/bin/sleep", "1000"))
	must(t, p.Start())
	s.lines(t, p, "stat -c '%F %t:%T' /dev/null /masked /proc/version", "character special file 1:3", "character special file 1:3", "character special file 1:3")
	s.lines(t, p, "echo x >/masked; cat /masked", "")
	s.over(t, p, c)
}

func attackConsole(t *testing.T, s *scene, c *canary) {
	p := s.attack(t, nil, node.Dir("dev", 0o755), node.Link("dev/console", c.file), node.Link("dev/pts", c.dir), node.Link("dev/ptmx", c.file))
	p.Tune = func(config *cri.ContainerConfig) {
		config.Tty = true
		config.Linux.SecurityContext.RunAsUser = &cri.Int64Value{Value: 1000}
	}
	must(t, p.Create(attackImage, "/bin/sleep", "1000"))
	must(t, p.Start())
	s.lines(t, p, "stat -c %F /dev/console", "character special file")
	s.over(t, p, c)
}

func attackWorkingDirectory(t *testing.T, s *scene, c *canary) {
	for _, target := range []string{c.dir, "../../../../.." + c.dir} {
		p := s.attack(t, map[string]any{"WorkingDir": "/link/made/deep"}, node.Link("link", target))
		must(t, p.Create(attackImage, "/bin/sleep", "1000"))
		must(t, p.Start())
		s.lines(t, p, "pwd; ls -A "+c.dir, c.dir+"/made/deep", "made")
		s.over(t, p, c)
	}
}

// attackHosts: the file is what it was, and only the mount of it is read-only.
func attackHosts(t *testing.T, s *scene, c *canary) {
	p := s.attack(t, nil)
	p.Tune = mounts(&cri.Mount{HostPath: c.file, ContainerPath: "/etc/hosts", Readonly: true, SelinuxRelabel: true},
		&cri.Mount{HostPath: c.file, ContainerPath: "/etc/hostname", Readonly: true, SelinuxRelabel: true})
	must(t, p.Create(attackImage, "/bin/sleep", "1000"))
	must(t, p.Start())
	s.lines(t, p, "cat /etc/hosts /etc/hostname; (echo x >/etc/hosts) 2>&1 | grep -c 'Read-only'", "canarycanary1")
	names := make([]byte, 1024)
	if n, err := unix.Llistxattr(c.file, names); err != nil || n > 0 {
		t.Errorf("attributes of the node's file: %q, %v", names[:max(n, 0)], err)
	}
	s.over(t, p, c)
}

func attackExchange(t *testing.T, s *scene, c *canary) {
	volume := t.TempDir()
	dir, link := filepath.Join(volume, "a"), filepath.Join(volume, "b")
	must(t, os.Mkdir(dir, 0o755))
	must(t, os.Symlink(c.dir, link))
	stop, stopped := make(chan bool), make(chan bool)
	go func() {
		defer close(stopped)
		for {
			select {
			case <-stop:
				return
			default:
				_ = unix.Renameat2(unix.AT_FDCWD, dir, unix.AT_FDCWD, link, unix.RENAME_EXCHANGE)
			}
		}
	}()
	p := s.attack(t, nil)
	started, failed := 0, 0
	for i := range 60 {
		p.Tune = mounts(&cri.Mount{HostPath: volume, ContainerPath: "/v"}, &cri.Mount{HostPath: volume, ContainerPath: fmt.Sprintf("/v/a/new%d/er", i)},
			&cri.Mount{HostPath: "/bin/busybox", ContainerPath: fmt.Sprintf("/v/a/file%d", i)})
		must(t, p.Create(attackImage, "/bin/sh", "-c", "exit 0"))
		// it may lose the race, then it says so
		if err := p.Start(); err == nil {
			started++
		} else {
			failed++
		}
		must(t, p.RemoveContainer())
	}
	close(stop)
	<-stopped
	if started == 0 {
		t.Error("no container started")
	}
	t.Logf("%d started, %d lost the race", started, failed)
	s.over(t, p, c)
}

func maskedShare(t *testing.T, s *scene, c *canary) {
	var entries []node.Entry
	var paths []string
	for i := range 256 {
		name := fmt.Sprintf("masked%d", i)
		entries = append(entries, node.Dir(name, 0o755), node.File(name+"/secret", 0o644, "secret"))
		paths = append(paths, "/"+name)
	}
	p := s.attack(t, nil, entries...)
	p.Tune = func(c *cri.ContainerConfig) { c.Linux.SecurityContext.MaskedPaths = paths }
	must(t, p.Create(attackImage, "/bin/sleep", "1000"))
	must(t, p.Start())
	fields := strings.Fields(s.output(t, p, "grep ' /masked' /proc/self/mountinfo | wc -l; grep ' /masked' /proc/self/mountinfo | cut -d' ' -f3 | sort | uniq | wc -l; cat /masked*/secret 2>/dev/null | wc -c"))
	if want := []string{"256", "1", "0"}; strings.Join(fields, " ") != strings.Join(want, " ") {
		t.Errorf("masks, file systems, bytes to be read: %v, not %v", fields, want)
	}
	s.over(t, p, c)
}
