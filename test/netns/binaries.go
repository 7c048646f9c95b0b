// SPDX-License-Identifier: Apache-2.0

package netns

import (
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"
)

// Binaries says where the built programs lie.
type Binaries struct {
	Dir string // culvert, culvertctl: CULVERT_BIN, or bin/ of the repository
	Ref string // reference plugins: bin/ref of the repository
}

// refPlugins are those that the tests delegate to, or compare with.
var refPlugins = []string{"ipam/host-local", "ipam/static", "main/bridge", "main/ptp", "meta/bandwidth", "meta/portmap"}

// FindBinaries finds the binaries that `make build` made. The reference plugins
// are built when they are missing.
func FindBinaries(tb testing.TB) *Binaries {
	tb.Helper()
	root := repository(tb)
	b := &Binaries{Dir: os.Getenv("CULVERT_BIN"), Ref: filepath.Join(root, "bin", "ref")}
	if b.Dir == "" {
		b.Dir = filepath.Join(root, "bin")
	}
	if fi, err := os.Stat(b.Dir); err == nil && !fi.IsDir() {
		b.Dir = filepath.Dir(b.Dir) // the plugin itself was named
	}
	if err := buildRef(root, b.Ref); err != nil {
		tb.Fatalf("build reference plugins (make build does): %v", err)
	}
	return b
}

var building sync.Mutex

func buildRef(root, dir string) error {
	building.Lock()
	defer building.Unlock()
	argv := []string{"build", "-o", dir + "/"}
	missing := false
	for _, p := range refPlugins {
		if _, err := os.Stat(filepath.Join(dir, filepath.Base(p))); err != nil {
			argv, missing = append(argv, "github.com/containernetworking/plugins/plugins/"+p), true
		}
	}
	if _, err := os.Stat(filepath.Join(dir, "routed")); err != nil {
		argv, missing = append(argv, "./test/routed"), true
	}
	if !missing {
		return nil
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	cmd := exec.Command("go", argv...)
	cmd.Dir, cmd.Stderr = root, os.Stderr
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	return cmd.Run()
}

// repository is the directory of go.mod; a test runs in its package's.
func repository(tb testing.TB) string {
	tb.Helper()
	dir, err := os.Getwd()
	if err != nil {
		tb.Fatal(err)
	}
	for at := dir; ; at = filepath.Dir(at) {
		if _, err := os.Stat(filepath.Join(at, "go.mod")); err == nil {
			return at
		}
		if at == filepath.Dir(at) {
			tb.Fatalf("no go.mod above %s", dir)
		}
	}
}
