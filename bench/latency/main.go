// SPDX-License-Identifier: Apache-2.0

// Latency measures what the calls of a pod's life take, what processor time a pod and an exec cost, and
// then what 100 idle pods cost the node.
//
//	latency --address SOCKET --image REFERENCE [--peer SOCKET] [-json]
//
// Pods have the host's network and one container with a pid namespace of its own. With a peer, a
// second CRI server, every pod of one is followed by one of the other, so that both see the same
// machine. Wants root, and an image with /bin/sleep and /bin/true that the servers have already.
//
// Processor time is that of the server, its keeper, whatever helps it and the commands, from a cgroup that
// the server is moved into, with its pods beneath, until the end. It wants the cgroupfs driver.
package main

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"time"

	"crisp/bench/pods"
)

type options struct {
	pods.Options
	pods, up  int
	warm      int
	execs     int
	rate      int
	idle      time.Duration
	asJSON    bool
	addresses []string
}

// result is all that is known of one server.
type result struct {
	Address string           `json:"address"`
	Name    string           `json:"name"`
	Calls   map[string]quant `json:"calls_ms"`
	CPU     *cpu             `json:"cpu,omitempty"`
	Cost    *cost            `json:"cost,omitempty"`
}

func main() {
	o := options{}
	address := flag.String("address", "/run/crisp/crisp.sock", "socket of the CRI server")
	peer := flag.String("peer", "", "socket of a second CRI server, measured in turns with the first")
	flag.StringVar(&o.Image, "image", "docker.io/library/demo:latest", "image with /bin/sleep and /bin/true")
	flag.IntVar(&o.pods, "pods", 100, "pods to measure calls with, one after the other")
	flag.IntVar(&o.up, "up", 100, "pods that are up at once when costs are counted, 0: don't")
	flag.IntVar(&o.execs, "execs", 1000, "ExecSync whose processor time is counted, all over the pods that are up; 0: count none")
	flag.IntVar(&o.rate, "exec-rate", 100, "of these, how many a second")
	flag.DurationVar(&o.idle, "idle", 5*time.Second, "how long to see what a server with idle pods uses")
	flag.IntVar(&o.warm, "warm", 3, "pods that go through first and don't count")
	flag.StringVar(&o.Parent, "cgroup-parent", "", "the pods' cgroup parent (default: the server's)")
	flag.BoolVar(&o.asJSON, "json", false, "print JSON instead of a table")
	flag.Parse()
	o.addresses = []string{*address}
	if *peer != "" {
		o.addresses = append(o.addresses, *peer)
	}
	if err := run(o); err != nil {
		fmt.Fprintln(os.Stderr, "latency:", err)
		os.Exit(1)
	}
}

func run(o options) (err error) {
	o.Logs, err = os.MkdirTemp("", "crisp-latency-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(o.Logs)

	var servers []*server
	for k, address := range o.addresses {
		s, err := dial(address, o, k)
		if err != nil {
			return err
		}
		defer s.close()
		servers = append(servers, s)
	}
	if err := measureCalls(servers, o); err != nil {
		return err
	}
	if o.execs > 0 {
		if err := measureExecs(servers, o); err != nil {
			return err
		}
	}
	results := []result{}
	for _, s := range servers {
		r := result{Address: s.Address, Name: s.Name, Calls: s.quantiles(), CPU: s.cpu}
		if o.up > 0 {
			if r.Cost, err = measureCost(s, o.up); err != nil {
				return err
			}
		}
		results = append(results, r)
	}
	if o.asJSON {
		encoder := json.NewEncoder(os.Stdout)
		encoder.SetIndent("", "  ")
		return encoder.Encode(results)
	}
	printTable(os.Stdout, results)
	return nil
}

// measureCalls takes each server's turn at each pod; who begins alternates.
func measureCalls(servers []*server, o options) error {
	if err := cycles(servers, 0, o.warm); err != nil {
		return err
	}
	m, err := startMeter(servers)
	if err != nil {
		return err
	}
	if err := cycles(servers, o.warm, o.pods); err != nil {
		return err
	}
	used, err := m.stop()
	for i, s := range m.servers {
		s.cpu.Pod = used[i] / float64(o.pods)
	}
	return err
}

// cycles are whole lives of n pods a server; those of the first call don't count.
func cycles(servers []*server, first, n int) error {
	for i := first; i < first+n; i++ {
		for k := range servers {
			s := servers[(i+k)%len(servers)]
			ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
			err := s.cycle(ctx, fmt.Sprintf("latency-%d-%d", os.Getpid(), i), first > 0)
			cancel()
			if err != nil {
				return fmt.Errorf("%s, pod %d: %w", s.Address, i, err)
			}
		}
	}
	return nil
}
