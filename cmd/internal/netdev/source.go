// SPDX-License-Identifier: Apache-2.0

package netdev

import (
	"errors"
	"fmt"
	"net/netip"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

// far are addresses that nobody has (RFC 5737, RFC 3849): the way to them is the way to
// the Internet.
var far = map[int]netip.Addr{4: netip.MustParseAddr("203.0.113.1"), 6: netip.MustParseAddr("2001:db8:ffff::1")}

// SourceAddr is the address of a family, 4 or 6, that the kernel gives to what the node
// itself sends far away by a device; where no route leads there, the first global address
// of the device. The zero Addr if it has none.
func (h *Handle) SourceAddr(index, family int) (netip.Addr, error) {
	routes, err := h.nl.RouteGetWithOptions(far[family].AsSlice(), &netlink.RouteGetOptions{OifIndex: index})
	if err == nil && len(routes) == 1 && routes[0].LinkIndex == index {
		if src, ok := netip.AddrFromSlice(routes[0].Src); ok && isUsable(src.Unmap()) {
			return src.Unmap(), nil
		}
	}
	if errors.Is(err, unix.ENODEV) {
		return netip.Addr{}, nil // gone meanwhile
	}
	return h.firstGlobal(index, family)
}

// firstGlobal has the kernel pick the device: the library's own list would be of all of
// them, on a node full of pods.
func (h *Handle) firstGlobal(index, family int) (netip.Addr, error) {
	msg := nl.NewIfAddrmsg(map[int]int{4: unix.AF_INET, 6: unix.AF_INET6}[family])
	msg.Index = uint32(index)
	addr, err := dump(func() (first netip.Addr, err error) {
		req, err := h.request(unix.RTM_GETADDR, unix.NLM_F_DUMP, msg)
		if err != nil {
			return first, err
		}
		err = req.ExecuteIter(unix.NETLINK_ROUTE, unix.RTM_NEWADDR, func(m []byte) bool {
			if !first.IsValid() {
				first = globalAddr(m)
			}
			return true
		})
		return first, err
	})
	if errors.Is(err, unix.ENODEV) {
		return netip.Addr{}, nil // gone meanwhile
	}
	if err != nil {
		return netip.Addr{}, fmt.Errorf("list addresses of device %d: %w", index, err)
	}
	return addr, nil
}

// globalAddr reads an address that can be used beyond the link; else the zero Addr.
func globalAddr(m []byte) netip.Addr {
	head := nl.DeserializeIfAddrmsg(m)
	attrs, err := nl.ParseRouteAttrAsMap(m[head.Len():])
	if err != nil || head.Scope != unix.RT_SCOPE_UNIVERSE || head.Flags&(unix.IFA_F_TENTATIVE|unix.IFA_F_DEPRECATED) != 0 {
		return netip.Addr{}
	}
	value := attrs[unix.IFA_LOCAL].Value // IPv4: IFA_ADDRESS may be the other end's
	if value == nil {
		value = attrs[unix.IFA_ADDRESS].Value
	}
	addr, _ := netip.AddrFromSlice(value)
	return addr.Unmap()
}

// isUsable is true of what the kernel chose unless it had nothing but loopback or, in IPv6,
// the link's own address.
func isUsable(a netip.Addr) bool {
	return !a.IsUnspecified() && !a.IsLoopback() && (a.Is4() || !a.IsLinkLocalUnicast())
}
