// SPDX-License-Identifier: Apache-2.0

package limits

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/culvert-cni/culvert/test/bench/node"
	"github.com/culvert-cni/culvert/test/bench/report"
)

// What of a path is measured in each round.
const (
	wire  report.Metric = "TCP at the wire / limit"
	udp   report.Metric = "UDP at the wire / limit"
	rtt   report.Metric = "RTT under load, p50 ms"
	lost  report.Metric = "probes lost"
	first report.Metric = "first second / allowed" // bytes, of 1.1 x the rate and 128 kB
)

// Name of the part.
const Name = "limits"

// sameBurst is what both get, in bit: 4 ms of the rate, and at least two packets of 1500
// bytes with their headers. The reference lets nothing pass with a burst of less than
// one, and has a queue of 25 ms and the burst.
func sameBurst(rate uint64) uint64 { return max(rate/250, 5*8*1514/2) }

// slowQueue is how long a probe may take with a runtime's burst in the reference's queue.
const slowQueue = 4 * time.Second

func (o Options) referencePart(ctx context.Context, w io.Writer) error {
	part, err := Contest(ctx, o)
	if err != nil {
		return err
	}
	if len(part.Failed) > 0 {
		return errors.New(strings.Join(part.Failed, "\n"))
	}
	fmt.Fprintf(w, "### Kernel %s, %d rounds\n\n", o.Kernel, o.Rounds)
	writeReference(w, part)
	return nil
}

// Contest measures limits beside the reference bandwidth plugin. What fails is noted in the
// part; an error is that nothing can be measured, or that ctx is done.
func Contest(ctx context.Context, o Options) (*report.Part, error) {
	first := "UDP and what passes in the first second"
	if o.Short {
		first = "what passes in the first second, no UDP"
	}
	part := &report.Part{Name: Name, Method: fmt.Sprintf("%d rounds, in %d of them %s; %s a cell, %s at 1 Mbit/s; one TCP stream by IPv4, a probe of 64 bytes every %s beside it",
		o.Rounds, min(o.Rounds, burstRounds), first, o.window(1e9), o.window(1e6), probeEvery)}
	var contests []*contest
	defer func() {
		for _, c := range contests {
			c.bed.close()
		}
	}()
	for _, chain := range []node.Chain{culvert, reference} {
		part.Paths = append(part.Paths, paths(chain)...)
		c, err := o.contest(ctx, chain)
		if c != nil {
			contests = append(contests, c)
		}
		if err != nil {
			return part, err
		}
	}
	for i, start := 0, time.Now(); i < o.Rounds; i++ {
		if i > 0 && time.Since(start) > o.Budget {
			part.Fail("time was up after %s and %d rounds", o.Budget, i)
			break
		}
		part.Rounds = append(part.Rounds, report.Round{})
		if err := o.round(ctx, contests, i, part); err != nil {
			return part, err
		}
	}
	return part, nil
}

func (o Options) contest(ctx context.Context, chain node.Chain) (*contest, error) {
	b, err := newBed(ctx, chain, o.Bin)
	if err != nil {
		return nil, err
	}
	c := &contest{bed: b}
	for _, dir := range directions {
		for _, group := range o.contested() {
			var pods []*pod
			for _, rate := range group {
				p, err := b.limited(ctx, dir, rate, sameBurst(rate))
				if err != nil {
					return c, err
				}
				pods = append(pods, p)
			}
			c.groups = append(c.groups, pods)
		}
	}
	return c, nil
}

func (o Options) contested() [][]uint64 {
	if o.Short {
		return [][]uint64{{10e6}}
	}
	return rates
}

// window is that of a contest's cell.
func (o Options) window(rate uint64) time.Duration {
	return o.forContest().timesOf(rate).window.Round(100 * time.Millisecond)
}

func (o Options) forContest() Options {
	o.Time = o.Time * 2 / 3
	return o
}

// contest is one chain and its limited pods; those of a group are measured side by side.
type contest struct {
	bed    *bed
	groups [][]*pod
}

// round measures each group with one chain and then with the other.
func (o Options) round(ctx context.Context, contests []*contest, i int, part *report.Part) error {
	r := part.Rounds[i]
	step := func(of *bed, what string) {
		o.Step(i, o.Rounds, fmt.Sprintf("round %d of %d, %s, %s", i+1, o.Rounds, of.Chain.Name, what))
	}
	note := func(of *bed, what string, err error) {
		if err != nil && ctx.Err() == nil {
			part.Fail("round %d: %s, %s: %v", i+1, of.Chain.Name, what, err)
		}
	}
	protos := map[string]report.Metric{"tcp": wire, "udp": udp}
	for g := range contests[0].groups {
		for _, c := range contests {
			for _, proto := range []string{"tcp", "udp"} {
				if proto == "udp" && (o.Short || i >= burstRounds || c.bed.Chain.Backend != "") {
					continue
				}
				if err := ctx.Err(); err != nil {
					return err
				}
				what := fmt.Sprintf("%s %s", c.groups[g][0].dir, proto)
				step(c.bed, what)
				note(c.bed, what, c.load(o.forContest(), g, proto, protos[proto], r))
			}
		}
	}
	for _, c := range contests {
		if i < burstRounds {
			step(c.bed, "bursts")
			note(c.bed, "bursts", c.bed.bursts(ctx, o.Short, r))
		}
	}
	return ctx.Err()
}

// load measures the pods of a group side by side. The round trip is that beside TCP.
func (c *contest) load(o Options, group int, proto string, m report.Metric, r report.Round) error {
	pods := c.groups[group]
	got := make([]figures, len(pods))
	err := parallel(len(pods), func(i int) (err error) {
		got[i], err = pods[i].load(outside, proto, o.timesOf(pods[i].rate))
		return err
	})
	if err != nil {
		return err
	}
	for i, p := range pods {
		path := pathName(c.bed.Chain, p.dir, p.rate)
		r.Put(path, m, got[i].Wire)
		if m == wire {
			r.Put(path, rtt, got[i].RTT.P50)
			r.Put(path, lost, got[i].RTT.Lost)
		}
	}
	return nil
}

// runtimes are who asks for a burst with every limit, in bit.
var runtimes = []struct {
	name  string
	burst uint64
}{{"containerd", containerd}, {"CRI-O", crio}}

const (
	burstRounds = 3    // the reference passes gigabytes in each
	burstRate   = 10e6 // bit/s
	allowed     = 1.1*burstRate/8 + 128e3
)

// bursts measures what passes in the first second with a runtime's burst, on fresh pods,
// and the round trip afterwards.
func (b *bed) bursts(ctx context.Context, short bool, r report.Round) error {
	for _, dir := range directions {
		for _, runtime := range runtimes {
			if err := ctx.Err(); err != nil || short && runtime.burst != containerd {
				continue
			}
			p, err := b.limited(ctx, dir, burstRate, runtime.burst)
			if err != nil {
				return err
			}
			if err := p.firstSecond(burstName(b.Chain, dir, runtime.name), r); err != nil {
				return err
			}
			if err := p.Del(ctx); err != nil {
				return err
			}
		}
	}
	return nil
}

func (p *pod) firstSecond(path string, r report.Round) error {
	w := p.way(outside)
	load, err := w.stream("tcp", p.rate, 1).Start()
	if err != nil {
		return err
	}
	defer load.Stop()
	time.Sleep(time.Second)
	passed := load.Total()
	pr, err := startProbe(w.from, w.echo)
	if err != nil {
		return err
	}
	time.Sleep(time.Second)
	l := summary(pr.stop(slowQueue))
	r.Put(path, first, float64(passed)/allowed)
	r.Put(path, rtt, l.P50)
	r.Put(path, lost, l.Lost)
	return load.Err()
}

func pathName(c node.Chain, dir direction, rate uint64) string {
	return fmt.Sprintf("%s, %s %s", c.Name, name(rate), dir)
}

func burstName(c node.Chain, dir direction, runtime string) string {
	return fmt.Sprintf("%s, %s %s, burst of %s", c.Name, name(burstRate), dir, runtime)
}
