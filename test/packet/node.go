// SPDX-License-Identifier: Apache-2.0

package packet

import (
	"net"
	"net/netip"
	"os"
	"runtime"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// The main thread stays with the main goroutine: what /proc/self shows of namespaces is
// the main thread's, and no test shall change that.
func init() { runtime.LockOSThread() }

// Node is a network namespace on a thread of its own, which ends with the test, and
// everything in it does.
type Node struct {
	Object  *Object
	work    chan func()
	netlink *netlink.Handle
}

// Device is a veth of the node, its host side; the pod's side stays in the node too.
type Device struct {
	Name  string
	Index int
	MAC   MAC
	Peer  MAC
}

// NewNode makes a node that forwards, with its loopback up and empty maps.
func NewNode(tb testing.TB, o *Object) *Node {
	tb.Helper()
	if os.Getuid() != 0 {
		tb.Skip("needs root")
	}
	n := &Node{Object: o, work: make(chan func())}
	ready := make(chan error)
	go func() {
		runtime.LockOSThread() // for good: the thread is not to be used again
		ready <- unix.Unshare(unix.CLONE_NEWNET)
		for f := range n.work {
			f()
		}
	}()
	tb.Cleanup(func() { close(n.work) })
	if err := <-ready; err != nil {
		tb.Fatalf("make namespace: %v", err)
	}
	n.Do(tb, func() (err error) { n.netlink, err = netlink.NewHandle(); return err })
	tb.Cleanup(n.netlink.Close)
	for _, at := range []string{"all", "default"} {
		n.Sysctl(tb, "ipv6/conf/"+at+"/accept_dad", "0")
		n.Sysctl(tb, "ipv6/conf/"+at+"/disable_ipv6", "0")
		n.Sysctl(tb, "ipv6/conf/"+at+"/forwarding", "1")
	}
	n.Sysctl(tb, "ipv4/ip_forward", "1")
	n.up(tb, "lo")
	o.Clear(tb)
	return n
}

// Do runs f on the node's thread. Sockets that it makes stay there.
func (n *Node) Do(tb testing.TB, f func() error) {
	tb.Helper()
	done := make(chan error)
	n.work <- func() { done <- f() }
	if err := <-done; err != nil {
		tb.Fatalf("on the node: %v", err)
	}
}

// Sysctl writes a setting below /proc/sys/net.
func (n *Node) Sysctl(tb testing.TB, name, value string) {
	tb.Helper()
	n.Do(tb, func() error { return os.WriteFile("/proc/sys/net/"+name, []byte(value), 0o644) })
}

// Veth makes a pair, both ends up.
func (n *Node) Veth(tb testing.TB, name string, mtu int) Device {
	tb.Helper()
	attrs := netlink.NewLinkAttrs()
	attrs.Name, attrs.MTU = name, mtu
	err := n.netlink.LinkAdd(&netlink.Veth{LinkAttrs: attrs, PeerName: name + "p", PeerMTU: uint32(mtu)})
	if err != nil {
		tb.Fatalf("make veth %s: %v", name, err)
	}
	host, peer := n.up(tb, name), n.up(tb, name+"p")
	return Device{name, host.Index, MAC(host.HardwareAddr), MAC(peer.HardwareAddr)}
}

func (n *Node) up(tb testing.TB, name string) *netlink.LinkAttrs {
	tb.Helper()
	l, err := n.netlink.LinkByName(name)
	if err == nil {
		err = n.netlink.LinkSetUp(l)
	}
	if err != nil {
		tb.Fatalf("set %s up: %v", name, err)
	}
	return l.Attrs()
}

// Address gives the device an address. The kernel makes an IPv6 address local in a
// work queue (addrconf_dad_work), though there is nothing to detect: wait for it.
func (n *Node) Address(tb testing.TB, d Device, prefix string) {
	tb.Helper()
	addr, err := netlink.ParseAddr(prefix)
	if err == nil {
		addr.Flags = unix.IFA_F_NODAD
		err = n.netlink.AddrAdd(link(d.Index), addr)
	}
	if err != nil {
		tb.Fatalf("add address %s: %v", prefix, err)
	}
	for deadline := time.Now().Add(10 * time.Second); ; time.Sleep(time.Millisecond) {
		routes, err := n.netlink.RouteGet(addr.IP)
		if err == nil && len(routes) == 1 && routes[0].Type == unix.RTN_LOCAL {
			return
		}
		if time.Now().After(deadline) {
			tb.Fatalf("address %s does not get local: %v, %v", prefix, routes, err)
		}
	}
}

// Route adds a route; a zero via is a route on the link.
func (n *Node) Route(tb testing.TB, ifindex int, dst netip.Prefix, via netip.Addr) {
	tb.Helper()
	r := &netlink.Route{LinkIndex: ifindex, Dst: ipNet(dst)}
	switch {
	case !via.IsValid():
	case via.Is4() == dst.Addr().Is4():
		r.Gw = via.AsSlice()
	default:
		r.Via = &netlink.Via{AddrFamily: unix.AF_INET6, Addr: via.AsSlice()}
	}
	if err := n.netlink.RouteAdd(r); err != nil {
		tb.Fatalf("add route to %s: %v", dst, err)
	}
}

// Unreachable adds a route that leads nowhere.
func (n *Node) Unreachable(tb testing.TB, dst netip.Prefix) {
	tb.Helper()
	if err := n.netlink.RouteAdd(&netlink.Route{Dst: ipNet(dst), Type: unix.RTN_UNREACHABLE}); err != nil {
		tb.Fatalf("add unreachable route to %s: %v", dst, err)
	}
}

// MTU changes a device's MTU.
func (n *Node) MTU(tb testing.TB, d Device, mtu int) {
	tb.Helper()
	if err := n.netlink.LinkSetMTU(link(d.Index), mtu); err != nil {
		tb.Fatalf("set mtu of %s: %v", d.Name, err)
	}
}

// link is enough of a link for netlink to find it.
func link(ifindex int) netlink.Link {
	return &netlink.Dummy{LinkAttrs: netlink.LinkAttrs{Index: ifindex}}
}

func ipNet(p netip.Prefix) *net.IPNet {
	return &net.IPNet{IP: p.Addr().AsSlice(), Mask: net.CIDRMask(p.Bits(), p.Addr().BitLen())}
}

// Unaddress takes an address away, prefix as it was given.
func (n *Node) Unaddress(tb testing.TB, d Device, prefix string) {
	tb.Helper()
	addr, err := netlink.ParseAddr(prefix)
	if err == nil {
		err = n.netlink.AddrDel(link(d.Index), addr)
	}
	if err != nil {
		tb.Fatalf("take address %s from %s: %v", prefix, d.Name, err)
	}
}
