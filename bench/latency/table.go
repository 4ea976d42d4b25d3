// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"io"
	"slices"
	"text/tabwriter"
	"time"
)

// quant is in milliseconds.
type quant struct {
	P50 float64 `json:"p50"`
	P99 float64 `json:"p99"`
	Max float64 `json:"max"`
	N   int     `json:"n"`
}

func (s *server) quantiles() map[string]quant {
	all := map[string]quant{}
	for name, samples := range s.samples {
		slices.Sort(samples)
		n := len(samples)
		at := func(i int) float64 { return float64(samples[i]) / float64(time.Millisecond) }
		all[name] = quant{P50: at(n / 2), P99: at((n*99+99)/100 - 1), Max: at(n - 1), N: n}
	}
	return all
}

func printTable(to io.Writer, results []result) {
	w := tabwriter.NewWriter(to, 0, 0, 2, ' ', tabwriter.AlignRight)
	defer w.Flush()
	header := "ms\t"
	for _, r := range results {
		header += fmt.Sprintf("%s p50\tp99\tmax\t", r.Name)
	}
	if len(results) > 1 {
		header += "p50 ratio\t"
	}
	fmt.Fprintln(w, header)
	for _, name := range calls {
		line := name + "\t"
		for _, r := range results {
			q := r.Calls[name]
			line += fmt.Sprintf("%.2f\t%.2f\t%.2f\t", q.P50, q.P99, q.Max)
		}
		if len(results) > 1 {
			line += fmt.Sprintf("%.1f\t", results[1].Calls[name].P50/results[0].Calls[name].P50)
		}
		fmt.Fprintln(w, line)
	}
	for _, r := range results {
		if r.Cost != nil {
			printCost(w, r)
		}
	}
}

func printCost(w io.Writer, r result) {
	c := r.Cost
	line := func(what, format string, args ...any) {
		fmt.Fprintf(w, "%s\t%s\t\n", what, fmt.Sprintf(format, args...))
	}
	fmt.Fprintf(w, "\t\t\n%s, %d pods up\t\t\n", r.Name, c.Pods)
	line("server processes (keeper: "+map[bool]string{true: "yes", false: "no"}[c.HasKeeper]+")", "%d", c.ServerProcesses)
	line("their threads", "%d", c.ServerThreads)
	line("their PSS, KiB", "%d", c.ServerPSS)
	line("container processes", "%d", c.ContainersSeen)
	line("other processes that came", "%v", c.Others)
	line("PSS a pod beside the container, KiB", "%.1f", c.PSSPerPod)
	line("threads a pod beside the container", "%.2f", c.ThreadsPerPod)
	line("descriptors a pod, server", "%.2f", c.ServerFDsPerPod)
	line("descriptors a pod, keeper", "%.2f", c.KeeperFDsPerPod)
	line("host mounts gained", "%d", c.HostMounts)
	line("pipe without capabilities, bytes", "%d", c.PipeBytes)
	line("descriptors left after removal", "%d", c.LeftFDs)
	line("host mounts left after removal", "%d", c.LeftHostMounts)
	line("seconds up, down", "%.2f, %.2f", c.SecondsUp, c.SecondsDown)
}
