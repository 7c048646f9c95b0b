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

// End says what one end of a pair is to get, in the order of the fields.
type End struct {
	Index int
	Name  string
	Alias string // for people, and for who has nothing else; "": none
	// Sysctls are written before the device goes up: paths below /proc/sys.
	Sysctls    []Sysctl
	Shaper     Shaper // of what the device sends; none if Rate is 0
	Addrs      []Address
	Neighbours []Neighbour
	// Routes replace those of other devices to their destinations, unless Behind is
	// set: then they are made by AddRoute, and Routes tells how.
	Routes []Route
	Behind bool
}

// Address is an address of a device. It is usable at once: no duplicate address
// detection, and no route comes with it.
type Address struct {
	netip.Prefix
	LinkScope bool // not to be used beyond the link, as fe80::1
}

// Neighbour is a permanent entry of the ARP or ND table.
type Neighbour struct {
	Addr netip.Addr
	MAC  net.HardwareAddr
}

// Configure gives a device what e says and sets it up. After an error the device is half
// configured: delete it.
func (h *Handle) Configure(e End) error {
	for _, s := range e.Sysctls {
		if err := s.Set(); err != nil {
			return err
		}
	}
	if e.Shaper.Rate > 0 {
		if err := h.addShaper(e.Index, e.Shaper); err != nil {
			return err
		}
	}
	for _, a := range e.Addrs {
		if err := h.addAddress(e.Index, a); err != nil {
			return err
		}
	}
	if err := h.setUpAs(e.Index, e.Alias); err != nil {
		return err
	}
	for _, a := range e.Addrs {
		if err := h.makeLocal(e.Index, a); err != nil {
			return err
		}
	}
	for _, n := range e.Neighbours {
		if err := h.setNeighbour(e.Index, n); err != nil {
			return err
		}
	}
	return h.setRoutes(e)
}

func (h *Handle) setRoutes(e End) error {
	for i, r := range e.Routes {
		var err error
		if e.Behind {
			e.Routes[i], err = h.AddRoute(e.Index, r)
		} else {
			err = h.ReplaceRoute(e.Index, r)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func (h *Handle) addAddress(index int, a Address) error {
	addr := &netlink.Addr{IPNet: ipNet(a.Prefix), LinkIndex: index, Flags: unix.IFA_F_NOPREFIXROUTE}
	if a.Addr().Is6() {
		addr.Flags |= unix.IFA_F_NODAD
	}
	if a.LinkScope {
		addr.Scope = unix.RT_SCOPE_LINK
	}
	err := h.nl.AddrAdd(nil, addr)
	if err != nil && !errors.Is(err, unix.EEXIST) {
		return fmt.Errorf("add address %s: %w", a.Prefix, err)
	}
	return nil
}

// makeLocal gives an IPv6 address the route that makes the kernel receive for it. The
// kernel does so itself, but in a work item, which on a busy machine comes many seconds
// later, also for an address that needs no duplicate address detection.
func (h *Handle) makeLocal(index int, a Address) error {
	if a.Addr().Is4() || a.LinkScope {
		return nil
	}
	err := h.nl.RouteReplace(&netlink.Route{
		LinkIndex: index, Dst: ipNet(a.Prefix), Type: unix.RTN_LOCAL, Table: unix.RT_TABLE_LOCAL, Protocol: RouteProtocol,
	})
	if err != nil {
		return fmt.Errorf("make %s local: %w", a.Addr(), err)
	}
	return nil
}

// Addresses lists the addresses of one device.
func (h *Handle) Addresses(index int) ([]netip.Addr, error) {
	list, err := dump(func() ([]netlink.Addr, error) {
		return h.nl.AddrList(&netlink.Device{LinkAttrs: netlink.LinkAttrs{Index: index}}, netlink.FAMILY_ALL)
	})
	if err != nil {
		return nil, fmt.Errorf("list addresses of device %d: %w", index, err)
	}
	var addrs []netip.Addr
	for _, a := range list {
		if addr, ok := netip.AddrFromSlice(a.IP); ok {
			addrs = append(addrs, addr.Unmap())
		}
	}
	return addrs, nil
}

func (h *Handle) setNeighbour(index int, n Neighbour) error {
	err := h.nl.NeighSet(&netlink.Neigh{
		LinkIndex:    index,
		State:        unix.NUD_PERMANENT,
		IP:           n.Addr.AsSlice(),
		HardwareAddr: n.MAC,
	})
	if err != nil {
		return fmt.Errorf("set neighbour %s: %w", n.Addr, err)
	}
	return nil
}

func ipNet(p netip.Prefix) *net.IPNet {
	return &net.IPNet{IP: p.Addr().AsSlice(), Mask: net.CIDRMask(p.Bits(), p.Addr().BitLen())}
}

func fromIPNet(n *net.IPNet) netip.Prefix {
	if n == nil {
		return netip.Prefix{}
	}
	addr, ok := netip.AddrFromSlice(n.IP)
	if !ok {
		return netip.Prefix{}
	}
	ones, _ := n.Mask.Size()
	return netip.PrefixFrom(addr.Unmap(), ones)
}
