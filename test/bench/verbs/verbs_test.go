// SPDX-License-Identifier: Apache-2.0

package verbs

import (
	"slices"
	"testing"

	"github.com/culvert-cni/culvert/test/bench/node"
)

// A bar on a path that no node has would be "not measured" for ever.
func TestBarsNameWhatIsMeasured(t *testing.T) {
	s := stage{Options: Options{Rounds: 3, Parallel: 3}}
	for _, c := range chains() {
		for _, n := range Pods {
			s.beds = append(s.beds, &bed{Node: &node.Node{Chain: c}, pods: n})
		}
		s.beds = append(s.beds, &bed{Node: &node.Node{Chain: c}, hostPorts: hostPorts})
	}
	var known []string
	for _, j := range s.jobs() {
		known = append(known, j.path)
	}
	for _, b := range Bars() {
		if !slices.Contains(known, b.Path) || b.To != "" && !slices.Contains(known, b.To) || b.Floor != "" && !slices.Contains(known, b.Floor) {
			t.Errorf("%s: nothing measures %q, %q or %q", b.ID, b.Path, b.To, b.Floor)
		}
	}
	if got, want := len(known), 3*(12+4)+3*9+2*9; got != want {
		t.Errorf("%d cells, want %d", got, want)
	}
}
