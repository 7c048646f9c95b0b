// SPDX-License-Identifier: Apache-2.0

package soak

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
)

// group is a memory cgroup that the verbs run in. What the kernel keeps of what they made
// (devices, routes, maps, pins) stays charged to it when they are gone, and nothing else
// on the machine is.
type group struct {
	dir string // "": the machine has no such thing
	v1  bool
}

// newGroup is gone when the test is.
func newGroup(t *testing.T) group {
	t.Helper()
	g := group{dir: "/sys/fs/cgroup/memory", v1: true}
	if _, err := os.Stat(filepath.Join(g.dir, "memory.kmem.usage_in_bytes")); err != nil {
		g = group{dir: "/sys/fs/cgroup"}
		on, err := os.ReadFile(filepath.Join(g.dir, "cgroup.subtree_control"))
		if err != nil || !strings.Contains(string(on), "memory") {
			return group{}
		}
	}
	g.dir = filepath.Join(g.dir, fmt.Sprintf("culvert-soak-%d", os.Getpid()))
	if err := os.Mkdir(g.dir, 0o755); err != nil {
		t.Logf("the kernel's memory is not weighed: %v", err)
		return group{}
	}
	t.Cleanup(func() {
		if err := os.Remove(g.dir); err != nil {
			t.Error(err)
		}
	})
	return g
}

// command has the program join the group before it starts.
func (g group) command(argv ...string) *exec.Cmd {
	if g.dir == "" {
		return exec.Command(argv[0], argv[1:]...)
	}
	join := []string{"-c", `echo $$ >"$0/cgroup.procs" && exec "$@"`, g.dir}
	return exec.Command("/bin/sh", append(join, argv...)...)
}

// weigh is the kernel's memory in bytes, without what it gives back when asked, if it tells.
func (g group) weigh() (uint64, error) {
	if g.dir == "" {
		return 0, nil
	}
	if g.v1 {
		b, err := os.ReadFile(filepath.Join(g.dir, "memory.kmem.usage_in_bytes"))
		if err != nil {
			return 0, err
		}
		return strconv.ParseUint(strings.TrimSpace(string(b)), 10, 64)
	}
	b, err := os.ReadFile(filepath.Join(g.dir, "memory.stat"))
	var kernel, reclaimable uint64
	for line := range strings.Lines(string(b)) {
		var name string
		var bytes uint64
		_, _ = fmt.Sscan(line, &name, &bytes)
		switch name {
		case "kernel":
			kernel = bytes
		case "slab_reclaimable":
			reclaimable = bytes
		}
	}
	return kernel - reclaimable, err
}
