// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// server is a CRI server with the samples that were taken from it.
type server struct {
	address string
	name    string // what Version says
	pid     int    // the process that listens
	client  cri.RuntimeServiceClient
	conn    *grpc.ClientConn
	o       options
	samples map[string][]time.Duration
	left    map[string]bool // sandboxes to be removed if we fail
}

// names of the calls in the order of a table; the last two of each group are sums.
var calls = []string{
	"RunPodSandbox", "CreateContainer", "StartContainer", "run+create+start",
	"ExecSync true",
	"StopContainer", "StopPodSandbox", "RemoveContainer", "RemovePodSandbox", "stop+remove",
}

func dial(address string, o options) (*server, error) {
	address, err := filepath.Abs(strings.TrimPrefix(address, "unix://"))
	if err != nil {
		return nil, err
	}
	s := &server{address: address, o: o, samples: map[string][]time.Duration{}, left: map[string]bool{}}
	if s.pid, err = listener(address); err != nil {
		return nil, err
	}
	s.conn, err = grpc.NewClient("unix://"+address, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return nil, err
	}
	s.client = cri.NewRuntimeServiceClient(s.conn)
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	version, err := s.client.Version(ctx, &cri.VersionRequest{})
	if err != nil {
		return nil, fmt.Errorf("%s: %w", address, err)
	}
	s.name = version.RuntimeName + " " + version.RuntimeVersion
	image, err := cri.NewImageServiceClient(s.conn).ImageStatus(ctx, &cri.ImageStatusRequest{Image: &cri.ImageSpec{Image: o.image}})
	if err != nil {
		return nil, fmt.Errorf("%s: %w", address, err)
	}
	if image.Image == nil {
		return nil, fmt.Errorf("%s has no image %s; import or pull it first", address, o.image)
	}
	return s, nil
}

// listener is the process that made the socket listen.
func listener(address string) (int, error) {
	conn, err := net.DialUnix("unix", nil, &net.UnixAddr{Name: address, Net: "unix"})
	if err != nil {
		return 0, err
	}
	defer conn.Close()
	raw, err := conn.SyscallConn()
	if err != nil {
		return 0, err
	}
	var who *unix.Ucred
	var failure error
	if err := raw.Control(func(fd uintptr) {
		who, failure = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED)
	}); err != nil {
		return 0, err
	}
	if failure != nil {
		return 0, failure
	}
	return int(who.Pid), nil
}

// close removes what a failed run left.
func (s *server) close() {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	for id := range s.left {
		_, _ = s.client.StopPodSandbox(ctx, &cri.StopPodSandboxRequest{PodSandboxId: id})
		if _, err := s.client.RemovePodSandbox(ctx, &cri.RemovePodSandboxRequest{PodSandboxId: id}); err != nil {
			fmt.Fprintf(os.Stderr, "latency: pod %s is left on %s: %v\n", id, s.address, err)
		}
	}
	s.conn.Close()
}

// timed adds the time of one call to its samples, and to a sum.
func (s *server) timed(name string, sum *time.Duration, counts bool, call func() error) error {
	begin := time.Now()
	err := call()
	took := time.Since(begin)
	if err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	if sum != nil {
		*sum += took
	}
	if counts {
		s.samples[name] = append(s.samples[name], took)
	}
	return nil
}

type pod struct {
	id, container string
}

func (s *server) sandboxConfig(name string) *cri.PodSandboxConfig {
	return &cri.PodSandboxConfig{
		Metadata:     &cri.PodSandboxMetadata{Name: name, Namespace: "latency", Uid: name},
		LogDirectory: filepath.Join(s.o.logs, name),
		Linux: &cri.LinuxPodSandboxConfig{
			CgroupParent: s.o.parent,
			SecurityContext: &cri.LinuxSandboxSecurityContext{
				NamespaceOptions: &cri.NamespaceOption{Network: cri.NamespaceMode_NODE, Pid: cri.NamespaceMode_CONTAINER},
			},
		},
	}
}

func (s *server) up(ctx context.Context, name string, counts bool) (pod, error) {
	var p pod
	var sum time.Duration
	sandbox := s.sandboxConfig(name)
	// the kubelet makes it, too
	if err := os.MkdirAll(sandbox.LogDirectory, 0o755); err != nil {
		return p, err
	}
	err := s.timed("RunPodSandbox", &sum, counts, func() error {
		r, err := s.client.RunPodSandbox(ctx, &cri.RunPodSandboxRequest{Config: sandbox})
		p.id = r.GetPodSandboxId()
		return err
	})
	if err != nil {
		return p, err
	}
	s.left[p.id] = true
	err = s.timed("CreateContainer", &sum, counts, func() error {
		r, err := s.client.CreateContainer(ctx, &cri.CreateContainerRequest{
			PodSandboxId: p.id,
			Config: &cri.ContainerConfig{
				Metadata: &cri.ContainerMetadata{Name: "sleep"},
				Image:    &cri.ImageSpec{Image: s.o.image},
				Command:  []string{"/bin/sleep", "1000000"},
				LogPath:  "sleep.log",
				Linux: &cri.LinuxContainerConfig{SecurityContext: &cri.LinuxContainerSecurityContext{
					NamespaceOptions: sandbox.Linux.SecurityContext.NamespaceOptions,
				}},
			},
			SandboxConfig: sandbox,
		})
		p.container = r.GetContainerId()
		return err
	})
	if err != nil {
		return p, err
	}
	err = s.timed("StartContainer", &sum, counts, func() error {
		_, err := s.client.StartContainer(ctx, &cri.StartContainerRequest{ContainerId: p.container})
		return err
	})
	if err == nil && counts {
		s.samples["run+create+start"] = append(s.samples["run+create+start"], sum)
	}
	return p, err
}

func (s *server) down(ctx context.Context, p pod, counts bool) error {
	var sum time.Duration
	steps := []struct {
		name string
		call func() error
	}{
		{"StopContainer", func() error {
			_, err := s.client.StopContainer(ctx, &cri.StopContainerRequest{ContainerId: p.container})
			return err
		}},
		{"StopPodSandbox", func() error {
			_, err := s.client.StopPodSandbox(ctx, &cri.StopPodSandboxRequest{PodSandboxId: p.id})
			return err
		}},
		{"RemoveContainer", func() error {
			_, err := s.client.RemoveContainer(ctx, &cri.RemoveContainerRequest{ContainerId: p.container})
			return err
		}},
		{"RemovePodSandbox", func() error {
			_, err := s.client.RemovePodSandbox(ctx, &cri.RemovePodSandboxRequest{PodSandboxId: p.id})
			return err
		}},
	}
	for _, step := range steps {
		if err := s.timed(step.name, &sum, counts, step.call); err != nil {
			return err
		}
	}
	delete(s.left, p.id)
	if counts {
		s.samples["stop+remove"] = append(s.samples["stop+remove"], sum)
	}
	return nil
}

// cycle is the whole life of a pod.
func (s *server) cycle(ctx context.Context, name string, counts bool) error {
	p, err := s.up(ctx, name, counts)
	if err != nil {
		return err
	}
	err = s.timed("ExecSync true", nil, counts, func() error {
		r, err := s.client.ExecSync(ctx, &cri.ExecSyncRequest{ContainerId: p.container, Cmd: []string{"/bin/true"}, Timeout: 10})
		if err == nil && r.ExitCode != 0 {
			return fmt.Errorf("exit code %d: %s", r.ExitCode, r.Stderr)
		}
		return err
	})
	if err != nil {
		return err
	}
	return s.down(ctx, p, counts)
}
