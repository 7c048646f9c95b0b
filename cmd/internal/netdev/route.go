// SPDX-License-Identifier: Apache-2.0

package netdev

import (
	"errors"
	"fmt"
	"net/netip"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// Route is a route of one device. Zero fields are left to the kernel.
type Route struct {
	Dst netip.Prefix
	// Gateway is taken as reachable on the link, whatever the device's addresses say.
	Gateway  netip.Addr
	MTU      int
	AdvMSS   int
	Priority int
	Table    int // 0: main
	Scope    int // RT_SCOPE_*; IPv4 only
	Protocol int
}

// ReplaceRoute puts the route to r.Dst, of r's table and priority, in the place of one
// that may be there, whatever device that leads to.
func (h *Handle) ReplaceRoute(index int, r Route) error {
	if err := h.nl.RouteReplace(toNetlink(index, r)); err != nil {
		return fmt.Errorf("set route to %s: %w", r.Dst, err)
	}
	return nil
}

// addTries bounds how many interfaces of one pod may have a route to one destination.
const addTries = 64

// AddRoute adds a route behind those that other devices have to its destination: if
// one of its priority is there, it takes the next lower one (in number: higher), so
// that each stays when the other's device goes. It gives the route as it was made.
func (h *Handle) AddRoute(index int, r Route) (Route, error) {
	route := toNetlink(index, r)
	for range addTries {
		err := h.nl.RouteAdd(route)
		switch {
		case err == nil:
			r.Priority = route.Priority
			return r, nil
		case errors.Is(err, unix.EINVAL) && r.Dst.Addr().Is6() && route.Flags != 0:
			// IPv6 will not have a next hop "onlink" that is known behind another
			// device. It is known behind this one too, so there is no need.
			route.Flags = 0
		case errors.Is(err, unix.EEXIST):
			route.Priority = lower(route.Priority, r.Dst.Addr().Is6())
		default:
			return r, fmt.Errorf("set route to %s: %w", r.Dst, err)
		}
	}
	return r, fmt.Errorf("set route to %s: %w", r.Dst, unix.EEXIST)
}

func lower(priority int, v6 bool) int {
	if priority == 0 && v6 {
		priority = 1024 // what the kernel makes of 0
	}
	return priority + 1
}

func toNetlink(index int, r Route) *netlink.Route {
	route := &netlink.Route{
		LinkIndex: index,
		Dst:       ipNet(r.Dst),
		MTU:       r.MTU,
		AdvMSS:    r.AdvMSS,
		Priority:  r.Priority,
		Table:     r.Table,
		Scope:     netlink.Scope(r.Scope),
		Protocol:  netlink.RouteProtocol(r.Protocol),
	}
	if r.Gateway.IsValid() {
		route.Gw = r.Gateway.AsSlice()
		route.Flags = int(netlink.FLAG_ONLINK)
	}
	return route
}

// Routes lists the routes of one device, in all tables but local.
func (h *Handle) Routes(index int) ([]Route, error) {
	filter := &netlink.Route{LinkIndex: index, Table: unix.RT_TABLE_UNSPEC}
	list, err := dump(func() ([]netlink.Route, error) {
		return h.nl.RouteListFiltered(netlink.FAMILY_ALL, filter, netlink.RT_FILTER_OIF|netlink.RT_FILTER_TABLE)
	})
	if err != nil {
		return nil, fmt.Errorf("list routes of device %d: %w", index, err)
	}
	var routes []Route
	for _, r := range list {
		if r.Table == unix.RT_TABLE_LOCAL {
			continue
		}
		gw, _ := netip.AddrFromSlice(r.Gw)
		routes = append(routes, Route{
			Dst: fromIPNet(r.Dst), Gateway: gw.Unmap(), MTU: r.MTU, AdvMSS: r.AdvMSS,
			Priority: r.Priority, Table: r.Table, Scope: int(r.Scope), Protocol: int(r.Protocol),
		})
	}
	return routes, nil
}

// unreachablePriority is below (in number: above) that of any route that somebody sets
// by hand. The very last one is left: old kernels keep an entry of their own there.
const unreachablePriority = 0xfffffffe

// SetUnreachable gives a family, 4 or 6, a default route that says "unreachable". A
// family that the kernel has not is no error.
func (h *Handle) SetUnreachable(family int) error {
	return unreachable("set", family, h.nl.RouteReplace)
}

// DeleteUnreachable takes the route of SetUnreachable away; it is no error that there
// is none.
func (h *Handle) DeleteUnreachable(family int) error {
	return unreachable("delete", family, h.nl.RouteDel)
}

func unreachable(verb string, family int, do func(*netlink.Route) error) error {
	err := do(&netlink.Route{
		Dst:      ipNet(defaultPrefix(family)),
		Type:     unix.RTN_UNREACHABLE,
		Priority: unreachablePriority,
		Protocol: RouteProtocol,
	})
	switch {
	case err == nil, errors.Is(err, unix.EAFNOSUPPORT), errors.Is(err, unix.EOPNOTSUPP):
		return nil
	case verb == "delete" && errors.Is(err, unix.ESRCH):
		return nil
	}
	return fmt.Errorf("%s unreachable IPv%d default route: %w", verb, family, err)
}

func defaultPrefix(family int) netip.Prefix {
	if family == 6 {
		return netip.PrefixFrom(netip.IPv6Unspecified(), 0)
	}
	return netip.PrefixFrom(netip.IPv4Unspecified(), 0)
}
