// SPDX-License-Identifier: Apache-2.0

// Package pods is what the benchmarks share: a CRI server with pods of one container each on the host's
// network, and what /proc says of processes.
package pods

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

// Options are the same for all pods of a benchmark.
type Options struct {
	Image  string // has /bin/sleep and /bin/true
	Logs   string // directory for the pods' logs
	Parent string // the pods' cgroup parent; empty: the server's
}

// Server is a CRI server.
type Server struct {
	Address string
	Name    string // what Version says
	Pid     int    // the process that listens
	Client  cri.RuntimeServiceClient
	conn    *grpc.ClientConn
	o       Options
	left    map[string]bool // sandboxes to be removed if we fail
}

// Pod is one that is up.
type Pod struct {
	ID, Container string
}

// Watch is called around each call of a pod's life and returns the error of f.
type Watch func(call string, f func() error) error

// Dial finds out who listens at address, and sees that it has the image.
func Dial(address string, o Options) (*Server, error) {
	address, err := filepath.Abs(strings.TrimPrefix(address, "unix://"))
	if err != nil {
		return nil, err
	}
	s := &Server{Address: address, o: o, left: map[string]bool{}}
	if s.Pid, err = Listener(address); err != nil {
		return nil, err
	}
	s.conn, err = grpc.NewClient("unix://"+address, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return nil, err
	}
	s.Client = cri.NewRuntimeServiceClient(s.conn)
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	version, err := s.Client.Version(ctx, &cri.VersionRequest{})
	if err != nil {
		return nil, fmt.Errorf("%s: %w", address, err)
	}
	s.Name = version.RuntimeName + " " + version.RuntimeVersion
	image, err := cri.NewImageServiceClient(s.conn).ImageStatus(ctx, &cri.ImageStatusRequest{Image: &cri.ImageSpec{Image: o.Image}})
	if err != nil {
		return nil, fmt.Errorf("%s: %w", address, err)
	}
	if image.Image == nil {
		return nil, fmt.Errorf("%s has no image %s; import or pull it first", address, o.Image)
	}
	return s, nil
}

// Listener is the process that made the socket listen.
func Listener(address string) (int, error) {
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

// Close removes what a failed run left.
func (s *Server) Close() {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	for id := range s.left {
		_, _ = s.Client.StopPodSandbox(ctx, &cri.StopPodSandboxRequest{PodSandboxId: id})
		if _, err := s.Client.RemovePodSandbox(ctx, &cri.RemovePodSandboxRequest{PodSandboxId: id}); err != nil {
			fmt.Fprintf(os.Stderr, "pod %s is left on %s: %v\n", id, s.Address, err)
		}
	}
	s.conn.Close()
}

func (s *Server) sandboxConfig(name string) *cri.PodSandboxConfig {
	return &cri.PodSandboxConfig{
		Metadata:     &cri.PodSandboxMetadata{Name: name, Namespace: "bench", Uid: name},
		LogDirectory: filepath.Join(s.o.Logs, name),
		Linux: &cri.LinuxPodSandboxConfig{
			CgroupParent: s.o.Parent,
			SecurityContext: &cri.LinuxSandboxSecurityContext{
				NamespaceOptions: &cri.NamespaceOption{Network: cri.NamespaceMode_NODE, Pid: cri.NamespaceMode_CONTAINER},
			},
		},
	}
}

// Up is RunPodSandbox, CreateContainer and StartContainer.
func (s *Server) Up(ctx context.Context, name string, watch Watch) (Pod, error) {
	var p Pod
	sandbox := s.sandboxConfig(name)
	// the kubelet makes it, too
	if err := os.MkdirAll(sandbox.LogDirectory, 0o755); err != nil {
		return p, err
	}
	err := watch("RunPodSandbox", func() error {
		r, err := s.Client.RunPodSandbox(ctx, &cri.RunPodSandboxRequest{Config: sandbox})
		p.ID = r.GetPodSandboxId()
		return err
	})
	if err != nil {
		return p, err
	}
	s.left[p.ID] = true
	err = watch("CreateContainer", func() error {
		r, err := s.Client.CreateContainer(ctx, &cri.CreateContainerRequest{
			PodSandboxId: p.ID,
			Config: &cri.ContainerConfig{
				Metadata: &cri.ContainerMetadata{Name: "sleep"},
				Image:    &cri.ImageSpec{Image: s.o.Image},
				Command:  []string{"/bin/sleep", "1000000"},
				LogPath:  "sleep.log",
				Linux: &cri.LinuxContainerConfig{SecurityContext: &cri.LinuxContainerSecurityContext{
					NamespaceOptions: sandbox.Linux.SecurityContext.NamespaceOptions,
				}},
			},
			SandboxConfig: sandbox,
		})
		p.Container = r.GetContainerId()
		return err
	})
	if err != nil {
		return p, err
	}
	err = watch("StartContainer", func() error {
		_, err := s.Client.StartContainer(ctx, &cri.StartContainerRequest{ContainerId: p.Container})
		return err
	})
	return p, err
}

// Down stops and removes the container, then the pod.
func (s *Server) Down(ctx context.Context, p Pod, watch Watch) error {
	steps := []struct {
		name string
		call func() error
	}{
		{"StopContainer", func() error {
			_, err := s.Client.StopContainer(ctx, &cri.StopContainerRequest{ContainerId: p.Container})
			return err
		}},
		{"StopPodSandbox", func() error {
			_, err := s.Client.StopPodSandbox(ctx, &cri.StopPodSandboxRequest{PodSandboxId: p.ID})
			return err
		}},
		{"RemoveContainer", func() error {
			_, err := s.Client.RemoveContainer(ctx, &cri.RemoveContainerRequest{ContainerId: p.Container})
			return err
		}},
		{"RemovePodSandbox", func() error {
			_, err := s.Client.RemovePodSandbox(ctx, &cri.RemovePodSandboxRequest{PodSandboxId: p.ID})
			return err
		}},
	}
	for _, step := range steps {
		if err := watch(step.name, step.call); err != nil {
			return err
		}
	}
	delete(s.left, p.ID)
	return nil
}
