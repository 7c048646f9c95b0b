// SPDX-License-Identifier: Apache-2.0

// Command limit measures what limits on pods do: the rate that passes and the round trip
// beside it, for every rate, direction, protocol and peer (table); the same and the first
// second beside the reference bandwidth plugin, round by round in turn, with what
// docs/limits.md calls the bars (reference); small requests beside one and many bulk flows
// of the same pod (fairness); and both over time as a picture (plot). A bar that is
// missed is no error.
//
//	make build ref && go run ./test/bench/limit [-only table,plot] [-doc docs/limits.md]
//
// It needs root, and a machine that does nothing else.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"time"

	"golang.org/x/sys/unix"

	"github.com/culvert-cni/culvert/test/bench/limits"
	"github.com/culvert-cni/culvert/test/netns"
)

func main() {
	o := limits.Options{Progress: os.Stderr, Emulated: netns.Emulated(), Budget: time.Hour,
		Step: func(_, _ int, what string) { fmt.Fprintln(os.Stderr, what) }}
	flag.IntVar(&o.Rounds, "rounds", 7, "rounds beside the reference plugin")
	flag.DurationVar(&o.Time, "time", 3*time.Second, "a cell is measured; 2.5 times that below 5 Mbit/s")
	flag.StringVar(&o.Only, "only", "table,reference,fairness,plot", "parts to run")
	flag.StringVar(&o.Doc, "doc", "", "document whose parts for this kernel are replaced; the picture goes beside it")
	flag.StringVar(&o.Kernel, "kernel", netns.Kernel(), "what the document is to call this kernel")
	o.Bin.Flags()
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), unix.SIGINT, unix.SIGTERM)
	defer stop()
	if err := limits.Run(ctx, o, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "limit:", err)
		os.Exit(1)
	}
}
