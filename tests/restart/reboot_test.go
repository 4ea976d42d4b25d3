// SPDX-License-Identifier: Apache-2.0

package restart

import (
	"flag"
	"fmt"
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

var rebootPods = flag.Int("reboot-pods", 500, "how many pods TestRebootEndsEverything leaves behind")

// sql changes the database of a server that is not there.
func (s *scene) sql(t *testing.T, statements string) string {
	t.Helper()
	out, err := exec.Command("sqlite3", filepath.Join(s.Dir, "root", "crisp.db"), statements).CombinedOutput()
	if err != nil {
		t.Fatalf("sqlite3: %v: %s", err, out)
	}
	return strings.TrimSpace(string(out))
}

// reboot is what a node loses by one: the server, all processes, what is in memory, the boot id.
func (s *scene) reboot(t *testing.T) {
	t.Helper()
	s.Kill(t)
	s.KillOthers()
	s.sql(t, "UPDATE meta SET value = 'another boot' WHERE key = 'boot_id'")
	state := filepath.Join(s.Dir, "state")
	for _, m := range node.MountsBelow(s.Dir) {
		must(t, unix.Unmount(m, unix.MNT_DETACH))
	}
	must(t, os.RemoveAll(state))
	node.RemoveCgroups(s.parent)
}

// addPods puts copies of a pod with its container into the database.
func (s *scene) addPods(t *testing.T, count int, p *node.Pod) {
	t.Helper()
	s.sql(t, fmt.Sprintf(`BEGIN;
WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < %d)
INSERT INTO sandboxes (id, state, kind, handler, options, config, record, created_at, name, attempt)
SELECT printf('%%064x', i), state, kind, handler, options, config, record, created_at, name || '-' || i, attempt
FROM sandboxes, n WHERE id = '%s';
WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < %d)
INSERT INTO containers SELECT printf('%%064x', 1000000 + i), printf('%%064x', i), state, config, record, image_id,
image_ref, user_image, created_at, started_at, finished_at, exit_code, exit_known, reason, message, log_path, pid, uid, gid, resources, next_resources, edits
FROM containers, n WHERE id = '%s';
COMMIT`, count, p.ID, count, p.Container))
}

// rebooted says what is wrong with a container that ran when the node went down.
func rebooted(c *cri.ContainerStatus) error {
	if c.State != cri.ContainerState_CONTAINER_EXITED || c.ExitCode != 255 || c.Reason != "NodeRebooted" || !strings.Contains(c.Message, "reboot") {
		return fmt.Errorf("after the reboot it is %v with code %d, %s: %s", c.State, c.ExitCode, c.Reason, c.Message)
	}
	if c.FinishedAt < c.StartedAt || c.FinishedAt > time.Now().UnixNano() {
		return fmt.Errorf("it began at %d and ended at %d", c.StartedAt, c.FinishedAt)
	}
	return nil
}

// TestRebootEndsEverything: all that ran has ended and says why, images and what had ended before are as
// they were, and all of it can be removed; it takes no time.
func TestRebootEndsEverything(t *testing.T) {
	s := newScene(t, startPlain(t), cgroupParent(t))
	running, exited, created, empty := s.pod("running"), s.pod("exited"), s.pod("created"), s.pod("empty")
	running.Config.Linux.SecurityContext.NamespaceOptions = &cri.NamespaceOption{} // all its own
	must(t, running.Up(node.Demo, "/bin/sleep", "1000"))
	must(t, exited.Up(node.Demo, "/bin/sh", "-c", "exit 5"))
	must(t, created.Run())
	must(t, created.Create(node.Demo, "/bin/true"))
	must(t, empty.Run())
	before := until(t, exited, cri.ContainerState_CONTAINER_EXITED)
	images, err := node.Call(s.Images.ListImages, &cri.ListImagesRequest{})
	must(t, err)
	s.Kill(t)
	s.addPods(t, *rebootPods, running)
	s.Run(t)
	s.reboot(t)

	start := time.Now()
	s.Run(t)
	containers, err := node.Call(s.Runtime.ListContainers, &cri.ListContainersRequest{})
	must(t, err)
	pods, err := node.Call(s.Runtime.ListPodSandbox, &cri.ListPodSandboxRequest{})
	must(t, err)
	listed := time.Since(start)
	for _, c := range containers.Containers {
		r, err := node.Call(s.Runtime.ContainerStatus, &cri.ContainerStatusRequest{ContainerId: c.Id})
		must(t, err)
		switch c.Id {
		case exited.Container:
			if a, b := before.String(), r.Status.String(); a != b {
				t.Errorf("what had ended before the reboot was\n%s\nand is\n%s", a, b)
			}
		case created.Container:
			if c.State != cri.ContainerState_CONTAINER_CREATED {
				t.Errorf("what was created before the reboot is %v", c.State)
			}
		default:
			if err := rebooted(r.Status); err != nil {
				t.Errorf("container %s: %v", c.Id, err)
			}
		}
	}
	t.Logf("%d pods and %d containers are listed after %v and known as ended after %v", len(pods.Items), len(containers.Containers), listed, time.Since(start))
	if limit := 2 * time.Second; time.Since(start) > limit {
		t.Errorf("that is more than %v", limit)
	}
	if len(pods.Items) != *rebootPods+4 || len(containers.Containers) != *rebootPods+3 {
		t.Errorf("%d pods and %d containers are listed", len(pods.Items), len(containers.Containers))
	}
	for _, pod := range pods.Items {
		if pod.State != cri.PodSandboxState_SANDBOX_NOTREADY {
			t.Errorf("pod %s is %v", pod.Id, pod.State)
		}
	}
	after, err := node.Call(s.Images.ListImages, &cri.ListImagesRequest{})
	must(t, err)
	if len(after.Images) != len(images.Images) {
		t.Errorf("of %d images %d are left", len(images.Images), len(after.Images))
	}
	if _, err := node.Call(s.Runtime.StartContainer, &cri.StartContainerRequest{ContainerId: created.Container}); status.Code(err) != codes.FailedPrecondition || !strings.Contains(err.Error(), "not ready") {
		t.Errorf("a container of a pod that is not ready is started: %v", err)
	}
	for _, pod := range pods.Items {
		p := s.pod(pod.Metadata.Name)
		p.ID = pod.Id
		must(t, p.Remove())
	}
	s.end(t)
}

// TestStartedAfterRebootRunsOn: what a server started in the new boot is no thing of the earlier one,
// however early it is killed, because the reboot is dealt with before the first answer.
func TestStartedAfterRebootRunsOn(t *testing.T) {
	s := newScene(t, startPlain(t), cgroupParent(t))
	old := s.pod("old")
	must(t, old.Up(node.Demo, "/bin/sleep", "1000"))
	s.Kill(t)
	s.addPods(t, 2000, old)
	s.Run(t)
	s.reboot(t)
	s.Run(t)
	s.Kill(t)
	if running := s.sql(t, "SELECT count(*) FROM containers WHERE state = 2"); running != "0" {
		t.Errorf("a server that answered was killed, and %s containers of before the reboot are taken as running", running)
	}
	if boot := s.sql(t, "SELECT value FROM meta WHERE key = 'boot_id'"); boot == "another boot" {
		t.Error("a server that answered was killed, and the next one takes what it started as a thing of before the reboot")
	}
	s.Run(t)
	p := s.pod("new")
	must(t, p.Up(node.Demo, "/bin/sleep", "1000"))
	s.Kill(t)
	s.sql(t, "DELETE FROM sandboxes WHERE id LIKE '000000000000%'; DELETE FROM containers WHERE id LIKE '000000000000%'")
	s.Run(t)
	if c, err := p.Status(); err != nil || c.State != cri.ContainerState_CONTAINER_RUNNING {
		t.Errorf("what was started after the reboot is %v, %v", c, err)
	}
	c, err := old.Status()
	must(t, err)
	if err := rebooted(c); err != nil {
		t.Error(err)
	}
	s.end(t, p, old)
}
