// SPDX-License-Identifier: Apache-2.0

package conformance

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"crisp/node"
)

const demo = "docker.io/library/demo:latest"

// parent is the cgroup of the pods, which belongs to the caller: we make no container without one.
const parent = "/crisp-walk"

// counting writes numbered lines for six seconds and then ends well.
const counting = "i=0; while [ $i -lt 60 ]; do echo line $i; i=$((i+1)); usleep 100000; done; echo done >&2"

// write puts a configuration for crictl into a file.
func write(t *testing.T, dir, name string, config map[string]any) string {
	t.Helper()
	raw, err := json.Marshal(config)
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, name)
	if err := os.WriteFile(path, raw, 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// namespaces of a pod or container, in the numbers of the API: POD 0, CONTAINER 1, NODE 2.
type namespaces map[string]int

var ownPid = namespaces{"pid": 1}

func podConfig(t *testing.T, dir, name string, ns namespaces) string {
	t.Helper()
	hostname := "host-of-" + name
	if ns["network"] == 2 {
		hostname = "" // as the kubelet does
	}
	return write(t, dir, name+".json", map[string]any{
		"metadata":      map[string]any{"name": name, "namespace": "walk", "uid": name + "-uid", "attempt": 1},
		"hostname":      hostname,
		"log_directory": filepath.Join(dir, name+"-logs"),
		"labels":        map[string]string{"walk": name},
		"annotations":   map[string]string{"note": "kept as it is"},
		"linux": map[string]any{
			"cgroup_parent":    parent,
			"security_context": map[string]any{"namespace_options": ns},
		},
	})
}

func containerConfig(t *testing.T, dir, name string, ns namespaces, command ...string) string {
	t.Helper()
	return write(t, dir, name+".json", map[string]any{
		"metadata": map[string]any{"name": name},
		"image":    map[string]any{"image": demo},
		"command":  command,
		"envs":     []map[string]string{{"key": "GREETING", "value": "smile"}},
		"labels":   map[string]string{"part": name},
		"log_path": name + ".log",
		"linux":    map[string]any{"security_context": map[string]any{"namespace_options": ns}},
	})
}

func (s *server) importDemo(t *testing.T) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "demo.tar")
	if out, err := exec.Command("../../cri/demo-image", file).CombinedOutput(); err != nil {
		t.Fatalf("cri/demo-image: %v: %s", err, out)
	}
	s.Import(t, file)
}

// walk is what the steps of TestCrictl hand on to each other.
type walk struct {
	*server
	dir       string
	pod       string
	container string
}

// TestCrictl goes once through everything that crictl does with a pod. Each step needs those before it.
func TestCrictl(t *testing.T) {
	t.Cleanup(func() { node.RemoveParent(t, parent) }) // after the server's own clean-up
	w := &walk{server: newServer(t), dir: t.TempDir()}
	var before node.World
	for _, step := range []struct {
		name string
		run  func(*testing.T, *walk)
	}{
		{"version", version}, {"info", info}, {"images", images},
		{"look", func(t *testing.T, w *walk) {
			// with one pod gone through, whatever is made at first use is there
			w.once(t, "first", ownPid, "/bin/true")
			before = w.Look(t, w.ids...)
		}},
		{"runp", runp}, {"pods", pods}, {"inspectp", inspectp},
		{"create", create}, {"start", start}, {"ps", ps}, {"exec", execSync}, {"inspect", inspect}, {"stats", stats}, {"metrics", metrics}, {"update", update},
		{"logs_follow", logsFollow}, {"log_file", logFile}, {"exited", exited},
		{"stop", stop}, {"rm", rm}, {"stopp", stopp}, {"rmp", rmp},
		{"shared_pid", sharedPid}, {"host_network", hostNetwork}, {"events", events}, {"errors", wrongIDs}, {"rmi", rmi},
	} {
		if !t.Run(step.name, func(t *testing.T) { step.run(t, w) }) {
			t.Fatalf("the walk ends at %s", step.name)
		}
	}
	t.Run("nothing left", func(t *testing.T) { w.Leftovers(t, before, w.ids...) })
}

func version(t *testing.T, w *walk) {
	out := w.ctl(t, "version")
	for _, want := range []string{`RuntimeName: +crisp\n`, `RuntimeVersion: +\d+\.\d+\.\d+`, `RuntimeApiVersion: +v1\n`} {
		if !regexp.MustCompile(want).MatchString(out) {
			t.Errorf("no %s in %q", want, out)
		}
	}
}

func info(t *testing.T, w *walk) {
	status := w.object(t, "info")
	for _, want := range []string{"RuntimeReady", "NetworkReady"} {
		found := false
		for _, c := range status.at("status.conditions").list() {
			found = found || (c.at("type").String() == want && c.at("status").String() == "true")
		}
		if !found {
			t.Errorf("%s is not true in %s", want, status)
		}
	}
	if config := w.ctl(t, "runtime-config"); !regexp.MustCompile(`(?m)^cgroup driver: +CGROUPFS$`).MatchString(config) {
		t.Errorf("no cgroup driver CGROUPFS in %q", config)
	}
}

func images(t *testing.T, w *walk) {
	w.importDemo(t)
	if out := w.ctl(t, "images"); !regexp.MustCompile(`docker.io/library/demo +latest +[0-9a-f]{13} `).MatchString(out) {
		t.Errorf("no demo image in %q", out)
	}
	image := w.object(t, "inspecti", demo)
	image.expect(t, map[string]string{"status.repoTags.0": demo})
	if image.at("status.size").String() == "0" {
		t.Error("the image has no size")
	}
	if id := strings.TrimSpace(w.ctl(t, "images", "-q", demo)); id != image.at("status.id").String() {
		t.Errorf("images -q says %s, inspecti %s", id, image.at("status.id"))
	}
	if fs := w.object(t, "imagefsinfo"); fs.at("status.imageFilesystems.0.usedBytes.value").String() == "0" {
		t.Errorf("an image uses no space: %s", fs)
	}
}

func runp(t *testing.T, w *walk) {
	w.pod = strings.TrimSpace(w.ctl(t, "runp", podConfig(t, w.dir, "web", ownPid)))
	if !regexp.MustCompile(`^[0-9a-f]{64}$`).MatchString(w.pod) {
		t.Errorf("a strange pod id: %q", w.pod)
	}
	if others := w.Others(); len(others) != 0 {
		t.Errorf("an empty pod has processes: %v", others)
	}
}

func pods(t *testing.T, w *walk) {
	w.object(t, "pods", "-o", "json", "--label", "walk=web").expect(t, map[string]string{
		"items.0.id": w.pod, "items.0.state": "SANDBOX_READY", "items.0.metadata.name": "web",
		"items.0.annotations.note": "kept as it is", "items.1": "null",
	})
	for _, args := range [][]string{{"--state", "NotReady"}, {"--label", "walk=other"}, {"--name", "nobody"}} {
		if out := w.ctl(t, append([]string{"pods", "-q"}, args...)...); out != "" {
			t.Errorf("pods %v shows %q", args, out)
		}
	}
}

func inspectp(t *testing.T, w *walk) {
	pod := w.object(t, "inspectp", w.pod)
	pod.expect(t, map[string]string{
		"status.id": w.pod, "status.state": "SANDBOX_READY", "status.metadata.uid": "web-uid",
		"status.metadata.namespace": "walk", "status.linux.namespaces.options.pid": "CONTAINER",
		"status.labels.walk": "web",
	})
	if pod.at("info").any == nil {
		t.Errorf("no verbose info in %s", pod)
	}
}

func create(t *testing.T, w *walk) {
	w.container = strings.TrimSpace(w.ctl(t, "create", w.pod,
		containerConfig(t, w.dir, "count", ownPid, "/bin/sh", "-c", counting), filepath.Join(w.dir, "web.json")))
	w.object(t, "ps", "-a", "-o", "json", "--pod", w.pod).expect(t, map[string]string{
		"containers.0.id": w.container, "containers.0.state": "CONTAINER_CREATED",
		"containers.0.podSandboxId": w.pod, "containers.0.image.image": demo, "containers.1": "null",
	})
	if out := w.ctl(t, "ps", "-q"); out != "" {
		t.Errorf("ps shows what was not started: %q", out)
	}
}

func start(t *testing.T, w *walk) {
	if out := strings.TrimSpace(w.ctl(t, "start", w.container)); out != w.container {
		t.Errorf("start says %q", out)
	}
}

func ps(t *testing.T, w *walk) {
	if out := w.ctl(t, "ps"); !regexp.MustCompile(w.container[:13] + ` .* Running +count +0 +` + w.pod[:13]).MatchString(out) {
		t.Errorf("not running in %q", out)
	}
	if out := strings.TrimSpace(w.ctl(t, "ps", "-q", "--state", "Running", "--label", "part=count")); out != w.container {
		t.Errorf("ps with filters shows %q", out)
	}
	// a shell, and the usleep that it waits for; no helper of the runtime
	for pid, name := range w.Others() {
		if name != "sh" && name != "usleep" && name != "busybox" && name != "exe" {
			t.Errorf("process %d (%s) is not the container's", pid, name)
		}
	}
}

func execSync(t *testing.T, w *walk) {
	out := w.ctl(t, "exec", "-s", w.container, "/bin/sh", "-c", "echo $GREETING; hostname; echo to stderr >&2")
	if out != "smile\nhost-of-web\n\nto stderr\n\n" {
		t.Errorf("exec wrote %q", out)
	}
	if out := w.ctl(t, "exec", "-s", w.container, "/bin/readlink", "/proc/1/exe"); !strings.HasPrefix(out, "/bin/busybox\n") {
		t.Errorf("process 1 is %q", out)
	}
	if _, stderr, err := w.run("exec", "-s", w.container, "/bin/sh", "-c", "exit 3"); err == nil || !strings.Contains(stderr, "3") {
		t.Errorf("exit 3 gave %v, %q", err, stderr)
	}
	begin := time.Now()
	if _, stderr, err := w.run("exec", "-s", "--timeout", "1", w.container, "/bin/sleep", "20"); err == nil {
		t.Error("an exec outlived its time limit")
	} else if !strings.Contains(stderr, "DeadlineExceeded") {
		t.Errorf("an exec over its time limit says %q", stderr)
	}
	if took := time.Since(begin); took > 3*time.Second {
		t.Errorf("a limit of 1 s took %v", took)
	}
}

func inspect(t *testing.T, w *walk) {
	container := w.object(t, "inspect", w.container)
	container.expect(t, map[string]string{
		"status.id": w.container, "status.state": "CONTAINER_RUNNING", "status.metadata.name": "count",
		"status.exitCode": "0", "status.image.image": demo, "status.labels.part": "count",
		"status.logPath": filepath.Join(w.dir, "web-logs", "count.log"),
	})
	if container.at("info").any == nil {
		t.Errorf("no verbose info in %s", container)
	}
}

// stats are looked at twice, so that there is a rate.
func stats(t *testing.T, w *walk) {
	container := w.object(t, "stats", "-o", "json", "--id", w.container)
	container.expect(t, map[string]string{"stats.0.attributes.id": w.container, "stats.1": "null"})
	if used := container.at("stats.0.memory.workingSetBytes.value").String(); used == "0" || used == "null" {
		t.Errorf("no memory is used: %s", container)
	}
	if out := w.ctl(t, "stats", "--label", "part=count"); !regexp.MustCompile(`(?m)^` + w.container[:13] + ` +count +`).MatchString(out) {
		t.Errorf("stats has no line of the container: %q", out)
	}
	pod := w.object(t, "statsp", "-o", "json", "--id", w.pod)
	pod.expect(t, map[string]string{"stats.0.attributes.id": w.pod, "stats.0.linux.containers.0.attributes.id": w.container,
		"stats.0.linux.network.defaultInterface.name": "lo", "stats.1": "null"})
	if out := w.ctl(t, "statsp"); !regexp.MustCompile(`(?m)^web +` + w.pod[:13]).MatchString(out) {
		t.Errorf("statsp has no line of the pod: %q", out)
	}
}

func metrics(t *testing.T, w *walk) {
	all := w.object(t, "metricsp")
	all.expect(t, map[string]string{"podMetrics.0.podSandboxId": w.pod,
		"podMetrics.0.containerMetrics.0.containerId": w.container, "podMetrics.1": "null"})
}

// update reads the limits back, from the status and from the kernel.
func update(t *testing.T, w *walk) {
	w.ctl(t, "update", "--cpu-period", "50000", "--cpu-quota", "25000", "--memory", "67108864", "--cpuset-cpus", "0", w.container)
	w.object(t, "inspect", w.container).expect(t, map[string]string{
		"status.resources.linux.cpuPeriod": "50000", "status.resources.linux.cpuQuota": "25000",
		"status.resources.linux.memoryLimitInBytes": "67108864", "status.resources.linux.cpusetCpus": "0",
	})
	if max, err := node.CPUMax(filepath.Join(parent, w.container)); err != nil || max != "25000 50000" {
		t.Errorf("quota and period are %s, %v", max, err)
	}
	if _, stderr, err := w.run("update", "--cpuset-cpus", "9999", w.container); err == nil || !strings.Contains(stderr, "cpuset.cpus") {
		t.Errorf("a processor that isn't there: %v, %q", err, stderr)
	}
}

// events reads on until a pod that came and went is told of.
func events(t *testing.T, w *walk) {
	file, err := os.Create(filepath.Join(w.dir, "events"))
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	reader := exec.Command(w.crictl, "--config", w.config, "events")
	reader.Stdout = file
	if err := reader.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() {
		reader.Process.Kill()
		reader.Wait()
	}()
	// nobody knows when it has begun to read
	node.Eventually(t, 20*time.Second, func() error {
		w.once(t, "told", ownPid, "/bin/true")
		raw, err := os.ReadFile(file.Name())
		if err != nil {
			return err
		}
		for _, want := range []string{"CREATED", "STARTED", "STOPPED", "DELETED"} {
			if !strings.Contains(string(raw), "CONTAINER_"+want+"_EVENT") {
				return fmt.Errorf("no event %s in %s", want, raw)
			}
		}
		return nil
	})
}

// logsFollow reads what is there, then what comes, until the container ends.
func logsFollow(t *testing.T, w *walk) {
	var want strings.Builder
	for i := range 60 {
		fmt.Fprintf(&want, "line %d\n", i)
	}
	stdout, stderr, err := w.run("logs", "-f", w.container)
	if err != nil {
		t.Fatalf("logs -f: %v: %s", err, stderr)
	}
	if stdout != want.String() {
		t.Errorf("logs -f wrote %q", stdout)
	}
	if stderr != "done\n" {
		t.Errorf("logs -f wrote %q to stderr", stderr)
	}
	if stdout, stderr, err := w.run("logs", "--tail", "2", w.container); err != nil || stdout != "line 59\n" || stderr != "done\n" {
		t.Errorf("logs --tail 2 wrote %q, %q: %v", stdout, stderr, err)
	}
}

// logFile looks at the form of the log: RFC 3339 time with nanoseconds, stream, tag, text.
func logFile(t *testing.T, w *walk) {
	path := filepath.Join(w.dir, "web-logs", "count.log")
	raw, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	record := regexp.MustCompile(`^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{1,9}(Z|[+-]\d\d:\d\d) (stdout F line \d+|stderr F done)$`)
	lines := strings.Split(strings.TrimSuffix(string(raw), "\n"), "\n")
	if len(lines) != 61 {
		t.Errorf("%d records", len(lines))
	}
	for _, line := range lines {
		if !record.MatchString(line) {
			t.Errorf("not a record: %q", line)
		}
	}
	if st, err := os.Stat(path); err != nil || st.Mode().Perm() != 0o640 {
		t.Errorf("mode of the log: %v, %v", st.Mode(), err)
	}
}

func exited(t *testing.T, w *walk) {
	w.object(t, "inspect", w.container).expect(t, map[string]string{
		"status.state": "CONTAINER_EXITED", "status.exitCode": "0", "status.reason": "Completed",
	})
	if out := w.ctl(t, "ps", "-a"); !strings.Contains(out, "Exited") {
		t.Errorf("not exited in %q", out)
	}
	if _, _, err := w.run("exec", "-s", w.container, "/bin/true"); err == nil {
		t.Error("exec into a container that has ended")
	}
}

// stop: the first process of its namespace ignores SIGTERM unless it handles it, so the grace counts.
func stop(t *testing.T, w *walk) {
	for name, script := range map[string]string{
		"polite":   "trap 'exit 7' TERM; while :; do usleep 50000; done",
		"stubborn": "trap '' TERM; while :; do usleep 50000; done",
	} {
		id := strings.TrimSpace(w.ctl(t, "create", w.pod,
			containerConfig(t, w.dir, name, ownPid, "/bin/sh", "-c", "echo ready; "+script), filepath.Join(w.dir, "web.json")))
		w.ctl(t, "start", id)
		node.Eventually(t, 5*time.Second, func() error {
			if out := w.ctl(t, "logs", id); out != "ready\n" {
				return fmt.Errorf("%s wrote %q", name, out)
			}
			return nil
		})
		begin := time.Now()
		w.ctl(t, "stop", "--timeout", "2", id)
		took, want := time.Since(begin), map[string]string{"status.state": "CONTAINER_EXITED", "status.exitCode": "7"}
		if name == "stubborn" {
			want["status.exitCode"] = "137"
			if took < 1500*time.Millisecond {
				t.Errorf("killed after %v, within its grace of 2 s", took)
			}
		} else if took > 1500*time.Millisecond {
			t.Errorf("%s took %v to stop", name, took)
		}
		w.object(t, "inspect", id).expect(t, want)
		w.ctl(t, "stop", id)
		w.ctl(t, "rm", id)
	}
}

func rm(t *testing.T, w *walk) {
	w.ctl(t, "rm", w.container)
	if out := w.ctl(t, "ps", "-a", "-q"); out != "" {
		t.Errorf("containers after rm: %q", out)
	}
}

// stopp also ends a container that still runs.
func stopp(t *testing.T, w *walk) {
	id := strings.TrimSpace(w.ctl(t, "create", w.pod,
		containerConfig(t, w.dir, "left", ownPid, "/bin/sh", "-c", "while :; do usleep 50000; done"), filepath.Join(w.dir, "web.json")))
	w.ctl(t, "start", id)
	w.ctl(t, "stopp", w.pod)
	w.ctl(t, "stopp", w.pod)
	w.object(t, "inspectp", w.pod).expect(t, map[string]string{"status.state": "SANDBOX_NOTREADY"})
	w.object(t, "inspect", id).expect(t, map[string]string{"status.state": "CONTAINER_EXITED"})
}

func rmp(t *testing.T, w *walk) {
	w.ctl(t, "rmp", w.pod)
	for _, args := range [][]string{{"pods", "-q"}, {"ps", "-a", "-q"}} {
		if out := w.ctl(t, args...); out != "" {
			t.Errorf("%v after rmp: %q", args, out)
		}
	}
}

// once runs command in a pod of its own and returns its log.
func (w *walk) once(t *testing.T, name string, ns namespaces, command ...string) string {
	t.Helper()
	config := podConfig(t, w.dir, name, ns)
	pod := strings.TrimSpace(w.ctl(t, "runp", config))
	id := strings.TrimSpace(w.ctl(t, "create", pod, containerConfig(t, w.dir, name+"-container", ns, command...), config))
	w.ctl(t, "start", id)
	node.Eventually(t, 10*time.Second, func() error {
		if state := w.object(t, "inspect", id).at("status.state").String(); state != "CONTAINER_EXITED" {
			return fmt.Errorf("%s is %s", name, state)
		}
		return nil
	})
	out := w.ctl(t, "logs", id)
	w.ctl(t, "rmp", "-f", pod)
	return out
}

// sharedPid: the API's zero value. Process 1 is the pod's, not the container's.
func sharedPid(t *testing.T, w *walk) {
	if out := w.once(t, "shared", namespaces{}, "/bin/sh", "-c", "echo $$"); out == "1\n" || out == "" {
		t.Errorf("in a shared pid namespace the container is process %q", out)
	}
	if out := w.once(t, "own", ownPid, "/bin/sh", "-c", "echo $$"); out != "1\n" {
		t.Errorf("in its own pid namespace the container is process %q", out)
	}
}

// hostNetwork compares the namespace's number with ours.
func hostNetwork(t *testing.T, w *walk) {
	ours, err := os.Readlink("/proc/self/ns/net")
	if err != nil {
		t.Fatal(err)
	}
	command := []string{"/bin/readlink", "/proc/self/ns/net"}
	if out := w.once(t, "host", namespaces{"pid": 1, "network": 2}, command...); out != ours+"\n" {
		t.Errorf("on the host network: %q, ours is %s", out, ours)
	}
	if out := w.once(t, "own-net", ownPid, command...); out == ours+"\n" || out == "" {
		t.Errorf("with its own network: %q, ours is %s", out, ours)
	}
}

// wrongIDs: an error names what is missing, and removing twice is none.
func wrongIDs(t *testing.T, w *walk) {
	for _, args := range [][]string{{"inspect", "feed"}, {"inspectp", "feed"}, {"start", "feed"}, {"exec", "-s", "feed", "true"}, {"logs", "feed"}} {
		_, stderr, err := w.run(args...)
		if err == nil || !strings.Contains(stderr, "feed") {
			t.Errorf("%v: %v, %q", args, err, stderr)
		}
	}
	if _, stderr, err := w.run("exec", "-s", "feed", "true"); err == nil || !strings.Contains(stderr, "NotFound") {
		t.Errorf("exec of an unknown container says %q", stderr)
	}
}

func rmi(t *testing.T, w *walk) {
	if out := w.ctl(t, "rmi", demo); !strings.Contains(out, "Deleted: "+demo) {
		t.Errorf("rmi says %q", out)
	}
	if out := w.ctl(t, "images", "-q"); out != "" {
		t.Errorf("images after rmi: %q", out)
	}
}
