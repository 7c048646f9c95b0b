// SPDX-License-Identifier: Apache-2.0

package path

import (
	"context"
	"errors"
	"fmt"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"github.com/culvert-cni/culvert/test/bench/load"
	"github.com/culvert-cni/culvert/test/bench/report"
)

// What of a path is measured.
const (
	RR       report.Metric = "RR p50 us"
	CRR      report.Metric = "CRR p50 us"
	UDP      report.Metric = "UDP CPU ns/packet"
	Stream   report.Metric = "stream CPU s/GB"
	BPFThere report.Metric = "BPF ns there" // a request's packet, over all programs that it passes
	BPFBack  report.Metric = "BPF ns back"
	Lost     report.Metric = "UDP lost of a million"
)

// round is one pass over all paths. A cell that fails is noted.
func (s *stage) round(ctx context.Context, i int) error {
	r := report.Round{}
	s.part.Rounds = append(s.part.Rounds, r)
	for at, p := range s.paths {
		for _, kind := range p.kinds {
			if err := ctx.Err(); err != nil {
				return err
			}
			s.Progress.Step(Name, i*len(s.paths)+at, s.Rounds*len(s.paths), fmt.Sprintf("round %d of %d, %s, %s", i+1, s.Rounds, p.name, kind))
			if err := p.measure(kind, s.Options, r); err != nil && ctx.Err() == nil {
				s.part.Fail("round %d: %s: %v", i+1, p.name, err)
			}
		}
		if p.programs == nil {
			continue
		}
		if err := p.timePrograms(s.Options, r); err != nil && ctx.Err() == nil {
			s.part.Fail("round %d: %s: time of the programs: %v", i+1, p.name, err)
		}
	}
	return ctx.Err()
}

func (p *path) measure(kind load.Kind, o Options, r report.Round) error {
	m, err := p.server.Call(p.client, kind, p.to, o.Time)
	if err != nil {
		return err
	}
	switch kind {
	case load.RR:
		r.Put(p.name, RR, float64(m.P50)/1e3)
	case load.CRR:
		r.Put(p.name, CRR, float64(m.P50)/1e3)
	case load.UDP:
		r.Put(p.name, UDP, m.CPUPerOp())
		r.Put(p.name, Lost, 1e6*float64(m.Lost)/float64(max(m.Ops, 1)))
	case load.Stream:
		r.Put(p.name, Stream, m.CPUPerOp()) // ns a byte is s a GB
	}
	return nil
}

// timePrograms measures how long programs run for a packet of RR. The kernel's statistics
// cost time themselves, so nothing else is measured meanwhile.
func (p *path) timePrograms(o Options, r report.Round) (err error) {
	stats, err := ebpf.EnableStats(unix.BPF_STATS_RUN_TIME)
	if err != nil {
		return fmt.Errorf("enable statistics: %w", err)
	}
	defer func() { err = errors.Join(err, stats.Close()) }()
	before, err := p.programs()
	if err != nil {
		return err
	}
	if _, err := p.server.Call(p.client, load.RR, p.to, o.Time); err != nil {
		return err
	}
	after, err := p.programs()
	if err != nil {
		return err
	}
	spent := map[string]float64{}
	for name, a := range after {
		if n := a.count - before[name].count; n > 0 {
			spent[name] = float64(a.ns-before[name].ns) / float64(n)
			r.Put(p.name, report.Metric("BPF ns "+name), spent[name])
		}
	}
	if p.out {
		r.Put(p.name, BPFThere, spent["from_uplink"]+spent["to_pod"])
		r.Put(p.name, BPFBack, spent["from_pod"]+spent["to_uplink"])
	} else {
		r.Put(p.name, BPFThere, spent["from_pod"]+spent["to_pod"]) // and back the same way
	}
	return nil
}

// ran is how often a program ran while statistics were on.
type ran struct{ count, ns uint64 }

func statsOf(prog *ebpf.Program) (ran, error) {
	st, err := prog.Stats()
	if err != nil {
		return ran{}, err
	}
	return ran{st.RunCount, uint64(st.Runtime)}, nil
}
