// SPDX-License-Identifier: Apache-2.0

package limits

import (
	"math"
	"strings"
	"testing"
	"time"

	"github.com/culvert-cni/culvert/test/bench/report"
)

func TestSummary(t *testing.T) {
	var samples []sample
	for i := range 100 {
		samples = append(samples, sample{rtt: time.Duration(i) * time.Millisecond}) // the first is lost
	}
	if got, want := summary(samples), (latency{P50: 50, P99: 99, Lost: 0.01}); math.Abs(got.Lost-want.Lost) > 1e-9 || got.P50 != want.P50 || got.P99 != want.P99 {
		t.Errorf("summary = %+v, want %+v", got, want)
	}
	if got := summary([]sample{{}}); !math.IsNaN(got.P50) || got.Lost != 1 {
		t.Errorf("summary of a lost probe = %+v, want no median and all lost", got)
	}
}

func TestRowVerdict(t *testing.T) {
	for _, tc := range []struct {
		name          string
		tcp, udp, off float64
		emulated      bool
		want          string
	}{
		{"held", 0.96, 1, 1.5, false, "ok"},
		{"TCP starves", 0.5, 1, 1.5, false, "TCP MISS by 47.4 %"},
		{"too much", 1.1, 1.1, 1.5, false, "TCP MISS by 7.8 %, UDP MISS by 7.8 %"},
		{"not tried", 1, 1, 1.01, false, "UDP was offered at 1.01 only"},
		{"slow guest", 0.1, 0.2, 0.2, true, "ok"},
		{"dead guest", 0, 0.2, 0.2, true, "TCP MISS by 100.0 %"},
		{"guest over the ceiling", 1.1, 1, 1.5, true, "TCP MISS by 7.8 %"},
	} {
		r := row{tcp: figures{Wire: tc.tcp}, udp: figures{Wire: tc.udp, Offered: tc.off}}
		if got := r.verdict(tc.emulated); got != tc.want {
			t.Errorf("%s: %q, want %q", tc.name, got, tc.want)
		}
	}
	again := row{tcp: figures{Wire: 1, tries: 1}, udp: figures{Wire: 1, Offered: 1.5, tries: 2}}
	if got := again.verdict(false); got != "ok, try 2" {
		t.Errorf("measured twice: %q", got)
	}
}

// A cell that was good at once is not measured again.
func TestRowMeasure(t *testing.T) {
	for _, tc := range []struct {
		wires []float64
		want  int
	}{{[]float64{1}, 1}, {[]float64{0.5, 1}, 2}, {[]float64{0.5, 1.1, 0.9}, 3}} {
		var r row
		n := 0
		err := r.measure("udp", false, func() (figures, error) {
			n++
			return figures{Wire: tc.wires[n-1], Offered: 1.5}, nil
		})
		if err != nil || n != tc.want || r.udp.tries != n || r.udp.Wire != tc.wires[n-1] {
			t.Errorf("%v: %d tries, %+v, %v; want %d", tc.wires, n, r.udp, err, tc.want)
		}
	}
}

// A bar on a path that nothing measures would be "not measured" for ever.
func TestBarsNameWhatIsMeasured(t *testing.T) {
	known := map[string]bool{"": true}
	for _, name := range append(paths(culvert), paths(reference)...) {
		known[name] = true
	}
	for _, b := range Bars() {
		if !known[b.Path] || !known[b.To] {
			t.Errorf("%s: nothing measures %q or %q", b.ID, b.Path, b.To)
		}
	}
	if n := len(Bars()); n != 32 {
		t.Errorf("%d bars, want 32: three of 4 rates, two of 2 bursts, both directions", n)
	}
}

func TestWriteReference(t *testing.T) {
	ours, theirs := pathName(culvert, ingress, 10e6), pathName(reference, ingress, 10e6)
	var out strings.Builder
	writeReference(&out, &report.Part{Rounds: []report.Round{
		{ours: {wire: 1, rtt: 7, lost: 0}, theirs: {wire: 0.99, rtt: 21, lost: 0.5}},
		{ours: {wire: 0.98, rtt: 7, lost: 0}, theirs: {wire: 0.99, rtt: 21, lost: 0.5}},
	}})
	for _, want := range []string{
		"| 10M ingress | 0.990 | 0.990 | 7.000 | 21.0 | 0 | 50.0 |  |  |\n",
		"| M11 | RTT under load, p50 ms | culvert, 10M ingress | x reference |  | 0.6 | 0.333 | ok |\n",
	} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("no %q in\n%s", want, out.String())
		}
	}
}

func TestSection(t *testing.T) {
	for _, tc := range []struct {
		o    Options
		want string
	}{
		{Options{Kernel: "6.18.44-fc-v595"}, "6.18"},
		{Options{Kernel: "6.1.0-40-cloud-amd64", Emulated: true}, "6.1 emulated"},
		{Options{Kernel: "odd"}, "odd"},
	} {
		if got := tc.o.section(); got != tc.want {
			t.Errorf("section of %q = %q, want %q", tc.o.Kernel, got, tc.want)
		}
	}
}
