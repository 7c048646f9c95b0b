// SPDX-License-Identifier: Apache-2.0

package netdev

import (
	"errors"
	"fmt"
	"net/netip"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

const (
	// RemoteProtocol marks the routes to other nodes' addresses, which the agent makes: a pod's
	// carry RouteProtocol.
	RemoteProtocol = 68 // 'D'
	// remotePriority is below (in number: above) the kernel's defaults, so that a route which an
	// administrator sets to the same range is used, and never taken for ours.
	remotePriority = 2068
)

// The next hop behind the tunnel device is nobody: on a device without ARP all are one, and by
// one the table of neighbours has one entry.
var (
	tunnelHop4 = netip.MustParseAddr("169.254.1.1")
	tunnelHop6 = netip.MustParseAddr("fe80::1")
)

// RemoteRoute is the way to a range of addresses that is another node's, or (Unreachable) to
// what no pod of this node's own has. Exactly one of Via, Tunnel and Unreachable is set.
type RemoteRoute struct {
	Prefix      netip.Prefix // without host bits
	Via         netip.Addr   // a next hop on a subnet of ours; for IPv4's ranges IPv6 will do
	Tunnel      bool         // by the device of this Handle's last EnsureTunnel
	Src         netip.Addr   // the node's own packets' source; the zero Addr: the kernel's choice
	Unreachable bool
}

// SyncRemoteRoutes makes the routes of RemoteProtocol in the main table those that are wanted:
// it adds, or replaces in place, in the order of want, then removes, so no destination is without a
// way meanwhile if the narrower ranges come first.
// It goes on after an error. changed counts what it wrote and removed.
func (h *Handle) SyncRemoteRoutes(want []RemoteRoute) (changed int, err error) {
	have, err := h.remoteRoutes()
	if err != nil {
		return 0, err
	}
	known, wanted := map[RemoteRoute]bool{}, map[RemoteRoute]bool{}
	for _, r := range have {
		known[h.toRemote(r)] = true
	}
	var errs []error
	for _, r := range want {
		wanted[r] = true
		if known[r] {
			continue
		}
		if err := h.setRemote(r); err != nil {
			errs = append(errs, fmt.Errorf("set route to %s: %w", r.Prefix, err))
			continue
		}
		changed++
	}
	removed, err := h.removeRemotes(wanted)
	return changed + removed, errors.Join(append(errs, err)...)
}

// removeRemotes looks anew: most that are wanted otherwise were replaced, but IPv6 replaces none
// of another kind, and a deletion of what is gone could match what took its place.
func (h *Handle) removeRemotes(wanted map[RemoteRoute]bool) (removed int, err error) {
	have, err := h.remoteRoutes()
	errs := []error{err}
	for _, raw := range have {
		if wanted[h.toRemote(raw)] {
			continue
		}
		if err := h.nl.RouteDel(&raw); err != nil && !errors.Is(err, unix.ESRCH) {
			errs = append(errs, fmt.Errorf("delete route to %s: %w", fromIPNet(raw.Dst), err))
			continue
		}
		removed++
	}
	return removed, errors.Join(errs...)
}

func (h *Handle) setRemote(r RemoteRoute) error {
	route := &netlink.Route{Dst: ipNet(r.Prefix), Priority: remotePriority, Protocol: RemoteProtocol}
	if r.Src.IsValid() {
		route.Src = r.Src.AsSlice()
	}
	switch {
	case r.Unreachable:
		route.Type = unix.RTN_UNREACHABLE
	case r.Tunnel && h.tunnel == 0:
		return errors.New("there is no tunnel device yet")
	case r.Tunnel:
		route.LinkIndex, route.Flags = h.tunnel, int(netlink.FLAG_ONLINK)
		route.Gw = tunnelHop(r.Prefix).AsSlice()
	case !r.Via.IsValid():
		return errors.New("it has no next hop")
	case r.Via.Is6() && r.Prefix.Addr().Is4():
		route.Via = &netlink.Via{AddrFamily: unix.AF_INET6, Addr: r.Via.AsSlice()}
	default:
		route.Gw = r.Via.AsSlice()
	}
	return h.nl.RouteReplace(route)
}

func tunnelHop(p netip.Prefix) netip.Addr {
	if p.Addr().Is4() {
		return tunnelHop4
	}
	return tunnelHop6
}

// toRemote is the reverse of setRemote. What an earlier device had for a tunnel's end is not the
// same as what this one has.
func (h *Handle) toRemote(raw netlink.Route) RemoteRoute {
	r := RemoteRoute{Prefix: fromIPNet(raw.Dst), Unreachable: raw.Type == unix.RTN_UNREACHABLE}
	if src, ok := netip.AddrFromSlice(raw.Src); ok {
		r.Src = src.Unmap()
	}
	if r.Unreachable {
		return r
	}
	hop, ok := netip.AddrFromSlice(raw.Gw)
	if via, is := raw.Via.(*netlink.Via); is {
		hop, ok = netip.AddrFromSlice(via.Addr)
	}
	hop = hop.Unmap()
	if r.Tunnel = ok && raw.LinkIndex == h.tunnel && hop == tunnelHop(r.Prefix); !r.Tunnel {
		r.Via = hop
	}
	return r
}

// remoteRoutes lists the routes that carry RemoteProtocol.
func (h *Handle) remoteRoutes() ([]netlink.Route, error) {
	filter := &netlink.Route{Protocol: RemoteProtocol}
	list, err := dump(func() ([]netlink.Route, error) {
		return h.nl.RouteListFiltered(netlink.FAMILY_ALL, filter, netlink.RT_FILTER_PROTOCOL)
	})
	if err != nil {
		return nil, fmt.Errorf("list routes to other nodes: %w", err)
	}
	return list, nil
}

// RemoteRanges are the destinations of the routes that SyncRemoteRoutes made.
func (h *Handle) RemoteRanges() ([]netip.Prefix, error) {
	list, err := h.remoteRoutes()
	var ranges []netip.Prefix
	for _, r := range list {
		ranges = append(ranges, fromIPNet(r.Dst))
	}
	return ranges, err
}

// remoteSources are the addresses that those routes have the node send from.
func (h *Handle) remoteSources() (map[netip.Addr]bool, error) {
	list, err := h.remoteRoutes()
	sources := map[netip.Addr]bool{}
	for _, r := range list {
		if src, ok := netip.AddrFromSlice(r.Src); ok {
			sources[src.Unmap()] = true
		}
	}
	return sources, err
}
