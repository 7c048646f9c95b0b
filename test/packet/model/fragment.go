// SPDX-License-Identifier: Apache-2.0

package model

import "time"

// orphaned is how long a later fragment without a first one spoils the datagram.
const orphaned = uint64(100 * time.Millisecond)

// datagram is what a fragment is part of. IPv6 numbers them per pair of addresses.
func (v *view) datagram(side Side) Datagram {
	d := Datagram{Src: v.Src, Dst: v.Dst, ID: v.id, Proto: v.Proto, Side: side}
	if v.v6 {
		d.Proto = fragment6
	}
	return d
}

// begin notes a first fragment; false: a later one came before it, of late.
func (n *Node) begin(in In, v *view, side Side) bool {
	row, ok := n.Fragments[v.datagram(side)]
	if ok && row.Orphan {
		// How old is it at least, and at most?
		least, most := in.Early-min(in.Early, row.Late), in.Late-row.Early
		if most <= orphaned {
			return false
		}
		if least <= orphaned {
			n.Fault = ErrUnsure
		}
	}
	n.Fragments[v.datagram(side)] = Begun{Tuple: v.Tuple}
	return true
}

// follow gives a later fragment the tuple of its first one, if that was noted.
func (n *Node) follow(in In, v *view, side Side) bool {
	row, ok := n.Fragments[v.datagram(side)]
	if !ok || row.Orphan {
		n.Fragments[v.datagram(side)] = Begun{Orphan: true, Early: in.Early, Late: in.Late}
		return false
	}
	v.Tuple = row.Tuple
	return true
}
