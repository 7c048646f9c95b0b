// SPDX-License-Identifier: Apache-2.0

package address

import (
	"errors"
	"fmt"
	"math"
	"net/netip"
	"slices"
)

// Set is ranges of one family that an attachment gets one address from. What of them is
// never given, seal says.
type Set struct {
	Ranges []Range
	never  spans  // of all sets
	free   []part // what is left of the ranges, in their order
}

// part is a part of a range that the set gives.
type part struct {
	span
	of int // index of the range
}

var errNothingToGive = errors.New("holds nothing but a gateway, a subnet's own or its broadcast address")

// seal says what sets never give: never.
func seal(sets []Set, never spans) {
	for i := range sets {
		s := &sets[i]
		s.never, s.free = never, nil
		for j, r := range s.Ranges {
			for _, gap := range never.gaps(r.span()) {
				s.free = append(s.free, part{gap, j})
			}
		}
	}
}

// ownOf are the addresses that nobody gives: a gateway of one set may lie in another one's
// range.
func ownOf(sets []Set) []span {
	var own []span
	for _, s := range sets {
		for _, r := range s.Ranges {
			own = append(own, span{r.Subnet.Addr(), r.Subnet.Addr()}, span{r.Gateway, r.Gateway})
			if r.Subnet.Addr().Is4() {
				own = append(own, span{lastOf(r.Subnet), lastOf(r.Subnet)})
			}
		}
	}
	return own
}

// First is what the set is known by.
func (s Set) First() netip.Addr { return s.Ranges[0].First }

// Range gives the range that an address lies in.
func (s Set) Range(a netip.Addr) (Range, bool) {
	at := s.rangeOf(a)
	if at < 0 {
		return Range{}, false
	}
	return s.Ranges[at], true
}

func (s Set) rangeOf(a netip.Addr) int {
	return slices.IndexFunc(s.Ranges, func(r Range) bool { return r.contains(a) })
}

// Gives says whether an address is one that the set gives.
func (s Set) Gives(a netip.Addr) bool { return s.rangeOf(a) >= 0 && !s.never.contains(a) }

// Size is how many addresses the set gives; it ends at the largest number. One that is
// reserved as a whole gives none.
func (s Set) Size() uint64 {
	var size uint64
	for _, p := range s.free {
		n := p.count()
		if size+n < size {
			return math.MaxUint64
		}
		size += n
	}
	return size
}

// After gives the address that comes next behind one, from the beginning again behind the
// last; the zero Addr, or one that is not in the set, comes before the first. A set that
// gives none has no next one either: the zero Addr.
func (s Set) After(a netip.Addr) netip.Addr {
	at := s.rangeOf(a)
	for _, p := range s.free {
		switch {
		case p.of < at, p.of == at && !a.Less(p.last):
			continue
		case p.of == at && !a.Less(p.first):
			return a.Next()
		}
		return p.first
	}
	if len(s.free) == 0 {
		return netip.Addr{}
	}
	return s.free[0].first
}

func (s Set) String() string {
	text := ""
	for i, r := range s.Ranges {
		if i > 0 {
			text += ", "
		}
		text += r.First.String() + "-" + r.Last.String()
	}
	return text
}

// checkSets checks what holds between the ranges that one attachment gets addresses from.
func checkSets(sets []Set) error {
	var all []Range
	for _, s := range sets {
		for _, r := range s.Ranges {
			if r.First.BitLen() != s.First().BitLen() {
				return fmt.Errorf("%s-%s and %s-%s are of two families in one set", r.First, r.Last, s.First(), s.Ranges[0].Last)
			}
			for _, o := range all {
				if r.overlaps(o) {
					return fmt.Errorf("%s-%s overlaps with %s-%s", r.First, r.Last, o.First, o.Last)
				}
			}
			all = append(all, r)
		}
	}
	return nil
}

// checkAnything wants every set to give something, as far as its ranges say; that all of them
// may be reserved is not the configuration's fault.
func checkAnything(sets []Set, never spans) error {
	seal(sets, never)
	for _, s := range sets {
		if s.Size() == 0 {
			return fmt.Errorf("%s: %w", s, errNothingToGive)
		}
	}
	return nil
}
