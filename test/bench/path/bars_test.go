// SPDX-License-Identifier: Apache-2.0

package path

import (
	"testing"
)

// A bar on a path that no stage has would be "not measured" for ever.
func TestBarsNameWhatIsMeasured(t *testing.T) {
	known := map[string]bool{"": true}
	for _, name := range []string{raw, routed, bridge, ptp, ours, toPod, floor, floorIn} {
		known[name], known[name+IPv6] = true, true
	}
	for _, chain := range []string{"culvert", "iptables", "nft"} {
		for _, others := range Others {
			name := HostPort(chain, others)
			known[name], known[name+IPv6] = true, true
		}
	}
	ids := map[string]int{}
	for _, b := range Bars() {
		ids[b.ID]++
		for _, path := range []string{b.Path, b.To, b.Floor} {
			if !known[path] {
				t.Errorf("%s: nothing measures %q", b.ID, path)
			}
		}
	}
	for id, want := range map[string]int{"M1": 6, "M2": 6, "M3": 6, "M4": 6, "M5": 12, "M6": 6} {
		if ids[id] != want {
			t.Errorf("%d bars %s, want %d: as many for each family", ids[id], id, want)
		}
	}
}
