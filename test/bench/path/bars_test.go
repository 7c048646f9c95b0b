// SPDX-License-Identifier: Apache-2.0

package main

import (
	"math"
	"strings"
	"testing"

	"github.com/culvert-cni/culvert/test/bench/node"
)

func TestBarValue(t *testing.T) {
	rounds := []round{
		{"a": {rr: 20}, "b": {rr: 10}},
		{"a": {rr: 90}, "b": {rr: 60}}, // a busy moment
		{"a": {rr: 22, crr: 7}, "b": {rr: 10}},
	}
	for _, tc := range []struct {
		name    string
		bar     bar
		want    float64
		verdict string
	}{
		{"ratio, reached", bar{"M1", rr, "a", "b", 2}, 2, "ok"},
		{"ratio, missed", bar{"M1", rr, "a", "b", 1.6}, 2, "MISS by 25.0 %"},
		{"itself", bar{"M6", rr, "a", "", 22}, 22, "ok"},
		{"no such path", bar{"M1", rr, "a", "c", 2}, math.NaN(), "not measured"},
		{"no such metric there", bar{"M1", crr, "a", "b", 2}, math.NaN(), "not measured"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			got := tc.bar.value(rounds)
			if got != tc.want && !(math.IsNaN(got) && math.IsNaN(tc.want)) {
				t.Errorf("value = %v, want %v", got, tc.want)
			}
			if v := tc.bar.verdict(got); v != tc.verdict {
				t.Errorf("verdict = %q, want %q", v, tc.verdict)
			}
		})
	}
}

// A bar on a path that no stage has would be "not measured" for ever.
func TestBarsNameWhatIsMeasured(t *testing.T) {
	known := map[string]bool{raw: true}
	for _, c := range []node.Chain{{Name: "culvert"}, {Name: "iptables", Backend: "iptables"}, {Name: "nft", Backend: "nft"}} {
		known[podPodName(c)] = true
		for _, others := range fills {
			known[hostPortName(c.Name, others)] = true
		}
	}
	for _, b := range bars() {
		if !known[b.path] || (b.to != "" && !known[b.to]) {
			t.Errorf("%s: nothing measures %q or %q", b.id, b.path, b.to)
		}
	}
}

func TestReport(t *testing.T) {
	rounds := []round{{raw: {rr: 10}, ours: {rr: 10.5}}, {raw: {rr: 10}, ours: {rr: 10.7, lost: 3}}, {raw: {rr: 20}, ours: {rr: 30}}}
	var out strings.Builder
	if err := report(&out, []*path{{name: raw}, {name: ours}}, rounds); err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(out.String(), "\n")
	want := []string{
		"path RR p50 us x raw CRR p50 us x raw UDP CPU ns/packet x raw stream CPU s/GB x raw BPF ns there back",
		"raw veth pair 10.0 1.000",
		"pod to pod, culvert 10.7 1.070",
	}
	for i, w := range want {
		if got := strings.Join(strings.Fields(lines[i]), " "); got != w {
			t.Errorf("line %d: %q, want %q", i, got, w)
		}
	}
	if want := "M1 RR p50 us pod to pod, culvert raw veth pair 1.080 1.070 ok"; !strings.Contains(strings.Join(strings.Fields(out.String()), " "), want) {
		t.Errorf("no %q in\n%s", want, out.String())
	}
}
