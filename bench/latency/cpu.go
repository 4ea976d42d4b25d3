// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"crisp/bench/pods"
)

// cpu is processor time, of a server with its keeper, its helpers and the commands of its pods.
type cpu struct {
	Pod   float64 `json:"pod_ms"`  // a pod's whole life, one exec in it
	Exec  float64 `json:"exec_ms"` // one ExecSync of `true`, without what the server uses anyway
	Execs int     `json:"execs"`
	Idle  float64 `json:"idle_percent"` // of one processor, with all pods up and nothing to do
}

// account is a cgroup that a server and its keeper are in as long as they are measured, with the server's
// pods beneath it: the kernel adds up there what they and all that comes from them use, also those that
// somebody else reaps.
type account struct {
	name   string
	dir    string         // where time is counted
	leaf   string         // of the server: in cgroup v2 a group with groups beneath has no processes
	root   string         // where the hierarchy is mounted
	before map[int]string // pid → its cgroup until then
	isV2   bool
}

// hierarchies are where cgroups are mounted, and which of them counts processor time.
func hierarchies() (all []string, counting string, isV2 bool, err error) {
	mounts, err := os.ReadFile("/proc/self/mounts")
	if err != nil {
		return nil, "", false, err
	}
	unified := ""
	for line := range strings.Lines(string(mounts)) {
		field := strings.Fields(line)
		switch {
		case field[2] == "cgroup2":
			unified = field[1]
		case field[2] != "cgroup":
			continue
		case slices.Contains(strings.Split(field[3], ","), "cpuacct"):
			counting = field[1]
		}
		all = append(all, field[1])
	}
	if counting == "" {
		counting, isV2 = unified, true
	}
	if counting == "" {
		err = errors.New("no cgroup hierarchy counts processor time")
	}
	return all, counting, isV2, err
}

// newAccount makes one of a name that is the cgroup parent of the server's pods.
func newAccount(name string, server *pods.Server) (a *account, err error) {
	a = &account{name: name, before: map[int]string{}}
	if _, a.root, a.isV2, err = hierarchies(); err != nil {
		return nil, err
	}
	a.dir = filepath.Join(a.root, name)
	a.leaf = filepath.Join(a.dir, "server")
	if err := os.MkdirAll(a.leaf, 0o755); err != nil {
		return nil, err
	}
	for _, pid := range []int{server.Pid, server.Keeper()} {
		switch pid {
		case 0:
			continue
		case 1:
			a.close()
			return nil, fmt.Errorf("%s: PID 1 listens there, whose processor time is that of others, too: use --execs 0", server.Address)
		}
		if a.before[pid], err = cgroupOf(pid, a.isV2); err == nil {
			err = move(a.leaf, pid)
		}
		if err != nil {
			a.close()
			return nil, fmt.Errorf("%s, process %d: %w", server.Address, pid, err)
		}
	}
	return a, nil
}

// cgroupOf is where a process is in the hierarchy that counts.
func cgroupOf(pid int, isV2 bool) (string, error) {
	raw, err := os.ReadFile(fmt.Sprintf("/proc/%d/cgroup", pid))
	for line := range strings.Lines(string(raw)) {
		field := strings.SplitN(strings.TrimSpace(line), ":", 3)
		if isV2 && field[0] == "0" || slices.Contains(strings.Split(field[1], ","), "cpuacct") {
			return field[2], nil
		}
	}
	return "/", err
}

func move(dir string, pid int) error {
	return os.WriteFile(filepath.Join(dir, "cgroup.procs"), []byte(strconv.Itoa(pid)), 0)
}

// close puts the server back to where it was, with all that came from it meanwhile.
func (a *account) close() {
	home := "/"
	for pid, cgroup := range a.before {
		home = cgroup
		_ = move(filepath.Join(a.root, cgroup), pid)
	}
	err := errors.New("it was not tried")
	for i := 0; err != nil && i < 100; i++ {
		rest, _ := os.ReadFile(filepath.Join(a.leaf, "cgroup.procs"))
		for _, text := range strings.Fields(string(rest)) {
			pid, _ := strconv.Atoi(text)
			_ = move(filepath.Join(a.root, home), pid)
		}
		_ = os.Remove(a.leaf)
		if err = removeEverywhere(a.name); err != nil {
			time.Sleep(20 * time.Millisecond) // the pods' own go behind the reply
		}
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "latency:", err)
	}
}

// removeEverywhere is for a group that the server has made in each hierarchy.
func removeEverywhere(name string) error {
	all, _, _, err := hierarchies()
	for _, root := range all {
		if e := os.Remove(filepath.Join(root, name)); e != nil && !errors.Is(e, os.ErrNotExist) {
			err = e
		}
	}
	return err
}

// used is the processor time of all who ever were in the account.
func (a *account) used() (time.Duration, error) {
	if !a.isV2 {
		raw, err := os.ReadFile(filepath.Join(a.dir, "cpuacct.usage"))
		if err != nil {
			return 0, err
		}
		ns, err := strconv.ParseInt(strings.TrimSpace(string(raw)), 10, 64)
		return time.Duration(ns), err
	}
	stat := filepath.Join(a.dir, "cpu.stat")
	if _, err := os.Stat(stat); err != nil {
		return 0, err
	}
	return time.Duration(pods.Field(stat, "usage_usec")) * time.Microsecond, nil
}

// meter is the processor time of a while, of servers that have an account.
type meter struct {
	servers []*server
	begin   []time.Duration
}

func startMeter(servers []*server) (*meter, error) {
	m := &meter{}
	for _, s := range servers {
		if s.account == nil {
			continue
		}
		used, err := s.account.used()
		if err != nil {
			return nil, err
		}
		m.servers = append(m.servers, s)
		m.begin = append(m.begin, used)
	}
	return m, nil
}

// stop is each server's time in ms, once what goes on behind the last reply is done.
func (m *meter) stop() ([]float64, error) {
	if len(m.servers) > 0 {
		time.Sleep(time.Second)
	}
	used := make([]float64, len(m.servers))
	for i, s := range m.servers {
		now, err := s.account.used()
		if err != nil {
			return nil, err
		}
		used[i] = float64(now-m.begin[i]) / float64(time.Millisecond)
	}
	return used, nil
}

// measureExecs has each server execute `true` in each of its pods again and again, in turns, rate a
// second: like the probes of a node. What a server uses while it does nothing is told apart.
func measureExecs(servers []*server, o options) (err error) {
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Minute)
	defer cancel()
	up := make([][]pods.Pod, len(servers))
	for i, s := range servers {
		for k := range min(o.execs, max(o.up, 1)) {
			p, err := s.up(ctx, fmt.Sprintf("latency-%d-exec-%d", os.Getpid(), k), false)
			if err != nil {
				return fmt.Errorf("%s, pod %d: %w", s.Address, k, err)
			}
			up[i] = append(up[i], p)
		}
	}
	time.Sleep(time.Second)
	idle, err := startMeter(servers)
	if err != nil {
		return err
	}
	begin := time.Now()
	time.Sleep(o.idle)
	rest, err := idle.stop()
	if err != nil {
		return err
	}
	seconds := time.Since(begin).Seconds()
	for i, s := range servers {
		s.cpu.Idle = rest[i] / seconds / 10
	}
	if err := execEverywhere(ctx, servers, up, o); err != nil {
		return err
	}
	for i, s := range servers {
		for _, p := range up[i] {
			if err := s.down(ctx, p, false); err != nil {
				return err
			}
		}
	}
	return nil
}

func execEverywhere(ctx context.Context, servers []*server, up [][]pods.Pod, o options) error {
	m, err := startMeter(servers)
	if err != nil {
		return err
	}
	begin := time.Now()
	for k := range o.execs {
		time.Sleep(time.Until(begin.Add(time.Duration(k) * time.Second / time.Duration(o.rate))))
		for i := range servers {
			i = (i + k) % len(servers)
			if err := servers[i].execTrue(ctx, up[i][k%len(up[i])]); err != nil {
				return err
			}
		}
	}
	used, err := m.stop()
	if err != nil {
		return err
	}
	seconds := time.Since(begin).Seconds()
	for i, s := range servers {
		s.cpu.Execs = o.execs
		s.cpu.Exec = (used[i] - s.cpu.Idle*10*seconds) / float64(o.execs)
	}
	return nil
}
