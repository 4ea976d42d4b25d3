// SPDX-License-Identifier: Apache-2.0

package cases

import (
	"archive/tar"
	"fmt"
	"os"
	"os/exec"
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
		{"the node's root can be mounted", mountNodeRoot},
		{"what has a mount namespace in it can be mounted", mountWithNamespace},
		{"image's volume has what the image has there", volumeCopy},
		{"image's volume belongs to the pod's users", volumeMapped},
		{"image's volume that is too long copied leaves nothing, and comes the next time", volumeTimeout},
		{"kubelet's mount wins over the image's volume", volumeReplaced},
		{"CVE-2022-23648 image's volume stays inside", volumeInside},
		{"CVE-2019-16884 image's volume over procfs is refused", volumeRefused},
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

const volumeImage = "example.com/volume:1"

// importVolume makes an image that declares volumes, on busybox.
func (s *scene) importVolume(t *testing.T, paths []string, entries ...node.Entry) {
	t.Helper()
	volumes := map[string]any{}
	for _, path := range paths {
		volumes[path] = map[string]any{}
	}
	s.ImportImage(t, volumeImage, map[string]any{"Volumes": volumes}, append(node.Busybox(t),
		node.Link("bin/cat", "busybox"), node.Link("bin/ls", "busybox"), node.Link("bin/stat", "busybox"),
		node.Link("bin/sleep", "busybox"), node.Link("bin/grep", "busybox"), node.Link("bin/readlink", "busybox")), entries)
}

func (s *scene) volumeDirs(t *testing.T, p *node.Pod) string {
	t.Helper()
	return filepath.Join(s.Dir, "root", "containers", p.Container, "volumes")
}

func volumeCopy(t *testing.T, s *scene) {
	labelled := node.File("data/labelled", 0o600, "x")
	labelled.PAXRecords = map[string]string{"SCHILY.xattr.user.note": "kept"}
	same := node.Entry{Header: tar.Header{Name: "data/same", Typeflag: tar.TypeLink, Linkname: "data/inner/file"}}
	device := node.Entry{Header: tar.Header{Name: "data/null", Typeflag: tar.TypeChar, Devmajor: 1, Devminor: 3, Mode: 0o666}}
	fifo := node.Entry{Header: tar.Header{Name: "data/fifo", Typeflag: tar.TypeFifo, Mode: 0o622}}
	old := node.Dir("data/inner", 0o750).Owned(5, 6)
	old.ModTime = time.Unix(1_000_000_000, 0)
	s.importVolume(t, []string{"/data", "/new", "/data/../data/"}, node.Dir("data", 0o1777).Owned(3, 4), old,
		node.File("data/inner/file", 0o4755, "content").Owned(7, 8), same, labelled, device, fifo,
		node.Link("data/out", "/etc/passwd"), node.Link("data/up", "../../../../etc"))
	p := s.pod("volume")
	p.Tune = func(c *cri.ContainerConfig) { c.Linux.SecurityContext.ReadonlyRootfs = true }
	must(t, p.Up(volumeImage, "/bin/sleep", "1000"))
	s.lines(t, p, "stat -c '%n %u:%g %a %h' /data /data/inner /data/inner/file /new; stat -c %Y /data/inner; stat -c '%F %t:%T %a' /data/null /data/fifo",
		"/data 3:4 1777 3", "/data/inner 5:6 750 2", "/data/inner/file 7:8 4755 2", "/new 0:0 755 2", "1000000000",
		"character special file 1:3 666", "fifo 0:0 622")
	s.lines(t, p, "[ /data/same -ef /data/inner/file ] && cat /data/same; echo; readlink /data/out; readlink /data/up; grep -c ' /data ' /proc/mounts",
		"content", "/etc/passwd", "../../../../etc", "1")
	value := make([]byte, 16)
	n, err := unix.Getxattr(filepath.Join(s.volumeDirs(t, p), "0", "labelled"), "user.note", value)
	if err != nil || string(value[:n]) != "kept" {
		t.Errorf("extended attribute %q, %v", value, err)
	}
	// writable in spite of the root, counted, and the same after an exec and a restart
	before := s.layerBytes(t, p)
	s.output(t, p, "dd if=/dev/zero of=/data/big bs=1M count=8 2>/dev/null || busybox dd if=/dev/zero of=/data/big bs=1M count=8 2>/dev/null")
	s.Kill(t)
	s.lines(t, p, "stat -c %s /data/big", "8388608")
	if grown := s.layerBytes(t, p) - before; grown < 8<<20 || grown > 9<<20 {
		t.Errorf("8 MiB in a volume make the layer %d bytes larger", grown)
	}
	must(t, p.Remove())
	s.removeImage(t, volumeImage)
	s.end(t)
}

// layerBytes is what the writable layer takes, measured now.
func (s *scene) layerBytes(t *testing.T, p *node.Pod) uint64 {
	t.Helper()
	r, err := node.Call(s.Runtime.ContainerStats, &cri.ContainerStatsRequest{ContainerId: p.Container})
	must(t, err)
	return r.Stats.WritableLayer.UsedBytes.Value
}

// volumeTimeout: deadlines grow until one passes in the middle of the copy, which is seen from outside.
func volumeTimeout(t *testing.T, s *scene) {
	const files = 3000
	entries := []node.Entry{node.Dir("data", 0o755)}
	for i := range files {
		entries = append(entries, node.File(fmt.Sprintf("data/%d", i), 0o644, "x"))
	}
	s.importVolume(t, []string{"/data"}, entries...)
	p := s.pod("volume-timeout")
	must(t, p.Run())
	before := s.Look(t, s.marks()...)
	copied := func() int {
		found := 0
		dirs, _ := filepath.Glob(filepath.Join(s.Dir, "root", "containers", "*", "volumes", "0"))
		for _, dir := range dirs {
			if names, err := os.ReadDir(dir); err == nil {
				found = max(found, len(names))
			}
		}
		return found
	}
	interrupted := 0
	for limit := 20 * time.Millisecond; interrupted < 3; limit += limit / 4 {
		answered, seen := make(chan error), 0
		go func() {
			_, err := node.CallWithin(limit, s.Runtime.CreateContainer, p.Request(volumeImage, "/bin/sleep", "1000"))
			answered <- err
		}()
		var err error
		for isOver := false; !isOver; {
			select {
			case err = <-answered:
				isOver = true
			default:
				seen = max(seen, copied())
			}
		}
		if err == nil {
			break
		}
		refused(t, err, codes.DeadlineExceeded)
		if seen > 0 && seen < files {
			interrupted++
		}
		s.Leftovers(t, before, s.marks()...)
	}
	if interrupted == 0 {
		t.Error("no deadline passed in the middle of the copy")
	}
	must(t, p.Create(volumeImage, "/bin/sleep", "1000"))
	must(t, p.Start())
	s.lines(t, p, "ls /data | grep -c .", fmt.Sprint(files))
	must(t, p.Remove())
	s.removeImage(t, volumeImage)
	s.end(t)
}

func volumeMapped(t *testing.T, s *scene) {
	s.importVolume(t, []string{"/data"}, node.Dir("data", 0o700), node.File("data/file", 0o600, "mine").Owned(7, 8))
	p := s.pod("volume-mapped")
	inUserNamespace(p, 1<<20)
	must(t, p.Up(volumeImage, "/bin/sleep", "1000"))
	s.lines(t, p, "stat -c '%u:%g' /data /data/file; cat /data/file; echo x >/data/new && stat -c '%u:%g' /data/new", "0:0", "7:8", "mine0:0")
	must(t, p.Remove())
	s.removeImage(t, volumeImage)
	s.end(t)
}

func volumeReplaced(t *testing.T, s *scene) {
	dir := t.TempDir()
	must(t, os.WriteFile(filepath.Join(dir, "file"), []byte("kubelet"), 0o644))
	s.importVolume(t, []string{"/data", "/proc"}, node.Dir("data", 0o755), node.File("data/file", 0o644, "image"))
	p := s.pod("volume-replaced")
	p.Tune = mounts(&cri.Mount{HostPath: dir, ContainerPath: "//data/./x/../"}, &cri.Mount{HostPath: dir, ContainerPath: "/proc"})
	must(t, p.Run())
	must(t, p.Create(volumeImage, "/bin/sleep", "1000"))
	if _, err := os.Stat(s.volumeDirs(t, p)); !os.IsNotExist(err) {
		t.Errorf("a volume was made: %v", err)
	}
	// what the kubelet mounts over procfs is no better
	refused(t, p.Start(), codes.InvalidArgument, "/proc")
	must(t, p.RemoveContainer())
	s.removeImage(t, volumeImage)
	s.importVolume(t, []string{"/data"}, node.Dir("data", 0o755), node.File("data/file", 0o644, "image"))
	p.Tune = mounts(&cri.Mount{HostPath: dir, ContainerPath: "//data/./x/../"})
	must(t, p.Create(volumeImage, "/bin/sleep", "1000"))
	must(t, p.Start())
	s.lines(t, p, "cat /data/file", "kubelet")
	must(t, p.Remove())
	s.removeImage(t, volumeImage)
	s.end(t)
}

// volumeInside: paths that would lead out of the image, into a directory of the node.
func volumeInside(t *testing.T, s *scene) {
	secret := t.TempDir()
	must(t, os.WriteFile(filepath.Join(secret, "secret"), []byte("secret"), 0o600))
	up := "/../../../../../.." + secret
	s.importVolume(t, []string{up, "/link", "/relative", "/deep/link/x"}, node.Link("link", secret), node.Link("relative", ".."+up),
		node.Dir("deep", 0o755), node.Link("deep/link", ".."+up))
	p := s.pod("volume-inside")
	must(t, p.Up(volumeImage, "/bin/sleep", "1000"))
	s.lines(t, p, "ls -A "+up+" /link/ /relative/ /deep/link/ | grep -c secret$; cat "+secret+"/secret /link/secret /deep/link/secret 2>&1 | grep -vc 'No such file'; true", "0", "0")
	found, err := filepath.Glob(filepath.Join(s.volumeDirs(t, p), "*", "secret"))
	if err != nil || len(found) > 0 {
		t.Errorf("copied: %v, %v", found, err)
	}
	must(t, p.Remove())
	if found, _ := os.ReadDir(secret); len(found) != 1 {
		t.Errorf("in the node's directory is %v", found)
	}
	s.removeImage(t, volumeImage)
	s.end(t)
}

// mountNodeRoot: as monitors of nodes have it. The server's own pins are a mount namespace, and one that is
// older than the container's can't come along.
func mountNodeRoot(t *testing.T, s *scene) {
	file := filepath.Join(t.TempDir(), "file")
	must(t, os.WriteFile(file, []byte("here"), 0o644))
	p := s.pod("node-root")
	p.Tune = mounts(&cri.Mount{HostPath: "/", ContainerPath: "/node", Readonly: true},
		&cri.Mount{HostPath: s.Dir, ContainerPath: "/state"})
	must(t, p.Up(node.Demo, "/bin/sleep", "1000"))
	s.lines(t, p, "cat /node"+file, "here")
	if found := s.output(t, p, "cat /proc/self/mountinfo"); strings.Contains(found, "/pins") {
		t.Errorf("the server's pins came along:\n%s", found)
	}
	s.end(t, p)
}

// mountWithNamespace: others on the node have mount namespaces mounted too; snapd has them in /run/snapd/ns.
func mountWithNamespace(t *testing.T, s *scene) {
	dir := t.TempDir()
	inner := filepath.Join(dir, "inner")
	must(t, os.WriteFile(filepath.Join(dir, "file"), []byte("here"), 0o644))
	must(t, os.Mkdir(inner, 0o755))
	must(t, unix.Mount(inner, inner, "", unix.MS_BIND, ""))
	defer unix.Unmount(inner, unix.MNT_DETACH)
	must(t, unix.Mount("", inner, "", unix.MS_PRIVATE, ""))
	must(t, os.WriteFile(filepath.Join(inner, "beside"), []byte("too"), 0o644))
	namespace := filepath.Join(inner, "ns")
	must(t, os.WriteFile(namespace, nil, 0o644))
	if out, err := exec.Command("unshare", "--mount="+namespace, "true").CombinedOutput(); err != nil {
		t.Fatalf("unshare: %v: %s", err, out)
	}
	defer unix.Unmount(namespace, unix.MNT_DETACH)
	p := s.pod("with-namespace")
	p.Tune = mounts(&cri.Mount{HostPath: dir, ContainerPath: "/m"})
	must(t, p.Up(node.Demo, "/bin/sleep", "1000"))
	s.lines(t, p, "cat /m/file; cat /m/inner/beside; wc -c </m/inner/ns", "heretoo0")
	s.end(t, p)
}

func volumeRefused(t *testing.T, s *scene) {
	for _, path := range []string{"/proc", "/sys", "/dev", "/", "/x/../proc/self", "/../../proc/"} {
		s.importVolume(t, []string{path})
		p := s.pod("volume-refused")
		must(t, p.Run())
		refused(t, p.Create(volumeImage, "/bin/sleep", "1000"), codes.InvalidArgument, "volume "+filepath.Clean(path))
		must(t, p.Remove())
		s.removeImage(t, volumeImage)
	}
	// a link to it is found by what is there when it is mounted
	s.importVolume(t, []string{"/data"}, node.Link("data", "/proc"))
	p := s.pod("volume-proc")
	must(t, p.Run())
	must(t, p.Create(volumeImage, "/bin/sleep", "1000"))
	refused(t, p.Start(), codes.InvalidArgument, "/data", "procfs")
	must(t, p.Remove())
	s.removeImage(t, volumeImage)
	s.importVolume(t, []string{"/bin/busybox"})
	must(t, p.Run())
	refused(t, p.Create(volumeImage, "/bin/sleep", "1000"), codes.InvalidArgument, "/bin/busybox", "no directory")
	must(t, p.Remove())
	s.removeImage(t, volumeImage)
	s.end(t)
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
