// SPDX-License-Identifier: Apache-2.0

package conformance

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// archive is a tar in memory: name → content. Those of the tests are small.
type archive map[string][]byte

func readArchive(t *testing.T, path string) archive {
	t.Helper()
	raw, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	files := archive{}
	for r := tar.NewReader(bytes.NewReader(raw)); ; {
		h, err := r.Next()
		if err == io.EOF {
			return files
		}
		if err != nil {
			t.Fatalf("%s: %v", path, err)
		}
		if files[h.Name], err = io.ReadAll(r); err != nil {
			t.Fatalf("%s: %s: %v", path, h.Name, err)
		}
	}
}

func sum(data []byte) string {
	hash := sha256.Sum256(data)
	return hex.EncodeToString(hash[:])
}

func decode(t *testing.T, data []byte) value {
	t.Helper()
	var v any
	if err := json.Unmarshal(data, &v); err != nil {
		t.Fatalf("%v in %s", err, data)
	}
	return value{v}
}

// blob is what a descriptor points to, with the size and the digest that it says.
func (a archive) blob(t *testing.T, descriptor value) []byte {
	t.Helper()
	digest := strings.TrimPrefix(descriptor.at("digest").String(), "sha256:")
	data, known := a["blobs/sha256/"+digest]
	if !known || sum(data) != digest || fmt.Sprint(len(data)) != descriptor.at("size").String() {
		t.Fatalf("%s is missing or wrong", descriptor)
	}
	return data
}

// layer is a tar layer's entries, name → header.
func layer(t *testing.T, data []byte) map[string]*tar.Header {
	t.Helper()
	entries := map[string]*tar.Header{}
	for r := tar.NewReader(bytes.NewReader(data)); ; {
		h, err := r.Next()
		if err == io.EOF {
			return entries
		}
		if err != nil {
			t.Fatal(err)
		}
		if h.Uid != 0 || h.Gid != 0 {
			t.Errorf("%s belongs to %d:%d", h.Name, h.Uid, h.Gid)
		}
		entries[strings.TrimSuffix(h.Name, "/")] = h
	}
}

// image is what the tests look at: the user and the layers' diff ids, by name.
type image struct {
	user   string
	layers []string
}

func ociImages(t *testing.T, path string) map[string]image {
	t.Helper()
	a := readArchive(t, path)
	found := map[string]image{}
	if decode(t, a["oci-layout"]).at("imageLayoutVersion").String() != "1.0.0" {
		t.Errorf("%s has no oci-layout", path)
	}
	for _, entry := range decode(t, a["index.json"]).at("manifests").list() {
		manifest := decode(t, a.blob(t, entry))
		config := decode(t, a.blob(t, manifest.at("config")))
		img := image{user: config.at("config.User").String()}
		for i, descriptor := range manifest.at("layers").list() {
			r, err := gzip.NewReader(bytes.NewReader(a.blob(t, descriptor)))
			if err != nil {
				t.Fatal(err)
			}
			plain, err := io.ReadAll(r)
			if err != nil {
				t.Fatal(err)
			}
			id := config.at(fmt.Sprintf("rootfs.diff_ids.%d", i)).String()
			if id != "sha256:"+sum(plain) {
				t.Errorf("diff id %s is not that of layer %d", id, i)
			}
			layer(t, plain)
			img.layers = append(img.layers, id)
		}
		// values contain dots, so no path
		names, _ := entry.at("annotations").any.(map[string]any)
		found[fmt.Sprint(names["org.opencontainers.image.ref.name"])] = img
	}
	return found
}

func dockerImages(t *testing.T, path string) map[string]image {
	t.Helper()
	a := readArchive(t, path)
	found := map[string]image{}
	for _, entry := range decode(t, a["manifest.json"]).list() {
		config := decode(t, a[entry.at("Config").String()])
		img := image{user: config.at("config.User").String()}
		for i, file := range entry.at("Layers").list() {
			plain := a[file.String()]
			id := config.at(fmt.Sprintf("rootfs.diff_ids.%d", i)).String()
			if id != "sha256:"+sum(plain) {
				t.Errorf("diff id %s is not that of layer %d", id, i)
			}
			layer(t, plain)
			img.layers = append(img.layers, id)
		}
		for _, tag := range entry.at("RepoTags").list() {
			found[tag.String()] = img
		}
	}
	return found
}

// TestImages holds the stand-in images against what critest expects of them.
func TestImages(t *testing.T) {
	out, err := exec.Command("../images/build").Output()
	if err != nil {
		t.Fatalf("tests/images/build: %v", err)
	}
	dir := strings.TrimSpace(string(out))
	found := ociImages(t, filepath.Join(dir, "critest.tar"))
	for name, img := range dockerImages(t, filepath.Join(dir, "web.tar")) {
		found[name] = img
	}
	if demos := ociImages(t, filepath.Join(dir, "demo.tar")); len(demos) != 1 || demos[demo].layers == nil {
		t.Errorf("demo.tar has %v", demos)
	}

	const e2e, cri = "registry.k8s.io/e2e-test-images/", "gcr.io/k8s-staging-cri-tools/"
	for name, user := range map[string]string{
		e2e + "busybox:1.29-2": "null", e2e + "nginx:1.14-2": "null", e2e + "httpd:2.4.39-4": "null",
		e2e + "nonewprivs:1.3": "null", "registry.k8s.io/pause:3.9": "null", "k8s.gcr.io/pause:3.9": "null",
		cri + "test-image-user-uid:latest": "1002", cri + "test-image-user-username:latest": "www-data",
		cri + "test-image-user-uid-group:latest":      "1003:1004",
		cri + "test-image-user-username-group:latest": "www-data:1004",
		cri + "test-image-predefined-group:latest":    "1000",
		cri + "test-image-latest:latest":              "null",
		cri + "test-image-tag:test":                   "null", cri + "test-image-tag:all": "null",
		cri + "test-image-1:latest": "null", cri + "test-image-2:latest": "null", cri + "test-image-3:latest": "null",
		cri + "test-image-tags:1": "null", cri + "test-image-tags:2": "null", cri + "test-image-tags:3": "null",
	} {
		img, known := found[name]
		if !known {
			t.Errorf("no image %s", name)
			continue
		}
		if img.user != user {
			t.Errorf("%s runs as %s, want %s", name, img.user, user)
		}
		if img.layers[0] != found[e2e+"busybox:1.29-2"].layers[0] {
			t.Errorf("%s does not share its first layer", name)
		}
	}

	// the ones that a spec cares for beyond their names
	base := layer(t, readArchive(t, filepath.Join(dir, "web.tar"))[strings.TrimPrefix(found["k8s.gcr.io/pause:3.9"].layers[0], "sha256:")+"/layer.tar"])
	for name, kind := range map[string]byte{"bin/ls": tar.TypeLink, "bin/ipcs": tar.TypeReg, "bin/sh": tar.TypeLink, "usr/sbin/nginx": tar.TypeLink, "tmp": tar.TypeDir} {
		if h := base[name]; h == nil || h.Typeflag != kind {
			t.Errorf("%s in the first layer is %v", name, h)
		}
	}
	if h := base["tmp"]; h != nil && h.Mode != 0o1777 {
		t.Errorf("/tmp has mode %o", h.Mode)
	}
}
