// SPDX-License-Identifier: Apache-2.0

// Package report is what all parts of the benchmark tell in: figures by round, path and
// metric, bars on them, and how both are printed, kept as JSON and put into documents.
package report

import (
	"fmt"
	"math"
	"slices"

	"github.com/culvert-cni/culvert/test/bench/stats"
)

// Metric is what of a path is measured. It names its unit.
type Metric string

// Round is one pass over all paths. What was not measured is not there.
type Round map[string]map[Metric]float64

// Put keeps a figure.
func (r Round) Put(path string, m Metric, v float64) {
	if math.IsNaN(v) || math.IsInf(v, 0) {
		return
	}
	if r[path] == nil {
		r[path] = map[Metric]float64{}
	}
	r[path][m] = v
}

// Part is what one part of the benchmark measured.
type Part struct {
	Name   string   `json:"name"`   // of its file too
	Method string   `json:"method"` // in a sentence
	Base   string   `json:"base"`   // path that the others' figures are ratios to; may be empty
	Paths  []string `json:"paths"`  // in the order of their table
	Failed []string `json:"failed"` // cells that failed, and why
	Rounds []Round  `json:"-"`

	Bases map[string]string `json:"bases"` // of paths that have another one
}

// Fail notes that a cell was not measured: the run goes on.
func (p *Part) Fail(format string, args ...any) {
	p.Failed = append(p.Failed, fmt.Sprintf(format, args...))
}

// Value is the median of the rounds.
func (p *Part) Value(path string, m Metric) float64 {
	return stats.Median(slices.DeleteFunc(stats.Column(p.Rounds, path, m), math.IsNaN))
}

// Ratio is the median of each round's ratio.
func (p *Part) Ratio(path, to string, m Metric) float64 {
	return stats.Ratio(stats.Column(p.Rounds, path, m), stats.Column(p.Rounds, to, m))
}

// ToBase is Ratio to the path's base.
func (p *Part) ToBase(path string, m Metric) float64 {
	base := p.Bases[path]
	if base == "" {
		base = p.Base
	}
	return p.Ratio(path, base, m)
}

// Bar is what culvert is to reach: a metric of a path, as a ratio to another path's or, if
// there is none, itself.
type Bar struct {
	ID       string // M1
	Metric   Metric
	Path, To string
	Least    float64
	Most     float64
	Floor    string // path that does only what cannot be left out, measured in the same rounds
	Beside   Metric // printed beside it: the path's own
}

// Value is that of the rounds, NaN if one side was not measured.
func (b Bar) Value(p *Part) float64 { return b.of(p, b.Path) }

// FloorValue is what Value were if the path were the floor.
func (b Bar) FloorValue(p *Part) float64 {
	if b.Floor == "" {
		return math.NaN()
	}
	return b.of(p, b.Floor)
}

func (b Bar) of(p *Part, path string) float64 {
	if b.To == "" {
		return p.Value(path, b.Metric)
	}
	return p.Ratio(path, b.To, b.Metric)
}

// Bound is what the bar asks for.
func (b Bar) Bound() string {
	switch {
	case b.Least == 0:
		return fmt.Sprintf("<= %v", b.Most)
	case math.IsInf(b.Most, 1):
		return fmt.Sprintf(">= %v", b.Least)
	}
	return fmt.Sprintf("%v to %v", b.Least, b.Most)
}

// Verdict on a value.
func (b Bar) Verdict(v float64) string { return stats.Within(b.Least, v, b.Most) }
