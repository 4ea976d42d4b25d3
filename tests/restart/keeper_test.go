// SPDX-License-Identifier: Apache-2.0

package restart

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"crisp/node"
)

// replaceKeeper has the keeper execute the program at its path.
func (s *scene) replaceKeeper(t *testing.T) {
	t.Helper()
	const line = "the keeper was replaced and goes on"
	count := func() int {
		log, err := os.ReadFile(filepath.Join(s.Dir, "log"))
		must(t, err)
		return strings.Count(string(log), line)
	}
	before := count()
	must(t, unix.Kill(s.Own()[0], unix.SIGUSR2))
	node.Eventually(t, 20*time.Second, func() error {
		if count() == before {
			return fmt.Errorf("the keeper was not replaced")
		}
		return nil
	})
}
