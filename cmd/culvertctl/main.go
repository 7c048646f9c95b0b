// SPDX-License-Identifier: Apache-2.0

// Command culvertctl shows what the datapath of this node holds, and counts. It reads the
// pinned maps and the pods' devices; no daemon is asked. `limits set` changes the limits of
// a pod, `reconcile` repairs the node, `upgrade` replaces programs and `uninstall` takes
// everything off; the others change nothing. An error is one sentence on stderr.
package main

import (
	"fmt"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

var version = "unknown" // set by the linker

func main() {
	err := newRoot(os.Stdout, monotonic).Execute()
	if err != nil {
		fmt.Fprintln(os.Stderr, "culvertctl:", err)
	}
	os.Exit(exitCode(err))
}

func monotonic() time.Duration {
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &ts); err != nil {
		return 0
	}
	return time.Duration(ts.Nano())
}
