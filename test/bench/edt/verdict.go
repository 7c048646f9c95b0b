// SPDX-License-Identifier: Apache-2.0

package main

import (
	"math"
	"slices"
)

// verdict on one metric in one cell, of a challenger against what is there today.
type verdict string

const (
	better  verdict = "better"
	worse   verdict = "worse"
	neither verdict = "-"
)

// spread is the largest less the smallest.
func spread(v []float64) float64 {
	if len(v) == 0 {
		return math.NaN()
	}
	return slices.Max(v) - slices.Min(v)
}

// judge compares costs round by round (less is better): the challenger is better if it
// is in every round by more than the spread of either over the rounds, and worse if it is
// the other way round. A figure that a round does not have (NaN) decides nothing.
func judge(challenger, now []float64) verdict {
	if len(challenger) != len(now) || len(now) == 0 {
		return neither
	}
	least := max(spread(challenger), spread(now)) // NaN if one of them is
	wins, losses := 0, 0
	for i := range now {
		if now[i]-challenger[i] > least {
			wins++
		}
		if challenger[i]-now[i] > least {
			losses++
		}
	}
	switch len(now) {
	case wins:
		return better
	case losses:
		return worse
	}
	return neither
}
