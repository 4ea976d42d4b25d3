// SPDX-License-Identifier: Apache-2.0

// Package restart kills servers and looks what their containers, callers and node notice. CRISPD and
// CRISP name the programs; wants root.
package restart

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"testing"

	"crisp/node"
)

// startKept is a server whose keeper starts it again after so many milliseconds.
func startKept(t *testing.T, delay int) *node.Server {
	t.Helper()
	return node.Start(t, crispd(t), "--keep", "--restart-delay", strconv.Itoa(delay))
}

// startPlain is a server without a keeper.
func startPlain(t *testing.T) *node.Server {
	t.Helper()
	return node.Start(t, crispd(t))
}

func crispd(t *testing.T) string {
	t.Helper()
	return node.NeedEnv(t, "CRISPD", "crispd, the server")
}

// withAndWithoutKeeper runs a test with both.
func withAndWithoutKeeper(t *testing.T, test func(*testing.T, *node.Server)) {
	t.Run("with keeper", func(t *testing.T) { test(t, startKept(t, 0)) })
	t.Run("without keeper", func(t *testing.T) { test(t, startPlain(t)) })
}

// cgroupParent is a cgroup for the pods of one test, gone after it. Call it before a server is started.
func cgroupParent(t *testing.T) string {
	t.Helper()
	parent := fmt.Sprintf("/crisp-restart-%d", os.Getpid())
	t.Cleanup(func() { node.RemoveParent(t, parent) })
	return parent
}

// importImages brings the demo image, and that of the storm.
func importImages(t *testing.T, s *node.Server) {
	t.Helper()
	for _, maker := range []string{"../../cri/demo-image", "./image"} {
		s.Import(t, makeImage(t, maker))
	}
}

// makeImage is an archive.
func makeImage(t *testing.T, maker string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "image.tar")
	if out, err := exec.Command(maker, file).CombinedOutput(); err != nil {
		t.Fatalf("%s: %v: %s", maker, err, out)
	}
	return file
}

// baseline is the node with a server that has made and removed a pod and was killed once, so that
// whatever is made at first use is there.
func baseline(t *testing.T, s *node.Server, logs, parent string) node.World {
	t.Helper()
	p := s.Client(t).NewPod("first", logs, parent)
	if err := p.Up(node.Demo, "/bin/true"); err != nil {
		t.Fatal(err)
	}
	if err := p.Remove(); err != nil {
		t.Fatal(err)
	}
	s.Restart(t)
	return s.Look(t, marks(parent)...)
}

// marks are what shows that a mount or a cgroup is ours. The parent itself is the caller's.
func marks(parent string) []string {
	return []string{parent + "/"}
}
