// SPDX-License-Identifier: Apache-2.0

package cases

import (
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

// TestMounts: what comes into a container from elsewhere, and how.
func TestMounts(t *testing.T) {
	s := newScene(t)
	for _, c := range []struct {
		name string
		test func(*testing.T, *scene)
	}{
		{"image volume shows the image and can't be written", mountImage},
		{"image volume keeps its image whatever becomes of the name", mountImageKept},
		{"image volume is refused by name", mountImageRefused},
		{"image volume belongs to the pod's users", mountImageMapped},
		{"mount options hold", mountOptions},
	} {
		t.Run(c.name, func(t *testing.T) { c.test(t, s) })
	}
}

func mounts(list ...*cri.Mount) func(*cri.ContainerConfig) {
	return func(c *cri.ContainerConfig) { c.Mounts = list }
}

func imageMount(image, target, part string) *cri.Mount {
	return &cri.Mount{ContainerPath: target, Readonly: true, Image: &cri.ImageSpec{Image: image}, ImageSubPath: part}
}

// volumes are two images to mount: of one layer and of two.
func (s *scene) volumes(t *testing.T) (one, two string) {
	t.Helper()
	one, two = "example.com/one:1", "example.com/two:1"
	base := append(node.Busybox(t), node.Dir("data", 0o755), node.File("data/a", 0o644, "first"),
		node.Dir("data/inner", 0o755), node.File("data/inner/file", 0o640, "deep").Owned(7, 8),
		node.Link("up", "../../data"), node.Link("host", "/etc"))
	s.ImportImage(t, one, nil, base)
	s.ImportImage(t, two, nil, base, []node.Entry{node.File("data/a", 0o644, "second"), node.File("data/.wh.inner", 0, "")})
	return one, two
}

// lines expects a script's output.
func (s *scene) lines(t *testing.T, p *node.Pod, script string, want ...string) {
	t.Helper()
	if got := strings.TrimSpace(s.output(t, p, script)); got != strings.Join(want, "\n") {
		t.Errorf("%s:\n%s\nnot\n%s", script, got, strings.Join(want, "\n"))
	}
}

func mountImage(t *testing.T, s *scene) {
	one, two := s.volumes(t)
	p := s.pod("image-volume")
	p.Tune = mounts(imageMount(one, "/one", ""), imageMount(two, "/two", ""), imageMount(two, "/part", "data"),
		imageMount(one, "/file", "data/inner/file"), imageMount(one, "/up", "up/../data/inner"))
	must(t, p.Up(node.Demo, "/bin/sleep", "1000"))
	s.lines(t, p, "cat /one/data/a /two/data/a /part/a; echo; ls /part; cat /file; stat -c ' %u:%g %a' /file /up/file",
		"firstsecondsecond", "a", "deep 7:8 640", " 7:8 640")
	s.lines(t, p, "for d in one two part up; do touch /$d/x 2>&1 | grep -c Read-only; done; echo x 2>&1 >/file | grep -c Read-only",
		"1", "1", "1", "1", "1")
	s.lines(t, p, "/one/bin/busybox echo runs", "runs")

	status, err := p.Status()
	must(t, err)
	images, err := node.Call(s.Images.ImageStatus, &cri.ImageStatusRequest{Image: &cri.ImageSpec{Image: two}})
	must(t, err)
	want := images.Image.Id
	if len(images.Image.RepoDigests) > 0 {
		want = images.Image.RepoDigests[0]
	}
	if got := status.Mounts[1]; len(status.Mounts) != 5 || got.ContainerPath != "/two" || got.Image.Image != two || got.Image.ImageRef != want {
		t.Errorf("mounts: %v, want %s of %s", status.Mounts, two, want)
	}
	must(t, p.Remove())
	s.removeImage(t, one)
	s.removeImage(t, two)
	s.end(t)
}

func (s *scene) removeImage(t *testing.T, name string) {
	t.Helper()
	_, err := node.Call(s.Images.RemoveImage, &cri.RemoveImageRequest{Image: &cri.ImageSpec{Image: name}})
	must(t, err)
}

// mountImageKept: between creation and start the name goes to another image, the image is removed and
// the server dies; what was meant at creation is mounted.
func mountImageKept(t *testing.T, s *scene) {
	one, two := s.volumes(t)
	p := s.pod("image-kept")
	p.Tune = mounts(imageMount(two, "/two", ""))
	must(t, p.Run())
	must(t, p.Create(node.Demo, "/bin/sleep", "1000"))
	s.removeImage(t, two)
	s.ImportImage(t, two, nil, []node.Entry{node.Dir("data", 0o755), node.File("data/a", 0o644, "another")})
	s.removeImage(t, one)
	s.Kill(t)
	must(t, p.Start())
	s.lines(t, p, "cat /two/data/a", "second")
	s.Kill(t)
	s.lines(t, p, "cat /two/data/a", "second")
	layers := s.layers(t)
	must(t, p.Remove())
	// nobody has them any more
	node.Eventually(t, 10*time.Second, func() error {
		if n := s.layers(t); n != layers-2 {
			return fmt.Errorf("%d layers, then %d", layers, n)
		}
		return nil
	})
	s.removeImage(t, two)
	s.end(t)
}

func (s *scene) layers(t *testing.T) int {
	t.Helper()
	found, err := os.ReadDir(filepath.Join(s.Dir, "root", "images", "layers"))
	must(t, err)
	return len(found)
}

func mountImageRefused(t *testing.T, s *scene) {
	one, two := s.volumes(t)
	p := s.pod("image-refused")
	must(t, p.Run())
	writable := imageMount(one, "/one", "")
	writable.Readonly = false
	both := imageMount(one, "/one", "")
	both.HostPath = "/tmp"
	for _, c := range []struct {
		mount *cri.Mount
		code  codes.Code
		what  []string
	}{
		{imageMount("example.com/missing:1", "/m", ""), codes.NotFound, []string{"example.com/missing:1", "/m"}},
		{imageMount(one, "/m", "not/there"), codes.InvalidArgument, []string{"not/there", "/m", "No such file"}},
		{imageMount(two, "/m", "data/inner"), codes.InvalidArgument, []string{"data/inner"}},
		// links mean what they mean in the image, which has no /etc
		{imageMount(one, "/m", "host/passwd"), codes.InvalidArgument, []string{"host/passwd"}},
		{imageMount(one, "/m", "../../../../etc/passwd"), codes.InvalidArgument, []string{"etc/passwd"}},
		{writable, codes.InvalidArgument, []string{"mounts.readonly", "/one"}},
		{both, codes.InvalidArgument, []string{"mounts.host_path", "/one"}},
	} {
		p.Tune = mounts(c.mount)
		refused(t, p.Create(node.Demo, "/bin/true"), c.code, c.what...)
	}
	s.removeImage(t, one)
	s.removeImage(t, two)
	s.end(t, p)
}

// inUserNamespace gives a pod ids of its own, from outside on.
func inUserNamespace(p *node.Pod, outside uint32) []*cri.IDMapping {
	ids := []*cri.IDMapping{{HostId: outside, Length: 65536}}
	p.Config.Linux.SecurityContext.NamespaceOptions = &cri.NamespaceOption{
		Pid: cri.NamespaceMode_CONTAINER, UsernsOptions: &cri.UserNamespace{Mode: cri.NamespaceMode_POD, Uids: ids, Gids: ids}}
	return ids
}

func mountImageMapped(t *testing.T, s *scene) {
	one, two := s.volumes(t)
	p := s.pod("image-mapped")
	ids := inUserNamespace(p, 1<<20)
	list := []*cri.Mount{imageMount(one, "/one", ""), imageMount(two, "/two", ""), imageMount(one, "/part", "data/inner")}
	for _, m := range list {
		m.UidMappings, m.GidMappings = ids, ids
	}
	p.Tune = mounts(list...)
	must(t, p.Up(node.Demo, "/bin/sleep", "1000"))
	s.lines(t, p, "stat -c '%u:%g' /one/data/a /one/data/inner/file /two/data/a /part/file; cat /proc/self/uid_map | tr -s ' '",
		"0:0", "7:8", "0:0", "7:8", " 0 1048576 65536")
	s.removeImage(t, one)
	s.removeImage(t, two)
	s.end(t, p)
}

func mountOptions(t *testing.T, s *scene) {
	dir := t.TempDir()
	raw, err := os.ReadFile("/bin/busybox")
	must(t, err)
	must(t, os.WriteFile(filepath.Join(dir, "busybox"), raw, 0o755))
	must(t, os.Chmod(filepath.Join(dir, "busybox"), 0o4755))
	must(t, os.Mkdir(filepath.Join(dir, "below"), 0o755))
	must(t, unix.Mount("below", filepath.Join(dir, "below"), "tmpfs", 0, ""))
	t.Cleanup(func() { _ = unix.Unmount(filepath.Join(dir, "below"), unix.MNT_DETACH) })
	p := s.pod("mount-options")
	at := func(target string, options ...string) *cri.Mount {
		return &cri.Mount{HostPath: dir, ContainerPath: target, MountOptions: options}
	}
	p.Tune = mounts(at("/plain"), at("/noexec", "noexec"), at("/all", "noexec", "nosuid", "nodev"))
	must(t, p.Up(node.Demo, "/bin/sleep", "1000"))
	s.lines(t, p, "/plain/busybox echo runs; /noexec/busybox 2>&1 | grep -c 'Permission denied'", "runs", "1")
	s.lines(t, p, `for m in /plain /plain/below /noexec /noexec/below /all /all/below; do
		grep " $m " /proc/mounts | cut -d' ' -f4 | tr , '\n' | grep -E '^(noexec|nosuid)$' | sort | tr '\n' ' '; echo $m; done`,
		"/plain", "/plain/below", "noexec /noexec", "noexec /noexec/below", "noexec nosuid /all", "noexec nosuid /all/below")
	must(t, p.RemoveContainer())
	for _, option := range []string{"ro", "rw", "exec", "bind", "size=1m", "noexec,nosuid", ""} {
		p.Tune = mounts(at("/m", option))
		refused(t, p.Create(node.Demo, "/bin/true"), codes.InvalidArgument, "mounts.mount_options", "/m", `"`+option+`"`)
	}
	s.end(t, p)
}
