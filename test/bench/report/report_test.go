// SPDX-License-Identifier: Apache-2.0

package report

import (
	"math"
	"strings"
	"testing"
)

const (
	rr  Metric = "RR us"
	crr Metric = "CRR us"
)

func part() *Part {
	return &Part{Name: "path", Base: "b", Paths: []string{"b", "a", "none"}, Rounds: []Round{
		{"a": {rr: 20}, "b": {rr: 10}, "f": {rr: 11}},
		{"a": {rr: 90}, "b": {rr: 60}, "f": {rr: 66}}, // a busy moment
		{"a": {rr: 22, crr: 7}, "b": {rr: 10}, "f": {rr: 12}},
	}}
}

func TestBar(t *testing.T) {
	nan := math.NaN()
	for _, tc := range []struct {
		name       string
		bar        Bar
		is, floor  float64
		bound, say string
	}{
		{"ratio, reached", Bar{ID: "M1", Metric: rr, Path: "a", To: "b", Most: 2}, 2, nan, "<= 2", "ok"},
		{"ratio, missed; what it cannot go below", Bar{ID: "M1", Metric: rr, Path: "a", To: "b", Most: 1.6, Floor: "f"}, 2, 1.1, "<= 1.6", "MISS by 25.0 %"},
		{"itself", Bar{ID: "M6", Metric: rr, Path: "a", Most: 22}, 22, nan, "<= 22", "ok"},
		{"at least", Bar{ID: "M9", Metric: rr, Path: "a", Least: 40, Most: math.Inf(1)}, 22, nan, ">= 40", "MISS by 45.0 %"},
		{"within", Bar{ID: "M11", Metric: crr, Path: "a", Least: 6, Most: 8}, 7, nan, "6 to 8", "ok"},
		{"nothing", Bar{ID: "M9", Metric: crr, Path: "a"}, 7, nan, "<= 0", "MISS"},
		{"no such path", Bar{ID: "M1", Metric: rr, Path: "a", To: "c", Most: 2}, nan, nan, "<= 2", "not measured"},
		{"no such metric there", Bar{ID: "M1", Metric: crr, Path: "a", To: "b", Most: 2}, nan, nan, "<= 2", "not measured"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			same := func(a, b float64) bool { return math.Abs(a-b) < 1e-9 || math.IsNaN(a) && math.IsNaN(b) }
			v := tc.bar.Value(part())
			if f := tc.bar.FloorValue(part()); !same(v, tc.is) || !same(f, tc.floor) {
				t.Errorf("value %v, floor %v, want %v, %v", v, f, tc.is, tc.floor)
			}
			if got := tc.bar.Verdict(v); got != tc.say || tc.bar.Bound() != tc.bound {
				t.Errorf("%q %q, want %q %q", tc.bar.Bound(), got, tc.bound, tc.say)
			}
		})
	}
}

// print is a table without what aligns it.
func print(t *testing.T, table Table) string {
	t.Helper()
	var b strings.Builder
	if err := table.Write(&b); err != nil {
		t.Fatal(err)
	}
	var lines []string
	for l := range strings.Lines(b.String()) {
		lines = append(lines, strings.Join(strings.Fields(l), " "))
	}
	return strings.Join(lines, "\n")
}

func TestPartTable(t *testing.T) {
	got := print(t, part().Table([]Column{{rr, true}, {crr, false}, {"nobody's", true}}))
	want := `| | RR us | x b | CRR us |
| --- | --- | --- | --- |
| b | 10.0 | 1.000 | |
| a | 22.0 | 2.000 | 7.000 |`
	if got != want {
		t.Errorf("%s\nwant\n%s", got, want)
	}
}

func TestToBase(t *testing.T) {
	p := part()
	p.Bases = map[string]string{"f": "a"}
	if a, f := p.ToBase("a", rr), p.ToBase("f", rr); a != 2 || f != 0.55 {
		t.Errorf("%v and %v, want 2 to b, 0.55 to a", a, f)
	}
}

func TestBars(t *testing.T) {
	bars := []Bar{
		{ID: "M1", Metric: rr, Path: "a", To: "b", Most: 1.6, Floor: "f", Beside: rr},
		{ID: "M2", Metric: rr, Path: "a", To: "b", Most: 2},
		{ID: "M3", Metric: rr, Path: "c", Most: 2},
	}
	var all Bars
	all.Judge(part(), bars, false)
	want := `| bar | what | of | beside | is | bar | | floor | |
| --- | --- | --- | --- | --- | --- | --- | --- | --- |
| M1 | RR us | a | b | 2.000 | <= 1.6 | MISS by 25.0 % | 1.100 | RR us 22.0 |
| M2 | RR us | a | b | 2.000 | <= 2 | ok | | |
| M3 | RR us | c | | | <= 2 | not measured | | |`
	if got := print(t, all.Table); got != want || all.Missed != 1 || all.Absent != 1 {
		t.Errorf("%d missed, %d absent\n%s\nwant\n%s", all.Missed, all.Absent, got, want)
	}
	var short Bars
	short.Judge(part(), bars, true)
	if got := print(t, short.Table); strings.Contains(got, "M3") || short.Absent != 1 {
		t.Errorf("a short run tells of what it does not measure:\n%s", got)
	}
}

func TestProgress(t *testing.T) {
	var out strings.Builder
	p := NewProgress(&out)
	p.Step("path", 0, 0, "set up")
	p.Step("path", 1, 4, "too soon after it")
	p.Step("verbs", 1, 4, "ADD")
	if got, want := out.String(), "0:00 path: set up\n0:00 verbs 25 %: ADD (0:00 left)\n"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
}
