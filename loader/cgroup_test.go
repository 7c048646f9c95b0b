// SPDX-License-Identifier: Apache-2.0

package loader

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestCgroupMount(t *testing.T) {
	const (
		v1     = "30 24 0:26 / /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu\n"
		bind   = "31 24 0:27 /a/b /mnt rw shared:1 - cgroup2 cgroup2 rw\n"
		v2     = "32 24 0:27 / /sys/fs/cgroup/unified rw,nosuid shared:9 master:1 - cgroup2 cgroup2 rw,nsdelegate\n"
		spaced = "33 24 0:27 / /mnt/a\\040b rw - cgroup2 none rw\n"
	)
	for mounts, want := range map[string]string{
		strings.Repeat("x", 1<<17) + "\n" + v2: "/sys/fs/cgroup/unified",
		"":                                     "", v1: "", v1 + bind: "", v1 + bind + v2: "/sys/fs/cgroup/unified", spaced + v2: "/mnt/a b", "cut - cgroup2 x\n": "",
	} {
		file := filepath.Join(t.TempDir(), "mountinfo")
		if err := os.WriteFile(file, []byte(mounts), 0o600); err != nil {
			t.Fatal(err)
		}
		if got, err := cgroupMount([]string{t.TempDir()}, file); got != want || err != nil {
			t.Errorf("%q: got %q, %v, want %q", mounts, got, err, want)
		}
	}
}

// The usual places are as good as the list of mounts, and a cgroup below is no root.
func TestPrivilegedCgroupRoot(t *testing.T) {
	root, err := cgroupMount(nil, "/proc/self/mountinfo")
	if err != nil {
		t.Fatal(err)
	}
	if root == "" {
		t.Skip("no cgroups v2 are mounted")
	}
	below := filepath.Join(root, fmt.Sprintf("culvert-test-%d", os.Getpid()))
	if err := os.Mkdir(below, 0o700); err != nil {
		t.Fatal(err)
	}
	defer os.Remove(below)
	got, err := cgroupMount([]string{t.TempDir(), below, root}, "/nowhere")
	if got != root || err != nil {
		t.Errorf("got %q, %v, want %q", got, err, root)
	}
}
