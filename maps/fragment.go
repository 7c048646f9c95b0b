// SPDX-License-Identifier: Apache-2.0

package maps

import (
	"iter"
	"net/netip"
	"time"

	"github.com/culvert-cni/culvert/bpf"
)

// Fragment is a row of fragments: the tuple that later fragments of a datagram share
// with its first one.
type Fragment struct {
	Src, Dst netip.Addr
	ID       uint32
	Proto    uint8
	Tuple    Tuple
	Seen     time.Duration // CLOCK_MONOTONIC
}

// Fragments is the table fragments. The datapath alone writes it.
type Fragments struct {
	rows table[bpf.DatapathFragmentKey, bpf.DatapathFragment]
}

// All reads every row, in no order.
func (t *Fragments) All() iter.Seq2[Fragment, error] {
	return typed(t.rows, bpf.DatapathMapFragments, decodeFragment)
}

func decodeFragment(key *bpf.DatapathFragmentKey, value *bpf.DatapathFragment) Fragment {
	return Fragment{
		Src:   fromAddr(key.Src),
		Dst:   fromAddr(key.Dst),
		ID:    key.Id,
		Proto: key.Proto,
		Tuple: decodeTuple(&value.Tuple),
		Seen:  time.Duration(value.SeenNs),
	}
}
