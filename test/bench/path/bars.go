// SPDX-License-Identifier: Apache-2.0

package main

import "github.com/culvert-cni/culvert/test/bench/stats"

// bar is what culvert is to reach: a metric of a path, as a ratio to another path's or,
// if there is none, itself.
type bar struct {
	id   string
	m    metric
	path string
	to   string
	most float64
}

const (
	ours   = "pod to pod, culvert"
	bridge = "pod to pod, bridge"
)

func bars() []bar {
	hp := func(chain string) string { return hostPortName(chain, 0) }
	full := func(chain string) string { return hostPortName(chain, fills[len(fills)-1]) }
	b := []bar{
		{"M1", rr, ours, raw, 1.08},
		{"M1", crr, ours, raw, 1.12},
		{"M1", rr, ours, bridge, 0.85},
		{"M2", rr, hp("culvert"), raw, 1.15},
		{"M3", crr, hp("culvert"), raw, 1.22},
		{"M4", crr, full("culvert"), hp("culvert"), 1.03},
		{"M4", crr, full("culvert"), full("iptables"), 0.10},
		{"M4", crr, full("culvert"), full("nft"), 0.28},
		{"M5", stream, ours, raw, 1.10},
		{"M5", stream, hp("culvert"), raw, 1.18},
		{"M6", bpfThere, ours, "", 350},
		{"M6", bpfThere, hp("culvert"), "", 500},
		{"M6", bpfBack, hp("culvert"), "", 500},
	}
	for _, backend := range []string{"iptables", "nft"} {
		b = append(b,
			bar{"M2", rr, hp("culvert"), hp(backend), 0.85},
			bar{"M3", crr, hp("culvert"), hp(backend), 0.82},
			bar{"M5", udp, hp("culvert"), hp(backend), 0.85},
			bar{"M5", stream, hp("culvert"), hp(backend), 0.85})
	}
	return b
}

// value is the median of the rounds, NaN if one side was not measured.
func (b bar) value(rounds []round) float64 {
	if b.to == "" {
		return stats.Median(stats.Column(rounds, b.path, b.m))
	}
	return stats.Ratio(stats.Column(rounds, b.path, b.m), stats.Column(rounds, b.to, b.m))
}

func (b bar) verdict(value float64) string { return stats.Within(0, value, b.most) }
