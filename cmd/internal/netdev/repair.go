// SPDX-License-Identifier: Apache-2.0

package netdev

import (
	"errors"
	"fmt"
	"net"
	"net/netip"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// What reconcile and uninstall ask of the node beside what pods' verbs do.

// SetMAC gives a device its address back.
func (h *Handle) SetMAC(index int, mac net.HardwareAddr) error {
	if err := h.nl.LinkSetHardwareAddr(&netlink.Device{LinkAttrs: netlink.LinkAttrs{Index: index}}, mac); err != nil {
		return fmt.Errorf("set MAC of device %d: %w", index, gone(err))
	}
	return nil
}

// SetUp sets a device up. It is idempotent.
func (h *Handle) SetUp(index int) error { return h.setUp(index) }

// Neighbours lists the permanent neighbours of a device.
func (h *Handle) Neighbours(index int) ([]Neighbour, error) {
	list, err := dump(func() ([]netlink.Neigh, error) {
		return h.nl.NeighList(index, netlink.FAMILY_ALL)
	})
	if err != nil {
		return nil, fmt.Errorf("list neighbours of device %d: %w", index, gone(err))
	}
	var found []Neighbour
	for _, n := range list {
		if addr, ok := netip.AddrFromSlice(n.IP); ok && n.State&unix.NUD_PERMANENT != 0 && len(n.HardwareAddr) == 6 {
			found = append(found, Neighbour{Addr: addr.Unmap(), MAC: n.HardwareAddr})
		}
	}
	return found, nil
}

// SetNeighbour makes a permanent neighbour. It is idempotent.
func (h *Handle) SetNeighbour(index int, n Neighbour) error { return h.setNeighbour(index, n) }

// OwnRoute is a route with our protocol number; Index is 0 for one that leads nowhere.
type OwnRoute struct {
	Index int
	Route
	raw netlink.Route
}

// OwnRoutes lists the routes in the node's tables, but for local ones, that carry our number.
func (h *Handle) OwnRoutes() ([]OwnRoute, error) {
	filter := &netlink.Route{Protocol: RouteProtocol, Table: unix.RT_TABLE_UNSPEC}
	list, err := dump(func() ([]netlink.Route, error) {
		return h.nl.RouteListFiltered(netlink.FAMILY_ALL, filter, netlink.RT_FILTER_PROTOCOL|netlink.RT_FILTER_TABLE)
	})
	if err != nil {
		return nil, fmt.Errorf("list our routes: %w", err)
	}
	var routes []OwnRoute
	for _, r := range list {
		if r.Table == unix.RT_TABLE_LOCAL {
			continue
		}
		own := OwnRoute{Route: Route{Dst: fromIPNet(r.Dst), Priority: r.Priority, Table: r.Table}, raw: r}
		if r.Type != unix.RTN_UNREACHABLE {
			own.Index = r.LinkIndex
		}
		routes = append(routes, own)
	}
	return routes, nil
}

// DeleteRoute deletes one that OwnRoutes gave; it is no error that it is gone.
func (h *Handle) DeleteRoute(r OwnRoute) error {
	raw := r.raw
	if raw.Dst == nil {
		raw.Dst = ipNet(r.Dst)
	}
	if err := h.nl.RouteDel(&raw); err != nil && !errors.Is(err, unix.ESRCH) {
		return fmt.Errorf("delete route to %s: %w", r.Dst, err)
	}
	return nil
}

// HasUnreachable says for a family, 4 or 6, whether the route of SetUnreachable is there.
func (h *Handle) HasUnreachable(family int) (bool, error) {
	routes, err := h.OwnRoutes()
	for _, r := range routes {
		if r.raw.Type == unix.RTN_UNREACHABLE && r.raw.Family == map[int]int{4: unix.AF_INET, 6: unix.AF_INET6}[family] {
			return true, nil
		}
	}
	return false, err
}

// ForwardingOf is the setting that says whether the node forwards what comes in by a device.
func ForwardingOf(device string, v6 bool) Sysctl {
	family := "ipv4"
	if v6 {
		family = "ipv6"
	}
	return Sysctl{Path: "net/" + family + "/conf/" + device + "/forwarding", Value: "1", Optional: true}
}
