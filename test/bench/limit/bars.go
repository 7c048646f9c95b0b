// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"io"
	"math"
	"slices"

	"github.com/culvert-cni/culvert/test/bench/node"
	"github.com/culvert-cni/culvert/test/bench/stats"
)

// bar is what culvert is to reach: a metric of a path, as a ratio to another path's or,
// if there is none, itself.
type bar struct {
	id          string
	m           metric
	path, to    string
	least, most float64
}

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

func bars() []bar {
	var all []bar
	for _, rate := range slices.Concat(rates...) {
		for _, dir := range directions {
			ours, theirs := pathName(culvert, dir, rate), pathName(reference, dir, rate)
			atMost := 1.0
			if rate == 10e6 && dir == ingress {
				atMost = 0.6
			}
			all = append(all, bar{"M11", wire, ours, "", leastTCP, most}, bar{"M11", rtt, ours, theirs, 0, atMost})
		}
	}
	for _, dir := range directions {
		for _, runtime := range runtimes {
			ours := burstName(culvert, dir, runtime.name)
			all = append(all, bar{"M12", first, ours, "", 0, 1}, bar{"M12", rtt, ours, "", 0, 25})
		}
	}
	return all
}

// value is the median of the rounds, NaN if one side was not measured.
func (b bar) value(rounds []round) float64 {
	if b.to == "" {
		return median(rounds, b.path, b.m)
	}
	return stats.Ratio(stats.Column(rounds, b.path, b.m), stats.Column(rounds, b.to, b.m))
}

// median is that of the rounds that have the metric.
func median(rounds []round, path string, m metric) float64 {
	return stats.Median(slices.DeleteFunc(stats.Column(rounds, path, m), math.IsNaN))
}

func report(w io.Writer, rounds []round) {
	fmt.Fprintln(w, "| limit | TCP wire: culvert | reference | RTT p50 ms: culvert | reference | probes lost %: culvert | reference | first second / allowed: culvert | reference |")
	fmt.Fprintln(w, "| --- | --- | --- | --- | --- | --- | --- | --- | --- |")
	ours, theirs := paths(culvert), paths(reference)
	for i := range ours {
		fmt.Fprintf(w, "| %s |", ours[i][len(culvert.Name)+2:])
		for _, m := range []metric{wire, rtt, lost, first} {
			for _, path := range []string{ours[i], theirs[i]} {
				v := median(rounds, path, m)
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
	for _, b := range bars() {
		v := b.value(rounds)
		to := ""
		if b.to != "" {
			to = "x reference"
		}
		fmt.Fprintf(w, "| %s | %s | %s | %s | %s | %s | %s | %s |\n", b.id, b.m, b.path, to, bound(b.least), bound(b.most), figure(v), stats.Within(b.least, v, b.most))
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
