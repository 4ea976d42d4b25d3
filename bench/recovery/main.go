// SPDX-License-Identifier: Apache-2.0

// Recovery measures how soon a killed server is back with all its pods.
//
//	recovery --address SOCKET [--pods 1000] [--kills 5] [-json]
//
// Brings pods up (the host's network, one container each with a pid namespace of its own), then kills
// the server with SIGKILL again and again; its keeper starts the next one. Wants root, a crispd with
// --keep and an image with /bin/sleep: tests/with-crispd gives it a server of its own.
package main

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"net"
	"os"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"golang.org/x/sys/unix"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"crisp/bench/pods"
)

// life is what one server took, in milliseconds since its execution, and what it is afterwards.
type life struct {
	Killed     float64 `json:"kill_to_exec_ms"` // the old one's end, and the keeper
	Version    float64 `json:"version_ms"`
	List       float64 `json:"list_ms"` // of all sandboxes and all containers
	Reconciled float64 `json:"reconciled_ms"`
	RSS        int     `json:"rss_kib"`
	PeakRSS    int     `json:"peak_rss_kib"`
	PSS        int     `json:"pss_kib"`
	Threads    int     `json:"threads"`
}

func main() {
	address := flag.String("address", "/run/crisp/crisp.sock", "socket of the CRI server")
	count := flag.Int("pods", 1000, "pods that are up")
	kills := flag.Int("kills", 5, "how often the server is killed")
	asJSON := flag.Bool("json", false, "print JSON instead of a table")
	image := flag.String("image", "docker.io/library/demo:latest", "image with /bin/sleep")
	flag.Parse()
	lives, err := run(*address, *image, *count, *kills)
	if err != nil {
		fail(err)
	}
	if *asJSON {
		encoder := json.NewEncoder(os.Stdout)
		encoder.SetIndent("", "  ")
		_ = encoder.Encode(lives)
		return
	}
	printTable(*count, lives)
}

func fail(err error) {
	fmt.Fprintln(os.Stderr, "recovery:", err)
	os.Exit(1)
}

func run(address, image string, count, kills int) ([]life, error) {
	logs, err := os.MkdirTemp("", "crisp-recovery-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(logs)
	o := pods.Options{Image: image, Logs: logs}
	s, err := pods.Dial(address, o)
	if err != nil {
		return nil, err
	}
	defer s.Close()
	keeper := s.Keeper()
	if keeper == 0 {
		return nil, fmt.Errorf("the server at %s has no keeper: start it with --keep", address)
	}
	for i := range count {
		if err := up(s, fmt.Sprintf("recovery-%d-%d", os.Getpid(), i)); err != nil {
			return nil, fmt.Errorf("pod %d of %d: %w", i, count, err)
		}
	}
	var lives []life
	for range kills {
		l, err := measure(s.Address, keeper, count)
		if err != nil {
			return nil, err
		}
		lives = append(lives, l)
	}
	return lives, nil
}

func up(s *pods.Server, name string) error {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	_, err := s.Up(ctx, name, func(call string, f func() error) error { return f() })
	return err
}

// measure kills the server and watches the next one come.
func measure(address string, keeper, count int) (life, error) {
	var l life
	old, err := pods.Listener(address)
	if err != nil {
		return l, err
	}
	killed := time.Now()
	if err := unix.Kill(old, unix.SIGKILL); err != nil {
		return l, err
	}
	pid, begin, err := awaitExec(keeper, old)
	if err != nil {
		return l, err
	}
	since := func() float64 { return float64(time.Since(begin)) / float64(time.Millisecond) }
	l.Killed = float64(begin.Sub(killed)) / float64(time.Millisecond)
	if err := awaitSocket(address); err != nil {
		return l, err
	}
	conn, err := grpc.NewClient("unix://"+address, grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(80<<20)))
	if err != nil {
		return l, err
	}
	defer conn.Close()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	client := cri.NewRuntimeServiceClient(conn)
	if _, err := client.Version(ctx, &cri.VersionRequest{}); err != nil {
		return l, err
	}
	l.Version = since()
	if err := list(ctx, client, count); err != nil {
		return l, err
	}
	l.List = since()
	if err := awaitReconciled(ctx, client); err != nil {
		return l, err
	}
	l.Reconciled = since()
	status := fmt.Sprintf("/proc/%d/status", pid)
	l.RSS = pods.Field(status, "VmRSS:")
	l.PeakRSS = pods.Field(status, "VmHWM:")
	l.Threads = pods.Field(status, "Threads:")
	l.PSS = pods.Field(fmt.Sprintf("/proc/%d/smaps_rollup", pid), "Pss:")
	return l, nil
}

// awaitExec returns when the keeper has a new child that is no copy of itself any more. There is no
// event for that, so it looks all the time.
func awaitExec(keeper, old int) (int, time.Time, error) {
	children := fmt.Sprintf("/proc/%d/task/%d/children", keeper, keeper)
	for end := time.Now().Add(30 * time.Second); time.Now().Before(end); {
		raw, err := os.ReadFile(children)
		if err != nil {
			return 0, time.Time{}, err
		}
		for _, text := range strings.Fields(string(raw)) {
			pid, _ := strconv.Atoi(text)
			command, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
			if pid != old && strings.Contains(string(command), "--listen") && !pods.IsKeeper(pid) {
				return pid, time.Now(), nil
			}
		}
	}
	return 0, time.Time{}, fmt.Errorf("keeper %d starts no server", keeper)
}

func awaitSocket(address string) error {
	for end := time.Now().Add(30 * time.Second); ; time.Sleep(200 * time.Microsecond) {
		conn, err := net.Dial("unix", address)
		if err == nil {
			return conn.Close()
		}
		if time.Now().After(end) {
			return err
		}
	}
}

func list(ctx context.Context, client cri.RuntimeServiceClient, count int) error {
	sandboxes, err := client.ListPodSandbox(ctx, &cri.ListPodSandboxRequest{})
	if err != nil {
		return err
	}
	containers, err := client.ListContainers(ctx, &cri.ListContainersRequest{})
	if err != nil {
		return err
	}
	if len(sandboxes.Items) < count || len(containers.Containers) < count {
		return fmt.Errorf("%d sandboxes and %d containers are listed, not %d", len(sandboxes.Items), len(containers.Containers), count)
	}
	return nil
}

func awaitReconciled(ctx context.Context, client cri.RuntimeServiceClient) error {
	for ; ; time.Sleep(2 * time.Millisecond) {
		status, err := client.Status(ctx, &cri.StatusRequest{Verbose: true})
		if err != nil {
			return err
		}
		var info struct{ Recovering *int }
		if err := json.Unmarshal([]byte(status.Info["config"]), &info); err != nil || info.Recovering == nil {
			return fmt.Errorf("Status does not tell how many objects are being recovered: %v", err)
		}
		if *info.Recovering == 0 {
			return nil
		}
	}
}

func printTable(count int, lives []life) {
	w := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', tabwriter.AlignRight)
	defer w.Flush()
	fmt.Fprintf(w, "%d pods, killed %d times\tp50\tmax\t\n", count, len(lives))
	line := func(name string, of func(life) float64) {
		values := make([]float64, 0, len(lives))
		for _, l := range lives {
			values = append(values, of(l))
		}
		slices.Sort(values)
		fmt.Fprintf(w, "%s\t%.1f\t%.1f\t\n", name, values[len(values)/2], values[len(values)-1])
	}
	line("from kill -9 to exec of the next (the keeper backs off), ms", func(l life) float64 { return l.Killed })
	line("from exec to Version, ms", func(l life) float64 { return l.Version })
	line("from exec to both Lists, ms", func(l life) float64 { return l.List })
	line("from exec to all reconciled, ms", func(l life) float64 { return l.Reconciled })
	line("then RSS, KiB", func(l life) float64 { return float64(l.RSS) })
	line("its peak, KiB", func(l life) float64 { return float64(l.PeakRSS) })
	line("PSS, KiB", func(l life) float64 { return float64(l.PSS) })
	line("threads", func(l life) float64 { return float64(l.Threads) })
}
