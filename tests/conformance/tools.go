// SPDX-License-Identifier: Apache-2.0

//go:build tools

// Keeps the modules that build makes crictl and critest from in go.mod.
package conformance

import (
	_ "sigs.k8s.io/cri-tools/cmd/crictl"
	_ "sigs.k8s.io/cri-tools/pkg/validate"
)
