// SPDX-License-Identifier: Apache-2.0

// Package path measures what a packet's path costs: a raw veth pair, a router without
// netfilter, ptp, bridge, portmap (iptables, nft) and culvert, IPv4 and IPv6, round by
// round in turn, client and server on one processor. Beside them stands the floor: BPF
// programs that redirect whatever comes, and nothing else.
package path

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"time"

	"github.com/culvert-cni/culvert/test/bench/node"
	"github.com/culvert-cni/culvert/test/bench/report"
)

// Options of a run.
type Options struct {
	Rounds   int
	Time     time.Duration  // a cell is measured
	CPU      int            // that clients and servers share
	Short    bool           // fewer paths: IPv4, and no 1,000 other hostPorts
	Match    *regexp.Regexp // of paths to measure
	Budget   time.Duration  // after which no round begins but the first
	Bin      node.Binaries
	Progress *report.Progress
}

// Name of the part.
const Name = "path"

// Run measures. What fails is noted in the part; an error is that nothing can be said, or
// that ctx is done. Whoever measures calls load.Main first.
func Run(ctx context.Context, o Options) (*report.Part, error) {
	families := "IPv4 and IPv6"
	if o.Short {
		families = "IPv4"
	}
	part := &report.Part{Name: Name, Base: raw, Bases: map[string]string{},
		Method: fmt.Sprintf("%d rounds, every path and metric in each, %s a cell; client and server on processor %d; MTU 1500, %s; ratios are medians of each round's",
			o.Rounds, o.Time, o.CPU, families)}
	s := &stage{Options: o, part: part}
	defer s.close()
	if err := s.build(ctx); err != nil {
		return part, err
	}
	s.paths = slices.DeleteFunc(s.paths, func(p *path) bool { return p.name != raw && p.name != raw+IPv6 && !o.Match.MatchString(p.name) })
	for _, p := range s.paths {
		part.Paths = append(part.Paths, p.name)
		if family(p) == 128 {
			part.Bases[p.name] = raw + IPv6
		}
	}
	for i, start := 0, time.Now(); i < o.Rounds; i++ {
		if i > 0 && time.Since(start) > o.Budget {
			part.Fail("time was up after %s and %d rounds", o.Budget, i)
			break
		}
		if err := s.round(ctx, i); err != nil {
			return part, err
		}
	}
	if len(s.paths) == 0 {
		return part, errors.New("no path could be made")
	}
	return part, nil
}

// Columns of the part's table.
func Columns() []report.Column {
	return []report.Column{{Metric: RR, Ratio: true}, {Metric: CRR, Ratio: true}, {Metric: UDP, Ratio: true}, {Metric: Stream, Ratio: true},
		{Metric: BPFThere}, {Metric: BPFBack}, {Metric: Lost}}
}
