// SPDX-License-Identifier: Apache-2.0

package cases

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
	"google.golang.org/grpc/codes"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"crisp/node"
)

func TestSecurity(t *testing.T) {
	s := newScene(t)
	for _, c := range []struct {
		name string
		run  func(*testing.T, *scene)
	}{
		{"Users", securityUsers},
		{"UsersRefused", securityUsersRefused},
		{"Capabilities", securityCapabilities},
		{"Paths", securityPaths},
		{"UserNamespace", securityUserNamespace},
		{"UserNamespaceRefused", securityUserNamespaceRefused},
		{"PidNamespaces", securityPidNamespaces},
		{"Privileged", securityPrivileged},
		{"CgroupNamespace", securityCgroupNamespace},
		{"AppArmor", securityAppArmor},
		{"SELinux", securitySELinux},
		{"SharedPidNamespace", securitySharedPid},
	} {
		t.Run(c.name, func(t *testing.T) { c.run(t, s) })
	}
}

// userImage imports an image that is demo's with files of its own in /etc, and runs as user.
func (s *scene) userImage(t *testing.T, name, user string, files map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	for file, text := range files {
		must(t, os.MkdirAll(filepath.Join(dir, "root", filepath.Dir(file)), 0o755))
		must(t, os.WriteFile(filepath.Join(dir, "root", file), []byte(text), 0o644))
	}
	reference := "docker.io/library/" + name + ":latest"
	script := `set -eu; . ../../cri/oci-image.sh; root=$1/root; mkdir -p $root/bin $root/etc
install -m 755 "$(command -v busybox)" $root/bin/busybox
for c in sh id sleep cat grep true; do ln -s busybox $root/bin/$c; done
images_begin $1/images; layer $root; image "\"Env\":[\"PATH=/bin\"],\"User\":\"$2\"" $3 "$LAYER"
images_write_oci $1/image.tar`
	if out, err := exec.Command("sh", "-c", script, "sh", dir, user, reference).CombinedOutput(); err != nil {
		t.Fatalf("%s: %v: %s", name, err, out)
	}
	s.Import(t, filepath.Join(dir, "image.tar"))
	return reference
}

// endWith is end for pods of images that only they had.
func (s *scene) endWith(t *testing.T, images []string, pods ...*node.Pod) {
	t.Helper()
	for _, p := range pods {
		must(t, p.Remove())
	}
	for _, image := range images {
		_, err := node.Call(s.Images.RemoveImage, &cri.RemoveImageRequest{Image: &cri.ImageSpec{Image: image}})
		must(t, err)
	}
	s.end(t)
}

const (
	somePasswd = "root:x:0:0::/root:/bin/sh\nalice:x:1000:1001::/home:/bin/sh\n2147483648:x:0:0::/:/bin/sh\n4294967296:x:0:0::/:/bin/sh\n99999999999:x:0:0::/:/bin/sh\n"
	someGroup  = "root:x:0:\nalice:x:1001:\nteam:x:2000:alice\nother:x:3000:bob\n"
)

func securityUsers(t *testing.T, s *scene) {
	image := s.userImage(t, "users", "alice", map[string]string{"etc/passwd": somePasswd, "etc/group": someGroup})
	id := func(n int64) *cri.Int64Value { return &cri.Int64Value{Value: n} }
	type security = cri.LinuxContainerSecurityContext
	for i, c := range []struct {
		tune   func(*security)
		uid    int64
		groups []int64
	}{
		{func(c *security) {}, 1000, []int64{1001, 2000}},
		{func(c *security) { c.RunAsUsername = "alice" }, 1000, []int64{1001, 2000}},
		{func(c *security) { c.RunAsUser = id(1000) }, 1000, []int64{1001, 2000}},
		{func(c *security) { c.RunAsUser, c.SupplementalGroups = id(1000), []int64{7, 2000, 7} }, 1000, []int64{1001, 7, 2000}},
		{func(c *security) {
			c.RunAsUser, c.SupplementalGroups = id(1000), []int64{7}
			c.SupplementalGroupsPolicy = cri.SupplementalGroupsPolicy_Strict
		}, 1000, []int64{1001, 7}},
		{func(c *security) { c.RunAsUser, c.RunAsGroup = id(1000), id(5) }, 1000, []int64{5, 2000}},
		{func(c *security) { c.RunAsUser = id(1234) }, 1234, []int64{0}},
		{func(c *security) { c.RunAsUser = id(2147483647) }, 2147483647, []int64{0}},
	} {
		p := s.pod(fmt.Sprintf("users-%d", i))
		p.Tune = func(config *cri.ContainerConfig) { c.tune(config.Linux.SecurityContext) }
		must(t, p.Up(image, "/bin/sh", "-c", "id -u; id -G; sleep 1000"))
		want := fmt.Sprintf("%d %s\n", c.uid, strings.Trim(fmt.Sprint(c.groups), "[]"))
		// the primary group is the first (CVE-2022-2995)
		if got := s.output(t, p, "echo $(id -u) $(id -G)"); got != want {
			t.Errorf("%d: an exec is %q, not %q", i, got, want)
		}
		if got := s.output(t, p, "echo $(grep -w Uid: /proc/1/status)"); !strings.HasPrefix(got, fmt.Sprintf("Uid: %d %d ", c.uid, c.uid)) {
			t.Errorf("%d: the first process is %q", i, got)
		}
		status, err := p.Status()
		must(t, err)
		user := status.GetUser().GetLinux()
		if user.GetUid() != c.uid || user.GetGid() != c.groups[0] || !slices.Equal(user.GetSupplementalGroups(), c.groups) {
			t.Errorf("%d: the status says %v", i, user)
		}
		must(t, p.Remove())
	}
	s.endWith(t, []string{image})
}

func (s *scene) createError(t *testing.T, p *node.Pod, image string) error {
	t.Helper()
	_, err := node.Call(s.Runtime.CreateContainer, p.Request(image, "/bin/true"))
	return err
}

// securityUsersRefused: a number that is no id is never another one, nor a name that the image gives root's
// id (CVE-2024-40635, CVE-2026-46680).
func securityUsersRefused(t *testing.T, s *scene) {
	files := map[string]string{"etc/passwd": somePasswd, "etc/group": someGroup}
	p := s.pod("users-refused")
	must(t, p.Run())
	var images []string
	for i, user := range []string{"2147483648", "4294967296", "4294967297:0", "99999999999", "0:4294967296", "-1", "nobody-there", "1000:nogroup-there"} {
		image := s.userImage(t, fmt.Sprintf("users-refused-%d", i), user, files)
		images = append(images, image)
		refused(t, s.createError(t, p, image), codes.InvalidArgument)
	}
	for _, user := range []string{"2147483648", "4294967296", "+0", "missing", "a:b"} {
		p.Tune = func(c *cri.ContainerConfig) { c.Linux.SecurityContext.RunAsUsername = user }
		refused(t, s.createError(t, p, node.Demo), codes.InvalidArgument)
	}
	for _, user := range []int64{-1, 2147483648, 4294967296, 1 << 62} {
		p.Tune = func(c *cri.ContainerConfig) { c.Linux.SecurityContext.RunAsUser = &cri.Int64Value{Value: user} }
		refused(t, s.createError(t, p, node.Demo), codes.InvalidArgument, "config.linux.security_context.run_as_user")
	}
	p.Tune = nil
	// files of the image that are too large, or lines that go on
	huge := s.userImage(t, "users-huge", "alice", map[string]string{"etc/passwd": strings.Repeat("x", 1<<20) + "\n" + somePasswd})
	refused(t, s.createError(t, p, huge), codes.InvalidArgument, "/etc/passwd")
	long := s.userImage(t, "users-long", "alice", map[string]string{"etc/passwd": strings.Repeat("x", 100_000) + "\n" + somePasswd})
	must(t, s.createError(t, p, long))
	s.endWith(t, append(images, huge, long), p)
}

// securityCapabilities: none is inheritable (CVE-2022-24769 and its kind).
func securityCapabilities(t *testing.T, s *scene) {
	const look = `cat /proc/self/status | grep -E "^Cap(Inh|Amb)" | tr -d "\n\t"`
	const none = "CapInh:0000000000000000CapAmb:0000000000000000"
	for _, user := range []int64{0, 1000} {
		p := s.pod(fmt.Sprintf("capabilities-%d", user))
		p.Tune = func(c *cri.ContainerConfig) {
			c.Linux.SecurityContext.RunAsUser = &cri.Int64Value{Value: user}
			c.Linux.SecurityContext.Capabilities = &cri.Capability{AddCapabilities: []string{"NET_ADMIN"}}
		}
		must(t, p.Up(node.Demo, "/bin/sleep", "1000"))
		s.expectExec(t, p, look, 0, none)
		s.expectExec(t, p, strings.Replace(look, "self", "1", 1), 0, none)
		s.end(t, p)
	}
}

// securityPaths: what is masked and read-only is so from inside, for an exec and in a user namespace, too;
// and nothing is where the lists are empty.
func securityPaths(t *testing.T, s *scene) {
	for _, userns := range []bool{false, true} {
		for _, listed := range []bool{true, false} {
			p := s.pod(fmt.Sprintf("paths-%v-%v", userns, listed))
			if userns {
				p.Config.Linux.SecurityContext.NamespaceOptions.UsernsOptions = mapping(100000, 65536)
			}
			p.Tune = func(c *cri.ContainerConfig) {
				if listed {
					c.Linux.SecurityContext.MaskedPaths = []string{"/proc/timer_list", "/proc/tty", "/no/such"}
					c.Linux.SecurityContext.ReadonlyPaths = []string{"/proc/sys", "/no/such"}
				}
			}
			must(t, p.Up(node.Demo, "/bin/sleep", "1000"))
			look := "wc -c </proc/timer_list 2>&1; ls /proc/tty | wc -l; grep -c ' /proc/sys .*ro' /proc/mounts"
			want := "0\n0\n1\n"
			if !listed {
				look, want = "ls /proc/tty | wc -l; grep -c ' /proc/sys ' /proc/mounts", "4\n0\n"
				if got, _ := os.ReadDir("/proc/tty"); len(got) != 4 {
					want = fmt.Sprintf("%d\n0\n", len(got))
				}
			}
			if got := s.output(t, p, look+"; true"); got != want {
				t.Errorf("user namespace %v, paths %v: %q, not %q", userns, listed, got, want)
			}
			if listed {
				s.expectExec(t, p, "echo x >/proc/sys/kernel/domainname", 1, "Read-only file system")
			}
			s.end(t, p)
		}
	}
}

func mapping(host, length uint32) *cri.UserNamespace {
	ids := func() []*cri.IDMapping { return []*cri.IDMapping{{HostId: host, Length: length}} }
	return &cri.UserNamespace{Mode: cri.NamespaceMode_POD, Uids: ids(), Gids: ids()}
}

// securityUserNamespace: ids, an fsGroup-like group, the owner of files in an id-mapped volume and of what
// every pod has, and a mount beneath the volume that never shows on the node.
func securityUserNamespace(t *testing.T, s *scene) {
	volume := t.TempDir()
	must(t, os.Mkdir(filepath.Join(volume, "inner"), 0o755))
	must(t, os.Chown(volume, 0, 2000))
	must(t, unix.Chmod(volume, 0o2775))
	before, err := os.ReadFile("/proc/self/mountinfo")
	must(t, err)
	p := s.pod("userns")
	p.Config.Linux.SecurityContext.NamespaceOptions.UsernsOptions = mapping(100000, 65536)
	ids := mapping(100000, 65536)
	p.Tune = func(c *cri.ContainerConfig) {
		c.Linux.SecurityContext.RunAsUser = &cri.Int64Value{Value: 1000}
		c.Linux.SecurityContext.SupplementalGroups = []int64{2000}
		c.Mounts = []*cri.Mount{
			{HostPath: volume, ContainerPath: "/v", UidMappings: ids.Uids, GidMappings: ids.Gids},
			{HostPath: t.TempDir(), ContainerPath: "/v/inner/nested", UidMappings: ids.Uids, GidMappings: ids.Gids},
		}
	}
	must(t, p.Up(node.Demo, "/bin/sleep", "1000"))
	if got, want := s.output(t, p, "id -u; id -G; stat -c %u:%g /v; touch /v/new; stat -c %u:%g /v/new"),
		"1000\n0 2000\n0:2000\n1000:2000\n"; got != want {
		t.Errorf("%q, not %q", got, want)
	}
	for _, made := range []string{"/", "/etc/hosts", "/etc/hostname", "/etc/resolv.conf", "/dev", "/dev/shm", "/dev/mqueue"} {
		if got := s.output(t, p, "stat -c %u:%g "+made); got != "0:0\n" {
			t.Errorf("%s belongs to %q", made, got)
		}
	}
	var st unix.Stat_t
	must(t, unix.Stat(filepath.Join(volume, "new"), &st))
	if st.Uid != 1000 || st.Gid != 2000 {
		t.Errorf("on the node the file is %d:%d", st.Uid, st.Gid)
	}
	after, err := os.ReadFile("/proc/self/mountinfo")
	must(t, err)
	if strings.Contains(string(after), volume) && !strings.Contains(string(before), volume) {
		t.Errorf("a mount of the container shows on the node:\n%s", after)
	}
	s.end(t, p)
}

func securityUserNamespaceRefused(t *testing.T, s *scene) {
	const field = "config.linux.security_context.namespace_options.userns_options"
	two := mapping(100000, 1000)
	two.Uids = append(two.Uids, &cri.IDMapping{HostId: 200000, ContainerId: 1000, Length: 1000})
	node1 := mapping(100000, 1000)
	node1.Mode = cri.NamespaceMode_NODE
	for i, u := range []*cri.UserNamespace{two, node1, mapping(100000, 0), mapping(4294967000, 1000),
		{Mode: cri.NamespaceMode_POD}, {Mode: cri.NamespaceMode_CONTAINER}, {Mode: cri.NamespaceMode_TARGET}} {
		p := s.pod(fmt.Sprintf("userns-refused-%d", i))
		p.Config.Linux.SecurityContext.NamespaceOptions.UsernsOptions = u
		_, err := node.Call(s.Runtime.RunPodSandbox, &cri.RunPodSandboxRequest{Config: p.Config})
		refused(t, err, codes.InvalidArgument, field)
	}
	for _, set := range []func(*cri.NamespaceOption){
		func(o *cri.NamespaceOption) { o.Pid = cri.NamespaceMode_NODE },
		func(o *cri.NamespaceOption) { o.Ipc = cri.NamespaceMode_NODE },
	} {
		p := s.pod("userns-with-node")
		p.Config.Linux.SecurityContext.NamespaceOptions.UsernsOptions = mapping(100000, 1000)
		set(p.Config.Linux.SecurityContext.NamespaceOptions)
		_, err := node.Call(s.Runtime.RunPodSandbox, &cri.RunPodSandboxRequest{Config: p.Config})
		refused(t, err, codes.InvalidArgument, field)
	}
	// ids that the namespace does not have, and a namespace that is not the pod's
	p := s.pod("userns-small")
	p.Config.Linux.SecurityContext.NamespaceOptions.UsernsOptions = mapping(100000, 1000)
	must(t, p.Run())
	for _, tune := range []func(*cri.LinuxContainerSecurityContext){
		func(c *cri.LinuxContainerSecurityContext) { c.RunAsUser = &cri.Int64Value{Value: 1000} },
		func(c *cri.LinuxContainerSecurityContext) { c.SupplementalGroups = []int64{5, 1000} },
		func(c *cri.LinuxContainerSecurityContext) {
			c.NamespaceOptions = &cri.NamespaceOption{Network: cri.NamespaceMode_NODE, Pid: cri.NamespaceMode_CONTAINER, UsernsOptions: mapping(200000, 1000)}
		},
		func(c *cri.LinuxContainerSecurityContext) {
			c.NamespaceOptions = &cri.NamespaceOption{Network: cri.NamespaceMode_NODE, Pid: cri.NamespaceMode_CONTAINER,
				UsernsOptions: &cri.UserNamespace{Mode: cri.NamespaceMode_NODE}}
		},
	} {
		p.Tune = func(c *cri.ContainerConfig) { tune(c.Linux.SecurityContext) }
		refused(t, s.createError(t, p, node.Demo), codes.InvalidArgument)
	}
	s.end(t, p)
}

// securityPidNamespaces: TARGET is another container's, and NODE only where the pod has it.
func securityPidNamespaces(t *testing.T, s *scene) {
	p := s.sleeper(t, "pid-target")
	target := p.Container
	link := func(container string) string {
		r, err := node.Call(s.Runtime.ExecSync, &cri.ExecSyncRequest{ContainerId: container, Cmd: []string{"/bin/readlink", "/proc/self/ns/pid"}, Timeout: 30})
		must(t, err)
		return string(r.Stdout)
	}
	set := func(mode cri.NamespaceMode, id, name string) {
		p.Tune = func(c *cri.ContainerConfig) {
			c.Metadata.Name = name
			c.Linux.SecurityContext.NamespaceOptions = &cri.NamespaceOption{Network: cri.NamespaceMode_NODE, Pid: mode, TargetId: id}
		}
	}
	set(cri.NamespaceMode_TARGET, target, "debugger")
	must(t, p.Create(node.Demo, "/bin/sleep", "1000"))
	must(t, p.Start())
	if link(p.Container) != link(target) {
		t.Error("the namespace is not the target's")
	}
	set(cri.NamespaceMode_CONTAINER, "", "own")
	must(t, p.Create(node.Demo, "/bin/sleep", "1000"))
	must(t, p.Start())
	if link(p.Container) == link(target) {
		t.Error("CONTAINER shares a namespace")
	}
	set(cri.NamespaceMode_NODE, "", "node")
	refused(t, s.createError(t, p, node.Demo), codes.InvalidArgument, "namespace_options.pid")
	set(cri.NamespaceMode_TARGET, "", "no-target")
	refused(t, s.createError(t, p, node.Demo), codes.InvalidArgument, "namespace_options.target_id")
	s.end(t, p)
}

func securityPrivileged(t *testing.T, s *scene) {
	p := s.pod("privileged")
	p.Tune = func(c *cri.ContainerConfig) { c.Linux.SecurityContext.Privileged = true }
	must(t, p.Run())
	refused(t, s.createError(t, p, node.Demo), codes.InvalidArgument, "config.linux.security_context.privileged")
	s.end(t, p)
}

// securityCgroupNamespace: a privileged container is in the node's, sees all of its cgroups and can make some,
// which go with it; another one has one of its own. So has what is executed in either.
func securityCgroupNamespace(t *testing.T, s *scene) {
	nodes, err := os.Readlink("/proc/self/ns/cgroup")
	must(t, err)
	const look = "readlink /proc/1/ns/cgroup; readlink /proc/self/ns/cgroup; cat /proc/1/cgroup"
	own := s.sleeper(t, "own-cgroups")
	got := strings.Fields(s.output(t, own, look))
	if got[0] == nodes || got[1] != got[0] {
		t.Errorf("namespaces %q; the node's is %s", got[:2], nodes)
	}
	for _, group := range got[2:] {
		if strings.Contains(group, own.Container) {
			t.Errorf("it is in %s", group)
		}
	}
	p := s.pod("node-cgroups")
	p.Config.Linux.SecurityContext.Privileged = true
	p.Tune = func(c *cri.ContainerConfig) { c.Linux.SecurityContext.Privileged = true }
	must(t, p.Up(node.Demo, "/bin/sleep", "1000"))
	got = strings.Fields(s.output(t, p, look))
	if got[0] != nodes || got[1] != nodes {
		t.Errorf("namespaces %q of a privileged one; the node's is %s", got[:2], nodes)
	}
	made := 0
	for _, group := range got[2:] {
		fields := strings.SplitN(group, ":", 3)
		if !strings.Contains(fields[2], p.Container) {
			continue
		}
		s.output(t, p, fmt.Sprintf(`d=/sys/fs/cgroup/%s; [ "$d" != /sys/fs/cgroup/ ] || [ ! -d /sys/fs/cgroup/unified ] || d=/sys/fs/cgroup/unified
mkdir -p $d/%s/child/of/it`, fields[1], fields[2]))
		made++
	}
	if made == 0 {
		t.Errorf("its cgroups are %q", got[2:])
	}
	s.end(t, own, p)
}

// securityAppArmor: a profile that the node does not have is refused, with and without AppArmor in its
// kernel; the default one and none are no reason to.
func securityAppArmor(t *testing.T, s *scene) {
	for _, profile := range []*cri.SecurityProfile{nil, {ProfileType: cri.SecurityProfile_RuntimeDefault}, {ProfileType: cri.SecurityProfile_Unconfined}} {
		p := s.pod("apparmor")
		p.Tune = func(c *cri.ContainerConfig) { c.Linux.SecurityContext.Apparmor = profile }
		expectEnd(t, s.run(t, p, "/bin/true"), 0, "Completed")
		s.end(t, p)
	}
	p := s.pod("apparmor-refused")
	must(t, p.Run())
	for _, name := range []string{"localhost/not-there", "not-there"} {
		p.Tune = func(c *cri.ContainerConfig) {
			c.Linux.SecurityContext.Apparmor = &cri.SecurityProfile{ProfileType: cri.SecurityProfile_Localhost, LocalhostRef: name}
		}
		refused(t, s.createError(t, p, node.Demo), codes.InvalidArgument, "apparmor profile not-there:")
	}
	p.Tune = func(c *cri.ContainerConfig) { c.Linux.SecurityContext.ApparmorProfile = "localhost/not-there" }
	refused(t, s.createError(t, p, node.Demo), codes.InvalidArgument, "apparmor profile not-there:")
	for _, name := range []string{"localhost/", "nothing", "localhost/a\nb"} {
		p.Tune = func(c *cri.ContainerConfig) { c.Linux.SecurityContext.ApparmorProfile = name }
		refused(t, s.createError(t, p, node.Demo), codes.InvalidArgument, "config.linux.security_context.apparmor")
	}
	s.end(t, p)
}

// securitySELinux: where the kernel has none, each part of a label that is asked for is refused by its
// name; one that says nothing and relabelling, which the kubelet asks for on any node, are not.
func securitySELinux(t *testing.T, s *scene) {
	if _, err := os.Stat("/sys/fs/selinux/enforce"); err == nil {
		t.Skip("the kernel has SELinux")
	}
	const field = "config.linux.security_context.selinux_options."
	for name, options := range map[string]*cri.SELinuxOption{
		"user": {User: "u"}, "role": {Role: "r"}, "type": {Type: "spc_t"}, "level": {Level: "s0:c1,c2"},
	} {
		p := s.pod("selinux-pod-" + name)
		p.Config.Linux.SecurityContext.SelinuxOptions = options
		refused(t, p.Run(), codes.InvalidArgument, field+name+": this node's kernel has no SELinux")
	}
	p := s.pod("selinux")
	p.Config.Linux.SecurityContext.SelinuxOptions = &cri.SELinuxOption{}
	p.Tune = func(c *cri.ContainerConfig) {
		c.Linux.SecurityContext.SelinuxOptions = &cri.SELinuxOption{}
		c.Mounts = append(c.Mounts, &cri.Mount{HostPath: t.TempDir(), ContainerPath: "/data", SelinuxRelabel: true})
	}
	expectEnd(t, s.run(t, p, "/bin/true"), 0, "Completed")
	s.end(t, p)
	p = s.pod("selinux-refused")
	must(t, p.Run())
	p.Tune = func(c *cri.ContainerConfig) {
		c.Linux.SecurityContext.SelinuxOptions = &cri.SELinuxOption{Type: "container_t"}
	}
	refused(t, s.createError(t, p, node.Demo), codes.InvalidArgument, field+"type: this node's kernel has no SELinux")
	s.end(t, p)
}

// securitySharedPid: what holds a pod's shared pid namespace may do nothing.
func securitySharedPid(t *testing.T, s *scene) {
	p := s.pod("shared-pid")
	p.Config.Linux.SecurityContext.NamespaceOptions.Pid = cri.NamespaceMode_POD
	must(t, p.Up(node.Demo, "/bin/sleep", "1000"))
	const none = "0000000000000000"
	want := "Name: crisp-pid1 CapInh: " + none + " CapPrm: " + none + " CapEff: " + none + " CapBnd: " + none + " CapAmb: " + none + " NoNewPrivs: 1 Seccomp: 2\n"
	if got := s.output(t, p, `echo $(grep -E "^(Name|Cap...|NoNewPrivs|Seccomp):" /proc/1/status)`); got != want {
		t.Errorf("%q, not %q", got, want)
	}
	pid := s.verbose(t, p.ID)["pid"]
	program, err := os.Readlink(fmt.Sprintf("/proc/%v/exe", pid))
	must(t, err)
	if program != "/memfd:crisp-pid1 (deleted)" {
		t.Errorf("process %v of the pod runs %s", pid, program)
	}
	open, err := os.ReadDir(fmt.Sprintf("/proc/%v/fd", pid))
	must(t, err)
	if len(open) != 0 {
		t.Errorf("it has %d descriptors", len(open))
	}
	alone := s.sleeper(t, "own-pid")
	if pid := s.verbose(t, alone.ID)["pid"]; pid != 0.0 {
		t.Errorf("a pod that shares no pid namespace has the process %v", pid)
	}
	s.end(t, p, alone)
}
