// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"io"
	"time"

	"github.com/culvert-cni/culvert/test/bench/node"
)

// metric is what of a path is measured in each round.
type metric string

const (
	wire  metric = "TCP at the wire / limit"
	rtt   metric = "RTT under load, p50 ms"
	lost  metric = "probes lost"
	first metric = "first second / allowed" // bytes, of 1.1 x the rate and 128 kB
)

// round is one pass over all: by path and metric.
type round map[string]map[metric]float64

// sameBurst is what both get, in bit: 4 ms of the rate, and at least two packets of 1500
// bytes with their headers. The reference lets nothing pass with a burst of less than
// one, and has a queue of 25 ms and the burst.
func sameBurst(rate uint64) uint64 { return max(rate/250, 5*8*1514/2) }

// slowQueue is how long a probe may take with a runtime's burst in the reference's queue.
const slowQueue = 4 * time.Second

func (o options) referencePart(ctx context.Context, w io.Writer) error {
	var contests []*contest
	defer func() {
		for _, c := range contests {
			c.bed.close()
		}
	}()
	for _, chain := range []node.Chain{culvert, reference} {
		b, err := newBed(ctx, chain, o.bin)
		if err != nil {
			return err
		}
		c := &contest{bed: b}
		contests = append(contests, c)
		for _, dir := range directions {
			for _, group := range rates {
				var pods []*pod
				for _, rate := range group {
					p, err := b.limited(ctx, dir, rate, sameBurst(rate))
					if err != nil {
						return err
					}
					pods = append(pods, p)
				}
				c.groups = append(c.groups, pods)
			}
		}
	}
	var rounds []round
	for i := range o.rounds {
		r := round{}
		if err := o.round(ctx, contests, i < burstRounds, r); err != nil {
			return fmt.Errorf("round %d: %w", i+1, err)
		}
		rounds = append(rounds, r)
		fmt.Fprintf(o.progress, "round %d of %d\n", i+1, o.rounds)
	}
	fmt.Fprintf(w, "### Kernel %s, %d rounds\n\n", o.kernel, o.rounds)
	report(w, rounds)
	return nil
}

// contest is one chain and its limited pods; those of a group are measured side by side.
type contest struct {
	bed    *bed
	groups [][]*pod
}

// round measures each group with one chain and then with the other.
func (o options) round(ctx context.Context, contests []*contest, bursts bool, r round) error {
	short := o
	short.time = o.time * 2 / 3
	for g := range contests[0].groups {
		for _, c := range contests {
			if err := ctx.Err(); err != nil {
				return err
			}
			pods := c.groups[g]
			got := make([]figures, len(pods))
			err := parallel(len(pods), func(i int) (err error) {
				got[i], err = pods[i].load(outside, "tcp", short.timesOf(pods[i].rate))
				return err
			})
			if err != nil {
				return err
			}
			for i, p := range pods {
				r[pathName(c.bed.Chain, p.dir, p.rate)] = map[metric]float64{wire: got[i].Wire, rtt: got[i].RTT.P50, lost: got[i].RTT.Lost}
			}
		}
	}
	if !bursts {
		return nil
	}
	for _, c := range contests {
		if err := c.bed.bursts(ctx, r); err != nil {
			return err
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
func (b *bed) bursts(ctx context.Context, r round) error {
	for _, dir := range directions {
		for _, runtime := range runtimes {
			p, err := b.limited(ctx, dir, burstRate, runtime.burst)
			if err != nil {
				return err
			}
			got, err := p.firstSecond()
			if err != nil {
				return err
			}
			r[burstName(b.Chain, dir, runtime.name)] = got
			if err := p.Del(ctx); err != nil {
				return err
			}
		}
	}
	return nil
}

func (p *pod) firstSecond() (map[metric]float64, error) {
	w := p.way(outside)
	load, err := w.stream("tcp", p.rate, 1).Start()
	if err != nil {
		return nil, err
	}
	defer load.Stop()
	time.Sleep(time.Second)
	passed := load.Total()
	pr, err := startProbe(w.from, w.echo)
	if err != nil {
		return nil, err
	}
	time.Sleep(time.Second)
	l := summary(pr.stop(slowQueue))
	return map[metric]float64{first: float64(passed) / allowed, rtt: l.P50, lost: l.Lost}, load.Err()
}

func pathName(c node.Chain, dir direction, rate uint64) string {
	return fmt.Sprintf("%s, %s %s", c.Name, name(rate), dir)
}

func burstName(c node.Chain, dir direction, runtime string) string {
	return fmt.Sprintf("%s, %s %s, burst of %s", c.Name, name(burstRate), dir, runtime)
}
