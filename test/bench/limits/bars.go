// SPDX-License-Identifier: Apache-2.0

package limits

import (
	"fmt"
	"io"
	"slices"

	"github.com/culvert-cni/culvert/test/bench/node"
	"github.com/culvert-cni/culvert/test/bench/report"
	"github.com/culvert-cni/culvert/test/bench/stats"
)

// paths are the names of what is measured with a chain.
func paths(c node.Chain) []string {
	var names []string
	for _, rate := range slices.Concat(rates...) {
		for _, dir := range directions {
			names = append(names, pathName(c, dir, rate))
		}
	}
	for _, dir := range directions {
		for _, runtime := range runtimes {
			names = append(names, burstName(c, dir, runtime.name))
		}
	}
	return names
}

// Rates are those of limits, bit/s.
func Rates() []uint64 { return slices.Concat(rates...) }

// RTT is the round trip under load.
const RTT = rtt

// Path is that of a chain (culvert, reference), a direction (ingress, egress) and a rate.
func Path(chain, dir string, rate uint64) string {
	return pathName(node.Chain{Name: chain}, direction(dir), rate)
}

// Bars are M11 and M12.
func Bars() []report.Bar {
	var all []report.Bar
	for _, rate := range slices.Concat(rates...) {
		for _, dir := range directions {
			ours, theirs := pathName(culvert, dir, rate), pathName(reference, dir, rate)
			atMost := 1.0
			if rate == 10e6 && dir == ingress {
				atMost = 0.6
			}
			all = append(all,
				report.Bar{ID: "M11", Metric: wire, Path: ours, Least: leastTCP, Most: most},
				report.Bar{ID: "M11", Metric: udp, Path: ours, Least: leastUDP, Most: most},
				report.Bar{ID: "M11", Metric: rtt, Path: ours, To: theirs, Most: atMost, Beside: rtt})
		}
	}
	for _, dir := range directions {
		for _, runtime := range runtimes {
			ours := burstName(culvert, dir, runtime.name)
			all = append(all, report.Bar{ID: "M12", Metric: first, Path: ours, Most: 1}, report.Bar{ID: "M12", Metric: rtt, Path: ours, Most: 25})
		}
	}
	return all
}

// Columns of the part's table.
func Columns() []report.Column {
	return []report.Column{{Metric: wire}, {Metric: udp}, {Metric: rtt}, {Metric: lost}, {Metric: first}}
}

func writeReference(w io.Writer, part *report.Part) {
	fmt.Fprintln(w, "| limit | TCP wire: culvert | reference | RTT p50 ms: culvert | reference | probes lost %: culvert | reference | first second / allowed: culvert | reference |")
	fmt.Fprintln(w, "| --- | --- | --- | --- | --- | --- | --- | --- | --- |")
	ours, theirs := paths(culvert), paths(reference)
	for i := range ours {
		fmt.Fprintf(w, "| %s |", ours[i][len(culvert.Name)+2:])
		for _, m := range []report.Metric{wire, rtt, lost, first} {
			for _, path := range []string{ours[i], theirs[i]} {
				v := part.Value(path, m)
				if m == lost {
					v *= 100
				}
				fmt.Fprintf(w, " %s |", figure(v))
			}
		}
		fmt.Fprintln(w)
	}
	fmt.Fprintln(w, "\n| bar | what | of | to | at least | at most | is | |")
	fmt.Fprintln(w, "| --- | --- | --- | --- | --- | --- | --- | --- |")
	for _, b := range Bars() {
		v := b.Value(part)
		to := ""
		if b.To != "" {
			to = "x reference"
		}
		fmt.Fprintf(w, "| %s | %s | %s | %s | %s | %s | %s | %s |\n", b.ID, b.Metric, b.Path, to, bound(b.Least), bound(b.Most), figure(v), b.Verdict(v))
	}
}

func bound(v float64) string {
	if v == 0 {
		return ""
	}
	return fmt.Sprint(v)
}

// figure is a plain 0 where nothing was lost.
func figure(v float64) string {
	if v == 0 {
		return "0"
	}
	return stats.Figure(v)
}
