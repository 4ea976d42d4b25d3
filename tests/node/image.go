// SPDX-License-Identifier: Apache-2.0

package node

import (
	"archive/tar"
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"os"
	"path/filepath"
	"runtime"
	"testing"
)

// Entry is one of a layer's.
type Entry struct {
	tar.Header
	Body []byte
}

// Dir, File and Link are what most layers are made of.
func Dir(name string, mode int64) Entry {
	return Entry{Header: tar.Header{Name: name + "/", Typeflag: tar.TypeDir, Mode: mode}}
}

func File(name string, mode int64, body string) Entry {
	return Entry{tar.Header{Name: name, Typeflag: tar.TypeReg, Mode: mode}, []byte(body)}
}

func Link(name, target string) Entry {
	return Entry{Header: tar.Header{Name: name, Typeflag: tar.TypeSymlink, Linkname: target, Mode: 0o777}}
}

// Owned is the entry with another owner.
func (e Entry) Owned(uid, gid int) Entry {
	e.Uid, e.Gid = uid, gid
	return e
}

func layerOf(t testing.TB, entries []Entry) []byte {
	t.Helper()
	var out bytes.Buffer
	w := tar.NewWriter(&out)
	for _, e := range entries {
		e.Size = int64(len(e.Body))
		if len(e.PAXRecords) > 0 {
			e.Format = tar.FormatPAX
		}
		if err := w.WriteHeader(&e.Header); err != nil {
			t.Fatalf("%s: %v", e.Name, err)
		}
		if _, err := w.Write(e.Body); err != nil {
			t.Fatalf("%s: %v", e.Name, err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

func hash(data []byte) string {
	sum := sha256.Sum256(data)
	return hex.EncodeToString(sum[:])
}

// Busybox is a layer with nothing but the machine's static busybox, /bin/sh, and what a root should have.
func Busybox(t testing.TB) []Entry {
	t.Helper()
	raw, err := os.ReadFile("/bin/busybox")
	if err != nil {
		t.Fatalf("busybox (Debian package busybox-static): %v", err)
	}
	return []Entry{Dir("bin", 0o755), {tar.Header{Name: "bin/busybox", Typeflag: tar.TypeReg, Mode: 0o755}, raw},
		Link("bin/sh", "busybox"), Dir("tmp", 0o1777)}
}

// ImportImage makes an image of that name and imports it as it would come from anybody: as a docker
// archive, whose layers are stacked as given. config is the member "config" of its configuration.
func (s *Server) ImportImage(t testing.TB, name string, config map[string]any, layers ...[]Entry) {
	t.Helper()
	var diffs, files []string
	var archive []Entry
	for _, entries := range layers {
		layer := layerOf(t, entries)
		diffs = append(diffs, "sha256:"+hash(layer))
		files = append(files, hash(layer)+".tar")
		archive = append(archive, Entry{tar.Header{Name: hash(layer) + ".tar", Typeflag: tar.TypeReg, Mode: 0o644}, layer})
	}
	document, err := json.Marshal(map[string]any{"architecture": runtime.GOARCH, "os": "linux", "config": config,
		"rootfs": map[string]any{"type": "layers", "diff_ids": diffs}})
	if err != nil {
		t.Fatal(err)
	}
	manifest, err := json.Marshal([]any{map[string]any{"Config": hash(document) + ".json", "RepoTags": []string{name}, "Layers": files}})
	if err != nil {
		t.Fatal(err)
	}
	archive = append(archive, File(hash(document)+".json", 0o644, string(document)), File("manifest.json", 0o644, string(manifest)))
	path := filepath.Join(t.TempDir(), "image.tar")
	if err := os.WriteFile(path, layerOf(t, archive), 0o644); err != nil {
		t.Fatal(err)
	}
	s.Import(t, path)
}
