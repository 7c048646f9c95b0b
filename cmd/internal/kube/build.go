// SPDX-License-Identifier: Apache-2.0

package kube

import (
	"cmp"
	"net/netip"
	"slices"
)

// state is what the node should be after the pass.
func (p *pass) state() State {
	s := State{
		Node:       Peer{p.NodeName, p.self.addrs},
		UID:        p.self.uid,
		Pools:      map[string][]netip.Prefix{},
		Namespaces: map[string][]string{},
		Ranges:     slices.SortedFunc(slices.Values(p.ranges), netip.Prefix.Compare),
		Remote:     p.remote(),
		Reserved:   p.reserved(),
		Faults:     p.faults,
	}
	for _, b := range p.own() {
		switch name := b.object.Spec.Pool; {
		case !p.active[b.prefix]:
			s.Draining = append(s.Draining, b.prefix)
		case name != "":
			s.Pools[name] = append(s.Pools[name], b.prefix)
		}
	}
	for _, n := range p.nodes {
		if n.name != p.NodeName {
			s.Peers = append(s.Peers, Peer{n.name, n.addrs})
		}
	}
	slices.SortFunc(s.Peers, func(a, b Peer) int { return cmp.Compare(a.Name, b.Name) })
	for _, n := range p.namespaces {
		s.Namespaces[n.name] = n.pools
	}
	slices.SortFunc(s.Faults, func(a, b Fault) int {
		return cmp.Or(cmp.Compare(a.Reason, b.Reason), cmp.Compare(a.Message, b.Message))
	})
	return s
}

// remote is where the other nodes' blocks are; and what the cluster gave to nodes that have no
// block, as those where no agent has been yet.
func (p *pass) remote() (remote []Range) {
	has := map[string]bool{}
	for _, prefix := range p.index.sorted() {
		b := p.index.blocks[prefix]
		has[b.node()] = true
		if b.node() != p.NodeName {
			remote = append(remote, Range{prefix, b.node(), b.via, b.object.Spec.Pool})
		}
	}
	taken := map[netip.Prefix]bool{}
	for _, n := range p.nodes {
		if p.Mode != RangesNode || has[n.name] || n.name == p.NodeName {
			continue
		}
		for _, r := range n.ranges {
			if _, is := p.index.blocks[r]; !is && !taken[r] {
				taken[r] = true
				remote = append(remote, Range{Prefix: r, Node: n.name, Via: n.addrs})
			}
		}
	}
	slices.SortFunc(remote, func(a, b Range) int { return a.Prefix.Compare(b.Prefix) })
	return remote
}

// reserved is what must not be given here though it lies in a range that gives addresses.
func (p *pass) reserved() (reserved []netip.Prefix) {
	for prefix := range p.active {
		reserved = append(reserved, p.reservedIn(prefix)...)
	}
	slices.SortFunc(reserved, netip.Prefix.Compare)
	return slices.Compact(reserved)
}

// reservedIn is what other nodes have of a range of this one, and what pools reserve.
func (p *pass) reservedIn(r netip.Prefix) (reserved []netip.Prefix) {
	for _, b := range p.index.inside(r) {
		if b.node() != p.NodeName {
			reserved = append(reserved, b.prefix)
		}
	}
	for _, pool := range p.pools {
		for _, q := range pool.reserved {
			if q.Overlaps(r) {
				reserved = append(reserved, q)
			}
		}
	}
	return reserved
}
