// SPDX-License-Identifier: Apache-2.0

package maps

import "fmt"

// Generations are the attachments that live, by their generation numbers. No table is
// swept when a pod goes: its rows in flows and hostports die with its rows in pods.
type Generations map[uint64]bool

// Generations reads which attachments live.
func (t *Pods) Generations() (Generations, error) {
	live := Generations{}
	for p, err := range t.All() {
		if err != nil {
			return nil, fmt.Errorf("list live pods: %w", err)
		}
		live[p.Generation] = true
	}
	return live, nil
}

// Flow says whether every pod that a flow belongs to still lives, and that there is
// one.
func (g Generations) Flow(f Flow) bool {
	src, dst := f.SrcGeneration, f.DstGeneration
	return (src != 0 || dst != 0) && (src == 0 || g[src]) && (dst == 0 || g[dst])
}
