// SPDX-License-Identifier: Apache-2.0

package loader

import (
	"strings"
	"testing"
)

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
