// SPDX-License-Identifier: Apache-2.0

package path

import (
	"strings"

	"github.com/culvert-cni/culvert/test/bench/report"
)

// IPv6 ends the names of paths of that family.
const IPv6 = ", IPv6"

// Names of paths, for IPv4.
const (
	raw     = "raw veth pair"
	routed  = "routed, no netfilter"
	bridge  = "pod to pod, bridge"
	ptp     = "pod to pod, ptp"
	ours    = "pod to pod, culvert"
	toPod   = "outside to pod, culvert"
	floor   = "pod to pod, floor"
	floorIn = "outside to pod, floor"
)

// Bars are M1 to M6, for each family: what is said of IPv4 is asked of IPv6.
func Bars() []report.Bar {
	hp := func(chain string) string { return HostPort(chain, 0) }
	full := func(chain string) string { return HostPort(chain, Others[len(Others)-1]) }
	b := []report.Bar{
		{ID: "M1", Metric: RR, Path: ours, To: raw, Most: 1.08, Floor: floor, Beside: RR},
		{ID: "M1", Metric: CRR, Path: ours, To: raw, Most: 1.12, Floor: floor, Beside: CRR},
		{ID: "M1", Metric: RR, Path: ours, To: bridge, Most: 0.85, Floor: floor},
	}
	backends := []string{"iptables", "nft"}
	beside := func(id string, m report.Metric, of string, mosts ...float64) {
		for i, backend := range backends {
			b = append(b, report.Bar{ID: id, Metric: m, Path: of, To: strings.Replace(of, "culvert", "portmap "+backend, 1), Most: mosts[i%len(mosts)], Floor: floorIn})
		}
	}
	b = append(b, report.Bar{ID: "M2", Metric: RR, Path: hp("culvert"), To: raw, Most: 1.15, Floor: floorIn, Beside: RR})
	beside("M2", RR, hp("culvert"), 0.85)
	b = append(b, report.Bar{ID: "M3", Metric: CRR, Path: hp("culvert"), To: raw, Most: 1.22, Floor: floorIn, Beside: CRR})
	beside("M3", CRR, hp("culvert"), 0.82)
	b = append(b, report.Bar{ID: "M4", Metric: CRR, Path: full("culvert"), To: hp("culvert"), Most: 1.03, Beside: CRR})
	beside("M4", CRR, full("culvert"), 0.10, 0.28)
	beside("M5", UDP, hp("culvert"), 0.85)
	b = append(b,
		report.Bar{ID: "M5", Metric: Stream, Path: ours, To: raw, Most: 1.10, Floor: floor, Beside: Stream},
		report.Bar{ID: "M5", Metric: Stream, Path: hp("culvert"), To: raw, Most: 1.18, Floor: floorIn, Beside: Stream})
	beside("M5", Stream, hp("culvert"), 0.85)
	b = append(b,
		report.Bar{ID: "M6", Metric: BPFThere, Path: ours, Most: 350, Floor: floor},
		report.Bar{ID: "M6", Metric: BPFThere, Path: hp("culvert"), Most: 500, Floor: floorIn},
		report.Bar{ID: "M6", Metric: BPFBack, Path: hp("culvert"), Most: 500, Floor: floorIn})
	return append(b, sixth(b)...)
}

// sixth are the same bars for IPv6.
func sixth(bars []report.Bar) []report.Bar {
	var all []report.Bar
	for _, b := range bars {
		for _, path := range []*string{&b.Path, &b.To, &b.Floor} {
			if *path != "" {
				*path += IPv6
			}
		}
		all = append(all, b)
	}
	return all
}
