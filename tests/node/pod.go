// SPDX-License-Identifier: Apache-2.0

package node

import (
	"fmt"
	"os"
	"path/filepath"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// Demo is the image that cri/demo-image makes.
const Demo = "docker.io/library/demo:latest"

// Pod is a pod on the host's network with at most one container, which has a pid namespace of its own.
// All its calls are repeated while servers die under them.
type Pod struct {
	client    *Client
	Config    *cri.PodSandboxConfig
	ID        string
	Container string
	// Tune, if set, changes what Create asks for. The same must come out each time.
	Tune func(*cri.ContainerConfig)
}

// NewPod makes nothing yet. Logs go below logs; parent may be empty.
func (c *Client) NewPod(name, logs, parent string) *Pod {
	return &Pod{client: c, Config: &cri.PodSandboxConfig{
		Metadata:     &cri.PodSandboxMetadata{Name: name, Namespace: "test", Uid: name + "-uid"},
		LogDirectory: filepath.Join(logs, name),
		Labels:       map[string]string{"name": name},
		Linux: &cri.LinuxPodSandboxConfig{
			CgroupParent: parent,
			SecurityContext: &cri.LinuxSandboxSecurityContext{NamespaceOptions: &cri.NamespaceOption{
				Network: cri.NamespaceMode_NODE, Pid: cri.NamespaceMode_CONTAINER}},
		},
	}}
}

// Run is RunPodSandbox.
func (p *Pod) Run() error {
	if err := os.MkdirAll(p.Config.LogDirectory, 0o755); err != nil {
		return err
	}
	r, _, err := Retry(p.client.Runtime.RunPodSandbox, &cri.RunPodSandboxRequest{Config: p.Config})
	if err != nil {
		return fmt.Errorf("RunPodSandbox %s: %w", p.Config.Metadata.Name, err)
	}
	p.ID = r.PodSandboxId
	return nil
}

// Request is what Create asks for.
func (p *Pod) Request(image string, command ...string) *cri.CreateContainerRequest {
	config := &cri.ContainerConfig{
		Metadata: &cri.ContainerMetadata{Name: "main"},
		Image:    &cri.ImageSpec{Image: image},
		Command:  command,
		LogPath:  "main.log",
		Labels:   map[string]string{"name": p.Config.Metadata.Name},
		Linux: &cri.LinuxContainerConfig{SecurityContext: &cri.LinuxContainerSecurityContext{
			NamespaceOptions: p.Config.Linux.SecurityContext.NamespaceOptions}},
	}
	if p.Tune != nil {
		p.Tune(config)
	}
	return &cri.CreateContainerRequest{PodSandboxId: p.ID, Config: config, SandboxConfig: p.Config}
}

// Create is CreateContainer.
func (p *Pod) Create(image string, command ...string) error {
	r, _, err := Retry(p.client.Runtime.CreateContainer, p.Request(image, command...))
	if err != nil {
		return fmt.Errorf("CreateContainer in %s: %w", p.Config.Metadata.Name, err)
	}
	p.Container = r.ContainerId
	return nil
}

// Start is StartContainer. A repeated call may find that the first one did it.
func (p *Pod) Start() error {
	_, repeated, err := Retry(p.client.Runtime.StartContainer, &cri.StartContainerRequest{ContainerId: p.Container})
	if repeated && status.Code(err) == codes.FailedPrecondition {
		s, failure := p.Status()
		if failure == nil && (s.State == cri.ContainerState_CONTAINER_RUNNING || s.State == cri.ContainerState_CONTAINER_EXITED) {
			return nil
		}
	}
	if err != nil {
		return fmt.Errorf("StartContainer in %s: %w", p.Config.Metadata.Name, err)
	}
	return nil
}

// Up is all three.
func (p *Pod) Up(image string, command ...string) error {
	if err := p.Run(); err != nil {
		return err
	}
	if err := p.Create(image, command...); err != nil {
		return err
	}
	return p.Start()
}

// Status is ContainerStatus.
func (p *Pod) Status() (*cri.ContainerStatus, error) {
	r, _, err := Retry(p.client.Runtime.ContainerStatus, &cri.ContainerStatusRequest{ContainerId: p.Container})
	if err != nil {
		return nil, fmt.Errorf("ContainerStatus in %s: %w", p.Config.Metadata.Name, err)
	}
	return r.Status, nil
}

// Exec is ExecSync, of a command that has no effect when it runs twice.
func (p *Pod) Exec(command ...string) (*cri.ExecSyncResponse, error) {
	r, _, err := Retry(p.client.Runtime.ExecSync, &cri.ExecSyncRequest{ContainerId: p.Container, Cmd: command, Timeout: 30})
	if err != nil {
		return nil, fmt.Errorf("ExecSync in %s: %w", p.Config.Metadata.Name, err)
	}
	return r, nil
}

// Stop is StopContainer, with a grace period in seconds.
func (p *Pod) Stop(grace int64) error {
	_, _, err := Retry(p.client.Runtime.StopContainer, &cri.StopContainerRequest{ContainerId: p.Container, Timeout: grace})
	if err != nil {
		return fmt.Errorf("StopContainer in %s: %w", p.Config.Metadata.Name, err)
	}
	return nil
}

// RemoveContainer is RemoveContainer.
func (p *Pod) RemoveContainer() error {
	_, _, err := Retry(p.client.Runtime.RemoveContainer, &cri.RemoveContainerRequest{ContainerId: p.Container})
	if err != nil {
		return fmt.Errorf("RemoveContainer in %s: %w", p.Config.Metadata.Name, err)
	}
	return nil
}

// StopSandbox is StopPodSandbox.
func (p *Pod) StopSandbox() error {
	_, _, err := Retry(p.client.Runtime.StopPodSandbox, &cri.StopPodSandboxRequest{PodSandboxId: p.ID})
	if err != nil {
		return fmt.Errorf("StopPodSandbox %s: %w", p.Config.Metadata.Name, err)
	}
	return nil
}

// RemoveSandbox is RemovePodSandbox.
func (p *Pod) RemoveSandbox() error {
	_, _, err := Retry(p.client.Runtime.RemovePodSandbox, &cri.RemovePodSandboxRequest{PodSandboxId: p.ID})
	if err != nil {
		return fmt.Errorf("RemovePodSandbox %s: %w", p.Config.Metadata.Name, err)
	}
	return nil
}

// Remove is the end of a pod, whatever is in it.
func (p *Pod) Remove() error {
	if err := p.StopSandbox(); err != nil {
		return err
	}
	return p.RemoveSandbox()
}

// LogFile is where the container's log is.
func (p *Pod) LogFile() string {
	return filepath.Join(p.Config.LogDirectory, "main.log")
}

// Reopen is ReopenContainerLog.
func (p *Pod) Reopen() error {
	_, _, err := Retry(p.client.Runtime.ReopenContainerLog, &cri.ReopenContainerLogRequest{ContainerId: p.Container})
	if err != nil {
		return fmt.Errorf("ReopenContainerLog in %s: %w", p.Config.Metadata.Name, err)
	}
	return nil
}
