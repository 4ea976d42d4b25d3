// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"os"
	"path"
	"time"

	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"crisp/bench/pods"
)

// server is a CRI server with the samples that were taken from it.
type server struct {
	*pods.Server
	samples map[string][]time.Duration
	account *account // nil: processor time is not counted
	cpu     *cpu     // nil likewise
}

// names of the calls in the order of a table; the last of each group is a sum.
var calls = []string{
	"RunPodSandbox", "CreateContainer", "StartContainer", "run+create+start",
	"ExecSync true",
	"StopContainer", "StopPodSandbox", "RemoveContainer", "RemovePodSandbox", "stop+remove",
}

// dial is for the k-th server.
func dial(address string, o options, k int) (*server, error) {
	if o.execs > 0 {
		o.Parent = path.Join("/", o.Parent, fmt.Sprintf("crisp-latency-%d-%d", os.Getpid(), k))
	}
	p, err := pods.Dial(address, o.Options)
	if err != nil {
		return nil, err
	}
	s := &server{Server: p, samples: map[string][]time.Duration{}}
	if o.execs > 0 {
		s.cpu = &cpu{}
		if s.account, err = newAccount(o.Parent, p); err != nil {
			p.Close()
			return nil, err
		}
	}
	return s, nil
}

func (s *server) close() {
	s.Close()
	if s.account != nil {
		s.account.close()
	}
}

// timed is for one call: its time goes to the samples, and to a sum.
func (s *server) timed(sum *time.Duration, counts bool) pods.Watch {
	return func(name string, call func() error) error {
		begin := time.Now()
		err := call()
		took := time.Since(begin)
		if err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		*sum += took
		if counts {
			s.samples[name] = append(s.samples[name], took)
		}
		return nil
	}
}

func (s *server) up(ctx context.Context, name string, counts bool) (pods.Pod, error) {
	var sum time.Duration
	p, err := s.Up(ctx, name, s.timed(&sum, counts))
	if err == nil && counts {
		s.samples["run+create+start"] = append(s.samples["run+create+start"], sum)
	}
	return p, err
}

func (s *server) down(ctx context.Context, p pods.Pod, counts bool) error {
	var sum time.Duration
	err := s.Down(ctx, p, s.timed(&sum, counts))
	if err == nil && counts {
		s.samples["stop+remove"] = append(s.samples["stop+remove"], sum)
	}
	return err
}

// cycle is the whole life of a pod.
func (s *server) cycle(ctx context.Context, name string, counts bool) error {
	p, err := s.up(ctx, name, counts)
	if err != nil {
		return err
	}
	var sum time.Duration
	err = s.timed(&sum, counts)("ExecSync true", func() error {
		return s.execTrue(ctx, p)
	})
	if err != nil {
		return err
	}
	return s.down(ctx, p, counts)
}

// execTrue is ExecSync of a program that does nothing.
func (s *server) execTrue(ctx context.Context, p pods.Pod) error {
	r, err := s.Client.ExecSync(ctx, &cri.ExecSyncRequest{ContainerId: p.Container, Cmd: []string{"/bin/true"}, Timeout: 10})
	if err == nil && r.ExitCode != 0 {
		return fmt.Errorf("exit code %d: %s", r.ExitCode, r.Stderr)
	}
	return err
}
