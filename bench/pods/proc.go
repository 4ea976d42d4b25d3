// SPDX-License-Identifier: Apache-2.0

package pods

import (
	"bytes"
	"fmt"
	"os"
	"strconv"
	"strings"
)

// Field is the first number behind key in a file of lines "key number …"; 0 if it isn't there.
func Field(path, key string) int {
	raw, _ := os.ReadFile(path)
	for line := range strings.Lines(string(raw)) {
		if rest, found := strings.CutPrefix(line, key); found {
			n, _ := strconv.Atoi(strings.Fields(rest)[0])
			return n
		}
	}
	return 0
}

// ParentOf is a process's parent.
func ParentOf(pid int) int {
	return Field(fmt.Sprintf("/proc/%d/status", pid), "PPid:")
}

// IsKeeper says whether a process is a crispd that was started with --keep.
func IsKeeper(pid int) bool {
	command, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
	return bytes.Contains(command, []byte("crispd\x00")) && bytes.Contains(command, []byte("\x00--keep\x00"))
}

// Keeper is the parent of the server if it was started as one; 0 without.
func (s *Server) Keeper() int {
	if parent := ParentOf(s.Pid); IsKeeper(parent) {
		return parent
	}
	return 0
}
