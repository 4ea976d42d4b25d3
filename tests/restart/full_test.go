// SPDX-License-Identifier: Apache-2.0

package restart

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"crisp/node"
)

// fill leaves no free block on the file system of dir; the function returned gives all of it back.
func fill(t *testing.T, dir string) func() {
	t.Helper()
	path := filepath.Join(dir, "filler")
	f, err := os.Create(path)
	must(t, err)
	defer f.Close()
	for _, size := range []int{1 << 20, 4096} {
		block := make([]byte, size)
		for {
			if _, err := f.Write(block); err != nil {
				break
			}
		}
	}
	return func() { must(t, os.Remove(path)) }
}

// exhausted wants the error that says what to do.
func exhausted(t *testing.T, what string, err error) {
	t.Helper()
	if status.Code(err) != codes.ResourceExhausted || !strings.Contains(err.Error(), "free space") {
		t.Errorf("%s on a full disk: %v", what, err)
	}
}

// tryImport imports the image that is not there.
func tryImport(t *testing.T, s *node.Server) (string, error) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "image.tar")
	if out, err := exec.Command("./image", file).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	out, err := exec.Command(node.NeedEnv(t, "CRISP", "crisp, the command line program"), "--address", s.Socket, "import", file).CombinedOutput()
	return string(out), err
}

// TestFullDisk: on a full root what makes new things says RESOURCE_EXHAUSTED, what is there is started,
// stopped and removed, also by a new server; and once there is space again the same calls succeed and
// nothing is left.
func TestFullDisk(t *testing.T) {
	server := startPlain(t)
	server.Kill(t)
	root := filepath.Join(server.Dir, "root")
	must(t, os.RemoveAll(root))
	must(t, os.Mkdir(root, 0o700))
	must(t, unix.Mount("test", root, "tmpfs", 0, "size=16m"))
	t.Cleanup(func() { _ = unix.Unmount(root, unix.MNT_DETACH) })
	server.Run(t)
	s := newScene(t, server, cgroupParent(t))
	runs, ends, stays, created, empty := s.sleeper(t, "runs"), s.pod("ends"), s.sleeper(t, "stays"), s.pod("created"), s.pod("empty")
	must(t, ends.Up(node.Demo, "/bin/sh", "-c", "read x; exit 7"))
	must(t, created.Run())
	must(t, created.Create(node.Demo, "/bin/sleep", "1000"))
	must(t, empty.Run())

	_, err := node.Call(s.Images.RemoveImage, &cri.RemoveImageRequest{Image: &cri.ImageSpec{Image: "docker.io/library/storm:latest"}})
	must(t, err)
	for round := range 2 {
		free := fill(t, root)
		started := time.Now()
		list, err := node.Call(s.Runtime.ListContainers, &cri.ListContainersRequest{})
		if err != nil || len(list.Containers) < 3 {
			t.Errorf("list on a full disk: %v, %v", list, err)
		}
		p := s.pod("new")
		exhausted(t, "RunPodSandbox", p.Run())
		exhausted(t, "RunPodSandbox again", p.Run())
		exhausted(t, "CreateContainer", empty.Create(node.Demo, "/bin/true"))
		exhausted(t, "CreateContainer again", empty.Create(node.Demo, "/bin/true"))
		if out, err := tryImport(t, s.Server); err == nil || !strings.Contains(out, "space") {
			t.Errorf("import on a full disk: %v: %s", err, out)
		}
		_, err = runs.Exec("/bin/true")
		must(t, err)
		if round == 0 {
			must(t, created.Start())
		} else {
			s.Restart(t)
			if c, err := runs.Status(); err != nil || c.State != cri.ContainerState_CONTAINER_RUNNING {
				t.Errorf("after a restart on a full disk it is %v, %v", c, err)
			}
			must(t, stays.Stop(0))
			must(t, stays.Remove())
		}
		if passed := time.Since(started); passed > 10*time.Second {
			t.Errorf("the calls took %v", passed)
		}
		free()
		must(t, p.Run())
		must(t, p.Create(node.Demo, "/bin/true"))
		must(t, p.Start())
		must(t, p.Remove())
		s.expectWorks(t, runs)
	}
	importImages(t, s.Server)
	s.end(t, runs, ends, stays, created, empty)
}
