// SPDX-License-Identifier: Apache-2.0

package cases

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"google.golang.org/grpc/codes"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"crisp/node"
)

// TestRequests: what a program finds when a request says little, and what is refused of one that is wrong.
func TestRequests(t *testing.T) {
	s := newScene(t)
	for _, c := range []struct {
		name string
		test func(*testing.T, *scene)
	}{
		{"a program finds its home, its name and a path", requestEnvironment},
		{"what is refused can be removed", requestRefused},
		{"a mount fits its target", requestMountKinds},
		{"a pod's users may listen on any of its ports and ping", requestPorts},
		{"a program can make the devices that it may use", requestNodes},
		{"the node's /dev can be mounted", requestNodeDevices},
		{"a newer client's fields are told once", requestNewerFields},
	} {
		t.Run(c.name, func(t *testing.T) { c.test(t, s) })
	}
}

func requestNewerFields(t *testing.T, s *scene) {
	var pods []*node.Pod
	for _, name := range []string{"newer-1", "newer-2"} {
		p := s.pod(name)
		// 4711: "x"
		p.Config.Metadata.ProtoReflect().SetUnknown([]byte{0xba, 0xa6, 0x02, 0x01, 'x'})
		p.Tune = func(c *cri.ContainerConfig) {
			c.Mounts = []*cri.Mount{{HostPath: t.TempDir(), ContainerPath: "/m"}}
			c.Mounts[0].ProtoReflect().SetUnknown([]byte{0xba, 0xa6, 0x02, 0x01, 'x'})
		}
		must(t, p.Up(node.Demo, "/bin/sleep", "1000"))
		pods = append(pods, p)
	}
	for _, told := range []string{"config.metadata: field 4711 of PodSandboxMetadata", "config.mounts[0]: field 4711 of Mount"} {
		if n := strings.Count(s.Log(t), told); n != 1 {
			t.Errorf("the log has %d times %q", n, told)
		}
	}
	s.end(t, pods...)
}

func requestEnvironment(t *testing.T, s *scene) {
	image := "example.com/environment:1"
	s.ImportImage(t, image, map[string]any{"Env": []string{"EMPTY=", "FROM=image", "BOTH=image"}},
		append(node.Busybox(t), node.Dir("etc", 0o755),
			node.File("etc/passwd", 0o644, "root:x:0:0::/root:/bin/sh\nada:x:1000:1000::/home/ada:/bin/sh\n")))
	for _, c := range []struct {
		name string
		tune func(*cri.ContainerConfig)
		want map[string]string
	}{
		{"root", func(c *cri.ContainerConfig) {}, map[string]string{"HOME": "/root"}},
		{"ada", asUser(1000), map[string]string{"HOME": "/home/ada"}},
		{"nobody", asUser(4711), map[string]string{"HOME": "/"}},
		{"own", func(c *cri.ContainerConfig) {
			c.Envs = []*cri.KeyValue{{Key: "HOME", Value: []byte("/own")}, {Key: "BOTH", Value: []byte("request")},
				{Key: "HOSTNAME", Value: []byte("own")}, {Key: "BOTH", Value: []byte("last")}}
		}, map[string]string{"HOME": "/own", "HOSTNAME": "own", "BOTH": "last"}},
		{"terminal", func(c *cri.ContainerConfig) { c.Tty = true }, map[string]string{"HOME": "/root", "TERM": "xterm"}},
	} {
		p := s.pod("environment-" + c.name)
		p.Config.Hostname = "a-pod"
		p.Tune = c.tune
		must(t, p.Up(image, "/bin/busybox", "sleep", "1000"))
		want := map[string]string{"HOSTNAME": "a-pod", "EMPTY": "", "FROM": "image", "BOTH": "image",
			"PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"}
		for key, value := range c.want {
			want[key] = value
		}
		// of the container's own process and of one that is executed in it
		for _, command := range [][]string{{"/bin/busybox", "cat", "/proc/1/environ"}, {"/bin/busybox", "env", "-0"}} {
			r, err := s.exec(p, 30, command...)
			must(t, err)
			got := map[string]string{}
			for _, line := range strings.Split(strings.Trim(string(r.Stdout), "\x00"), "\x00") {
				key, value, _ := strings.Cut(line, "=")
				got[key] = value
			}
			if len(got) != len(want) {
				t.Errorf("%s: %v, not %v", c.name, got, want)
			}
			for key, value := range want {
				if got[key] != value {
					t.Errorf("%s: %s is %q, not %q", c.name, key, got[key], value)
				}
			}
		}
		must(t, p.Remove())
	}
	// with the node's name, a pod has no other
	host, err := os.Hostname()
	must(t, err)
	p := s.sleeper(t, "environment-host")
	s.lines(t, p, "echo $HOSTNAME", host)
	must(t, p.Remove())
	s.removeImage(t, image)
	s.end(t)
}

func asUser(uid int64) func(*cri.ContainerConfig) {
	return func(c *cri.ContainerConfig) { c.Linux.SecurityContext.RunAsUser = &cri.Int64Value{Value: uid} }
}

// requestRefused: whatever a request is refused for, and whenever, its pod can be removed at once and after a restart.
func requestRefused(t *testing.T, s *scene) {
	env := func(key, value string) func(*cri.ContainerConfig) {
		return func(c *cri.ContainerConfig) { c.Envs = []*cri.KeyValue{{Key: key, Value: []byte(value)}} }
	}
	caps := func(c *cri.Capability) func(*cri.ContainerConfig) {
		return func(config *cri.ContainerConfig) { config.Linux.SecurityContext.Capabilities = c }
	}
	var pods []*node.Pod
	for _, c := range []struct {
		name string
		tune func(*cri.ContainerConfig)
		says string
	}{
		{"no-key", env("", "x"), "config.envs"},
		{"equals", env("a=b", "x"), "config.envs"},
		{"nul", env("A", "a\x00b"), "config.envs"},
		{"add", caps(&cri.Capability{AddCapabilities: []string{"NOPE"}}), "NOPE"},
		{"drop", caps(&cri.Capability{DropCapabilities: []string{"NOPE"}}), "NOPE"},
		{"ambient", caps(&cri.Capability{AddAmbientCapabilities: []string{"NOPE"}}), "NOPE"},
		{"mask-root", func(c *cri.ContainerConfig) { c.Linux.SecurityContext.MaskedPaths = []string{"/etc/.."} }, "masked_paths"},
		{"mask-relative", func(c *cri.ContainerConfig) { c.Linux.SecurityContext.MaskedPaths = []string{"etc"} }, "masked_paths"},
		{"protect-root", func(c *cri.ContainerConfig) { c.Linux.SecurityContext.ReadonlyPaths = []string{"/"} }, "readonly_paths"},
		{"protect-none", func(c *cri.ContainerConfig) { c.Linux.SecurityContext.ReadonlyPaths = []string{""} }, "readonly_paths"},
		{"directory", func(c *cri.ContainerConfig) { c.WorkingDir = "relative" }, "working directory"},
		{"user", func(c *cri.ContainerConfig) { c.Linux.SecurityContext.RunAsUsername = "ghost" }, "ghost"},
		{"cpus", func(c *cri.ContainerConfig) {
			c.Linux.Resources = &cri.LinuxContainerResources{CpusetCpus: "999"}
		}, "cpuset.cpus"},
		{"pages", func(c *cri.ContainerConfig) {
			c.Linux.Resources = &cri.LinuxContainerResources{HugepageLimits: []*cri.HugepageLimit{{PageSize: "3MB", Limit: 1}}}
		}, "3MB"},
		{"device", func(c *cri.ContainerConfig) {
			c.Devices = []*cri.Device{{HostPath: "/etc/passwd", ContainerPath: "/dev/x", Permissions: "r"}}
		}, "/etc/passwd"},
	} {
		p := s.pod("refused-" + c.name)
		p.Tune = c.tune
		must(t, p.Run())
		refused(t, p.Create(node.Demo, "/bin/true"), codes.InvalidArgument, c.says)
		p.Tune = nil
		must(t, p.Create(node.Demo, "/bin/true"))
		pods = append(pods, p)
	}
	for _, c := range []struct {
		tune func(*cri.PodSandboxConfig)
		says string
	}{
		{func(c *cri.PodSandboxConfig) { c.Hostname = "two words" }, "config.hostname"},
		{func(c *cri.PodSandboxConfig) { c.Hostname = "a\nb" }, "config.hostname"},
		{func(c *cri.PodSandboxConfig) { c.Hostname = strings.Repeat("h", 65) }, "config.hostname"},
		{func(c *cri.PodSandboxConfig) { c.DnsConfig = &cri.DNSConfig{Servers: []string{"1.2.3.4\noptions x"}} }, "config.dns_config.servers"},
		{func(c *cri.PodSandboxConfig) { c.DnsConfig = &cri.DNSConfig{Searches: []string{"a b"}} }, "config.dns_config.searches"},
		{func(c *cri.PodSandboxConfig) { c.DnsConfig = &cri.DNSConfig{Options: []string{""}} }, "config.dns_config.options"},
		{func(c *cri.PodSandboxConfig) { c.Linux.Sysctls = map[string]string{"kernel.shm_rmid_forced": "banana"} }, "kernel.shm_rmid_forced"},
	} {
		p := s.pod("refused-pod")
		c.tune(p.Config)
		refused(t, p.Run(), codes.InvalidArgument, c.says)
	}
	s.Kill(t)
	s.end(t, pods...)
}

// requestMountKinds: a source that doesn't fit its target, or isn't there, is told by its path.
func requestMountKinds(t *testing.T, s *scene) {
	dir := t.TempDir()
	file := filepath.Join(dir, "file")
	must(t, os.WriteFile(file, []byte("text"), 0o644))
	must(t, os.Symlink("nowhere", filepath.Join(dir, "dangling")))
	var pods []*node.Pod
	for name, c := range map[string]struct {
		mount *cri.Mount
		says  []string
	}{
		"file":     {&cri.Mount{HostPath: file, ContainerPath: "/tmp"}, []string{"on the directory", "/tmp"}},
		"dir":      {&cri.Mount{HostPath: dir, ContainerPath: "/etc/passwd"}, []string{"on the file", "/etc/passwd"}},
		"dangling": {&cri.Mount{HostPath: dir + "/dangling", ContainerPath: "/x"}, []string{"mounts.host_path", "/dangling"}},
		"through":  {&cri.Mount{HostPath: file + "/x", ContainerPath: "/x"}, []string{"mounts.host_path", "/file/x"}},
		"readonly": {&cri.Mount{HostPath: dir, ContainerPath: "/ro/new"}, []string{"/ro/new", "Read-only"}},
		"root":     {&cri.Mount{HostPath: dir, ContainerPath: "/a/.."}, []string{"it is the root"}},
	} {
		p := s.pod("kind-" + name)
		p.Tune = mounts(&cri.Mount{HostPath: t.TempDir(), ContainerPath: "/ro", Readonly: true}, c.mount)
		err := p.Up(node.Demo, "/bin/true")
		refused(t, err, codes.InvalidArgument, c.says...)
		expectEnd(t, exited(t, p), 128, "StartError")
		pods = append(pods, p)
	}
	s.end(t, pods...)
}

// requestPorts: also in a user namespace, but for the pings, and not where the pod says otherwise.
func requestPorts(t *testing.T, s *scene) {
	const script = "cat /proc/sys/net/ipv4/ip_unprivileged_port_start"
	namespaces := func(p *node.Pod) *cri.NamespaceOption {
		p.Config.Linux.SecurityContext.NamespaceOptions.Network = cri.NamespaceMode_POD
		return p.Config.Linux.SecurityContext.NamespaceOptions
	}
	p, own, mapped := s.pod("ports"), s.pod("own-ports"), s.pod("mapped-ports")
	namespaces(p)
	p.Tune = asUser(1000)
	must(t, p.Up(node.Demo, "/bin/sleep", "1000"))
	s.lines(t, p, script+"; cat /proc/sys/net/ipv4/ping_group_range; nc -l -p 80 -e /bin/echo hello & sleep 0.3; nc 127.0.0.1 80",
		"0", "0\t2147483647", "hello")

	namespaces(own)
	own.Config.Linux.Sysctls = map[string]string{"net.ipv4.ip_unprivileged_port_start": "77"}
	must(t, own.Up(node.Demo, "/bin/sleep", "1000"))
	s.lines(t, own, script, "77")

	ids := []*cri.IDMapping{{HostId: 200000, Length: 65536}}
	namespaces(mapped).UsernsOptions = &cri.UserNamespace{Mode: cri.NamespaceMode_POD, Uids: ids, Gids: ids}
	must(t, mapped.Up(node.Demo, "/bin/sleep", "1000"))
	s.lines(t, mapped, script, "0")
	s.end(t, p, own, mapped)
}

// requestNodes: tools that make a root of their own, as those that build images, need its device nodes to work. The
// cgroup says which ones can be opened.
func requestNodes(t *testing.T, s *scene) {
	dir := t.TempDir()
	p := s.pod("nodes")
	p.Tune = mounts(&cri.Mount{HostPath: dir, ContainerPath: "/volume"})
	must(t, p.Up(node.Demo, "/bin/sleep", "1000"))
	for _, at := range []string{"/root", "/volume", "/dev"} {
		s.lines(t, p, "mknod "+at+"/n c 1 3 && echo x >"+at+"/n && echo wrote", "wrote")
		s.lines(t, p, "mknod "+at+"/z c 1 5 && head -c3 "+at+"/z | wc -c", "3")
		// /dev/mem and /dev/kmsg
		s.lines(t, p, "mknod "+at+"/m c 1 1; mknod "+at+"/k c 1 11; head -c1 "+at+"/m 2>&1; head -c1 "+at+"/k 2>&1; true",
			"head: "+at+"/m: Operation not permitted", "head: "+at+"/k: Operation not permitted")
	}
	s.end(t, p)
}

// requestNodeDevices: as drivers of storage do.
func requestNodeDevices(t *testing.T, s *scene) {
	p := s.pod("node-devices")
	p.Tune = mounts(&cri.Mount{HostPath: "/dev", ContainerPath: "/dev"})
	must(t, p.Up(node.Demo, "/bin/sleep", "1000"))
	s.lines(t, p, "echo x >/dev/null && head -c2 /dev/zero | wc -c; head -c1 /dev/kmsg 2>&1; true", "2",
		"head: /dev/kmsg: Operation not permitted")
	s.end(t, p)
}
