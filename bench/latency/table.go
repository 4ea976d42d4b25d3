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
		header += "ratio\t"
	}
	fmt.Fprintln(w, header)
	for _, name := range calls {
		line := name + "\t"
		for _, r := range results {
			q := r.Calls[name]
			line += fmt.Sprintf("%.2f\t%.2f\t%.2f\t", q.P50, q.P99, q.Max)
		}
		if len(results) > 1 {
			line += ratio(results[1].Calls[name].P50, results[0].Calls[name].P50)
		}
		fmt.Fprintln(w, line)
	}
	if results[0].CPU != nil {
		printCPU(w, results)
	}
	for _, r := range results {
		if r.Cost != nil {
			printCost(w, r)
		}
	}
}

// ratio is a cell that is empty where ours is too small to be seen.
func ratio(peer, ours float64) string {
	if ours <= 0 {
		return "\t"
	}
	return fmt.Sprintf("%.1f\t", peer/ours)
}

// printCPU is what no quantiles are known of.
func printCPU(w io.Writer, results []result) {
	line := func(what, format string, of func(*cpu) float64) {
		text := what + "\t"
		for _, r := range results {
			text += fmt.Sprintf(format+"\t\t\t", of(r.CPU))
		}
		if len(results) > 1 {
			text += ratio(of(results[1].CPU), of(results[0].CPU))
		}
		fmt.Fprintln(w, text)
	}
	line("CPU of a pod's life", "%.2f", func(c *cpu) float64 { return c.Pod })
	line("CPU an exec", "%.3f", func(c *cpu) float64 { return c.Exec })
	line("CPU when idle, % of one", "%.3f", func(c *cpu) float64 { return c.Idle })
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
