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
// no list is too long for a client. What that takes is logged.
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
		t.Logf("process %d has %d MiB", pid, rssOf(t, pid))
	}
	must(t, p.Remove())
	s.end(t)
}
