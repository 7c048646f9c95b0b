// SPDX-License-Identifier: Apache-2.0

package bpf_test

import (
	"net/netip"
	"slices"
	"testing"

	"github.com/culvert-cni/culvert/test/packet"
)

const arpRequest, arpReply = 1, 2

// arp is a message of Ethernet and IPv4 as RFC 826 draws it.
func arp(operation byte, dst, src packet.MAC, sender, target netip.Addr, targetMAC packet.MAC) []byte {
	return slices.Concat(dst[:], src[:], []byte{8, 6, 0, 1, 8, 0, 6, 4, 0, operation},
		src[:], sender.AsSlice(), targetMAC[:], target.AsSlice())
}

// N2: a pod that lost its permanent entries and asks for its gateway is answered with the
// host side's MAC; so it is for whatever it asks for but itself.
func TestPrivilegedNeighbourARP(t *testing.T) {
	n := newNode(t)
	broadcast := packet.MAC{0xff, 0xff, 0xff, 0xff, 0xff, 0xff}
	for _, target := range []netip.Addr{ip("169.254.1.1"), ip("10.1.0.1"), v4.b} {
		out := n.run("from_pod", n.a.Device, arp(arpRequest, broadcast, n.a.Peer, v4.a, target, packet.MAC{}))
		n.verdict(out, packet.Redirect)
		n.same(out.Frame, arp(arpReply, n.a.Peer, n.a.MAC, target, v4.a, n.a.Peer))
	}
	for name, frame := range map[string][]byte{
		"its own address": arp(arpRequest, broadcast, n.a.Peer, v4.a, v4.a, packet.MAC{}),
		"a reply":         arp(arpReply, n.a.MAC, n.a.Peer, v4.a, v4.b, n.a.MAC),
		"cut short":       arp(arpRequest, broadcast, n.a.Peer, v4.a, v4.b, packet.MAC{})[:40],
	} {
		out := n.run("from_pod", n.a.Device, frame)
		if out.Verdict != packet.Unspec || !slices.Equal(out.Frame[:len(frame)], frame) {
			t.Errorf("%s: verdict %d, frame %x", name, out.Verdict, out.Frame)
		}
	}
	n.notDropped()
}

// nd is a solicitation or its answer, whose option tells a MAC.
func nd(icmpType, flags, option byte, src, dst, target netip.Addr, mac packet.MAC) packet.Packet {
	body := slices.Concat([]byte{flags, 0, 0, 0}, target.AsSlice(), []byte{option, 1}, mac[:])
	return between(src, dst, packet.ICMP{Type: icmpType}).With(body).Lives(255)
}

func TestPrivilegedNeighbourSolicitation(t *testing.T) {
	n := newNode(t)
	for _, target := range []netip.Addr{ip("fe80::1"), ip("fd00:1::1"), v6.b} {
		for _, src := range []netip.Addr{v6.a, ip("fe80::1234")} {
			out := n.fromPod(n.a, nd(135, 0, 1, src, ip("ff02::1:ff00:1"), target, n.a.Peer))
			n.redirected(out) // the checksum too
			n.same(out.Frame, nd(136, 0xe0, 2, target, src, target, n.a.MAC).Link(n.a.Peer, n.a.MAC).Frame())
		}
	}
	// Duplicate address detection and questions about itself are not ours to answer.
	for _, p := range []packet.Packet{
		nd(135, 0, 1, ip("::"), ip("ff02::1:ff00:1"), ip("fe80::1234"), n.a.Peer),
		nd(135, 0, 1, ip("fe80::1234"), ip("ff02::1:ff00:1"), v6.a, n.a.Peer),
		nd(135, 0, 9, v6.a, ip("ff02::1:ff00:1"), v6.b, n.a.Peer),
	} {
		n.passed(n.fromPod(n.a, p), p)
	}
	n.notDropped()
	// Not answered, it is held to the pod's own address as everything is.
	n.dropped(n.fromPod(n.a, nd(135, 0, 9, v6.b, ip("ff02::1:ff00:1"), v6.b, n.a.Peer)), n.a.Index, fromPodHook, dropSource)
}

// The answer goes back into the veth that the question came from, past to_pod.
func TestPrivilegedNeighbourAnswerStaysOnLink(t *testing.T) {
	n := newNode(t)
	frame := arp(arpRequest, n.a.MAC, n.a.Peer, v4.a, ip("169.254.1.1"), packet.MAC{})
	seen := n.Watch(n, packet.In{Program: "from_pod", Device: n.a.Index, Frame: frame})
	want := packet.Seen{TcIndex: redirectStamp, Redirect: packet.Target{Ifindex: n.a.Index, Kind: packet.Egress}}
	if seen != want {
		t.Errorf("got %+v, want %+v", seen, want)
	}
}
