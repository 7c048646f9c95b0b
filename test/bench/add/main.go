// SPDX-License-Identifier: Apache-2.0

// Command add measures what ADD, CHECK and DEL cost: culvert beside the chain of the
// reference plugins (bridge, host-local, portmap, bandwidth), in one run, round by round
// in turn, each on a throwaway node of its own. A pod gets both families, two hostPorts
// and both limits. It prints the median of the wall and CPU times, and of the ratios of
// each round. CPU time is that of the plugins and of all they start.
//
//	make build ref && go run ./test/bench/add [-rounds N] [-pods N] [-bin DIR] [-ref DIR]
//
// It needs root.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"text/tabwriter"
	"time"

	"golang.org/x/sys/unix"

	"github.com/culvert-cni/culvert/test/bench/node"
	"github.com/culvert-cni/culvert/test/bench/stats"
)

type options struct {
	rounds, pods int
	bin          node.Binaries
}

func main() {
	var o options
	flag.IntVar(&o.rounds, "rounds", 11, "rounds to measure, after one to warm up")
	flag.IntVar(&o.pods, "pods", 0, "pods with a hostPort that are on each node before")
	o.bin.Flags()
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), unix.SIGINT, unix.SIGTERM)
	defer stop()
	if err := run(ctx, o, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "add:", err)
		os.Exit(1)
	}
}

// run makes a node a chain, measures, and takes the nodes away.
func run(ctx context.Context, o options, out io.Writer) (err error) {
	var nodes []*bench
	defer func() {
		for _, n := range nodes {
			err = errors.Join(err, n.Close())
		}
	}()
	for _, c := range chains() {
		if missing := c.Missing(); missing != "" {
			fmt.Fprintf(out, "%s is left out: no %s\n", c.Name, missing)
			continue
		}
		n, err := node.New(c, o.bin, nil)
		if err != nil {
			return fmt.Errorf("make node for %s: %w", c.Name, err)
		}
		b := &bench{n, map[string][]cost{}}
		nodes = append(nodes, b)
		for i := range o.pods {
			if err := b.fill(ctx, i); err != nil {
				return fmt.Errorf("%s, pod %d: %w", c.Name, i, err)
			}
		}
	}
	for round := range o.rounds + 1 {
		for _, n := range nodes {
			if err := n.round(ctx, round > 0); err != nil {
				return fmt.Errorf("%s: %w", n.Chain.Name, err)
			}
		}
	}
	fmt.Fprintf(out, "%d rounds, %d pods there before; both families, two hostPorts, both limits\n", o.rounds, o.pods)
	return report(out, nodes)
}

// cost is what one verb took.
type cost struct{ wall, cpu time.Duration }

var verbs = []string{"ADD", "CHECK", "DEL"}

func report(out io.Writer, nodes []*bench) error {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(w, "\tverb\twall ms\tCPU ms\tculvert's wall x\tculvert's CPU x\t")
	for _, verb := range verbs {
		ours := nodes[0].costs[verb]
		for _, n := range nodes {
			theirs := n.costs[verb]
			wall := func(c cost) float64 { return float64(c.wall.Microseconds()) / 1000 }
			cpu := func(c cost) float64 { return float64(c.cpu.Microseconds()) / 1000 }
			fmt.Fprintf(w, "%s\t%s\t%.1f\t%.1f\t%.2f\t%.2f\t\n", n.Chain.Name, verb,
				stats.Median(each(theirs, wall)), stats.Median(each(theirs, cpu)),
				stats.Ratio(each(ours, wall), each(theirs, wall)), stats.Ratio(each(ours, cpu), each(theirs, cpu)))
		}
	}
	return w.Flush()
}

func each(costs []cost, of func(cost) float64) []float64 {
	var out []float64
	for _, c := range costs {
		out = append(out, of(c))
	}
	return out
}
