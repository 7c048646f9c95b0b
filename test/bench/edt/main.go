// SPDX-License-Identifier: Apache-2.0

// Command edt compares shapers for a pod's limit: the token bucket that culvert sets, with
// its own queue or fq_codel as child, and departure times (EDT) that a tc program writes
// for qdisc fq. All of them hold the same rows of one layout, in turn, in every round. It
// prints each measurement, medians with their spread, and what the rule of
// docs/decisions/0003-shaper.md says of them.
//
// It needs root and a kernel with fq, fq_codel and tcx: Debian's, in a virtual machine whose
// clock goes on with the instructions that it executes, so what else the host does changes
// nothing.
//
//	CGO_ENABLED=0 go build -o /tmp/edt/ ./test/bench/edt
//	VM_CLOCK=instructions VM_TIMEOUT=5000 VM_SHARE=/tmp/edt \
//	  nice -n 19 test/lab/vm-run.sh 6.12 /tmp/edt/edt -cells '10M|GSO'
package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"time"

	"golang.org/x/sys/unix"

	"github.com/culvert-cni/culvert/test/netns"
)

type options struct {
	rounds         int
	warmup, window time.Duration
	directions     string
	rates          string
	flows          string
	gso            string
	only           string
}

func main() {
	var o options
	flag.IntVar(&o.rounds, "rounds", 7, "rounds to measure")
	flag.DurationVar(&o.warmup, "warmup", 600*time.Millisecond, "of a measurement, not counted")
	flag.DurationVar(&o.window, "time", 2*time.Second, "a measurement takes")
	flag.StringVar(&o.directions, "directions", "to-pod,from-pod", "which way the limit holds")
	flag.StringVar(&o.rates, "rates", "10,100", "Mbit/s")
	flag.StringVar(&o.flows, "flows", "1,10", "bulk connections")
	flag.StringVar(&o.gso, "gso", "on,off", "whether bulk comes in segments of up to 64 KiB, or in packets")
	flag.StringVar(&o.only, "cells", ".", "regular expression: those of them to measure")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), unix.SIGINT, unix.SIGTERM)
	defer stop()
	if err := run(ctx, o, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "edt:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, o options, out io.Writer) error {
	cells, err := o.cells()
	if err != nil {
		return err
	}
	if err := supported(); err != nil {
		return err
	}
	s, err := newStage()
	if err != nil {
		return err
	}
	defer s.close()
	free, err := s.unlimited(o)
	if err != nil {
		return fmt.Errorf("measure without a limit: %w", err)
	}
	fmt.Fprintf(out, "kernel %s, %d rounds of %s; without a limit %s\n", netns.Kernel(), o.rounds, o.window, free)
	r := results{}
	for i := range o.rounds {
		for _, c := range cells {
			for j := range candidates {
				if err := ctx.Err(); err != nil {
					return err
				}
				k := candidates[(i+j)%len(candidates)] // none is always the first
				m, err := s.measure(c, k, o)
				if err != nil {
					return fmt.Errorf("round %d: %s: %s: %w", i+1, c, k.name, err)
				}
				fmt.Fprintf(out, "round %d  %-30s %-14s %s\n", i+1, c, k.name, m)
				r.add(c, k.name, m)
			}
		}
	}
	r.report(out, cells)
	return nil
}
