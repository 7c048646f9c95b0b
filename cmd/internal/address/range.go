// SPDX-License-Identifier: Apache-2.0

package address

import (
	"fmt"
	"net/netip"
)

// Range is addresses in a row of one subnet. Which of them are never given: the subnet's own
// address, IPv4's broadcast address, the gateways of all ranges, and what is reserved.
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

func (r Range) span() span { return span{r.First, r.Last} }

func (r Range) contains(a netip.Addr) bool { return r.span().contains(a) }

func (r Range) overlaps(o Range) bool {
	return r.contains(o.First) || r.contains(o.Last) || o.contains(r.First)
}
