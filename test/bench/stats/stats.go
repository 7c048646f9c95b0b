// SPDX-License-Identifier: Apache-2.0

// Package stats is what the benchmarks make of their rounds: medians, and medians of
// ratios round by round, which what else the machine does touches less than it does the
// ratio of medians; and how they are printed.
package stats

import (
	"fmt"
	"math"
	"slices"
)

// Median is the middle of v, NaN of nothing. v stays as it is.
func Median(v []float64) float64 {
	if len(v) == 0 {
		return math.NaN()
	}
	v = slices.Sorted(slices.Values(v))
	m := len(v) / 2
	if len(v)%2 == 1 {
		return v[m]
	}
	return (v[m-1] + v[m]) / 2
}

// Ratio is the median of ours[i]/theirs[i], of the rounds that both have. A round that
// one of them has not is NaN there.
func Ratio(ours, theirs []float64) float64 {
	var ratios []float64
	for i := range min(len(ours), len(theirs)) {
		if r := ours[i] / theirs[i]; !math.IsNaN(r) && !math.IsInf(r, 0) {
			ratios = append(ratios, r)
		}
	}
	return Median(ratios)
}

// Quantile is the least of v that a share q of v does not exceed, NaN of nothing. v stays
// as it is.
func Quantile(v []float64, q float64) float64 {
	if len(v) == 0 {
		return math.NaN()
	}
	v = slices.Sorted(slices.Values(v))
	return v[max(int(math.Ceil(q*float64(len(v))))-1, 0)]
}

// Column is a metric of a path, round by round; NaN where it was not measured.
func Column[R ~map[string]map[M]float64, M comparable](rounds []R, path string, m M) []float64 {
	var v []float64
	for _, r := range rounds {
		x, ok := r[path][m]
		if !ok {
			x = math.NaN()
		}
		v = append(v, x)
	}
	return v
}

// Within is a verdict on a value: "ok", by how much it misses the bounds, or that it was
// not measured (NaN).
func Within(least, v, most float64) string {
	switch {
	case math.IsNaN(v):
		return "not measured"
	case v > most && most == 0:
		return "MISS"
	case v > most:
		return fmt.Sprintf("MISS by %.1f %%", 100*(v/most-1))
	case v < least:
		return fmt.Sprintf("MISS by %.1f %%", 100*(1-v/least))
	}
	return "ok"
}

// Figure prints three digits that mean something; nothing for NaN.
func Figure(v float64) string {
	switch {
	case math.IsNaN(v):
		return ""
	case v < 10:
		return fmt.Sprintf("%.3f", v)
	case v < 100:
		return fmt.Sprintf("%.1f", v)
	}
	return fmt.Sprintf("%.0f", v)
}
