// SPDX-License-Identifier: Apache-2.0

package netdev

import (
	"bytes"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

const (
	// TunnelName is what the tunnel device is called unless somebody wants it otherwise.
	TunnelName = "culvert-vxlan"
	// TunnelPort is the one that VXLAN has of IANA.
	TunnelPort = 4789
	// Bytes that a packet grows by in the tunnel: Ethernet, VXLAN, UDP and the outer IP header.
	TunnelOverhead4 = 50
	TunnelOverhead6 = 70

	// tunnelAlias tells our device from one that somebody else has given its name.
	tunnelAlias = "culvert tunnel"
)

// tunnelMAC is the same on every node, so that frames can be addressed without asking. to_tunnel
// flips its last bit for the source.
var tunnelMAC = net.HardwareAddr{0x02, 'c', 'u', 'l', 'v', 0x00}

// TunnelConfig says what the tunnel device is to be.
type TunnelConfig struct {
	Name string // TunnelName if empty
	MTU  int
	Port int // UDP, of all nodes; TunnelPort if 0
	// Addrs are the node's as other nodes' pods see it: the first of its ranges. Others that the
	// device has go, but for those that a route of SyncRemoteRoutes still has for its source.
	Addrs []netip.Addr
	// Attach is called before the device goes up, each time, with its index: without programs it
	// would let in whatever anybody sends to its port. loader's AttachTunnel is meant.
	Attach func(ifindex int) error
}

// EnsureTunnel makes the device that packets to other nodes' pods leave by, or makes it what c
// says. It is idempotent; the device stays when its maker ends. One whose port is another is made
// anew, and the routes by it are gone. A device of that name that is not ours is an error that
// wraps fs.ErrExist; that the port is somebody else's, one that wraps unix.EADDRINUSE.
func (h *Handle) EnsureTunnel(c TunnelConfig) (ifindex int, err error) {
	if c.Name == "" {
		c.Name = TunnelName
	}
	if c.Port == 0 {
		c.Port = TunnelPort
	}
	if ifindex, err = h.makeTunnel(c); err != nil {
		return 0, err
	}
	if c.Attach != nil {
		if err := c.Attach(ifindex); err != nil {
			return 0, err
		}
	}
	for _, s := range tunnelSettings(c.Name) {
		if _, err := s.Ensure(); err != nil && !s.Optional {
			return 0, err
		}
	}
	if err := h.setUp(ifindex); errors.Is(err, unix.EADDRINUSE) {
		return 0, fmt.Errorf("open UDP port %d for %s, which another VXLAN device or program has: %w", c.Port, c.Name, err)
	} else if err != nil {
		return 0, err
	}
	h.tunnel = ifindex
	return ifindex, h.syncAddresses(ifindex, c.Addrs)
}

// tunnelSettings: a filter of sources is from_tunnel, which knows more than the routing table.
// That of `all`, where it is strict, would drop what comes from an address that has just moved.
func tunnelSettings(name string) []Sysctl {
	v4, v6 := "net/ipv4/conf/"+name+"/", "net/ipv6/conf/"+name+"/"
	return []Sysctl{
		{Path: v4 + "rp_filter", Value: "2"},
		{Path: v4 + "send_redirects", Value: "0"},
		{Path: v6 + "addr_gen_mode", Value: "1", Optional: true}, // no link-local address, and no talk about it
		{Path: v6 + "accept_ra", Value: "0", Optional: true},
		{Path: v6 + "accept_redirects", Value: "0", Optional: true},
	}
}

// makeTunnel leaves the device down if it is new.
func (h *Handle) makeTunnel(c TunnelConfig) (int, error) {
	attrs := netlink.NewLinkAttrs()
	attrs.Name, attrs.MTU, attrs.HardwareAddr = c.Name, c.MTU, tunnelMAC
	want := &netlink.Vxlan{LinkAttrs: attrs, FlowBased: true, Port: c.Port}
	is, err := h.nl.LinkByName(c.Name)
	if err != nil && !errors.Is(gone(err), unix.ENODEV) {
		return 0, fmt.Errorf("look up device %s: %w", c.Name, err)
	}
	if err == nil {
		vxlan, ok := is.(*netlink.Vxlan)
		if !ok || is.Attrs().Alias != tunnelAlias {
			return 0, fmt.Errorf("make tunnel %s: a %s of that name is not ours: %w", c.Name, is.Type(), unix.EEXIST)
		}
		if vxlan.FlowBased && vxlan.Port == c.Port && !vxlan.Learning {
			return is.Attrs().Index, h.repairTunnel(is.Attrs(), c.MTU)
		}
		if err := h.DeleteLink(is.Attrs().Index); err != nil {
			return 0, err
		}
	}
	if err := h.nl.LinkAdd(want); err != nil {
		return 0, fmt.Errorf("make tunnel %s: %w", c.Name, err)
	}
	is, err = h.nl.LinkByName(c.Name)
	if err != nil {
		return 0, fmt.Errorf("look up device %s: %w", c.Name, gone(err))
	}
	err = h.nl.LinkSetAlias(is, tunnelAlias)
	if err == nil {
		err = h.nl.LinkSetARPOff(is)
	}
	if err != nil {
		h.DeleteLink(is.Attrs().Index) //nolint:errcheck // the other error tells more
		return 0, fmt.Errorf("set up tunnel %s: %w", c.Name, err)
	}
	return is.Attrs().Index, nil
}

func (h *Handle) repairTunnel(is *netlink.LinkAttrs, mtu int) error {
	l := &netlink.Device{LinkAttrs: netlink.LinkAttrs{Index: is.Index}}
	var errs []error
	if is.MTU != mtu {
		errs = append(errs, h.nl.LinkSetMTU(l, mtu))
	}
	if !bytes.Equal(is.HardwareAddr, tunnelMAC) {
		errs = append(errs, h.nl.LinkSetHardwareAddr(l, tunnelMAC))
	}
	if is.RawFlags&unix.IFF_NOARP == 0 {
		errs = append(errs, h.nl.LinkSetARPOff(l))
	}
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("repair tunnel %s: %w", is.Name, err)
	}
	return nil
}

// syncAddresses adds before it removes.
func (h *Handle) syncAddresses(index int, want []netip.Addr) error {
	have, err := h.Addresses(index)
	if err != nil {
		return err
	}
	for _, a := range want {
		if slices.Contains(have, a) {
			continue
		}
		whole := Address{Prefix: netip.PrefixFrom(a, a.BitLen())}
		if err := errors.Join(h.addAddress(index, whole), h.makeLocal(index, whole)); err != nil {
			return err
		}
	}
	used, err := h.remoteSources()
	if err != nil {
		return err
	}
	for _, a := range have {
		if slices.Contains(want, a) || used[a] || a.IsLinkLocalUnicast() {
			continue
		}
		if err := h.deleteAddress(index, a); err != nil {
			return err
		}
	}
	return nil
}

// TunnelAddrs lists the addresses of the tunnel device by family; those that the routes of
// SyncRemoteRoutes have the node send from come first.
func (h *Handle) TunnelAddrs(index int) (v4, v6 []netip.Addr, err error) {
	have, err := h.Addresses(index)
	if err != nil {
		return nil, nil, err
	}
	used, err := h.remoteSources()
	for _, a := range have {
		list := &v4
		if a.Is6() {
			list = &v6
		}
		switch {
		case a.IsLinkLocalUnicast():
		case used[a]:
			*list = slices.Insert(*list, 0, a)
		default:
			*list = append(*list, a)
		}
	}
	return v4, v6, err
}

// deleteAddress takes an address away, and what makeLocal made for it.
func (h *Handle) deleteAddress(index int, a netip.Addr) error {
	whole := ipNet(netip.PrefixFrom(a, a.BitLen()))
	err := h.nl.AddrDel(&netlink.Device{LinkAttrs: netlink.LinkAttrs{Index: index}}, &netlink.Addr{IPNet: whole})
	if err != nil && !errors.Is(err, unix.EADDRNOTAVAIL) {
		return fmt.Errorf("delete address %s: %w", a, err)
	}
	if a.Is4() {
		return nil
	}
	err = h.nl.RouteDel(&netlink.Route{LinkIndex: index, Dst: whole, Type: unix.RTN_LOCAL, Table: unix.RT_TABLE_LOCAL})
	if err != nil && !errors.Is(err, unix.ESRCH) {
		return fmt.Errorf("delete local route of %s: %w", a, err)
	}
	return nil
}

// Tunnels lists the tunnel devices that we made, whatever they are called. It looks at every
// device: not for verbs that have to be fast.
func (h *Handle) Tunnels() ([]Link, error) {
	all, err := h.LinksNamed(func(string) bool { return true })
	return slices.DeleteFunc(all, func(l Link) bool { return !l.IsTunnel() }), err
}

// IsTunnel says whether EnsureTunnel made the device.
func (l Link) IsTunnel() bool { return l.Kind == "vxlan" && l.Alias == tunnelAlias }
