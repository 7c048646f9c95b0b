// SPDX-License-Identifier: Apache-2.0

package kube

import (
	"maps"
	"net/netip"
	"slices"
)

// index finds blocks by their ranges.
type index struct {
	blocks map[netip.Prefix]block
	order  []netip.Prefix // sorted; nil after a change
}

func newIndex(named map[string]block) *index {
	x := &index{blocks: make(map[netip.Prefix]block, len(named))}
	for _, b := range named {
		x.blocks[b.prefix] = b
	}
	return x
}

func (x *index) put(b block)         { x.blocks[b.prefix], x.order = b, nil }
func (x *index) drop(p netip.Prefix) { delete(x.blocks, p); x.order = nil }

// sorted gives all blocks by address, the wider of two with one address first.
func (x *index) sorted() []netip.Prefix {
	if x.order == nil {
		x.order = slices.SortedFunc(maps.Keys(x.blocks), netip.Prefix.Compare)
	}
	return x.order
}

// of gives a node's blocks, sorted.
func (x *index) of(node string) (own []block) {
	for _, p := range x.sorted() {
		if b := x.blocks[p]; b.node() == node {
			own = append(own, b)
		}
	}
	return own
}

// covering gives the blocks that have all of a range and more, the narrowest first.
func (x *index) covering(p netip.Prefix) (found []block) {
	for bits := p.Bits() - 1; bits >= 0; bits-- {
		wider, _ := p.Addr().Prefix(bits)
		if b, ok := x.blocks[wider]; ok {
			found = append(found, b)
		}
	}
	return found
}

// inside gives the blocks that are parts of a range.
func (x *index) inside(p netip.Prefix) (found []block) {
	order := x.sorted()
	from, _ := slices.BinarySearchFunc(order, p, netip.Prefix.Compare)
	for _, q := range order[from:] {
		if !p.Contains(q.Addr()) {
			break
		}
		if q.Bits() > p.Bits() {
			found = append(found, x.blocks[q])
		}
	}
	return found
}
