// SPDX-License-Identifier: Apache-2.0

package restart

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"crisp/node"
)

// logged says whether the server wrote a line with all of these words.
func (s *scene) logged(t *testing.T, words ...string) bool {
	t.Helper()
	raw, err := os.ReadFile(filepath.Join(s.Dir, "log"))
	must(t, err)
	for line := range strings.Lines(string(raw)) {
		found := true
		for _, word := range words {
			found = found && strings.Contains(line, word)
		}
		if found {
			return true
		}
	}
	return false
}

func (s *scene) mustLog(t *testing.T, words ...string) {
	t.Helper()
	node.Eventually(t, 5*time.Second, func() error {
		if !s.logged(t, words...) {
			return fmt.Errorf("no line of the log has %q", words)
		}
		return nil
	})
}

// sleeper is a pod with a container that runs for ever.
func (s *scene) sleeper(t *testing.T, name string) *node.Pod {
	t.Helper()
	p := s.pod(name)
	must(t, p.Up(node.Demo, "/bin/sleep", "1000"))
	return p
}

// expectWorks sees that a pod is what it was, and that new ones can be made.
func (s *scene) expectWorks(t *testing.T, p *node.Pod) {
	t.Helper()
	if c, err := p.Status(); err != nil || c.State != cri.ContainerState_CONTAINER_RUNNING {
		t.Errorf("the undamaged container is %v, %v", c, err)
	}
	if r, err := p.Exec("/bin/echo", "fine"); err != nil || string(r.Stdout) != "fine\n" {
		t.Errorf("exec in the undamaged container: %v, %v", r, err)
	}
	next := s.sleeper(t, p.Config.Metadata.Name+"-next")
	must(t, next.Remove())
}

// TestDamagedRowCostsOnlyItself: the server serves, says what is damaged, and what has an id can be
// removed.
func TestDamagedRowCostsOnlyItself(t *testing.T) {
	s := newScene(t, startPlain(t), cgroupParent(t))
	good := s.sleeper(t, "good")
	damages := []struct{ name, sql string }{
		{"container-config", "UPDATE containers SET config = x'ff00ff' WHERE id = '%[2]s'"},
		{"container-config-null", "UPDATE containers SET config = NULL, record = NULL WHERE id = '%[2]s'"},
		{"container-state", "UPDATE containers SET state = 77 WHERE id = '%[2]s'"},
		{"container-state-negative", "UPDATE containers SET state = -1 WHERE id = '%[2]s'"},
		{"container-image", "UPDATE containers SET image_id = NULL, image_ref = NULL WHERE id = '%[2]s'"},
		{"container-image-unknown", "UPDATE containers SET image_id = 'sha256:00' WHERE id = '%[2]s'"},
		{"container-log", "UPDATE containers SET log_path = x'00' || 'no path' WHERE id = '%[2]s'"},
		{"container-record", "UPDATE containers SET record = x'00ff' WHERE id = '%[2]s'"},
		{"sandbox-config", "UPDATE sandboxes SET config = x'ff00ff' WHERE id = '%[1]s'"},
		{"sandbox-config-null", "UPDATE sandboxes SET config = NULL, record = NULL, handler = NULL WHERE id = '%[1]s'"},
		{"sandbox-state", "UPDATE sandboxes SET state = 2000000000 WHERE id = '%[1]s'"},
		{"sandbox-state-negative", "UPDATE sandboxes SET state = -7 WHERE id = '%[1]s'"},
		{"sandbox-name", "UPDATE sandboxes SET name = NULL WHERE id = '%[1]s'"},
		{"sandbox-missing", "DELETE FROM sandboxes WHERE id = '%[1]s'"},
		{"sandbox-id", "UPDATE containers SET sandbox_id = '../..' WHERE id = '%[2]s'"},
		{"sandbox-options", "UPDATE sandboxes SET options = 'rlimit nofile' || x'0a' WHERE id = '%[1]s'"},
		{"container-edits", "UPDATE containers SET edits = x'ff00ff' WHERE id = '%[2]s'"},
		{"stream", "UPDATE streams SET log_offset = -5, spool_out = 9000000000, spool_err = -1, log_inode = -1 WHERE container_id = '%[2]s'"},
	}
	pods := map[string]*node.Pod{}
	for _, d := range damages {
		pods[d.name] = s.sleeper(t, d.name)
	}
	silent := map[string]bool{"container-log": true, "stream": true}
	s.Kill(t)
	for _, d := range damages {
		s.sql(t, fmt.Sprintf(d.sql, pods[d.name].ID, pods[d.name].Container))
	}
	s.sql(t, "INSERT INTO intents (kind, object_id, data) VALUES ('exec', '../../x', x'00'), ('unheard of', '', NULL)")
	s.Run(t)
	s.expectWorks(t, good)
	for _, d := range damages {
		p := pods[d.name]
		if !silent[d.name] && !s.logged(t, "level=error", p.ID) && !s.logged(t, "level=error", p.Container) {
			t.Errorf("%s: the log doesn't say it", d.name)
		}
		c, err := p.Status()
		if err != nil {
			t.Errorf("%s: %v", d.name, err)
			continue
		}
		t.Logf("%s: %v %s", d.name, c.State, c.Reason)
		if strings.HasPrefix(d.name, "container-state") || d.name == "container-config" || d.name == "container-image" {
			if _, err := p.Exec("/bin/true"); status.Code(err) != codes.FailedPrecondition {
				t.Errorf("%s: exec: %v", d.name, err)
			}
		}
		if err := p.Stop(0); err != nil {
			t.Errorf("%s: %v", d.name, err)
		}
	}
	list, err := node.Call(s.Runtime.ListPodSandbox, &cri.ListPodSandboxRequest{})
	must(t, err)
	for _, item := range list.Items {
		p := s.pod("any")
		p.ID = item.Id
		if item.Id != good.ID {
			must(t, p.Remove())
		}
	}
	s.Kill(t)
	if n := s.sql(t, "DELETE FROM intents; SELECT (SELECT count(*) FROM containers) + (SELECT count(*) FROM sandboxes)"); n != "2" {
		t.Errorf("%s rows are left, not the two of the undamaged pod", n)
	}
	s.Run(t)
	s.end(t, good)
}

// TestUnusableRowsAreLeftAlone: those without a valid id, and those of a kind that the build lacks.
func TestUnusableRowsAreLeftAlone(t *testing.T) {
	s := newScene(t, startPlain(t), cgroupParent(t))
	good, foreign := s.sleeper(t, "good"), s.sleeper(t, "foreign")
	s.Kill(t)
	wrong := strings.Repeat("../", 21) + "x" // as long as an id
	s.sql(t, fmt.Sprintf(`UPDATE sandboxes SET kind = 'martian' WHERE id = '%s';
INSERT INTO containers SELECT '%s', sandbox_id, state, config, record, image_id, image_ref, user_image, created_at,
started_at, finished_at, exit_code, exit_known, reason, message, log_path, pid, uid, gid, resources, next_resources, edits FROM containers WHERE id = '%s'`,
		foreign.ID, wrong, good.Container))
	s.Run(t)
	s.expectWorks(t, good)
	s.mustLog(t, "level=error", foreign.ID, "martian")
	s.mustLog(t, "level=error", wrong, "fsck")
	if _, err := foreign.Status(); status.Code(err) != codes.NotFound {
		t.Errorf("a container of an unknown kind: %v", err)
	}
	if n := len(s.Others()); n != 2 {
		t.Errorf("%d processes run, not the two", n)
	}
	s.Kill(t)
	s.sql(t, fmt.Sprintf("DELETE FROM containers WHERE id = '%s'; UPDATE sandboxes SET kind = 'linux'", wrong))
	s.Run(t)
	s.expectWorks(t, foreign)
	s.end(t, good, foreign)
}

// TestMissingDirectories of containers: what runs goes on, what can't start says why, all can be removed.
func TestMissingDirectories(t *testing.T) {
	parent := cgroupParent(t)
	withAndWithoutKeeper(t, func(t *testing.T, server *node.Server) {
		s := newScene(t, server, parent)
		good, noState, noRoot, noFifo, badSpool := s.sleeper(t, "good"), s.pod("state"), s.sleeper(t, "root"), s.sleeper(t, "fifo"), s.sleeper(t, "spool")
		must(t, noState.Up(node.Demo, "/bin/sh", "-c", "while :; do echo line; usleep 20000; done"))
		var created []*node.Pod
		for _, name := range []string{"created-state", "created-root"} {
			p := s.pod(name)
			must(t, p.Run())
			must(t, p.Create(node.Demo, "/bin/true"))
			created = append(created, p)
		}
		state := func(p *node.Pod) string { return filepath.Join(s.Dir, "state/run/containers", p.Container) }
		root := func(p *node.Pod) string { return filepath.Join(s.Dir, "root/containers", p.Container) }
		must(t, os.RemoveAll(state(noState)))
		must(t, os.RemoveAll(root(noRoot)))
		must(t, os.Remove(filepath.Join(state(noFifo), "1")))
		must(t, os.Remove(filepath.Join(state(noFifo), "2")))
		must(t, os.WriteFile(filepath.Join(state(badSpool), "1.spool"), bytes.Repeat([]byte("x\n\x00"), 50000), 0o600))
		must(t, os.RemoveAll(state(created[0])))
		must(t, os.RemoveAll(root(created[1])))
		must(t, os.RemoveAll(filepath.Join(s.Dir, "state/run/sandboxes", noRoot.ID)))
		s.Restart(t)
		s.expectWorks(t, good)
		if s.IsKept() {
			// the pipes were in good hands
			before, err := readLog(noState.LogFile())
			must(t, err)
			node.Eventually(t, 5*time.Second, func() error {
				lines, err := readLog(noState.LogFile())
				if err == nil && len(lines) <= len(before)+5 {
					err = fmt.Errorf("its log has %d lines, as before", len(lines))
				}
				return err
			})
		}
		for _, p := range []*node.Pod{noState, noRoot, noFifo, badSpool} {
			if c, err := p.Status(); err != nil || c.State != cri.ContainerState_CONTAINER_RUNNING {
				t.Errorf("%s: it is %v, %v", p.Config.Metadata.Name, c, err)
			}
			if _, err := p.Exec("/bin/true"); err != nil {
				t.Errorf("%s: %v", p.Config.Metadata.Name, err)
			}
			if err := p.Stop(0); err != nil {
				t.Errorf("%s: %v", p.Config.Metadata.Name, err)
			}
		}
		s.mustLog(t, "level=error", noState.Container, "was missing")
		for _, p := range created {
			if err := p.Start(); err == nil || !strings.Contains(err.Error(), p.Container) {
				t.Errorf("%s: started without its directory: %v", p.Config.Metadata.Name, err)
			}
		}
		s.end(t, append(created, good, noState, noRoot, noFifo, badSpool)...)
	})
}

// TestDamagedLayerCostsItsImages only; what runs on them goes on, and keeps the layers that are left.
func TestDamagedLayerCostsItsImages(t *testing.T) {
	s := newScene(t, startPlain(t), cgroupParent(t))
	runs, waits := s.sleeper(t, "runs"), s.pod("waits")
	must(t, waits.Run())
	must(t, waits.Create(node.Demo, "/bin/true"))
	images, err := node.Call(s.Images.ListImages, &cri.ListImagesRequest{})
	must(t, err)
	s.Kill(t)
	chains := strings.Fields(s.sql(t, "SELECT chain_ids FROM images WHERE repo_tags LIKE '%demo%'"))
	layer := filepath.Join(s.Dir, "root/images/layers", strings.TrimPrefix(chains[len(chains)-1], "sha256:"))
	must(t, os.Rename(layer, s.dir+"/away"))
	for _, options := range [][]string{nil, {"--fix"}} {
		expectLine(t, s.fsck(t, left, options...), "image ", "a container is on it")
	}
	for range 2 {
		s.Run(t)
		s.mustLog(t, "level=error", "docker.io/library/demo:latest", "damaged", "a layer is missing", "import it again")
		left, err := node.Call(s.Images.ListImages, &cri.ListImagesRequest{})
		must(t, err)
		if len(left.Images) != len(images.Images)-1 {
			t.Errorf("of %d images %d are left", len(images.Images), len(left.Images))
		}
		if c, err := runs.Status(); err != nil || c.State != cri.ContainerState_CONTAINER_RUNNING {
			t.Errorf("what runs on a damaged image is %v, %v", c, err)
		}
		if err := waits.Start(); status.Code(err) != codes.FailedPrecondition || !strings.Contains(err.Error(), "damaged") {
			t.Errorf("start on a damaged image: %v", err)
		}
		p := s.pod("new")
		must(t, p.Run())
		if err := p.Create(node.Demo, "/bin/true"); status.Code(err) != codes.NotFound {
			t.Errorf("create on a damaged image: %v", err)
		}
		must(t, p.Remove())
		s.Kill(t)
	}
	s.Run(t)
	importImages(t, s.Server)
	s.sleeper(t, "again").Remove()
	s.Restart(t)
	must(t, waits.Start())
	if r, err := runs.Exec("/bin/echo", "fine"); err != nil || string(r.Stdout) != "fine\n" {
		t.Errorf("exec after the import: %v, %v", r, err)
	}
	s.end(t, runs, waits)
}

// start runs a server that must not start, and returns what it says.
func (s *scene) expectRefusal(t *testing.T, words ...string) {
	t.Helper()
	database := filepath.Join(s.Dir, "root/crisp.db")
	before, err := os.ReadFile(database)
	must(t, err)
	out, err := exec.Command(crispd(t), "--root", filepath.Join(s.Dir, "root"), "--state", filepath.Join(s.Dir, "state"), "--listen", s.Socket).CombinedOutput()
	if err == nil {
		t.Fatalf("it started:\n%s", out)
	}
	for _, word := range words {
		if !strings.Contains(string(out), word) {
			t.Errorf("it doesn't say %q:\n%s", word, out)
		}
	}
	if after, err := os.ReadFile(database); err != nil || !bytes.Equal(before, after) {
		t.Errorf("the database was changed, %v", err)
	}
}

// TestDatabaseThatCannotBeOpened: the server says so and how to go on, touches nothing, and serves what
// was there once it is restored.
func TestDatabaseThatCannotBeOpened(t *testing.T) {
	s := newScene(t, startPlain(t), cgroupParent(t))
	good := s.sleeper(t, "good")
	s.Kill(t)
	database := filepath.Join(s.Dir, "root/crisp.db")
	s.sql(t, "PRAGMA wal_checkpoint(TRUNCATE)")
	whole, err := os.ReadFile(database)
	must(t, err)
	for name, content := range map[string][]byte{
		"garbage": bytes.Repeat([]byte("garbage"), 5000),
		"emptied": {},
		"header":  append(bytes.Repeat([]byte{0}, 100), whole[100:]...),
	} {
		t.Log(name)
		must(t, os.WriteFile(database, content, 0o600))
		s.expectRefusal(t, database, "damaged", "move it away to begin anew")
	}
	must(t, os.WriteFile(database, whole, 0o600))
	s.sql(t, "PRAGMA user_version = 1000; UPDATE meta SET value = '77.0' WHERE key = 'crisp_version'")
	s.expectRefusal(t, "version 1000", "written by crisp 77.0", "install crisp 77.0")
	must(t, os.WriteFile(database, whole, 0o600))
	s.Run(t)
	s.expectWorks(t, good)
	s.end(t, good)
}

// TestDamagedPages cost the rows on them: what can be read is served, and nothing is taken for nobody's.
func TestDamagedPages(t *testing.T) {
	s := newScene(t, startPlain(t), cgroupParent(t))
	pods := []*node.Pod{s.sleeper(t, "first"), s.sleeper(t, "second")}
	database := filepath.Join(s.Dir, "root/crisp.db")
	s.Kill(t)
	s.sql(t, "PRAGMA wal_checkpoint(TRUNCATE)")
	whole, err := os.ReadFile(database)
	must(t, err)
	for _, table := range []string{"streams", "intents", "meta", "sqlite_autoindex_containers_1", "containers_by_sandbox", "layers", "images", "containers"} {
		must(t, os.WriteFile(database, whole, 0o600))
		var page int
		_, err := fmt.Sscan(s.sql(t, fmt.Sprintf("SELECT rootpage FROM sqlite_schema WHERE name = '%s'", table)), &page)
		must(t, err)
		broken := bytes.Clone(whole)
		copy(broken[(page-1)*4096:], bytes.Repeat([]byte("damaged!"), 512))
		_ = os.Remove(database + "-wal")
		must(t, os.WriteFile(database, broken, 0o600))
		s.Run(t)
		list, err := node.Call(s.Runtime.ListPodSandbox, &cri.ListPodSandboxRequest{})
		if err != nil || len(list.Items) != 2 {
			t.Errorf("%s is damaged: %v, %v", table, list, err)
		}
		if n := len(s.Others()); n != 2 {
			t.Errorf("%s is damaged: %d processes run, not the two", table, n)
		}
		s.Kill(t)
		_ = os.Remove(database + "-wal")
		_ = os.Remove(database + "-shm")
	}
	must(t, os.WriteFile(database, whole, 0o600))
	s.Run(t)
	s.expectWorks(t, pods[0]) // its layers are there
	s.end(t, pods...)
}
