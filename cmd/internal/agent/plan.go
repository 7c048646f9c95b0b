// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/culvert-cni/culvert/cmd/internal/kube"
	"github.com/culvert-cni/culvert/cmd/internal/netdev"
	"github.com/culvert-cni/culvert/maps"
)

// tunnelVNI is the one network that all nodes share.
const tunnelVNI = 1

// Plan is what a node is to have, made of a State and of the node's uplinks alone.
type Plan struct {
	// In the order in which they are to be written.
	Remotes     []maps.Remote
	Routes      []netdev.RemoteRoute
	NeedsTunnel bool
	Tunnel      netdev.TunnelConfig
	MTU         int // of new pods; 0: that of the uplinks

	own   []netip.Prefix // ranges that this node's pods have, but for single addresses
	state kube.State
	lost  []string // ranges that no way leads to
}

// planner decides the way to each range.
type planner struct {
	Config
	local  []netip.Prefix // addresses of the uplinks
	device []int          // of each
	mtu    int            // of the narrowest uplink
	source map[bool]netip.Addr
	plan   Plan
	over6  bool // a tunnel's packets are IPv6
}

// makePlan decides; it looks at nothing.
func makePlan(c Config, state kube.State, uplinks []Uplink) Plan {
	p := &planner{Config: c, source: map[bool]netip.Addr{}, plan: Plan{state: state}}
	for _, u := range uplinks {
		p.local = append(p.local, u.Addrs...)
		for range u.Addrs {
			p.device = append(p.device, u.Index)
		}
		if p.mtu == 0 || u.MTU < p.mtu {
			p.mtu = u.MTU
		}
	}
	p.ownRanges()
	vias := map[string][]netip.Addr{}
	for _, peer := range state.Peers {
		vias[peer.Name] = peer.Addrs
	}
	for _, r := range state.Remote {
		if len(r.Via) == 0 {
			r.Via = vias[r.Node]
		}
		p.remote(r)
	}
	p.nodes()
	p.tunnel()
	p.narrowestFirst()
	return p.plan
}

// narrowestFirst is the order in which rows and routes are written: where a range becomes another
// node's, the addresses that pods still have of it have a way of their own before the range has
// its new one.
func (p *planner) narrowestFirst() {
	length := func(r netip.Prefix) int { return r.Bits() - r.Addr().BitLen() }
	slices.SortStableFunc(p.plan.Routes, func(a, b netdev.RemoteRoute) int { return length(b.Prefix) - length(a.Prefix) })
	slices.SortStableFunc(p.plan.Remotes, func(a, b maps.Remote) int { return length(b.Prefix) - length(a.Prefix) })
}

// ownRanges are unreachable but for the pods, whose own routes go before: else what is for an
// address without a pod would go to the default route, or to the node that has the range by
// now, and come back from there.
func (p *planner) ownRanges() {
	var all []netip.Prefix
	all = append(all, p.plan.state.Ranges...)
	all = append(all, p.plan.state.Draining...)
	for _, pool := range p.plan.state.Pools {
		all = append(all, pool...)
	}
	slices.SortFunc(all, netip.Prefix.Compare)
	for _, r := range slices.Compact(all) {
		p.plan.Routes = append(p.plan.Routes, netdev.RemoteRoute{Prefix: r, Unreachable: true})
		if !r.IsSingleIP() { // that of a pod which stayed behind when its range moved
			p.plan.own = append(p.plan.own, r)
		}
	}
	p.tunnelAddrs()
}

// tunnelAddrs gives the tunnel device the first address of a range, which no pod gets: the
// node's own packets to pods behind the tunnel come from it, so that their answers find the
// way back. Those of ranges that were the node's before stay as long as these do.
func (p *planner) tunnelAddrs() {
	for _, r := range append(slices.Clone(p.plan.state.Ranges), p.plan.state.Draining...) {
		v6 := r.Addr().Is6()
		if r.Bits() >= r.Addr().BitLen()-1 {
			continue // its first address may be a pod's
		}
		if slices.Contains(p.plan.state.Draining, r) || !p.source[v6].IsValid() {
			p.plan.Tunnel.Addrs = append(p.plan.Tunnel.Addrs, r.Addr())
		}
		if !p.source[v6].IsValid() {
			p.source[v6] = r.Addr()
		}
	}
}

// remote decides the way to a range: directly, by the tunnel, or as the node's routes say.
func (p *planner) remote(r kube.Range) {
	v6 := r.Prefix.Addr().Is6()
	row := maps.Remote{Prefix: r.Prefix, Kind: maps.RemoteDirect}
	route := netdev.RemoteRoute{Prefix: r.Prefix}
	if via, ok := p.neighbour(r.Via, v6); ok {
		row.Endpoint, route.Via, row.Ifindex = via, via, p.deviceTo(via)
	} else if p.Tunnel == TunnelNever {
		if row.Endpoint, ok = firstOf(r.Via, v6); !ok {
			row.Endpoint, _ = firstOf(r.Via, !v6)
		}
		p.plan.Remotes = append(p.plan.Remotes, row)
		return
	} else if row.Local, row.Endpoint, ok = p.ends(r.Via); ok {
		row.Kind, row.VNI = maps.RemoteTunnel, tunnelVNI
		route.Tunnel, route.Src = true, p.source[v6]
		p.plan.NeedsTunnel = true
		p.over6 = p.over6 || row.Endpoint.Is6()
	} else {
		p.plan.lost = append(p.plan.lost, fmt.Sprintf("%s of node %s", r.Prefix, r.Node))
		return
	}
	p.plan.Remotes = append(p.plan.Remotes, row)
	p.plan.Routes = append(p.plan.Routes, route)
}

// neighbour finds an address of a family on a subnet of ours.
func (p *planner) neighbour(via []netip.Addr, v6 bool) (netip.Addr, bool) {
	if p.Tunnel == TunnelAlways {
		return netip.Addr{}, false
	}
	for _, a := range via {
		if a.Is6() == v6 && p.shares(a) {
			return a, true
		}
	}
	return netip.Addr{}, false
}

// shares says whether an address lies on a subnet of ours and is not our own.
func (p *planner) shares(a netip.Addr) bool {
	return !p.isOurs(a) && slices.ContainsFunc(p.local, func(l netip.Prefix) bool { return l.Masked().Contains(a) })
}

// deviceTo is the uplink on whose subnet an address lies: pods' connections by it take the fast path.
func (p *planner) deviceTo(a netip.Addr) int {
	return p.device[slices.IndexFunc(p.local, func(l netip.Prefix) bool { return l.Masked().Contains(a) })]
}

func (p *planner) isOurs(a netip.Addr) bool {
	return slices.ContainsFunc(p.local, func(l netip.Prefix) bool { return l.Addr() == a })
}

// ends finds the two ends of a tunnel. Both nodes decide by the same rule, IPv4 if both have
// it: a node takes the packets of a range from the one address that it sends to.
func (p *planner) ends(via []netip.Addr) (local, endpoint netip.Addr, ok bool) {
	for _, v6 := range []bool{false, true} {
		ours, ok1 := firstOf(p.plan.state.Node.Addrs, v6)
		theirs, ok2 := firstOf(via, v6)
		if ok1 && ok2 && !p.isOurs(theirs) { // as that of a Node of another name, which is this machine's too
			if !p.isOurs(ours) {
				ours = netip.Addr{} // behind a translation: the routing table's choice
			}
			return ours, theirs, true
		}
	}
	return local, endpoint, false
}

func firstOf(addrs []netip.Addr, v6 bool) (netip.Addr, bool) {
	at := slices.IndexFunc(addrs, func(a netip.Addr) bool { return a.Is6() == v6 })
	if at < 0 {
		return netip.Addr{}, false
	}
	return addrs[at], true
}

// nodes spares packets to the nodes themselves from masquerading, if they have ranges, and so
// an agent, and answer a pod's address the same way back.
func (p *planner) nodes() {
	if p.Tunnel == TunnelAlways {
		return
	}
	has := map[string]bool{}
	for _, r := range p.plan.state.Remote {
		has[r.Node] = true
	}
	for _, peer := range p.plan.state.Peers {
		if !has[peer.Name] {
			continue
		}
		for _, a := range peer.Addrs {
			if p.shares(a) {
				p.plan.Remotes = append(p.plan.Remotes, maps.Remote{Prefix: netip.PrefixFrom(a, a.BitLen()), Kind: maps.RemoteNode, Endpoint: a})
			}
		}
	}
}

// tunnel decides the sizes: pods send no packet that the tunnel cannot carry.
func (p *planner) tunnel() {
	overhead := netdev.TunnelOverhead4
	if p.over6 {
		overhead = netdev.TunnelOverhead6
	}
	p.plan.Tunnel.Name, p.plan.Tunnel.Port, p.plan.Tunnel.MTU = netdev.TunnelName, p.TunnelPort, p.mtu-overhead
	p.plan.MTU = p.Config.MTU
	if p.MTU == 0 && p.plan.NeedsTunnel {
		p.plan.MTU = p.plan.Tunnel.MTU
	}
}

// by names the tunnel's device in the rows.
func (p *Plan) by(ifindex int) {
	for i := range p.Remotes {
		if p.Remotes[i].Kind == maps.RemoteTunnel {
			p.Remotes[i].Ifindex = ifindex
		}
	}
}

// withoutTunnel leaves out what needs it: routes that cannot be set would be an error each.
// The rows stay, with what they spare from masquerading.
func (p *Plan) withoutTunnel() {
	p.Routes = slices.DeleteFunc(p.Routes, func(r netdev.RemoteRoute) bool { return r.Tunnel })
}

// families are those that pods of the cluster have.
func (p *Plan) families() (v4, v6 bool) {
	for _, r := range p.own {
		v4, v6 = v4 || r.Addr().Is4(), v6 || r.Addr().Is6()
	}
	return v4, v6
}

// unreached names the ranges that nothing can be done about.
func (p *Plan) unreached() error {
	if len(p.lost) == 0 {
		return nil
	}
	return fmt.Errorf("no way to %s: none of its node's addresses is one that this node can send to", strings.Join(p.lost, ", "))
}
