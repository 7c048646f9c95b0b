// SPDX-License-Identifier: Apache-2.0

package podnet

import (
	"fmt"
	"net/netip"
	"slices"

	current "github.com/containernetworking/cni/pkg/types/100"
	"golang.org/x/sys/unix"

	"github.com/culvert-cni/culvert/cmd/internal/netdev"
)

// The gateways of a pod whose IPAM plugin names none. Whatever the gateway, the pod
// knows it, and these, by permanent neighbour entries that lead to the host side.
var (
	gateway4 = netip.MustParseAddr("169.254.1.1")
	gateway6 = netip.MustParseAddr("fe80::1")
)

const (
	maxAddrs    = 8 // what a row of ifaces holds
	minIPv6MTU  = 1280
	fallbackMTU = 1500 // of a node without uplinks
)

// layout is what a pod's interface gets, made of what the IPAM plugin said.
type layout struct {
	addrs  []address
	routes []netdev.Route // in the order to be set
	links  int            // how many of them, from the first on, are to next hops
	nexts  []netip.Addr   // every next hop
}

type address struct{ addr, gateway netip.Addr }

// newLayout reads an IPAM result.
func newLayout(r *current.Result) (*layout, error) {
	l := &layout{nexts: []netip.Addr{gateway4, gateway6}}
	for _, ip := range r.IPs {
		if err := l.addAddress(ip); err != nil {
			return nil, err
		}
	}
	if len(l.addrs) == 0 {
		return nil, ErrNoAddress
	}
	if len(l.addrs) > maxAddrs {
		return nil, fmt.Errorf("use IPAM result: %d addresses, at most %d can be had", len(l.addrs), maxAddrs)
	}
	for _, r := range r.Routes {
		if r == nil {
			continue
		}
		if err := l.addRoute(r); err != nil {
			return nil, err
		}
	}
	l.addDefaults()
	l.linkGateways()
	return l, nil
}

func (l *layout) addAddress(ip *current.IPConfig) error {
	if ip == nil {
		return nil
	}
	addr, ok := netip.AddrFromSlice(ip.Address.IP)
	addr = addr.Unmap()
	if !ok || addr.IsUnspecified() || addr.IsLoopback() || addr.IsMulticast() || addr.IsLinkLocalUnicast() && addr.Is6() {
		return fmt.Errorf("use IPAM result: %s cannot be a pod's address", ip.Address.IP)
	}
	gateway, ok := netip.AddrFromSlice(ip.Gateway)
	gateway = gateway.Unmap()
	switch {
	case !ok || gateway.IsUnspecified():
		gateway = gateway4
		if addr.Is6() {
			gateway = gateway6
		}
	case gateway.Is4() != addr.Is4():
		return fmt.Errorf("use IPAM result: gateway %s of address %s is of another family", gateway, addr)
	}
	if gateway == addr { // that of the node, too, where the IPAM plugin names none
		return fmt.Errorf("use IPAM result: gateway %s is the pod's own address", gateway)
	}
	if !slices.ContainsFunc(l.addrs, func(a address) bool { return a.addr == addr }) {
		l.addrs = append(l.addrs, address{addr, gateway})
	}
	return nil
}

// gateway is that of the family's first address; the zero Addr if the pod lacks the
// family.
func (l *layout) gateway(v6 bool) netip.Addr {
	for _, a := range l.addrs {
		if a.addr.Is6() == v6 {
			return a.gateway
		}
	}
	return netip.Addr{}
}

// first is the pod's first address of a family, or the zero Addr.
func (l *layout) first(v6 bool) netip.Addr {
	for _, a := range l.addrs {
		if a.addr.Is6() == v6 {
			return a.addr
		}
	}
	return netip.Addr{}
}

func (l *layout) has(v6 bool) bool { return l.first(v6).IsValid() }

func (l *layout) list() []netip.Addr {
	var addrs []netip.Addr
	for _, a := range l.addrs {
		addrs = append(addrs, a.addr)
	}
	return addrs
}

// addDefaults gives each family its default route unless the IPAM plugin did.
func (l *layout) addDefaults() {
	for _, v6 := range []bool{false, true} {
		gateway := l.gateway(v6)
		isDefault := func(r netdev.Route) bool {
			return r.Dst.Bits() == 0 && r.Dst.Addr().Is6() == v6 && (r.Table == 0 || r.Table == unix.RT_TABLE_MAIN)
		}
		if !gateway.IsValid() || slices.ContainsFunc(l.routes, isDefault) {
			continue
		}
		dst := netip.PrefixFrom(netip.IPv4Unspecified(), 0)
		if v6 {
			dst = netip.PrefixFrom(netip.IPv6Unspecified(), 0)
		}
		l.routes = append(l.routes, netdev.Route{Dst: dst, Gateway: gateway})
	}
}

// linkGateways puts a route to each next hop before the others. Ours do not need it, as
// they are "onlink"; routes that plugins behind us make (sbr) are not.
func (l *layout) linkGateways() {
	var links []netdev.Route
	for _, r := range l.routes {
		next := r.Gateway
		if !next.IsValid() || slices.ContainsFunc(links, func(r netdev.Route) bool { return r.Dst.Addr() == next }) {
			continue
		}
		if !slices.Contains(l.nexts, next) {
			l.nexts = append(l.nexts, next)
		}
		if next.Is4() || !next.IsLinkLocalUnicast() {
			links = append(links, netdev.Route{Dst: netip.PrefixFrom(next, next.BitLen()), Scope: unix.RT_SCOPE_LINK})
		}
	}
	l.links, l.routes = len(links), append(links, l.routes...)
}

// told are the routes that the result tells.
func (l *layout) told() []netdev.Route { return l.routes[l.links:] }
