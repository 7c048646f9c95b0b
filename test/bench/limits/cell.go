// SPDX-License-Identifier: Apache-2.0

package limits

import (
	"time"

	"github.com/culvert-cni/culvert/test/bench/stats"
)

// latency is what became of a series of probes or requests.
type latency struct {
	P50, P99 float64 // ms
	Lost     float64 // share
}

func summary(samples []sample) latency {
	var ms []float64
	for _, s := range samples {
		if s.rtt != 0 {
			ms = append(ms, float64(s.rtt)/1e6)
		}
	}
	l := latency{P50: stats.Quantile(ms, 0.5), P99: stats.Quantile(ms, 0.99)}
	if len(samples) > 0 {
		l.Lost = 1 - float64(len(ms))/float64(len(samples))
	}
	return l
}

// figures are what a load through a limit was: shares of the limit, and the round trip
// beside it.
type figures struct {
	Wire    float64 // Ethernet frames
	Goodput float64 // payload
	Offered float64 // UDP
	RTT     latency
	tries   int
}

// straggler is how long an answer may take.
const straggler = 300 * time.Millisecond

// times of a measurement.
type times struct{ warmup, window time.Duration }

// timesOf: a slow limit passes few packets.
func (o Options) timesOf(rate uint64) times {
	t := times{time.Second, o.Time}
	if rate < 5e6 {
		t.window = t.window * 5 / 2
	}
	return t
}

// idle is the round trip without a load.
func (p *pod) idle(to peer) (latency, error) {
	w := p.way(to)
	pr, err := startProbe(w.from, w.echo)
	if err != nil {
		return latency{}, err
	}
	time.Sleep(500 * time.Millisecond)
	return summary(pr.stop(straggler)[1:]), nil // the first asked for a neighbour
}

// load measures a stream and the round trip beside it.
func (p *pod) load(to peer, proto string, t times) (figures, error) {
	w := p.way(to)
	s := w.stream(proto, p.rate, 1)
	r, err := s.Start()
	if err != nil {
		return figures{}, err
	}
	defer r.Stop()
	time.Sleep(t.warmup)
	pr, err := startProbe(w.from, w.echo)
	if err != nil {
		return figures{}, err
	}
	got, sent, start := r.Total(), r.Sent(), time.Now()
	time.Sleep(t.window)
	took := time.Since(start).Seconds()
	share := func(bytes uint64) float64 { return float64(bytes) * 8 / took / float64(p.rate) }
	f := figures{Wire: share(r.Total() - got), Offered: share(r.Sent() - sent)}
	f.Goodput = f.Wire * s.Goodput()
	samples := pr.stop(straggler)
	f.RTT = summary(samples)
	f.Wire += share(uint64((1 - f.RTT.Lost) * float64(len(samples)*probeFrame)))
	return f, r.Err()
}
