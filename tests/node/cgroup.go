// SPDX-License-Identifier: Apache-2.0

package node

import (
	"os"
	"path/filepath"
	"strings"
)

const cgroupRoot = "/sys/fs/cgroup"

// CgroupFile is where a limit of a cgroup is, on a node with the version that it has: by its name in
// v1, which begins with the controller's, or in v2.
func CgroupFile(cgroup, v1, v2 string) string {
	controller, _, _ := strings.Cut(v1, ".")
	file := filepath.Join(cgroupRoot, controller, cgroup, v1)
	if _, err := os.Stat(filepath.Join(cgroupRoot, controller)); err == nil {
		return file
	}
	return filepath.Join(cgroupRoot, cgroup, v2)
}

// IsCgroupV2 says whether the node has no v1 controllers.
func IsCgroupV2() bool {
	_, err := os.Stat(filepath.Join(cgroupRoot, "memory"))
	return err != nil
}

// CgroupValue is what such a file holds.
func CgroupValue(cgroup, v1, v2 string) (string, error) {
	raw, err := os.ReadFile(CgroupFile(cgroup, v1, v2))
	return strings.TrimSpace(string(raw)), err
}

// CPUMax is quota and period in microseconds, as cgroup v2 says it: "max 100000", "50000 100000".
func CPUMax(cgroup string) (string, error) {
	quota, err := CgroupValue(cgroup, "cpu.cfs_quota_us", "cpu.max")
	if err != nil || IsCgroupV2() {
		return quota, err
	}
	period, err := CgroupValue(cgroup, "cpu.cfs_period_us", "")
	if quota == "-1" {
		quota = "max"
	}
	return quota + " " + period, err
}
