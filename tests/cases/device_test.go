// SPDX-License-Identifier: Apache-2.0

package cases

import (
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
	"google.golang.org/grpc/codes"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"crisp/node"
)

// cdiDir is where the server looks for specifications.
var cdiDir string

// TestDevices: what containers get by devices, by CDI and by their pod's runtime handler.
func TestDevices(t *testing.T) {
	cdiDir = t.TempDir()
	config := filepath.Join(t.TempDir(), "crisp.yaml")
	writeHandlers(t, config, hardened)
	s := newScene(t, "--config", config)
	for _, c := range []struct {
		name string
		test func(*testing.T, *scene)
	}{
		{"a device is there by each of its ways", deviceWays},
		{"one that can't be had is refused by its path", deviceRefusals},
		{"CDI devices come by the field and by annotations", cdiDevices},
		{"they stay what they were when the container was created", cdiSurvives},
		{"CDI devices that can't be had are refused by their names", cdiRefusals},
		{"a handler's options hold, also after a restart", handlerOptions},
		{"an unknown handler is refused", handlerUnknown},
		{"a handler that is gone or changed is what it was to its pods", func(t *testing.T, s *scene) { handlerGone(t, s, config) }},
		{"containers have limits of their own", ownLimits},
	} {
		t.Run(c.name, func(t *testing.T) { c.test(t, s) })
	}
}

func (s *scene) podWith(name string, tune func(*cri.ContainerConfig)) *node.Pod {
	p := s.pod(name)
	p.Tune = tune
	return p
}

func (s *scene) upWith(t *testing.T, name string, tune func(*cri.ContainerConfig)) *node.Pod {
	t.Helper()
	p := s.podWith(name, tune)
	must(t, p.Up(node.Demo, "/bin/sleep", "1000"))
	return p
}

// refusesCreate expects that no container comes of it.
func (s *scene) refusesCreate(t *testing.T, tune func(*cri.ContainerConfig), code codes.Code, what ...string) {
	t.Helper()
	p := s.podWith("refused", tune)
	must(t, p.Run())
	_, err := node.Call(s.Runtime.CreateContainer, p.Request(node.Demo, "/bin/sleep", "1000"))
	refused(t, err, code, what...)
	s.end(t, p)
}

func deviceWays(t *testing.T, s *scene) {
	dir := t.TempDir()
	must(t, os.Symlink("/dev/full", filepath.Join(dir, "link")))
	must(t, os.Mkdir(filepath.Join(dir, "all"), 0o755))
	must(t, unix.Mknod(filepath.Join(dir, "all", "one"), unix.S_IFCHR|0o666, int(unix.Mkdev(1, 5))))
	p := s.upWith(t, "ways", func(c *cri.ContainerConfig) {
		c.Devices = []*cri.Device{
			{HostPath: filepath.Join(dir, "link"), ContainerPath: "/dev/by-link", Permissions: "rw"},
			{HostPath: filepath.Join(dir, "all"), ContainerPath: "/dev/all", Permissions: "r"},
			{HostPath: "/dev/kmsg", ContainerPath: "/dev/log-of-kernel", Permissions: "w"},
		}
	})
	s.output(t, p, `(echo x >/dev/by-link) 2>&1 | grep -q "No space" && test -c /dev/all/one && test "$(head -c1 /dev/all/one | wc -c)" = 1 &&
		! (: </dev/log-of-kernel) 2>/dev/null`)
	s.end(t, p)
}

func deviceRefusals(t *testing.T, s *scene) {
	for _, d := range []struct {
		device *cri.Device
		what   string
	}{
		{&cri.Device{HostPath: "/dev/no-such", ContainerPath: "/dev/x", Permissions: "r"}, "/dev/no-such"},
		{&cri.Device{HostPath: "/dev/null", ContainerPath: "/dev/x", Permissions: "rwx"}, `"rwx"`},
		{&cri.Device{HostPath: "/dev/full", ContainerPath: "/dev/null", Permissions: "r"}, "/dev/null is taken"},
	} {
		s.refusesCreate(t, func(c *cri.ContainerConfig) { c.Devices = []*cri.Device{d.device} }, codes.InvalidArgument, d.what)
	}
}

// writeCDI has device "one" be full and tell who it is.
func writeCDI(t *testing.T, name, class, value string) string {
	t.Helper()
	path := filepath.Join(cdiDir, name)
	must(t, os.WriteFile(path, []byte(`cdiVersion: 0.6.0
kind: vendor.com/`+class+`
containerEdits:
  env: [ "ALL_`+class+`=yes" ]
devices:
- name: one
  containerEdits:
    env: [ "`+class+`=`+value+`" ]
    deviceNodes:
    - {path: /dev/`+class+`, hostPath: /dev/full, permissions: rw, fileMode: 0640, gid: 44}
    mounts:
    - {hostPath: `+cdiDir+`, containerPath: /cdi/`+class+`, options: [ro, rbind]}
- name: hooked
  containerEdits:
    hooks: [ {hookName: createRuntime, path: /bin/true} ]
`), 0o644))
	t.Cleanup(func() { os.Remove(path) })
	return path
}

const cdiLook = `echo $gpu $ALL_gpu $nic $ALL_nic; ls -ln /dev/gpu | cut -c1-10; test -f /cdi/gpu/gpu.yaml; (: >/cdi/gpu/x) 2>/dev/null || echo read-only`

func cdiDevices(t *testing.T, s *scene) {
	writeCDI(t, "gpu.yaml", "gpu", "first")
	writeCDI(t, "nic.yaml", "nic", "second")
	must(t, os.WriteFile(filepath.Join(cdiDir, "bad.json"), []byte("{"), 0o644))
	t.Cleanup(func() { os.Remove(filepath.Join(cdiDir, "bad.json")) })
	p := s.upWith(t, "cdi", func(c *cri.ContainerConfig) {
		c.CDIDevices = []*cri.CDIDevice{{Name: "vendor.com/gpu=one"}}
		c.Annotations = map[string]string{"cdi.k8s.io/plugin": "vendor.com/nic=one,vendor.com/gpu=one", "other": "x"}
	})
	out := s.output(t, p, cdiLook)
	if out != "first yes second yes\ncrw-r-----\nread-only\n" {
		t.Errorf("it has %q", out)
	}
	if !strings.Contains(s.Log(t), "bad.json") {
		t.Error("nothing is said of the bad file")
	}
	s.end(t, p)
}

func cdiSurvives(t *testing.T, s *scene) {
	path := writeCDI(t, "gpu.yaml", "gpu", "first")
	p := s.podWith("survivor", func(c *cri.ContainerConfig) { c.CDIDevices = []*cri.CDIDevice{{Name: "vendor.com/gpu=one"}} })
	must(t, p.Run())
	must(t, p.Create(node.Demo, "/bin/sleep", "1000"))
	writeCDI(t, "gpu.yaml", "gpu", "other")
	s.Restart(t)
	must(t, os.Remove(path))
	must(t, p.Start())
	if out := s.output(t, p, "echo $gpu; test -c /dev/gpu"); out != "first\n" {
		t.Errorf("it has %q", out)
	}
	s.Restart(t)
	if out := s.output(t, p, "echo $gpu"); out != "first\n" {
		t.Errorf("after a restart an exec has %q", out)
	}
	s.end(t, p)
}

func cdiRefusals(t *testing.T, s *scene) {
	writeCDI(t, "gpu.yaml", "gpu", "first")
	for _, c := range []struct {
		name string
		code codes.Code
		what []string
	}{
		{"vendor.com/gpu=none", codes.InvalidArgument, []string{"vendor.com/gpu=none"}},
		{"gpu", codes.InvalidArgument, []string{"config.CDI_devices", "vendor/class=device"}},
		{"vendor.com/gpu=hooked", codes.Unimplemented, []string{"gpu.yaml", "containerEdits.hooks"}},
	} {
		s.refusesCreate(t, func(config *cri.ContainerConfig) { config.CDIDevices = []*cri.CDIDevice{{Name: c.name}} }, c.code, c.what...)
	}
	s.refusesCreate(t, func(c *cri.ContainerConfig) { c.Annotations = map[string]string{"cdi.k8s.io/x": "a/b=c,"} },
		codes.InvalidArgument, "cdi.k8s.io/")
}

const handlerLook = "grep NoNewPrivs /proc/self/status | cut -f2; ulimit -n; ulimit -Hn"

func handlerOptions(t *testing.T, s *scene) {
	r, err := node.Call(s.Runtime.Status, &cri.StatusRequest{Verbose: true})
	must(t, err)
	if !strings.Contains(r.Info["doctor"], `{"kernel":{"state":"ok","detail":"Linux `) {
		t.Errorf("the doctor says %q", r.Info["doctor"])
	}
	var names []string
	for _, h := range r.RuntimeHandlers {
		names = append(names, h.Name)
		if !h.Features.UserNamespaces || !h.Features.RecursiveReadOnlyMounts {
			t.Errorf("handler %q: %v", h.Name, h.Features)
		}
	}
	if !slices.Equal(names, []string{"", "linux", "other", "hardened"}) {
		t.Errorf("handlers are %q", names)
	}
	p := s.pod("hardened")
	run, err := node.Call(s.Runtime.RunPodSandbox, &cri.RunPodSandboxRequest{Config: p.Config, RuntimeHandler: "hardened"})
	must(t, err)
	p.ID = run.PodSandboxId
	must(t, p.Create(node.Demo, "/bin/sleep", "1000"))
	s.Restart(t)
	must(t, p.Start())
	if out := s.output(t, p, handlerLook); out != "1\n100\n200\n" {
		t.Errorf("it has %q", out)
	}
	status, err := node.Call(s.Runtime.PodSandboxStatus, &cri.PodSandboxStatusRequest{PodSandboxId: p.ID})
	must(t, err)
	if status.Status.RuntimeHandler != "hardened" {
		t.Errorf("the handler is %q", status.Status.RuntimeHandler)
	}
	s.end(t, p)
}

const hardened = "- {name: hardened, no_new_privs: true, rlimits: [ {name: nofile, soft: 100, hard: 200} ]}\n"

// writeHandlers writes a configuration that has these.
func writeHandlers(t *testing.T, config, handlers string) {
	t.Helper()
	must(t, os.WriteFile(config, []byte("cdi_dirs: [ "+cdiDir+" ]\nhandlers:\n- {name: other}\n"+handlers), 0o644))
}

// handlerGone: what a pod was made with holds for all its containers, over restarts.
func handlerGone(t *testing.T, s *scene, config string) {
	hard := func(name string) (*node.Pod, error) {
		p := s.pod(name)
		r, err := node.Call(s.Runtime.RunPodSandbox, &cri.RunPodSandboxRequest{Config: p.Config, RuntimeHandler: "hardened"})
		p.ID = r.GetPodSandboxId()
		return p, err
	}
	look := func(p *node.Pod, want string) {
		t.Helper()
		if out := s.output(t, p, handlerLook); out != want {
			t.Errorf("it has %q, not %q", out, want)
		}
	}
	p, err := hard("gone")
	must(t, err)
	must(t, p.Create(node.Demo, "/bin/sleep", "1000"))
	second, err := hard("gone-too")
	must(t, err)
	const warning = `runtime handler \"hardened\" is no longer configured`
	said := strings.Count(s.Log(t), warning)
	for _, handlers := range []string{"", "- {name: hardened, rlimits: [ {name: nofile, soft: 300, hard: 300} ]}\n"} {
		writeHandlers(t, config, handlers)
		s.Kill(t)
		if handlers == "" {
			must(t, p.Start())
			_, err = hard("later")
			refused(t, err, codes.InvalidArgument, `"hardened"`, "not configured")
		}
		look(p, "1\n100\n200\n")
		must(t, second.Create(node.Demo, "/bin/sleep", "1000"))
		must(t, second.Start())
		look(second, "1\n100\n200\n")
		must(t, second.RemoveContainer())
	}
	if n := strings.Count(s.Log(t), warning) - said; n != 1 {
		t.Errorf("the warning is there %d times", n)
	}
	later, err := hard("later")
	must(t, err)
	must(t, later.Create(node.Demo, "/bin/sleep", "1000"))
	must(t, later.Start())
	look(later, "0\n300\n300\n")
	writeHandlers(t, config, hardened)
	s.Kill(t)
	look(later, "0\n300\n300\n")
	s.end(t, p, second, later)
}

func handlerUnknown(t *testing.T, s *scene) {
	_, err := node.Call(s.Runtime.RunPodSandbox, &cri.RunPodSandboxRequest{Config: s.pod("unknown").Config, RuntimeHandler: "moon"})
	refused(t, err, codes.InvalidArgument, `"moon"`)
}

func ownLimits(t *testing.T, s *scene) {
	var limit unix.Rlimit
	must(t, unix.Getrlimit(unix.RLIMIT_NOFILE, &limit))
	wanted := strconv.FormatUint(min(limit.Max, 1<<20), 10)
	p := s.sleeper(t, "limits")
	if out := s.output(t, p, handlerLook); out != "0\n"+wanted+"\n"+wanted+"\n" {
		t.Errorf("it has %q, not %s", out, wanted)
	}
	s.end(t, p)
}
