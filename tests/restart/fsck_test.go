// SPDX-License-Identifier: Apache-2.0

package restart

import (
	"bytes"
	"crypto/sha256"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"crisp/node"
)

// What crisp fsck exits with.
const (
	clean, fixed, left, failed = 0, 1, 4, 8
)

// fsck runs crisp fsck and returns its lines.
func (s *scene) fsck(t *testing.T, want int, options ...string) []string {
	t.Helper()
	crisp := node.NeedEnv(t, "CRISP", "crisp, the command line program")
	command := exec.Command(crisp, append([]string{"fsck", "--root", filepath.Join(s.Dir, "root"), "--state", filepath.Join(s.Dir, "state")}, options...)...)
	var complaints bytes.Buffer
	command.Stderr = &complaints
	out, err := command.Output()
	if code := command.ProcessState.ExitCode(); code != want {
		t.Fatalf("fsck %v exits with %d, not %d (%v):\n%s%s", options, code, want, err, out, complaints.String())
	}
	if len(out) == 0 {
		return strings.Split(strings.TrimSpace(complaints.String()), "\n")
	}
	return strings.Split(strings.TrimSpace(string(out)), "\n")
}

// expectLine wants exactly one line with all of these words.
func expectLine(t *testing.T, lines []string, words ...string) {
	t.Helper()
	count := 0
	for _, line := range lines {
		all := true
		for _, word := range words {
			all = all && strings.Contains(line, word)
		}
		if all {
			count++
		}
	}
	if count != 1 {
		t.Errorf("%d lines have %q in:\n%s", count, words, strings.Join(lines, "\n"))
	}
}

// fingerprint is every file and directory of a store with its contents, but for SQLite's shared memory,
// which holds nothing.
func (s *scene) fingerprint(t *testing.T) string {
	t.Helper()
	var all strings.Builder
	for _, dir := range []string{"root", "state"} {
		must(t, filepath.WalkDir(filepath.Join(s.Dir, dir), func(path string, entry fs.DirEntry, err error) error {
			if err != nil || strings.HasSuffix(path, "-shm") {
				return err
			}
			info, err := entry.Info()
			if err != nil {
				return err
			}
			sum := [32]byte{}
			if entry.Type().IsRegular() && !strings.Contains(path, "/state/pins/") {
				raw, err := os.ReadFile(path)
				if err != nil {
					return err
				}
				sum = sha256.Sum256(raw)
			}
			fmt.Fprintf(&all, "%s %v %v %x\n", path, info.Mode(), info.ModTime(), sum)
			return nil
		}))
	}
	return all.String()
}

// TestFsckTouchesNothingThatIsWhole, nor what a server has in use.
func TestFsckTouchesNothingThatIsWhole(t *testing.T) {
	s := newScene(t, startPlain(t), cgroupParent(t))
	good, created := s.sleeper(t, "good"), s.pod("created")
	created.Config.Linux.SecurityContext.NamespaceOptions = &cri.NamespaceOption{}
	must(t, created.Run())
	must(t, created.Create(node.Demo, "/bin/true"))
	expectLine(t, s.fsck(t, failed, "--fix"), "process", "uses it", "stop that")
	s.Kill(t)
	before := s.fingerprint(t)
	s.fsck(t, clean)
	s.fsck(t, clean, "--fix")
	expectSameLines(t, before, s.fingerprint(t))
	s.Run(t)
	s.expectWorks(t, good)
	must(t, created.Start())
	s.end(t, good, created)
}

// TestFsckListsAndRepairs each kind of damage: a line for each, all gone after --fix, and what is whole
// goes on.
func TestFsckListsAndRepairs(t *testing.T) {
	s := newScene(t, startPlain(t), cgroupParent(t))
	good, badSandbox, badContainer, badState, orphan, lost := s.sleeper(t, "good"), s.sleeper(t, "sandbox"), s.sleeper(t, "container"), s.sleeper(t, "state"), s.sleeper(t, "orphan"), s.pod("lost")
	lost.Config.Linux.SecurityContext.NamespaceOptions = &cri.NamespaceOption{}
	must(t, lost.Up(node.Demo, "/bin/sleep", "1000"))
	s.Kill(t)
	wrong, stray := strings.Repeat("../", 21)+"x", strings.Repeat("ab", 32)
	s.sql(t, fmt.Sprintf(`UPDATE sandboxes SET config = x'ff00ff' WHERE id = '%s';
UPDATE containers SET config = x'ff00ff' WHERE id = '%s';
UPDATE sandboxes SET state = 1000 WHERE id = '%s';
DELETE FROM sandboxes WHERE id = '%s';
DELETE FROM sandboxes WHERE id = '%s'; DELETE FROM containers WHERE id = '%s';
INSERT INTO containers SELECT '%s', sandbox_id, state, config, record, image_id, image_ref, user_image, created_at,
started_at, finished_at, exit_code, exit_known, reason, message, log_path, pid, uid, gid, resources, next_resources, edits FROM containers WHERE id = '%s';
INSERT INTO layers VALUES ('sha256:%s', NULL, NULL, 10, 10, 1, 0);
INSERT INTO images SELECT 'sha256:%s', config, manifest_digest, 'sha256:%s', 'docker.io/library/broken:latest', NULL,
size_bytes, created_at, is_pinned, is_removed FROM images LIMIT 1`,
		badSandbox.ID, badContainer.Container, badState.ID, orphan.ID, lost.ID, lost.Container, wrong, good.Container, stray, stray, stray))
	// a layer that lost a file
	chains := strings.Fields(s.sql(t, "SELECT chain_ids FROM images WHERE repo_tags LIKE '%storm%'"))
	top := filepath.Join(s.Dir, "root/images/layers", strings.TrimPrefix(chains[len(chains)-1], "sha256:"))
	entries, err := os.ReadDir(top)
	must(t, err)
	must(t, os.RemoveAll(filepath.Join(top, entries[0].Name())))
	dirs := []string{filepath.Join(s.Dir, "root/containers", stray), filepath.Join(s.Dir, "state/run/containers", stray),
		filepath.Join(s.Dir, "root/images/layers", strings.Repeat("cd", 32)), filepath.Join(s.Dir, "root/images/ingest/half")}
	mkdir(t, dirs...)
	var groups []string
	for _, h := range hierarchies(t, s.parent) {
		groups = append(groups, filepath.Join(h, stray))
	}
	mkdir(t, groups...)
	kept := filepath.Join(s.Dir, "root/containers/notes")
	mkdir(t, kept)

	for _, options := range [][]string{nil, {"--fix"}} {
		want := left
		if options != nil {
			want = fixed
		}
		lines := s.fsck(t, want, options...)
		t.Logf("%s", strings.Join(lines, "\n"))
		expectLine(t, lines, "sandbox "+badSandbox.ID, "configuration")
		expectLine(t, lines, "container "+badContainer.Container, "configuration")
		expectLine(t, lines, "sandbox "+badState.ID, "state")
		expectLine(t, lines, "container "+orphan.Container, "its sandbox "+orphan.ID+" is lost")
		expectLine(t, lines, "container "+wrong, "no id")
		expectLine(t, lines, "log position of container "+lost.Container)
		expectLine(t, lines, "image sha256:"+stray, "layer")
		expectLine(t, lines, "layer sha256:"+stray, "its directory is missing")
		expectLine(t, lines, "layer "+chains[len(chains)-1], "files", "were unpacked")
		for _, dir := range dirs {
			expectLine(t, lines, "directory "+dir, "nobody's")
		}
		expectLine(t, lines, "cgroup "+s.parent+"/"+stray, "nobody's")
		expectLine(t, lines, "cgroup "+s.parent+"/"+lost.Container, "nobody's")
		expectLine(t, lines, "pin "+lost.ID+".net", "nobody's")
		for _, line := range lines {
			if strings.Contains(line, good.ID) || strings.Contains(line, "notes") {
				t.Errorf("what is whole is listed: %s", line)
			}
		}
	}
	s.fsck(t, clean)
	before := s.fingerprint(t)
	s.fsck(t, clean, "--fix")
	expectSameLines(t, before, s.fingerprint(t))
	s.Run(t)
	s.mustLog(t, "state and world are in line")
	s.expectWorks(t, good)
	node.ReapOrphans()
	if n := len(s.Others()); n != 1 {
		t.Errorf("%d processes run, not the one", n)
	}
	importImages(t, s.Server)
	must(t, os.Remove(kept))
	s.end(t, good, badContainer)
}

// TestFsckRebuildsADamagedDatabase from what can be read of it, keeps the old one, and leaves one that
// can't be opened alone.
func TestFsckRebuildsADamagedDatabase(t *testing.T) {
	s := newScene(t, startPlain(t), cgroupParent(t))
	good := s.sleeper(t, "good")
	s.Kill(t)
	database := filepath.Join(s.Dir, "root/crisp.db")
	s.sql(t, "PRAGMA wal_checkpoint(TRUNCATE)")
	whole, err := os.ReadFile(database)
	must(t, err)
	must(t, os.WriteFile(database, bytes.Repeat([]byte("garbage"), 5000), 0o600))
	lines := s.fsck(t, left, "--fix")
	expectLine(t, lines, "damaged", "move it away to begin anew")
	if raw, err := os.ReadFile(database); err != nil || !bytes.HasPrefix(raw, []byte("garbage")) {
		t.Errorf("the database that can't be opened was changed, %v", err)
	}
	for _, table := range []string{"streams", "containers_by_sandbox", "intents"} {
		_ = os.Remove(database + "-wal")
		_ = os.Remove(database + "-shm")
		must(t, os.WriteFile(database, whole, 0o600))
		var page int
		_, err := fmt.Sscan(s.sql(t, fmt.Sprintf("SELECT rootpage FROM sqlite_schema WHERE name = '%s'", table)), &page)
		must(t, err)
		broken := bytes.Clone(whole)
		copy(broken[(page-1)*4096:], bytes.Repeat([]byte("damaged!"), 512))
		must(t, os.WriteFile(database, broken, 0o600))
		expectLine(t, s.fsck(t, left), "check "+database, "damaged")
		expectLine(t, s.fsck(t, fixed, "--fix"), "check "+database, "damaged", ": fixed")
		s.fsck(t, clean)
		if kept, err := os.ReadFile(database + ".damaged"); err != nil || !bytes.Equal(kept, broken) {
			t.Errorf("%s: the damaged database was not kept, %v", table, err)
		}
		s.Run(t)
		s.expectWorks(t, good)
		s.Kill(t)
	}
	must(t, os.Remove(database+".damaged"))
	s.Run(t)
	s.end(t, good)
}
