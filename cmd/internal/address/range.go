// SPDX-License-Identifier: Apache-2.0

package address

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"net/netip"
)

// Range is addresses in a row of one subnet. Which of them are never given: the subnet's own
// address, IPv4's broadcast address, and the gateways that Set.Reserved names.
type Range struct {
	Subnet      netip.Prefix // without host bits
	First, Last netip.Addr   // both in it
	Gateway     netip.Addr
}

// newRange fills in what the configuration leaves out: the gateway is the first address
// behind the subnet's own, the ends are those of the subnet.
func newRange(subnet netip.Prefix, first, last, gateway netip.Addr) (Range, error) {
	r := Range{subnet, first, last, gateway}
	if subnet.Bits() > subnet.Addr().BitLen()-2 {
		return r, rangeError{"subnet", "too small to give addresses from"}
	}
	if subnet.Masked() != subnet {
		return r, rangeError{"subnet", fmt.Sprintf("has host bits, its own address is %s", subnet.Masked().Addr())}
	}
	for _, a := range []struct {
		key       string
		to        *netip.Addr
		otherwise netip.Addr
	}{
		{"gateway", &r.Gateway, subnet.Addr().Next()},
		{"rangeStart", &r.First, subnet.Addr().Next()},
		{"rangeEnd", &r.Last, lastOf(subnet)},
	} {
		if !a.to.IsValid() {
			*a.to = a.otherwise
		}
		if !subnet.Contains(*a.to) {
			return r, rangeError{a.key, fmt.Sprintf("not in subnet %s", subnet)}
		}
	}
	if r.Last.Less(r.First) {
		return r, rangeError{"rangeEnd", fmt.Sprintf("before rangeStart %s", r.First)}
	}
	return r, nil
}

// rangeError names the key of a range that is wrong.
type rangeError struct{ key, why string }

func (e rangeError) Error() string { return e.key + ": " + e.why }

// lastOf is the last address of a subnet.
func lastOf(p netip.Prefix) netip.Addr {
	b := p.Addr().AsSlice()
	for i := range b {
		for bit := range 8 {
			if i*8+bit >= p.Bits() {
				b[i] |= 0x80 >> bit
			}
		}
	}
	a, _ := netip.AddrFromSlice(b)
	return a
}

func (r Range) contains(a netip.Addr) bool {
	return a.BitLen() == r.First.BitLen() && !a.Less(r.First) && !r.Last.Less(a)
}

func (r Range) overlaps(o Range) bool {
	return r.contains(o.First) || r.contains(o.Last) || o.contains(r.First)
}

// count is how many addresses there are from First to Last; it ends at the largest number.
func (r Range) count() uint64 {
	first, last := r.First.As16(), r.Last.As16()
	high := binary.BigEndian.Uint64(last[:8]) - binary.BigEndian.Uint64(first[:8])
	low := binary.BigEndian.Uint64(last[8:]) - binary.BigEndian.Uint64(first[8:])
	if high != 0 || low == math.MaxUint64 {
		return math.MaxUint64
	}
	return low + 1
}

// Set is ranges of one family that an attachment gets one address from.
type Set struct {
	Ranges   []Range
	Reserved map[netip.Addr]bool // never given
}

// reserve names the addresses that no set gives, of all sets: a gateway of one may lie in
// another one's range.
func reserve(sets []Set) {
	reserved := map[netip.Addr]bool{}
	for _, s := range sets {
		for _, r := range s.Ranges {
			reserved[r.Subnet.Addr()] = true
			reserved[r.Gateway] = true
			if r.Subnet.Addr().Is4() {
				reserved[lastOf(r.Subnet)] = true
			}
		}
	}
	for i := range sets {
		sets[i].Reserved = reserved
	}
}

// First is what the set is known by.
func (s Set) First() netip.Addr { return s.Ranges[0].First }

// Range gives the range that an address lies in.
func (s Set) Range(a netip.Addr) (Range, bool) {
	for _, r := range s.Ranges {
		if r.contains(a) {
			return r, true
		}
	}
	return Range{}, false
}

// Gives says whether an address is one that the set gives.
func (s Set) Gives(a netip.Addr) bool {
	_, in := s.Range(a)
	return in && !s.Reserved[a]
}

// Size is how many addresses the set gives; it ends at the largest number.
func (s Set) Size() uint64 {
	var size uint64
	for _, r := range s.Ranges {
		n := r.count()
		if size+n < size {
			return math.MaxUint64
		}
		size += n
	}
	for a := range s.Reserved {
		if _, in := s.Range(a); in && size != math.MaxUint64 {
			size--
		}
	}
	return size
}

// After gives the address that comes next behind one, from the beginning again behind the
// last. The zero Addr, or one that is not in the set, comes before the first. A set that
// gives no address has no next one: newSets refuses such.
func (s Set) After(a netip.Addr) netip.Addr {
	at := 0
	for i, r := range s.Ranges {
		if r.contains(a) {
			at = i
		}
	}
	next := s.Ranges[at].First
	if s.Ranges[at].contains(a) {
		next, at = s.step(a, at)
	}
	for s.Reserved[next] {
		next, at = s.step(next, at)
	}
	return next
}

// step gives the next address, reserved or not, and its range.
func (s Set) step(a netip.Addr, at int) (netip.Addr, int) {
	if a != s.Ranges[at].Last {
		return a.Next(), at
	}
	at = (at + 1) % len(s.Ranges)
	return s.Ranges[at].First, at
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

// checkSets checks what holds between ranges.
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
	reserve(sets)
	for _, s := range sets {
		if s.Size() == 0 {
			return fmt.Errorf("%s: %w", s, errNothingToGive)
		}
	}
	return nil
}

var errNothingToGive = errors.New("holds nothing but a gateway, a subnet's own or its broadcast address")
