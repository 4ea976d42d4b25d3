// SPDX-License-Identifier: Apache-2.0

package restart

import (
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"crisp/node"
)

// TestOlderStoreIsServed: what crisp 0.1.0 wrote with the first schema is brought to the present one, and
// all of it is served.
func TestOlderStoreIsServed(t *testing.T) {
	s := newScene(t, startPlain(t), cgroupParent(t))
	s.Kill(t)
	version := s.sql(t, "PRAGMA user_version")
	const columns = "SELECT group_concat(name || ' ' || type, ';') FROM (SELECT m.name AS t, c.name, c.type FROM sqlite_schema m, pragma_table_info(m.name) c ORDER BY t, c.cid)"
	schema := s.sql(t, columns)
	database := filepath.Join(s.Dir, "root/crisp.db")
	for _, suffix := range []string{"", "-wal", "-shm"} {
		_ = os.Remove(database + suffix)
	}
	fixture, err := os.Open("store_v1.sql")
	must(t, err)
	defer fixture.Close()
	load := exec.Command("sqlite3", database)
	load.Stdin = fixture
	if out, err := load.CombinedOutput(); err != nil {
		t.Fatalf("sqlite3: %v: %s", err, out)
	}
	for chain := range strings.FieldsSeq(s.sql(t, "SELECT chain_id FROM layers")) {
		must(t, os.MkdirAll(filepath.Join(s.Dir, "root/images/layers", strings.TrimPrefix(chain, "sha256:")), 0o755))
	}
	s.Run(t)

	images, err := node.Call(s.Images.ListImages, &cri.ListImagesRequest{})
	must(t, err)
	if len(images.Images) != 1 || images.Images[0].RepoTags[0] != node.Demo {
		t.Errorf("the images are %v", images.Images)
	}
	list, err := node.Call(s.Runtime.ListPodSandbox, &cri.ListPodSandboxRequest{})
	must(t, err)
	pods := map[string]*node.Pod{}
	for _, item := range list.Items {
		p := s.pod(item.Metadata.Name)
		p.ID = item.Id
		pods[item.Metadata.Name] = p
		if item.Metadata.Uid != item.Metadata.Name+"-uid" || item.Labels["name"] != item.Metadata.Name {
			t.Errorf("a pod is %v", item)
		}
	}
	if names := slices.Sorted(maps.Keys(pods)); !slices.Equal(names, []string{"created", "empty", "exited", "running", "stopped"}) {
		t.Errorf("the pods are %v", names)
	}
	containers, err := node.Call(s.Runtime.ListContainers, &cri.ListContainersRequest{})
	must(t, err)
	for _, c := range containers.Containers {
		r, err := node.Call(s.Runtime.ContainerStatus, &cri.ContainerStatusRequest{ContainerId: c.Id})
		must(t, err)
		if want := "/var/log/pods/crisp/" + c.Labels["name"] + "/main.log"; r.Status.LogPath != want {
			t.Errorf("%s: its log is %s", c.Labels["name"], r.Status.LogPath)
		}
		switch c.Labels["name"] {
		case "running":
			if err := rebooted(r.Status); err != nil {
				t.Errorf("running: %v", err)
			}
		case "exited":
			if c.State != cri.ContainerState_CONTAINER_EXITED || r.Status.ExitCode != 5 || r.Status.Reason != "Error" {
				t.Errorf("exited: it is %v", r.Status)
			}
		case "created":
			if c.State != cri.ContainerState_CONTAINER_CREATED {
				t.Errorf("created: it is %v", c.State)
			}
		}
	}
	if len(containers.Containers) != 3 {
		t.Errorf("%d containers are listed", len(containers.Containers))
	}
	for _, p := range pods {
		must(t, p.Remove())
	}
	s.Kill(t)
	if now := s.sql(t, "PRAGMA user_version"); now != version {
		t.Errorf("its version is %s, not %s", now, version)
	}
	if now := s.sql(t, columns); now != schema {
		t.Errorf("its tables are\n%s\nnot, as in a new one,\n%s", now, schema)
	}
	if n := s.sql(t, "SELECT (SELECT count(*) FROM containers) + (SELECT count(*) FROM sandboxes) + (SELECT count(*) FROM streams)"); n != "0" {
		t.Errorf("%s rows are left", n)
	}
	s.Run(t)
	s.end(t)
}
