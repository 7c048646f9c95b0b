// SPDX-License-Identifier: Apache-2.0

package netns

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// bpffs is where the tests' pin directories lie, each named after its process.
const (
	bpffs     = "/sys/fs/bpf"
	pinPrefix = "culvert-test-"
)

// PinPath makes a directory on bpffs that is gone when the test is. What a
// killed test process left there is removed on the way.
func PinPath(tb testing.TB) string {
	tb.Helper()
	dir := makePins(tb)
	tb.Cleanup(func() {
		if err := os.RemoveAll(dir); err != nil {
			tb.Errorf("remove pins: %v", err)
		}
	})
	return dir
}

func makePins(tb testing.TB) string {
	tb.Helper()
	RequireRoot(tb)
	if err := mountBPF(); err != nil {
		tb.Fatal(err)
	}
	removeStalePins()
	dir, err := os.MkdirTemp(bpffs, fmt.Sprintf("%s%d-", pinPrefix, os.Getpid()))
	if err != nil {
		tb.Fatalf("make pin directory: %v", err)
	}
	return dir
}

func mountBPF() error {
	var fs unix.Statfs_t
	if err := unix.Statfs(bpffs, &fs); err != nil {
		return fmt.Errorf("look at %s: %w", bpffs, err)
	}
	if uint32(fs.Type) == unix.BPF_FS_MAGIC {
		return nil
	}
	if err := unix.Mount("bpf", bpffs, "bpf", 0, "mode=0700"); err != nil {
		return fmt.Errorf("mount %s: %w", bpffs, err)
	}
	return nil
}

func removeStalePins() {
	dirs, _ := filepath.Glob(filepath.Join(bpffs, pinPrefix+"*"))
	for _, dir := range dirs {
		pid, _, _ := strings.Cut(strings.TrimPrefix(filepath.Base(dir), pinPrefix), "-")
		if n, err := strconv.Atoi(pid); err == nil && unix.Kill(n, 0) == unix.ESRCH {
			_ = os.RemoveAll(dir)
		}
	}
}
