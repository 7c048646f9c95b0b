// SPDX-License-Identifier: Apache-2.0

package footprint

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/culvert-cni/culvert/test/netns"
)

func TestSizes(t *testing.T) {
	dir := t.TempDir()
	for name, bytes := range map[string]int{"a": 1e6, "b": 5e5} {
		if err := os.WriteFile(filepath.Join(dir, name), make([]byte, bytes), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if mb, err := sizes(dir, []string{"a", "b"}); err != nil || mb != 1.5 {
		t.Errorf("%v MB, %v, want 1.5", mb, err)
	}
	if _, err := sizes(dir, []string{"c"}); err == nil {
		t.Error("a plugin that is not there has a size")
	}
}

// A plugin that stays is seen.
func TestProcesses(t *testing.T) {
	netns.RequireRoot(t) // to read whose process it is
	dir := t.TempDir()
	sleep, err := exec.LookPath("sleep")
	if err != nil {
		t.Skip(err)
	}
	b, err := os.ReadFile(sleep)
	if err == nil {
		err = os.WriteFile(filepath.Join(dir, "culvert"), b, 0o755)
	}
	if err != nil {
		t.Fatal(err)
	}
	for want := range 2 {
		if n, err := processes(dir); err != nil || n != want {
			t.Errorf("%d processes, %v, want %d", n, err, want)
		}
		cmd := exec.Command(filepath.Join(dir, "culvert"), "60")
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		defer func() { _ = cmd.Process.Kill(); _ = cmd.Wait() }()
	}
}
