// SPDX-License-Identifier: Apache-2.0

package stats_test

import (
	"math"
	"slices"
	"testing"

	"github.com/culvert-cni/culvert/test/bench/stats"
)

var nan = math.NaN()

func same(a, b float64) bool { return a == b || math.IsNaN(a) && math.IsNaN(b) }

func TestMedian(t *testing.T) {
	for _, tc := range []struct {
		name string
		of   []float64
		want float64
	}{
		{"nothing", nil, nan},
		{"one", []float64{3}, 3},
		{"odd, unsorted", []float64{9, 1, 5}, 5},
		{"even: between the two in the middle", []float64{4, 1, 100, 2}, 3},
		{"an outlier is not felt", []float64{1, 1, 1, 1, 1e9}, 1},
	} {
		t.Run(tc.name, func(t *testing.T) {
			before := slices.Clone(tc.of)
			if got := stats.Median(tc.of); !same(got, tc.want) {
				t.Errorf("Median(%v) = %v, want %v", tc.of, got, tc.want)
			}
			if !slices.Equal(tc.of, before) {
				t.Errorf("Median changed its argument: %v, was %v", tc.of, before)
			}
		})
	}
}

func TestRatio(t *testing.T) {
	for _, tc := range []struct {
		name         string
		ours, theirs []float64
		want         float64
	}{
		{"nothing", nil, nil, nan},
		{"round by round, not of the medians", []float64{2, 20, 40}, []float64{1, 10, 10}, 2},
		{"the machine gets slow for both", []float64{1, 1, 50, 50, 50}, []float64{2, 2, 100, 100, 100}, 0.5},
		{"rounds that both have", []float64{3, 3, 100}, []float64{1, 1}, 3},
		{"a round that one has not", []float64{nan, 8, 9}, []float64{1, 2, nan}, 4},
		{"nothing measured", []float64{1, 2}, []float64{0, 0}, nan},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if got := stats.Ratio(tc.ours, tc.theirs); !same(got, tc.want) {
				t.Errorf("Ratio(%v, %v) = %v, want %v", tc.ours, tc.theirs, got, tc.want)
			}
		})
	}
}

func TestQuantile(t *testing.T) {
	for _, tc := range []struct{ q, want float64 }{{0, 1}, {0.5, 2}, {0.75, 3}, {0.99, 4}, {1, 4}} {
		if got := stats.Quantile([]float64{4, 1, 3, 2}, tc.q); got != tc.want {
			t.Errorf("Quantile %.2f = %v, want %v", tc.q, got, tc.want)
		}
	}
}

func TestWithin(t *testing.T) {
	for _, tc := range []struct {
		least, v, most float64
		want           string
	}{
		{0.95, 1, 1.02, "ok"},
		{0.95, 0.95, 1.02, "ok"},
		{0.95, 1.122, 1.02, "MISS by 10.0 %"},
		{0.95, 0.475, 1.02, "MISS by 50.0 %"},
		{0, math.NaN(), 1, "not measured"},
	} {
		if got := stats.Within(tc.least, tc.v, tc.most); got != tc.want {
			t.Errorf("Within(%v, %v, %v) = %q, want %q", tc.least, tc.v, tc.most, got, tc.want)
		}
	}
}
