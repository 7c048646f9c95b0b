// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"github.com/culvert-cni/culvert/test/bench/load"
)

// metric is a column: what of a path is measured.
type metric string

const (
	rr       metric = "RR p50 us"
	crr      metric = "CRR p50 us"
	udp      metric = "UDP CPU ns/packet"
	stream   metric = "stream CPU s/GB"
	bpfThere metric = "BPF ns there" // a request's packet, over all programs that it passes
	bpfBack  metric = "BPF ns back"
	lost     metric = "UDP lost" // of a million
)

// round is one pass over all paths: by path and metric.
type round map[string]map[metric]float64

func (s *stage) round(ctx context.Context) (round, error) {
	r := round{}
	for _, p := range s.paths {
		got := map[metric]float64{}
		for _, kind := range p.kinds {
			if err := ctx.Err(); err != nil {
				return nil, err
			}
			if err := p.measure(kind, s.options, got); err != nil {
				return nil, fmt.Errorf("%s: %w", p.name, err)
			}
		}
		if p.node != nil {
			if err := p.programs(s.options, got); err != nil {
				return nil, fmt.Errorf("%s: time of the programs: %w", p.name, err)
			}
		}
		r[p.name] = got
	}
	return r, nil
}

func (p *path) measure(kind load.Kind, o options, got map[metric]float64) error {
	m, err := p.server.Call(p.client, kind, p.to, o.time)
	if err != nil {
		return err
	}
	switch kind {
	case load.RR:
		got[rr] = float64(m.P50) / 1e3
	case load.CRR:
		got[crr] = float64(m.P50) / 1e3
	case load.UDP:
		got[udp] = m.CPUPerOp()
		got[lost] = 1e6 * float64(m.Lost) / float64(max(m.Ops, 1))
	case load.Stream:
		got[stream] = m.CPUPerOp() // ns a byte is s a GB
	}
	return nil
}

// programs measures how long culvert's programs run for a packet of RR. The kernel's
// statistics cost time themselves, so nothing else is measured meanwhile.
func (p *path) programs(o options, got map[metric]float64) (err error) {
	stats, err := ebpf.EnableStats(unix.BPF_STATS_RUN_TIME)
	if err != nil {
		return fmt.Errorf("enable statistics: %w", err)
	}
	defer func() { err = errors.Join(err, stats.Close()) }()
	before, err := p.runs()
	if err != nil {
		return err
	}
	if _, err := p.server.Call(p.client, load.RR, p.to, o.time); err != nil {
		return err
	}
	after, err := p.runs()
	if err != nil {
		return err
	}
	spent := map[string]float64{}
	for name, a := range after {
		if n := a.count - before[name].count; n > 0 {
			spent[name] = float64(a.ns-before[name].ns) / float64(n)
			got[metric("BPF ns "+name)] = spent[name]
		}
	}
	if p.out {
		got[bpfThere] = spent["from_uplink"] + spent["to_pod"]
		got[bpfBack] = spent["from_pod"] + spent["to_uplink"]
	} else {
		got[bpfThere] = spent["from_pod"] + spent["to_pod"] // and back the same way
	}
	return nil
}

// ran is how often a program ran while statistics were on.
type ran struct{ count, ns uint64 }

func (p *path) runs() (map[string]ran, error) {
	pins, err := filepath.Glob(p.node.Pins + "/v*/progs/*")
	if err != nil {
		return nil, err
	}
	if len(pins) == 0 {
		return nil, fmt.Errorf("no programs below %s", p.node.Pins)
	}
	runs := map[string]ran{}
	for _, pin := range pins {
		prog, err := ebpf.LoadPinnedProgram(pin, nil)
		if err != nil {
			return nil, err
		}
		st, err := prog.Stats()
		_ = prog.Close()
		if err != nil {
			return nil, err
		}
		runs[filepath.Base(pin)] = ran{st.RunCount, uint64(st.Runtime)}
	}
	return runs, nil
}
