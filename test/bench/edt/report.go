// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"io"

	"github.com/culvert-cni/culvert/test/bench/stats"
)

// measurement is what one candidate did in one cell in one round.
type measurement struct {
	share                            float64 // of the rate, at the wire: bulk and small flows
	ping50, ping99, pingLost         float64 // ms, ms, %: 64 bytes each 20 ms
	request50, request99, requestLos float64 // the same with 1000 bytes
	cpu                              float64 // s by GB of bulk, the whole machine
}

// metric is a column.
type metric struct {
	name   string
	of     func(measurement) float64
	judged bool // counts for the rule; less is better
}

var metrics = []metric{
	{"of rate", func(m measurement) float64 { return m.share }, false},
	{"64 B p50 ms", func(m measurement) float64 { return m.ping50 }, true},
	{"64 B p99 ms", func(m measurement) float64 { return m.ping99 }, true},
	{"64 B lost %", func(m measurement) float64 { return m.pingLost }, false},
	{"1 kB p50 ms", func(m measurement) float64 { return m.request50 }, true},
	{"1 kB p99 ms", func(m measurement) float64 { return m.request99 }, true},
	{"1 kB lost %", func(m measurement) float64 { return m.requestLos }, false},
	{"CPU s/GB", func(m measurement) float64 { return m.cpu }, true},
}

func (m measurement) String() string {
	var s string
	for _, k := range metrics {
		s += fmt.Sprintf("%s %.4g  ", k.name, k.of(m))
	}
	return s
}

// results are the rounds, by cell and candidate.
type results map[cell]map[string][]measurement

func (r results) add(c cell, name string, m measurement) {
	if r[c] == nil {
		r[c] = map[string][]measurement{}
	}
	r[c][name] = append(r[c][name], m)
}

func (r results) column(c cell, name string, k metric) (v []float64) {
	for _, m := range r[c][name] {
		v = append(v, k.of(m))
	}
	return v
}

// replaces is the rule: better in every round by more than the spread, in each judged
// metric of each cell.
func (r results) replaces(cells []cell, challenger string) bool {
	for _, c := range cells {
		for _, k := range metrics {
			if k.judged && judge(r.column(c, challenger, k), r.column(c, today, k)) != better {
				return false
			}
		}
	}
	return len(cells) > 0
}

// report prints medians with their spread as a table, and the verdicts.
func (r results) report(out io.Writer, cells []cell) {
	fmt.Fprint(out, "\nmedian (spread)\n\n| cell | shaper |")
	for _, k := range metrics {
		fmt.Fprintf(out, " %s |", k.name)
	}
	fmt.Fprint(out, "\n| --- | --- |")
	for range metrics {
		fmt.Fprint(out, " --- |")
	}
	for _, c := range cells {
		for _, k := range candidates {
			fmt.Fprintf(out, "\n| %s | %s |", c, k.name)
			for _, m := range metrics {
				v := r.column(c, k.name, m)
				fmt.Fprintf(out, " %.3g (%.2g) |", stats.Median(v), spread(v))
			}
		}
	}
	fmt.Fprintln(out)
	for _, k := range candidates {
		if k.horizon > 0 {
			r.verdicts(out, cells, k.name)
		}
	}
}

// verdicts prints what the rule says of a challenger.
func (r results) verdicts(out io.Writer, cells []cell, challenger string) {
	fmt.Fprintf(out, "\n%s against %s, in every round by more than the spread:\n", challenger, today)
	for _, c := range cells {
		fmt.Fprintf(out, "  %-30s", c)
		for _, k := range metrics {
			if k.judged {
				fmt.Fprintf(out, " %s: %s;", k.name, judge(r.column(c, challenger, k), r.column(c, today, k)))
			}
		}
		fmt.Fprintln(out)
	}
	fmt.Fprintf(out, "  replaces it: %t\n", r.replaces(cells, challenger))
}
