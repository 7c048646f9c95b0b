// SPDX-License-Identifier: Apache-2.0

// Package stats is what the benchmarks make of their rounds: medians, and medians of
// ratios round by round, which what else the machine does touches less than it does the
// ratio of medians.
package stats

import (
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
