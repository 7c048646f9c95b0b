// SPDX-License-Identifier: Apache-2.0

package address

import (
	"encoding/binary"
	"math"
	"net/netip"
	"slices"
)

// span is addresses of one family in a row. What a set gives, and what it must not, are
// spans: an address for each would cost too much, of IPv6 more than there is.
type span struct{ first, last netip.Addr }

func spanOf(p netip.Prefix) span { return span{p.Masked().Addr(), lastOf(p)} }

func (s span) contains(a netip.Addr) bool {
	return a.BitLen() == s.first.BitLen() && !a.Less(s.first) && !s.last.Less(a)
}

// count is how many addresses there are in it; it ends at the largest number.
func (s span) count() uint64 {
	first, last := s.first.As16(), s.last.As16()
	lowFirst, lowLast := binary.BigEndian.Uint64(first[8:]), binary.BigEndian.Uint64(last[8:])
	if [8]byte(first[:8]) != [8]byte(last[:8]) || lowLast-lowFirst == math.MaxUint64 {
		return math.MaxUint64
	}
	return lowLast - lowFirst + 1
}

// spans are sorted, and no two of them touch.
type spans []span

func merge(list []span) spans {
	slices.SortFunc(list, func(a, b span) int { return a.first.Compare(b.first) })
	var out spans
	for _, s := range list {
		if n := len(out); n > 0 && (out[n-1].contains(s.first) || out[n-1].last.Next() == s.first) {
			if out[n-1].last.Less(s.last) {
				out[n-1].last = s.last
			}
			continue
		}
		out = append(out, s)
	}
	return out
}

// from gives those that do not end before an address.
func (l spans) from(a netip.Addr) spans {
	at, _ := slices.BinarySearchFunc(l, a, func(s span, a netip.Addr) int {
		if s.last.Less(a) {
			return -1
		}
		return 1
	})
	return l[at:]
}

func (l spans) contains(a netip.Addr) bool {
	next := l.from(a)
	return len(next) > 0 && next[0].contains(a)
}

// gaps are the parts of s that no span of l covers.
func (l spans) gaps(s span) []span {
	var out []span
	first := s.first
	for _, taken := range l.from(first) {
		if s.last.Less(taken.first) {
			break
		}
		if first.Less(taken.first) {
			out = append(out, span{first, taken.first.Prev()})
		}
		if !taken.last.Less(s.last) {
			return out
		}
		first = taken.last.Next()
	}
	return append(out, span{first, s.last})
}
