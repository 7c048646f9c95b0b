// SPDX-License-Identifier: Apache-2.0

package loader

import (
	"strings"
	"testing"
)

// FuzzLocks: of /proc/locks comes the number of a process, or none.
func FuzzLocks(f *testing.F) {
	f.Add("1: FLOCK  ADVISORY  WRITE 123 00:1f:456 0 EOF\n1: -> FLOCK  ADVISORY  WRITE 9 00:1f:456 0 EOF\n", "00:1f:456")
	f.Add("2: POSIX  ADVISORY  READ -1 00:1f:7 0 EOF", "00:1f:7")
	f.Add("x FLOCK y z - a\n", "a")
	f.Fuzz(func(t *testing.T, locks, file string) {
		if pid := findHolder(strings.NewReader(locks), file); pid != 0 && (!strings.Contains(locks, "FLOCK") || !strings.Contains(locks, file)) {
			t.Errorf("process %d of %q", pid, locks)
		}
	})
}

// FuzzLinkName: what lies in the directory of links is ours by its whole name, or not ours.
func FuzzLinkName(f *testing.F) {
	for _, name := range []string{"uplink_2_in", "pod_7_out_clsact", "lo_out", "cgroup_out", "pod_-1_in", "pod_07_in", "a_b_c_d"} {
		f.Add(name)
	}
	f.Fuzz(func(t *testing.T, name string) {
		a, ok := parseLinkName(name)
		if !ok {
			return
		}
		again := linkName(a.hook, a.ifindex)
		if a.clsact {
			again += "_clsact"
		}
		if again != name || a.ifindex <= 0 {
			t.Errorf("%q is %+v", name, a)
		}
	})
}

// FuzzMountinfo: whatever is mounted under whatever name, a path comes out or none.
func FuzzMountinfo(f *testing.F) {
	f.Add("32 24 0:27 / /sys/fs/cgroup/unified rw,nosuid shared:9 master:1 - cgroup2 cgroup2 rw,nsdelegate\n")
	f.Add("33 24 0:27 / /mnt/a\\040b\\134\\012 rw - cgroup2 none rw")
	f.Add("30 24 0:26 / /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu\n31 24 0:27 /a/b /mnt rw - cgroup2 cgroup2 rw\n")
	f.Add(" - cgroup2 \n / / / / / - cgroup2 x\n")
	f.Fuzz(func(t *testing.T, mounts string) {
		root := cgroupRoot(mounts)
		if root != "" && !strings.Contains(mounts, " - cgroup2 ") {
			t.Errorf("%q of %q", root, mounts)
		}
	})
}
