// SPDX-License-Identifier: Apache-2.0

package grpctest

import (
	"fmt"
	"os"
	"strings"
	"testing"
	"time"
)

// cpuTime is what a process has used so far, user and system.
func cpuTime(t *testing.T, pid int) time.Duration {
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		t.Fatal(err)
	}
	fields := strings.Fields(string(data[strings.LastIndexByte(string(data), ')')+1:]))
	var user, system int64
	fmt.Sscan(fields[11], &user)
	fmt.Sscan(fields[12], &system)
	return time.Duration(user+system) * 10 * time.Millisecond
}

// switches is how often a process gave up the CPU because it had to wait.
func switches(t *testing.T, pid int) (n int) {
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(data), "\nvoluntary_ctxt_switches:")
	fmt.Sscan(rest, &n)
	return n
}
