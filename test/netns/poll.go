// SPDX-License-Identifier: Apache-2.0

package netns

import (
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// Patience is how long a condition may take to come true before a test fails.
const Patience = 5 * time.Second

// Emulated tells that the machine is an emulated one (test/lab/vm-run.sh sets
// VM_KERNEL), whose timings say nothing about culvert.
func Emulated() bool { return os.Getenv("VM_KERNEL") != "" }

// Kernel is the release of the kernel, "unknown" if it does not say.
func Kernel() string {
	var u unix.Utsname
	if err := unix.Uname(&u); err != nil {
		return "unknown"
	}
	return unix.ByteSliceToString(u.Release[:])
}

// Poll calls f until it returns nil or Patience is over; it returns f's last
// error.
func Poll(f func() error) error {
	deadline := time.Now().Add(Patience)
	for {
		err := f()
		if err == nil || time.Now().After(deadline) {
			return err
		}
		time.Sleep(5 * time.Millisecond)
	}
}
