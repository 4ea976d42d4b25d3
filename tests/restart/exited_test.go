// SPDX-License-Identifier: Apache-2.0

package restart

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"crisp/node"
)

const exited = 20_000

// rssOf is in MiB.
func rssOf(t *testing.T, pid int) int {
	t.Helper()
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	must(t, err)
	_, rest, _ := strings.Cut(string(status), "VmRSS:")
	kb := 0
	_, err = fmt.Sscan(rest, &kb)
	must(t, err)
	return kb >> 10
}

// TestManyExited: dead containers that nobody removed, with much to say, are all there after a start, and
// no list is too long for a client. They take little more memory than what they say, 40 MiB; time is logged.
func TestManyExited(t *testing.T) {
	s := newScene(t, startPlain(t), cgroupParent(t))
	p := s.pod("exited")
	p.Tune = func(c *cri.ContainerConfig) { c.Labels = map[string]string{"much": strings.Repeat("x", 2000)} }
	must(t, p.Up(node.Demo, "/bin/true"))
	until(t, p, cri.ContainerState_CONTAINER_EXITED)
	s.Kill(t)
	columns := s.sql(t, "SELECT group_concat(name) FROM pragma_table_info('containers') WHERE name <> 'id'")
	s.sql(t, fmt.Sprintf("INSERT INTO containers (id, %s) SELECT printf('%%064x', value), %s FROM containers, generate_series(1, %d) WHERE id = '%s'",
		columns, columns, exited-1, p.Container))
	begin := time.Now()
	s.Run(t)
	_, err := node.Call(s.Runtime.Version, &cri.VersionRequest{})
	must(t, err)
	t.Logf("answers after %v", time.Since(begin))
	for range 3 {
		begin = time.Now()
		list, err := node.Call(s.Runtime.ListContainers, &cri.ListContainersRequest{})
		must(t, err)
		if n := len(list.Containers); n != exited {
			t.Errorf("%d containers are listed", n)
		}
		t.Logf("the list took %v", time.Since(begin))
	}
	begin = time.Now()
	one, err := node.Call(s.Runtime.ListContainers, &cri.ListContainersRequest{Filter: &cri.ContainerFilter{Id: p.Container}})
	must(t, err)
	t.Logf("a filtered one took %v", time.Since(begin))
	if len(one.Containers) != 1 {
		t.Errorf("%d containers have the id", len(one.Containers))
	}
	begin = time.Now()
	// as a client does that sets nothing
	stream, err := s.Runtime.StreamContainers(context.Background(), &cri.StreamContainersRequest{}, grpc.MaxCallRecvMsgSize(4<<20))
	must(t, err)
	count := 0
	for {
		part, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			break
		}
		must(t, err)
		count += len(part.Containers)
	}
	t.Logf("the stream took %v", time.Since(begin))
	if count != exited {
		t.Errorf("%d containers are streamed", count)
	}
	for _, pid := range s.Own() {
		size := rssOf(t, pid)
		t.Logf("process %d has %d MiB", pid, size)
		if size > 100 && !node.IsSanitized(crispd(t)) {
			t.Errorf("process %d has %d MiB", pid, size)
		}
	}
	must(t, p.Remove())
	s.end(t)
}

// TestExitedStatus: what a status says of a container that has ended is what it said while that ran, but for
// its end, and after a restart too.
func TestExitedStatus(t *testing.T) {
	s := newScene(t, startPlain(t), cgroupParent(t))
	p := s.pod("ended")
	p.Tune = func(c *cri.ContainerConfig) {
		c.StopSignal = cri.Signal_SIGNAL_SIGUSR1
		c.Linux.SecurityContext.RunAsUser = &cri.Int64Value{Value: 1234}
		c.Linux.SecurityContext.RunAsGroup = &cri.Int64Value{Value: 5678}
		c.Linux.SecurityContext.SupplementalGroups = []int64{77, 88}
	}
	must(t, p.Up(node.Demo, "/bin/sleep", "1000"))
	first, err := p.Status()
	must(t, err)
	if user := first.User.GetLinux(); user.GetUid() != 1234 || user.GetGid() != 5678 || len(user.GetSupplementalGroups()) < 2 {
		t.Errorf("the user is %v", user)
	}
	if first.StopSignal != cri.Signal_SIGNAL_SIGUSR1 {
		t.Errorf("the signal is %v", first.StopSignal)
	}
	must(t, p.Stop(0))
	for round := range 3 {
		now, err := p.Status()
		must(t, err)
		if now.ExitCode != 137 || now.FinishedAt == 0 {
			t.Errorf("it ended at %d with %d", now.FinishedAt, now.ExitCode)
		}
		now.State, now.FinishedAt, now.ExitCode, now.Reason = first.State, 0, 0, ""
		if !proto.Equal(now, first) {
			t.Errorf("after %d restarts:\n%v\nwas\n%v", round, now, first)
		}
		s.Restart(t)
	}
	s.end(t, p)
}
