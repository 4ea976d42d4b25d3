// SPDX-License-Identifier: Apache-2.0

package cases

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"google.golang.org/grpc/codes"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"crisp/node"
)

// TestRuntimeConfig: addresses for pods are kept, also by the next server, and nonsense is refused.
func TestRuntimeConfig(t *testing.T) {
	s := newScene(t)
	tell := func(cidr string) error {
		_, err := node.Call(s.Runtime.UpdateRuntimeConfig, &cri.UpdateRuntimeConfigRequest{
			RuntimeConfig: &cri.RuntimeConfig{NetworkConfig: &cri.NetworkConfig{PodCidr: cidr}}})
		return err
	}
	kept := func(want string) {
		t.Helper()
		r, _, err := node.Retry(s.Runtime.Status, &cri.StatusRequest{Verbose: true})
		must(t, err)
		if !strings.Contains(r.Info["config"], fmt.Sprintf("%q:%q", "podCIDR", want)) {
			t.Errorf("no %s in %s", want, r.Info["config"])
		}
	}
	must(t, tell("10.1.0.0/24,fd00:1::/64"))
	kept("10.1.0.0/24,fd00:1::/64")
	for _, cidr := range []string{"10.1.0.0", "10.1.0/24", "10.1.0.0/33", "10.1.0.0/24,", "fd00::/129", "\"/8", "10.1.0.0/ 8"} {
		refused(t, tell(cidr), codes.InvalidArgument, "pod_cidr")
	}
	must(t, tell(""))
	s.Kill(t)
	kept("10.1.0.0/24,fd00:1::/64")
}

// TestUnfitNode: where the kernel lacks what containers need, here seccomp, Status says so and what helps.
func TestUnfitNode(t *testing.T) {
	crispd := node.NeedEnv(t, "CRISPD", "crispd, the server")
	wrapper := filepath.Join(t.TempDir(), "unfit")
	must(t, os.WriteFile(wrapper, []byte("#!/bin/sh\nmount -t tmpfs none /proc/sys/kernel/seccomp && exec "+crispd+` "$@"`), 0o755))
	s := node.Start(t, "unshare -m "+wrapper)
	r, err := node.Call(s.Client(t).Runtime.Status, &cri.StatusRequest{})
	must(t, err)
	isTold := slices.ContainsFunc(r.Status.Conditions, func(c *cri.RuntimeCondition) bool {
		return c.Type == cri.RuntimeReady && !c.Status && c.Reason == "NodeUnfit" && strings.Contains(c.Message, "CONFIG_SECCOMP_FILTER")
	})
	if !isTold {
		t.Errorf("%v", r.Status.Conditions)
	}
}
