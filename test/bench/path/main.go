// SPDX-License-Identifier: Apache-2.0

// Command path measures what a packet's path costs: raw veth pair, bridge, portmap
// (iptables, nft) and culvert, round by round in turn, client and server on one
// processor. It prints medians, their ratio to raw as the median of each round's, and
// what docs/bench.md calls the bars. A bar that is missed is no error.
//
//	make build ref && go run ./test/bench/path [-rounds N] [-time D] [-json FILE]
//
// It needs root.
package main

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"runtime"
	"time"

	"golang.org/x/sys/unix"

	"github.com/culvert-cni/culvert/test/bench/load"
	"github.com/culvert-cni/culvert/test/bench/node"
	"github.com/culvert-cni/culvert/test/netns"
)

type options struct {
	rounds, cpu int
	time        time.Duration
	bin         node.Binaries
	json        string
}

func main() {
	load.Main()
	var o options
	flag.IntVar(&o.rounds, "rounds", 7, "rounds to measure")
	flag.DurationVar(&o.time, "time", 600*time.Millisecond, "a cell is measured")
	flag.IntVar(&o.cpu, "cpu", runtime.NumCPU()-1, "processor that clients and servers share")
	o.bin.Flags()
	flag.StringVar(&o.json, "json", "", "file for every round's figures (-: standard output)")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), unix.SIGINT, unix.SIGTERM)
	defer stop()
	if err := run(ctx, o, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "path:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, o options, out io.Writer) error {
	s := &stage{options: o, out: out}
	defer s.close()
	if err := s.build(ctx); err != nil {
		return err
	}
	var rounds []round
	for i := range o.rounds {
		r, err := s.round(ctx)
		if err != nil {
			return fmt.Errorf("round %d: %w", i+1, err)
		}
		rounds = append(rounds, r)
	}
	fmt.Fprintf(out, "%d rounds, %s a cell, processor %d, kernel %s\n\n", o.rounds, o.time, o.cpu, netns.Kernel())
	if err := report(out, s.paths, rounds); err != nil {
		return err
	}
	return writeJSON(o.json, out, rounds)
}

func writeJSON(file string, out io.Writer, rounds []round) error {
	switch file {
	case "":
		return nil
	case "-":
		return json.NewEncoder(out).Encode(rounds)
	}
	b, err := json.MarshalIndent(rounds, "", " ")
	if err != nil {
		return err
	}
	return os.WriteFile(file, b, 0o644)
}
