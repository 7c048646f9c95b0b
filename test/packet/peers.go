// SPDX-License-Identifier: Apache-2.0

package packet

import (
	"errors"
	"net/netip"
	"testing"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

// Conntrack makes a flow known to the node's conntrack: p is its request, answered
// without translation.
func (n *Node) Conntrack(tb testing.TB, p Packet) {
	tb.Helper()
	n.Translated(tb, p, p.Reverse())
}

// Translated makes a flow known to the node's conntrack whose answer netfilter expects to
// be another packet than the request's reverse.
func (n *Node) Translated(tb testing.TB, p, answer Packet) {
	tb.Helper()
	if !n.Object.Conntrack {
		tb.Skip("this kernel has no conntrack for programs to ask")
	}
	src, dst := p.Transport.Ports()
	proto := p.Transport.Protocol(p.IPv4())
	there := netlink.IPTuple{SrcIP: p.Src.AsSlice(), DstIP: p.Dst.AsSlice(), SrcPort: src, DstPort: dst, Protocol: proto}
	backSrc, backDst := answer.Transport.Ports()
	back := netlink.IPTuple{SrcIP: answer.Src.AsSlice(), DstIP: answer.Dst.AsSlice(), SrcPort: backSrc, DstPort: backDst, Protocol: proto}
	family := netlink.InetFamily(unix.AF_INET)
	if !p.IPv4() {
		family = unix.AF_INET6
	}
	flow := &netlink.ConntrackFlow{FamilyType: uint8(family), Forward: there, Reverse: back, TimeOut: 60}
	if proto == ProtoTCP {
		flow.ProtoInfo = &netlink.ProtoInfoTCP{State: nl.TCP_CONNTRACK_ESTABLISHED}
	}
	n.Do(tb, func() error { return netlink.ConntrackCreate(netlink.ConntrackTable, family, flow) })
}

// Connect makes a connected socket of the host, as far as a SYN gets it.
func (n *Node) Connect(tb testing.TB, from, to netip.AddrPort) {
	tb.Helper()
	n.socket(tb, from, func(fd int) error {
		if err := unix.Connect(fd, sockaddr(to)); !errors.Is(err, unix.EINPROGRESS) {
			return errors.Join(errors.New("connect at once"), err)
		}
		return nil
	})
}

// Listen makes a listening socket of the host.
func (n *Node) Listen(tb testing.TB, at netip.AddrPort) {
	tb.Helper()
	n.socket(tb, at, func(fd int) error { return unix.Listen(fd, 1) })
}

// socket makes a TCP socket bound to a local address, open until the test ends.
func (n *Node) socket(tb testing.TB, local netip.AddrPort, then func(fd int) error) {
	tb.Helper()
	family := unix.AF_INET6
	if local.Addr().Is4() {
		family = unix.AF_INET
	}
	n.Do(tb, func() error {
		fd, err := unix.Socket(family, unix.SOCK_STREAM|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, 0)
		if err != nil {
			return err
		}
		tb.Cleanup(func() { _ = unix.Close(fd) })
		if err := unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_REUSEPORT, 1); err != nil {
			return err
		}
		if err := unix.Bind(fd, sockaddr(local)); err != nil {
			return err
		}
		return then(fd)
	})
}

func sockaddr(a netip.AddrPort) unix.Sockaddr {
	if a.Addr().Is4() {
		return &unix.SockaddrInet4{Port: int(a.Port()), Addr: a.Addr().As4()}
	}
	return &unix.SockaddrInet6{Port: int(a.Port()), Addr: a.Addr().As16()}
}
