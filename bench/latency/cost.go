// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"crisp/bench/pods"
)

// cost is what pods that do nothing take from the node, beside their own processes.
type cost struct {
	Pods            int            `json:"pods"`
	ServerProcesses int            `json:"server_processes"` // the server, and its keeper
	ServerThreads   int            `json:"server_threads"`
	ServerPSS       int            `json:"server_pss_kib"`
	ContainersSeen  int            `json:"container_processes"`
	Others          map[string]int `json:"other_processes,omitempty"` // that came with the pods, by name
	PSSPerPod       float64        `json:"pss_per_pod_kib"`           // growth of the server, and the others
	ThreadsPerPod   float64        `json:"threads_per_pod"`
	ServerFDsPerPod float64        `json:"server_fds_per_pod"`
	KeeperFDsPerPod float64        `json:"keeper_fds_per_pod"`
	HostMounts      int            `json:"host_mounts_gained"`
	PipeBytes       int            `json:"pipe_bytes_without_capabilities"`
	LeftFDs         int            `json:"fds_left_after_removal"`
	LeftHostMounts  int            `json:"host_mounts_left_after_removal"`
	HasKeeper       bool           `json:"has_keeper"`
	SecondsUp       float64        `json:"seconds_up"`
	SecondsDown     float64        `json:"seconds_down"`
}

// usage is one look at the node.
type usage struct {
	processes            map[int]string // pid → name
	parents              map[int]int
	pss, threads         map[int]int
	serverFDs, keeperFDs int
	mounts               int
}

func (s *server) look() usage {
	u := usage{processes: map[int]string{}, parents: map[int]int{}, pss: map[int]int{}, threads: map[int]int{}}
	dirs, _ := filepath.Glob("/proc/[0-9]*")
	for _, dir := range dirs {
		pid, _ := strconv.Atoi(filepath.Base(dir))
		name, err := os.ReadFile(dir + "/comm")
		cmdline, _ := os.ReadFile(dir + "/cmdline")
		if err != nil || len(cmdline) == 0 { // a kernel thread, or a zombie
			continue
		}
		u.processes[pid] = strings.TrimSpace(string(name))
		u.parents[pid] = pods.ParentOf(pid)
		u.pss[pid] = pods.Field(dir+"/smaps_rollup", "Pss:")
		u.threads[pid] = pods.Field(dir+"/status", "Threads:")
	}
	u.serverFDs = entries(fmt.Sprintf("/proc/%d/fd", s.Pid))
	if keeper := s.Keeper(); keeper != 0 {
		u.keeperFDs = entries(fmt.Sprintf("/proc/%d/fd", keeper))
	}
	mounts, _ := os.ReadFile("/proc/self/mountinfo")
	u.mounts = bytes.Count(mounts, []byte("\n"))
	return u
}

// isStrange says whether a process came from one that was there before and is neither the server nor its
// keeper nor PID 1: others use the machine, too.
func (u usage) isStrange(before usage, pid, server, keeper int) bool {
	for pid != 0 && pid != 1 && pid != server && pid != keeper {
		if _, known := before.processes[pid]; known {
			return true
		}
		pid = u.parents[pid]
	}
	return false
}

func measureCost(s *server, n int) (*cost, error) {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Minute)
	defer cancel()
	before := s.look()
	begin := time.Now()
	up := make([]pods.Pod, 0, n)
	for i := range n {
		p, err := s.up(ctx, fmt.Sprintf("latency-%d-up-%d", os.Getpid(), i), false)
		if err != nil {
			return nil, fmt.Errorf("%s, pod %d of %d: %w", s.Address, i, n, err)
		}
		up = append(up, p)
	}
	c := &cost{Pods: n, SecondsUp: time.Since(begin).Seconds()}
	c.compare(s, before, s.look())
	var err error
	if c.PipeBytes, err = pipeWithoutCapabilities(); err != nil {
		return nil, err
	}
	begin = time.Now()
	for i, p := range up {
		if err := s.down(ctx, p, false); err != nil {
			return nil, fmt.Errorf("%s, pod %d: %w", s.Address, i, err)
		}
	}
	c.SecondsDown = time.Since(begin).Seconds()
	time.Sleep(500 * time.Millisecond) // directories and descriptors go behind the reply
	after := s.look()
	c.LeftFDs = after.serverFDs + after.keeperFDs - before.serverFDs - before.keeperFDs
	c.LeftHostMounts = after.mounts - before.mounts
	return c, nil
}

func (c *cost) compare(s *server, before, after usage) {
	count := float64(c.Pods)
	c.HostMounts = after.mounts - before.mounts
	c.ServerFDsPerPod = float64(after.serverFDs-before.serverFDs) / count
	c.KeeperFDsPerPod = float64(after.keeperFDs-before.keeperFDs) / count
	keeper := s.Keeper()
	c.HasKeeper = keeper != 0
	pss, threads := 0, 0
	for pid, name := range after.processes {
		_, known := before.processes[pid]
		switch {
		case pid == s.Pid || pid == keeper:
			c.ServerProcesses++
			c.ServerThreads += after.threads[pid]
			c.ServerPSS += after.pss[pid]
			pss += after.pss[pid] - before.pss[pid]
			threads += after.threads[pid] - before.threads[pid]
		case known || after.isStrange(before, pid, s.Pid, keeper):
		case name == "sleep":
			c.ContainersSeen++
		default:
			if c.Others == nil {
				c.Others = map[string]int{}
			}
			c.Others[name]++
			pss += after.pss[pid]
			threads += after.threads[pid]
		}
	}
	c.PSSPerPod = float64(pss) / count
	c.ThreadsPerPod = float64(threads) / count
}

// pipeWithoutCapabilities is the size of a new pipe for a root process that is not privileged: what
// others took from the user's share of pipe memory would shrink it.
func pipeWithoutCapabilities() (int, error) {
	type answer struct {
		size int
		err  error
	}
	answers := make(chan answer)
	go func() {
		// never unlocked: the thread ends with the goroutine, and nobody else gets it
		runtime.LockOSThread()
		header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
		var none [2]unix.CapUserData
		if err := unix.Capset(&header, &none[0]); err != nil {
			answers <- answer{err: fmt.Errorf("capset: %w", err)}
			return
		}
		var ends [2]int
		if err := unix.Pipe2(ends[:], unix.O_CLOEXEC); err != nil {
			answers <- answer{err: fmt.Errorf("pipe2: %w", err)}
			return
		}
		size, err := unix.FcntlInt(uintptr(ends[0]), unix.F_GETPIPE_SZ, 0)
		unix.Close(ends[0])
		unix.Close(ends[1])
		answers <- answer{size, err}
	}()
	a := <-answers
	return a.size, a.err
}

func entries(dir string) int {
	list, _ := os.ReadDir(dir)
	return len(list)
}
