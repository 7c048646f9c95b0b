// SPDX-License-Identifier: Apache-2.0

package limits

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/culvert-cni/culvert/test/bench/node"
)

const (
	plotRate = 10e6
	plotTime = 8 * time.Second
	bucket   = 100 * time.Millisecond
)

// trace is one chain's limit over time.
type trace struct {
	name  string
	rates []float64 // bit/s at the wire, one a bucket
	rtts  []sample
}

// plotPart draws the rate and the round trip of a limit from its first second on, with the
// burst that containerd asks for, culvert beside the reference.
func (o Options) plotPart(ctx context.Context, w io.Writer) error {
	var traces []trace
	for _, c := range []node.Chain{reference, culvert} {
		t, err := o.trace(ctx, c)
		if err != nil {
			return err
		}
		traces = append(traces, t)
	}
	var svg bytes.Buffer
	if err := draw(&svg, traces); err != nil {
		return err
	}
	for _, t := range traces {
		var sum float64
		for _, r := range t.rates {
			sum += r / float64(len(t.rates))
		}
		l := summary(t.rtts)
		fmt.Fprintf(w, "%s: %.1f Mbit/s in the mean of %s, round trip p50 %s ms, p99 %s ms\n", t.name, sum/1e6, plotTime, ms(l.P50), ms(l.P99))
	}
	if o.Doc == "" {
		_, err := w.Write(svg.Bytes())
		return err
	}
	return os.WriteFile(o.picture(), svg.Bytes(), 0o644)
}

func (o Options) trace(ctx context.Context, c node.Chain) (trace, error) {
	b, err := newBed(ctx, c, o.Bin)
	if err != nil {
		return trace{}, err
	}
	defer b.close()
	p, err := b.limited(ctx, ingress, plotRate, containerd)
	if err != nil {
		return trace{}, err
	}
	way := p.way(outside)
	pr, err := startProbe(way.from, way.echo)
	if err != nil {
		return trace{}, err
	}
	t := trace{name: c.Name}
	t.rates, err = way.stream("tcp", p.rate, 1).Series(bucket, plotTime)
	t.rtts = pr.stop(slowQueue)
	return t, err
}
