// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"fmt"
	"net/netip"
	"slices"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/culvert-cni/culvert/test/netns"
	"github.com/culvert-cni/culvert/test/packet"
)

// ICMP type and code of a port that nobody has.
var portUnreachable = map[int][2]uint8{4: {3, 3}, 6: {1, 4}}

// I1: who sends a datagram to a port behind which nobody listens is told so: through a
// hostPort from everywhere, by masquerade, and directly. The error comes from whom was
// called (or the router that speaks for him), and TCP is refused as quickly.
func TestPrivilegedI1Unreachable(t *testing.T) {
	t.Parallel()
	c := wire(t, netns.Layout{Nodes: 2})
	node, outside := c.Nodes[0], c.Outside()
	a := node.Add(t, netns.PodSpec{Name: "a", Ports: netns.Both(8080, 80)})
	b := node.Add(t, netns.PodSpec{Name: "b", Conf: masquerading()})
	remote := c.Nodes[1].Add(t, netns.PodSpec{Name: "remote"})
	for _, ns := range []*netns.NS{node.NS, outside.NS, a.NS} {
		unlimit(t, ns)
	}
	up := node.Uplinks[0].Addr
	for _, tc := range []struct {
		name string
		from *netns.NS
		to   func(int) netip.Addr
		port uint16
	}{
		{"HostPortFromOutside", outside.NS, up, 8080},
		{"HostPortFromPod", b.NS, up, 8080},
		{"HostPortFromItself", a.NS, up, 8080},
		{"HostPortFromRemotePod", remote.NS, up, 8080},
		{"HostPortFromHost", node.NS, up, 8080},
		{"HostPortOnLoopback", node.NS, at(loopback), 8080},
		{"Masqueraded", b.NS, outside.Addr, 81},
		{"Pod", b.NS, a.Addr, 81},
		{"PodFromOutside", outside.NS, a.Addr, 81},
	} {
		t.Run(tc.name, func(t *testing.T) {
			each(t, small, func(t *testing.T, proto string, v int) {
				for range 2 { // the first one opens the flow
					o, err := tc.from.Try(call(proto, tc.to(v), tc.port), 0)
					want := portUnreachable[v]
					switch {
					case err != nil:
						t.Error(err)
					case o.Errno != unix.ECONNREFUSED:
						t.Errorf("want it refused, got %s", o)
					case proto == "udp" && (o.By != tc.to(v) || o.Type != want[0] || o.Code != want[1]):
						t.Errorf("want port unreachable by %s, got %s", tc.to(v), o)
					}
				}
			})
		})
	}
}

// I1: what such an error holds is the packet as it left its sender, and every checksum
// of the two is right, on the caller's wire and in the pod.
func TestPrivilegedI1Inner(t *testing.T) {
	t.Parallel()
	c := wire(t, netns.Layout{})
	node, outside := c.Nodes[0], c.Outside()
	a := node.Add(t, netns.PodSpec{Name: "a", Ports: netns.Both(8080, 80)})
	b := node.Add(t, netns.PodSpec{Name: "b", Conf: masquerading()})
	for _, ns := range []*netns.NS{outside.NS, a.NS} {
		unlimit(t, ns)
	}
	up := node.Uplinks[0].Addr
	for _, tc := range []struct {
		name string
		from *netns.NS
		link *netns.Link
		src  func(int) netip.Addr
		to   func(int) netip.Addr
		port uint16
	}{
		{"HostPort", outside.NS, outside.Link(t, "br0"), outside.Addr, up, 8080},
		{"Masqueraded", b.NS, b.Link(t, b.IfName), b.Addr, outside.Addr, 81},
	} {
		tc.from.Checksums(t, tc.link.Dev)
		for _, v := range families {
			for _, size := range []int{1, 100, 1200} { // the last is cut off
				t.Run(fmt.Sprintf("%s/%d/%d", tc.name, v, size), func(t *testing.T) {
					c := call("udp", tc.to(v), tc.port)
					c.Size, c.From = size, netip.AddrPortFrom(tc.src(v), 30000+uint16(size))
					if o, err := tc.from.Try(c, 0); err != nil || o.Errno != unix.ECONNREFUSED {
						t.Errorf("want it refused, got %s (%v)", o, err)
					}
					frame, err := tc.link.Next(func(f []byte) bool {
						s := read(f)
						return s.proto == icmpOf(v) && s.dst == tc.src(v) && [2]uint8{s.kind, s.code} == portUnreachable[v] &&
							s.inner().sport == c.From.Port()
					})
					if err != nil {
						t.Fatal(err)
					}
					checkError(t, frame, c)
				})
			}
		}
	}
}

// icmpOf is the protocol of a family's ICMP.
func icmpOf(v int) uint8 { return map[int]uint8{4: packet.ProtoICMP, 6: packet.ProtoICMPv6}[v] }

// checkError compares the packet inside an error with the call that it is about.
func checkError(t *testing.T, frame []byte, c netns.Call) {
	t.Helper()
	if err := packet.Verify(frame); err != nil {
		t.Error(err)
	}
	outer := read(frame)
	in := outer.inner()
	if in.src != c.From.Addr() || in.sport != c.From.Port() || in.dst != c.To.Addr() || in.dport != c.To.Port() {
		t.Errorf("inner packet: want %s, got %s:%d -> %s:%d", c, in.src, in.sport, in.dst, in.dport)
	}
	// The inner packet, as a frame of its own: all of it if it is there, else its header.
	inner := slices.Concat(frame[:packet.EthLen], outer.body[8:])
	if whole := len(in.body) == 8+c.Size; whole || c.To.Addr().Is4() {
		if !whole {
			inner = headerOnly(inner)
		}
		if err := packet.Verify(inner); err != nil {
			t.Errorf("inner packet: %v", err)
		}
	}
}

// headerOnly makes the rest of a cut-off IPv4 packet one that Verify leaves alone: it
// says the true length and looks at the header's checksum, which has been seen to be
// right only if the length is put right in it too.
func headerOnly(frame []byte) []byte {
	ip := frame[packet.EthLen:]
	sum := uint32(ip[10])<<8 | uint32(ip[11])
	old := uint32(ip[2])<<8 | uint32(ip[3])
	ip[2], ip[3] = byte(len(ip)>>8), byte(len(ip))
	now := uint32(len(ip))
	ip[6] |= 0x20 // a fragment: its transport checksum cannot be checked
	sum = ^sum&0xffff + ^old&0xffff + now + 0x2000
	for sum > 0xffff {
		sum = sum&0xffff + sum>>16
	}
	ip[10], ip[11] = byte(^sum>>8), byte(^sum)
	return frame
}
