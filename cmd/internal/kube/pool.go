// SPDX-License-Identifier: Apache-2.0

package kube

import (
	"encoding/binary"
	"fmt"
	"hash/fnv"
	"math"
	"net/netip"
	"slices"
	"strconv"

	"k8s.io/apimachinery/pkg/labels"

	"github.com/culvert-cni/culvert/cmd/internal/api/v1alpha1"
)

// parsePool reads a pool; what is wrong with it is told to whoever would take from it.
func parsePool(obj any) (pool, bool) {
	o := obj.(*v1alpha1.IPPool)
	p := pool{name: o.Name, size: int(o.Spec.BlockSize), disabled: o.Spec.Disabled, selector: labels.Nothing()}
	var err error
	if p.prefix, err = parsePrefix(o.Spec.CIDR); err != nil {
		p.wrong = err.Error()
		return p, true
	}
	width := p.prefix.Addr().BitLen()
	if p.size == 0 {
		p.size = max(p.prefix.Bits(), width-6)
	}
	if p.size < p.prefix.Bits() || p.size > width-2 {
		p.wrong = fmt.Sprintf("blockSize %d is not between %d and %d", p.size, p.prefix.Bits(), width-2)
	}
	if selector, err := labels.Parse(o.Spec.NodeSelector); err != nil {
		p.wrong = "nodeSelector: " + err.Error()
	} else {
		p.selector = selector
	}
	for _, s := range o.Spec.Reserved {
		r, err := netip.ParsePrefix(s)
		if a, addrErr := netip.ParseAddr(s); addrErr == nil {
			r, err = single(a.Unmap()), nil
		}
		if err != nil {
			p.wrong = "reserved: " + err.Error()
			continue
		}
		p.reserved = append(p.reserved, r.Masked())
	}
	return p, true
}

func samePool(a, b pool) bool {
	return a.prefix == b.prefix && a.size == b.size && a.disabled == b.disabled && a.wrong == b.wrong &&
		a.selector.String() == b.selector.String() && slices.Equal(a.reserved, b.reserved)
}

func (p pool) usable() bool { return p.wrong == "" && !p.disabled }

// capacity is how many addresses pods can have of a block of the pool.
func (p pool) capacity() int64 { return capacity(netip.PrefixFrom(p.prefix.Addr(), p.size)) }

// capacity leaves out what no IPAM plugin gives: a range's own address, its gateway, IPv4's
// broadcast address.
func capacity(p netip.Prefix) int64 {
	hostBits := p.Addr().BitLen() - p.Bits()
	switch {
	case hostBits == 0:
		return 1
	case hostBits > 30:
		return math.MaxInt32
	case p.Addr().Is4():
		return 1<<hostBits - 3
	default:
		return 1<<hostBits - 2
	}
}

// sizeOf says a capacity that was cut off as the power of two that it is near to.
func sizeOf(p netip.Prefix, capacity int64) string {
	if hostBits := p.Addr().BitLen() - p.Bits(); hostBits > 30 && capacity > 0 {
		return "2^" + strconv.Itoa(hostBits)
	}
	return strconv.FormatInt(capacity, 10)
}

// capacityOf is how many addresses pods can have of a block, less those reserved.
func (p *pass) capacityOf(b block) int64 {
	n := capacity(b.prefix)
	for _, r := range p.reservedIn(b.prefix) {
		if r.Bits() <= b.prefix.Bits() {
			return 0
		}
		n -= int64(1) << min(r.Addr().BitLen()-r.Bits(), 31)
	}
	return max(0, n)
}

// freeBlock gives a block of the pool that overlaps nothing that anybody has. Each node begins
// its search elsewhere, so that many at once hardly ever want the same.
func (p *pass) freeBlock(from pool) (netip.Prefix, bool) {
	taken := map[netip.Prefix]bool{}
	var wide []netip.Prefix // at least a block
	take := func(q netip.Prefix) {
		switch {
		case !q.Overlaps(from.prefix):
		case q.Bits() > from.size:
			q, _ = q.Addr().Prefix(from.size)
			taken[q] = true
		case q.Bits() == from.size:
			taken[q] = true
		default:
			wide = append(wide, q)
		}
	}
	for q := range p.index.blocks {
		take(q)
	}
	for _, n := range p.nodes {
		for _, r := range n.ranges {
			if p.Mode == RangesNode {
				take(r)
			}
		}
	}
	for _, r := range from.reserved {
		if r.Bits() <= from.size {
			take(r)
		}
	}
	count := uint64(1) << min(from.size-from.prefix.Bits(), 32)
	hash := fnv.New64a()
	hash.Write([]byte(p.NodeName))
	first := hash.Sum64() % count
	for i := range count {
		candidate := nth(from, (first+i)%count)
		if !taken[candidate] && !slices.ContainsFunc(wide, candidate.Overlaps) && p.capacityOf(block{prefix: candidate}) > 0 {
			return candidate, true
		}
	}
	return netip.Prefix{}, false
}

// nth is the pool's block number i, from 0.
func nth(from pool, i uint64) netip.Prefix {
	width := from.prefix.Addr().BitLen()
	raw := from.prefix.Addr().As16()
	high, low := binary.BigEndian.Uint64(raw[:8]), binary.BigEndian.Uint64(raw[8:])
	if shift := width - from.size; shift >= 64 {
		high |= i << (shift - 64)
	} else {
		high |= i >> (64 - shift) // the pool's own bits there are zero
		low |= i << shift
	}
	binary.BigEndian.PutUint64(raw[:8], high)
	binary.BigEndian.PutUint64(raw[8:], low)
	addr := netip.AddrFrom16(raw)
	if width == 32 {
		addr = addr.Unmap()
	}
	return netip.PrefixFrom(addr, from.size)
}

// ordinal is the address less the first of the range, -1 if that is too large a number.
func ordinal(r netip.Prefix, a netip.Addr) int64 {
	first, this := r.Addr().As16(), a.As16()
	if string(first[:8]) != string(this[:8]) {
		return -1
	}
	n := binary.BigEndian.Uint64(this[8:]) - binary.BigEndian.Uint64(first[8:])
	if n > math.MaxInt64 {
		return -1
	}
	return int64(n)
}
