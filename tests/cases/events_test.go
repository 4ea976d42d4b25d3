// SPDX-License-Identifier: Apache-2.0

package cases

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"crisp/node"
)

// TestEvents: what readers of events get to know.
func TestEvents(t *testing.T) {
	s := newScene(t)
	for _, c := range []struct {
		name string
		test func(*testing.T, *scene)
	}{
		{"a pod's life is told in its order, with its statuses", eventsOfALife},
		{"what failed to be is not told, and what failed to start is", eventsOfFailures},
		{"every reader gets all of twenty pods at once", eventsForManyReaders},
		{"a reader that does not read is ended and costs the others nothing", eventsSlowReader},
		{"after a restart events go on from what is listed", eventsAfterRestart},
	} {
		t.Run(c.name, func(t *testing.T) { c.test(t, s) })
	}
}

const (
	wasCreated = cri.ContainerEventType_CONTAINER_CREATED_EVENT
	wasStarted = cri.ContainerEventType_CONTAINER_STARTED_EVENT
	wasStopped = cri.ContainerEventType_CONTAINER_STOPPED_EVENT
	wasDeleted = cri.ContainerEventType_CONTAINER_DELETED_EVENT
)

// reader collects events until its stream ends.
type reader struct {
	mutex  sync.Mutex
	events []*cri.ContainerEventResponse
	ended  chan error
}

func (s *scene) readEvents(t *testing.T) *reader {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	stream, err := s.Runtime.GetContainerEvents(ctx, &cri.GetEventsRequest{})
	must(t, err)
	r := &reader{ended: make(chan error, 1)}
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			e, err := stream.Recv()
			if err != nil {
				r.ended <- err
				return
			}
			r.mutex.Lock()
			r.events = append(r.events, e)
			r.mutex.Unlock()
		}
	}()
	t.Cleanup(func() { cancel(); <-done })
	// calls of one connection begin in their order, so whatever comes after this is told
	_, err = node.Call(s.Runtime.Version, &cri.VersionRequest{})
	must(t, err)
	return r
}

// wait returns the events once there are so many.
func (r *reader) wait(t *testing.T, count int) []*cri.ContainerEventResponse {
	t.Helper()
	var all []*cri.ContainerEventResponse
	node.Eventually(t, 20*time.Second, func() error {
		r.mutex.Lock()
		defer r.mutex.Unlock()
		if all = slices.Clone(r.events); len(all) < count {
			return fmt.Errorf("%d events, not %d: %s", len(all), count, told(all))
		}
		return nil
	})
	return all
}

// told says who and what, by the first digits of ids.
func told(events []*cri.ContainerEventResponse) string {
	var b strings.Builder
	for _, e := range events {
		kind := strings.TrimSuffix(strings.TrimPrefix(e.ContainerEventType.String(), "CONTAINER_"), "_EVENT")
		fmt.Fprintf(&b, "%.6s %s\n", e.ContainerId, strings.ToLower(kind))
	}
	return b.String()
}

// lifeOf is what is told of a pod with one container, from the first to the last.
func lifeOf(p *node.Pod) string {
	return fmt.Sprintf("%[1]s created\n%[1]s started\n%[2]s created\n%[2]s started\n%[2]s stopped\n%[2]s deleted\n%[1]s stopped\n%[1]s deleted\n",
		p.ID[:6], p.Container[:6])
}

func eventsOfALife(t *testing.T, s *scene) {
	r := s.readEvents(t)
	p := s.pod("told")
	begin := time.Now().UnixNano()
	expectEnd(t, s.run(t, p, "/bin/sh", "-c", "exit 3"), 3, "Error")
	must(t, p.RemoveContainer())
	must(t, p.Remove())
	events := r.wait(t, 8)
	if got := told(events); got != lifeOf(p) {
		t.Fatalf("told is\n%snot\n%s", got, lifeOf(p))
	}
	states := []cri.ContainerState{cri.ContainerState_CONTAINER_CREATED, cri.ContainerState_CONTAINER_RUNNING, cri.ContainerState_CONTAINER_EXITED}
	for i, e := range events {
		if e.CreatedAt < begin || e.CreatedAt > time.Now().UnixNano() {
			t.Errorf("event %d was at %d", i, e.CreatedAt)
		}
		begin = e.CreatedAt
		pod := e.PodSandboxStatus
		isReady := pod.GetState() == cri.PodSandboxState_SANDBOX_READY
		if pod.GetId() != p.ID || pod.GetMetadata().GetUid() != p.Config.Metadata.Uid || isReady != (i < 6) {
			t.Errorf("event %d has the pod %v", i, pod)
		}
		if i < 2 || i > 4 {
			if len(e.ContainersStatuses) != 0 {
				t.Errorf("event %d has containers: %v", i, e.ContainersStatuses)
			}
			continue
		}
		if len(e.ContainersStatuses) != 1 || e.ContainersStatuses[0].Id != p.Container || e.ContainersStatuses[0].State != states[i-2] {
			t.Errorf("event %d has the containers %v", i, e.ContainersStatuses)
		}
	}
	if end := events[4].ContainersStatuses[0]; end.ExitCode != 3 || end.FinishedAt == 0 {
		t.Errorf("stopped is %v", end)
	}
	s.end(t)
}

func eventsOfFailures(t *testing.T, s *scene) {
	r := s.readEvents(t)
	p := s.pod("untold")
	must(t, p.Run())
	if p.Create("docker.io/library/absent:latest", "/bin/true") == nil {
		t.Error("a container of no image")
	}
	p.Tune = limited(&limits{CpusetCpus: "9999"})
	refused(t, p.Create(node.Demo, "/bin/true"), codes.InvalidArgument, "cpuset.cpus")
	p.Tune = nil
	must(t, p.Create(node.Demo, "/no/such/program"))
	if p.Start() == nil {
		t.Error("no program was started")
	}
	must(t, p.Remove())
	want := fmt.Sprintf("%[1]s created\n%[1]s started\n%[2]s created\n%[2]s stopped\n", p.ID[:6], p.Container[:6])
	if got := told(r.wait(t, 7)); !strings.HasPrefix(got, want) {
		t.Errorf("told is\n%s", got)
	}
	s.end(t)
}

func eventsForManyReaders(t *testing.T, s *scene) {
	readers, pods := make([]*reader, 10), make([]*node.Pod, 20)
	for i := range readers {
		readers[i] = s.readEvents(t)
	}
	var all sync.WaitGroup
	errs := make(chan error, len(pods))
	for i := range pods {
		p := s.pod(fmt.Sprintf("told-%d", i))
		pods[i] = p
		all.Go(func() {
			for _, step := range []func() error{
				func() error { return p.Up(node.Demo, "/bin/sleep", "1000") },
				func() error { return p.Stop(0) }, p.RemoveContainer, p.Remove,
			} {
				if err := step(); err != nil {
					errs <- err
					return
				}
			}
		})
	}
	all.Wait()
	close(errs)
	for err := range errs {
		t.Fatal(err)
	}
	for i, r := range readers {
		events := r.wait(t, 8*len(pods))
		if len(events) != 8*len(pods) {
			t.Errorf("reader %d got %d events", i, len(events))
		}
		for _, p := range pods {
			own := slices.DeleteFunc(slices.Clone(events), func(e *cri.ContainerEventResponse) bool {
				return e.PodSandboxStatus.GetId() != p.ID
			})
			if got := told(own); got != lifeOf(p) {
				t.Errorf("reader %d was told of %s\n%snot\n%s", i, p.Config.Metadata.Name, got, lifeOf(p))
			}
		}
	}
	s.end(t)
}

// eventsSlowReader: its queue is full of events that bear a large annotation each.
func eventsSlowReader(t *testing.T, s *scene) {
	r := s.readEvents(t)
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	slow, err := s.Runtime.GetContainerEvents(ctx, &cri.GetEventsRequest{}, grpc.MaxCallRecvMsgSize(64<<20))
	must(t, err)
	_, err = node.Call(s.Runtime.Version, &cri.VersionRequest{})
	must(t, err)
	count := 0
	for i := range 40 {
		p := s.pod(fmt.Sprintf("large-%d", i))
		p.Config.Annotations = map[string]string{"large": strings.Repeat("x", 200<<10)}
		must(t, p.Run())
		must(t, p.Remove())
		count += 4
	}
	r.wait(t, count)
	got := 0
	for err = nil; err == nil; got++ {
		_, err = slow.Recv()
	}
	if status.Code(err) != codes.ResourceExhausted || !strings.Contains(err.Error(), "list") {
		t.Errorf("the slow reader was ended with %v", err)
	}
	if got--; got >= count {
		t.Errorf("it has read %d of %d events", got, count)
	}
	// and begins anew
	again := s.readEvents(t)
	p := s.pod("after")
	must(t, p.Run())
	again.wait(t, 2)
	s.end(t, p)
}

func eventsAfterRestart(t *testing.T, s *scene) {
	r := s.readEvents(t)
	p := s.sleeper(t, "told-twice")
	r.wait(t, 4)
	s.Kill(t)
	if err := <-r.ended; status.Code(err) != codes.Unavailable && err != io.EOF {
		t.Errorf("the stream of a server that died ended with %v", err)
	}
	status, err := p.Status()
	must(t, err)
	if status.State != cri.ContainerState_CONTAINER_RUNNING {
		t.Fatalf("it is %v", status.State)
	}
	r = s.readEvents(t)
	must(t, p.Stop(0))
	must(t, p.Remove())
	want := fmt.Sprintf("%s stopped\n", p.Container[:6])
	if got := told(r.wait(t, 4)); !strings.HasPrefix(got, want) {
		t.Errorf("after the restart told is\n%s", got)
	}
	s.end(t)
}
