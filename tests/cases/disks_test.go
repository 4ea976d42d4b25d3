// SPDX-License-Identifier: Apache-2.0

package cases

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"crisp/node"
)

// mountDisk has an ext4 of its own on a loop device mounted there; the end of the server unmounts it.
func mountDisk(t *testing.T, at string) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "disk")
	must(t, os.WriteFile(file, nil, 0o600))
	must(t, os.Truncate(file, 128<<20))
	if out, err := exec.Command("mkfs.ext4", "-q", file).CombinedOutput(); err != nil {
		t.Fatalf("mkfs.ext4 (Debian package e2fsprogs): %v: %s", err, out)
	}
	if out, err := exec.Command("mount", "-o", "loop", file, at).CombinedOutput(); err != nil {
		t.Skipf("no loop device can be had here: %s", out)
	}
}

// used is what the disk says: bytes and inodes.
func used(t *testing.T, dir string) (bytes, inodes uint64) {
	t.Helper()
	var fs unix.Statfs_t
	f, err := os.Open(dir)
	must(t, err)
	defer f.Close()
	must(t, unix.Syncfs(int(f.Fd())))
	must(t, unix.Statfs(dir, &fs))
	return (fs.Blocks - fs.Bfree) * uint64(fs.Bsize), fs.Files - fs.Ffree
}

// TestDisks: images and writable layers on disks of their own are told of each with its own (R71).
func TestDisks(t *testing.T) {
	s := &scene{parent: fmt.Sprintf("/crisp-disks-%d", os.Getpid()), dir: t.TempDir()}
	t.Cleanup(func() { node.RemoveParent(t, s.parent) })
	s.Server = node.Start(t, node.NeedEnv(t, "CRISPD", "crispd, the server"), "--cgroup-driver", "cgroupfs")
	s.Kill(t)
	disks := map[string]string{}
	for _, name := range []string{"images", "containers"} {
		disks[name] = filepath.Join(s.Dir, "root", name)
		mountDisk(t, disks[name])
	}
	s.Run(t)
	s.Client = s.Server.Client(t)
	info := func() (images, layers *cri.FilesystemUsage) {
		t.Helper()
		r, err := node.Call(s.Images.ImageFsInfo, &cri.ImageFsInfoRequest{})
		must(t, err)
		if len(r.ImageFilesystems) != 1 || len(r.ContainerFilesystems) != 1 {
			t.Fatalf("file systems: %v", r)
		}
		return r.ImageFilesystems[0], r.ContainerFilesystems[0]
	}
	// beside what is told, a disk has some directories of ours
	expect := func(what, disk string, before [2]uint64, told *cri.FilesystemUsage) {
		t.Helper()
		bytes, inodes := used(t, disk)
		bytes, inodes = bytes-before[0], inodes-before[1]
		between(t, "bytes of "+what, told.UsedBytes.Value, bytes-min(bytes, bytes/100+64<<10), bytes+bytes/100+16<<10)
		between(t, "inodes of "+what, told.InodesUsed.Value, inodes-min(inodes, 12), inodes)
	}
	measure := func(name string) [2]uint64 {
		bytes, inodes := used(t, disks[name])
		return [2]uint64{bytes, inodes}
	}
	images, layers := measure("images"), measure("containers")
	const image = "example.com/disks:1"
	entries := append(node.Busybox(t), node.Dir("data", 0o755))
	for i := range 100 {
		entries = append(entries, node.File(fmt.Sprintf("data/%d", i), 0o644, fmt.Sprintf("%5000d", i)))
	}
	for _, name := range []string{"sleep", "dd", "mkdir", "seq", "sync"} {
		entries = append(entries, node.Link("bin/"+name, "busybox"))
	}
	s.ImportImage(t, image, nil, entries)
	onImages, onLayers := info()
	for told, disk := range map[*cri.FilesystemUsage]string{onImages: disks["images"], onLayers: disks["containers"]} {
		var a, b unix.Stat_t
		must(t, unix.Stat(told.FsId.Mountpoint, &a))
		must(t, unix.Stat(disk, &b))
		if a.Dev != b.Dev {
			t.Errorf("%s is not on the disk that is mounted on %s", told.FsId.Mountpoint, disk)
		}
	}
	expect("the images", disks["images"], images, onImages)
	expect("no layers", disks["containers"], layers, onLayers)

	p := s.pod("disks")
	must(t, p.Up(image, "/bin/sleep", "1000"))
	s.output(t, p, "dd if=/dev/zero of=/blob bs=1M count=8 2>/dev/null; mkdir /many; for i in $(seq 50); do echo x >/many/$i; done; sync")
	onImages, onLayers = info()
	expect("the images", disks["images"], images, onImages)
	expect("the layers", disks["containers"], layers, onLayers)
	between(t, "bytes of the layers", onLayers.UsedBytes.Value, 8*mib, 9*mib)
	if layer := s.stats(t, p).WritableLayer; layer.FsId.Mountpoint != onLayers.FsId.Mountpoint || layer.UsedBytes.Value != onLayers.UsedBytes.Value {
		t.Errorf("the container's layer: %v, all layers: %v", layer, onLayers)
	}
	s.Kill(t)
	node.ReapOrphans()
	s.Run(t)
	_, again := info()
	expect("the layers after a restart", disks["containers"], layers, again)
	must(t, p.Remove())
	s.removeImage(t, image)
	onImages, onLayers = info()
	expect("no images", disks["images"], images, onImages)
	if onLayers.UsedBytes.Value != 0 || onLayers.InodesUsed.Value != 0 || onImages.UsedBytes.Value != 0 {
		t.Errorf("after all was removed: %v, %v", onImages, onLayers)
	}
}
