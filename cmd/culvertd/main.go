// SPDX-License-Identifier: Apache-2.0

// Command culvertd is the agent of a Kubernetes node: it writes the configuration that the
// container runtime starts pods by, and connects the node with the others. Pods start, and
// their packets flow, without it; it is what follows changes of the cluster.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"

	"golang.org/x/sys/unix"
)

var version = "unknown" // set by the linker

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), unix.SIGINT, unix.SIGTERM)
	err := newRoot(os.Stdout, os.Stderr).ExecuteContext(ctx)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "culvertd:", err)
		os.Exit(1)
	}
}
