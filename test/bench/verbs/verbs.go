// SPDX-License-Identifier: Apache-2.0

// Package verbs measures what ADD, CHECK and DEL cost: culvert with culvert-ipam beside the chain of the
// reference plugins (bridge, host-local, portmap, bandwidth), with the iptables and the nft
// backend, each on throwaway nodes of its own, round by round in turn: with 0, 100 and 500
// pods there before, 1, 8 and 32 calls in parallel, and beside 5,000 hostPorts. A pod gets
// both families, two hostPorts and both limits. CPU time is that of the plugins and of all
// that they start.
package verbs

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/culvert-cni/culvert/test/bench/node"
	"github.com/culvert-cni/culvert/test/bench/report"
)

// Options of a run.
type Options struct {
	Rounds   int
	Parallel int           // rounds with 8 in parallel; with 32 there are two thirds of that
	Short    bool          // no 32 in parallel, and no 5,000 hostPorts
	Pods     []int         // that are on a node before; bars ask for those of Pods
	Budget   time.Duration // after which only what was not measured at all is
	Bin      node.Binaries
	Progress *report.Progress
}

// Name of the part.
const Name = "verbs"

// tooLong: what takes so long is measured once.
const tooLong = 20 * time.Second

// Run measures. What fails is noted in the part; an error is that ctx is done.
func Run(ctx context.Context, o Options) (*report.Part, error) {
	part := &report.Part{Name: Name, Method: fmt.Sprintf("%d rounds, %d with 8 in parallel, %d with 32 (once, where all three verbs take longer than %s); "+
		"culvert with culvert-ipam, the others with host-local; dual-stack pods with two hostPorts and both limits, masquerade; p50 of a round's calls, CPU time a call", o.Rounds, o.Parallel, o.many(), tooLong)}
	s := &stage{Options: o, part: part}
	defer s.close()
	if err := s.build(ctx); err != nil {
		return part, err
	}
	jobs := s.jobs()
	for _, j := range jobs {
		if !slices.Contains(part.Paths, j.path) {
			part.Paths = append(part.Paths, j.path)
		}
	}
	slow, skipped, start := map[string]bool{}, map[string]bool{}, time.Now()
	for at, j := range jobs {
		if err := ctx.Err(); err != nil {
			return part, err
		}
		for len(part.Rounds) <= j.round {
			part.Rounds = append(part.Rounds, report.Round{})
		}
		late := j.round > 0 && time.Since(start) > o.Budget
		if slow[j.path] || late {
			if !slow[j.path] {
				skipped[j.path] = true
			}
			continue
		}
		s.Progress.Step(Name, at, len(jobs), fmt.Sprintf("round %d, %s", j.round+1, j.path))
		begin := time.Now()
		if err := j.run(ctx, part.Rounds[j.round]); err != nil && ctx.Err() == nil {
			part.Fail("round %d: %s: %v", j.round+1, j.path, err)
		}
		slow[j.path] = j.parallel > 1 && time.Since(begin) > tooLong
	}
	if len(skipped) > 0 {
		part.Fail("time was up after %s: %d cells have fewer rounds", o.Budget, len(skipped))
	}
	return part, ctx.Err()
}

func (o Options) many() int { return (o.Parallel*2 + 2) / 3 }

// job is one cell of one round.
type job struct {
	round    int
	path     string
	parallel int
	run      func(context.Context, report.Round) error
}

// jobs are by number of calls in parallel, then by round, then by node.
func (s *stage) jobs() []job {
	counts := []int{1, 8, 32}
	if s.Short {
		counts = counts[:2]
	}
	var all []job
	for _, n := range counts {
		rounds := map[int]int{1: s.Rounds, 8: s.Parallel, 32: s.many()}[n]
		for round := range rounds {
			for _, b := range s.beds {
				if n == 1 || b.hostPorts == 0 {
					path := pathName(b.Chain.Name, b.pods, b.hostPorts, n)
					all = append(all, job{round, path, n, func(ctx context.Context, r report.Round) error { return b.measure(ctx, path, n, r) }})
				}
				if n == 1 && b.Chain.Backend == "" {
					path := pathName(floor, b.pods, b.hostPorts, n)
					all = append(all, job{round, path, n, func(ctx context.Context, r report.Round) error { return b.floor(ctx, s.Bin, r) }})
				}
			}
		}
	}
	return all
}

// Path is that of a chain with as many pods on the node, and as many calls at once.
func Path(chain string, pods, parallel int) string { return pathName(chain, pods, 0, parallel) }

func pathName(chain string, pods, hostPorts, parallel int) string {
	name := fmt.Sprintf("%s, %d pods", chain, pods)
	if hostPorts > 0 {
		name = fmt.Sprintf("%s, %d hostPorts", chain, hostPorts)
	}
	if parallel > 1 {
		name += fmt.Sprintf(", %d in parallel", parallel)
	}
	return name
}
