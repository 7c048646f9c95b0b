// SPDX-License-Identifier: Apache-2.0

package verbs

import (
	"math"

	"github.com/culvert-cni/culvert/test/bench/report"
)

// Columns of the part's table.
func Columns() []report.Column {
	return []report.Column{{Metric: CPU("ADD")}, {Metric: wall("ADD")}, {Metric: CPU("CHECK")}, {Metric: wall("CHECK")}, {Metric: CPU("DEL")}, {Metric: wall("DEL")},
		{Metric: PerSecond}, {Metric: Errors}, {Metric: Late}}
}

// Bars are M7 to M10.
func Bars() []report.Bar {
	least := func(pods int) string { return Path(floor, pods, 1) }
	at := func(chain string, pods int) string { return Path(chain, pods, 1) }
	var all []report.Bar
	for _, b := range []struct {
		pods          int
		iptables, nft float64
	}{{0, 0.15, 0.25}, {500, 0.05, 0.15}} {
		all = append(all,
			report.Bar{ID: "M7", Metric: CPU("ADD"), Path: at("culvert", b.pods), To: at("iptables", b.pods), Most: b.iptables, Floor: least(b.pods), Beside: CPU("ADD")},
			report.Bar{ID: "M7", Metric: CPU("ADD"), Path: at("culvert", b.pods), To: at("nft", b.pods), Most: b.nft, Floor: least(b.pods)})
	}
	beside := pathName("culvert", 0, hostPorts, 1)
	loaded := Path("culvert", 500, 32)
	all = append(all,
		report.Bar{ID: "M8", Metric: CPU("ADD"), Path: at("culvert", 500), To: at("culvert", 0), Most: 1.2, Floor: least(500), Beside: wall("ADD")},
		report.Bar{ID: "M8", Metric: CPU("ADD"), Path: beside, To: at("culvert", 0), Most: 1.2, Floor: pathName(floor, 0, hostPorts, 1), Beside: wall("ADD")},
		report.Bar{ID: "M9", Metric: wall("ADD"), Path: loaded, To: Path("nft", 500, 32), Most: 0.3, Beside: wall("ADD")},
		report.Bar{ID: "M9", Metric: PerSecond, Path: loaded, Least: 40, Most: math.Inf(1)},
		report.Bar{ID: "M9", Metric: Errors, Path: loaded},
		report.Bar{ID: "M9", Metric: Late, Path: loaded})
	for _, pods := range []int{0, 500} {
		for _, v := range []struct {
			verb string
			most float64
		}{{"DEL", 0.08}, {"CHECK", 0.1}} {
			for _, chain := range []string{"iptables", "nft"} {
				all = append(all, report.Bar{ID: "M10", Metric: CPU(v.verb), Path: at("culvert", pods), To: at(chain, pods), Most: v.most, Floor: least(pods), Beside: CPU(v.verb)})
			}
		}
	}
	return all
}
